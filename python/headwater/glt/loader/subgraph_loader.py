"""GraphLearn's `SubGraphLoader`: every edge among seeds and what was sampled around them."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch
from torch import Tensor

from .. import _places
from ..data import Dataset
from ..sampler import NeighborSampler, NodeSamplerInput
from ..typing import InputNodes, NumNeighbors
from ._sampler import sampler_of
from .node_loader import NodeLoader


class SubGraphLoader(NodeLoader):
    """Batches with all edges among their nodes. `batch.mapping` says where each seed is in `batch.node`, which is sorted.

    Without `num_neighbors` the nodes are the seeds alone.
    """

    def __init__(
        self,
        data: Dataset,
        input_nodes: InputNodes,
        num_neighbors: Optional[NumNeighbors] = None,
        neighbor_sampler: Optional[NeighborSampler] = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        with_edge: bool = False,
        strategy: str = "random",
        device: _places.Device = torch.device("cuda:0"),
        seed: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(data.graph, dict):
            raise ValueError("SubGraphLoader is for graphs with one type of nodes")
        neighbor_sampler = sampler_of(
            neighbor_sampler,
            data,
            num_neighbors,
            device=device,
            with_edge=with_edge,
            strategy=strategy,
            seed=seed,
        )
        wished = {"batch_size": batch_size, "shuffle": shuffle, "drop_last": drop_last, **kwargs}
        super().__init__(data, neighbor_sampler, input_nodes, device, seed=seed, **wished)

    def _batch_of(self, index: Tensor, numbered: Dict[str, Any]) -> Any:
        inputs = NodeSamplerInput(self._seeds[index], self._input_type)
        batch = self._collate_fn(self.node_sampler.subgraph(inputs, **numbered), self._labels())
        batch.mapping = batch.metadata
        return batch
