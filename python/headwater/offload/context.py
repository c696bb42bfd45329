"""The context: which saved tensors leave, and what autograd holds in their place."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Iterable
from os import PathLike
from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from .. import gpu as _gpu
from .._headwater import OffloadError
from .checkpoint import Boundaries
from .compiled import CompiledSaves, untraced
from .report import Report, Tally
from .trial import Trial
from .site import Block, Extent, Site, open_site, owner_of
from .unseen import KEEPERS, Unseen, living

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "B": 1}
# Entries of a context in which nothing leaves, for one in which it is looked whether something should.
_LOOK_AGAIN = 256
# GPU memory that bytes pass through where disks are reached from there.
_RING = 512 << 20
# Shards that are looked at in all, whether they are gathered by now.
_MOST_LOOKS = 1 << 20
_EMPTY: dict[torch.dtype, Tensor] = {}

Size = Union[int, str]
Folder = Union[str, "PathLike[str]"]


def in_bytes(name: str, size: Size) -> int:
    """A number of bytes, as 4096 or "16GB"."""
    count = -1.0
    if isinstance(size, str):
        text = size.strip().upper()
        unit = next((unit for unit in sorted(_UNITS, key=len, reverse=True) if text.endswith(unit)), "")
        try:
            count = float(text.removesuffix(unit)) * _UNITS.get(unit, 1)
        except ValueError:
            pass
    elif hasattr(size, "__index__") and not isinstance(size, bool):
        count = size.__index__()
    if not 0 <= count < 1 << 60:
        raise ValueError(f"{name} is {size!r}; it should be a number of bytes, or text such as '16GB' or '512MiB'")
    return int(count)


def _ring_bytes(gds: Union[bool, Size]) -> Optional[int]:
    """GPU memory that bytes pass through on their way to disks; none where they pass through the host's."""
    if gds is False:
        return None
    return _RING if gds is True or gds == "auto" else in_bytes("gds", gds)


def _folders(disk: Union[Folder, Iterable[Folder], None]) -> list[str]:
    if disk is None:
        return []
    folders = [disk] if isinstance(disk, (str, bytes, PathLike)) or not isinstance(disk, Iterable) else list(disk)
    for folder in folders:
        if not isinstance(folder, (str, PathLike)) or not str(folder):
            raise ValueError(f"disk is {disk!r}; it should be a folder, or several")
    named = [str(folder) for folder in folders]
    if not named:
        raise ValueError("disk names no folder")
    if len({os.path.realpath(folder) for folder in named}) < len(named):
        raise ValueError(f"disk is {disk!r}; it should name every folder once")
    return named


