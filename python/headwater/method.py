"""A layer text that stands in a class: what it reads of `self` are parameters of the layer, found by name at every call.

In the text `self.weight` becomes `self_weight`, which is as long, so faults keep their line and column. How it is used says
whether it is a matrix or a vector; what the object has there says which sizes.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from typing import Any, Optional

from ._headwater import check_compiled_with
from .compile import Layer

# Calls whose argument at this place is a matrix.
_TAKE_MATRICES = {"linear": (1, "W"), "transpose": (0, "W")}
# What picks a row of something learnt, by the attribute that it is picked by.
_PICKS = {"etype": "etype", "ntype": "ntype"}


class MethodLayer:
    """A method that is a layer. `compile` makes it; called on an object, it reads what it needs of that object."""

    def __init__(self, function: Callable, text: str, name: str, without: tuple[str, ...] = (), tune: str = "fixed") -> None:
        # A text is there when the method is first called on an object.
        check_compiled_with(list(without), tune)
        self._function, self._name, self._compiled = function, name, (without, tune)
        self._reads, self._text, method = _without_self(text, name)
        self._end, comma = _end_of_parameters(self._text, method.lineno)
        # By name alone they may stand behind those with a default.
        self._comma = comma if method.args.kwonlyargs else f"{comma}*, "
        self._layers: dict[Any, Layer] = {}
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Optional[type] = None) -> Any:
        return self if instance is None else BoundMethodLayer(self, instance)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self._function.__qualname__} reads `self`; call it on an object")

    def layer_of(self, instance: Any) -> tuple[Layer, dict[str, Any]]:
        """The layer for what an object has, and what its text calls `self`'s."""
        found = {read.word: read.value_of(instance, self._name) for read in self._reads}
        declared = tuple(read.declared(found[read.word], type(instance)) for read in self._reads)
        layer = self._layers.get(declared)
        if layer is None:
            front, behind = self._text[: self._end], self._text[self._end :]
            more = self._comma + ", ".join(declared) if declared else ""
            layer = self._layers[declared] = Layer(front + more + behind, self._name, *self._compiled)
        return layer, found

    @contextlib.contextmanager
    def in_words_of_the_user(self) -> Iterator[None]:
        """Faults of the text say `self.weight` as it stands in the file."""
        try:
            yield
        except SyntaxError as fault:
            for read in self._reads:
                fault.msg = re.sub(rf"\b{read.word}\b", str(read), fault.msg)
                if fault.text is not None:
                    fault.text = re.sub(rf"\b{read.word}\b", str(read), fault.text)
            raise

    def __repr__(self) -> str:
        return f"<headwater method {self._function.__qualname__}>"


class BoundMethodLayer:
    """A method of an object, called with a graph and the layer's inputs."""

    def __init__(self, method: MethodLayer, instance: Any) -> None:
        self._method, self.__self__ = method, instance
        functools.update_wrapper(self, method._function)

    def __call__(self, graph: Any, *arguments: Any, training: Optional[bool] = None, **named: Any) -> Any:
        """As `Layer.__call__`. Dropouts are left out where the object, a module, is not in training."""
        training = getattr(self.__self__, "training", True) if training is None else training
        with self._method.in_words_of_the_user():
            layer, own = self._method.layer_of(self.__self__)
            return layer(graph, *arguments, training=training, **own, **named)

    def explain(self, graph: Any, *arguments: Any, level: str = "all", **named: Any) -> str:
        """As `Layer.explain`."""
        with self._method.in_words_of_the_user():
            layer, own = self._method.layer_of(self.__self__)
            return layer.explain(graph, *arguments, level=level, **own, **named)

    def __repr__(self) -> str:
        return f"<bound {self._method!r} of a {type(self.__self__).__name__}>"


