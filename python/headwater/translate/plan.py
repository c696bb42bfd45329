"""A layer that was read: its text, and how a call's arguments become what the text asks for."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, replace
from typing import Any, Optional

import torch

from ..compile import Layer
from ..layer_graph import of_edges
from .emit import Emitter, Text
from .interpret import Interpreter
from .notes import Fault, Stop
from .value import Count, Poisoned, Rows, SymbolicEdgeIndex, SymbolicValue, Types, Unknown, Unsupported

# Layers by their text and how it is compiled: modules of one class and size share one.
_layers: dict[tuple[str, Wishes], Layer] = {}
_MOST_LAYERS = 256


@dataclass(frozen=True)
class Wishes:
    """How texts of modules are compiled, as `headwater.compile` takes it, and whether the module may run as it is written."""

    fallback: bool
    without: tuple[str, ...] = ()
    tune: str = "fixed"


@dataclass(frozen=True)
class Translation:
    """What became of one kind of call of a function: a text, or what was not supported."""

    function: str
    text: Optional[str]
    unsupported: tuple[Fault, ...]


@dataclass(frozen=True)
class Found:
    """A plan if there is one, for modules that have what was seen of the one that was read."""

    plan: Optional[TranslatedPlan]
    translation: Translation
    seen: dict[tuple[tuple[str, ...], str], Any]
    seen_elsewhere: list[tuple[Any, str, Any]]

    def holds(self, module: Any) -> bool:
        for holder, name, value in self.seen_elsewhere:
            now = holder.get(name) if isinstance(holder, dict) else getattr(holder, name)
            if now is not value and (type(now) is not type(value) or now != value):
                return False
        for (path, name), value in self.seen.items():
            try:
                now = getattr(_walk(module, path), name, None)
            except AttributeError:
                return False
            if now is not value and (type(now) is not type(value) or now != value):
                return False
        return True


class NotTranslated(NotImplementedError):
    """A layer that texts cannot say. `unsupported` has all that was found."""

    def __init__(self, told: str, unsupported: tuple[Fault, ...]) -> None:
        super().__init__(told)
        self.unsupported = unsupported


def listed(faults: tuple[Fault, ...]) -> str:
    return "\n".join(f"  {fault}" for fault in faults)


class TranslatedPlan:
    """How calls of one kind are run."""

    def __init__(self, text: Text, edges: tuple, out: SymbolicValue, counts: dict[str, list[tuple]], wishes: Wishes) -> None:
        self.text, self._edges, self._shape, self._counts = text, edges, out.shape, counts
        key = (text.text, wishes)
        if key not in _layers and len(_layers) >= _MOST_LAYERS:
            _layers.pop(next(iter(_layers)))
        self._layer = _layers.setdefault(key, Layer(text.text, "<translated>", wishes.without, wishes.tune))
        weights = text.weights.items()
        picked = {shape[0] for name, (*_, shape) in weights if self._layer.weights[name][0] == "etype"}
        if len(picked) > 1:
            raise Unsupported(f"weights for {' and '.join(map(str, sorted(picked)))} types of edges")
        self._num_types = picked.pop() if picked else None
        rows = {name: list(shape) for name, (*_, shape) in text.inputs.items()}
        # A text that does not hold together is refused now.
        self._layer.bound(rows, {}, {}, frozenset(), True)

    def run(self, module: Any, given: dict[str, Any]) -> Any:
        """The result, or `NotImplemented` where rows do not fit together."""
        arrays, counts = {}, {}
        for name, (place, kind, row, shape) in self.text.inputs.items():
            tensor = _fetch(module, given, place)
            lead = tensor.shape[:1] if kind != "const" else ()
            # Of arguments that is known; data of a graph may have changed.
            if tensor.shape[len(lead) :] != row or tensor.dtype != torch.float32:
                return NotImplemented
            if lead and counts.setdefault(kind, lead[0]) != lead[0]:
                return NotImplemented
            arrays[name] = tensor.reshape(*lead, *shape)
        for kind, places in self._counts.items():
            for place in places:
                told = _fetch(module, given, place)
                count = told.size(0) if isinstance(told, torch.Tensor) else told
                if counts.setdefault(kind, count) != count:
                    return NotImplemented
        graph = self._graph(module, given, arrays, counts)
        if graph is NotImplemented:
            return NotImplemented
        for name, (path, _, shape) in self.text.weights.items():
            weight = _walk(module, path)
            arrays[name] = weight if tuple(weight.shape) == shape else weight.reshape(shape)
        out = self._layer(graph, **arrays)
        return out if out.shape[1:] == self._shape else out.reshape(out.size(0), *self._shape)

    def _graph(self, module: Any, given: dict[str, Any], arrays: dict[str, Any], counts: dict[str, int]) -> Any:
        edges = _fetch(module, given, self._edges)
        if not isinstance(edges, torch.Tensor):
            edges, nodes = _edges_of(edges)
            for kind, count in nodes.items():
                if counts.setdefault(kind, count) != count:
                    return NotImplemented
        if counts.get("edge", edges.size(1)) != edges.size(1):
            return NotImplemented
        sources = counts.get("src", counts.get("node"))
        written = counts.get("dst", sources)
        sources = written if sources is None else sources
        if sources is None or written is None:
            return NotImplemented
        if written > sources:
            # A layer writes the first of the nodes that it reads, so there are as many of those.
            for name, (_, kind, *_) in self.text.inputs.items():
                if kind == "src":
                    pad = [0, 0] * (arrays[name].dim() - 1) + [0, written - sources]
                    arrays[name] = torch.nn.functional.pad(arrays[name], pad)
        types = _fetch(module, given, self.text.types[0].place) if self.text.types else None
        if types is not None and types.numel() != edges.size(1):
            return NotImplemented
        return of_edges(edges, max(sources, written), written, types, self._num_types)


def _edges_of(graph: Any) -> tuple[torch.Tensor, dict[str, int]]:
    """The edges of a graph in DGL's style, the same tensor as long as they are the same, and how many nodes there are."""
    edges = torch.stack(tuple(graph.edges()))
    before = getattr(graph, "_headwater_edges", None)
    if before is not None and before.device == edges.device and torch.equal(before, edges):
        edges = before
    else:
        try:
            graph._headwater_edges = edges
        except AttributeError:
            pass
    if getattr(graph, "is_block", False):
        return edges, {"src": graph.num_src_nodes(), "dst": graph.num_dst_nodes()}
    return edges, {"node": graph.num_nodes()}


