"""A GPU as torch knows it: tensors, streams, and work aside that others wait for.

Results lie in tensors of torch's own, so its allocator knows when their memory is free. Work goes to torch's current stream.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Optional

import torch
from torch import Tensor

from ._headwater import DeviceGraph, DeviceSample, DeviceSampler, Table, _lasting_stream, gpu_memory

# Handles of streams that are never destroyed: the default ones, and those of torch's pool that were met.
_lasting = {0, 1, 2}


def _named(stream: torch.cuda.Stream) -> Any:
    """What native calls take for a stream: its handle if it is never destroyed. A stream that torch was lent has its handle for an
    id; it may be gone after the call, so the object goes along."""
    handle = stream.cuda_stream
    if handle not in _lasting:
        if stream.stream_id == handle:
            return stream
        _lasting_stream(handle)
        _lasting.add(handle)
    return handle


class Lane:
    """Streams of one thread: one for its work, and one that goes before what else the GPU has to do."""

    def __init__(self, device: torch.device) -> None:
        self.own, self.urgent = torch.cuda.Stream(device), torch.cuda.Stream(device, -1)


# Lanes of each GPU that nobody uses just now.
_idle: dict[int, list[Lane]] = {}
_thread = threading.local()


_HERE = nullcontext()


class Place:
    """A GPU, and where its work goes."""

    def __init__(self, device: torch.device) -> None:
        if not torch.cuda.is_available():
            why = "torch was built without CUDA" if torch.version.cuda is None else "torch sees no GPU"
            raise RuntimeError(f"device is {str(device)!r}, but {why}; leave `device` out to use the CPU")
        self.ordinal = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", self.ordinal)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Memory of the current stream."""
        return torch.empty(tuple(shape), dtype=dtype, device=self.device)

    def stream(self) -> Any:
        """The current stream, as native calls take it."""
        handle = torch._C._cuda_getCurrentRawStream(self.ordinal)
        return handle if handle in _lasting else _named(torch.cuda.current_stream(self.device))

    def bring(self, value: Tensor, *, non_blocking: bool = False) -> Tensor:
        """A tensor on this GPU. `non_blocking` is for whoever leaves a pinned tensor as it is until the copy is made. Of other
        host memory the driver has a copy when it returns, so that nobody waits for what the stream has to do before."""
        return value.to(self.device, non_blocking=non_blocking or not value.is_pinned())

    def free_bytes(self) -> int:
        """Memory that nobody holds. What torch keeps for later is given back first."""
        torch.cuda.empty_cache()
        return gpu_memory(self.ordinal)[0]

    def entered(self) -> AbstractContextManager:
        """The GPU is the thread's current one meanwhile, which saves every native call from making it so by itself."""
        return _HERE if torch.cuda.current_device() == self.ordinal else torch.cuda.device(self.ordinal)

    def enter(self) -> Lane:
        """Gives the current thread streams of its own, until whoever ends the thread gives them back with `leave`."""
        try:
            # Asked for at once: another thread may take the last one. Streams are used again: scratch memory is theirs.
            lane = _idle.setdefault(self.ordinal, []).pop()
        except IndexError:
            lane = Lane(self.device)
        torch.cuda.set_stream(lane.own)
        _thread.lane = lane
        return lane

    def leave(self, lanes: list[Lane]) -> None:
        """Takes back the streams of threads that have ended."""
        _idle.setdefault(self.ordinal, []).extend(lanes)

    def urgent_stream(self) -> Any:
        """A stream for short work that the host waits for: the thread's own, or the current one."""
        lane = getattr(_thread, "lane", None)
        return self.stream() if lane is None or lane.own.device != self.device else _named(lane.urgent)

    def mark(self) -> Any:
        """This point of the current stream."""
        return torch.cuda.current_stream(self.device).record_event()

    def timed_mark(self) -> Any:
        """This point of the current stream, whose moment will be known; none while a stream records work for later."""
        if self.is_capturing():
            return None
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(torch.cuda.current_stream(self.device))
        return mark

    def ms_between(self, one: Any, other: Any) -> Optional[float]:
        """Milliseconds between two such points; none when the GPU is not past both."""
        return one.elapsed_time(other) if one.query() and other.query() else None

    def wait(self, mark: Any) -> None:
        """Returns when the GPU is past a mark."""
        mark.synchronize()

    def settle(self) -> None:
        """Returns when the current stream has done its work."""
        if not self.is_capturing():
            torch.cuda.current_stream(self.device).synchronize()

    def drain(self) -> None:
        """Returns when the GPU has nothing to do."""
        torch.cuda.synchronize(self.device)

    def is_capturing(self) -> bool:
        """Whether the current stream records work for later."""
        return torch.cuda.is_current_stream_capturing()

    def meet(self, mark: Any, tensors: Iterable[Tensor]) -> None:
        """The current stream goes on behind a mark, with tensors that were made before it."""
        current = torch.cuda.current_stream(self.device)
        current.wait_event(mark)
        for tensor in tensors:
            if tensor.device == self.device:
                tensor.record_stream(current)

    def use(self, tensor: Tensor) -> None:
        """Whoever frees a tensor does so behind what the current stream has to do now."""
        tensor.record_stream(torch.cuda.current_stream(self.device))

    def memory_use(self) -> tuple[int, int]:
        """Bytes of memory that tensors lie in, and the most of them since torch was told to forget that."""
        # The flat form of this takes several times as long to make.
        allocated = torch.cuda.memory_stats_as_nested_dict(self.device).get("allocated_bytes", {}).get("all", {})
        return allocated.get("current", 0), allocated.get("peak", 0)

    def total_bytes(self) -> int:
        """Memory that the GPU has."""
        return gpu_memory(self.ordinal)[1]

    def __repr__(self) -> str:
        return f"Place({self.device})"


