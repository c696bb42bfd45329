"""Ways between the host and a GPU that gradients find back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import gpu as _gpu
from ._headwater import Table
from ._unified_memory import result


class Rows(torch.autograd.Function):
    """The gather. Its gradient goes to the rows that were read."""

    @staticmethod
    def forward(ctx: Any, host: Tensor, ids: Tensor, table: Table, place: _gpu.Place) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.like = host.detach()
        return _gpu.gather(table, ids, host.dtype, place)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple:
        (ids,) = ctx.saved_tensors
        return torch.zeros_like(ctx.like).index_add_(0, ids.cpu().long(), slope.cpu()), None, None, None


class ToHost(torch.autograd.Function):
    """A result in memory that both sides read. Its gradient goes back to where it was computed."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        ctx.device = value.device
        return result(value)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return slope.as_subclass(Tensor).to(ctx.device)


class Seen(torch.autograd.Function):
    """The same memory from the other side. Gradients come back to the host."""

    @staticmethod
    def forward(ctx: Any, host: Tensor, alias: Tensor) -> Tensor:
        return alias.view_as(alias)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple:
        return slope.cpu(), None