def _walk(module: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        module = getattr(module, name)
    return module


def _fetch(module: Any, given: dict[str, Any], place: tuple) -> Any:
    """What a caller gives in a place."""
    value = module if place[0] == "self" else given[place[0]]
    for part in place[1:]:
        if isinstance(part, str):
            value = getattr(value, part)
        else:
            value = value[part[0] if isinstance(part, tuple) else part]
    return value


def kind_of(value: Any) -> Any:
    """What calls have in common that one text serves."""
    if isinstance(value, torch.Tensor):
        return _tensor_kind(value)
    if isinstance(value, (tuple, list)):
        # Sizes come in pairs; how many rows there are is no matter of the text.
        return (type(value).__name__, *("count" if type(one) is int else kind_of(one) for one in value))
    if isinstance(value, (type(None), bool, int, float, str)):
        return (type(value).__name__, value)
    if hasattr(value, "update_all"):
        return ("graph", bool(getattr(value, "is_block", False)))
    return ("other", type(value))


def _tensor_kind(value: torch.Tensor) -> Any:
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
        return ("other", type(value))
    if value.dtype in (torch.int64, torch.int32):
        if value.dim() == 2 and value.size(0) == 2:
            return "edges"
        return "types" if value.dim() == 1 else ("other", value.dtype)
    if value.dtype != torch.float32:
        return ("other", value.dtype)
    is_learnt = isinstance(value, torch.nn.Parameter) and value.dim() > 0 and (value.dim() == 1 or value.size(0) == 1)
    if is_learnt or value.dim() == 0:
        return ("same for all", tuple(value.shape))
    return ("rows", tuple(value.shape[1:]))


class Given:
    """Arguments of a call as they are read."""

    def __init__(self, layer: Interpreter) -> None:
        self._layer = layer
        # What tells how many rows there are, whether the text reads it or not: tensors and numbers.
        self.counts: list[tuple[Rows, tuple]] = []
        self.edges: list[SymbolicEdgeIndex] = []

    def read(self, value: Any, place: tuple) -> Any:
        if type(value) is int and len(place) > 1:
            rows = Rows()
            self.counts.append((rows, place))
            return Count(rows)
        kind = kind_of(value)
        if kind == "edges":
            self.edges.append(SymbolicEdgeIndex(place))
            return self.edges[-1]
        if kind == "types":
            return Types(place)
        if isinstance(value, (tuple, list)):
            return [list, tuple][isinstance(value, tuple)](self.read(one, (*place, at)) for at, one in enumerate(value))
        if kind[0] == "rows":
            rows = Rows()
            self.counts.append((rows, place))
            return SymbolicValue("", (), (rows,), kind[1], "input", place)
        if kind[0] == "same for all":
            return SymbolicValue("", (), (), kind[1], "input", place)
        if kind[0] == "graph":
            return self._layer.graph(place, value)
        return _Opaque(value) if kind[0] == "other" else value


class _Opaque(Unknown):
    """An argument that texts do not know."""

    def __init__(self, value: Any) -> None:
        self.value = value


def translate(name: str, kind: type, read: Any, arguments: dict[str, Any], wishes: Wishes) -> Found:
    """The plan for a call, or all that is in its way. `read` is called with the interpreter and its arguments."""
    layer = Interpreter()
    plan, faults = _translated(name, layer, read, arguments, wishes)
    # What is not said of a line is said of the class.
    faults = tuple(fault if fault.line else replace(fault, **_home(kind)) for fault in faults)
    return Found(plan, Translation(name, plan and plan.text.text, faults), layer.seen, layer.seen_elsewhere)


def _home(kind: type) -> dict[str, Any]:
    try:
        return {"file": inspect.getsourcefile(kind) or kind.__module__, "line": inspect.getsourcelines(kind)[1]}
    except (OSError, TypeError):
        return {"file": kind.__module__, "line": 0}


def _translated(
    name: str, layer: Interpreter, read: Any, arguments: dict[str, Any], wishes: Wishes
) -> tuple[Optional[TranslatedPlan], tuple[Fault, ...]]:
    given = Given(layer)
    try:
        out = read(layer, {word: given.read(value, (word,)) for word, value in arguments.items()})
    except Stop:
        out = None
    except Poisoned:
        out = None
    except Exception as why:
        # Whatever it is, the module itself still runs.
        out = None
        told = str(why) if isinstance(why, Unsupported) else f"{type(why).__name__}: {why}"
        layer.faults.append(Fault("<layer>", 0, name, told))
    if not layer.faults and not isinstance(out, (SymbolicValue, Unknown)):
        layer.faults.append(Fault("<layer>", 0, name, "the result is no tensor of nodes"))
    if layer.faults or not isinstance(out, SymbolicValue):
        return None, (*_strange(arguments), *layer.faults)
    try:
        return _plan(name, out, given, layer, wishes), ()
    except (Unsupported, SyntaxError, ValueError) as why:
        value = why.value if isinstance(why, Unsupported) else None
        file, node = (value and value.at) or out.at or ("<layer>", None)
        construct = " ".join(ast.unparse(node).split()) if node is not None else name
        return None, (Fault(file, getattr(node, "lineno", 0), construct, str(why)),)


def _plan(name: str, out: SymbolicValue, given: Given, layer: Interpreter, wishes: Wishes) -> TranslatedPlan:
    text = Emitter().write(name, out)
    graphs = [graph.edges_of for graph in layer.graphs.values()] + given.edges
    if len(graphs) != 1:
        raise Unsupported(f"{len(graphs)} graphs; a text has one")
    if len(text.types) > 1:
        raise Unsupported("edges have types by two tensors")
    counts: dict[str, list[tuple]] = {}
    for rows, place in given.counts:
        if rows.kind is not None:
            counts.setdefault(rows.kind, []).append(place)
    return TranslatedPlan(text, graphs[0].place, out, counts, wishes)


def _strange(arguments: dict[str, Any]) -> list[Fault]:
    """Arguments that texts do not know."""
    found = []
    for name, value in arguments.items():
        for one in value if isinstance(value, (tuple, list)) else [value]:
            if kind_of(one)[0] == "other":
                found.append(Fault("<layer>", 0, name, f"is {_described(one)}"))
    return found


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {type(value).__name__} of {value.dtype}, {value.layout}; texts compute with dense tensors of torch.float32"
    return f"a {type(value).__name__}"
