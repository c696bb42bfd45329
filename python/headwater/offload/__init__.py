"""Activations that leave a GPU between forward and backward.

    off = headwater.Offload(host="16GB", disk="/nvme")
    with off:
        loss = model(batch)
    loss.backward()
    print(off.report())

What autograd saves in the forward pass of any model goes to pinned host memory, and from there to disk, while the GPU computes, and is
back before the backward pass needs it. Gradients are those of the same run without it, to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._headwater import OffloadError
from .checkpoint import checkpoint
from .context import Offload
from .report import Report

if TYPE_CHECKING:
    from .hugging_face import OffloadCallback

__all__ = ["Offload", "OffloadError", "Report", "checkpoint", "offload_callback"]


def offload_callback(**settings: Any) -> OffloadCallback:
    """A callback for the `Trainer` of `transformers`, with the arguments of `Offload`:

        callback = headwater.offload_callback(host="16GB", disk="/nvme")
        Trainer(..., callbacks=[callback]).train()
        print(callback.report())

    Each training forward pass of the model is in the context, with accumulation, checkpointing and mixed precision; evaluation is not.
    When training ends, the numbers of the report are the last of `trainer.state.log_history`, as `offload_left` and so on, and the logger
    "headwater.offload.hugging_face" has its words. `remove()` takes hooks off the model after training that raised."""
    try:
        from .hugging_face import OffloadCallback
    except ImportError as why:
        raise ImportError("headwater.offload_callback needs transformers, whose Trainer needs accelerate") from why
    return OffloadCallback(**settings)
