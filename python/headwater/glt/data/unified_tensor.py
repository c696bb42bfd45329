"""One table whose rows lie in several places: on GPUs, and in host memory."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _places

Handles = Tuple[List[Tensor], Optional[Tensor]]


class UnifiedTensor:
    """Rows in parts that follow one another. Whatever is asked for comes to `current_device`.

    >>> table = UnifiedTensor(-1, torch.int64)
    >>> table.init_from([torch.arange(3), torch.arange(10, 12)], [-1, -1])
    >>> table[torch.tensor([4, 0])]
    tensor([11,  0])
    """

    def __init__(self, current_device: int, dtype: torch.dtype = torch.float32) -> None:
        self.current_device = current_device
        self.dtype = dtype
        self._parts: list[tuple[Tensor, int]] = []

    def _append(self, rows: Tensor, number: int) -> None:
        if rows.dtype != self.dtype:
            raise ValueError(f"rows have elements of {rows.dtype}; the table's are {self.dtype}")
        if self._parts and rows.shape[1:] != self._parts[0][0].shape[1:]:
            raise ValueError(f"rows have shape {list(rows.shape[1:])}; the table's have {self.shape[1:]}")
        self._parts.append((_places.place(rows, number), number))

    def append_shared_tensor(self, shared_tensor: Tensor) -> None:
        """Adds rows of a GPU. Torch sends such tensors between processes without a copy."""
        self._append(shared_tensor, shared_tensor.device.index if shared_tensor.is_cuda else self.current_device)

    def append_cpu_tensor(self, cpu_tensor: Tensor) -> None:
        """Adds rows of host memory."""
        self._append(cpu_tensor, -1)

    def init_from(self, tensors: Sequence[Tensor], tensor_devices: Sequence[int]) -> None:
        """Adds rows for each device; -1 is host memory."""
        if len(tensors) != len(tensor_devices):
            raise ValueError(f"{len(tensors)} tensors were given for {len(tensor_devices)} devices")
        for rows, number in zip(tensors, tensor_devices):
            self._append(rows, number)

    def __getitem__(self, ids: Tensor) -> Tensor:
        if not self._parts:
            raise IndexError("the table has no rows yet")
        device = _places.resolve(self.current_device) if self.current_device >= 0 else _places.CPU
        return _places.gather([rows for rows, _ in self._parts], torch.as_tensor(ids), device)

    @property
    def shape(self) -> list[int]:
        if not self._parts:
            return [0]
        return [sum(rows.size(0) for rows, _ in self._parts), *self._parts[0][0].shape[1:]]

    @property
    def device(self) -> int:
        return self.current_device

    @property
    def numel(self) -> int:
        return sum(rows.numel() for rows, _ in self._parts)

    def size(self, dim: int) -> int:
        return self.shape[dim]

    def stride(self, dim: int) -> int:
        return int(torch.Size(self.shape[dim % len(self.shape) + 1 :]).numel())

    @property
    def cpu_part(self) -> Optional[Tensor]:
        """The rows in host memory."""
        held = [rows for rows, number in self._parts if number < 0]
        return torch.cat(held) if len(held) > 1 else held[0] if held else None

    def share_ipc(self) -> Handles:
        """The rows on GPUs, and those in host memory, for another process."""
        return [rows for rows, number in self._parts if number >= 0], self.cpu_part

    def from_ipc_handle(self, cuda_ipc_list: Sequence[Tensor], cpu_part: Optional[Tensor]) -> None:
        for rows in cuda_ipc_list:
            self.append_shared_tensor(rows)
        if cpu_part is not None and cpu_part.numel() > 0:
            self.append_cpu_tensor(cpu_part)

    @classmethod
    def new_from_ipc(cls, ipc_handles: Handles, current_device: int, dtype: torch.dtype) -> UnifiedTensor:
        made = cls(current_device, dtype)
        made.from_ipc_handle(*ipc_handles)
        return made
