"""The sampler of a loader: the one it is given, or one of its own."""

from __future__ import annotations

from typing import Any, Optional

from ..data import Dataset
from ..sampler import NeighborSampler
from ..sampler.neighbor_sampler import check_strategy
from ..typing import NumNeighbors


def sampler_of(
    given: Optional[NeighborSampler], data: Dataset, num_neighbors: Optional[NumNeighbors], **wished: Any
) -> NeighborSampler:
    """One that samples as `wished`, which are arguments of `NeighborSampler`.

    One that is given is used as it is, so a wish that it does not fulfil is refused.
    """
    check_strategy(wished["strategy"])
    if given is None:
        return NeighborSampler(
            data.graph, num_neighbors, edge_dir=data.edge_dir, num_nodes=data.node_counts(), **wished
        )
    for name in ("with_edge", "with_weight"):
        if wished.get(name) and not getattr(given, name):
            raise ValueError(f"{name}: the neighbor_sampler that is given was made without it")
    if num_neighbors is not None and _lists(num_neighbors) != _lists(given.num_neighbors):
        raise ValueError(
            f"num_neighbors is {num_neighbors}, and the neighbor_sampler that is given draws {given.num_neighbors}"
        )
    return given


def _lists(counts: Optional[NumNeighbors]) -> Any:
    if isinstance(counts, dict):
        return {kind: list(own) for kind, own in counts.items()}
    return counts if counts is None else list(counts)