def place_of(device: Any) -> Optional[Place]:
    """The GPU that a user means, or none for the CPU."""
    if device is None:
        return None
    wished = torch.device(device)
    if wished.type == "cpu":
        return None
    if wished.type != "cuda":
        raise ValueError(f"device is {str(wished)!r}; it should be 'cpu' or 'cuda'")
    return Place(wished)


class Drawer:
    """Draws on a GPU what `Sampler` draws on the CPU, into tensors of torch.

    Rows of other threads' batches may be on their way to the GPU. It draws first: the host waits for how much there is.
    """

    def __init__(self, graph: DeviceGraph, fanouts: Sequence[Sequence[int]], place: Place, **wishes: bool) -> None:
        self._sampler, self._place = DeviceSampler(graph, fanouts, **wishes), place

    def sample(self, seeds: Any, numbers: tuple[int, int, int]) -> Drawn:
        """The neighbourhood of seeds in host memory."""
        return Drawn(self._sampler.sample(seeds, numbers, self._place.urgent_stream()), self._place)

    def sample_induced(self, seeds: Any, numbers: tuple[int, int, int]) -> Drawn:
        """As `sample`, with every edge among the nodes that were found."""
        return Drawn(self._sampler.sample_induced(seeds, numbers, self._place.urgent_stream()), self._place)


class Drawn:
    """A sample of a GPU's, read as `Sample` is."""

    def __init__(self, sample: DeviceSample, place: Place) -> None:
        self._sample, self._place = sample, place
        self.nodes_per_hop, self.edges_per_hop = sample.nodes_per_hop, sample.edges_per_hop

    def nodes(self, node_type: int) -> Tensor:
        return self._filled([self._sample.node_count(node_type)], self._sample.nodes_into, node_type)[0]

    def trees(self, node_type: int) -> Optional[Tensor]:
        return self._or_none([self._sample.node_count(node_type)], self._sample.trees_into, node_type)

    def edges(self, relation: int) -> Tensor:
        return self._filled([2, self._sample.edge_count(relation)], self._sample.edges_into, relation)[0]

    def edge_ids(self, relation: int) -> Optional[Tensor]:
        return self._or_none([self._sample.edge_count(relation)], self._sample.edge_ids_into, relation)

    def whole(self) -> tuple[Tensor, Tensor, Tensor]:
        """Nodes, edges and ids of edges of a graph of one type, by one call."""
        nodes, edges = self._sample.node_count(0), self._sample.edge_count(0)
        made = [self._place.empty(shape, torch.long) for shape in ((nodes,), (2, edges), (edges,))]
        self._sample._write(*(own.data_ptr() for own in made), self._place.stream())
        return tuple(made)

    def _or_none(self, shape: list[int], fill: Any, at: int) -> Optional[Tensor]:
        out, is_there = self._filled(shape, fill, at)
        return out if is_there else None

    def _filled(self, shape: list[int], fill: Any, at: int) -> tuple[Tensor, Any]:
        out = self._place.empty(shape, torch.long)
        return out, fill(at, out, self._place.stream())


def gather(table: Table, ids: Tensor, dtype: torch.dtype, place: Place) -> Tensor:
    """`rows[ids]` of a table, on the current stream."""
    count = ids.numel()
    out = place.empty((count, *table.shape[1:]), dtype)
    is_plain = ids.dtype == torch.int64 and ids.is_contiguous() and ids.device == out.device
    # Addresses are believed, so lengths are compared here; whatever does not fit is refused by the other call.
    if count > 0 and is_plain and out.nbytes == count * table.row_bytes:
        table._gather(ids.data_ptr(), count, out.data_ptr(), place.stream())
    elif count > 0:
        table.gather_into(ids, out, place.stream())
    return out


# GPUs that tensors were met on: tensors lie there, so nobody has to ask whether they are.
_places: dict[torch.device, Place] = {}


def holding(tensors: dict[str, Tensor]) -> Optional[Place]:
    """The GPU that all of them lie on, or none where they lie in host memory."""
    found = [(name, tensor.device) for name, tensor in tensors.items()]
    if not found:
        return None
    first, device = found[0]
    for name, other in found:
        if other != device:
            raise ValueError(f"{name} lies on {other} and {first} on {device}; they should lie on one device")
    if device.type == "cpu":
        return None
    place = _places.get(device)
    if place is None:
        place = _places[device] = place_of(device)
    return place


def lies_there(tensor: Tensor) -> bool:
    """Whether a tensor lies on a GPU."""
    return tensor.is_cuda


def current() -> Optional[Place]:
    """The GPU that torch uses now, where it has one. A process that was forked from one that uses a GPU has none."""
    is_there = torch.cuda.is_available() and not torch.cuda._is_in_bad_fork()
    return Place(torch.device("cuda")) if is_there else None
