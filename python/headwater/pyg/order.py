"""The order of an epoch, as a function of a seed and the epoch's number: it can be gone through again, and sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import RandomSampler

from .sampler import mixed


class Order(RandomSampler):
    """A permutation of what a loader was given. Whoever asks what kind of sampler this is hears that it shuffles."""

    def __init__(self, seed: int, data_source: Any = ()) -> None:
        self.seed, self.epoch = seed, 0
        # What RandomSampler has. A loader knows what there is to shuffle when it is made.
        self.data_source, self.replacement, self.generator, self._num_samples = data_source, False, None, None

    def positions(self) -> Tensor:
        """The order of this epoch."""
        generator = torch.Generator().manual_seed(mixed((self.seed, self.epoch)))
        return torch.randperm(len(self.data_source), generator=generator)

    def __iter__(self) -> Iterator[int]:
        return iter(self.positions().tolist())
