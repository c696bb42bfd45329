"""Tensors that torch's checkpoints keep and hooks do not see: arguments by keyword, those of a partial, and what a function has from outside.

Torch holds a frame for each checkpointed call, and in it the function that computes it again, whose cells have all of them.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Optional

import torch.utils.checkpoint
from torch import Tensor
from torch.utils._pytree import tree_leaves

from .report import shown

# Other versions of torch may have none, and then nothing is found.
CheckpointFrame = getattr(torch.utils.checkpoint, "_CheckpointFrame", type(None))
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
        """A frame that was there before the first forward pass."""
        self._before.add(found)

    def look(self, would_leave: Callable[[Tensor], bool], seen_bytes: int) -> Optional[str]:
        """A warning, if hooks miss more than a tenth of what could leave."""
        self.is_due, self._passes = False, self._passes - 1
        names: dict[str, None] = {}
        storages: dict[int, int] = {}
        for frame in gc.get_objects():
            if type(frame) is CheckpointFrame and frame not in self._before:
                for name, tensor in kept_by(frame):
                    if would_leave(tensor):
                        names[name] = None
                        storages[tensor.untyped_storage()._cdata] = tensor.nbytes
        missed = sum(storages.values())
        if 10 * missed <= missed + seen_bytes:
            return None
        self._passes = 0
        return (
            f"torch.utils.checkpoint keeps {shown(missed)} on the device that hooks do not see: {', '.join(names)}. Tensors leave that are "
            "positional arguments of the checkpointed function, or any arguments of headwater.checkpoint"
        )


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
