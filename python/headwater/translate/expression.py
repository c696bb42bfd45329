"""Expressions of a layer's Python: names, attributes, operators and calls."""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import types
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from . import operators
from .notes import SIMPLE, Frame, Lambda, Method, Notes, Own, Stop, is_plain, signature_of
from .value import Count, Ends, Picked, Poisoned, SymbolicEdgeIndex, SymbolicValue, Types, Unknown, Unsupported

# Steps in all.
MOST_STEPS = 20_000
_BINARY: dict[type, tuple[Callable, Callable]] = {
    ast.Add: (operator.add, operators.add),
    ast.Sub: (operator.sub, operators.sub),
    ast.Mult: (operator.mul, operators.mul),
    ast.Div: (operator.truediv, operators.div),
    ast.Pow: (operator.pow, operators.power),
    ast.MatMult: (operator.matmul, operators.matmul),
    ast.FloorDiv: (operator.floordiv, lambda *_: _refuse("`//` of tensors")),
    ast.Mod: (operator.mod, lambda *_: _refuse("`%` of tensors")),
}
_COMPARE: dict[type, Callable] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
# Functions of Python that are called with what is known.
_PLAIN = {len, range, int, float, bool, str, tuple, list, zip, enumerate, min, max, abs, reversed, sorted, sum, round}
# What stands for a tensor.
TENSORS = (SymbolicValue, SymbolicEdgeIndex, Ends, Types, Picked)


def _refuse(why: str) -> Any:
    raise Unsupported(why)


def truth(value: Any) -> bool:
    """What Python takes a value for that is known."""
    return bool(value.module if isinstance(value, Own) else value)


