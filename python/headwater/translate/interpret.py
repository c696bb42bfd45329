"""Reads Python functions of a layer, statement by statement, over values that nobody has computed.

What is known is done as Python does it: attributes of the module, `None`, numbers, `if`, loops over lists. What is a tensor
becomes a value. What is neither is noted with its line, and reading goes on, so that all of it can be told at once.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, Optional

import torch

from .expression import MOST_STEPS, TENSORS, Expressions, name_of, truth
from .notes import SIMPLE, Frame, Own, Stop, source_of
from .value import UNKNOWN, Count, Ends, Poisoned, SymbolicEdgeIndex, SymbolicValue, Unknown, Unsupported

# Calls in each other at most.
_MOST_DEPTH = 32


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class Interpreter(Expressions):
    """Reads one layer for one kind of call."""

    def run(self, function: Any, arguments: dict[str, Any]) -> Any:
        """What a function returns for arguments by name."""
        if not inspect.isfunction(function):
            raise Unsupported(f"{name_of(function)} is no function of Python")
        definition, file = source_of(function)
        if len(self.frames) >= _MOST_DEPTH:
            raise Unsupported(f"{function.__name__} is called in itself, or too deeply")
        closed = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            closed[name] = cell.cell_contents
            if isinstance(closed[name], SIMPLE):
                self.seen_elsewhere.append((cell, "cell_contents", closed[name]))
        self.frames.append(Frame(function, dict(arguments), file, closed))
        try:
            self._block(definition.body)
        except _Return as back:
            return back.value
        finally:
            self.frames.pop()
        return None

    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise Stop
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                value = self._tried(node.value)
                for target in node.targets:
                    self.assign(target, value)
            case ast.AnnAssign(value=None):
                pass
            case ast.AnnAssign():
                self.assign(node.target, self._tried(node.value))
            case ast.AugAssign():
                self.assign(node.target, self._tried(node, self._augmented))
            case ast.Return(value=None):
                raise _Return(None)
            case ast.Return():
                raise _Return(self._tried(node.value))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr():
                self._tried(node.value)
            case ast.If():
                self._block(node.body if self.condition(node.test) else node.orelse)
            case ast.For(orelse=[]):
                self._loop(node)
            case ast.Assert():
                if not self.condition(node.test):
                    raise self._stop(node, "does not hold")
            case ast.With():
                self._with(node)
            case _:
                raise self._stop(node, f"`{type(node).__name__.lower()}` is not in the subset")

    def _stop(self, node: Any, why: str) -> Stop:
        self.refuse(node if isinstance(node, ast.expr) else _head(node), why)
        return Stop()

    def _tried(self, node: Any, how: Optional[Callable] = None) -> Any:
        """What an expression means, or that nobody knows."""
        try:
            return (how or self.expression)(node)
        except Poisoned:
            return UNKNOWN

    def condition(self, node: ast.expr) -> bool:
        value = self._tried(node)
        if isinstance(value, Unknown):
            raise Stop
        if isinstance(value, (*TENSORS, Count)):
            raise self._stop(node, "a decision by what a tensor holds")
        return truth(value)

    def _loop(self, node: ast.For) -> None:
        over = self._tried(node.iter)
        if isinstance(over, Unknown):
            raise Stop
        for item in self.items(over, node.iter):
            self.assign(node.target, item)
            self._block(node.body)

    def items(self, over: Any, node: ast.expr) -> list[Any]:
        if isinstance(over, Own) and isinstance(over.module, (torch.nn.ModuleList, torch.nn.Sequential)):
            return [self.attribute(over, str(at)) for at in range(len(over.module))]
        if isinstance(over, SymbolicEdgeIndex):
            return [Ends(over, "src"), Ends(over, "dst")]
        if isinstance(over, (list, tuple, range, dict, zip, enumerate, reversed)):
            return list(over)
        raise self._stop(node, "a loop over what is no list")

    def _with(self, node: ast.With) -> None:
        from .frames import Scope

        for item in node.items:
            scope = self._tried(item.context_expr)
            if not isinstance(scope, Scope):
                if not isinstance(scope, Unknown):
                    self.refuse(item.context_expr, "`with` is not in the subset")
                raise Stop
            if item.optional_vars is not None:
                self.assign(item.optional_vars, scope.graph)
        self._block(node.body)

    def assign(self, target: Any, value: Any) -> None:
        match target:
            case ast.Name():
                self.frames[-1].names[target.id] = value
            case ast.Tuple() | ast.List():
                values = [UNKNOWN] * len(target.elts)
                if not isinstance(value, Unknown):
                    values = self.items(value, target)
                if len(values) != len(target.elts) or any(isinstance(one, ast.Starred) for one in target.elts):
                    raise self._stop(target, f"{len(values)} values for {len(target.elts)} names")
                for one, own in zip(target.elts, values):
                    self.assign(one, own)
            case ast.Subscript():
                self._tried(target, lambda node: self._store(node, value))
            case ast.Attribute():
                self._tried(target, lambda node: self._write(node, value))
            case _:
                self.refuse(target, "the layer writes to what outlives the call")

    def _write(self, node: ast.Attribute, value: Any) -> None:
        of = self.expression(node.value)
        if not isinstance(of, Own):
            raise self._stop(node, "the layer writes to what outlives the call")
        self.written[(of.path, node.attr)] = (value, self.frames[-1].file, node)

    def _store(self, node: ast.Subscript, value: Any) -> None:
        of = self.expression(node.value)
        if hasattr(of, "store"):
            of.store(self.expression(node.slice), value)
        elif any(of is one for one in self.made):
            of[self.expression(node.slice)] = value
        else:
            self.refuse(node, "writes to a part of a tensor, or to what outlives the call")
            raise Poisoned

    def _augmented(self, node: ast.AugAssign) -> Any:
        """`x += y`, which writes to `x` where that is a tensor or a list."""
        load = _loaded(node.target)
        before = self.expression(load)
        if isinstance(before, list):
            if not isinstance(node.op, ast.Add) or not any(before is one for one in self.made):
                raise self._stop(node, "writes to a list that others have too")
            before.extend(self.items(self.expression(node.value), node.value))
            return before
        made = self.expression(ast.copy_location(ast.BinOp(load, node.op, node.value), node))
        if not isinstance(made, SymbolicValue):
            return made
        try:
            return self.overwrite(before, made)
        except Unsupported as why:
            self.refuse(node.target, str(why))
            raise Poisoned from why


def _loaded(target: Any) -> Any:
    copied = ast.parse(ast.unparse(target), mode="eval").body
    return ast.copy_location(copied, target)


def _head(node: Any) -> Any:
    """A statement without what is inside."""
    text = ast.unparse(node).split("\n")[0]
    return ast.copy_location(ast.Name(text), node)
