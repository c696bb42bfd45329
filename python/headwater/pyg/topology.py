"""PyG's graphs as Headwater's: who is next to whom, in which order, with which weights and times.

A `Described` graph has one topology an edge type. Homogeneous graphs have the node type and the edge type `None`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData, remote_backend_utils
from torch_geometric.data.graph_store import EdgeLayout

from .._headwater import Graph, Topology

Type = Any  # a node type, an edge type, or None for those of a homogeneous graph


@dataclass
class Described:
    """What a sampler needs to know of a graph."""

    node_types: list[Type]
    edge_types: list[Type]
    num_nodes: dict[Type, int]
    topologies: dict[Type, Topology]
    is_hetero: bool
    node_time: dict[Type, Tensor] = field(default_factory=dict)
    has_times: bool = False

    def graph(self) -> Graph:
        """The graph itself. Relations point from source to target, and targets own the lists."""
        names = [str(kind) for kind in self.node_types]
        at = {kind: place for place, kind in enumerate(self.node_types)}
        ends = [(kind[0], kind[1], kind[2]) if self.is_hetero else (None, "to", None) for kind in self.edge_types]
        relations = [
            (at[source], name, at[target], self.topologies[kind])
            for kind, (source, name, target) in zip(self.edge_types, ends)
        ]
        return Graph([(name, self.num_nodes[kind]) for name, kind in zip(names, self.node_types)], relations)


@dataclass
class Wishes:
    """Which attributes of a graph matter, and in which direction it is walked."""

    time_attr: Optional[str]
    weight_attr: Optional[str]
    is_backward: bool
    # Whether edges are in the order of who asks for neighbours, so that nobody need sort them.
    is_sorted: bool = False


def describe(data: Any, wishes: Wishes) -> Described:
    """A graph of PyG's, in any of the three ways it can be given."""
    if isinstance(data, Data):
        return _homogeneous(data, wishes)
    if isinstance(data, HeteroData):
        return _heterogeneous(data, wishes)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return _remote(data[0], data[1], wishes)
    raise TypeError(f"data is a {type(data).__name__}; it should be a Data, a HeteroData or (FeatureStore, GraphStore)")


def on_host(value: Any) -> Any:
    """A tensor where the CPU reads it without a copy, if it can be."""
    if not isinstance(value, Tensor):
        return torch.as_tensor(value)
    return value.detach().as_subclass(Tensor).cpu().contiguous()


def _homogeneous(data: Data, wishes: Wishes) -> Described:
    node_time, edge_time = None, None
    if wishes.time_attr is not None:
        if wishes.time_attr in data and data.is_node_attr(wishes.time_attr):
            node_time = data[wishes.time_attr]
        elif wishes.time_attr in data and data.is_edge_attr(wishes.time_attr):
            edge_time = data[wishes.time_attr]
        else:
            raise ValueError(f"The time attribute '{wishes.time_attr}' is neither a node-level or edge-level attribute")
    weight = None if wishes.weight_attr is None else data[wishes.weight_attr]
    nodes = int(data.num_nodes or 0)
    topology = _of_store(data, (nodes, nodes), wishes, weight, edge_time, node_time)
    times = {} if node_time is None else {None: node_time}
    return Described([None], [None], {None: nodes}, {None: topology}, False, times, wishes.time_attr is not None)


def _heterogeneous(data: HeteroData, wishes: Wishes) -> Described:
    node_types, edge_types = data.metadata()
    node_time, edge_time = _times_of_stores(data, wishes.time_attr)
    weights = {} if wishes.weight_attr is None else data.collect(wishes.weight_attr)
    num_nodes = {kind: int(data[kind].num_nodes or 0) for kind in node_types}
    topologies = {}
    for kind in edge_types:
        size = (num_nodes[kind[0]], num_nodes[kind[-1]])
        seen = kind[-1] if wishes.is_backward else kind[0]
        store = data[kind]
        topologies[kind] = _of_store(
            store, size, wishes, weights.get(kind), edge_time.get(kind), node_time.get(seen)
        )
    return _turned(
        Described(node_types, edge_types, num_nodes, topologies, True, node_time, wishes.time_attr is not None), wishes
    )


