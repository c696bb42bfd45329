"""Graphs as compiled layers take them, out of what users have: an edge_index, edges with types, ours, PyG's.

Edges are sorted once a graph, and graphs are remembered by their edge_index, so calling a layer with the same one again costs
a look at its bytes. Rows of edge data come in the caller's order and are brought into the kernels'.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict
from typing import Any, Literal, Optional, Union

import torch
from torch import Tensor

from . import _headwater, gpu
from ._headwater import Graph, Topology

# The largest number of a node on a GPU, and the most edges that are sorted there.
_MOST, _MOST_EDGES = 2**31 - 1, 2**30 - 1
# Graphs that are remembered at most.
_MOST_GRAPHS = 16
# Kinds of calls that a graph keeps what they share for.
_MOST_READY = 64


class LayerGraph:
    """A graph that layers are called with. Making one by hand is of use where nodes that are read and written differ.

    `num_written` are the first of the nodes: those that a sampled block has outputs for. Edges that lie on a GPU and are all of
    one type are sorted there by their targets, unless `is_sorted` says that they are in that order; said of others that are not,
    it is refused.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        *,
        edge_type: Optional[Tensor] = None,
        num_edge_types: Optional[int] = None,
        num_written: Optional[int] = None,
        is_sorted: bool = False,
    ) -> None:
        edges = _integers(edge_index, "edge_index")
        if edges.dim() != 2 or edges.size(0) != 2:
            raise ValueError(f"edge_index has shape {list(edges.shape)}; it should be [2, edges]")
        if edge_type is None and num_edge_types is not None:
            raise ValueError(f"num_edge_types is {num_edge_types}, but edge_type is None: edges are of one type")
        written = num_nodes if num_written is None else num_written
        if edge_type is None and gpu.lies_there(edges):
            self._set([num_nodes], [written], None)
            self._on_gpu = _OnGpu(edges, num_nodes, written, is_sorted)
            return
        if is_sorted and bool((edges[1].diff() < 0).any()):
            raise ValueError("is_sorted is True, but edge_index is not sorted by its targets")
        order, parts = None, [edges.cpu()]
        if edge_type is not None:
            order, parts = _by_type(edges.cpu(), _integers(edge_type, "edge_type").cpu(), num_edge_types)
        self._set([num_nodes], [written], [_relation(part, num_nodes, written) for part in parts], order)

    def _set(
        self, sources: list[int], targets: list[int], relations: Optional[list], order: Optional[Tensor] = None
    ) -> None:
        self.sources, self.targets, self._relations = sources, targets, relations
        # Names of types, where they have names.
        self.node_types: list[Any] = []
        self.edge_types: list[Any] = []
        # Edges of the relations, one after the other, in the caller's order.
        self._order = order
        self._on_host: dict[str, Arranged] = {}
        self._on_gpu: Optional[_OnGpu] = None
        # What calls of a kind share, by what tells kinds apart.
        self.ready: dict[Any, Any] = {}

    def keep_ready(self, kind: Any, ready: Any) -> None:
        """Keeps what calls of a kind share; the oldest goes first."""
        with _lock:
            while len(self.ready) >= _MOST_READY:
                del self.ready[next(iter(self.ready))]
            self.ready[kind] = ready

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

    def counts(self, kind: str) -> Optional[dict[Any, int]]:
        """How many rows of a kind there are of each type; None where rows are not of nodes or edges."""
        if kind == "edge":
            edges = [lists.edges for *_, lists in self._relations or []]
            return dict(zip(self.edge_types, edges))
        counts = {"node.src": self.sources, "node.dst": self.targets}.get(kind)
        return None if counts is None else dict(zip(self.node_types, counts))

    def on_host(self, self_loops: str) -> Arranged:
        """The graph as kernels see it. Edges of nodes to themselves are as they are, added or dropped."""
        found = self._on_host.get(self_loops)
        if found is None:
            if self_loops == "added" and (len(self._relations or [0]), len(self.sources)) != (1, 1):
                raise ValueError(
                    "self_loops gives every node one edge to itself, but the graph has several types, and nobody says of which "
                    "that edge is; add edges of nodes to themselves as a type of their own, or give the edges of one type"
                )
            if self._relations is None:
                self._relations = [_relation(self._on_gpu.edges.cpu(), self.sources[0], self.targets[0])]
            native = _headwater.LayerGraph(self.sources, self.targets, self._relations, self_loops)
            found = self._on_host[self_loops] = Arranged(native, self_loops, self._order)
        return found

    def on_gpu(self, place: gpu.Place, self_loops: str) -> Optional[ArrangedOnGpu]:
        """The same made on a GPU; None where the edges lie elsewhere, have types, or are more than kernels there sort."""
        if self._on_gpu is None or not self._on_gpu.can_be_on(place):
            return None
        return self._on_gpu.arranged(place, self_loops)


