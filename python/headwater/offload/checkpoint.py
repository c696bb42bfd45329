"""Checkpoints whose boundaries can leave."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torch.utils.checkpoint import checkpoint as _of_torch

# What torch's function takes for itself.
_OPTIONS = ("preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop", "respect_saved_tensors_hooks")


def checkpoint(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """`torch.utils.checkpoint.checkpoint` without reentry, whose boundary can leave however it is passed: torch shows hooks only
    tensors that are positional arguments, so all tensors in `args` and `kwargs` become some. A list or dictionary that has tensors in
    it reaches the function as another one with the same content. Torch's own options are passed on."""
    if kwargs.pop("use_reentrant", False):
        raise ValueError("use_reentrant is True; torch.utils.checkpoint.checkpoint does that")
    options = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
    while isinstance(function, functools.partial):
        function, args, kwargs = function.func, (*function.args, *args), {**function.keywords, **kwargs}
    leaves, spec = tree_flatten((args, kwargs), is_leaf=_has_no_tensors)
    at = [number for number, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    rest = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def run(*tensors: Tensor) -> Any:
        given = list(rest)
        for number, tensor in zip(at, tensors):
            given[number] = tensor
        args, kwargs = tree_unflatten(given, spec)
        return function(*args, **kwargs)

    return _of_torch(run, *(leaves[number] for number in at), use_reentrant=False, **options)


def _has_no_tensors(node: Any) -> bool:
    return not any(isinstance(leaf, Tensor) for leaf in tree_leaves(node))


class Boundaries:
    """Modules of `transformers` that are checkpointed. While a context is open, `headwater.checkpoint` stands where they look for the
    function that does it, `_gradient_checkpointing_func`: so they see tensors that are passed by keyword."""

    def __init__(self) -> None:
        self._modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()

    def add(self, module: torch.nn.Module) -> None:
        if hasattr(module, "_gradient_checkpointing_func"):
            self._modules.add(module)

    @contextmanager
    def seen(self) -> Iterator[None]:
        before = []
        try:
            for module in list(self._modules):
                theirs = vars(module).get("_gradient_checkpointing_func")
                options = dict(getattr(theirs, "keywords", {}))
                is_torchs = isinstance(theirs, functools.partial) and theirs.func is _of_torch and not theirs.args
                # One with reentry shows what it saves, and one of somebody else's does what its owner wants.
                if is_torchs and not options.get("use_reentrant", True):
                    before.append((module, theirs))
                    module._gradient_checkpointing_func = functools.partial(checkpoint, **options)
            yield
        finally:
            for module, theirs in before:
                module._gradient_checkpointing_func = theirs