def _times_of_stores(data: HeteroData, name: Optional[str]) -> tuple[dict[Type, Tensor], dict[Type, Tensor]]:
    """Times of nodes or of edges, by type."""
    if name is None:
        return {}, {}
    of_nodes = any(name in store for store in data.node_stores)
    of_edges = any(name in store for store in data.edge_stores)
    if of_nodes and of_edges:
        raise ValueError(f"The time attribute '{name}' holds both node-level and edge-level information")
    if not of_nodes and not of_edges:
        raise ValueError(f"The time attribute '{name}' is neither a node-level or edge-level attribute")
    return (data.collect(name), {}) if of_nodes else ({}, data.collect(name))


def _of_store(
    store: Any,
    size: tuple[int, int],
    wishes: Wishes,
    weight: Optional[Tensor],
    edge_time: Optional[Tensor],
    node_time: Optional[Tensor],
) -> Topology:
    """The edges of a store, whichever way it keeps them."""
    carried = _carried(weight, edge_time, node_time)
    if "adj_t" in store or "adj" in store:
        is_turned = "adj_t" in store
        offsets, neighbours = _of_sparse(store["adj_t"] if is_turned else store["adj"])
        # Rows of `adj_t` are targets. Walked backwards, they are sources.
        if is_turned != wishes.is_backward:
            return Topology.from_lists(offsets, neighbours, size[1] if wishes.is_backward else size[0], **carried)
        rows = torch.repeat_interleave(torch.arange(offsets.numel() - 1), offsets.diff())
        edges = torch.stack([neighbours, rows] if is_turned else [rows, neighbours])
    else:
        edges = _edges_of(store)
    source, target = on_host(edges[0]), on_host(edges[1])
    if wishes.is_backward:
        source, target, size = target, source, (size[1], size[0])
    if wishes.is_sorted:
        return _in_order(source, target, size, carried)
    return Topology.from_coo(source, target, size[0], size[1], **carried)


def _in_order(source: Tensor, target: Tensor, size: tuple[int, int], carried: dict[str, Any]) -> Topology:
    """Lists of edges that stand one list after the other already."""
    if bool((target.diff() < 0).any()):
        raise ValueError("is_sorted is True, but edge_index is not sorted by the nodes whose neighbours are drawn")
    offsets = torch.searchsorted(target.contiguous(), torch.arange(size[1] + 1, dtype=target.dtype))
    if offsets.numel() > 0 and int(offsets[0]) != 0 or int(offsets[-1]) != target.numel():
        raise ValueError(f"edge_index has {int(target.min())} to {int(target.max())}, but there are {size[1]} nodes")
    return Topology.from_lists(offsets, source, size[0], **carried)


def _edges_of(store: Any) -> Tensor:
    edges = store["edge_index"] if "edge_index" in store else None
    if edges is None:
        return torch.empty(2, 0, dtype=torch.long)
    if edges.dim() != 2 or edges.size(0) != 2:
        raise ValueError(f"edge_index has shape {list(edges.shape)}; it should be [2, edges]")
    return edges


def _of_sparse(matrix: Any) -> tuple[Tensor, Tensor]:
    """Where each row begins, and its columns, of a sparse matrix of torch or of torch-sparse."""
    if isinstance(matrix, Tensor):
        rows = matrix if matrix.layout == torch.sparse_csr else matrix.to_sparse_csr()
        return on_host(rows.crow_indices()), on_host(rows.col_indices())
    offsets, columns, _ = matrix.csr()
    return on_host(offsets), on_host(columns)


def _carried(weight: Any, edge_time: Any, node_time: Any) -> dict[str, Any]:
    named = {"weights": weight, "times": edge_time, "node_times": node_time}
    return {name: on_host(value) for name, value in named.items() if value is not None}


def _turned(described: Described, wishes: Wishes) -> Described:
    """Walked backwards, relations are told with their ends turned."""
    if not wishes.is_backward:
        return described
    described.edge_types = [kind[::-1] for kind in described.edge_types]
    described.topologies = {kind[::-1]: topology for kind, topology in described.topologies.items()}
    return described


