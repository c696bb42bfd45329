"""`@headwater.compile`: a GNN layer written as a short text, run by compiled kernels, with torch's autograd.

The function below is never run: its text says what the layer computes for every edge and every node. A call takes a graph, then
tensors for what the annotations name. Sizes follow from the tensors.

>>> average = compile('''
... def average(g, x: node[d_in], W: matrix[d_in, d_out]):
...     for n in g.dst_nodes():
...         n["out"] = linear(mean(e.src.x for e in n.incoming_edges()), W)
... ''')
>>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 2]])
>>> x, W = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[10.0]], requires_grad=True)
>>> out = average(edge_index, x, W)
>>> out.flatten().tolist()
[0.0, 10.0, 30.0]
>>> out.sum().backward()
>>> W.grad.item()
4.0

Torch is imported when a layer is first called.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import operator
import sys
import textwrap
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union, overload

from ._headwater import BoundLayer, builtin_layer, check_compiled_with, optimisations
from ._headwater import Layer as _Text

if TYPE_CHECKING:
    import torch

    from .module import LayerModule

# Names of what layers may be compiled without.
OPTIMISATIONS = tuple(optimisations())
# Kinds of calls that a layer keeps its plans for.
_MOST_BOUND = 64


@overload
def compile(
    layer: None = None,
    /,
    *,
    self_loops: bool = False,
    drop_self_loops: bool = False,
    uses: Iterable[Callable] = (),
    without: Iterable[str] = (),
    tune: str = "fixed",
) -> Callable[[Callable], Layer]: ...


@overload
def compile(
    layer: Union[Callable, str],
    /,
    *,
    self_loops: bool = False,
    drop_self_loops: bool = False,
    uses: Iterable[Callable] = (),
    without: Iterable[str] = (),
    tune: str = "fixed",
) -> Layer: ...


@overload
def compile(layer: torch.nn.Module, /, *, fallback: bool = True) -> torch.nn.Module: ...


def compile(
    layer: Any = None,
    /,
    *,
    self_loops: bool = False,
    drop_self_loops: bool = False,
    uses: Iterable[Callable] = (),
    without: Iterable[str] = (),
    tune: str = "fixed",
    fallback: Optional[bool] = None,
) -> Union[Layer, Callable[[Callable], Layer], Any]:
    """A layer out of a function or its text, by the name of one that comes with Headwater, or out of a module of others.

    `self_loops` gives every node one edge to itself, in the place of those that the graph has; `drop_self_loops` leaves them out.
    `uses` are functions that the layer calls; they stand above it. A function whose first parameter is `self` is a method, and
    what it reads of `self` are parameters of the layer. `without` are names of optimisations to leave out, as `headwater compile
    --without` takes them: they change how fast the layer is, and in what order numbers are added. `headwater.OPTIMISATIONS` has all.
    `tune` says how a GPU's kernels are scheduled, which changes no more than that either; a CPU has no schedules. "fixed": by a model with
    the constants of an H200, the same everywhere. "model": with constants that are measured on the GPU, once. "measure": by timing a short
    list for the first graph of a size, kept on disk. Or parts of schedules, such as "lanes=8,ahead=4,chunks=528".

    Of a module, such as a `MessagePassing` of PyG, the Python is read and what can be said as a text runs compiled. What
    cannot runs as it is written and is said once a class; with `fallback=False` it raises.
    """
    without = _names(without)
    if layer is None:
        wishes = {"self_loops": self_loops, "drop_self_loops": drop_self_loops, "uses": uses, "without": without}
        wishes.update(tune=tune, fallback=fallback)
        return functools.partial(compile, **wishes)
    if isinstance(layer, str):
        _no_fallback(fallback, layer)
        if self_loops or drop_self_loops or uses:
            raise TypeError("a text says @layer(self_loops=True) itself, and has the functions that it uses")
        known = builtin_layer(layer) if layer.isidentifier() else None
        return Layer(known or layer, f"<{layer}>" if known else "<layer>", without, tune)
    if "torch" in sys.modules and isinstance(layer, sys.modules["torch"].nn.Module):
        if self_loops or drop_self_loops or uses:
            raise TypeError("a module says itself what its edges are; expected no self_loops, drop_self_loops or uses")
        check_compiled_with(list(without), tune)
        from .translate.module import compile_module
        from .translate.plan import Wishes

        return compile_module(layer, Wishes(fallback is not False, without, tune))
    _no_fallback(fallback, layer)
    if not inspect.isfunction(layer):
        raise TypeError(f"a layer is a function, a text or a module, not a {type(layer).__name__}")
    if self_loops and drop_self_loops:
        raise TypeError("self_loops adds edges that drop_self_loops leaves out; give one of them")
    wish = "self_loops=True" if self_loops else "drop_self_loops=True" if drop_self_loops else None
    return _of_function(layer, _text_of(layer, wish, list(uses)), without, tune)


def _no_fallback(fallback: Optional[bool], layer: Any) -> None:
    if fallback is not None:
        raise TypeError(f"fallback is {fallback!r}; it is for modules, and a layer out of a {type(layer).__name__} has none")


def _of_function(function: Callable, text: tuple[str, str], without: tuple[str, ...], tune: str) -> Any:
    if next(iter(inspect.signature(function).parameters), None) == "self":
        from .method import MethodLayer

        return MethodLayer(function, *text, without, tune)
    made = Layer(*text, without, tune)
    functools.update_wrapper(made, function)
    return made


def constant(*_: Any) -> None:
    """As a default, `= constant`: no gradient of this input is asked for."""


def when(*_: Any) -> None:
    """As a default, `= when(lambda: condition)`: the parameter is there only if the condition on options holds."""


@dataclass
class Given:
    """What a call gives, by name."""

    arrays: dict[str, Any]
    sizes: dict[str, int]
    options: dict[str, Any]

    def __post_init__(self) -> None:
        # 1, 1.0 and True are the same key, but not the same option.
        told = tuple([(name, type(value), value) for name, value in sorted(self.options.items())])
        # What tells kinds of calls apart, besides shapes.
        self.key = (tuple(sorted(self.sizes.items())), told)

    def with_arrays(self, arrays: dict[str, Any]) -> Given:
        """The same sizes and options with these arrays."""
        made = copy.copy(self)
        made.arrays = arrays
        return made


class Layer:
    """A layer that is called with a graph and tensors. `compile` makes it."""

    def __init__(self, text: str, name: str = "<layer>", without: Iterable[str] = (), tune: str = "fixed") -> None:
        self.without, self.tune = _names(without), tune
        self._made_of = (text, name, self.without, tune)
        self._text = _Text(name, text, self.without, tune)
        self.__name__ = self._text.name
        self._names = self._text.parameters
        self._sizes = set(self._text.sizes)
        self._options = dict(self._text.options)
        # What each array's rows are, and the extents of one as they are written.
        self.inputs = {name: (kind, sizes) for name, kind, sizes in self._text.inputs}
        self.weights = {name: (kind, sizes) for name, kind, sizes in self._text.weights}
        self.arrays = {**self.inputs, **self.weights}
        self._bound: OrderedDict[Any, BoundLayer] = OrderedDict()

    def __call__(self, graph: Any, *arguments: Any, training: bool = True, **named: Any) -> Any:
        """Arguments in the order of the text, or by name; sizes that tensors do not tell, and options, by name.

        `graph` is an edge_index, a pair of an edge_index and the type of each edge, a Graph, a LayerGraph, or a Data or
        HeteroData of PyG. `training=False` leaves dropouts out.
        """
        from .autograd import call

        return call(self, graph, self.given(arguments, named), training)

    def explain(self, graph: Any = None, *arguments: Any, level: str = "all", **named: Any) -> str:
        """What a call with these arguments runs on the CPU: its values, its kernels, and what changes of order were worth it.

        Without a graph, sizes are 64 and heads 1 unless they are given, and rows those of FB15k-237. `level` is "values",
        "kernels", "plan" or "all".
        """
        if graph is None:
            sizes = {name: 1 if name == "heads" else 64 for name in self._sizes}
            given = self.given(arguments, named)
            return self.bound({}, {**sizes, **given.sizes}, given.options, self._learnt(), True).explain(None, level)
        from .autograd import prepare

        prepared = prepare(self, graph, self.given(arguments, named), True)
        return prepared.ready.bound.explain(prepared.ready.graph, level)

    def module(
        self,
        *,
        num_edge_types: Optional[int] = None,
        num_node_types: Optional[int] = None,
        num_nodes: Optional[int] = None,
        graph: Any = None,
        seed: Optional[int] = None,
        without: Optional[Iterable[str]] = None,
        tune: Optional[str] = None,
        **named: Any,
    ) -> LayerModule:
        """A module that owns the layer's weights, and is called with a graph and the layer's inputs.

        Sizes and options are given by name. How many nodes and types there are is given too, or follows from a `graph` as calls take
        it; types are one of each by default. Weights begin as those of Headwater's own model of this name do, else by Glorot's
        rule, and biases called `b` as zeros. `seed` comes from torch's generator by default. `without` and `tune` are as `compile`
        has them, and as the layer itself was compiled by default.
        """
        from .module import LayerModule

        if without is not None or tune is not None:
            without, tune = self.without if without is None else without, self.tune if tune is None else tune
            layer = Layer(*self._made_of[:2], without, tune)
            told = dict(num_edge_types=num_edge_types, num_node_types=num_node_types, num_nodes=num_nodes)
            return layer.module(**told, graph=graph, seed=seed, **named)
        given = self.given((), named)
        if given.arrays:
            raise TypeError(f"{self.__name__}.module() takes sizes and options; {next(iter(given.arrays))} is an array")
        told = {"ntype": num_node_types, "etype": num_edge_types, "node.src": num_nodes}
        told = {kind: count for kind, count in told.items() if count is not None}
        if graph is None:
            return LayerModule(self, given, {"ntype": 1, "etype": 1, **told}, seed)
        from .layer_graph import graph_of

        bound = self.bound({}, given.sizes, given.options, self._learnt(), True)
        arranged = graph_of(graph, told).on_host(bound.self_loops)
        counts = {kind: arranged.native.rows(kind) for kind in ("ntype", "etype", "node.src", "node.dst", "pair.src", "pair.dst")}
        for kind, count in told.items():
            if counts[kind] != count:
                raise ValueError(f"the graph has {counts[kind]} rows of {kind}, but {count} were said")
        return LayerModule(self, given, counts, seed)

    def given(self, arguments: tuple, named: dict[str, Any]) -> Given:
        """Arguments by name. Those that are None are left out."""
        if len(arguments) > len(self._names):
            many = len(self._names)
            raise TypeError(f"{self.__name__}() takes {many} arguments behind the graph, but {len(arguments)} were given")
        all_of_them = dict(zip(self._names, arguments))
        for name, value in named.items():
            if name in all_of_them:
                raise TypeError(f"{self.__name__}() got multiple values for argument '{name}'")
            if name not in self._names and name not in self._sizes:
                raise TypeError(f"{self.__name__}() got an unexpected argument '{name}'")
            all_of_them[name] = value
        arrays, sizes, options = {}, {}, {}
        for name, value in all_of_them.items():
            if value is None:
                continue
            if name in self._sizes:
                sizes[name] = operator.index(value)
            elif name in self._options:
                options[name] = value
            else:
                arrays[name] = value
        return Given(arrays, sizes, options)

    def bound(
        self, rows: dict[str, list[int]], sizes: dict[str, int], options: dict[str, Any], wanted: frozenset, training: bool
    ) -> BoundLayer:
        """The layer for one kind of call, which is read once."""
        row_key = tuple((name, tuple(row)) for name, row in sorted(rows.items()))
        # 1, 1.0 and True are the same key, but not the same option.
        option_key = tuple((name, type(value), value) for name, value in sorted(options.items()))
        key = (row_key, tuple(sorted(sizes.items())), option_key, wanted, training)
        found = self._bound.get(key)
        if found is None:
            found = self._text.bind(rows, sizes, options, set(wanted), training)
            while len(self._bound) >= _MOST_BOUND:
                self._bound.popitem(last=False)
            self._bound[key] = found
        return found

    def _learnt(self) -> frozenset:
        return frozenset(self.weights)

    def __reduce__(self) -> Any:
        return Layer, self._made_of

    def __deepcopy__(self, _: Any) -> Layer:
        return self

    def __repr__(self) -> str:
        return f"<headwater layer {self.__name__}({', '.join(self._names)})>"


def _names(without: Iterable[str]) -> tuple[str, ...]:
    """Names of optimisations. A text would be taken for its letters."""
    names = () if isinstance(without, str) else tuple(without)
    if isinstance(without, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"without is {without!r}; it should be a list of names")
    return names


def _text_of(function: Callable, wish: Optional[str], uses: list[Callable]) -> tuple[str, str]:
    """The text of functions, at the lines where they stand, and the name of their file."""
    file = inspect.getsourcefile(function) or "<layer>"
    lines: list[str] = []
    for one in [*sorted(uses, key=lambda one: one.__code__.co_firstlineno), function]:
        if one.__code__.co_filename != function.__code__.co_filename:
            raise ValueError(f"{one.__name__} stands in another file than {function.__name__}, which uses it")
        first, own = _own_lines(one, file)
        if first <= len(lines):
            raise ValueError(f"{one.__name__} does not stand above {function.__name__}, which uses it")
        lines += [""] * (first - 1 - len(lines)) + own
        if one is function and wish:
            # In the line of the decorator, which is empty here.
            lines[max(first - 2, 0) : first - 1] = [f"@layer({wish})"]
    return "\n".join(lines) + "\n", file


def _own_lines(function: Callable, file: str) -> tuple[int, list[str]]:
    """The line of a `def`, and the lines from there on. What stands above it is Python's."""
    try:
        found, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as why:
        name = function.__name__
        raise ValueError(f"the text of {name} is not there; it stands in no file. Give `compile` the text itself") from why
    text = textwrap.dedent("".join(found))
    definition = ast.parse(text).body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise SyntaxError("expected a plain `def`", (file, first, 1, found[0]))
    if len(definition.decorator_list) > 1:
        second = first + definition.decorator_list[1].lineno - 1
        raise SyntaxError("expected one decorator", (file, second, 1, found[second - first]))
    return first + definition.lineno - 1, text.splitlines()[definition.lineno - 1 :]