class _Read:
    """Something of `self` that a text reads."""

    def __init__(self, path: tuple[str, ...], line: int) -> None:
        self.path, self.line = path, line
        self.word = "_".join(("self", *path))
        self.is_matrix, self.picked_by = False, ""

    def __str__(self) -> str:
        return ".".join(("self", *self.path))

    def value_of(self, instance: Any, file: str) -> Any:
        """A tensor as the layer takes it, or an option."""
        import torch

        value = instance
        for name in self.path:
            try:
                value = getattr(value, name)
            except AttributeError as why:
                kind = type(value).__name__
                raise AttributeError(f"a {kind} has no `{name}`, but line {self.line} of {file} reads {self}") from why
        if isinstance(value, torch.Tensor):
            return value.view(1) if value.dim() == 0 else value
        if isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(
            f"{self} is a {type(value).__name__}, but line {self.line} of {file} reads it; "
            "expected a tensor, a number or a string"
        )

    def declared(self, value: Any, owner: type) -> str:
        """The parameter of the text."""
        import torch

        if not isinstance(value, torch.Tensor):
            return f"{self.word}: {type(value).__name__} = {type(value)()!r}"
        told = _annotation(owner, self.path)
        if told is not None:
            return f"{self.word}: {told}"
        least = 1 + self.is_matrix + bool(self.picked_by)
        if value.dim() not in (least, least + 1):
            what = "matrix" if self.is_matrix else "vector"
            each = f" for each {self.picked_by}" if self.picked_by else ""
            raise ValueError(
                f"{self} has shape {list(value.shape)}, but is used as a {what}{each}: "
                f"expected {least} dimensions, or {least + 1} with heads"
            )
        first = 1 if self.picked_by else 0
        sizes = [f"{self.word}_{at}" for at in range(first, value.dim())]
        front = [self.picked_by] if self.picked_by else []
        return f"{self.word}: {'matrix' if self.is_matrix else 'vector'}[{', '.join(front + sizes)}]"


def _annotation(owner: type, path: tuple[str, ...]) -> Optional[str]:
    """What a class says of an attribute in the words of texts: `weight: matrix[d_in, d_out]`."""
    if len(path) > 1:
        return None
    for kind in owner.__mro__:
        try:
            told = inspect.get_annotations(kind).get(path[0])
        except NameError:
            continue
        if isinstance(told, str) and told.startswith(("matrix[", "vector[")):
            return told
    return None


def _without_self(text: str, name: str) -> tuple[list[_Read], str, ast.FunctionDef]:
    """What a text reads of `self`, the text without it, and its `def`."""
    tree = ast.parse(text)
    method = tree.body[-1]
    assert isinstance(method, ast.FunctionDef)
    lines = [line.encode() for line in text.split("\n")]

    def fault(why: str, at: ast.expr) -> SyntaxError:
        return SyntaxError(why, (name, at.lineno, at.col_offset + 1, lines[at.lineno - 1].decode()))

    own = method.args.posonlyargs + method.args.args
    _blank(lines, own[0], own[1] if len(own) > 1 else None, fault)
    reads: dict[str, _Read] = {}
    for chain, around in _chains(method):
        path = _path(chain)
        if not path or isinstance(chain.ctx, (ast.Store, ast.Del)):
            raise fault("a layer only reads `self`; expected an attribute of it, such as self.weight", chain)
        if isinstance(around[0], ast.Call) and around[0].func is chain:
            raise fault(f"a layer calls no methods of `self`; expected a tensor or a number at {ast.unparse(chain)}", chain)
        read = _Read(path, chain.lineno)
        before = reads.setdefault(read.word, read)
        read.is_matrix, read.picked_by = _use(chain, around)
        if before is read:
            pass
        elif before.path != path:
            raise fault(f"{before} and {read} would both be called {read.word}; expected other names", chain)
        elif (before.is_matrix, before.picked_by) != (read.is_matrix, read.picked_by):
            raise fault(f"{read} is used in another way in line {before.line}; expected one of matrix and vector", chain)
        _rename(lines, chain, read.word, fault)
    taken = {one.arg for one in own + method.args.kwonlyargs}
    for read in reads.values():
        if read.word in taken:
            raise fault(f"{read} would be called {read.word}, which is a parameter; expected another name", method.args.args[0])
    text = b"\n".join(lines).decode()
    return list(reads.values()), text, method