class Expressions(Notes, ABC):
    """What expressions mean. What statements mean, `Interpreter` says."""

    @abstractmethod
    def run(self, function: Any, arguments: dict[str, Any]) -> Any:
        """What a function returns for arguments by name."""

    @abstractmethod
    def condition(self, node: ast.expr) -> bool:
        """Whether a condition holds, which must be known."""

    @abstractmethod
    def items(self, over: Any, node: Any) -> list[Any]:
        """What a loop goes over."""

    @abstractmethod
    def assign(self, target: Any, value: Any) -> None:
        """Gives a value its name."""

    def expression(self, node: Any) -> Any:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Stop
        try:
            value = self._expression(node)
        except Unsupported as why:
            self.refuse(node, str(why))
            raise Poisoned from why
        except (AttributeError, LookupError, ArithmeticError, ValueError, TypeError) as why:
            self.refuse(node, f"{type(why).__name__}: {why}")
            raise Poisoned from why
        if isinstance(value, Unknown):
            raise Poisoned
        if isinstance(value, SymbolicValue) and (value.at is None or "torch_geometric" in value.at[0]) and self.frames:
            # Lines of the user say more than PyG's.
            value.at = (self.frames[-1].file, node)
        return value

    def _expression(self, node: Any) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._name(node.id)
            case ast.Attribute():
                return self.attribute(self.expression(node.value), node.attr)
            case ast.Call():
                return self._call(node)
            case ast.BinOp():
                return self._operator(node)
            case ast.UnaryOp():
                return self._prefix(node)
            case ast.BoolOp():
                return self._logic(node)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return self.expression(node.body if self.condition(node.test) else node.orelse)
            case ast.Subscript():
                return self._subscript(self.expression(node.value), self.expression(node.slice))
            case ast.Slice():
                ends = [None if end is None else self.expression(end) for end in (node.lower, node.upper, node.step)]
                return slice(*ends)
            case ast.Tuple():
                return tuple(self.expression(one) for one in node.elts)
            case ast.List():
                return self.kept([self.expression(one) for one in node.elts])
            case ast.Dict() if None not in node.keys:
                return self.kept({self.expression(key): self.expression(one) for key, one in zip(node.keys, node.values)})
            case ast.Lambda():
                return Lambda(node, self.frames[-1])
            case ast.ListComp() | ast.GeneratorExp() if len(node.generators) == 1:
                return self.kept(self._comprehension(node))
            case ast.JoinedStr():
                return "".join(str(self.expression(one)) for one in node.values)
            case ast.FormattedValue(conversion=-1, format_spec=None):
                return self._formatted(self.expression(node.value))
        raise Unsupported(f"`{type(node).__name__}` is not in the subset")

    @staticmethod
    def _formatted(value: Any) -> str:
        return str(value) if isinstance(value, SIMPLE) else _refuse("a string of what is no number or string")

    def _name(self, name: str) -> Any:
        frame = self.frames[-1]
        for names in (frame.names, frame.outer, frame.function.__globals__, vars(builtins)):
            if name in names:
                value = names[name]
                if isinstance(value, torch.Tensor):
                    raise Unsupported("a tensor that is neither an argument nor the module's")
                if names is frame.function.__globals__ and (isinstance(value, SIMPLE) or is_plain(value)):
                    self.seen_elsewhere.append((names, name, list(value) if isinstance(value, list) else value))
                return value
        raise Unsupported("has no value here")

    def attribute(self, of: Any, name: str) -> Any:
        """What an attribute means."""
        from . import known

        if isinstance(of, Own):
            return self._own_attribute(of, name)
        if isinstance(of, TENSORS):
            return known.tensor_attribute(self, of, name)
        if isinstance(of, known.Super):
            return Method(getattr(super(of.after, of.own.module), name).__func__, of.own)
        if hasattr(of, "is_abstract") and not hasattr(of, name):
            raise Unsupported(f"`{name}` of a graph is not in the subset")
        if isinstance(of, (types.ModuleType, list, tuple, dict)) or hasattr(of, "is_abstract"):
            return getattr(of, name)
        raise Unsupported(f"an attribute of a {type(of).__name__}")

    def _own_attribute(self, of: Own, name: str) -> Any:
        if (of.path, name) in self.written:
            return self.written[(of.path, name)][0]
        value = getattr(of.module, name)
        if isinstance(value, torch.Tensor):
            return self._weight(value, (*of.path, name))
        if isinstance(value, torch.nn.Module):
            return Own(value, (*of.path, name))
        if isinstance(value, types.MethodType):
            return Method(value.__func__, of if value.__self__ is of.module else _refuse("a method of something else"))
        if isinstance(value, SIMPLE) or inspect.isroutine(value) or is_plain(value):
            value = list(value) if isinstance(value, list) else value
            self.seen[(of.path, name)] = value
            return value
        if hasattr(value, "update_all"):
            return self.graph(("self", *of.path, name), value)
        raise Unsupported(f"a {type(value).__name__} of the module")

    def _weight(self, value: torch.Tensor, path: tuple[str, ...]) -> SymbolicValue:
        self.seen[(path, "shape")], self.seen[(path, "dtype")] = value.shape, value.dtype
        if value.dtype != torch.float32 or value.layout != torch.strided:
            raise Unsupported(f"is of {value.dtype}; texts compute in torch.float32")
        if isinstance(value, torch.nn.parameter.UninitializedTensorMixin):
            raise Unsupported("its shape is not known before the first call")
        return SymbolicValue("", (), (), tuple(value.shape), "weight", path)

    def _call(self, node: ast.Call) -> Any:
        from . import known

        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            frame = self.frames[-1]
            own = next(iter(frame.names.values()))
            return known.Super(frame.outer["__class__"], own)
        function = self.expression(node.func)
        if hasattr(function, "takes_nodes"):
            return function(self, node)
        args: list[Any] = []
        for one in node.args:
            if isinstance(one, ast.Starred):
                args += self.items(self.expression(one.value), one.value)
            else:
                args.append(self.expression(one))
        kwargs: dict[str, Any] = {}
        for given in node.keywords:
            kwargs.update({given.arg: self.expression(given.value)} if given.arg else self.expression(given.value))
        return self.call(function, args, kwargs)

    def _operator(self, node: ast.BinOp) -> Any:
        left, right = self.expression(node.left), self.expression(node.right)
        known, ours = _BINARY.get(type(node.op), (None, None))
        if known is None or ours is None:
            raise Unsupported(f"`{type(node.op).__name__}` is not in the subset")
        return ours(left, right) if any(isinstance(one, TENSORS) for one in (left, right)) else known(left, right)

    def _prefix(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return not self.condition(node.operand)
        value = self.expression(node.operand)
        if isinstance(node.op, ast.USub):
            return operators.neg(value) if isinstance(value, TENSORS) else -value
        raise Unsupported(f"`{type(node.op).__name__}` is not in the subset")

    def _logic(self, node: ast.BoolOp) -> Any:
        is_and, value = isinstance(node.op, ast.And), None
        for one in node.values:
            value = self.expression(one)
            if isinstance(value, (*TENSORS, Count)):
                raise Unsupported("a decision by what a tensor holds")
            if truth(value) != is_and:
                return value
        return value

    def _compare(self, node: ast.Compare) -> bool:
        values = [self.expression(one) for one in (node.left, *node.comparators)]
        for op, left, right in zip(node.ops, values, values[1:]):
            is_tensor = any(isinstance(one, (*TENSORS, Count)) for one in (left, right))
            if is_tensor and not isinstance(op, (ast.Is, ast.IsNot)):
                raise Unsupported("a comparison of tensors, or of how many rows there are")
            if not _COMPARE[type(op)](left, right):
                return False
        return True

    def _subscript(self, of: Any, index: Any) -> Any:
        from . import known

        if isinstance(of, TENSORS):
            return known.indexed(of, index)
        if isinstance(of, Own) and isinstance(index, (int, str)):
            module = of.module[index]
            name = next(name for name, child in of.module.named_children() if child is module)
            return Own(module, (*of.path, name))
        if hasattr(of, "load"):
            return of.load(index)
        return of[index]

    def _comprehension(self, node: Any) -> list[Any]:
        one = node.generators[0]
        found = []
        for item in self.items(self.expression(one.iter), one.iter):
            self.assign(one.target, item)
            if all(self.condition(test) for test in one.ifs):
                found.append(self.expression(node.elt))
        return found

    # Calls.

    def call_python(self, function: Any, own: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A function of Python, read in its turn."""
        front = [] if own is None else [own]
        bound = signature_of(function).bind(*front, *args, **kwargs)
        bound.apply_defaults()
        return self.run(function, bound.arguments)

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What a call means."""
        from . import known

        if isinstance(function, Unknown):
            raise Poisoned
        try:
            if isinstance(function, Lambda):
                return self._call_lambda(function, args)
            if isinstance(function, Own):
                return known.call_module(self, function, args, kwargs)
            if isinstance(function, Method):
                return self._call_method(function, args, kwargs)
            handler = known.function_of(function)
            if handler is not None:
                return handler(self, *args, **kwargs)
            if function in _PLAIN or getattr(function, "__module__", "") == "math":
                return self.kept(function(*(self._listed(one) for one in args), **kwargs))
            if isinstance(function, types.BuiltinMethodType) and self.may_call(function):
                return function(*args, **kwargs)
            if inspect.isfunction(function) and not known.is_library(function):
                return self.call_python(function, None, args, kwargs)
        except TypeError as why:
            raise Unsupported(str(why)) from why
        raise Unsupported(f"{name_of(function)} is not in the subset")

    def _listed(self, value: Any) -> Any:
        is_list = isinstance(value, Own) and isinstance(value.module, torch.nn.ModuleList)
        return self.items(value, None) if is_list else value

    def _call_method(self, method: Method, args: list[Any], kwargs: dict[str, Any]) -> Any:
        from . import known

        if isinstance(method.own, Own):
            return known.call_method(self, method, args, kwargs)
        return method.function(*args, **kwargs)

    def _call_lambda(self, function: Lambda, args: list[Any]) -> Any:
        names = [one.arg for one in function.node.args.args]
        if len(names) != len(args) or ast.unparse(function.node.args) != ", ".join(names):
            raise Unsupported("a `lambda` with other parameters than plain ones")
        outer = {**function.frame.outer, **function.frame.names}
        frame = Frame(function.frame.function, dict(zip(names, args)), function.frame.file, outer)
        self.frames.append(frame)
        try:
            return self.expression(function.node.body)
        finally:
            self.frames.pop()


def name_of(function: Any) -> str:
    """A function as users call it: torch has its own in modules that nobody names."""
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__name__", type(function).__name__)
    home = "torch" if module.split(".")[0] == "torch" else module
    return f"{home}.{name}" if home else name
