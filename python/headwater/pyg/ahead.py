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
from torch_geometric.sampler import BaseSampler

from ..gpu import place_of
from .order import Order
from .sampler import NeighborSampler, fresh_seed
from .stores import FeatureStore
from .tables import Budget, Tables, tables_of

# Batches that are made ahead for every thread, unless `prefetch_factor` says otherwise.
_AHEAD = 2


class Ahead:
    """What `NeighborLoader` and `LinkNeighborLoader` share: threads, seeds, and where an epoch was left."""

    def _prepare(
        self, kwargs: dict[str, Any], seed: Optional[int], device: Any, features: Optional[str], budget: Budget
    ) -> dict[str, Any]:
        """Takes what threads need out of the arguments of DataLoader. What cannot be honoured is refused here."""
        kwargs = dict(kwargs)
        # Lightning makes loaders anew out of their attributes.
        self.device, self.features, self.budget = device, features, budget
        self.tables: Optional[Tables] = None
        is_on_gpu = place_of(device) is not None
        if not is_on_gpu and (features is not None or budget is not None):
            raise ValueError("features and budget say where a GPU finds features; give device='cuda' too")
        if kwargs.pop("multiprocessing_context", None) is not None:
            raise ValueError("multiprocessing_context is for processes; batches are made by threads here")
        threads = int(kwargs.pop("num_workers", 0))
        if threads < 0:
            raise ValueError(f"num_workers is {threads}; it should not be negative")
        factor = kwargs.pop("prefetch_factor", None)
        kwargs.pop("persistent_workers", None)
        # On a GPU one thread draws while another one's rows are on their way.
        self._threads = max(threads, 2 if is_on_gpu else 1)
        self._ahead = self._threads * (_AHEAD if factor is None else int(factor))
        self._asked_workers = threads
        self.seed = fresh_seed() if seed is None else int(seed)
        self._epoch, self._batch, self._resumed = -1, 0, None
        self._order = None
        is_ours = all(kwargs.get(name) is None for name in ("generator", "sampler", "batch_sampler"))
        if is_ours and kwargs.pop("shuffle", False):
            self._order = kwargs["sampler"] = Order(self.seed)
        return kwargs

    def _sampler(self, data: Any, given: Optional[BaseSampler], wished: dict[str, Any]) -> BaseSampler:
        """The user's sampler, or one of ours. Lightning makes loaders anew out of their attributes, so these are kept."""
        self.num_neighbors, self.time_attr = wished["num_neighbors"], wished["time_attr"]
        if given is None:
            given = NeighborSampler(data, **wished, seed=self.seed, device=self.device)
        elif place_of(self.device) is not None and getattr(given, "place", None) is None:
            raise ValueError("neighbor_sampler draws on the CPU; make it with device='cuda' too, or leave `device` out")
        self.neighbor_sampler = given
        return given

    def _made(self) -> None:
        """What is known only when DataLoader is made."""
        self.num_workers = self._asked_workers
        if self._order is not None:
            self._order.data_source = self.dataset
        self._place_features()

    def _place_features(self) -> None:
        place = getattr(self.neighbor_sampler, "place", None)
        if place is None:
            return
        # Everything about a batch is queued by the thread that draws it.
        self.filter_per_worker = True

        def reads() -> dict:
            return self.neighbor_sampler.expected_reads(self._seeds(), self.batch_size or 1)

        self.tables = tables_of(place, self.data, self.features, self.budget, reads)
        if isinstance(self.data, (tuple, list)) and isinstance(self.data[0], FeatureStore):
            self.data[0].placed(self.tables)

    def _batch_on(self, index: Any, numbers: Any) -> Any:
        """A batch, and on a GPU the point of a stream from which on it is there."""
        if self.tables is None:
            return self.collate_fn(index, numbers), None
        with self.tables.place.aside():
            batch = self.collate_fn(index, numbers)
            return batch, self.tables.place.mark()

    def _brought(self, values: Any) -> Any:
        """Tensors that belong to a batch, where it is."""
        if self.tables is None:
            return values
        return tuple(self.tables.place.bring(value) if isinstance(value, Tensor) else value for value in values)

    def _numbered(self, sampler: Any, numbers: Any) -> dict[str, Any]:
        """Our samplers draw by the number of a batch, so that threads do not matter."""
        return {"numbers": numbers} if isinstance(sampler, NeighborSampler) else {}

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
        numbers = iter(range(self._threads))
        begin = self.worker_init_fn
        first_deed = None if begin is None else (lambda: begin(next(numbers)))
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="headwater", initializer=first_deed)
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
            self.tables.place.meet(mark, _tensors(batch))
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

    def __getstate__(self) -> dict[str, Any]:
        # Memory of a GPU is not sent: what lies there is placed anew.
        return {**self.__dict__, "tables": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._place_features()


def _tensors(batch: Any) -> Iterator[Tensor]:
    for store in batch.stores if hasattr(batch, "stores") else []:
        for value in store.values():
            if isinstance(value, Tensor):
                yield value
