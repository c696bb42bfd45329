"""Features of nodes or edges: a table in host memory, whose first rows may lie on GPUs, looked up by id."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, List, Optional, Tuple, Union

import torch
from torch import Tensor

from ...pyg.topology import on_host
from .. import _places
from ..typing import TensorDataType
from ..utils.tensor import convert_to_tensor, shared
from .device_group import DeviceGroup
from .unified_tensor import UnifiedTensor

Handle = Tuple[Optional[Tensor], Optional[Tensor], float, Optional[List[DeviceGroup]], bool, Optional[torch.dtype]]


class Feature:
    """Rows by id.

    >>> feature = Feature(torch.arange(6).view(3, 2), id2index=torch.tensor([2, 0, 1]), with_gpu=False, dtype=torch.int64)
    >>> feature[torch.tensor([0, 1])]
    tensor([[4, 5],
            [0, 1]])

    `id2index` says which row belongs to an id; without it ids are rows. The first `split_ratio` of the rows lie on GPUs,
    once in every group of `device_group_list`, and rows come to `device`. With `with_gpu=False`, or without a GPU, all of
    them are in host memory and come there. `dtype=None` keeps the type of the tensor.
    """

    def __init__(
        self,
        feature_tensor: Optional[TensorDataType],
        id2index: Optional[Union[Tensor, Sequence]] = None,
        split_ratio: float = 0.0,
        device_group_list: Optional[List[DeviceGroup]] = None,
        device: Optional[int] = None,
        with_gpu: Optional[bool] = True,
        dtype: Optional[torch.dtype] = torch.float32,
    ) -> None:
        self.split_ratio = float(split_ratio)
        if not 0 <= self.split_ratio <= 1:
            raise ValueError(f"split_ratio is {split_ratio}; it should be from 0 to 1")
        if device_group_list and len({group.size for group in device_group_list}) > 1:
            raise ValueError("device groups have different numbers of devices")
        rows = None if feature_tensor is None else on_host(convert_to_tensor(feature_tensor, dtype))
        self.feature_tensor: Optional[Tensor] = rows
        self.id2index = None if id2index is None else on_host(torch.as_tensor(id2index)).to(torch.int64)
        self.device_group_list = device_group_list
        self.device = device
        self.with_gpu = bool(with_gpu)
        self.dtype = rows.dtype if dtype is None and rows is not None else dtype
        self._lock = threading.Lock()
        self._table: Union[UnifiedTensor, _places.Tiered, None] = None
        # A device that is not there is said here and not by the first lookup. Which one is current is asked by that.
        if device is not None:
            self._place()

    def _place(self) -> torch.device:
        return _places.resolve(self.device) if self.with_gpu else _places.CPU

    def __getitem__(self, ids: Tensor) -> Tensor:
        """The rows of ids, on the device of this feature."""
        place = self._place()
        if not _places.is_on_gpu(place):
            return self.cpu_get(ids)
        self.lazy_init_with_ipc_handle()
        return self._table[_ids(ids) if isinstance(self._table, _places.Tiered) else self._rows(ids)]

    def cpu_get(self, ids: Tensor) -> Tensor:
        """The rows of ids, out of host memory."""
        if self.feature_tensor is None:
            raise ValueError("this feature has no rows")
        return _places.gather([self.feature_tensor], self._rows(ids), _places.CPU)

    def _rows(self, ids: Tensor) -> Tensor:
        ids = _ids(ids)
        if self.id2index is None:
            return ids
        rows = _places.gather([self.id2index], ids, _places.CPU)
        missing = (rows < 0).nonzero()
        if missing.numel() > 0:
            at = int(missing[0])
            raise IndexError(f"ids[{at}] is {int(ids[at])}, which has no row")
        return rows

    def lazy_init_with_ipc_handle(self) -> None:
        """Puts the first rows on GPUs, if they are not there yet."""
        place = self._place()
        if not _places.is_on_gpu(place):
            return
        with self._lock:
            if self._table is None:
                self._table = self._split(place.index)

    def _split(self, number: int) -> Union[UnifiedTensor, _places.Tiered]:
        """Each GPU of the group holds as many rows as the others, and the last one the rest too."""
        if self.feature_tensor is None:
            raise ValueError("this feature has no rows")
        numbers = self._group(number)
        hot = int(self.feature_tensor.size(0) * self.split_ratio)
        if numbers == [number] and self.feature_tensor.numel() > 0:
            return _places.Tiered(self.feature_tensor, number, hot, self.id2index)
        if len(numbers) > 1:
            _places.say_once("features of several GPUs are gathered part by part by torch, those in host memory by the CPU")
        each = hot // len(numbers)
        table = UnifiedTensor(number, self.feature_tensor.dtype)
        for at, device in enumerate(numbers if hot > 0 else []):
            end = hot if at == len(numbers) - 1 else (at + 1) * each
            table.init_from([self.feature_tensor[at * each : end]], [device])
        if hot < self.feature_tensor.size(0) or hot == 0:
            table.append_cpu_tensor(self.feature_tensor[hot:])
        return table

    def _group(self, number: int) -> list[int]:
        if self.device_group_list is None:
            return [number]
        for group in self.device_group_list:
            if number in group.numbers:
                return group.numbers
        raise ValueError(f"device {number} is in none of the device groups")

    def share_ipc(self) -> Handle:
        """What another process makes this feature of. Rows go to memory that processes share."""
        self.feature_tensor, self.id2index = shared(self.feature_tensor), shared(self.id2index)
        groups = self.device_group_list
        return self.feature_tensor, self.id2index, self.split_ratio, groups, self.with_gpu, self.dtype

    @classmethod
    def from_ipc_handle(cls, ipc_handle: Handle) -> Feature:
        rows, id2index, split_ratio, groups, with_gpu, dtype = ipc_handle
        return cls(rows, id2index, split_ratio, groups, with_gpu=with_gpu, dtype=dtype)

    @property
    def shape(self) -> torch.Size:
        return self.feature_tensor.shape

    def size(self, dim: int) -> int:
        return self.feature_tensor.size(dim)

    @property
    def id_count(self) -> int:
        """How many ids there are: one more than the highest."""
        return self.size(0) if self.id2index is None else self.id2index.numel()

    def __reduce__(self) -> Any:
        return Feature.from_ipc_handle, (
            (self.feature_tensor, self.id2index, self.split_ratio, self.device_group_list, self.with_gpu, self.dtype),
        )


def _ids(ids: Any) -> Tensor:
    # An empty list is a float tensor in torch.
    ids = torch.as_tensor(ids)
    return ids if ids.numel() > 0 else ids.long()


def _sent(feature: Feature) -> Any:
    return Feature.from_ipc_handle, (feature.share_ipc(),)


# Rows go to other processes through shared memory, never through a copy in a pipe.
ForkingPickler.register(Feature, _sent)
