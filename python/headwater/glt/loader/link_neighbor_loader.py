"""GraphLearn's `LinkNeighborLoader`."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from .. import _places
from ..data import Dataset
from ..sampler import NegativeSampling, NeighborSampler
from ..typing import InputEdges, NumNeighbors
from ._sampler import sampler_of
from .link_loader import LinkLoader


class LinkNeighborLoader(LinkLoader):
    """Batches of edges, and of negatives if they are wished for, with a sampled neighbourhood of their ends.

    A `neighbor_sampler` of one's own is used as it is. `seed` fixes what is drawn and in which order. `num_workers` is a
    number of threads.
    """

    def __init__(
        self,
        data: Dataset,
        num_neighbors: NumNeighbors,
        neighbor_sampler: Optional[NeighborSampler] = None,
        edge_label_index: InputEdges = None,
        edge_label: Optional[Tensor] = None,
        neg_sampling: Optional[NegativeSampling] = None,
        with_edge: bool = False,
        with_weight: bool = False,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        strategy: str = "random",
        device: _places.Device = torch.device("cuda:0"),
        seed: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        neighbor_sampler = sampler_of(
            neighbor_sampler,
            data,
            num_neighbors,
            device=device,
            with_edge=with_edge,
            with_neg=neg_sampling is not None,
            with_weight=with_weight,
            strategy=strategy,
            seed=seed,
        )
        wished = {"batch_size": batch_size, "shuffle": shuffle, "drop_last": drop_last, **kwargs}
        super().__init__(
            data, neighbor_sampler, edge_label_index, edge_label, neg_sampling, device, seed=seed, **wished
        )
