"""Dicts of lists, checkpoints, sizes in words, and arguments that may come as what they are made of."""

from __future__ import annotations

import os
import random
from typing import Any, Optional, Union

import numpy as np
import torch

_UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "K": 2**10, "M": 2**20, "G": 2**30}


class CastMixin:
    """Whoever takes an argument of such a class takes what it is made of too: its fields as a tuple, a dict, or the first."""

    @classmethod
    def cast(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs:
            given = args[0]
            if given is None or isinstance(given, CastMixin):
                return given
            if isinstance(given, (tuple, list)):
                return cls(*given)
            if isinstance(given, dict):
                return cls(**given)
        return cls(*args, **kwargs)


def merge_dict(in_dict: dict[Any, Any], out_dict: dict[Any, Any]) -> None:
    """Puts each value at the end of the list of its key."""
    for key, value in in_dict.items():
        out_dict.setdefault(key, []).append(value)


def count_dict(in_dict: dict[Any, Any], out_dict: dict[Any, Any], target_len: int) -> None:
    """Puts the length of each value into the list of its key, as its element number `target_len`. Gaps are zeros."""
    for key, value in in_dict.items():
        counts = out_dict.setdefault(key, [])
        counts.extend([0] * (target_len - len(counts) - 1))
        counts.append(len(value))


def index_select(data: Any, index: Any) -> Any:
    """`data[index]` for every tensor in dicts, lists and tuples. An index of two is a range."""
    if data is None:
        return None
    if isinstance(data, dict):
        return {key: index_select(value, index) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(index_select(value, index) for value in data)
    return data[index[0] : index[1]] if isinstance(index, tuple) else data[index]


def ensure_dir(dir_path: str) -> None:
    """Makes a folder where there is none."""
    os.makedirs(dir_path, exist_ok=True)


def seed_everything(seed: int) -> None:
    """Seeds the generators of Python, NumPy and torch. Samplers that were given no seed take theirs from torch's."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def parse_size(sz: Union[int, float, str]) -> int:
    """Bytes of a size in words.

    >>> parse_size("1.5K")
    1536
    """
    if isinstance(sz, (int, float)):
        return int(sz)
    if isinstance(sz, str):
        for suffix, unit in _UNITS.items():
            if sz.upper().endswith(suffix):
                return int(float(sz[: -len(suffix)]) * unit)
        if sz.isdigit():
            return int(sz)
    raise ValueError(f"{sz!r} is not a size; sizes are like 4096, '512K' or '1.5GB'")


def _path(ckpt_dir: str, ckpt_seq: int) -> str:
    return os.path.join(ckpt_dir, f"model_seq_{ckpt_seq}.ckpt")


def save_ckpt(
    ckpt_seq: int,
    ckpt_dir: str,
    model: torch.nn.Module,
    optimizer: Optional[torch.optim.Optimizer] = None,
    epoch: float = 0,
) -> None:
    """Keeps a model, with its optimizer if there is one."""
    ensure_dir(ckpt_dir)
    kept = {"seq": ckpt_seq, "epoch": epoch, "model_state_dict": model.state_dict()}
    if optimizer is not None:
        kept["optimizer_state_dict"] = optimizer.state_dict()
    torch.save(kept, _path(ckpt_dir, ckpt_seq))


def load_ckpt(
    ckpt_seq: int, ckpt_dir: str, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None
) -> float:
    """Brings a model back and tells its epoch, or -1 where nothing was kept."""
    path = _path(ckpt_dir, ckpt_seq)
    if not os.path.exists(path):
        return -1
    kept = torch.load(path, weights_only=True)
    model.load_state_dict(kept["model_state_dict"])
    if optimizer is not None:
        optimizer.load_state_dict(kept["optimizer_state_dict"])
    return kept["epoch"]
