"""torch.compile: what it must not look into, and what it saves all at once."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TypeVar

import torch

from .report import shown

_Class = TypeVar("_Class", bound=type)

# Forward passes that are looked at, and the share of what a pass saves that one compiled call may save.
_PASSES, _MOST = 2, 0.5


def untraced(owner: _Class) -> _Class:
    """A class whose methods torch.compile runs as they are: they look at addresses, streams and what is alive, of which a trace knows nothing.
    A compiled function that enters a context breaks there, and what it calls inside is compiled by itself."""
    for own in vars(owner).values():
        if isinstance(own, FunctionType):
            # What a trace reads, and what is read where a frame begins.
            own._torchdynamo_disable = True  # type: ignore[attr-defined]
            _skip(own)
    return owner


def _skip(function: FunctionType) -> None:
    """torch.compile begins no trace in a function nor, as far as this torch can, in what it calls."""
    try:
        # Without torch._dynamo, which takes seconds to import.
        from torch._C._dynamo import eval_frame

        if hasattr(eval_frame, "skip_code"):
            eval_frame.skip_code(function.__code__)
        else:
            skip = eval_frame._FrameAction.SKIP
            eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, skip))
    except (ImportError, AttributeError, TypeError):
        # Other versions are asked by name alone.
        return


class CompiledSaves:
    """Notices what compiled functions do not show to hooks, or not in time.

    One that is most of a model hands all that it saves over when it ends, and takes all of it back when its backward pass begins: meanwhile
    nothing can leave, so that the peak stays where it was. One that has the backward pass in it saves nothing that hooks see."""

    def __init__(self) -> None:
        self._passes = _PASSES
        self._bytes, self._of_one, self._most = 0, 0, 0
        self._node, self._is_compiled, self._is_open = -1, False, False

    def begin(self) -> None:
        """A forward pass begins."""
        self._bytes = self._of_one = self._most = 0
        self._node, self._is_open = -1, True

    def see(self, nbytes: int) -> None:
        """Hooks see a tensor, and so many bytes that could leave."""
        if self._passes == 0:
            return
        # Nodes of autograd are numbered; what one saves is saved between two numbers.
        node = torch.autograd._get_sequence_nr()
        if node != self._node:
            self._node, self._of_one, self._is_compiled = node, 0, _is_compiled()
        self._bytes += nbytes
        if self._is_compiled:
            self._of_one += nbytes
            self._most = max(self._most, self._of_one)

    def look(self) -> list[str]:
        """At the end of a forward pass: a warning, if hooks were on and saw most of it at once, or nothing."""
        if not self._is_open:
            return []
        self._is_open = False
        is_blind = self._node == -1 and torch.is_grad_enabled() and _may_hold_backward()
        if self._passes == 0 or not (is_blind or self._bytes > 0):
            return []
        self._passes -= 1
        if not is_blind and self._most <= _MOST * self._bytes:
            return []
        self._passes = 0
        return [_BLIND if is_blind else _AT_ONCE.format(shown(self._most), shown(self._bytes))]


_AT_ONCE = (
    "one function of torch.compile saves {} of the {} of a forward pass, all at once when it ends, so that nothing leaves before and the peak "
    "hardly falls. Compile by regions, `for layer in model.layers: layer.compile()`, and not the whole model"
)
_BLIND = (
    "no tensor was saved for backward where hooks see it: a function of torch.compile that has the backward pass in it keeps what that needs to "
    "itself. Call `backward` or `torch.autograd.grad` outside of compiled functions, or set torch._dynamo.config.trace_autograd_ops to False"
)


def _is_compiled() -> bool:
    """Whether a hook was called for what a compiled function saves: torch calls it where that function's runtime stands."""
    try:
        caller = sys._getframe(3)
    except ValueError:
        # A thread of autograd's, in which no function of Python's calls.
        return False
    return caller.f_globals.get("__name__", "").startswith("torch._functorch")


def _may_hold_backward() -> bool:
    """Whether torch.compile has made a graph in this process, and may put backward passes into them."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    may = getattr(sys.modules.get("torch._dynamo.config"), "trace_autograd_ops", False)
    return bool(may) and counters.get("stats", {}).get("unique_graphs", 0) > 0
