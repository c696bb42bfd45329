"""The memory of unified tensors: how GPUs see it, and which of their work still reads it.

One rule holds for all of it. What is known of memory belongs to a storage of torch's, and is true as long as the storage has
the same address and length. Torch changes both under everybody's feet: `share_memory_()` and sending a tensor to another process
put the elements elsewhere, `resize_` may. So it is asked at every use.

The CPU writes to memory only behind the work of GPUs that was queued to read it: behind a mark for each stream that an operator
ran on, and behind all that a GPU has to do where somebody was given a tensor of it, who may read it at any time.
"""

from __future__ import annotations

import mmap
from typing import Any, Optional
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from . import gpu as _gpu
from ._headwater import Mapped, PinnedMemory

# Registering takes whole pages. Arrays up to this lie in the heap and may share theirs with other data, which the driver
# would then no longer copy; beyond it every array has pages of its own.
IN_THE_HEAP = 32 << 20
# Smaller results lie in memory that torch has pinned already.
_SMALL = 1 << 20

_known: WeakValueDictionary[int, Memory] = WeakValueDictionary()


class Memory:
    """What is known of a storage."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage, self.start, self.nbytes = storage, storage.data_ptr(), storage.nbytes()
        self._seen: dict[int, Tensor] = {}
        self._marks: dict[tuple[int, int], tuple[_gpu.Place, Any]] = {}
        self._lent: dict[int, _gpu.Place] = {}

    @staticmethod
    def of(tensor: Tensor) -> Memory:
        """Of the storage that a plain tensor lies in now."""
        storage = tensor.untyped_storage()
        found = _known.get(storage._cdata)
        if found is None or (found.start, found.nbytes) != (storage.data_ptr(), storage.nbytes()):
            found = _known[storage._cdata] = Memory(storage)
        return found

    @staticmethod
    def known(tensor: Tensor) -> Optional[Memory]:
        """As `of`, where somebody asked before."""
        is_there = not tensor.is_cuda and tensor.layout is torch.strided and tensor.untyped_storage()._cdata in _known
        return Memory.of(tensor) if is_there else None

    def why_unseen(self) -> Optional[str]:
        """Why a GPU cannot read it where it lies, or nothing where it can."""
        if self.owner() or self.nbytes > IN_THE_HEAP or self._whole().is_shared() or self.is_pinned():
            return None
        return f"its {self.nbytes} bytes lie in the heap, where pages hold other data too"

    def owner(self) -> Any:
        """Whoever made the memory for GPUs, where somebody did."""
        owner = getattr(self.storage, "_headwater_owner", None)
        return owner if owner is not None and owner.address == self.start else None

    def is_pinned(self) -> bool:
        """Whether the driver knows it, through us or through others."""
        return self._whole().is_pinned()

    def seen_by(self, place: _gpu.Place) -> Tensor:
        """All of its bytes as a tensor of a GPU."""
        if place.ordinal not in self._seen:
            self._seen[place.ordinal] = torch.from_dlpack(self._mapped(place))
        return self._seen[place.ordinal]

    def _mapped(self, place: _gpu.Place) -> Mapped:
        owner = self.owner()
        if hasattr(owner, "mapped") and owner.device == place.ordinal:
            return owner.mapped()
        return Mapped(self._whole(), place.ordinal)

    def read_by(self, place: _gpu.Place, is_lent: bool) -> None:
        """Queued work of the current stream reads it; where it `is_lent`, so may work that is queued later."""
        if is_lent or place.is_capturing():
            self._lent[place.ordinal] = place
        else:
            self._marks[place.ordinal, place.stream()] = (place, place.mark())

    def wait(self) -> None:
        """Returns when the CPU may write."""
        marks, self._marks = self._marks, {}
        for place in self._lent.values():
            place.drain()
        for place, mark in marks.values():
            place.wait(mark)

    def _whole(self) -> Tensor:
        return torch.empty(0, dtype=torch.uint8).set_(self.storage)


class _Pages:
    """Pages of their own, or memory that torch has pinned."""

    def __init__(self, address: int) -> None:
        self.address = address


def own(host: Tensor, owner: Any = None) -> Tensor:
    """Notes that memory was made for GPUs, and who made it."""
    storage = host.untyped_storage()
    storage._headwater_owner = _Pages(storage.data_ptr()) if owner is None else owner
    return host


def copied(value: Tensor) -> Tensor:
    """A copy in memory that a GPU can read. Torch rounds large pinned memory up to a power of two, so what is large gets pages
    of its own, which are registered when a GPU first reads them."""
    if _gpu.current() is None or value.nbytes == 0:
        return torch.empty(value.shape, dtype=value.dtype).copy_(value)
    if value.nbytes <= _SMALL and torch.cuda.is_available():
        return own(torch.empty(value.shape, dtype=value.dtype, pin_memory=True)).copy_(value)
    pages = own(torch.frombuffer(mmap.mmap(-1, value.nbytes), dtype=torch.uint8))
    return pages.view(value.dtype).view(value.shape).copy_(value)


def result(value: Tensor) -> Tensor:
    """As `copied`, in memory of a result that is gone where there is some: pinning costs more than filling."""
    place = _gpu.current()
    if place is None or value.nbytes == 0 or (value.nbytes <= _SMALL and torch.cuda.is_available()):
        return copied(value)
    memory = PinnedMemory(value.nbytes, place.ordinal)
    pages = own(torch.from_dlpack(memory), memory)
    return pages.view(value.dtype).view(value.shape).copy_(value)
