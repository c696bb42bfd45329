"""PyG's `MessagePassing`: what `propagate` makes of `message`, `aggregate` and `update`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, Optional

from . import operators
from .interpret import Interpreter
from .notes import Method, Own
from .value import Count, Ends, Rows, SymbolicEdgeIndex, SymbolicValue, Unsupported

_HOOKS = [f"_{name}_forward{pre}_hooks" for name in ("propagate", "message", "aggregate", "edge_update") for pre in ("", "_pre")]
_AGGREGATIONS = {"SumAggregation": "sum", "MeanAggregation": "mean", "MaxAggregation": "max", "MinAggregation": "min"}


def message_passing() -> Optional[type]:
    """PyG's class, if PyG was imported."""
    home = sys.modules.get("torch_geometric.nn.conv.message_passing")
    return getattr(home, "MessagePassing", None)


def is_own_propagate(kind: type) -> bool:
    """Whether a class has a `propagate` that PyG did not write. PyG writes one a class from a template."""
    found = getattr(kind, "_orig_propagate", kind.propagate)
    return found.__qualname__ != "MessagePassing.propagate" and not (found.__module__ or "").endswith("_propagate")


def function_of(function: Any) -> Optional[Callable]:
    """What takes the place of PyG's functions."""
    home, name = getattr(function, "__module__", None) or "", getattr(function, "__name__", "")
    if home == "torch_geometric.utils._softmax" and name == "softmax":
        return _softmax
    if home == "torch_geometric.utils._scatter" and name == "scatter":
        return _scatter
    if home == "torch_scatter.scatter" and name in _SCATTERS:
        return functools.partial(_torch_scatter, _SCATTERS[name])
    return None


_SCATTERS = {"scatter": "sum", "scatter_add": "sum", "scatter_sum": "sum", "scatter_mean": "mean"}


def module_of(kind: type) -> Optional[Callable]:
    """What takes the place of PyG's modules."""
    home = kind.__module__ or ""
    if home == "torch_geometric.nn.dense.linear" and kind.__name__ == "Linear":
        from .known import _linear

        return _linear
    if home == "torch_geometric.nn.aggr.basic" and kind.__name__ in _AGGREGATIONS:
        return functools.partial(_aggregation, _AGGREGATIONS[kind.__name__])
    if home == "torch_geometric.nn.aggr.multi" and kind.__name__ == "MultiAggregation":
        return _several_aggregations
    return None


def method_of(method: Method) -> Optional[Callable]:
    """What takes the place of methods of `MessagePassing`. Others are read."""
    kind, name = message_passing(), getattr(method.function, "__name__", "")
    if kind is None or not isinstance(method.own.module, kind):
        return None
    if name == "propagate" and not is_own_propagate(type(method.own.module)):
        return propagate
    if name == "edge_updater":
        return edge_updater
    return None


def propagate(layer: Interpreter, own: Own, edge_index: Any, size: Any = None, **kwargs: Any) -> SymbolicValue:
    """Messages of all edges, combined at the nodes that they end at."""
    layer.check_no_hooks(own, _HOOKS)
    if layer.attribute(own, "explain"):
        raise Unsupported("the module is being explained")
    if layer.attribute(own, "decomposed_layers") != 1:
        raise Unsupported("decomposed_layers is not 1")
    collected = _Collected(layer, own, ["message", "aggregate", "update"], edge_index, size, kwargs)
    message = collected.call("message", [])
    combined = collected.call("aggregate", [message])
    return collected.call("update", [combined])


def edge_updater(layer: Interpreter, own: Own, edge_index: Any, size: Any = None, **kwargs: Any) -> Any:
    """What `edge_update` makes of every edge."""
    return _Collected(layer, own, ["edge_update"], edge_index, size, kwargs).call("edge_update", [])


