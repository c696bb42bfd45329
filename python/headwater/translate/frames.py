"""Graphs in DGL's style: data of nodes and edges by name, and functions that say what edges send and nodes make of it.

Graphs are known by what they have (`update_all`, `ndata`, `edata`), and DGL's own functions by their names, so DGL need not be
there. What a layer leaves in a graph's data is not written to the graph.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import torch

from . import operators
from .interpret import Interpreter
from .notes import Lambda, Method
from .value import Count, Poisoned, Rows, SymbolicEdgeIndex, SymbolicValue, Unknown, Unsupported

_COPY = re.compile(r"copy_(u|e|src|edge)$")
_TWO = re.compile(r"([uve])_(add|sub|mul|div|dot)_([uve])$")
_REDUCE = ("sum", "mean", "max", "min")
_OPERATORS = {"add": operators.add, "sub": operators.sub, "mul": operators.mul, "div": operators.div}


class SymbolicGraph:
    """A graph that a layer is called with, or that its module has."""

    is_abstract = True

    def __init__(self, place: tuple, given: Any) -> None:
        if len(getattr(given, "ntypes", [0])) > 1 and not getattr(given, "is_block", False):
            raise Unsupported("a graph with several types of nodes")
        if len(getattr(given, "etypes", [0])) > 1:
            raise Unsupported("a graph with several types of edges")
        self.is_block = bool(getattr(given, "is_block", False))
        self.edges_of = SymbolicEdgeIndex(place)
        target = Rows("dst" if self.is_block else "node")
        source = Rows("src") if self.is_block else target
        self.dstdata = Frame(self, "dstdata" if self.is_block else "ndata", target, given)
        self.srcdata = Frame(self, "srcdata", source, given) if self.is_block else self.dstdata
        self.edata = Frame(self, "edata", self.edges_of.rows, given)
        self.update_all, self.apply_edges = UpdateAll(self), ApplyEdges(self)

    @property
    def ndata(self) -> Frame:
        if self.is_block:
            raise Unsupported("ndata of a block")
        return self.dstdata

    # Calls of the layer, which are read like any others.

    @property
    def local_scope(self) -> Method:
        return Method(lambda: Scope(self), None)

    @property
    def local_var(self) -> Method:
        return Method(lambda: self, None)

    def _count(self, rows: Rows) -> Method:
        return Method(lambda: Count(rows), None)

    num_nodes = property(lambda self: self._count(self.ndata.rows))
    number_of_nodes = num_nodes
    num_src_nodes = property(lambda self: self._count(self.srcdata.rows))
    number_of_src_nodes = num_src_nodes
    num_dst_nodes = property(lambda self: self._count(self.dstdata.rows))
    number_of_dst_nodes = num_dst_nodes
    num_edges = property(lambda self: self._count(self.edges_of.rows))
    number_of_edges = num_edges

    def held(self) -> list[Any]:
        """All that the layer has in the graph's data."""
        frames = (self.srcdata, self.edata, *((self.dstdata,) if self.is_block else ()))
        return [value for frame in frames for value in frame._values.values()]

    def end(self, side: str, name: str) -> SymbolicValue:
        """What nodes at an end of each edge have."""
        frame = self.srcdata if side == "src" else self.dstdata
        made = operators.lift(frame.load(name), side, self.edges_of.rows)
        # It stays in the batch that the function is called with.
        made.is_shared = True
        return made


class Scope:
    """`with g.local_scope():`"""

    def __init__(self, graph: SymbolicGraph) -> None:
        self.graph = graph


