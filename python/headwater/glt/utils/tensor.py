"""Tensors out of what users give, alone or in dicts, lists and tuples, and tensors that processes share."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Union

import numpy as np
import torch
from torch import Tensor


def tensor_equal_with_device(lhs: Tensor, rhs: Tensor) -> bool:
    """Whether two tensors hold the same and lie on the same device."""
    return lhs.device == rhs.device and torch.equal(lhs, rhs)


def id2idx(ids: Union[List[int], Tensor]) -> Tensor:
    """Where each id stands in a list. Ids between that are not in it have -1, which `Feature` refuses.

    >>> id2idx([3, 1])
    tensor([-1,  1, -1,  0])
    """
    ids = torch.as_tensor(ids).to(torch.int64)
    if ids.numel() == 0:
        return ids.new_empty(0)
    places = ids.new_full((int(ids.max()) + 1,), -1)
    places[ids] = torch.arange(ids.numel(), device=ids.device)
    return places


def convert_to_tensor(data: Any, dtype: Optional[torch.dtype] = None) -> Any:
    """Every array in it as a tensor of this type. Other things stay."""
    if isinstance(data, np.ndarray):
        # torch does not read what it may not write.
        data = torch.from_numpy(data if data.flags.writeable else data.copy())
    return apply_to_all_tensor(data, lambda tensor: tensor if dtype is None else tensor.to(dtype))


def apply_to_all_tensor(data: Any, tensor_method: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls a function on every tensor and array in dicts, lists and tuples, and puts its answers in their places."""
    if isinstance(data, dict):
        return {key: apply_to_all_tensor(value, tensor_method, *args, **kwargs) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(apply_to_all_tensor(value, tensor_method, *args, **kwargs) for value in data)
    if isinstance(data, np.ndarray):
        data = convert_to_tensor(data)
    return tensor_method(data, *args, **kwargs) if isinstance(data, Tensor) else data


def share_memory(data: Any) -> Any:
    """Moves every tensor in it to memory that processes share."""
    return apply_to_all_tensor(data, Tensor.share_memory_)


def squeeze(data: Any) -> Any:
    """Every tensor in it without dimensions of one element."""
    return apply_to_all_tensor(data, Tensor.squeeze)


def shared(tensor: Optional[Tensor]) -> Optional[Tensor]:
    """The tensor in memory that processes share. What is not there yet is copied: whoever reads the old one goes on."""
    if tensor is None or tensor.is_cuda or tensor.is_shared():
        return tensor
    return tensor.clone().share_memory_()
