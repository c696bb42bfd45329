"""Loaders with GraphLearn's names. They are PyTorch data loaders, and their batches are PyG's `Data` and `HeteroData`."""

from .link_loader import LinkLoader
from .link_neighbor_loader import LinkNeighborLoader
from .neighbor_loader import NeighborLoader
from .node_loader import NodeLoader
from .subgraph_loader import SubGraphLoader
from .transform import to_data, to_hetero_data

__all__ = [
    "LinkLoader",
    "LinkNeighborLoader",
    "NeighborLoader",
    "NodeLoader",
    "SubGraphLoader",
    "to_data",
    "to_hetero_data",
]