class Frame:
    """Data by name: what the layer wrote, or what the graph has."""

    is_abstract = True

    def __init__(self, graph: SymbolicGraph, name: str, rows: Rows, given: Any) -> None:
        self._graph, self._name, self.rows = graph, name, rows
        self._given = getattr(given, name, {})
        self._values: dict[str, Any] = {}

    def load(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._input(name)
        return self._values[name]

    def _input(self, name: str) -> SymbolicValue:
        if name not in self._given:
            raise Unsupported(f"the graph has no {self._name}[{name!r}]")
        tensor = self._given[name]
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float32 or tensor.dim() == 0:
            raise Unsupported(f"{self._name}[{name!r}] is no tensor of torch.float32")
        place = (*self._graph.edges_of.place, self._name, (name,))
        return SymbolicValue("", (), (self.rows,), tuple(tensor.shape[1:]), "input", place)

    def store(self, name: str, value: Any) -> None:
        value = operators.value_of(value)
        if len(value.lead) != 1:
            raise Unsupported(f"{self._name} has a row for every node or edge")
        value.lead[0].unify(self.rows)
        self._values[name] = value

    @property
    def pop(self) -> Method:
        return Method(self._popped, None)

    def _popped(self, name: str) -> Any:
        value = self.load(name)
        del self._values[name]
        return value

    @property
    def update(self) -> Method:
        return Method(lambda other: [self.store(name, value) for name, value in other.items()] and None, None)


class _Edges:
    """What a function of edges is called with."""

    is_abstract = True

    def __init__(self, graph: SymbolicGraph) -> None:
        self.src, self.dst = _End(graph, "src"), _End(graph, "dst")
        self.data = graph.edata


class _End:
    def __init__(self, graph: SymbolicGraph, side: str) -> None:
        self._graph, self._side = graph, side

    def load(self, name: str) -> SymbolicValue:
        return self._graph.end(self._side, name)


class _Nodes:
    """What a function of nodes is called with."""

    is_abstract = True

    def __init__(self, graph: SymbolicGraph, messages: dict[str, SymbolicValue]) -> None:
        self.data, self.mailbox = graph.dstdata, _Mailbox(graph, messages)


class _Mailbox:
    """Messages of each node: a dimension for nodes, and one for the edges of each."""

    def __init__(self, graph: SymbolicGraph, messages: dict[str, SymbolicValue]) -> None:
        self._messages = messages
        self._lead = (graph.dstdata.rows, Rows("degree"))

    def load(self, name: str) -> SymbolicValue:
        if name not in self._messages:
            raise Unsupported(f"no message is called {name!r}")
        return operators.view(self._messages[name], self._lead, self._messages[name].shape)


class UpdateAll:
    """`g.update_all(message, reduce, apply)`. DGL's functions are taken by their names, so arguments are not evaluated before."""

    takes_nodes = True

    def __init__(self, graph: SymbolicGraph) -> None:
        self._graph = graph

    def __call__(self, layer: Interpreter, node: ast.Call) -> None:
        named = {given.arg: given.value for given in node.keywords}
        words = ("message_func", "reduce_func", "apply_node_func")
        given = dict(zip(words, node.args)) | {word: named.pop(word) for word in words if word in named}
        if named or not {"message_func", "reduce_func"} <= given.keys():
            raise Unsupported("expected update_all(message_func, reduce_func, apply_node_func)")
        messages = _messages(layer, self._graph, given["message_func"])
        frame, nodes = self._graph.dstdata, _Nodes(self._graph, messages)
        for name, value in _reduced(layer, nodes, given["reduce_func"], self._graph).items():
            frame.store(name, value)
        apply = given.get("apply_node_func")
        if apply is not None and not (isinstance(apply, ast.Constant) and apply.value is None):
            for name, value in _results(layer, layer.expression(apply), nodes).items():
                frame.store(name, value)


class ApplyEdges:
    """`g.apply_edges(function)`"""

    takes_nodes = True

    def __init__(self, graph: SymbolicGraph) -> None:
        self._graph = graph

    def __call__(self, layer: Interpreter, node: ast.Call) -> None:
        if len(node.args) != 1 or node.keywords:
            raise Unsupported("expected apply_edges(function)")
        for name, value in _messages(layer, self._graph, node.args[0]).items():
            self._graph.edata.store(name, value)


def _messages(layer: Interpreter, graph: SymbolicGraph, node: ast.expr) -> dict[str, SymbolicValue]:
    """What edges send, by name."""
    word, fields = _builtin(layer, node)
    copy, two = _COPY.match(word), _TWO.match(word)
    if copy and len(fields) == 2:
        return {fields[1]: _of(graph, copy[1][0].replace("s", "u"), fields[0])}
    if two and len(fields) == 3:
        a, b = _aligned(_of(graph, two[1], fields[0]), _of(graph, two[3], fields[1]))
        if two[2] == "dot":
            return {fields[2]: operators.total("sum", operators.mul(a, b), -1, True)}
        return {fields[2]: _OPERATORS[two[2]](a, b)}
    return _results(layer, layer.expression(node), _Edges(graph))


def _of(graph: SymbolicGraph, target: str, name: str) -> SymbolicValue:
    return graph.edata.load(name) if target == "e" else graph.end({"u": "src", "v": "dst"}[target], name)


def _aligned(a: SymbolicValue, b: SymbolicValue) -> tuple[SymbolicValue, SymbolicValue]:
    """DGL has rows apart when it repeats dimensions of 1."""
    count = max(len(a.shape), len(b.shape))
    return tuple(  # type: ignore[return-value]
        one if len(one.shape) == count else operators.view(one, one.lead, (1,) * (count - len(one.shape)) + one.shape)
        for one in (a, b)
    )


def _reduced(layer: Interpreter, nodes: _Nodes, node: ast.expr, graph: SymbolicGraph) -> dict[str, SymbolicValue]:
    """What nodes make of their messages, by name."""
    word, fields = _builtin(layer, node)
    if word in _REDUCE and len(fields) == 2:
        return {fields[1]: operators.reduce(word, nodes.mailbox.load(fields[0]), graph.dstdata.rows)}
    made = _results(layer, layer.expression(node), nodes)
    return {name: value if value.root().op == "reduce" else _where_messages(value, graph) for name, value in made.items()}


def _where_messages(value: SymbolicValue, graph: SymbolicGraph) -> SymbolicValue:
    """DGL calls the function for nodes that have messages; the others have zeros."""
    one = operators.value_of(1)
    has = SymbolicValue("max", (one,), (graph.dstdata.rows,), (1,) * len(value.shape), "reduce")
    return operators.mul(value, has)


def _builtin(layer: Interpreter, node: ast.expr) -> tuple[str, list[str]]:
    """The name and the fields of one of DGL's functions: `fn.u_mul_e("h", "w", "m")`."""
    if not isinstance(node, ast.Call):
        return "", []
    word = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if not (_COPY.match(word) or _TWO.match(word) or word in _REDUCE):
        return "", []
    fields = [layer.expression(one) for one in (*node.args, *(given.value for given in node.keywords))]
    return (word, fields) if all(isinstance(one, str) for one in fields) else ("", [])


def _results(layer: Interpreter, function: Any, argument: Any) -> dict[str, SymbolicValue]:
    """What a user's function returns, by name."""
    if not isinstance(function, (Lambda, Method)) and not callable(function):
        raise Unsupported("expected a function")
    if isinstance(function, Method):
        found = layer.call_python(function.function, function.own, [argument], {})
    else:
        found = layer.call(function, [argument], {})
    if isinstance(found, Unknown):
        raise Poisoned
    if not isinstance(found, dict):
        raise Unsupported("the function does not return a dictionary of tensors")
    return {name: operators.value_of(value) for name, value in found.items()}


def edge_softmax(layer: Interpreter, graph: Any, logits: Any, eids: Any = None, norm_by: str = "dst") -> SymbolicValue:
    """DGL's function of this name."""
    if not isinstance(graph, SymbolicGraph) or norm_by != "dst":
        raise Unsupported("an edge_softmax over anything but the edges into each node of a graph")
    x = operators.value_of(logits)
    x.lead[0].unify(graph.edges_of.rows)
    return operators.softmax_over_edges(x)

