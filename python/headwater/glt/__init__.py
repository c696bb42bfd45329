"""Headwater for users of GraphLearn-for-PyTorch: `import headwater.glt as graphlearn_torch`.

>>> import headwater.glt as glt
>>> topology = glt.data.Topology(torch.tensor([[0, 0, 1], [1, 2, 2]]))
>>> graph = glt.data.Graph(topology, mode="CPU")
>>> glt.sampler.NeighborSampler(graph, [-1]).sample_from_nodes(torch.tensor([0])).node
tensor([0, 1, 2])
"""

from . import data, loader, sampler, utils
from .typing import (
    EDGE_TYPE_STR_SPLIT,
    EdgeIndexTensor,
    EdgeType,
    InputEdges,
    InputNodes,
    NodeIndex,
    NodeLabel,
    NodeType,
    NumNeighbors,
    Seeds,
    Split,
    TensorDataType,
    as_str,
    reverse_edge_type,
)

__all__ = [
    "EDGE_TYPE_STR_SPLIT",
    "EdgeIndexTensor",
    "EdgeType",
    "InputEdges",
    "InputNodes",
    "NodeIndex",
    "NodeLabel",
    "NodeType",
    "NumNeighbors",
    "Seeds",
    "Split",
    "TensorDataType",
    "as_str",
    "data",
    "loader",
    "reverse_edge_type",
    "sampler",
    "utils",
]
