"""Loaders that go through edges."""

from __future__ import annotations

from typing import Any, Dict, Literal, Optional, Tuple

import torch
from torch import Tensor

from .. import _places
from ..data import Dataset
from ..sampler import BaseSampler, EdgeSamplerInput, NegativeSampling
from ..typing import EdgeType, InputEdges
from .base import Loader


class LinkLoader(Loader):
    """Batches of seed edges with whatever `link_sampler` finds around their ends.

    `edge_label_index` is sources and targets, or nothing for all edges in the order of their ids. Of graphs with types it is
    (edge type, sources and targets), or the type alone. Binary negatives come after the edges, in `edge_label_index`, with
    the label 0; labels of edges are then from 1 on. Triplets are in `src_index`, `dst_pos_index` and `dst_neg_index`.
    """

    def __init__(
        self,
        data: Dataset,
        link_sampler: BaseSampler,
        edge_label_index: InputEdges = None,
        edge_label: Optional[Tensor] = None,
        neg_sampling: Optional[NegativeSampling] = None,
        device: _places.Device = torch.device("cuda:0"),
        edge_dir: Optional[Literal["out", "in"]] = None,
        *,
        seed: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        if edge_dir not in (None, data.edge_dir):
            raise ValueError(f"edge_dir is {edge_dir!r}; the dataset's is {data.edge_dir!r}")
        kind, (row, col) = get_edge_label_index(data, edge_label_index)
        self.edge_dir = data.edge_dir
        self.link_sampler = link_sampler
        self.neg_sampling = NegativeSampling.cast(neg_sampling)
        if edge_label is not None:
            edge_label = torch.as_tensor(edge_label).cpu()
            if edge_label.size(0) != row.numel():
                raise ValueError(f"edge_label has {edge_label.size(0)} elements for {row.numel()} edges")
            if self.neg_sampling is not None and self.neg_sampling.is_triplet():
                raise ValueError("triplets have no labels; leave edge_label out")
            if self.neg_sampling is not None and edge_label.numel() > 0 and edge_label.min() == 0:
                # 0 is the label of negatives.
                edge_label = edge_label + 1
        self.input_data = EdgeSamplerInput(row, col, edge_label, kind, self.neg_sampling)
        super().__init__(data, link_sampler, row.numel(), device, seed, kwargs)

    def _batch_of(self, index: Tensor, numbered: Dict[str, Any]) -> Any:
        return self._collate_fn(self.link_sampler.sample_from_edges(self.input_data[index], **numbered))


def get_edge_label_index(
    data: Dataset, edge_label_index: InputEdges
) -> Tuple[Optional[EdgeType], Tuple[Tensor, Tensor]]:
    """The type of seed edges, and their sources and targets."""
    is_typed = isinstance(data.graph, dict)
    kind, edges = None, edge_label_index
    if isinstance(edges, (tuple, list)) and len(edges) == 3 and all(isinstance(word, str) for word in edges):
        kind, edges = tuple(edges), None
    elif isinstance(edges, (tuple, list)) and len(edges) == 2 and isinstance(edges[0], (tuple, list)):
        if len(edges[0]) == 3 and all(isinstance(word, str) for word in edges[0]):
            kind, edges = tuple(edges[0]), edges[1]
    if (kind is not None) != is_typed or (is_typed and kind not in data.graph):
        known = f"of the types {data.get_edge_types()}" if is_typed else "of one type"
        raise ValueError(f"edge_label_index is of the type {kind}; the graph's edges are {known}")
    if edges is None:
        row, col, ids, _ = data.get_graph(kind).topo.to_coo()
        order = ids.argsort()
        return kind, (row[order], col[order])
    if len(edges) != 2:
        raise ValueError(f"edge_label_index has {len(edges)} parts; it should have sources and targets")
    row, col = (torch.as_tensor(own).cpu().long().view(-1) for own in edges)
    return kind, (row, col)