class _Collected:
    """Arguments of `message` and so on, by their names: `x_j` is what the node has that an edge comes from."""

    def __init__(
        self, layer: Interpreter, own: Own, functions: list[str], edges: Any, size: Any, given: dict[str, Any]
    ) -> None:
        if not isinstance(edges, SymbolicEdgeIndex):
            raise Unsupported("the edges are no edge_index")
        if layer.attribute(own, "flow") != "source_to_target":
            raise Unsupported("the flow 'target_to_source'")
        self._layer, self._own, self._edges, self._given = layer, own, edges, given
        self._node_dim = layer.attribute(own, "node_dim")
        self._rows: list[Optional[Rows]] = [None, None]
        for side, count in enumerate(size if size is not None else ()):
            if isinstance(count, Count):
                self._set(side, count.rows)
            elif count is not None:
                raise Unsupported("a size that is no number of rows")
        lifted = {name for function in functions for name in self._parameters(function) if name[-2:] in ("_i", "_j")}
        for name in sorted(lifted):
            self._look(name)
        self._settle()

    def _function(self, name: str) -> Any:
        found = getattr(self._own.module, name)
        if getattr(found, "__self__", None) is not self._own.module:
            raise Unsupported(f"{name} is no method of the class")
        return found.__func__

    def _parameters(self, name: str) -> dict[str, inspect.Parameter]:
        function = self._function(name)
        own = list(inspect.signature(function).parameters.values())[1:]
        return {one.name: one for one in (own if name in ("message", "edge_update") else own[1:])}

    def _set(self, side: int, rows: Rows) -> None:
        before = self._rows[side]
        if before is None:
            self._rows[side] = rows
        else:
            before.unify(rows)

    def _look(self, name: str) -> None:
        """How many nodes there are, by a tensor that `x_i` or `x_j` reads."""
        data, side = self._given.get(name[:-2]), 0 if name.endswith("_j") else 1
        if isinstance(data, (tuple, list)):
            if isinstance(data[1 - side], SymbolicValue):
                self._set(1 - side, self._nodes(data[1 - side]))
            data = data[side]
        if isinstance(data, SymbolicValue):
            self._set(side, self._nodes(data))

    def _nodes(self, value: SymbolicValue) -> Rows:
        if len(value.lead) != 1 or value.axis(self._node_dim) != 0:
            raise Unsupported(f"node_dim={self._node_dim} of a tensor of {len(value.full)} dimensions is not its first")
        return value.lead[0]

    def _settle(self) -> None:
        """What is read and what is written, where that differs."""
        source, target = self._rows
        source, target = source or target, target or source
        if source is None or target is None:
            raise Unsupported("nothing tells how many nodes there are")
        if source.root() is target.root():
            source.be("node")
        else:
            source.be("src")
            target.be("dst")
        self.target = target
        self._counts = {"size_i": Count(target), "size_j": Count(source), "dim_size": Count(target)}
        self._counts["size"] = [Count(source), Count(target)]  # type: ignore[assignment]

    def call(self, name: str, front: list[Any]) -> Any:
        """One of the functions of the layer, with what it asks for. Those that PyG has for all layers are read too."""
        function = self._function(name)
        asked = {}
        for parameter in self._parameters(name).values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise Unsupported(f"{name} takes any arguments")
            asked[parameter.name] = self._argument(parameter, name)
        return self._layer.call_python(function, self._own, front, asked)

    def _argument(self, parameter: inspect.Parameter, of: str) -> Any:
        name = parameter.name
        ends = {"edge_index_i": "dst", "edge_index_j": "src", "index": "dst"}
        if name in ends:
            return Ends(self._edges, ends[name])
        if name == "edge_index":
            return self._edges
        if name in ("ptr", "adj_t"):
            return None
        if name in self._counts:
            return self._counts[name]
        side = {"_j": 0, "_i": 1}.get(name[-2:])
        data = self._given.get(name if side is None else name[:-2], parameter.default)
        if data is inspect.Parameter.empty:
            raise Unsupported(f"{of} asks for `{name}`, which propagate is not given")
        if side is None:
            return data
        data = data[side] if isinstance(data, (tuple, list)) else data
        return operators.lift(data, ("src", "dst")[side], self._edges.rows) if isinstance(data, SymbolicValue) else data


def _check_index(x: SymbolicValue, index: Any, dim: Any) -> None:
    if not isinstance(index, Ends) or index.side != "dst":
        raise Unsupported("anything but the nodes that edges end at tells what belongs together")
    if x.axis(dim) != 0 or len(x.lead) != 1:
        raise Unsupported(f"dimension {dim} of a tensor of {len(x.full)} dimensions is not its edges")
    x.lead[0].unify(index.edges.rows)


def _aggregation(
    how: str, layer: Interpreter, _: Own, x: Any, index: Any = None, ptr: Any = None, dim_size: Any = None, dim: int = -2
) -> SymbolicValue:
    if ptr is not None:
        raise Unsupported("an aggregation by ptr")
    return _scatter(layer, x, index, dim, dim_size, how)


def _several_aggregations(layer: Interpreter, own: Own, x: Any, index: Any = None, **named: Any) -> SymbolicValue:
    if layer.attribute(own, "mode") != "cat":
        raise Unsupported("several aggregations that are not joined by 'cat'")
    kinds = Own(own.module.aggrs, (*own.path, "aggrs"))
    each = [layer.attribute(kinds, str(at)) for at in range(len(own.module.aggrs))]
    return operators.cat([layer.call(one, [x, index], named) for one in each], -1)


def _scatter(_: Interpreter, src: Any, index: Any, dim: int = 0, dim_size: Any = None, reduce: str = "sum") -> SymbolicValue:
    x = operators.value_of(src)
    if not isinstance(dim_size, Count):
        raise Unsupported("scatter without dim_size: how many nodes there are depends on the edges")
    _check_index(x, index, dim)
    return operators.reduce(reduce, x, dim_size.rows)


def _torch_scatter(
    how: str, layer: Interpreter, src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: Any = None, reduce: Any = None
) -> SymbolicValue:
    if out is not None:
        raise Unsupported("scatter into a tensor")
    return _scatter(layer, src, index, dim, dim_size, reduce or how)


def _softmax(
    layer: Interpreter, src: Any, index: Any = None, ptr: Any = None, num_nodes: Any = None, dim: int = 0
) -> SymbolicValue:
    x = operators.value_of(src)
    if ptr is not None:
        raise Unsupported("a softmax by ptr")
    _check_index(x, index, dim)
    return operators.softmax_over_edges(x)
