"""Tensors that autograd keeps and hooks do not see.

Of checkpoints, they are arguments by keyword, those of a partial, and what a function has from outside: torch holds a frame for each
checkpointed call, and in it the function that computes it again, whose cells have all of them. Of an `autograd.Function`, they are attributes
that its forward sets (`ctx.x = x`).
"""

from __future__ import annotations

import functools
import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch.utils.checkpoint
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.utils._pytree import tree_leaves

from .report import shown

# Other versions of torch may have none, and then nothing is found.
CheckpointFrame = getattr(torch.utils.checkpoint, "_CheckpointFrame", type(None))
# Classes of objects that keep tensors.
KEEPERS = (CheckpointFrame, BackwardCFunction)
# Forward passes at whose end it looks, and how deep in functions of functions.
_PASSES, _DEPTH = 2, 3


class Unseen:
    """Looks for them at the end of the first forward passes, and tells of them once."""

    def __init__(self) -> None:
        self._passes = _PASSES
        self._before: weakref.WeakSet[Any] = weakref.WeakSet()
        self.is_due = False

    def begin(self) -> None:
        """A forward pass begins."""
        self.is_due = self._passes > 0

    def pass_by(self, found: Any) -> None:
        """What keeps tensors, and was there before the first forward pass."""
        self._before.add(found)

    def look(self, would_leave: Callable[[Tensor], bool], seen_bytes: int) -> list[str]:
        """Warnings, if hooks miss more than a tenth of what could leave."""
        self.is_due, self._passes = False, self._passes - 1
        missed = {keeper: _Missed() for keeper in _WORDS}
        for found in living(*KEEPERS):
            keeper = CheckpointFrame if isinstance(found, CheckpointFrame) else BackwardCFunction
            if found not in self._before:
                for name, tensor in kept_by(found) if keeper is CheckpointFrame else set_on(found):
                    if would_leave(tensor):
                        missed[keeper].add(name, tensor)
        said = [_WORDS[keeper].format(own) for keeper, own in missed.items() if 10 * own.nbytes > own.nbytes + seen_bytes]
        if said:
            self._passes = 0
        return said


class _Missed:
    """Tensors by name, each storage counted once."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._storages: dict[int, int] = {}

    def add(self, name: str, tensor: Tensor) -> None:
        self._names[name] = None
        self._storages[tensor.untyped_storage()._cdata] = tensor.nbytes

    @property
    def nbytes(self) -> int:
        return sum(self._storages.values())

    def __str__(self) -> str:
        return f"{shown(self.nbytes)} on the device that hooks do not see: {', '.join(self._names)}"


_WORDS = {
    CheckpointFrame: "torch.utils.checkpoint keeps {}. Tensors leave that are positional arguments of the checkpointed function, or any "
    "arguments of headwater.checkpoint",
    BackwardCFunction: "functions of autograd keep {}. Tensors leave that forward gives to ctx.save_for_backward instead of setting them on ctx",
}


def living(*kinds: type) -> Iterator[Any]:
    """Objects of these classes and of those below them. An interpreter has millions of others, so none of them costs a step of Python."""
    below, classes = {}, list(kinds)
    while classes:
        found = classes.pop()
        below[id(found)] = found
        classes += type.__subclasses__(found)
    objects = gc.get_objects()
    return itertools.compress(objects, map(below.__contains__, map(id, map(type, objects))))


def set_on(node: Any) -> Iterator[tuple[str, Tensor]]:
    """Tensors that are attributes of a function's context, by name. Under torch.compile one list has those of all functions in it."""
    name = type(node).__name__.removesuffix("Backward")
    for attribute, own in list(vars(node).items()):
        is_compiled = attribute == "_tensors_no_vc_check"
        yield from _tensors({"attributes inside of torch.compile" if is_compiled else f"{name}.{attribute}": own})


def kept_by(frame: Any) -> Iterator[tuple[str, Tensor]]:
    """Tensors that a checkpointed call keeps for itself, by name."""
    cells = _cells(getattr(frame, "recompute_fn", None))
    # Before torch 2.13 a node of autograd has the arguments that are no tensors; the first is no argument, the second those by keyword.
    saver = getattr(getattr(frame, "input_saver", None), "grad_fn", None)
    others = _cells(getattr(saver, "get_args", None)).get("args") or [None, {}]
    yield from _tensors(cells.get("kwargs") or others[1])
    yield from _from_outside(cells.get("fn"), _DEPTH)


def _from_outside(function: Any, depth: int) -> Iterator[tuple[str, Tensor]]:
    """What a function brings along."""
    while isinstance(function, functools.partial):
        yield from _tensors({**{f"argument {at}": own for at, own in enumerate(function.args)}, **function.keywords})
        function = function.func
    for name, own in _cells(function).items():
        if isinstance(own, (FunctionType, functools.partial)):
            if depth > 0:
                yield from _from_outside(own, depth - 1)
        else:
            yield from _tensors({name: own})


def _cells(function: Any) -> dict[str, Any]:
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType):
        return {}
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            cells[name] = cell.cell_contents
        except ValueError:
            # Not assigned yet.
            continue
    return cells


def _tensors(named: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(named, dict):
        for name, own in named.items():
            yield from ((str(name), leaf) for leaf in tree_leaves(own) if isinstance(leaf, Tensor))
