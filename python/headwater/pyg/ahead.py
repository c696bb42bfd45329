"""Batches ahead of whoever asks for them: made by threads, told in order, the same ones for any number of threads.

PyG's loaders fork processes for this. Sampling and gathering here run without the GIL, so threads do, and nothing is copied
between processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, SequentialSampler

from ..gpu import Place
from .order import Order
from .sampler import fresh_seed

# Threads at least. Drawing and gathering use all cores, but what Python does between them is one thread's work: another batch
# goes on meanwhile. Where a GPU draws, some wait for their samples while others queue rows.
_ON_CPU, _ON_GPU = 2, 3
# Batches that are made ahead for every thread, unless `prefetch_factor` says otherwise.
_AHEAD = 2


class Ahead:
    """What loaders share: threads, seeds, and where an epoch was left. It goes before DataLoader among the bases."""

    def _prepare(self, kwargs: dict[str, Any], seed: Optional[int], place: Optional[Place] = None) -> dict[str, Any]:
        """Takes what threads need out of the arguments of DataLoader. What cannot be honoured is refused here."""
        kwargs = dict(kwargs)
        if kwargs.pop("multiprocessing_context", None) is not None:
            raise ValueError("multiprocessing_context is for processes; batches are made by threads here")
        threads = int(kwargs.pop("num_workers", 0))
        if threads < 0:
            raise ValueError(f"num_workers is {threads}; it should not be negative")
        factor = kwargs.pop("prefetch_factor", None)
        kwargs.pop("persistent_workers", None)
        self._place = place
        self._threads = max(threads, _ON_CPU if place is None else _ON_GPU)
        self._ahead = self._threads * (_AHEAD if factor is None else int(factor))
        self._asked_workers = threads
        self.seed = fresh_seed() if seed is None else int(seed)
        self._epoch, self._batch, self._resumed = -1, 0, None
        self._order = None
        is_ours = all(kwargs.get(name) is None for name in ("generator", "sampler", "batch_sampler"))
        if is_ours and kwargs.pop("shuffle", False):
            self._order = kwargs["sampler"] = Order(self.seed)
        return kwargs

    def _made(self) -> None:
        """What is known only when DataLoader is made."""
        self.num_workers = self._asked_workers
        if self._order is not None:
            self._order.data_source = self.dataset

    def _batch_on(self, index: Any, numbers: Any) -> Any:
        """A batch, and on a GPU the point of a stream from which on it is there."""
        batch = self.collate_fn(index, numbers)
        return batch, None if self._place is None else self._place.mark()

    def __iter__(self) -> Iterator[Any]:
        if self._resumed is None:
            self._epoch, self._batch = self._epoch + 1, 0
        else:
            self._epoch, self._batch = self._resumed
            self._resumed = None
        return self._batches(self._epoch, self._batch)

    def _get_iterator(self) -> Iterator[Any]:
        return iter(self)

    def _batches(self, epoch: int, first: int) -> Iterator[Any]:
        waiting: deque[Future] = deque()
        numbers, lanes = iter(range(self._threads)), []

        def begin() -> None:
            if self._place is not None:
                lanes.append(self._place.enter())
            if self.worker_init_fn is not None:
                self.worker_init_fn(next(numbers))

        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="headwater", initializer=begin)
        if self._order is not None:
            self._order.seed, self._order.epoch = self.seed, epoch
        try:
            for number, index in enumerate(self._positions()):
                if number < first:
                    continue
                waiting.append(pool.submit(self._batch_on, index, (self.seed, epoch, number)))
                if len(waiting) > self._ahead:
                    yield self._told(waiting.popleft())
            while waiting:
                yield self._told(waiting.popleft())
        finally:
            # Whoever stops asking leaves nothing behind.
            pool.shutdown(wait=True, cancel_futures=True)
            if self._place is not None:
                self._place.leave(lanes)

    def _positions(self) -> Iterable[Any]:
        """Positions of the inputs of each batch. Whole tensors where they can be: a thousand numbers one by one take time."""
        is_ours = self._order is not None or type(self.sampler) is SequentialSampler
        is_plain = type(self.batch_sampler) is BatchSampler and isinstance(self.dataset, range)
        if not is_ours or not is_plain or len(self.dataset) == 0:
            return self._index_sampler
        order = torch.arange(len(self.dataset)) if self._order is None else self._order.positions()
        pieces = order.split(self.batch_size)
        return pieces[:-1] if self.drop_last and len(pieces[-1]) < self.batch_size else pieces

    def _told(self, future: Future) -> Any:
        batch, mark = future.result(timeout=self.timeout or None)
        if mark is not None:
            self._place.meet(mark, _tensors(batch))
        if not self.filter_per_worker:
            batch = self.filter_fn(batch)
        self._batch += 1
        if self.pin_memory and mark is None and torch.cuda.is_available():
            batch = batch.pin_memory()
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is. With `load_state_dict`, the next epoch goes on with the batch after the last one told."""
        if self.generator is not None:
            raise ValueError("a loader with a generator of its own cannot tell where it is; leave `generator` out")
        is_done = self._batch >= len(self) and self._epoch >= 0
        epoch, batch = (self._epoch + 1, 0) if is_done else (max(self._epoch, 0), self._batch)
        return {"seed": self.seed, "epoch": epoch, "batch": batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another loader of the same data and arguments was."""
        self.seed = int(state["seed"])
        self._resumed = (int(state["epoch"]), int(state["batch"]))


def _tensors(batch: Any) -> Iterator[Tensor]:
    for store in batch.stores if hasattr(batch, "stores") else []:
        for value in store.values():
            if isinstance(value, Tensor):
                yield value
