"""Headwater for PyG users: change the import of a loader.

>>> from headwater.pyg import NeighborLoader  # instead of torch_geometric.loader
"""

from .install import install
from .loader import LinkNeighborLoader, NeighborLoader
from .sampler import NeighborSampler
from .stores import FeatureStore, GraphStore

__all__ = ["FeatureStore", "GraphStore", "LinkNeighborLoader", "NeighborLoader", "NeighborSampler", "install"]
