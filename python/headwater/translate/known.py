"""Functions, methods and modules of torch and PyG that have a meaning in texts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import torch
import torch.nn.functional as F

from . import message_passing, operators
from .interpret import Interpreter
from .notes import Method, Own
from .value import Count, Ends, Picked, SymbolicEdgeIndex, SymbolicValue, Types, Unsupported

# Functions of one tensor that texts have under the same name.
_UNARY = ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs")


# At which place they take `inplace`.
_INPLACE = {"relu": 1, "leaky_relu": 2, "elu": 2, "silu": 1, "dropout": 3}


def _handler(name: str, function: Callable) -> Callable:
    """What takes the place of a function of torch."""

    def handle(layer: Interpreter, *args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        at = _INPLACE.get(name, len(args))
        is_written = kwargs.get("inplace", args[at] if at < len(args) else False)
        return layer.overwrite(kwargs.get("input", args[0] if args else None), made) if is_written else made

    return handle


def _unary(name: str) -> Callable:
    def apply(input: Any, inplace: bool = False) -> SymbolicValue:
        return operators.unary(name, input)

    return apply


# By the name that they have in torch and as methods of tensors.
_OPERATORS: dict[str, Callable] = {
    **{name: _unary(name) for name in _UNARY},
    **{name: getattr(operators, name) for name in ("add", "sub", "mul", "div", "maximum", "minimum", "neg", "leaky_relu")},
    **{name: getattr(operators, name) for name in ("elu", "gelu", "silu", "dropout", "flatten", "unsqueeze", "squeeze")},
    **{name: getattr(operators, name) for name in ("chunk", "split", "cat", "matmul", "linear", "reshape", "softmax")},
    "transpose": operators.transpose,
    "absolute": _unary("abs"),
    "multiply": operators.mul,
    "divide": operators.div,
    "true_divide": operators.div,
    "subtract": operators.sub,
    "negative": operators.neg,
    "pow": operators.power,
    "square": lambda input: operators.power(input, 2),
    "reciprocal": lambda input: operators.div(1, input),
    "concat": operators.cat,
    "concatenate": operators.cat,
    "mm": operators.matmul,
    "bmm": operators.matmul,
    "sum": functools.partial(operators.total, "sum"),
    "mean": functools.partial(operators.total, "mean"),
    "max": functools.partial(operators.most, "max"),
    "min": functools.partial(operators.most, "min"),
    "amax": functools.partial(operators.amost, "max"),
    "amin": functools.partial(operators.amost, "min"),
}
# Of tensors alone.
_METHODS: dict[str, Callable] = {
    **{name: one for name, one in _OPERATORS.items() if name not in ("cat", "concat", "linear", "gelu", "silu", "dropout")},
    "view": operators.reshape,
    "t": operators.transpose,
    "float": lambda input: input,
    "contiguous": lambda input: input,
    "clone": lambda input: operators.add(input, 0),
}


@functools.lru_cache(maxsize=None)
def _functions() -> dict[Any, Callable]:
    found: dict[Any, Callable] = {torch.jit.is_scripting: lambda _: False, isinstance: _isinstance, torch.is_tensor: _is_tensor}
    found[torch.is_floating_point] = lambda _, input: isinstance(input, SymbolicValue)
    for name, operator in _OPERATORS.items():
        for home in (torch, F):
            if hasattr(home, name):
                found[getattr(home, name)] = _handler(name, operator)
    found[getattr] = _getattr
    found[hasattr] = lambda layer, of, name: hasattr(of.module, name) if isinstance(of, Own) else hasattr(of, name)
    return found


def function_of(function: Any) -> Optional[Callable]:
    """What takes the place of a function, if something does."""
    try:
        found = _functions().get(function)
    except TypeError:
        return None
    return found or message_passing.function_of(function) or _of_dgl(function)


def _of_dgl(function: Any) -> Optional[Callable]:
    from . import frames

    return frames.edge_softmax if getattr(function, "__name__", "") == "edge_softmax" else None


def is_library(function: Any) -> bool:
    """Whether a function comes with torch or PyG, whose texts are not read unless they are methods of a layer."""
    return (function.__module__ or "").split(".")[0] in ("torch", "torch_geometric", "torch_scatter", "torch_sparse", "dgl")


def _isinstance(_: Interpreter, value: Any, kinds: Any) -> bool:
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if isinstance(value, (SymbolicValue, SymbolicEdgeIndex, Ends, Types, Picked)):
        return torch.Tensor in kinds
    if isinstance(value, Count):
        return int in kinds
    return isinstance(value.module if isinstance(value, Own) else value, kinds)


def _is_tensor(_: Interpreter, value: Any) -> bool:
    return _isinstance(_, value, torch.Tensor)


def _getattr(layer: Interpreter, of: Any, name: str, *default: Any) -> Any:
    if default and isinstance(of, Own) and not hasattr(of.module, name):
        return default[0]
    return layer.attribute(of, name)


# Modules.


def _linear(layer: Interpreter, own: Own, x: Any) -> Any:
    weight, bias = layer.attribute(own, "weight"), layer.attribute(own, "bias")
    return operators.linear(x, weight, bias)


def _activation(name: str, *settings: str) -> Callable:
    def apply(layer: Interpreter, own: Own, x: Any) -> Any:
        made = _OPERATORS[name](x, *(layer.attribute(own, setting) for setting in settings))
        return layer.overwrite(x, made) if getattr(own.module, "inplace", False) else made

    return apply


def _dropout(layer: Interpreter, own: Own, x: Any) -> Any:
    made = operators.dropout(x, layer.attribute(own, "p"), layer.attribute(own, "training"))
    return layer.overwrite(x, made) if own.module.inplace and made is not x else made


def _sequential(layer: Interpreter, own: Own, x: Any) -> Any:
    for at in range(len(own.module)):
        x = layer.call(Own(own.module[at], (*own.path, str(at))), [x], {})
    return x


def _embedding(layer: Interpreter, own: Own, types: Any) -> Any:
    if not isinstance(types, Types) or layer.attribute(own, "max_norm") is not None or own.module.sparse:
        raise Unsupported("an Embedding of anything but the types of edges")
    if layer.attribute(own, "padding_idx") is not None:
        raise Unsupported("an Embedding with padding_idx")
    return Picked(layer.attribute(own, "weight"), types)


_MODULES: dict[type, Callable] = {
    torch.nn.Linear: _linear,
    torch.nn.ReLU: _activation("relu"),
    torch.nn.LeakyReLU: _activation("leaky_relu", "negative_slope"),
    torch.nn.ELU: _activation("elu", "alpha"),
    torch.nn.Sigmoid: _activation("sigmoid"),
    torch.nn.Tanh: _activation("tanh"),
    torch.nn.GELU: _activation("gelu", "approximate"),
    torch.nn.SiLU: _activation("silu"),
    torch.nn.Dropout: _dropout,
    torch.nn.Identity: lambda layer, own, x: x,
    torch.nn.Sequential: _sequential,
    torch.nn.Embedding: _embedding,
}


def call_module(layer: Interpreter, own: Own, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A module that is called."""
    kind = type(own.module)
    layer.check_no_hooks(own, ["_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"])
    layer.seen[(own.path, "__class__")] = kind
    kind = getattr(kind, "_headwater_of", kind)
    handler = _MODULES.get(kind) or message_passing.module_of(kind)
    if handler is not None:
        return handler(layer, own, *args, **kwargs)
    # PyG's modules are read like a user's; torch's are mostly not Python.
    if (kind.__module__ or "").split(".")[0] == "torch":
        raise Unsupported(f"{kind.__module__}.{kind.__name__} is not in the subset")
    return layer.call_python(kind.forward, own, args, kwargs)


