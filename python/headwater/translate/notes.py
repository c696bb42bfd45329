"""What is noted while a layer is read: what it has seen, made and written, and what is not supported."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from dataclasses import dataclass, field
from typing import Any

import torch

from .value import UNKNOWN, SymbolicValue, Unsupported

# What is known by its value.
SIMPLE = (type(None), bool, int, float, str, torch.dtype)
# Methods of lists, dictionaries and strings that write nothing.
_READING = {"get", "items", "keys", "values", "index", "count", "copy", "startswith", "endswith", "format", "lower", "upper"}


@dataclass(frozen=True)
class Fault:
    """Something that a text cannot say."""

    file: str
    line: int
    construct: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.construct}`: {self.why}"


@dataclass(frozen=True)
class Own:
    """The module, or a module in it, by the way from there."""

    module: Any
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Method:
    """A function with the object that it is called on."""

    function: Any
    own: Any


@dataclass(frozen=True)
class Lambda:
    """A `lambda` and what it sees."""

    node: ast.Lambda
    frame: Frame


@dataclass(eq=False)
class Frame:
    """Names of one call."""

    function: Any
    names: dict[str, Any]
    file: str = "<layer>"
    outer: dict[str, Any] = field(default_factory=dict)


class Stop(Exception):
    """Reading cannot go on."""


class Notes:
    """Notes on one layer and one kind of call."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        # What was read of modules and is neither tensor nor module; another value would be another layer.
        self.seen: dict[tuple[tuple[str, ...], str], Any] = {}
        # The same of other places: what has it, its name, and what it was.
        self.seen_elsewhere: list[tuple[Any, str, Any]] = []
        # Attributes that the layer wrote, and where.
        self.written: dict[tuple[tuple[str, ...], str], tuple[Any, str, Any]] = {}
        # Lists and dictionaries that the layer made, and may write to.
        self.made: list[Any] = []
        self.frames: list[Frame] = []
        self.graphs: dict[tuple, Any] = {}
        self.steps = 0

    def graph(self, place: tuple, given: Any) -> Any:
        """A graph in DGL's style, which is the same wherever it is read."""
        from .frames import SymbolicGraph

        if place not in self.graphs:
            self.graphs[place] = SymbolicGraph(place, given)
        return self.graphs[place]

    def check_no_hooks(self, own: Own, names: list[str]) -> None:
        """Hooks see what texts do not make."""
        for name in names:
            hooks = getattr(own.module, name, None)
            self.seen[(own.path, name)] = None if hooks is None else type(hooks)(hooks)
            if hooks:
                raise Unsupported(f"the {type(own.module).__name__} has hooks")

    def refuse(self, node: Any, why: str) -> None:
        self.refuse_in(self.frames[-1].file if self.frames else "<layer>", node, why)

    def refuse_in(self, file: str, node: Any, why: str) -> None:
        construct = " ".join(ast.unparse(node).split()) if node is not None else ""
        construct = construct if len(construct) <= 80 else construct[:77] + "..."
        fault = Fault(file, getattr(node, "lineno", 0), construct, why)
        if fault not in self.faults:
            self.faults.append(fault)

    def finish(self, own: Own) -> None:
        """Ends reading: what the layer wrote to the module must be as it was."""
        for (path, name), (value, file, node) in self.written.items():
            holder = own.module
            for part in path:
                holder = getattr(holder, part)
            before = getattr(holder, name, UNKNOWN)
            if not isinstance(value, SIMPLE) or value is not before:
                self.refuse_in(file, node, "the layer writes to what outlives the call")
            else:
                self.seen[(path, name)] = value

    def overwrite(self, target: Any, made: SymbolicValue) -> SymbolicValue:
        """Writes to a tensor, which is as good as making another where one name at most has it."""
        if not isinstance(target, SymbolicValue):
            return made
        if len(made.full) != len(target.full) or made.shape != target.shape:
            raise Unsupported("writes to a tensor of another shape")
        root = target.root()
        if root.op in ("input", "weight") or root.is_shared:
            raise Unsupported("writes to a tensor that others have too")
        names = [value for frame in self.frames for value in frame.names.values()]
        names += [value for value, _, _ in self.written.values()]
        names += [value for graph in self.graphs.values() for value in graph.held()]
        holders = [value for value in _leaves(names) if isinstance(value, SymbolicValue) and value.root() is root]
        if len(holders) > 1:
            raise Unsupported("writes to a tensor that has two names")
        for frame in self.frames:
            frame.names.update({name: made for name, value in frame.names.items() if value is target})
        return made

    def kept(self, made: Any) -> Any:
        """Remembers a list or dictionary that the layer made."""
        if isinstance(made, (list, dict)):
            self.made.append(made)
        return made

    def may_call(self, function: Any) -> bool:
        """Whether a method of a list and so on writes to nothing that others have."""
        of, name = function.__self__, function.__name__
        if not isinstance(of, (list, tuple, dict, str)):
            return False
        return name in _READING or any(of is one for one in self.made)


def is_plain(value: Any) -> bool:
    """A list of numbers and so on."""
    return isinstance(value, (list, tuple)) and all(isinstance(one, SIMPLE) for one in value)


def _leaves(values: Any) -> Any:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        elif isinstance(value, dict):
            yield from _leaves(value.values())
        else:
            yield value


@functools.lru_cache(maxsize=1024)
def signature_of(function: Any) -> inspect.Signature:
    return inspect.signature(function)


@functools.lru_cache(maxsize=1024)
def source_of(function: Any) -> tuple[ast.FunctionDef, str]:
    """The `def` of a function with the lines of its file."""
    file = inspect.getsourcefile(function) or "<layer>"
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as why:
        raise Unsupported(f"the text of {function.__qualname__} is not there") from why
    definition = ast.parse(textwrap.dedent("".join(lines))).body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise Unsupported(f"{function.__qualname__} is no plain `def`")
    if any(ast.unparse(one) != "staticmethod" for one in definition.decorator_list):
        raise Unsupported(f"{function.__qualname__} has a decorator, and nobody knows what that does")
    ast.increment_lineno(definition, first - 1)
    return definition, file
