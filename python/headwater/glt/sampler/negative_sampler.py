"""Pairs of nodes that are no edges. Pairs are drawn and looked up, and those that are edges are drawn again."""

from __future__ import annotations

from typing import Literal, Optional, Tuple

import torch
from torch import Tensor

from ...pyg.sampler import mixed, seed_of
from .. import _places
from ..data.graph import Graph
from ..utils.topo import coo_to_csr, ptr2ind

# How often pairs are drawn anew before the rest are chosen among all that are left.
_ROUNDS = 32


class Pairs:
    """The edges of one type, to be asked whether a pair is one of them, and for pairs that are not."""

    def __init__(self, graph: Graph, edge_dir: str, sources: int, targets: int) -> None:
        self._is_out = edge_dir == "out"
        self.sources, self.targets = sources, targets
        self._offsets, self._others = graph.topo.indptr, graph.topo.indices
        rises = self._others.diff() >= 0
        # Where one list ends and the next begins, ids may fall.
        begins = self._offsets[1:-1]
        rises[begins[(begins > 0) & (begins < self._others.numel())] - 1] = True
        if not bool(rises.all()):
            self._offsets, self._others, _, _ = coo_to_csr(
                ptr2ind(self._offsets), self._others, node_sizes=(graph.row_count, graph.col_count)
            )
        longest = int(self._offsets.diff().max()) if self._offsets.numel() > 1 else 0
        self._steps = longest.bit_length()

    def are_edges(self, source: Tensor, target: Tensor) -> Tensor:
        """Which of these pairs are edges: each is searched for in the list of its owner."""
        owner, other = (source, target) if self._is_out else (target, source)
        has_list = owner < self._offsets.numel() - 1
        if self._others.numel() == 0:
            return torch.zeros_like(has_list)
        owner = torch.where(has_list, owner, 0)
        low, end = self._offsets[owner], self._offsets[owner + 1]
        high = end
        last = self._others.numel() - 1
        for _ in range(self._steps):
            middle = (low + high) // 2
            is_left = (low < high) & (self._others[middle.clamp(max=last)] < other)
            low, high = torch.where(is_left, middle + 1, low), torch.where(is_left, high, middle)
        return has_list & (low < end) & (self._others[low.clamp(max=last)] == other)

    def draw(
        self, count: int, generator: torch.Generator, rounds: int, weights: Tuple[Optional[Tensor], Optional[Tensor]]
    ) -> Tuple[Tensor, Tensor]:
        """Up to `count` pairs that are no edges."""
        source = torch.empty(0, dtype=torch.long)
        target = source
        is_possible = self.sources > 0 and self.targets > 0
        for _ in range(rounds if is_possible else 0):
            missing = count - source.numel()
            if missing == 0:
                break
            drawn = (
                _drawn(self.sources, missing, generator, weights[0]),
                _drawn(self.targets, missing, generator, weights[1]),
            )
            keep = ~self.are_edges(*drawn)
            source, target = torch.cat([source, drawn[0][keep]]), torch.cat([target, drawn[1][keep]])
        return source, target

    def draw_all(
        self, count: int, generator: torch.Generator, weights: Tuple[Optional[Tensor], Optional[Tensor]]
    ) -> Tuple[Tensor, Tensor]:
        """`count` pairs that are no edges. Where nearly all pairs are edges, the rest are chosen among those that are not."""
        source, target = self.draw(count, generator, _ROUNDS, weights)
        missing = count - source.numel()
        if missing == 0:
            return source, target
        left = torch.empty(0, dtype=torch.long) if weights[1] is not None else self._left()
        if left.numel() == 0:
            raise ValueError(f"only {source.numel()} of {count} negatives were found; nearly all pairs are edges")
        chosen = left[_drawn(left.numel(), missing, generator, None)]
        return torch.cat([source, chosen // self.targets]), torch.cat([target, chosen % self.targets])

    def _left(self) -> Tensor:
        """All pairs that are no edges, as one number each. There are not many more pairs than edges when this is asked."""
        owner = ptr2ind(self._offsets)
        source, target = (owner, self._others) if self._is_out else (self._others, owner)
        is_edge = torch.zeros(self.sources * self.targets, dtype=torch.bool)
        is_edge[source * self.targets + target] = True
        return (~is_edge).nonzero().view(-1)

    def draw_targets(self, source: Tensor, generator: torch.Generator, weight: Optional[Tensor]) -> Tensor:
        """A target for each source that the source has no edge to."""
        target = _drawn(self.targets, source.numel(), generator, weight)
        for _ in range(_ROUNDS):
            again = self.are_edges(source, target).nonzero().view(-1)
            if again.numel() == 0:
                return target
            target[again] = _drawn(self.targets, again.numel(), generator, weight)
        again = self.are_edges(source, target)
        for node in source[again].unique().tolist():
            here = (again & (source == node)).nonzero().view(-1)
            chance = torch.ones(self.targets) if weight is None else weight.clone().float()
            chance[self._targets_of(node)] = 0
            if not bool((chance > 0).any()):
                raise ValueError(f"node {node} has an edge to every node, so there are no negatives for it")
            target[here] = _drawn(self.targets, here.numel(), generator, chance)
        return target

    def _targets_of(self, source: int) -> Tensor:
        if not self._is_out:
            return ptr2ind(self._offsets)[self._others == source]
        return self._others[self._offsets[source] : self._offsets[source + 1]]


def _drawn(nodes: int, count: int, generator: torch.Generator, weight: Optional[Tensor]) -> Tensor:
    if weight is None:
        return torch.randint(nodes, (count,), generator=generator)
    if weight.numel() != nodes:
        raise ValueError(f"the weights of negatives are {weight.numel()}; there are {nodes} nodes")
    # torch.multinomial stops at 2**24 nodes.
    sums = weight.cpu().double().cumsum(0)
    if bool((weight < 0).any()) or not sums[-1] > 0:
        raise ValueError("the weights of negatives should not be negative, and some should be positive")
    drawn = torch.rand(count, generator=generator, dtype=torch.double) * sums[-1]
    return torch.searchsorted(sums, drawn, right=True).clamp(max=nodes - 1)


class RandomNegativeSampler:
    """Pairs of nodes that are no edges, drawn evenly from all of them.

    `mode` is 'CUDA' or 'CPU'; it says where pairs come to. They are drawn by the CPU in both.
    """

    def __init__(
        self,
        graph: Graph,
        mode: str = "CUDA",
        edge_dir: Literal["in", "out"] = "out",
        *,
        seed: Optional[int] = None,
    ) -> None:
        if str(mode).upper() not in ("CPU", "CUDA"):
            raise ValueError(f"mode is {mode!r}; it should be 'CPU' or 'CUDA'")
        check_direction(graph, edge_dir)
        self.edge_dir = edge_dir
        self._device = _places.CPU if str(mode).upper() == "CPU" else _places.resolve(graph.device)
        say_where(self._device)
        rows, cols = graph.row_count, graph.col_count
        self._pairs = Pairs(graph, edge_dir, *((rows, cols) if edge_dir == "out" else (cols, rows)))
        self._generator = torch.Generator().manual_seed(mixed((seed_of(seed),)))

    def sample(self, req_num: int, trials_num: int = 5, padding: bool = False) -> Tensor:
        """Sources and targets. Pairs that are edges are drawn again at most `trials_num` times in all.

        Fewer than `req_num` may be found so; with `padding` the rest are any pairs, edges too.
        """
        source, target = self._pairs.draw(req_num, self._generator, trials_num, (None, None))
        missing = req_num - source.numel()
        if padding and missing > 0:
            source = torch.cat([source, _drawn(self._pairs.sources, missing, self._generator, None)])
            target = torch.cat([target, _drawn(self._pairs.targets, missing, self._generator, None)])
        return torch.stack([source, target]).to(self._device)


def say_where(device: torch.device) -> None:
    """Negatives for a GPU are not drawn there."""
    if _places.is_on_gpu(device):
        _places.say_once("negatives are drawn by the CPU, with torch, and then copied to the GPU", 4)


def check_direction(graph: Graph, edge_dir: str) -> None:
    """Lists of sources are walked along edges, and lists of targets against them."""
    if edge_dir not in ("in", "out"):
        raise ValueError(f"edge_dir is {edge_dir!r}; it should be 'in' or 'out'")
    wished = "CSR" if edge_dir == "out" else "CSC"
    if graph.topo.layout != wished:
        raise ValueError(f"edge_dir={edge_dir!r} needs a topology in the layout {wished}, not in {graph.topo.layout}")