def call_method(layer: Interpreter, method: Method, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A method of the module or of one in it."""
    handler = message_passing.method_of(method)
    if handler is not None:
        return handler(layer, method.own, *args, **kwargs)
    home = method.function.__module__ or ""
    if home.split(".")[0] == "torch":
        if method.function is torch.nn.Module.__call__:
            return call_module(layer, method.own, args, kwargs)
        raise Unsupported(f"{method.function.__qualname__} is not in the subset")
    return layer.call_python(method.function, method.own, args, kwargs)


@dataclass(frozen=True)
class Super:
    """`super()`: the object, and the class behind which to look."""

    after: type
    own: Own


# Tensors.


def tensor_attribute(layer: Interpreter, of: Any, name: str) -> Any:
    if isinstance(of, SymbolicValue):
        if name in _METHODS:
            return Method(functools.partial(_METHODS[name], of), None)
        if name == "relu_":
            return Method(lambda: layer.overwrite(of, _METHODS["relu"](of)), None)
        known: dict[str, Callable] = {
            "shape": lambda: _shape(of),
            "dtype": lambda: torch.float32,
            "ndim": lambda: len(of.full),
            "T": lambda: operators.transpose(of),
            "is_sparse": lambda: False,
            "size": lambda: Method(lambda dim=None: _shape(of) if dim is None else _shape(of)[of.axis(dim)], None),
            "dim": lambda: Method(lambda: len(of.full), None),
        }
        if name in known:
            return known[name]()
    if isinstance(of, SymbolicEdgeIndex) and name in ("size", "shape", "dtype", "dim"):
        shape = (2, Count(of.rows))
        return {
            "shape": shape,
            "size": Method(lambda dim=None: shape if dim is None else shape[dim], None),
            "dim": Method(lambda: 2, None),
            "dtype": torch.int64,
        }[name]
    if isinstance(of, Types) and name in ("dim", "dtype", "long", "to", "view"):
        return {"dim": Method(lambda: 1, None), "dtype": torch.int64, "long": Method(lambda: of, None)}[name]
    raise Unsupported(f"`{name}` of a tensor is not in the subset")


def _shape(of: SymbolicValue) -> tuple[Any, ...]:
    return (*(Count(rows) for rows in of.lead), *of.shape)


def indexed(of: Any, index: Any) -> Any:
    """What a subscript of a tensor means."""
    if isinstance(of, SymbolicEdgeIndex) and index in (0, 1):
        return Ends(of, ("src", "dst")[index])
    if not isinstance(of, SymbolicValue):
        raise Unsupported("a part of numbers of nodes, edges or types")
    if isinstance(index, Ends):
        return operators.lift(of, index.side, index.edges.rows)
    if isinstance(index, Types) and not of.lead and of.op == "weight":
        return Picked(of, index)
    return _part(of, list(index) if isinstance(index, tuple) else [index])


def _part(of: SymbolicValue, index: list[Any]) -> SymbolicValue:
    if of.op == "weight" and len(of.shape) > 1 and not any(one is Ellipsis or one is None for one in index):
        raise Unsupported("a part of something learnt")
    if Ellipsis in [one for one in index if one is Ellipsis]:
        at = next(place for place, one in enumerate(index) if one is Ellipsis)
        own = sum(one is not None and one is not Ellipsis for one in index)
        index[at : at + 1] = [slice(None)] * (len(of.full) - own)
    made, axis = of, 0
    for one in index:
        if one is None:
            made, axis = operators.unsqueeze(made, axis), axis + 1
        elif isinstance(one, slice) and one == slice(None):
            axis += 1
        elif axis == len(made.full) - 1 and made.shape and isinstance(one, (int, slice)):
            made, axis = _last(made, one), axis + isinstance(one, slice)
        else:
            raise Unsupported("a part of a tensor along another dimension than the last")
    return made


def _last(made: SymbolicValue, one: Any) -> SymbolicValue:
    width = made.shape[-1]
    if isinstance(one, slice):
        begin, end, step = one.indices(width)
        if step != 1:
            raise Unsupported("a slice with a step")
        return operators.part(made, begin, end)
    at = one % width
    return operators.view(operators.part(made, at, at + 1), made.lead, made.shape[:-1])

