"""Who is next to whom, in lists of sources (CSR) or of targets (CSC), whichever way edges come."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any, Literal, Optional, Tuple, Union

import torch
from torch import Tensor

from ...pyg.topology import on_host
from ..typing import TensorDataType
from ..utils.tensor import shared
from ..utils.topo import Lists, coo_to_csr, ptr2ind, turned

_LAYOUTS = ("COO", "CSR", "CSC")


class Topology:
    """The edges of one type as lists, in host memory.

    >>> topology = Topology(torch.tensor([[0, 1, 0], [2, 2, 1]]))
    >>> topology.indptr, topology.indices, topology.edge_ids
    (tensor([0, 2, 3]), tensor([1, 2, 2]), tensor([2, 0, 1]))

    `edge_index` is (rows, columns); in `input_layout` CSR the rows, in CSC the columns, are where lists begin. Edges without
    ids are numbered as they come. Lists that come in the `layout` that is wished for are kept as they are.
    """

    def __init__(
        self,
        edge_index: Union[TensorDataType, Tuple[TensorDataType, TensorDataType]],
        edge_ids: Optional[TensorDataType] = None,
        edge_weights: Optional[TensorDataType] = None,
        input_layout: str = "COO",
        layout: Literal["CSR", "CSC"] = "CSR",
    ) -> None:
        came, wished = str(input_layout).upper(), str(layout).upper()
        if came not in _LAYOUTS:
            raise ValueError(f"input_layout is {input_layout!r}; it should be 'COO', 'CSR' or 'CSC'")
        if wished not in _LAYOUTS[1:]:
            raise ValueError(f"layout is {layout!r}; it should be 'CSR' or 'CSC'")
        if len(edge_index) != 2:
            raise ValueError(f"edge_index has {len(edge_index)} parts; it should have rows and columns")
        row, col = (_ids(own) for own in edge_index)
        edges = {"COO": col, "CSR": col, "CSC": row}[came].numel()
        ids = torch.arange(edges) if edge_ids is None else _ids(edge_ids)
        weights = None if edge_weights is None else on_host(torch.as_tensor(edge_weights))
        if weights is not None and weights.dtype != torch.float64:
            weights = weights.to(torch.float32)
        _check(came, row, col, ids, weights)
        self._layout = wished
        if came == "COO":
            ends = (row, col) if wished == "CSR" else (col, row)
            lists = coo_to_csr(*ends, ids, weights)
        else:
            offsets, others = (row, col) if came == "CSR" else (col, row)
            lists = (offsets, others, ids, weights)
            if came != wished:
                lists = turned(*lists)
        self._indptr, self._indices, self._edge_ids, self._edge_weights = lists

    def to_coo(self) -> Lists:
        """Rows, columns, ids and weights of edges."""
        owners = ptr2ind(self._indptr)
        ends = (owners, self._indices) if self._layout == "CSR" else (self._indices, owners)
        return (*ends, self._edge_ids, self._edge_weights)

    def to_csr(self) -> Lists:
        """Where rows begin, columns, ids and weights of edges."""
        return self._lists() if self._layout == "CSR" else turned(*self._lists())

    def to_csc(self) -> Lists:
        """Rows, where columns begin, ids and weights of edges."""
        offsets, rows, ids, weights = self._lists() if self._layout == "CSC" else turned(*self._lists())
        return rows, offsets, ids, weights

    def _lists(self) -> Lists:
        return self._indptr, self._indices, self._edge_ids, self._edge_weights

    @property
    def layout(self) -> str:
        return self._layout

    @property
    def indptr(self) -> Tensor:
        return self._indptr

    @property
    def indices(self) -> Tensor:
        return self._indices

    @property
    def edge_ids(self) -> Tensor:
        return self._edge_ids

    @property
    def edge_weights(self) -> Optional[Tensor]:
        return self._edge_weights

    @property
    def degrees(self) -> Tensor:
        return self._indptr.diff()

    @property
    def row_count(self) -> int:
        """How many lists there are."""
        return max(self._indptr.numel() - 1, 0)

    @property
    def col_count(self) -> int:
        """How many nodes the lists may name: one more than the highest id in them."""
        return int(self._indices.max()) + 1 if self._indices.numel() > 0 else 0

    @property
    def edge_count(self) -> int:
        return self._indices.numel()

    def share_memory_(self) -> None:
        """Moves the lists to memory that processes share. Whoever walks them goes on in the old ones."""
        self._indptr, self._indices = shared(self._indptr), shared(self._indices)
        self._edge_ids, self._edge_weights = shared(self._edge_ids), shared(self._edge_weights)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key, None)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, value)


def _ids(values: Any) -> Tensor:
    values = on_host(torch.as_tensor(values))
    if values.is_floating_point() and values.numel() > 0:
        raise ValueError(f"ids have elements of {values.dtype}; they should be whole numbers")
    return values.to(torch.int64).view(-1)


def _check(came: str, row: Tensor, col: Tensor, ids: Tensor, weights: Optional[Tensor]) -> None:
    """Lists as they come are not looked through again before they are walked, so their shape is checked here."""
    edges = col.numel() if came != "CSC" else row.numel()
    if came == "COO" and row.numel() != edges:
        raise ValueError(f"edge_index has {row.numel()} rows for {edges} columns")
    for name, own in (("edge_ids", ids), ("edge_weights", weights)):
        if own is not None and own.numel() != edges:
            raise ValueError(f"{name} has {own.numel()} elements for {edges} edges")
    if came != "COO":
        offsets = row if came == "CSR" else col
        ends = (int(offsets[0]), int(offsets[-1])) if offsets.numel() > 0 else (0, 0)
        if ends != (0, edges) or bool((offsets.diff() < 0).any()):
            words = f"they should go from 0 to {edges} and never fall"
            raise ValueError(f"lists begin at {ends[0]} and end at {ends[1]}; {words}")


def _sent(topology: Topology) -> Any:
    topology.share_memory_()
    return _arrived, (dict(topology.__dict__),)


def _arrived(state: dict[str, Any]) -> Topology:
    made = Topology.__new__(Topology)
    made.__dict__.update(state)
    return made


# Lists go to other processes through shared memory, never through a copy in a pipe.
ForkingPickler.register(Topology, _sent)