def _chains(method: ast.FunctionDef) -> Iterator[tuple[Any, tuple[ast.AST, ast.AST]]]:
    """Whatever begins with `self`, with what stands around it and around that."""

    def walk(node: ast.AST, around: tuple[ast.AST, ast.AST]) -> Iterator[tuple[Any, tuple[ast.AST, ast.AST]]]:
        inner = node
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id == "self" and isinstance(node, (ast.Attribute, ast.Name)):
            yield node, around
            return
        for child in ast.iter_child_nodes(node):
            yield from walk(child, (node, around[0]))

    for statement in method.body:
        yield from walk(statement, (method, method))


def _path(chain: ast.expr) -> tuple[str, ...]:
    names: list[str] = []
    while isinstance(chain, ast.Attribute):
        names.insert(0, chain.attr)
        chain = chain.value
    return tuple(names)


def _use(chain: ast.expr, around: tuple[ast.AST, ast.AST]) -> tuple[bool, str]:
    """Whether it is a matrix, and what picks one of several."""
    picked_by, used, outer = "", chain, around[0]
    if isinstance(outer, ast.Subscript) and outer.value is chain and not isinstance(outer.slice, ast.Slice):
        used, outer = outer, around[1]
        index = used.slice
        if isinstance(index, ast.Tuple):
            picked_by = "src_pair"
        elif isinstance(index, ast.Attribute):
            picked_by = _PICKS.get(index.attr, "")
    if isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.MatMult):
        return outer.right is used, picked_by
    if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Name) and outer.func.id in _TAKE_MATRICES:
        place, word = _TAKE_MATRICES[outer.func.id]
        is_there = place < len(outer.args) and outer.args[place] is used
        return is_there or any(given.arg == word and given.value is used for given in outer.keywords), picked_by
    return False, picked_by


def _blank(lines: list[bytes], own: ast.arg, graph: Optional[ast.arg], fault: Callable) -> None:
    """Takes `self,` out of a signature, and leaves what follows where it stands."""
    if graph is None:
        raise fault("a layer takes the graph: expected `g` behind `self`", own)
    if graph.lineno == own.lineno:
        line = lines[own.lineno - 1]
        lines[own.lineno - 1] = line[: own.col_offset] + b" " * (graph.col_offset - own.col_offset) + line[graph.col_offset :]
        return
    line, rest = lines[own.lineno - 1], lines[own.lineno - 1][own.col_offset :]
    lines[own.lineno - 1] = line[: own.col_offset] + rest.replace(b"self", b"    ", 1).replace(b",", b" ", 1)


def _rename(lines: list[bytes], chain: Any, word: str, fault: Callable) -> None:
    if chain.end_lineno != chain.lineno:
        raise fault("expected the names behind `self` in one line", chain)
    line = lines[chain.lineno - 1]
    width = chain.end_col_offset - chain.col_offset
    lines[chain.lineno - 1] = line[: chain.col_offset] + word.encode().ljust(width) + line[chain.end_col_offset :]


def _end_of_parameters(text: str, line: int) -> tuple[int, str]:
    """Where parameters can be added to the `def` in a line, and what parts them from those before."""
    depth, before = 0, ""
    ends = [0]
    for row in text.split("\n"):
        ends.append(ends[-1] + len(row) + 1)
    for token in tokenize.generate_tokens(io.StringIO(text[ends[line - 1] :]).readline):
        depth += (token.string in ("(", "[")) - (token.string in (")", "]"))
        if token.string == ")" and depth == 0:
            return ends[line - 1 + token.start[0] - 1] + token.start[1], " " if before == "," else ", "
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.string
    raise AssertionError("a `def` has brackets")
