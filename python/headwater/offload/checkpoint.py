"""Checkpoints whose boundaries can leave."""

from __future__ import annotations

from typing import Any, Callable

from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint as _of_torch


def checkpoint(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """`torch.utils.checkpoint.checkpoint` without reentry, whose boundary can leave however it is passed: torch shows hooks only
    tensors that are positional arguments, so all tensors in `args` and `kwargs` become some."""
    leaves, spec = tree_flatten((args, kwargs))
    at = [number for number, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    rest = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def run(*tensors: Tensor) -> Any:
        given = list(rest)
        for number, tensor in zip(at, tensors):
            given[number] = tensor
        args, kwargs = tree_unflatten(given, spec)
        return function(*args, **kwargs)

    return _of_torch(run, *(leaves[number] for number in at), use_reentrant=False)
