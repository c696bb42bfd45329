"""GPUs that reach one another's memory."""

from __future__ import annotations

from typing import List, Union

import torch


class DeviceGroup:
    """GPUs that together hold one copy of the rows that lie on GPUs."""

    def __init__(self, group_id: int, device_list: List[Union[int, torch.device]]) -> None:
        if len(device_list) == 0:
            raise ValueError(f"device group {group_id} has no devices")
        self.group_id = group_id
        self.device_list = device_list

    @property
    def size(self) -> int:
        return len(self.device_list)

    @property
    def numbers(self) -> list[int]:
        """The devices by number."""
        return [one if isinstance(one, int) else torch.device(one).index or 0 for one in self.device_list]