@untraced
class Offload:
    """A context around forward passes. What they save leaves, and comes back by itself, inside of the context or outside.

    `host` is the most host memory that activations lie in, and pass through on their way to `disk`: a folder or several, on disks of
    their own, which files without a name lie in. Above `gpu` bytes of memory the GPU waits for copies that are under way, so that
    what they read can be used again. All are optional; without a disk, half of the host memory that is free may be used.

    By its `policy` a GPU's activations leave by a plan: the second step is measured, and of the next ones so much leaves as makes them
    longer by no more than `slack`, a share of their time; or, with `gpu`, as little as fits in so many bytes. Where that would save less
    than a fifth of the memory, all is kept, and `report()` says why. Before there is a plan, activations leave when three quarters of the
    GPU's memory are in use. With "all" everything leaves that is large enough, however long that takes.

    `endurance` is what the disks together can be written before they are worn out, such as "600TB": `report()` says how long that lasts.

    With `gds=True` the GPU writes `disk` and reads it by itself (GPUDirect Storage), and no byte passes through host memory: through 512 MiB
    of the GPU's own instead, or as many as `gds` says. Where the machine cannot do that, this is an error that says why; with "auto", bytes
    go through `host` then, and `report()` says why.

    `device="cpu"` is for models on the CPU, whose activations go to disk.
    """

    def __init__(
        self,
        *,
        host: Optional[Size] = None,
        disk: Union[Folder, Iterable[Folder], None] = None,
        gpu: Optional[Size] = None,
        device: Union[str, torch.device] = "cuda",
        smallest: Size = "1MiB",
        disk_bytes: Optional[Size] = None,
        allow_buffered: bool = False,
        allow_network: bool = False,
        slot: Size = "4MiB",
        policy: Optional[str] = None,
        slack: float = 0.02,
        endurance: Optional[Size] = None,
        gds: Union[bool, Size] = False,
    ) -> None:
        kind = str(device).partition(":")[0]
        if policy not in (None, "plan", "all"):
            raise ValueError(f"policy is {policy!r}; it should be 'plan' or 'all'")
        if policy == "plan" and kind == "cpu":
            raise ValueError("policy is 'plan', but device is 'cpu': there is no other memory that a plan could leave activations in")
        policy = policy or ("all" if kind == "cpu" else "plan")
        if isinstance(slack, bool) or not isinstance(slack, (int, float)) or not 0 <= slack <= 100:
            raise ValueError(f"slack is {slack!r}; it should be a share of a step's time, from 0 to 100")
        if policy == "all" and slack != 0.02:
            raise ValueError("slack is given, but policy is 'all': everything leaves, however long that takes")
        if kind not in ("cuda", "cpu"):
            raise ValueError(f"device is {str(device)!r}; it should be 'cuda' or 'cpu'")
        if kind == "cpu" and disk is None:
            raise ValueError("disk is not given, and activations of a model on the CPU lie in host memory already")
        if kind == "cpu" and gpu is not None:
            raise ValueError("gpu is given, but device is 'cpu'")
        if disk is None and (disk_bytes is not None or endurance is not None or allow_buffered or allow_network):
            raise ValueError("disk_bytes, endurance, allow_buffered or allow_network is given, but disk is not")
        folders, slot_bytes = _folders(disk), in_bytes("slot", slot)
        if not 4096 <= slot_bytes <= 1 << 30 or slot_bytes % 4096 != 0:
            raise ValueError(f"slot is {slot!r}; it should be a multiple of 4096 bytes, and at most 1 GiB")
        least = slot_bytes * (2 if folders else 1)
        if host is not None and in_bytes("host", host) < least:
            raise ValueError(f"host is {host!r}; it should be {least} bytes at least: a slot, or two on the way to disk")
        if disk_bytes is not None and in_bytes("disk_bytes", disk_bytes) < slot_bytes * len(folders):
            raise ValueError(f"disk_bytes is {disk_bytes!r}; it should be a slot for each folder at least")
        for name, flag in (("allow_buffered", allow_buffered), ("allow_network", allow_network)):
            if not isinstance(flag, bool):
                raise ValueError(f"{name} is {flag!r}; it should be True or False")
        ring = _ring_bytes(gds)
        for name, given in (("host", host is not None), ("allow_buffered", allow_buffered)):
            if given and ring is not None and gds != "auto":
                raise ValueError(f"gds is {gds!r}, so that no byte passes through host memory, but {name} is given")
        if ring is not None and (kind == "cpu" or not folders):
            raise ValueError(f"gds is {gds!r}, but " + ("device is 'cpu'" if kind == "cpu" else "disk is not given"))
        why_not = None
        if ring is not None and ring < 2 * slot_bytes:
            why_not = f"gds is {gds!r}; it should be {2 * slot_bytes} bytes at least, two slots"
        elif ring is not None and gpu is not None and in_bytes("gpu", gpu) <= ring:
            why_not = f"gpu is {gpu!r}; it should be more than the {ring} bytes of gds"
        if why_not is not None and gds != "auto":
            raise ValueError(why_not)
        self._settings = {
            "host": None if host is None else in_bytes("host", host),
            "folders": folders,
            "disk_bytes": None if disk_bytes is None else in_bytes("disk_bytes", disk_bytes),
            "allow_buffered": allow_buffered,
            "allow_network": allow_network,
            "slot": slot_bytes,
            "most": None if gpu is None else in_bytes("gpu", gpu),
            "slack": slack if policy == "plan" else None,
            "ring": None,
        }
        if endurance is not None and in_bytes("endurance", endurance) == 0:
            raise ValueError(f"endurance is {endurance!r}; it should be what disks can be written before they are worn out, such as '600TB'")
        self._smallest = in_bytes("smallest", smallest)
        self._is_on_cpu = kind == "cpu"
        self._sites: dict[torch.device, Site] = {}
        self._tally = Tally(None if endurance is None else in_bytes("endurance", endurance))
        # Storages that live longer than a step: parameters, buffers, and what else was still there when a block was gone.
        self._lasting: dict[int, StorageWeakRef] = {}
        self._lasting_limit = 256
        # Modules whose parameters are shards that were not seen whole yet.
        self._sharded: list[weakref.ref[torch.nn.Module]] = []
        self._looked = 0
        self._has_looked = False
        self._hint: Optional[tuple[bool, Any]] = None
        self._boundaries = Boundaries()
        self._unseen = Unseen()
        self._compiled = CompiledSaves()
        self._trial = Trial(slack)
        self._entered = threading.local()
        # What cannot be used is told of now, and not in the middle of a step.
        # The settings for a machine whose GPU does not reach disks by itself, and what was opened for one that does.
        self._indirect = self._settings if gds == "auto" else None
        self._opened: Optional[tuple[int, Site]] = None
        if ring is not None and why_not is None:
            self._settings = {**self._settings, "ring": ring, "host": None}
            ordinal = torch.device(device).index
            if ordinal is None:
                ordinal = torch.cuda.current_device() if torch.cuda.is_available() else 0
            site = self._open(None, ordinal)
            self._opened = None if self._settings["ring"] is None else (ordinal, site)
        else:
            if why_not is not None:
                self._tally.note_way(False, why_not)
            site = open_site(None, **self._settings)
        if self._is_on_cpu:
            self._sites[torch.device("cpu")] = site

    def _open(self, place: Optional[_gpu.Place], ordinal: Optional[int] = None) -> Site:
        """A device's blocks; through host memory where the GPU does not reach the disks and need not."""
        if self._settings["ring"] is None:
            return open_site(place, **self._settings)
        try:
            site = open_site(place, ordinal=ordinal, **self._settings)
        except (ValueError, RuntimeError, MemoryError) as why:
            if self._indirect is None:
                raise
            self._tally.note_way(False, str(why))
            self._settings = self._indirect
            return open_site(place, **self._settings)
        self._tally.note_way(True)
        return site

    def __enter__(self) -> Offload:
        if not self._has_looked:
            self.look_for_modules()
        self._tally.moment()
        with contextlib.ExitStack() as entered:
            if not self._is_idle():
                for site in list(self._sites.values()):
                    site.begin_step()
                self._unseen.begin()
                self._compiled.begin()
                entered.enter_context(self._boundaries.seen())
                entered.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack))
            self._stack().append(entered.pop_all())
        return self

    def _is_idle(self) -> bool:
        """Whether hooks would do nothing, or cost more than they may. Now and then they look whether that is still right."""
        sites = list(self._sites.values())
        if not sites or self._settings["slack"] is None:
            return False
        is_bare = all(site.raw.is_idle() for site in sites)
        if not is_bare and len(sites) == 1 and sites[0].place is not None:
            has_plan, may_keep = sites[0].raw.may_keep()
            is_bare = has_plan and self._trial.next_is_bare(sites[0].place, may_keep)
            sites[0].raw.keep(self._trial.keeps)
        for site in sites if len(sites) > 1 else ():
            site.raw.keep(False)
        if not is_bare:
            return False
        self._tally.skip(self._trial.is_too_slow)
        return self._tally.skipped % _LOOK_AGAIN != 0

    def __exit__(self, *why: Any) -> None:
        if not self._stack():
            raise RuntimeError("this thread has not entered the context that it leaves")
        with self._stack().pop():
            if why[:1] == (None,):
                self._look_for_compiled()
                if self._unseen.is_due:
                    self._look_for_unseen()

    def __reduce__(self) -> Any:
        raise TypeError("an Offload belongs to its process and cannot be copied: make another with the same settings")

    def hint(self, *, next: str, microbatch: Any = None) -> None:
        """Says what comes next, "forward" or "backward", and of which micro-batch, a number or any other key: schedules of pipelines know.
        What a backward pass needs first starts to come back now. Without hints, that begins with the first tensor that is needed."""
        if next not in ("forward", "backward"):
            raise ValueError(f"next is {next!r}; it should be 'forward' or 'backward'")
        # A device that is met later is told what came last.
        self._hint = (next == "backward", microbatch)
        for site in list(self._sites.values()):
            site.hint(*self._hint)

    def report(self) -> Report:
        """What was moved so far, what was kept, and why."""
        sites = list(self._sites.values())
        is_compared = len(sites) == 1 and sites[0].place is not None and self._trial.is_comparing
        return self._tally.report(sites, keeps_for_now=is_compared)

    def _stack(self) -> list:
        if not hasattr(self._entered, "hooks"):
            self._entered.hooks = []
        return self._entered.hooks

    def look_for_modules(self) -> None:
        """Takes note of parameters, buffers and checkpointed layers of all modules that exist: the first time that the context is entered,
        and whenever modules have been made since."""
        self._has_looked = True
        for found in living(*KEEPERS, torch.nn.Module):
            if isinstance(found, KEEPERS):
                self._unseen.pass_by(found)
            else:
                # One that is being made may have none yet.
                made = vars(found)
                self._boundaries.add(found)
                if any(_is_shard(own) for own in made.get("_parameters", {}).values()):
                    self._sharded.append(weakref.ref(found))
                for own in (*made.get("_parameters", {}).values(), *made.get("_buffers", {}).values()):
                    if _is_plain(own) and own.layout == torch.strided:
                        self._remember(StorageWeakRef(own.untyped_storage()))

    def _look_for_gathered(self) -> None:
        """Takes note of the storages that `fully_shard` gathers parameters into, for the time in which a module computes: they are the same ones
        in every step. Shards that are never gathered, as those of tensor parallelism, are not looked at for ever."""
        left: list[weakref.ref[torch.nn.Module]] = []
        for reference in self._sharded:
            module = reference()
            parameters = [] if module is None else list(module._parameters.values())
            if any(_is_shard(own) for own in parameters):
                left.append(reference)
                continue
            for own in parameters:
                if _is_plain(own):
                    self._remember(StorageWeakRef(own.untyped_storage()))
        self._looked += len(left)
        self._sharded = left if self._looked < _MOST_LOOKS else []

    def _look_for_unseen(self) -> None:
        self._warn(self._unseen.look(lambda tensor: self._why_kept(tensor) in (None, "recomputed"), self._tally.seen_bytes))

    def _look_for_compiled(self) -> None:
        self._warn(self._compiled.look())

    def _warn(self, said: Iterable[str]) -> None:
        for words in said:
            self._tally.warn(words)
            warnings.warn(words, stacklevel=4)

    def _remember(self, storage: StorageWeakRef) -> None:
        if len(self._lasting) >= self._lasting_limit:
            self._lasting = {key: own for key, own in self._lasting.copy().items() if not own.expired()}
            self._lasting_limit = max(256, 2 * len(self._lasting))
        self._lasting[storage.cdata] = storage

    def _pack(self, tensor: Tensor) -> Union[Kept, Saved]:
        why = self._why_kept(tensor)
        self._compiled.see(0 if why is not None else tensor.nbytes)
        if why is None:
            try:
                return self._save(tensor)
            except (OffloadError, MemoryError) as error:
                why = str(error)
        self._tally.keep(why, tensor)
        return Kept(tensor)

    def _why_kept(self, tensor: Tensor) -> Optional[str]:
        """Why a tensor should stay, or none. Counted by these words in the report."""
        if type(tensor) not in (Tensor, torch.nn.Parameter) or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return "not a plain tensor"
        if tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
            return "not plain memory"
        if tensor._is_zerotensor() or tensor.is_neg() or tensor.is_conj():
            return "not plain memory"
        if tensor.nbytes < self._smallest or tensor.numel() == 0:
            return "small"
        owner = owner_of(tensor)
        if isinstance(owner, torch.nn.Parameter) or (owner.is_leaf and owner.requires_grad):
            return "parameter"
        if self._lasts(tensor):
            return "held by others"
        if torch._C._current_graph_task_id() != -1:
            return "recomputed"
        site = self._site(tensor)
        if site is None:
            return "not on the device"
        return "stream capture" if site.is_capturing() else None

    def _lasts(self, tensor: Tensor) -> bool:
        if self._sharded:
            self._look_for_gathered()
        known = self._lasting.get(tensor.untyped_storage()._cdata)
        return known is not None and not known.expired()

    def _site(self, tensor: Tensor) -> Optional[Site]:
        site = self._sites.get(tensor.device)
        if site is None and not self._is_on_cpu:
            place = _gpu.holding({"tensor": tensor})
            if place is not None:
                ordinal, site = self._opened or (None, None)
                if site is None or ordinal != place.ordinal:
                    site = self._open(place)
                else:
                    site, self._opened = Site(site.raw, place), None
                self._sites[tensor.device] = site
                site.raw.keep(self._trial.keeps)
                if self._hint is not None:
                    site.hint(*self._hint)
        return site

    def _save(self, tensor: Tensor) -> Saved:
        site, owner, extent = self._sites[tensor.device], owner_of(tensor), Extent(tensor)
        whole = Extent(owner)
        if whole.is_dense and whole.has(extent) and 2 * extent.nbytes >= whole.nbytes:
            # Views of one tensor share a block, unless they see a small part of it.
            extent = whole
        block = site.known(owner, extent)
        if block is None:
            block = site.save(tensor, owner, extent)
            self._tally.save(block)
            block.on_gone = self._note_gone
        else:
            self._tally.share()
        return Saved(block, tensor)

    def _note_gone(self, block: Block) -> None:
        """What is still there when nobody needs it saved any more has an owner who keeps it."""
        if not block.origin.expired():
            self._remember(block.origin)

    def _unpack(self, saved: Union[Kept, Saved]) -> Tensor:
        if self._unseen.is_due:
            self._look_for_unseen()
        self._tally.moment()
        saved.check()
        if isinstance(saved, Kept):
            return saved.tensor
        try:
            return saved.block.site.bring(saved, self._tally)
        except OffloadError as error:
            raise OffloadError(f"{saved.named()}: {error}") from error


