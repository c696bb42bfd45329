"""Loaders that go through nodes."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from .. import _places
from ..data import Dataset
from ..sampler import BaseSampler, NodeSamplerInput
from ..typing import InputNodes
from .base import Loader, seeds_of


class NodeLoader(Loader):
    """Batches of seed nodes with whatever `node_sampler` finds around them.

    `input_nodes` is a list or a mask of nodes, or nothing for all of them. Of graphs with types it is (type, nodes), or the
    type alone. Other arguments are those of PyTorch's data loader.
    """

    def __init__(
        self,
        data: Dataset,
        node_sampler: BaseSampler,
        input_nodes: InputNodes,
        device: _places.Device = torch.device("cuda:0"),
        *,
        seed: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        self.input_nodes = input_nodes
        self._input_type, nodes = _split(data, input_nodes)
        counts = data.node_counts()
        count = counts if self._input_type is None else counts[self._input_type]
        self._seeds: Tensor = seeds_of(nodes, count)
        self.node_sampler = node_sampler
        super().__init__(data, node_sampler, self._seeds.numel(), device, seed, kwargs)

    def _labels(self) -> Any:
        labels = self.data.get_node_label(self._input_type)
        return labels if self._input_type is None else {self._input_type: labels}

    def _batch_of(self, index: Tensor, numbered: Dict[str, Any]) -> Any:
        inputs = NodeSamplerInput(self._seeds[index], self._input_type)
        return self._collate_fn(self.node_sampler.sample_from_nodes(inputs, **numbered), self._labels())


def _split(data: Dataset, input_nodes: InputNodes) -> Tuple[Optional[str], Any]:
    is_typed = isinstance(data.graph, dict)
    if isinstance(input_nodes, str):
        kind, nodes = input_nodes, None
    elif isinstance(input_nodes, tuple) and len(input_nodes) == 2 and isinstance(input_nodes[0], str):
        kind, nodes = input_nodes
    else:
        kind, nodes = None, input_nodes
    if (kind is not None) != is_typed or (is_typed and kind not in data.get_node_types()):
        known = f"of the types {data.get_node_types()}" if is_typed else "of one type"
        raise ValueError(f"input_nodes is of the type {kind!r}; the graph's nodes are {known}")
    return kind, nodes