class Arranged:
    """A graph in the order of the kernels."""

    def __init__(self, native: _headwater.LayerGraph, self_loops: str, order: Optional[Tensor]) -> None:
        self.native = native
        self._self_loops, self._callers = self_loops, order
        self._order: Union[Tensor, None, Literal[False]] = False
        # What GPUs have of it, and behind which mark.
        self._on_gpus: dict[int, tuple[Tensor, Any]] = {}

    # It was checked on the host.
    is_trusted = True

    def order(self, name: str, place: Optional[gpu.Place]) -> Optional[Tensor]:
        """Which of the caller's edges each edge of the kernels is, where a GPU or the CPU reads it; None where they are in the
        same order."""
        if self._order is False:
            self._order = self._find_order(name)
        if self._order is None or place is None:
            return self._order
        known = self._on_gpus.get(place.ordinal)
        if known is None:
            if place.is_capturing():
                raise RuntimeError(_RECORDED)
            order = place.bring(self._order)
            known = self._on_gpus[place.ordinal] = (order, place.mark())
        return _met(known, place)

    def _find_order(self, name: str) -> Optional[Tensor]:
        found = self.native.edge_order()
        if found is None:
            raise _unknown_rows(name, self._self_loops)
        order = torch.from_dlpack(found)
        if self._callers is not None:
            order = self._callers[order]
        return None if torch.equal(order, torch.arange(order.numel())) else order


class _OnGpu:
    """Edges of one type that lie on a GPU. They stay there, so a call waits for nothing."""

    def __init__(self, edges: Tensor, nodes: int, written: int, is_sorted: bool) -> None:
        # Nobody counts what is written to tensors of inference.
        self._edges = edges.clone() if edges.is_inference() else edges
        self._version = None if edges.is_inference() else edges._version
        self._counts, self._is_sorted = (nodes, written), is_sorted
        self._made: dict[str, ArrangedOnGpu] = {}

    @property
    def edges(self) -> Tensor:
        if self._version is not None and self._edges._version != self._version:
            raise ValueError("edge_index was written to after the graph was made of it; make another")
        return self._edges

    def can_be_on(self, place: gpu.Place) -> bool:
        nodes, most = self._counts[0], self._edges.size(1) + self._counts[1]
        return self._edges.device == place.device and nodes <= _MOST and most <= _MOST_EDGES

    def arranged(self, place: gpu.Place, self_loops: str) -> ArrangedOnGpu:
        found = self._made.get(self_loops)
        if found is None or not found.is_trusted:
            if place.is_capturing():
                raise RuntimeError(_RECORDED)
            # Kernels count in 32 bits; a number that has more is none of theirs.
            (sources, targets), order = self.edges.clamp(-1, _MOST).to(torch.int32).contiguous(), None
            if not self._is_sorted:
                targets, order = targets.sort(stable=True)
                sources = sources[order]
            own = (sources.data_ptr(), targets.data_ptr(), targets.numel())
            with place.entered():
                native = _headwater.DeviceLayerGraph(own, *self._counts, self_loops, place.ordinal, place.stream())
            found = self._made[self_loops] = ArrangedOnGpu(native, self_loops, order, place)
        return found


class ArrangedOnGpu:
    """A graph in the order of the kernels, made on a GPU."""

    def __init__(
        self, native: _headwater.DeviceLayerGraph, self_loops: str, order: Optional[Tensor], place: gpu.Place
    ) -> None:
        self.native = native
        self._self_loops, self._order, self._place = self_loops, order, place
        self._mark = place.mark()

    @property
    def is_trusted(self) -> bool:
        """Whether no kernel has met a number that is none since it was made."""
        return self.native.is_trusted

    def order(self, name: str, place: gpu.Place) -> Optional[Tensor]:
        if self._self_loops != "as they are":
            raise _unknown_rows(name, self._self_loops)
        return None if self._order is None else _met((self._order, self._mark), place)


