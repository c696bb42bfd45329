"""Where graphs and features lie, and who works on them: the one module here that knows of GPUs.

Everything else asks these functions. What comes out lies on the device that was asked for. GraphLearn's defaults name a GPU,
so without one they mean the CPU, and that is said once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor

from .. import gpu
from .._headwater import DeviceGraph, Graph, Sampler, Table, Topology, take_rows
from ..gpu import Drawer
from ..pyg.tables import Tables
from ..pyg.topology import on_host

Device = Union[torch.device, str, int, None]
CPU = torch.device("cpu")
MODES = ("CPU", "ZERO_COPY", "CUDA")

_said: set[str] = set()


def has_gpu() -> bool:
    return torch.cuda.is_available()


def is_on_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def resolve(device: Device) -> torch.device:
    """The device that is meant: a number is a GPU, nothing is the current one, and without a GPU it is the CPU."""
    if isinstance(device, str):
        device = torch.device(device.lower())
    if device is not None and not isinstance(device, int) and device.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {device}; it should be a CPU or a CUDA device")
    if isinstance(device, torch.device) and device.type == "cpu":
        return CPU
    if not has_gpu():
        _step_down()
        return CPU
    number = device if device is None or isinstance(device, int) else device.index
    number = torch.cuda.current_device() if number is None else number
    if not 0 <= number < torch.cuda.device_count():
        raise ValueError(f"device is {number}; there are {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", number)


def checked_mode(mode: Any, name: str) -> str:
    """The mode that a keyword of this name means."""
    if str(mode).upper() not in MODES:
        raise ValueError(f"{name} is {mode!r}; it should be 'CPU', 'ZERO_COPY' or 'CUDA'")
    return str(mode).upper()


def of_mode(mode: str, device: Device) -> torch.device:
    """The device that works on a graph of a mode. Only whoever asks for the GPU's own memory is refused without one."""
    if mode == "CPU":
        return CPU
    if mode == "CUDA" and not has_gpu():
        raise RuntimeError("mode is 'CUDA', but torch finds no GPU; use 'ZERO_COPY' or 'CPU'")
    return resolve(device)


def _step_down() -> None:
    say_once("torch finds no GPU: graphs and features are used by the CPU", 5)


def say_once(what: str, level: int = 3) -> None:
    """Warns of what is done elsewhere than its name tells, the first time that it is done."""
    if what not in _said:
        _said.add(what)
        warnings.warn(what, RuntimeWarning, stacklevel=level)


# Graphs ###############################################################################################################


def lists_of(offsets: Tensor, neighbours: Tensor, rows: int, columns: int, carried: dict[str, Tensor]) -> Topology:
    """Lists for all rows: those that the offsets do not reach are empty. What can be is read where it lies."""
    missing = rows + 1 - offsets.numel()
    if missing > 0:
        end = offsets[-1:] if offsets.numel() > 0 else offsets.new_zeros(1)
        offsets = torch.cat([offsets, end.expand(missing)])
    return Topology.from_lists(offsets, neighbours, columns, **carried)


def graph_of(
    node_types: Sequence[tuple[str, int]],
    relations: Sequence[tuple[int, str, int, Topology]],
    device: torch.device,
    modes: Sequence[str],
) -> Union[Graph, DeviceGraph]:
    """The graph where the device walks it: in its own memory only if every part of it is wanted there."""
    graph = Graph(node_types, relations)
    if not is_on_gpu(device):
        return graph
    return DeviceGraph(graph, device.index, "cuda" if all(mode == "CUDA" for mode in modes) else "zero-copy")


def sampler_for(
    graph: Union[Graph, DeviceGraph],
    fanouts: list[list[int]],
    device: torch.device,
    *,
    weighted: bool,
    disjoint: bool,
    with_edge: bool,
) -> Union[Sampler, Drawer]:
    """Who walks a graph for a device."""
    wished = {"weighted": weighted, "disjoint": disjoint, "edge_ids": with_edge}
    if isinstance(graph, DeviceGraph):
        return Drawer(graph, fanouts, gpu.Place(device), **wished)
    return Sampler(graph, fanouts, **wished)


def tensor(array: Any, device: torch.device) -> Optional[Tensor]:
    """What a sampler found, on the device. A GPU's samples are there already."""
    return array if array is None or isinstance(array, Tensor) else torch.from_dlpack(array).to(device)


# Features #############################################################################################################


class Tiered:
    """Rows for one GPU: the first ones in its memory, the others in host memory, looked up by id."""

    def __init__(self, rows: Tensor, number: int, hot: int, id2index: Optional[Tensor]) -> None:
        self._place = gpu.Place(torch.device("cuda", number))
        self._rows = rows
        self._table = Table(_bytes(rows), self._place.ordinal, hot, id_map=id2index)

    def __getitem__(self, ids: Tensor) -> Tensor:
        ids = self._place.bring(ids).contiguous()
        return gpu.gather(self._table, ids, _bytes(self._rows).dtype, self._place).view(self._rows.dtype)


def _bytes(rows: Tensor) -> Tensor:
    """Kinds of one byte that others do not name are bytes like any other."""
    return rows.view(torch.uint8) if rows.element_size() == 1 else rows


def tables(device: torch.device) -> Optional[Tables]:
    """Where a GPU reads what lies in host memory."""
    return Tables(gpu.Place(device)) if is_on_gpu(device) else None


def place(rows: Tensor, number: int) -> Tensor:
    """Rows on a GPU, or in host memory for -1 and where there is no GPU."""
    return rows.to(resolve(number)) if number >= 0 else on_host(rows)


def gather(parts: Sequence[Tensor], ids: Tensor, device: torch.device) -> Tensor:
    """The rows of these numbers, out of parts that follow one another, on the device."""
    if is_on_gpu(device) and not all(is_on_gpu(part.device) for part in parts):
        say_once("rows of a UnifiedTensor in host memory are gathered by the CPU and then copied to the GPU", 4)
    if len(parts) == 1 and not is_on_gpu(parts[0].device):
        return _take(parts[0], ids).to(device)
    # A GPU does not come back from a wrong id.
    ids = ids.to(device)
    rows = sum(part.size(0) for part in parts)
    wrong = ((ids < 0) | (ids >= rows)).nonzero()
    if wrong.numel() > 0:
        at = int(wrong[0])
        raise IndexError(f"ids[{at}] is {int(ids[at])}, but the table has {rows} rows")
    found = torch.empty((ids.numel(), *parts[0].shape[1:]), dtype=parts[0].dtype, device=device)
    start = 0
    for part in parts:
        here = ((ids >= start) & (ids < start + part.size(0))).nonzero().view(-1)
        found[here] = _take(part, ids[here] - start).to(device)
        start += part.size(0)
    return found


def _take(table: Tensor, ids: Tensor) -> Tensor:
    if is_on_gpu(table.device):
        return table[ids.to(table.device)]
    # The native gather does not know every kind of one byte, and need not.
    return torch.from_dlpack(take_rows(_bytes(table), on_host(ids))).view(table.dtype)
