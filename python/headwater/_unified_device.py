"""The papers' spelling: `"unified"` as a device of torch's factories and of `Tensor.to`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils._device import _device_constructors

from ._unified import UnifiedTensor, unified

# Hints, as PyTorch-Direct spells them and as we do.
_HINTS = {
    "propagatedToCUDA": "propagated_to_cuda",
    "propagated_to_cuda": "propagated_to_cuda",
    "advise": "advise",
    "adviseDevice": "advise_device",
    "advise_device": "advise_device",
}
# Made of other tensors, or of nothing that has elements one after the other.
_NOT_DENSE = ("sparse", "nested", "quantized")
_replaced: dict[tuple[Any, str], Any] = {}


@dataclass(frozen=True)
class device:  # noqa: N801, as torch has it
    """What `torch.device` is for other memories: goes wherever `device="unified"` does, with its hints.

    >>> there = headwater.device("unified", propagated_to_cuda=False)
    >>> headwater.enable_unified_device()
    >>> torch.ones(3, device=there).affinity, torch.zeros(2).to(there).affinity
    ('host', 'host')
    >>> headwater.disable_unified_device()
    """

    type: str = "unified"
    propagated_to_cuda: bool = True
    advise: Optional[str] = None
    advise_device: Any = "cuda"

    def __post_init__(self) -> None:
        if self.type != "unified":
            raise ValueError(f"type is {self.type!r}; it should be 'unified', and torch.device names all others")

    @property
    def affinity(self) -> str:
        return "gpu" if self.propagated_to_cuda else "host"


def enable_unified_device() -> None:
    """Lets `t.to("unified")`, `torch.ones(128, device="unified")` and `t.is_unified` mean what PyTorch-Direct means by them.

    >>> headwater.enable_unified_device()
    >>> torch.ones(3, device="unified").is_unified, torch.ones(3).is_unified
    (True, False)
    >>> headwater.disable_unified_device()
    """
    if _replaced:
        return
    _replace(torch.Tensor, "to", _to(torch.Tensor.to))
    for name in _factories():
        _replace(torch, name, _factory(getattr(torch, name)))
    for name in ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros"):
        _replace(torch.Tensor, name, _factory(getattr(torch.Tensor, name)))
    _replace(torch.Tensor, "is_unified", property(lambda self: isinstance(self, UnifiedTensor)))
    for name in ("set_affinity", "set_propagatedToCUDA", "mem_advise", "memAdvise"):
        _replace(torch.Tensor, name, _refusal(name))


def disable_unified_device() -> None:
    """Takes that back. Tensors that were made stay unified."""
    for (owner, name), before in _replaced.items():
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
    _replaced.clear()


def _replace(owner: Any, name: str, value: Any) -> None:
    _replaced[owner, name] = vars(owner).get(name)
    setattr(owner, name, value)


def _factories() -> list[str]:
    """Functions of torch's that take a device and make a tensor with elements one after the other."""
    made = {getattr(own, "__name__", "") for own in _device_constructors()}
    made |= {name for name in dir(torch) if name.endswith("_like") and not name.startswith("_")}
    return sorted(name for name in made if hasattr(torch, name) and not any(part in name for part in _NOT_DENSE))


def _is_unified(wished: Any) -> bool:
    return isinstance(wished, device) or (isinstance(wished, str) and wished == "unified")


def _wished(args: tuple, kwargs: dict) -> tuple[Optional[device], tuple, dict]:
    """The unified device among arguments, with its hints, and all other arguments."""
    found = [value for value in (*args, kwargs.get("device")) if _is_unified(value)]
    if not found:
        return None, args, kwargs
    args = tuple(value for value in args if not _is_unified(value))
    hints = {_HINTS[name]: value for name, value in kwargs.items() if name in _HINTS}
    kwargs = {name: value for name, value in kwargs.items() if name not in _HINTS and name != "device"}
    if hints and isinstance(found[0], device):
        raise TypeError(f"{', '.join(hints)} stands beside a headwater.device, which says it already; say it there")
    return (device(**hints) if isinstance(found[0], str) else found[0]), args, kwargs


def _placed(value: Tensor, wished: device) -> Tensor:
    hints = {"advise": wished.advise, "advise_device": wished.advise_device}
    return unified(value, affinity=wished.affinity, **hints)


def _to(before: Callable) -> Callable:
    @wraps(before)
    def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        wished, args, kwargs = _wished(args, kwargs)
        if wished is None:
            return before(self, *args, **kwargs)
        is_copy = kwargs.pop("copy", False)
        kwargs.pop("non_blocking", None)  # It is there when this returns.
        source = before(self, *args, **kwargs) if args or kwargs else self
        if isinstance(source, UnifiedTensor) and source.affinity == wished.affinity and not is_copy and not wished.advise:
            return source
        if source.requires_grad and torch.is_grad_enabled() and wished.advise is None:
            return UnifiedTensor._from(source, wished.affinity)
        return _placed(source, wished)

    return to


def _factory(before: Callable) -> Callable:
    @wraps(before)
    def made(*args: Any, **kwargs: Any) -> Tensor:
        wished, args, kwargs = _wished(args, kwargs)
        if wished is None:
            return before(*args, **kwargs)
        needs_grad = kwargs.pop("requires_grad", False)
        if kwargs.pop("pin_memory", False):
            raise ValueError("pin_memory is True; unified memory is pinned when a GPU first reads it")
        return _placed(before(*args, **kwargs), wished).requires_grad_(needs_grad)

    return made


def _refusal(name: str) -> Callable:
    def refuse(self: Tensor, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"{name} is for unified tensors; this one lies with {self.device}")

    return refuse
