"""Graphs as compiled layers take them, out of what users have: an edge_index, edges with types, ours, PyG's.

Edges are sorted once a graph, and graphs are remembered by their edge_index, so calling a layer with the same one again costs
nothing. Rows of edge data come in the caller's order and are brought into the kernels'.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict
from typing import Any, Optional

import torch
from torch import Tensor

from . import _headwater
from ._headwater import Graph, Topology

# Graphs that are remembered at most.
_MOST_GRAPHS = 16


class LayerGraph:
    """A graph that layers are called with. Making one by hand is of use where nodes that are read and written differ.

    `num_written` are the first of the nodes: those that a sampled block has outputs for.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        *,
        edge_type: Optional[Tensor] = None,
        num_edge_types: Optional[int] = None,
        num_written: Optional[int] = None,
    ) -> None:
        edges = _on_host(edge_index, "edge_index")
        if edges.dim() != 2 or edges.size(0) != 2:
            raise ValueError(f"edge_index has shape {list(edges.shape)}; it should be [2, edges]")
        written = num_nodes if num_written is None else num_written
        order = None
        parts = [edges]
        if edge_type is not None:
            order, parts = _by_type(edges, _on_host(edge_type, "edge_type"), num_edge_types)
        lists = [Topology.from_coo(part[0].contiguous(), part[1].contiguous(), num_nodes, written) for part in parts]
        self._set([num_nodes], [written], [(0, 0, one) for one in lists], order)

    def _set(self, sources: list[int], targets: list[int], relations: list, order: Optional[Tensor] = None) -> None:
        self.sources, self.targets, self._relations = sources, targets, relations
        # Names of types, where they have names.
        self.node_types: list[Any] = []
        self.edge_types: list[Any] = []
        # Edges of the relations, one after the other, in the caller's order.
        self._order = order
        self._native: dict[bool, _headwater.LayerGraph] = {}
        self._orders: dict[bool, Optional[Tensor]] = {}

    @classmethod
    def of(cls, graph: Graph) -> LayerGraph:
        """A graph of ours, all of whose nodes are written."""
        types, relations = _headwater.LayerGraph.parts(graph)
        counts = [count for _, count in types]
        made = cls.__new__(cls)
        made._set(counts, counts, [(source, target, lists) for source, _, target, lists in relations])
        made.node_types = [name for name, _ in types]
        made.edge_types = [(types[source][0], name, types[target][0]) for source, name, target, _ in relations]
        return made

    def native(self, self_loops: bool) -> _headwater.LayerGraph:
        """The graph as kernels see it, with or without edges of nodes to themselves."""
        found = self._native.get(self_loops)
        if found is None:
            found = _headwater.LayerGraph(self.sources, self.targets, self._relations, self_loops)
            self._native[self_loops] = found
        return found

    def edge_order(self, name: str, self_loops: bool) -> Optional[Tensor]:
        """Which of the caller's edges each edge of the kernels is; None where they are in the same order."""
        if self_loops not in self._orders:
            self._orders[self_loops] = self._edge_order(name, self_loops)
        return self._orders[self_loops]

    def _edge_order(self, name: str, self_loops: bool) -> Optional[Tensor]:
        found = self.native(self_loops).edge_order()
        if found is None:
            why = "every node gets an edge to itself" if self_loops else "edges have ids that are not their positions"
            raise ValueError(f"{name} has a row an edge, but {why}: nobody says which row belongs to which edge")
        order = torch.from_dlpack(found)
        if self._order is not None:
            order = self._order[order]
        return None if torch.equal(order, torch.arange(order.numel())) else order


def graph_of(graph: Any, rows: dict[str, int]) -> LayerGraph:
    """What a caller gives as a graph. `rows` has how many nodes and edge types the caller's tensors tell."""
    if isinstance(graph, LayerGraph):
        return graph
    if isinstance(graph, Graph):
        return _remembered([graph], None, lambda: LayerGraph.of(graph))
    if isinstance(graph, Tensor):
        return _of_edges(graph, None, rows)
    if isinstance(graph, (tuple, list)) and len(graph) == 2 and all(isinstance(part, Tensor) for part in graph):
        return _of_edges(graph[0], graph[1], rows)
    pyg = sys.modules.get("torch_geometric.data")
    if pyg is not None and isinstance(graph, pyg.HeteroData):
        return _of_hetero(graph)
    if pyg is not None and isinstance(graph, pyg.Data):
        return _of_data(graph, rows)
    raise TypeError(
        f"the graph is a {type(graph).__name__}; it should be an edge_index, (edge_index, edge_type), a Graph, a LayerGraph, "
        "a Data or a HeteroData"
    )


