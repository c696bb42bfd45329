"""The rows that are asked for most, first: those are the ones that a GPU should hold."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

from .topology import Topology


def sort_by_in_degree(
    cpu_tensor: Tensor, shuffle_ratio: float, topo: Optional[Topology]
) -> Tuple[Tensor, Optional[Tensor]]:
    """Rows by falling degree, and where each id went. Rows beyond the topology stay where they are.

    The first `shuffle_ratio` of the rows are shuffled among themselves, so that GPUs that share them are asked equally often.
    """
    if topo is None:
        return cpu_tensor, None
    if not 0 <= shuffle_ratio <= 1:
        raise ValueError(f"shuffle_ratio is {shuffle_ratio}; it should be from 0 to 1")
    rows = topo.row_count
    if cpu_tensor.size(0) < rows:
        raise ValueError(f"there are {cpu_tensor.size(0)} rows for {rows} nodes")
    order = torch.arange(cpu_tensor.size(0))
    order[:rows] = topo.degrees.argsort(descending=True, stable=True)
    hot = int(rows * shuffle_ratio)
    order[:hot] = order[torch.randperm(hot)]
    places = torch.empty_like(order)
    places[order] = torch.arange(order.numel())
    return cpu_tensor[order], places
