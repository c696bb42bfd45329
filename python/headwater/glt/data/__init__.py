"""Graphs, features and the dataset that holds them, with GraphLearn's names."""

from .dataset import Dataset, random_split
from .device_group import DeviceGroup
from .feature import Feature
from .graph import Graph
from .reorder import sort_by_in_degree
from .topology import Topology
from .unified_tensor import UnifiedTensor

__all__ = [
    "Dataset",
    "DeviceGroup",
    "Feature",
    "Graph",
    "Topology",
    "UnifiedTensor",
    "random_split",
    "sort_by_in_degree",
]