def _of_edges(edge_index: Tensor, edge_type: Optional[Tensor], rows: dict[str, int]) -> LayerGraph:
    if "node.src" not in rows:
        raise ValueError("no tensor tells how many nodes there are; give the layer a LayerGraph")
    nodes, types = rows["node.src"], rows.get("etype")
    parts = [edge_index] if edge_type is None else [edge_index, edge_type]

    def make() -> LayerGraph:
        return LayerGraph(edge_index, nodes, edge_type=edge_type, num_edge_types=types)

    return _remembered(parts, (nodes, types if edge_type is not None else None), make)


def _of_data(data: Any, rows: dict[str, int]) -> LayerGraph:
    rows = {**rows, "node.src": int(data.num_nodes or 0)}
    if "edge_index" in data:
        return _of_edges(data.edge_index, data.edge_type if "edge_type" in data else None, rows)
    from .pyg.topology import Wishes, describe

    return LayerGraph.of(describe(data, Wishes(None, None, False)).graph())


def _of_hetero(data: Any) -> LayerGraph:
    from .pyg.topology import Wishes, describe

    def make() -> LayerGraph:
        return LayerGraph.of(describe(data, Wishes(None, None, False)).graph())

    stores = data.edge_stores
    if not all("edge_index" in store for store in stores):
        return make()
    counts = tuple((kind, data[kind].num_nodes) for kind in data.node_types)
    return _remembered([store.edge_index for store in stores], (counts, tuple(data.edge_types)), make)


def _by_type(edges: Tensor, types: Tensor, count: Optional[int]) -> tuple[Tensor, list[Tensor]]:
    """Edges type after type, and which of the caller's each is."""
    if types.dim() != 1 or types.numel() != edges.size(1):
        raise ValueError(f"edge_type has shape {list(types.shape)}; it should be [{edges.size(1)}], one an edge")
    least, most = (int(types.min()), int(types.max())) if types.numel() else (0, -1)
    count = most + 1 if count is None else count
    if least < 0 or most >= count:
        raise ValueError(f"edge_type has {least if least < 0 else most}, but there are only {count} edge types")
    order = torch.argsort(types, stable=True)
    ends = torch.bincount(types, minlength=count).tolist()
    return order, list(edges[:, order].split(ends, dim=1)) if ends else []


def _on_host(tensor: Any, name: str) -> Tensor:
    if not isinstance(tensor, Tensor) or tensor.dtype not in (torch.int64, torch.int32):
        found = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f"{name} is of {found}; it should be a tensor of int64 or int32")
    return tensor.detach().as_subclass(Tensor).cpu()


_remembered_graphs: OrderedDict[Any, Any] = OrderedDict()
_lock = threading.Lock()


def _remembered(parts: list[Any], key: Any, make: Any) -> LayerGraph:
    """The graph that was made of these, as long as they are there and were not written to."""
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if any(tensor.is_inference() for tensor in tensors):
        # Nobody counts what is written to these.
        return make()
    key = (tuple(id(part) for part in parts), key)
    versions = [tensor._version for tensor in tensors]
    with _lock:
        found = _remembered_graphs.get(key)
        if found is not None and found[1] == versions and all(ref() is part for ref, part in zip(found[0], parts)):
            return found[2]
    made = make()
    with _lock:
        gone = [old for old, (refs, *_) in _remembered_graphs.items() if any(ref() is None for ref in refs)]
        for old in gone:
            del _remembered_graphs[old]
        while len(_remembered_graphs) >= _MOST_GRAPHS:
            _remembered_graphs.popitem(last=False)
        _remembered_graphs[key] = ([weakref.ref(part) for part in parts], versions, made)
    return made
