"""What every sampler can be asked, and how sampling is described in one object. Inputs and outputs are named here too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Optional, Union

from ..typing import NumNeighbors
from .inputs import EdgeSamplerInput, NegativeSampling, NegativeSamplingMode, NodeSamplerInput
from .outputs import EdgeIndex, HeteroSamplerOutput, NeighborOutput, SamplerOutput

__all__ = [
    "BaseSampler",
    "EdgeIndex",
    "EdgeSamplerInput",
    "HeteroSamplerOutput",
    "NegativeSampling",
    "NegativeSamplingMode",
    "NeighborOutput",
    "NodeSamplerInput",
    "SamplerOutput",
    "SamplingConfig",
    "SamplingType",
]


class SamplingType(Enum):
    """What is sampled around."""

    NODE = 0
    LINK = 1
    SUBGRAPH = 2
    RANDOM_WALK = 3


@dataclass
class SamplingConfig:
    """The arguments of a loader, to be kept or sent."""

    sampling_type: SamplingType
    num_neighbors: Optional[NumNeighbors]
    batch_size: int
    shuffle: bool
    drop_last: bool
    with_edge: bool
    collect_features: bool
    with_neg: bool
    with_weight: bool
    edge_dir: Literal["in", "out"]
    seed: Optional[int]


class BaseSampler(ABC):
    """What loaders need of a sampler. Those of users may be of this kind."""

    @abstractmethod
    def sample_from_nodes(self, inputs: NodeSamplerInput, **kwargs: Any) -> Union[HeteroSamplerOutput, SamplerOutput]:
        """The neighbourhood of seed nodes."""

    @abstractmethod
    def sample_from_edges(self, inputs: EdgeSamplerInput, **kwargs: Any) -> Union[HeteroSamplerOutput, SamplerOutput]:
        """The neighbourhood of the ends of seed edges and of their negatives."""

    @abstractmethod
    def subgraph(self, inputs: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """Every edge among seed nodes and their neighbourhood. `metadata` says where each seed is among the nodes."""
