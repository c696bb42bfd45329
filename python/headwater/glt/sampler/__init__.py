"""Samplers, and what goes into them and comes out, with GraphLearn's names."""

from .base import BaseSampler, SamplingConfig, SamplingType
from .inputs import EdgeSamplerInput, NegativeSampling, NegativeSamplingMode, NodeSamplerInput
from .negative_sampler import RandomNegativeSampler
from .neighbor_sampler import NeighborSampler
from .outputs import EdgeIndex, HeteroSamplerOutput, NeighborOutput, SamplerOutput

__all__ = [
    "BaseSampler",
    "EdgeIndex",
    "EdgeSamplerInput",
    "HeteroSamplerOutput",
    "NegativeSampling",
    "NegativeSamplingMode",
    "NeighborOutput",
    "NeighborSampler",
    "NodeSamplerInput",
    "RandomNegativeSampler",
    "SamplerOutput",
    "SamplingConfig",
    "SamplingType",
]
