"""A graph with everything that belongs to it: features, labels and the split of its nodes, of one type or of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Dict, List, Literal, Optional, Tuple, Union

import torch
from torch import Tensor

from .. import _places
from ..typing import EdgeType, NodeIndex, NodeLabel, NodeType, TensorDataType
from ..utils.tensor import apply_to_all_tensor, convert_to_tensor, shared
from .device_group import DeviceGroup
from .feature import Feature
from .graph import Graph
from .topology import Topology

Nodes = Optional[Union[Tensor, Dict[NodeType, Tensor]]]
Ids = Optional[Union[TensorDataType, Dict[Any, TensorDataType], Sequence, Dict[Any, Sequence]]]


class Dataset:
    """What loaders read. Of graphs with types, everything is a dict by type.

    `edge_dir` says whose neighbours are sampled: 'out' follows edges from their sources, 'in' from their targets.
    """

    def __init__(
        self,
        graph: Optional[Union[Graph, Dict[EdgeType, Graph]]] = None,
        node_features: Optional[Union[Feature, Dict[NodeType, Feature]]] = None,
        edge_features: Optional[Union[Feature, Dict[EdgeType, Feature]]] = None,
        node_labels: Optional[NodeLabel] = None,
        edge_dir: Literal["in", "out"] = "out",
        node_split: Optional[Tuple[NodeIndex, NodeIndex, NodeIndex]] = None,
    ) -> None:
        if edge_dir not in ("in", "out"):
            raise ValueError(f"edge_dir is {edge_dir!r}; it should be 'in' or 'out'")
        self.graph = graph
        self.node_features = node_features
        self.edge_features = edge_features
        self.node_labels: Any = _labels(node_labels)
        self.edge_dir = edge_dir
        self._directed = False
        self.train_idx: Nodes = None
        self.val_idx: Nodes = None
        self.test_idx: Nodes = None
        self.init_node_split(node_split)

    def init_graph(
        self,
        edge_index: Optional[Union[TensorDataType, Dict[EdgeType, TensorDataType]]] = None,
        edge_ids: Optional[Union[TensorDataType, Dict[EdgeType, TensorDataType]]] = None,
        edge_weights: Optional[Union[TensorDataType, Dict[EdgeType, TensorDataType]]] = None,
        layout: Union[str, Dict[EdgeType, str]] = "COO",
        graph_mode: str = "ZERO_COPY",
        directed: bool = False,
        device: Optional[int] = None,
    ) -> None:
        """Makes the graph. `directed` matters to the order of features alone: see `init_node_features`."""
        self._directed = directed
        graph_mode = _places.checked_mode(graph_mode, "graph_mode")
        if edge_index is None:
            return
        kept = "CSR" if self.edge_dir == "out" else "CSC"

        def made(edges: Any, ids: Any, weights: Any, came: str) -> Graph:
            graph = Graph(Topology(edges, ids, weights, came, kept), graph_mode, device)
            graph.lazy_init()
            return graph

        if not isinstance(edge_index, dict):
            self.graph = made(edge_index, edge_ids, edge_weights, layout)
            return
        _by_type("edge_ids", edge_ids, edge_index)
        _by_type("edge_weights", edge_weights, edge_index)
        layouts = layout if isinstance(layout, dict) else dict.fromkeys(edge_index, layout)
        _by_type("layout", layouts, edge_index)
        self.graph = {
            kind: made(edges, (edge_ids or {}).get(kind), (edge_weights or {}).get(kind), layouts.get(kind, "COO"))
            for kind, edges in edge_index.items()
        }

    def init_node_features(
        self,
        node_feature_data: Optional[Union[TensorDataType, Dict[NodeType, TensorDataType]]] = None,
        id2idx: Ids = None,
        sort_func: Optional[Callable] = None,
        split_ratio: Union[float, Dict[NodeType, float]] = 0.0,
        device_group_list: Optional[List[DeviceGroup]] = None,
        device: Optional[int] = None,
        with_gpu: bool = True,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        """Makes the features of nodes. `sort_func`, such as `sort_by_in_degree`, says which rows are asked for most.

        It is given the graph, which for a directed one is turned around: rows are asked for along edges.
        """
        if node_feature_data is None:
            return
        if sort_func is not None:
            node_feature_data, id2idx = self._sorted(node_feature_data, id2idx, sort_func, split_ratio)
        self.node_features = _features(
            node_feature_data, id2idx, split_ratio, device_group_list, device, with_gpu, dtype
        )

    def _sorted(self, rows: Any, id2idx: Ids, sort_func: Callable, split_ratio: Any) -> tuple[Tensor, Optional[Tensor]]:
        if id2idx is not None:
            raise ValueError("sort_func finds the rows of ids itself; leave id2idx out")
        if isinstance(rows, dict):
            raise ValueError("sort_func is for graphs with one type of nodes")
        if not isinstance(self.graph, Graph):
            raise ValueError("sort_func needs a graph with one type of nodes; call init_graph first")
        topo = self.graph.topo
        if self._directed:
            row, col, ids, weights = topo.to_coo()
            topo = Topology((col, row), ids, weights, "COO", topo.layout)
        return sort_func(convert_to_tensor(rows), split_ratio, topo)

    def init_edge_features(
        self,
        edge_feature_data: Optional[Union[TensorDataType, Dict[EdgeType, TensorDataType]]] = None,
        id2idx: Ids = None,
        split_ratio: Union[float, Dict[EdgeType, float]] = 0.0,
        device_group_list: Optional[List[DeviceGroup]] = None,
        device: Optional[int] = None,
        with_gpu: bool = True,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        """Makes the features of edges, by their ids."""
        if edge_feature_data is not None:
            self.edge_features = _features(
                edge_feature_data, id2idx, split_ratio, device_group_list, device, with_gpu, dtype
            )

    def init_node_labels(self, node_label_data: Optional[NodeLabel] = None, id2idx: Ids = None) -> None:
        """Keeps the labels of nodes. With `id2idx` they are looked up by id, as features are."""
        if node_label_data is None:
            return
        if id2idx is None:
            self.node_labels = _labels(node_label_data)
        else:
            self.node_labels = _features(_labels(node_label_data), id2idx, 0.0, None, None, False, torch.int64)

    def init_node_split(self, node_split: Optional[Tuple[NodeIndex, NodeIndex, NodeIndex]] = None) -> None:
        """Keeps the nodes to train on, to validate with and to test with."""
        if node_split is not None:
            own = apply_to_all_tensor(tuple(node_split), lambda nodes: nodes.reshape(-1))
            self.train_idx, self.val_idx, self.test_idx = own

    def random_node_split(self, num_val: Union[float, int], num_test: Union[float, int]) -> None:
        """Splits the nodes that have labels. Numbers are counts; fractions are shares."""
        if self.node_labels is None:
            raise ValueError("nodes are split by their labels; call init_node_labels first")
        if not isinstance(self.node_labels, dict):
            self.init_node_split(random_split(self.node_labels.shape[0], num_val, num_test))
            return
        parts = {kind: random_split(own.shape[0], num_val, num_test) for kind, own in self.node_labels.items()}
        self.init_node_split(tuple({kind: own[at] for kind, own in parts.items()} for at in range(3)))

    def share_ipc(self) -> tuple:
        """What another process makes this dataset of."""
        for graph in self.graph.values() if isinstance(self.graph, dict) else [self.graph]:
            if graph is not None:
                graph.share_ipc()
        for name in ("node_labels", "train_idx", "val_idx", "test_idx"):
            setattr(self, name, apply_to_all_tensor(getattr(self, name), shared))
        split = (self.train_idx, self.val_idx, self.test_idx)
        return self.graph, self.node_features, self.edge_features, self.node_labels, self.edge_dir, split

    @classmethod
    def from_ipc_handle(cls, ipc_handle: tuple) -> Dataset:
        return cls(*ipc_handle)

    # What loaders ask for #############################################################################################

    def get_graph(self, etype: Optional[EdgeType] = None) -> Optional[Graph]:
        return _of_type(self.graph, etype)

    def get_node_types(self) -> Optional[List[NodeType]]:
        if not isinstance(self.graph, dict):
            return None
        return list(dict.fromkeys(end for kind in self.graph for end in (kind[0], kind[2])))

    def get_edge_types(self) -> Optional[List[EdgeType]]:
        return list(self.graph) if isinstance(self.graph, dict) else None

    def get_node_feature(self, ntype: Optional[NodeType] = None) -> Optional[Feature]:
        return _of_type(self.node_features, ntype)

    def get_edge_feature(self, etype: Optional[EdgeType] = None) -> Optional[Feature]:
        return _of_type(self.edge_features, etype)

    def get_node_label(self, ntype: Optional[NodeType] = None) -> Any:
        return _of_type(self.node_labels, ntype)

    def node_counts(self) -> Union[int, Dict[NodeType, int]]:
        """How many nodes there are. Features and labels tell of those without edges, which the graph cannot know."""
        is_typed = isinstance(self.graph, dict)
        counts = {
            kind: max(_count(self.get_node_feature(kind)), _count(self.get_node_label(kind)))
            for kind in (self.get_node_types() if is_typed else [None])
        }
        graphs = self.graph if is_typed else {(None, "", None): self.graph} if self.graph is not None else {}
        for (source, _, target), graph in graphs.items():
            owner, other = (source, target) if self.edge_dir == "out" else (target, source)
            counts[owner] = max(counts[owner], graph.row_count)
            counts[other] = max(counts[other], graph.col_count)
        return counts if is_typed else counts[None]

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key, None)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, value)


def random_split(
    num_total: int, num_val: Union[float, int], num_test: Union[float, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The numbers below `num_total` in three parts, at random: to train on, to validate with, to test with."""
    val, test = (round(num_total * own) if isinstance(own, float) else int(own) for own in (num_val, num_test))
    if val < 0 or test < 0 or val + test > num_total:
        raise ValueError(f"{num_val} to validate with and {num_test} to test with are not parts of {num_total} nodes")
    order = torch.randperm(num_total)
    return order[val + test :].clone(), order[:val].clone(), order[val : val + test].clone()


