"""How likely each node is to be sampled around given seeds: what to keep on a GPU when degrees do not tell."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

from ..utils.topo import ptr2ind
from .walk import Type, Walk


def probabilities(
    walk: Walk, seeds: Dict[Type, Tensor], fanouts: list[list[int]], sizes: Dict[Type, int]
) -> Dict[Type, Tensor]:
    """By node type. A node is found unless every edge to it is missed, and it asks in the hop after it was first found."""
    for kind, count in walk.counts.items():
        if sizes.get(kind, -1) < count:
            raise ValueError(f"node_cnt of {kind} is {sizes.get(kind)}; there are {count} nodes")
    found = {kind: torch.zeros(size, dtype=torch.float64) for kind, size in sizes.items()}
    for kind, nodes in seeds.items():
        if nodes.numel() > 0 and not 0 <= int(nodes.min()) <= int(nodes.max()) < sizes[kind]:
            wrong = nodes[(nodes < 0) | (nodes >= sizes[kind])][0]
            raise IndexError(f"a seed is {int(wrong)}, but there are only {sizes[kind]} nodes")
        found[kind][nodes.cpu().long()] = 1
    asks = {kind: own.clone() for kind, own in found.items()}
    for numbers in fanouts:
        # Chances of being missed are multiplied: their logarithms are added.
        missed = {kind: torch.zeros_like(own) for kind, own in found.items()}
        for kind, number in zip(walk.edge_types, numbers):
            topo = walk.graphs[kind].topo
            degrees = topo.degrees
            drawn = torch.ones(degrees.numel(), dtype=torch.float64)
            if number >= 0:
                drawn = (number / degrees.clamp(min=1).double()).clamp(max=1)
            chance = (asks[walk.asking[kind]][: degrees.numel()] * drawn)[ptr2ind(topo.indptr)]
            missed[walk.seen[kind]].index_add_(0, topo.indices, torch.log1p(-chance))
        for kind, own in found.items():
            now = 1 - (1 - own) * missed[kind].exp()
            asks[kind], found[kind] = now - own, now
    return {kind: own.float() for kind, own in found.items()}
