"""Seed edges with their negatives, as seed nodes, and where they are among the nodes that were found."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from ...pyg.sampler import mixed
from .inputs import EdgeSamplerInput, NegativeSampling
from .negative_sampler import Pairs, say_where
from .walk import Numbers, Type, Walk


class Negatives:
    """The edges of each type, to draw negatives from. They are looked at when the first ones are wished for."""

    def __init__(self, walk: Walk, edge_dir: str) -> None:
        self._walk, self._edge_dir = walk, edge_dir
        self._lock = threading.Lock()
        self._pairs: Dict[Type, Pairs] = {}

    def of(self, kind: Type) -> Pairs:
        with self._lock:
            if kind not in self._pairs:
                say_where(self._walk.device)
                counts = self._walk.counts
                source, target = (None, None) if kind is None else (kind[0], kind[2])
                graph = self._walk.graphs[kind]
                self._pairs[kind] = Pairs(graph, self._edge_dir, counts[source], counts[target])
            return self._pairs[kind]


@dataclass
class Ends:
    """Sources and targets: positive ones first, then negative ones. Triplets have negative targets alone."""

    source: Tensor
    target: Tensor
    label: Optional[Tensor]
    positives: int
    is_triplet: bool

    @staticmethod
    def of(inputs: EdgeSamplerInput, negatives: Negatives, kind: Type, numbers: Numbers) -> Ends:
        source, target = torch.as_tensor(inputs.row).cpu(), torch.as_tensor(inputs.col).cpu()
        if source.numel() != target.numel():
            raise ValueError(f"there are {source.numel()} sources for {target.numel()} targets")
        label = None if inputs.label is None else inputs.label.cpu()
        ends = Ends(source, target, label, source.numel(), False)
        wished = NegativeSampling.cast(inputs.neg_sampling)
        if wished is not None:
            # Not the numbers of neighbours: the same numbers would draw alike.
            generator = torch.Generator().manual_seed(mixed((*numbers, 1)))
            ends._add(wished, negatives.of(kind), kind is None or kind[0] == kind[2], generator)
        return ends

    def _add(self, wished: NegativeSampling, pairs: Pairs, is_one_type: bool, generator: torch.Generator) -> None:
        weight = wished.weight
        if wished.is_triplet():
            if self.label is not None:
                raise ValueError("triplets have no labels; their targets are in `dst_pos_index` and `dst_neg_index`")
            self.is_triplet = True
            sources = self.source.repeat_interleave(int(wished.amount))
            self.target = torch.cat([self.target, pairs.draw_targets(sources, generator, weight)])
            return
        count = math.ceil(self.positives * wished.amount)
        source, target = pairs.draw_all(count, generator, (weight if is_one_type else None, weight))
        self.source, self.target = torch.cat([self.source, source]), torch.cat([self.target, target])
        label = torch.ones(self.positives) if self.label is None else self.label
        self.label = torch.cat([label, label.new_zeros((count, *label.shape[1:]))])

    def seeds(self, kind: Type) -> Tuple[Dict[Type, Tensor], Tuple[Tensor, Tensor]]:
        """Each end once, by type, and where each is. Seeds are the first of the nodes that are found."""
        source, target = (None, None) if kind is None else (kind[0], kind[2])
        if source == target:
            nodes, places = torch.cat([self.source, self.target]).unique(return_inverse=True)
            return {source: nodes}, (places[: self.source.numel()], places[self.source.numel() :])
        sources, of_sources = self.source.unique(return_inverse=True)
        targets, of_targets = self.target.unique(return_inverse=True)
        return {source: sources, target: targets}, (of_sources, of_targets)

    def metadata(self, places: Tuple[Tensor, Tensor], device: torch.device) -> Dict[str, Any]:
        """As GraphLearn names it."""
        source, target = (own.to(device) for own in places)
        if not self.is_triplet:
            label = None if self.label is None else self.label.to(device)
            return {"edge_label_index": torch.stack([source, target]), "edge_label": label}
        wrong = target[self.positives :].view(self.positives, -1) if self.positives > 0 else target[:0]
        return {
            "src_index": source,
            "dst_pos_index": target[: self.positives],
            "dst_neg_index": wrong.squeeze(-1),
        }