def _met(known: tuple[Tensor, Any], place: gpu.Place) -> Tensor:
    """A tensor that others may have made on another stream. Who records has waited for the GPU before: what is recorded cannot
    wait for what is not."""
    tensor, mark = known
    if not place.is_capturing():
        place.meet(mark, [tensor])
    return tensor


_RECORDED = (
    "the stream is being recorded, and the graph was not used on this GPU before; call the layer with it once before it is recorded"
)
_WHY_UNKNOWN = {
    "as they are": "edges have ids that are not their positions",
    "added": "every node gets an edge to itself",
    "dropped": "edges of nodes to themselves are left out",
}


def _unknown_rows(name: str, self_loops: str) -> ValueError:
    why = _WHY_UNKNOWN[self_loops]
    return ValueError(f"{name} has a row an edge, but {why}: nobody says which row belongs to which edge")


def _relation(edges: Tensor, nodes: int, written: int) -> tuple[int, int, Topology]:
    return 0, 0, Topology.from_coo(edges[0].contiguous(), edges[1].contiguous(), nodes, written)


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
    nodes = rows["node.src"]
    return of_edges(edge_index, nodes, nodes, edge_type, rows.get("etype"))


def of_edges(edge_index: Tensor, nodes: int, written: int, edge_type: Optional[Tensor], types: Optional[int]) -> LayerGraph:
    """The graph of an edge_index, made once as long as it says the same."""
    parts = [edge_index] if edge_type is None else [edge_index, edge_type]
    types = None if edge_type is None else types

    def make() -> LayerGraph:
        return LayerGraph(edge_index, nodes, edge_type=edge_type, num_edge_types=types, num_written=written)

    return _remembered(parts, (nodes, written, types), make)


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


def _integers(tensor: Any, name: str) -> Tensor:
    if not isinstance(tensor, Tensor) or tensor.dtype not in (torch.int64, torch.int32):
        found = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f"{name} is of {found}; it should be a tensor of int64 or int32")
    return tensor.detach().as_subclass(Tensor)


_remembered_graphs: OrderedDict[Any, Any] = OrderedDict()
_lock = threading.Lock()


def forget_graphs() -> None:
    """Forgets all graphs that layers were called with. A graph that changed is noticed without this, but for one whose edges lie
    on a GPU and were written to behind torch's back: through `tensor.data`, or by another library."""
    with _lock:
        _remembered_graphs.clear()


def _remembered(parts: list[Any], key: Any, make: Any) -> LayerGraph:
    """The graph that was made of these, as long as they are there and say the same."""
    tensors = [part for part in parts if isinstance(part, Tensor)]
    marks = [_mark(tensor) for tensor in tensors]
    if any(mark is None for mark in marks):
        return make()
    key = (tuple(id(part) for part in parts), key)
    with _lock:
        found = _remembered_graphs.get(key)
        if found is not None and found[1] == marks and all(ref() is part for ref, part in zip(found[0], parts)):
            return found[2]
    made = make()
    with _lock:
        gone = [old for old, (refs, *_) in _remembered_graphs.items() if any(ref() is None for ref in refs)]
        for old in gone:
            del _remembered_graphs[old]
        while len(_remembered_graphs) >= _MOST_GRAPHS:
            _remembered_graphs.popitem(last=False)
        _remembered_graphs[key] = ([weakref.ref(part) for part in parts], marks, made)
    return made


def _mark(tensor: Tensor) -> Any:
    """What changes when a tensor does; None where nothing tells. NumPy and `tensor.data` write without being counted, so bytes
    are looked at where that costs less than a call itself. On a GPU the CPU would have to wait for them."""
    if tensor.layout != torch.strided:
        return None
    look = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
    if gpu.lies_there(tensor):
        # Nobody counts what is written to tensors of inference.
        return None if tensor.is_inference() else (*look, tensor._version)
    return *look[1:], _headwater.fingerprint(tensor.detach().cpu().contiguous())
