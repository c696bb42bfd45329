"""Batches ahead of whoever asks for them: made by threads, told in order, the same ones for any number of threads.

PyG's loaders fork processes for this. Sampling and gathering here run without the GIL, so threads do, and nothing is copied
between processes. What is the user's own runs where PyG runs it: without workers in the thread that asks, one batch at a time.
"""

from __future__ import annotations

import operator
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Optional

import torch
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler
from torch.utils.data._utils.pin_memory import pin_memory

from ..gpu import Place
from .handed import Handed
from .order import Order
from .sampler import seed_of

# Threads at least. Drawing and gathering use all cores, but what Python does between them is one thread's work: another batch
# goes on meanwhile. Where a GPU draws, some wait for their samples while others queue rows.
_ON_CPU, _ON_GPU = 2, 3
# Batches that are made ahead for every thread, unless `prefetch_factor` says otherwise.
_AHEAD = 2


class Stages(NamedTuple):
    """How a batch is made: what threads do of it, and what is left to the thread that asks."""

    # Of positions and numbers. Without it, nothing runs ahead.
    ahead: Optional[Callable[[Any, Any], Any]]
    # Of what threads made, or of positions and numbers.
    here: Callable[..., Any]


@dataclass
class _Position:
    """Where an iterator is: batches that it has told of an epoch."""

    epoch: int
    batch: int


