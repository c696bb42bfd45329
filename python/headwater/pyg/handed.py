"""What one stream of a GPU made, for another: which tensors that is, and from when on they are there.

Torch's allocator gives the memory of a tensor back to the stream that asked for it, as soon as Python drops the tensor. So
whoever works on another stream waits for an event of the first one, and has the allocator told of every tensor in what it took,
wherever that is: one that is missed may be overwritten while it is read.
"""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch_geometric.data.storage import BaseStorage

from ..gpu import Place

# Of these nothing is asked.
_NOTHING_IN = frozenset(
    {bool, int, float, complex, str, bytes, type(None), range, type, weakref.ref, types.ModuleType, types.BuiltinFunctionType}
    | {torch.Size, torch.dtype, torch.device, torch.layout, torch.Generator}
)
_LISTS = frozenset({list, tuple, set, frozenset, deque})
_NONE: Mapping[int, tuple[Any, int]] = types.MappingProxyType({})


class Handed:
    """A value that the current stream has made or will make, for whoever works on another."""

    __slots__ = ("_mark", "_place", "_value", "_without")

    def __init__(self, place: Place, value: Any, without: Mapping[int, tuple[Any, int]] = _NONE) -> None:
        self._place, self._value, self._mark, self._without = place, value, place.mark(), without

    def taken(self) -> Any:
        """The value, for what is queued on the current stream from now on. May be taken again, also by other streams."""
        self._place.meet(self._mark, tensors_in(self._value, self._without))
        return self._value


def tensors_in(value: Any, without: Mapping[int, tuple[Any, int]] = _NONE) -> list[Tensor]:
    """Every tensor with memory of its own that a value holds: in containers, in attributes, inside other tensors.

    `without` has containers by identity that were found to have none when they were so long: names of a million nodes are not
    gone through for every batch.
    """
    found: list[Tensor] = []
    # What was seen is held: of objects that are made here, others would take over the identity.
    seen: dict[int, Any] = {key: one for key, (one, length) in without.items() if len(one) == length} if without else {}
    left, strided = [value], torch.strided
    while left:
        one = left.pop()
        kind = type(one)
        if kind in _NOTHING_IN:
            continue
        # Most are this.
        if kind is Tensor and one.layout is strided and not one.requires_grad and not one.__dict__:
            found.append(one)
            continue
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if kind is dict:
            left.extend(one.values())
        elif kind in _LISTS:
            left.extend(one)
        elif isinstance(one, Tensor):
            left.extend(_in_tensor(one, found))
        else:
            left.extend(_way_into(kind)(one))
    return found


def _in_tensor(tensor: Tensor, found: list[Tensor]) -> Iterator[Any]:
    """What a tensor consists of, and what was hung on it. One with memory of its own is found itself."""
    if type(tensor) is not Tensor and is_traceable_wrapper_subclass(tensor):
        yield from (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    else:
        found.append(tensor)
    if tensor.requires_grad and tensor.is_leaf:
        yield tensor.grad
    yield tensor.__dict__


@functools.lru_cache(maxsize=1024)
def _way_into(kind: type) -> Callable[[Any], Iterable[Any]]:
    """How to come to what objects of a class hold. Classes and modules are not part of a batch."""
    if issubclass(kind, (type, types.ModuleType, weakref.ref, Generator)):
        return lambda one: ()
    if issubclass(kind, np.ndarray):
        return lambda one: one.flat if one.dtype == object else ()
    special = None if issubclass(kind, BaseStorage) else next((way for base, way in _WAYS.items() if issubclass(kind, base)), None)
    slots = _slots(kind)
    # PyG's stores are mappings over a dictionary that is an attribute.
    if special is None and not slots and kind.__dictoffset__ != 0:
        return lambda one: one.__dict__.values()

    def way(one: Any) -> Iterator[Any]:
        yield from () if special is None else special(one)
        yield getattr(one, "__dict__", None)
        for name in slots:
            yield getattr(one, name, None)

    return way


def _in_function(one: Any) -> Iterator[Any]:
    for cell in one.__closure__ or ():
        # A name that has no value yet.
        with contextlib.suppress(ValueError):
            yield cell.cell_contents
    yield from (one.__defaults__, one.__kwdefaults__)


_WAYS: dict[type, Callable[[Any], Iterable[Any]]] = {
    Mapping: lambda one: one.values(),
    **dict.fromkeys(_LISTS, iter),
    types.FunctionType: _in_function,
    types.MethodType: lambda one: (one.__self__, one.__func__),
    functools.partial: lambda one: (one.func, one.args, one.keywords),
}


def _slots(kind: type) -> tuple[str, ...]:
    """Attributes of a class that are in no dictionary."""
    names: list[str] = []
    for base in kind.__mro__:
        own = base.__dict__.get("__slots__", ())
        for name in [own] if isinstance(own, str) else own:
            is_private = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if is_private else name)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))