def _is_plain(tensor: Optional[Tensor]) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter)


def _is_shard(parameter: Optional[Tensor]) -> bool:
    """Whether a parameter is a `DTensor`, which not every torch has."""
    return hasattr(parameter, "to_local")


def _counter(tensor: Tensor) -> Tensor:
    """Nothing of a tensor but the count of its changes."""
    empty = _EMPTY.get(tensor.dtype)
    if empty is None or empty.device != tensor.device:
        empty = _EMPTY[tensor.dtype] = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    counter = tensor.detach()
    counter.data = empty
    return counter


class _Version:
    """Notices changes in place, which torch does not where hooks are."""

    def __init__(self, tensor: Tensor, counter: Tensor) -> None:
        self.counter, self._version = counter, tensor._version
        self._dtype, self._shape = tensor.dtype, None if tensor.is_nested else tensor.shape
        self._node = None if tensor.grad_fn is None else tensor.grad_fn.name()

    def check(self) -> None:
        if self.counter._version != self._version:
            shape = "" if self._shape is None else f" {list(self._shape)}"
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{self._dtype}{shape}], which is output of {self._node}, is at version {self.counter._version}; "
                f"expected version {self._version} instead."
            )


class Kept(_Version):
    """A tensor that stays."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()
        super().__init__(tensor, self.tensor)


class Saved(_Version):
    """A tensor whose bytes, or those of a dense copy of it, are a block's."""

    def __init__(self, block: Block, tensor: Tensor) -> None:
        super().__init__(tensor, _counter(tensor))
        self.block, self.dtype, self.size, self.stride = block, tensor.dtype, tensor.shape, tensor.stride()
        self.offset, self.memory_stride = block.copied or (tensor.storage_offset(), self.stride)
        self.was_asked = False
        block.waiting += 1

    def named(self) -> str:
        """It, and who needs it now, in words of whoever wrote the model; torch knows no names of layers."""
        node = getattr(torch._C, "_current_autograd_node", lambda: None)()
        who = "" if node is None else f" that {node.name()} needs"
        return f"a saved tensor of shape {tuple(self.size)}, {self.dtype}{who}"

    def over(self, storage: torch.UntypedStorage, start: int) -> Tensor:
        """The tensor, in a storage whose first byte is byte `start` of the one that it was saved from."""
        offset = self.offset - start // self.dtype.itemsize
        made = torch.empty(0, dtype=self.dtype, device=storage.device).set_(storage, offset, self.size, self.memory_stride)
        if self.stride != self.memory_stride:
            made = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=storage.device).copy_(made)
        # Whoever changes it changes what others have saved, and is counted with it.
        shown = self.counter.detach()
        shown.data = made
        return shown