class Ahead:
    """What loaders share: threads, seeds, and where an epoch was left. It goes before DataLoader among the bases."""

    def _prepare(self, kwargs: dict[str, Any], seed: Optional[int], place: Optional[Place] = None) -> dict[str, Any]:
        """Takes what threads need out of the arguments of DataLoader. What cannot be honoured is refused here."""
        kwargs = dict(kwargs)
        self._asked_workers, self._factor, self._is_persistent = _workers(kwargs)
        self._crew: Optional[_Crew] = None
        self._place = place
        self.seed = seed_of(seed)
        self._position: Optional[_Position] = None
        self._resumed: Optional[_Position] = None
        self._order = None
        given = kwargs.get("sampler")
        if isinstance(given, Order):
            # Lightning hands a loader's own sampler to the next one. Two loaders are not at the same epoch.
            kwargs.update(sampler=None, shuffle=True)
        self._is_others_order = _is_others(kwargs)
        is_ours = all(kwargs.get(name) is None for name in ("generator", "sampler", "batch_sampler"))
        if is_ours and kwargs.pop("shuffle", False):
            self._order = kwargs["sampler"] = Order(self.seed)
        return kwargs

    def _made(self) -> None:
        """What is known only when DataLoader is made."""
        self.num_workers = self._asked_workers
        if self._order is not None:
            self._order.data_source = self.dataset
        if self.pin_memory and self._place is None and not torch.cuda.is_available():
            warnings.warn("pin_memory is set, but torch finds no GPU: batches lie in ordinary memory", stacklevel=4)

    def _stages(self) -> Stages:
        """Who does what, as things are when an epoch begins."""
        raise NotImplementedError

    def _has_own_code(self) -> bool:
        """Whether threads run what is the user's."""
        return self.worker_init_fn is not None

    def _without_tensors(self) -> Mapping[int, tuple[Any, int]]:
        """Containers that batches share and that have no tensors, by identity, with their lengths."""
        return {}

    def __iter__(self) -> Iterator[Any]:
        if self._resumed is not None:
            position = self._resumed
        else:
            position = _Position(0 if self._position is None else self._position.epoch + 1, 0)
        # Iterators at the same time are each somewhere else. The loader is where the last one is.
        self._position, self._resumed = position, None
        return self._batches(position)

    def _get_iterator(self) -> Iterator[Any]:
        return iter(self)

    def _batches(self, position: _Position) -> Iterator[Any]:
        if self._order is not None:
            self._order.seed, self._order.epoch = self.seed, position.epoch
        stages = self._stages()
        work = self._work(position.epoch, position.batch)
        if stages.ahead is None:
            made = (stages.here(*one) for one in work)
        else:
            made = self._made_ahead(stages.ahead, work)
        # Whoever stops asking leaves nothing behind.
        with closing(made):
            for one in made:
                batch = one if stages.ahead is None else stages.here(one)
                if self.pin_memory and self._place is None and torch.cuda.is_available():
                    batch = pin_memory(batch)
                position.batch += 1
                yield batch

    def _work(self, epoch: int, first: int) -> Iterator[tuple[Any, tuple[int, int, int]]]:
        """Positions of the inputs of each batch, with its numbers."""
        for number, index in enumerate(self._positions()):
            if number >= first:
                yield index, (self.seed, epoch, number)

    def _made_ahead(self, make: Callable[[Any, Any], Any], work: Iterable) -> Iterator[Any]:
        """What threads make, in order, for the stream of whoever asks."""
        place, waiting, crew = self._place, deque(), self._crew_for_an_epoch()
        ahead = crew.threads * (_AHEAD if self._factor is None else self._factor)
        # What the caller has queued, such as its features, is there before threads read it.
        begun = None if place is None else Handed(place, None)
        make, without = _Modes(has_stream=place is None).over(make), self._without_tensors()

        def handed(index: Any, numbers: Any) -> Any:
            if place is None:
                return make(index, numbers)
            begun.taken()
            return Handed(place, make(index, numbers), without)

        def told(future: Future) -> Any:
            try:
                made = future.result(timeout=self.timeout or None)
            except TookTooLong:
                if future.done():
                    raise
                crew.is_late = True
                raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds") from None
            return made if place is None else made.taken()

        try:
            for one in work:
                waiting.append(crew.submit(handed, *one))
                if len(waiting) > ahead:
                    yield told(waiting.popleft())
            while waiting:
                yield told(waiting.popleft())
        finally:
            crew.forget(waiting)
            if not self._is_persistent or crew.is_spoilt:
                self._crew = None
                crew.close()

    def _crew_for_an_epoch(self) -> _Crew:
        crew = self._crew
        if crew is None:
            init = self.worker_init_fn if self._asked_workers > 0 else None
            crew = _Crew(self._thread_count(), self._place, init)
            if self._is_persistent:
                self._crew = crew
                weakref.finalize(self, crew.close)
        return crew

    def _thread_count(self) -> int:
        """As many as there are workers, where they run what is the user's. What is ours may have more."""
        least = _ON_CPU if self._place is None else _ON_GPU
        is_exact = self._asked_workers > 0 and self._has_own_code()
        return self._asked_workers if is_exact else max(self._asked_workers, least)

    def _positions(self) -> Iterable[Any]:
        """Positions of the inputs of each batch. Whole tensors where they can be: a thousand numbers one by one take time."""
        is_ours = self._order is not None or type(self.sampler) is SequentialSampler
        # A batch sampler of the user's leaves no batch size.
        is_plain = type(self.batch_sampler) is BatchSampler and self.batch_size is not None
        if not is_ours or not is_plain or not isinstance(self.dataset, range) or len(self.dataset) == 0:
            return self._index_sampler
        order = torch.arange(len(self.dataset)) if self._order is None else self._order.positions()
        pieces = order.split(self.batch_size)
        return pieces[:-1] if self.drop_last and len(pieces[-1]) < self.batch_size else pieces

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is. With `load_state_dict`, the next epoch goes on with the batch after the last one told."""
        self._check_resumable()
        at, batches = self._resumed or self._position or _Position(0, 0), len(self)
        is_done = at.batch >= batches and (self._resumed or self._position) is not None
        epoch, batch = (at.epoch + 1, 0) if is_done else (at.epoch, at.batch)
        return {"seed": self.seed, "epoch": epoch, "batch": batch, "batches": batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another loader of the same data and arguments was."""
        self._check_resumable()
        seed, at = seed_of(state["seed"]), _Position(operator.index(state["epoch"]), operator.index(state["batch"]))
        batches = state.get("batches", len(self))
        if batches != len(self):
            raise ValueError(f"the state is of a loader of {batches} batches; this one has {len(self)}")
        if at.epoch < 0 or not 0 <= at.batch <= len(self):
            raise ValueError(f"the state is at batch {at.batch} of epoch {at.epoch}; an epoch has {len(self)} batches")
        self.seed, self._resumed = seed, at

    def _check_resumable(self) -> None:
        if self.generator is not None:
            raise ValueError("a loader with a generator of its own cannot tell where it is; leave `generator` out")
        if self._is_others_order:
            raise ValueError(
                "a loader whose `sampler` or `batch_sampler` is its user's cannot tell where it is, since that may come in "
                "another order the next time; leave it out, and use `shuffle` and `seed`"
            )


