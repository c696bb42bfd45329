"""Edges between layouts. Lists come out sorted by row and then by column, and equal edges keep their order."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

from ..._headwater import Topology
from ...pyg.topology import on_host

Lists = Tuple[Tensor, Tensor, Optional[Tensor], Optional[Tensor]]


def ptr2ind(ptr: Tensor) -> Tensor:
    """The row of every edge, out of where rows begin."""
    return torch.arange(ptr.numel() - 1, device=ptr.device).repeat_interleave(ptr.diff())


def coo_to_csr(
    row: Tensor,
    col: Tensor,
    edge_id: Optional[Tensor] = None,
    edge_weight: Optional[Tensor] = None,
    node_sizes: Optional[Tuple[int, int]] = None,
) -> Lists:
    """Edges as lists of their rows: where each begins, columns, ids and weights."""
    return _lists(row, col, edge_id, edge_weight, node_sizes, False)


def coo_to_csc(
    row: Tensor,
    col: Tensor,
    edge_id: Optional[Tensor] = None,
    edge_weight: Optional[Tensor] = None,
    node_sizes: Optional[Tuple[int, int]] = None,
) -> Lists:
    """Edges as lists of their columns: rows, where each begins, ids and weights."""
    sizes = None if node_sizes is None else (node_sizes[1], node_sizes[0])
    offsets, rows, ids, weights = _lists(col, row, edge_id, edge_weight, sizes, False)
    return rows, offsets, ids, weights


def turned(ptr: Tensor, ind: Tensor, edge_id: Optional[Tensor], edge_weight: Optional[Tensor]) -> Lists:
    """Lists of the other end of edges that are in lists already."""
    return _lists(ind, ptr2ind(ptr), edge_id, edge_weight, None, True)


def _lists(
    row: Tensor,
    col: Tensor,
    edge_id: Optional[Tensor],
    edge_weight: Optional[Tensor],
    sizes: Optional[Tuple[int, int]],
    is_sorted: bool,
) -> Lists:
    row, col = on_host(row), on_host(col)
    rows, cols = sizes or (_count(row), _count(col))
    order = None
    if not is_sorted:
        # Sorting is stable: by columns first, then by rows, is by both.
        first = Topology.from_coo(row, col, rows, cols, "csc")
        row, col = torch.from_dlpack(first.neighbours()), ptr2ind(torch.from_dlpack(first.offsets()))
        order = torch.from_dlpack(first.edge_ids())
    lists = Topology.from_coo(row, col, rows, cols, "csr", edge_ids=order)
    order = torch.from_dlpack(lists.edge_ids())
    of_edges = [None if own is None else _ordered(on_host(own), order) for own in (edge_id, edge_weight)]
    return torch.from_dlpack(lists.offsets()), torch.from_dlpack(lists.neighbours()), of_edges[0], of_edges[1]


def _count(ids: Tensor) -> int:
    return int(ids.max()) + 1 if ids.numel() > 0 else 0


def _ordered(own: Tensor, order: Tensor) -> Tensor:
    if own.numel() != order.numel():
        raise ValueError(f"{own.numel()} ids or weights were given for {order.numel()} edges")
    return own[order]