def _labels(labels: Any) -> Any:
    """Labels without dimensions of one element, except that of nodes, of which there may be one."""

    def squeezed(own: Tensor) -> Tensor:
        return own.reshape(own.size(0), *[size for size in own.shape[1:] if size != 1])

    return apply_to_all_tensor(labels, squeezed)


def _of_type(held: Any, kind: Any) -> Any:
    if not isinstance(held, dict):
        return held
    if kind is None:
        raise ValueError(f"this is of several types; name one of {list(held)}")
    return held.get(kind)


def _count(held: Any) -> int:
    if held is None:
        return 0
    return held.id_count if isinstance(held, Feature) else held.size(0)


def _by_type(name: str, given: Any, kinds: Any) -> None:
    """A value for each type, of the types that there are."""
    if given is None:
        return
    if not isinstance(given, dict):
        raise ValueError(f"{name} should be a dict by type, as what it belongs to is")
    for kind in given:
        if kind not in kinds:
            raise ValueError(f"{name} has the type {kind}, which there is not")


def _features(
    rows: Any,
    id2idx: Any,
    split_ratio: Any,
    groups: Optional[List[DeviceGroup]],
    device: Optional[int],
    with_gpu: bool,
    dtype: Optional[torch.dtype],
) -> Any:
    if not isinstance(rows, dict):
        return Feature(rows, id2idx, split_ratio, groups, device, with_gpu, dtype)
    _by_type("id2idx", id2idx, rows)
    ratios = split_ratio if isinstance(split_ratio, dict) else dict.fromkeys(rows, split_ratio)
    _by_type("split_ratio", ratios, rows)
    return {
        kind: Feature(own, (id2idx or {}).get(kind), ratios.get(kind, 0.0), groups, device, with_gpu, dtype)
        for kind, own in rows.items()
    }