def _remote(features: Any, store: Any, wishes: Wishes) -> Described:
    if wishes.is_sorted:
        raise ValueError("is_sorted is True, but stores are told so themselves: put_edge_index(..., is_sorted=True)")
    attrs = list(features.get_all_tensor_attrs())
    edge_attrs = store.get_all_edge_attrs()
    is_hetero = [attr.edge_type for attr in edge_attrs] != [None]
    node_time, edge_time = _remote_times(features, attrs, edge_attrs, wishes.time_attr, is_hetero)
    weights = _remote_weights(features, attrs, wishes.weight_attr, is_hetero)
    # `csc` has (row, colptr, perm); `csr` has (rowptr, col, perm).
    first, second, perm = store.csr() if wishes.is_backward else store.csc()
    if not is_hetero:
        first, second, perm = {None: first}, {None: second}, {None: perm}
    edge_types = list(dict.fromkeys(attr.edge_type for attr in edge_attrs))
    if is_hetero:
        names = dict.fromkeys(attr.group_name for attr in attrs if isinstance(attr.group_name, str))
        node_types = list(names)
        num_nodes = {kind: int(remote_backend_utils.size(features, store, kind)) for kind in node_types}
    else:
        node_types, num_nodes = [None], {None: int(max(edge_attrs[0].size))}
    topologies = {}
    for kind in edge_types:
        offsets, neighbours = (first[kind], second[kind]) if wishes.is_backward else (second[kind], first[kind])
        seen = kind[-1 if wishes.is_backward else 0] if is_hetero else None
        # Stores keep what belongs to edges in the order that edges were put.
        own = (weights.get(kind), edge_time.get(kind))
        if perm[kind] is not None:
            own = tuple(None if value is None else value[perm[kind]] for value in own)
        carried = _carried(*own, node_time.get(seen))
        if perm[kind] is not None:
            carried["edge_ids"] = on_host(perm[kind])
        topologies[kind] = Topology.from_lists(on_host(offsets), on_host(neighbours), num_nodes[seen], **carried)
    described = Described(
        node_types, edge_types, num_nodes, topologies, is_hetero, node_time, wishes.time_attr is not None
    )
    return _turned(described, wishes) if is_hetero else described


def _remote_weights(features: Any, attrs: list, name: Optional[str], is_hetero: bool) -> dict[Type, Tensor]:
    """Weights of edges, which are under the types of their edges."""
    if name is None:
        return {}
    found = [copy.copy(attr) for attr in attrs if attr.attr_name == name and isinstance(attr.group_name, tuple)]
    if not found:
        # As PyG has it, which takes no weights out of stores at all.
        raise NotImplementedError(f"The weight attribute '{name}' is under no edge type in the feature store")
    for attr in found:
        attr.index = None
    weights = {attr.group_name: weight for attr, weight in zip(found, features.multi_get_tensor(found))}
    return weights if is_hetero else {None: next(iter(weights.values()))}


def _remote_times(
    features: Any, attrs: list, edge_attrs: list, name: Optional[str], is_hetero: bool
) -> tuple[dict, dict]:
    if name is None:
        return {}, {}
    for attr in edge_attrs:
        if attr.layout == EdgeLayout.CSR:
            raise ValueError("Temporal sampling requires that edges are stored in either COO or CSC layout")
        if not attr.is_sorted:
            raise ValueError(
                "Temporal sampling requires that edges are sorted by destination, and by source time within local "
                "neighborhoods"
            )
    found = [copy.copy(attr) for attr in attrs if attr.attr_name == name]
    if not found or (not is_hetero and len(found) > 1):
        raise ValueError("Temporal sampling specified but did not find any temporal data")
    for attr in found:
        attr.index = None
    times = {attr.group_name: time for attr, time in zip(found, features.multi_get_tensor(found))}
    if not is_hetero:
        # The stores of homogeneous graphs have no types: PyG goes by the name.
        times = {None: next(iter(times.values()))}
        return (times, {}) if name == "time" else ({}, times)
    of_edges = [isinstance(group, tuple) for group in times]
    if any(of_edges) and not all(of_edges):
        raise ValueError(f"Found time attribute '{name}' for both node-level and edge-level types")
    return ({}, times) if all(of_edges) else (times, {})
