"""One device, and the blocks that have left it."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, Optional

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from .._headwater import CopyMark, OffloadError, RawOffloader, StoredBlock, _host_bytes_available, gpu_memory
from ..gpu import Place
from .compiled import untraced
from .peak import StepPeaks

if TYPE_CHECKING:
    from .context import Saved
    from .report import Tally

# Copies that are under way at once without a plan: enough for the link to be busy, and little beside what is saved.
_WINDOW = 256 << 20
# Share of a GPU's memory after which it is asked how much is allocated, where that need not be known exactly.
_ROUGHLY = 64
# Micro-batches whose blocks are remembered until their backward pass is announced.
_MICROBATCHES = 4096

_CAPTURED = (
    "a CUDA graph captures a backward pass whose activations left before the capture began: capture forward and backward together, which keeps "
    "what is saved, or leave this forward pass out of the context"
)


def open_site(
    place: Optional[Place],
    *,
    host: Optional[int],
    folders: list[str],
    disk_bytes: Optional[int],
    allow_buffered: bool,
    allow_network: bool,
    slot: int,
    most: Optional[int],
    slack: Optional[float],
    ring: Optional[int],
    ordinal: Optional[int] = None,
) -> Site:
    """`slack` is that of a plan, or none where everything leaves. `ring` is the GPU memory that bytes pass through on their way to disks
    that the GPU reaches by itself. `ordinal` names a GPU that no tensor has come from yet."""
    if ring is not None:
        host = ring
        most = None if most is None else most - ring
    if host is None:
        host = (1 << 30) if folders else _host_bytes_available() // 2
    disks = None
    if folders:
        # Without a limit, files grow until a disk is full.
        limit = (1 << 62) if disk_bytes is None else disk_bytes
        disks = (folders, limit, disk_bytes is not None, allow_buffered, allow_network, ring is not None)
    total_bytes = place.total_bytes() if place is not None else None if ordinal is None else gpu_memory(ordinal)[1]
    planning = None if total_bytes is None or slack is None else (slack, total_bytes)
    if place is not None:
        ordinal = place.ordinal
    return Site(RawOffloader(ordinal, (host, slot, _WINDOW), disks, most, planning), place)


class Extent:
    """The bytes of its storage that a tensor reaches from the first to the last."""

    def __init__(self, tensor: Tensor) -> None:
        count = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride())) if tensor.numel() > 0 else 0
        size = tensor.element_size()
        self.start, self.nbytes = tensor.storage_offset() * size, count * size
        # Whether all of them are the tensor's.
        self.is_dense = count <= tensor.numel()
        # What tells it from others of its storage.
        self.key = (self.start, self.nbytes) if self.is_dense else (self.start, self.nbytes, tensor.shape, tensor.stride())

    def has(self, other: Extent) -> bool:
        return self.start <= other.start and other.start + other.nbytes <= self.start + self.nbytes


def owner_of(tensor: Tensor) -> Tensor:
    """The tensor that a view is of. All views of one count changes together."""
    return tensor if tensor._base is None else tensor._base


@untraced
class Block:
    """Bytes of a storage as they were when they were saved, wherever they are now."""

    on_gone: Optional[Callable[[Block], None]] = None
    # What holds the bytes; none before they were given away.
    stored: Optional[StoredBlock] = None
    # The storage of a block that stays.
    kept: Optional[torch.UntypedStorage] = None
    # Offset and strides of the dense copy that its bytes are of, if they are of one.
    copied: Optional[tuple[int, tuple[int, ...]]] = None
    # Set first when a block goes: until it has, weak references still find it.
    is_gone = False
    # Tensors over it that nobody has asked for yet: until all were, what was brought back stays.
    waiting = 0
    back: Optional[torch.UntypedStorage] = None
    last_back: Optional[StorageWeakRef] = None
    mark: Optional[CopyMark] = None

    def __init__(self, site: Site, owner: Tensor, extent: Extent) -> None:
        self.site, self.start, self.nbytes = site, extent.start, extent.nbytes
        self.origin = StorageWeakRef(owner.untyped_storage())
        self.owner, self.version = weakref.ref(owner), owner._version

    @property
    def number(self) -> int:
        return self.stored.number

    def is_of(self, owner: Tensor) -> bool:
        """Whether views of a tensor see what they saw when this was saved. Of what no operation has made, as inputs and buffers,
        nobody may have counted the changes."""
        return not self.is_gone and self.version == owner._version and owner.grad_fn is not None and self.owner() is owner

    def here(self) -> Optional[torch.UntypedStorage]:
        """What was brought back, as long as somebody has it."""
        if self.back is not None:
            return self.back
        return None if self.last_back is None else torch.UntypedStorage._new_with_weak_ptr(self.last_back.cdata)

    def __del__(self) -> None:
        self.is_gone = True
        if self.stored is not None:
            self.site.forget(self)
            self.kept = None
            if self.on_gone is not None:
                self.on_gone(self)


class Site:
    """Blocks of one device, and the storages that copies still read."""

    def __init__(self, raw: RawOffloader, place: Optional[Place]) -> None:
        self.raw, self.place = raw, place
        self._leaving: dict[int, torch.UntypedStorage] = {}
        # The streams that these are free behind, as far as their owners know.
        self._saved_on: dict[int, Any] = {}
        self._leaving_limit = 64
        # Of these, those whose copies are over; and those that nobody needs any more, whose copies are not.
        self._over: set[int] = set()
        self._unwanted: set[int] = set()
        self._known: weakref.WeakValueDictionary[tuple, Block] = weakref.WeakValueDictionary()
        self._blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
        # Bytes of blocks that stay, and those that were brought back before anybody needed them.
        self._kept_bytes = 0
        self._early: dict[int, int] = {}
        # Copies of these that nobody needs any more, and what they fill: they became useless while the stream was captured.
        self._landing: list[tuple[Optional[CopyMark], torch.UntypedStorage]] = []
        # What was allocated when that was asked for, and bytes that were saved since.
        self.total_bytes = 0 if place is None else place.total_bytes()
        self._allocated, self._peak, self._unasked = 0, 0, self.total_bytes
        self.peaks = StepPeaks()
        # Numbers of blocks that are not gone: with the last one, a step is over.
        self._live: set[int] = set()
        # Numbers of blocks by what `hint` said of them.
        self._microbatches: dict[Any, list[int]] = {}
        self._microbatch: Any = None

    def is_capturing(self) -> bool:
        return self.place is not None and self.place.is_capturing()

    def begin_step(self) -> None:
        """A forward pass begins, and with it a step, unless blocks of the last one are needed still."""
        while self._landing and not self.is_capturing():
            self._join(*self._landing.pop())
        if self.place is not None and not self._live:
            self.peaks.begin(*self.place.memory_use())

    def _end_step(self) -> None:
        if self.place is not None and self.peaks.has_begun and not sys.is_finalizing():
            self.peaks.end(*self.place.memory_use(), self.raw.steps())

    def known(self, owner: Tensor, extent: Extent) -> Optional[Block]:
        block = self._known.get((owner.untyped_storage()._cdata, *extent.key))
        return block if block is not None and block.is_of(owner) else None

    def save(self, tensor: Tensor, owner: Tensor, extent: Extent) -> Block:
        """A block that leaves or stays."""
        storage = owner.untyped_storage()
        block = Block(self, owner, extent)
        if self.place is not None and not self.peaks.has_begun:
            # Nobody has said that a step begins; this tensor is its first.
            allocated, mark = self.place.memory_use()
            self.peaks.begin(max(0, allocated - storage.nbytes()), mark)
        use = self._use()
        if extent.is_dense:
            start, nbytes = extent.start, extent.nbytes
        else:
            # Bytes in between belong to others, who may change them: they are not read.
            start, nbytes = 0, tensor.nbytes
            if not self.raw.would_stay(nbytes, use):
                tensor = tensor.contiguous()
                storage = tensor.untyped_storage()
                block.start, block.nbytes, block.copied = 0, nbytes, (tensor.storage_offset(), tensor.stride())
        self._unasked += nbytes
        stream = self._stream()
        block.stored, drained, followed = self.raw.save(storage.data_ptr() + start, nbytes, stream, use)
        if block.stored.leaves:
            self._hold(block.number, storage)
            self._saved_on[block.number] = stream
            if self.place is not None:
                # Whoever frees it does so behind this stream, which goes on behind the copies that it follows.
                self.place.use(tensor)
        else:
            block.kept = storage
            self._kept_bytes += block.nbytes
        self._free_behind(stream, followed)
        self._over.update(drained, followed)
        self._let_go(self._over.copy())
        self._known[owner.untyped_storage()._cdata, *extent.key] = block
        self._blocks[block.number] = block
        self._live.add(block.number)
        if self._microbatch is not None:
            self._microbatches.setdefault(self._microbatch, []).append(block.number)
        return block

    def _free_behind(self, stream: Any, followed: Iterable[int]) -> None:
        """This stream goes on behind copies. Whoever frees what they read may do so on another one, which does not."""
        for number in followed if self.place is not None else ():
            storage = self._leaving.get(number)
            if storage is not None and self._saved_on.get(number) != stream:
                self._note_stream(storage)

    def _note_stream(self, storage: torch.UntypedStorage) -> None:
        """Whoever frees a storage does so behind what the current stream has to do now."""
        self.place.use(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage))

    def _use(self) -> tuple[int, int, int]:
        """Bytes that are allocated, those of blocks, and the most that were allocated, as far as somebody looks at them."""
        if self.place is None:
            return 0, 0, 0
        how = self.raw.measuring()
        # To ask takes as long as many operations do.
        if how == 2 or (how == 0 and self.peaks.wants_more) or (how == 1 and self._unasked * _ROUGHLY >= self.total_bytes):
            self._allocated, self._peak = self.place.memory_use()
            self._unasked = 0
            self.peaks.look(self._allocated, self._peak, by_hook=how != 1)
        if how == 0:
            return 0, 0, 0
        leaving = sum(storage.nbytes() for storage in self._leaving.copy().values()) if how == 2 else 0
        return self._allocated + self._unasked, self._kept_bytes + leaving + self._early_bytes(), self._peak

    def _hold(self, number: int, storage: torch.UntypedStorage) -> None:
        self._leaving[number] = storage
        if len(self._leaving) >= self._leaving_limit:
            # Ctrl-C may come when blocks have been named and are not let go yet.
            unnamed = {*self.raw.unnamed(), number}
            self._let_go([own for own in self._leaving.copy() if own not in unnamed])
            self._over &= set(self._leaving)
            self._leaving_limit = max(64, 2 * len(self._leaving))

    def bring(self, saved: Saved, tally: Tally) -> Tensor:
        """A tensor that is needed now."""
        block = saved.block
        storage, start = block.kept or self._leaving.get(block.number), 0
        if block.kept is not None:
            pass
        elif storage is not None:
            tally.forward(block.nbytes)
        else:
            storage, start = self._brought(block, tally), block.start
        if not saved.was_asked:
            saved.was_asked = True
            block.waiting -= 1
        if block.waiting == 0:
            block.back = None
        self._look_ahead(block.number)
        # Others whose copies are over may be needed next: they stay. Those that nobody needs do not.
        self._over.update(self.raw.drained())
        self._let_go(self._over & self._unwanted)
        return saved.over(storage, start)

    def _brought(self, block: Block, tally: Tally) -> torch.UntypedStorage:
        if self.is_capturing():
            # What is replayed would be without the copy, and a capture takes no wait for it.
            raise OffloadError(_CAPTURED)
        storage = block.here()
        if storage is None:
            storage = self._load(block)
            tally.late(block.nbytes)
        elif self._early.pop(block.number, None) is not None:
            tally.early(block.nbytes)
        self._join(block.mark, storage)
        return storage

    def _join(self, mark: Optional[CopyMark], storage: torch.UntypedStorage) -> None:
        """The current stream goes on behind the copy that fills a storage, and whoever frees that does so behind the stream."""
        if mark is not None:
            self.raw.join(mark, self._stream())
        if self.place is not None:
            self._note_stream(storage)

    def _land(self, block: Block) -> None:
        """Nobody has asked for what was brought back early: its memory goes when it was filled."""
        if block.number in self._early and block.back is not None:
            if self.is_capturing():
                # A capture takes no wait for a copy that it has not seen begin.
                self._landing.append((block.mark, block.back))
            else:
                self._join(block.mark, block.back)

    def _load(self, block: Block) -> torch.UntypedStorage:
        if self.place is None:
            made = torch.empty(block.nbytes, dtype=torch.uint8)
        else:
            made = self.place.empty((block.nbytes,), torch.uint8)
        block.mark = self.raw.load(block.number, made.data_ptr(), block.nbytes, self._stream())
        block.back = made.untyped_storage()
        block.last_back = StorageWeakRef(block.back)
        return block.back

    def _look_ahead(self, number: int) -> None:
        if self.is_capturing():
            # Nothing can be timed or copied.
            return
        try:
            self._bring_early(self.raw.need(number, self._stream(), self._use(), list(self._leaving), self._early_bytes()))
        except (OffloadError, MemoryError, torch.OutOfMemoryError):
            # Whoever needs a block is told what is wrong with it.
            return

    def _early_bytes(self) -> int:
        return sum(self._early.copy().values())

    def _bring_early(self, numbers: Iterable[int]) -> None:
        for number in () if self.is_capturing() else numbers:
            block = self._blocks.get(number)
            if block is None or block.is_gone or number in self._leaving or block.here() is not None or self.place is None:
                continue
            self._load(block)
            self._early[number] = block.nbytes

    def hint(self, is_backward: bool, microbatch: Any) -> None:
        """What comes next, and for which micro-batch."""
        if not is_backward:
            self._microbatch = microbatch
            if microbatch is not None:
                self._microbatches.pop(microbatch, None)
                while len(self._microbatches) >= _MICROBATCHES:
                    del self._microbatches[next(iter(self._microbatches))]
            return
        self._microbatch = None
        last_first = self._microbatches.pop(microbatch, [])[::-1]
        self._bring_early(self.raw.expect(last_first, list(self._leaving), self._early_bytes()))

    def forget(self, block: Block) -> None:
        number = block.number
        if block.kept is not None:
            self._kept_bytes -= block.nbytes
        self._live.discard(number)
        try:
            self._land(block)
            block.stored = None
            self._over.update(self.raw.drained())
            if not self._live:
                self._end_step()
        except (OffloadError, RuntimeError):
            # A device that is lost fills and reads nothing, and a forked process has no copies of its own.
            pass
        self._early.pop(number, None)
        if number in self._leaving:
            self._unwanted.add(number)
            self._let_go(self._over & self._unwanted)

    def _let_go(self, numbers: Iterable[int]) -> None:
        """Storages that no copy reads. One that is not held yet is let go with the next."""
        for number in numbers:
            if self._leaving.pop(number, None) is not None:
                self._saved_on.pop(number, None)
                self._over.discard(number)
                self._unwanted.discard(number)

    def _stream(self) -> Any:
        return 0 if self.place is None else self.place.stream()