class _Crew:
    """Threads, each with streams of its own where there is a GPU."""

    def __init__(self, threads: int, place: Optional[Place], init: Optional[Callable[[int], None]]) -> None:
        self.threads, self._place, self._init = threads, place, init
        self._numbers, self._lanes, self._failed = iter(range(threads)), [], []
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="headwater", initializer=self._begin)
        # Whether one of them is not waited for.
        self.is_late = False

    def _begin(self) -> None:
        try:
            if self._place is not None:
                self._lanes.append(self._place.enter())
            if self._init is not None:
                self._init(next(self._numbers))
        except BaseException as why:  # noqa: BLE001
            # The pool would say that it is broken, and not why.
            self._failed.append(why)

    def submit(self, make: Callable[..., Any], *given: Any) -> Future:
        return self._pool.submit(self._run, make, given)

    def _run(self, make: Callable[..., Any], given: tuple) -> Any:
        if self._failed:
            raise self._failed[0]
        return make(*given)

    @property
    def is_spoilt(self) -> bool:
        """Whether it is of no use in another epoch."""
        return self.is_late or bool(self._failed)

    def forget(self, futures: Iterable[Future]) -> None:
        """Nobody asks for these any more."""
        going_on = [future for future in futures if not future.cancel()]
        if not self.is_late:
            wait(going_on)

    def close(self) -> None:
        self._pool.shutdown(wait=not self.is_late, cancel_futures=True)
        # A thread that goes on keeps its streams.
        if self._place is not None and not self.is_late:
            self._place.leave(self._lanes)
            self._lanes = []


class _Modes:
    """What torch has a setting of in every thread, as it is in this one: a thread of ours works under the caller's."""

    def __init__(self, has_stream: bool) -> None:
        # Those that a thread begins with are left out.
        self._makers: list[Callable[[], AbstractContextManager]] = []
        if torch.is_inference_mode_enabled():
            self._makers.append(torch.inference_mode)
        elif not torch.is_grad_enabled():
            self._makers.append(torch.no_grad)
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                self._makers.append(partial(torch.autocast, kind, dtype=torch.get_autocast_dtype(kind)))
        # Where batches are not brought to a GPU, the user's code may.
        if has_stream and torch.cuda.is_available() and torch.cuda.is_initialized():
            stream = torch.cuda.current_stream()
            if stream != torch.cuda.default_stream(0):
                self._makers.append(partial(torch.cuda.stream, stream))

    def over(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """The function under these settings."""
        if not self._makers:
            return make

        def made(*given: Any) -> Any:
            with ExitStack() as settings:
                for maker in self._makers:
                    settings.enter_context(maker())
                return make(*given)

        return made


def _workers(kwargs: dict[str, Any]) -> tuple[int, Optional[int], bool]:
    """How many workers are wished for, batches ahead for each, and whether they outlast an epoch."""
    if kwargs.pop("multiprocessing_context", None) is not None:
        raise ValueError("multiprocessing_context is for processes; batches are made by threads here")
    if not kwargs.pop("in_order", True):
        raise ValueError("in_order is False; batches come in order here, whichever thread is done first")
    if kwargs.pop("pin_memory_device", ""):
        raise ValueError("pin_memory_device is given; batches are pinned for all GPUs, so leave it out")
    workers = operator.index(kwargs.pop("num_workers", 0))
    if workers < 0:
        raise ValueError(f"num_workers is {workers}; it should not be negative")
    factor = kwargs.pop("prefetch_factor", None)
    if factor is not None and operator.index(factor) < 0:
        raise ValueError(f"prefetch_factor is {factor}; it should not be negative")
    is_persistent = bool(kwargs.pop("persistent_workers", False))
    if is_persistent and workers == 0:
        raise ValueError("persistent_workers is for workers; num_workers is 0")
    if kwargs.get("timeout") and workers == 0:
        raise ValueError(f"timeout is {kwargs['timeout']} and for workers; num_workers is 0")
    return workers, factor, is_persistent


def _is_others(kwargs: dict[str, Any]) -> bool:
    """Whether batches come in an order that we cannot go through again. These two are functions of what they were made of."""
    sampler, batches = kwargs.get("sampler"), kwargs.get("batch_sampler")
    if type(batches) is BatchSampler:
        sampler, batches = batches.sampler, None
    is_known = sampler is None or type(sampler) is SequentialSampler or isinstance(sampler, DistributedSampler)
    return batches is not None or not is_known
