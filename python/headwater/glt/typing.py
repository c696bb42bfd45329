"""The names of GraphLearn's types: nodes, edges, seeds and fan-outs, and how an edge type is turned around."""

from __future__ import annotations

from enum import Enum
from typing import Dict, List, Tuple, Union

import numpy as np
import torch

NodeType = str
EdgeType = Tuple[str, str, str]
EDGE_TYPE_STR_SPLIT = "__"

TensorDataType = Union[torch.Tensor, np.ndarray]
NodeLabel = Union[TensorDataType, Dict[NodeType, TensorDataType]]
NodeIndex = Union[TensorDataType, Dict[NodeType, TensorDataType]]

Seeds = Union[torch.Tensor, str]
InputNodes = Union[Seeds, NodeType, Tuple[NodeType, Seeds], Tuple[NodeType, List[Seeds]]]
EdgeIndexTensor = Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]
InputEdges = Union[EdgeIndexTensor, EdgeType, Tuple[EdgeType, EdgeIndexTensor]]
NumNeighbors = Union[List[int], Dict[EdgeType, List[int]]]


class Split(Enum):
    """The three parts that nodes are split into."""

    train = "train"
    valid = "valid"
    test = "test"


def as_str(type: Union[NodeType, EdgeType]) -> str:
    """A type as one word. What is no type is the empty one."""
    if isinstance(type, str):
        return type
    return EDGE_TYPE_STR_SPLIT.join(type) if isinstance(type, (list, tuple)) and len(type) == 3 else ""


def reverse_edge_type(etype: EdgeType) -> EdgeType:
    """The type of the same edges the other way. Between nodes of one type the name stays.

    >>> reverse_edge_type(("user", "buys", "item"))
    ('item', 'rev_buys', 'user')
    >>> reverse_edge_type(("item", "rev_buys", "user"))
    ('user', 'buys', 'item')
    """
    source, name, target = etype
    if source != target:
        name = name[len("rev_") :] if name.startswith("rev_") else "rev_" + name
    return (target, name, source)
