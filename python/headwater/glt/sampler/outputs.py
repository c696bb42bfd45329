"""What a sampler found: nodes, and edges between their positions, which point from neighbours to whoever asked for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor

from ..typing import EdgeType, NodeType
from ..utils.common import CastMixin


class EdgeIndex(NamedTuple):
    """One hop as PyG's first loaders told it: edges, their ids, and how many nodes are on either side."""

    edge_index: Tensor
    e_id: Optional[Tensor]
    size: Tuple[int, int]

    def to(self, *args: Any, **kwargs: Any) -> EdgeIndex:
        ids = None if self.e_id is None else self.e_id.to(*args, **kwargs)
        return EdgeIndex(self.edge_index.to(*args, **kwargs), ids, self.size)


@dataclass
class SamplerOutput(CastMixin):
    """A sample of a graph with one type of nodes. `batch` is the seeds, which are the first of `node`."""

    node: Tensor
    row: Tensor
    col: Tensor
    edge: Optional[Tensor] = None
    batch: Optional[Tensor] = None
    num_sampled_nodes: Optional[Union[List[int], Tensor]] = None
    num_sampled_edges: Optional[Union[List[int], Tensor]] = None
    device: Optional[torch.device] = None
    metadata: Optional[Any] = None


@dataclass
class HeteroSamplerOutput(CastMixin):
    """A sample by types. Those that were not reached are left out; `edge_types` has all that could have been."""

    node: Dict[NodeType, Tensor]
    row: Dict[EdgeType, Tensor]
    col: Dict[EdgeType, Tensor]
    edge: Optional[Dict[EdgeType, Tensor]] = None
    batch: Optional[Dict[NodeType, Tensor]] = None
    num_sampled_nodes: Optional[Dict[NodeType, Union[List[int], Tensor]]] = None
    num_sampled_edges: Optional[Dict[EdgeType, Union[List[int], Tensor]]] = None
    edge_types: Optional[List[EdgeType]] = None
    input_type: Optional[Union[NodeType, EdgeType]] = None
    device: Optional[torch.device] = None
    metadata: Optional[Any] = None

    def get_edge_index(self) -> Dict[EdgeType, Tensor]:
        """Both ends of edges by type, empty where none were reached."""
        edges = {kind: torch.stack([row, self.col[kind]]) for kind, row in self.row.items()}
        for kind in self.edge_types or []:
            if kind not in edges:
                edges[kind] = torch.empty((2, 0), dtype=torch.long, device=self.device)
        return edges


@dataclass
class NeighborOutput(CastMixin):
    """One hop: the neighbours of all seeds in a row, how many each seed has, and the ids of the edges to them."""

    nbr: Tensor
    nbr_num: Tensor
    edge: Optional[Tensor]

    def to(self, device: torch.device) -> NeighborOutput:
        edge = None if self.edge is None else self.edge.to(device)
        return NeighborOutput(self.nbr.to(device), self.nbr_num.to(device), edge)
