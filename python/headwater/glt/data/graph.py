"""A topology that can be walked, and where it lies: in host memory, or in that of a GPU."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ..._headwater import Topology as Lists
from .. import _places
from .topology import Topology


class Graph:
    """The edges of one type, for samplers.

    `mode` is 'CPU', 'ZERO_COPY' (host memory that the GPU reads) or 'CUDA' (memory of the GPU). Without a GPU 'ZERO_COPY'
    means 'CPU', and 'CUDA' raises RuntimeError when the graph is first used.
    """

    def __init__(self, topo: Topology, mode: str = "ZERO_COPY", device: Optional[int] = None) -> None:
        self.topo = topo
        self.mode = _places.checked_mode(mode, "mode")
        self.device = device
        # A device that is not there is said here and not by the first sample.
        if device is not None and self.mode != "CPU" and _places.has_gpu():
            _places.resolve(device)
        self._place: Optional[torch.device] = None
        self._columns: Optional[int] = None

    def lazy_init(self) -> None:
        """Finds the device of the graph. Everything that uses the graph calls this."""
        if self._place is None:
            self._place = _places.of_mode(self.mode, self.device)

    @property
    def place(self) -> torch.device:
        """The device that walks the graph."""
        self.lazy_init()
        return self._place

    def export_topology(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.topo.indptr, self.topo.indices, self.topo.edge_ids

    def share_ipc(self) -> tuple[Topology, str]:
        """What another process makes this graph of."""
        self.topo.share_memory_()
        return self.topo, self.mode

    @classmethod
    def from_ipc_handle(cls, ipc_handle: tuple[Topology, str]) -> Graph:
        topo, mode = ipc_handle
        return cls(topo, mode, device=None)

    @property
    def row_count(self) -> int:
        """How many lists there are."""
        self.lazy_init()
        return self.topo.row_count

    @property
    def col_count(self) -> int:
        """One more than the highest id in the lists."""
        self.lazy_init()
        if self._columns is None:
            self._columns = self.topo.col_count
        return self._columns

    @property
    def edge_count(self) -> int:
        self.lazy_init()
        return self.topo.edge_count

    @property
    def graph_handler(self) -> Lists:
        """Headwater's own lists of this graph."""
        return self.lists(self.row_count, self.col_count, False)

    def lists(self, rows: int, columns: int, weighted: bool) -> Lists:
        """Headwater's lists for this many nodes. Without weights, where weights are wished for, edges have equal ones."""
        topo = self.topo
        carried = {"edge_ids": topo.edge_ids}
        if weighted:
            weights = topo.edge_weights
            carried["weights"] = torch.ones(topo.edge_count) if weights is None else weights
        return _places.lists_of(topo.indptr, topo.indices, rows, columns, carried)

    def whereabouts(self) -> tuple[int, ...]:
        """Where the lists lie. They are walked there, so whoever does looks again when this has changed."""
        topo = self.topo
        weights = topo.edge_weights
        held = (topo.indptr, topo.indices, topo.edge_ids) + (() if weights is None else (weights,))
        return tuple(own.data_ptr() for own in held)

    def __getstate__(self) -> dict[str, Any]:
        # Which GPU is the receiver's to say.
        return {**self.__dict__, "_place": None, "device": None}
