"""What a sampler is asked: around which nodes or edges, and with which negatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Optional, Union

import torch
from torch import Tensor

from ..typing import EdgeType, NodeType
from ..utils.common import CastMixin


def _moved(tensor: Optional[Tensor], device: torch.device) -> Optional[Tensor]:
    return None if tensor is None else tensor.to(device)


def _shared(*tensors: Optional[Tensor]) -> None:
    for tensor in tensors:
        if tensor is not None:
            tensor.share_memory_()


def _index(index: Any, device: torch.device) -> Tensor:
    index = torch.as_tensor(index, device=device)
    return index if index.dtype == torch.bool else index.long()


@dataclass
class NodeSamplerInput(CastMixin):
    """Seed nodes, of one type."""

    node: Tensor
    input_type: Optional[NodeType] = None

    def __getitem__(self, index: Any) -> NodeSamplerInput:
        return NodeSamplerInput(self.node[_index(index, self.node.device)], self.input_type)

    def __len__(self) -> int:
        return self.node.numel()

    def share_memory(self) -> NodeSamplerInput:
        _shared(self.node)
        return self

    def to(self, device: torch.device) -> NodeSamplerInput:
        return NodeSamplerInput(self.node.to(device), self.input_type)


class NegativeSamplingMode(Enum):
    """Pairs that are no edges, or targets that a source has no edge to."""

    binary = "binary"
    triplet = "triplet"


@dataclass(init=False)
class NegativeSampling(CastMixin):
    """How many negatives there are for each positive edge, and of which kind.

    `weight` says how often each node is drawn as a target, and as a source where sources are of the same type. Without it all
    are drawn equally often.
    """

    mode: NegativeSamplingMode
    amount: Union[int, float] = 1
    weight: Optional[Tensor] = None

    def __init__(
        self, mode: Union[NegativeSamplingMode, str], amount: Union[int, float] = 1, weight: Optional[Tensor] = None
    ) -> None:
        self.mode = NegativeSamplingMode(mode)
        self.amount = amount
        self.weight = weight
        if amount <= 0:
            raise ValueError(f"amount is {amount}; it should be positive")
        if self.is_triplet():
            if amount != math.ceil(amount):
                raise ValueError(f"amount is {amount}; triplets need a whole number")
            self.amount = math.ceil(amount)

    def is_binary(self) -> bool:
        return self.mode == NegativeSamplingMode.binary

    def is_triplet(self) -> bool:
        return self.mode == NegativeSamplingMode.triplet

    def share_memory(self) -> NegativeSampling:
        _shared(self.weight)
        return self

    def to(self, device: torch.device) -> NegativeSampling:
        return NegativeSampling(self.mode, self.amount, _moved(self.weight, device))


@dataclass
class EdgeSamplerInput(CastMixin):
    """Seed edges, of one type, with labels or without."""

    row: Tensor
    col: Tensor
    label: Optional[Tensor] = None
    input_type: Optional[EdgeType] = None
    neg_sampling: Optional[NegativeSampling] = None

    def __getitem__(self, index: Any) -> EdgeSamplerInput:
        index = _index(index, self.row.device)
        label = None if self.label is None else self.label[index.to(self.label.device)]
        return EdgeSamplerInput(self.row[index], self.col[index], label, self.input_type, self.neg_sampling)

    def __len__(self) -> int:
        return self.row.numel()

    def share_memory(self) -> EdgeSamplerInput:
        _shared(self.row, self.col, self.label)
        if self.neg_sampling is not None:
            self.neg_sampling.share_memory()
        return self

    def to(self, device: torch.device) -> EdgeSamplerInput:
        negatives = None if self.neg_sampling is None else self.neg_sampling.to(device)
        label = _moved(self.label, device)
        return EdgeSamplerInput(self.row.to(device), self.col.to(device), label, self.input_type, negatives)
