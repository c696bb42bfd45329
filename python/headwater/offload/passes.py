"""A context around forward passes of a module, by torch's own hooks on it."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn


class ForwardPasses:
    """Enters a context when a module begins a forward pass that trains, and leaves it when that ends or fails. Without gradients, and in
    evaluation mode, it does nothing."""

    def __init__(self, module: nn.Module, context: AbstractContextManager) -> None:
        self._context, self._local = context, threading.local()
        # First of all, so that a hook of somebody else's that raises finds the context entered.
        begin = module.register_forward_pre_hook(self._begin, prepend=True)
        self._hooks = (begin, module.register_forward_hook(self._end, always_call=True))

    def remove(self) -> None:
        """Takes the hooks off the module."""
        for hook in self._hooks:
            hook.remove()

    def leave(self) -> None:
        """Leaves what this thread has entered and not left: torch calls no hooks after Ctrl-C."""
        while self._entered():
            self._end()

    def _entered(self) -> list[bool]:
        if not hasattr(self._local, "entered"):
            self._local.entered = []
        return self._local.entered

    def _begin(self, module: nn.Module, inputs: Any) -> None:
        trains = module.training and torch.is_grad_enabled()
        if trains:
            self._context.__enter__()
        self._entered().append(trains)

    def _end(self, *_: Any) -> None:
        # Global hooks that raise come before the first of ours.
        if self._entered() and self._entered().pop():
            self._context.__exit__(None, None, None)
