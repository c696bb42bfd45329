"""Activations that leave a GPU between forward and backward.

    off = headwater.Offload(host="16GB", disk="/nvme")
    with off:
        loss = model(batch)
    loss.backward()
    print(off.report())

What autograd saves in the forward pass of any model goes to pinned host memory, and from there to disk, while the GPU computes, and is
back before the backward pass needs it. Gradients are those of the same run without it, to the bit.
"""

from .._headwater import OffloadError
from .checkpoint import checkpoint
from .context import Offload
from .report import Report

__all__ = ["Offload", "OffloadError", "Report", "checkpoint"]
