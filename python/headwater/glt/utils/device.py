"""Which device to use, where the caller leaves it open."""

from __future__ import annotations

import itertools
from typing import Optional, Union

import torch

_turns = itertools.count()


def get_available_device(device: Optional[Union[torch.device, str, int]] = None) -> torch.device:
    """The device that was asked for, or the current GPU, or the CPU."""
    if device is not None:
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def assign_device() -> torch.device:
    """The GPUs in turn, or the CPU where there are none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", next(_turns) % torch.cuda.device_count())


def ensure_device(device: torch.device) -> None:
    """Makes a GPU the current one."""
    if device.type == "cuda" and device.index is not None and device.index != torch.cuda.current_device():
        torch.cuda.set_device(device)
