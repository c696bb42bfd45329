"""Graphs by edge type as one graph that Headwater walks, and its samplers.

Whoever owns the lists asks for neighbours: the source of an edge in direction 'out', its target in direction 'in'.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from ..._headwater import Graph as Native
from ..._headwater import Sample, Sampler
from ...pyg.topology import on_host
from .. import _places
from ..data.graph import Graph

Type = Any  # a node type, an edge type, or None for those of a graph with one type
Numbers = Tuple[int, int, int]


def first_seen(ids: Tensor) -> Tensor:
    """Each id once, in the order in which they first come."""
    once, places = ids.unique(return_inverse=True)
    if once.numel() == ids.numel():
        return ids
    first = places.new_full((once.numel(),), ids.numel())
    first.scatter_reduce_(0, places, torch.arange(ids.numel(), device=ids.device), "amin")
    return ids[first.sort().values]


class Walk:
    """Graphs of several edge types, with the number of nodes of each type."""

    def __init__(
        self,
        graphs: Dict[Type, Graph],
        edge_dir: str,
        counts: Dict[Type, int],
        device: torch.device,
        weighted: bool,
        with_edge: bool,
    ) -> None:
        self.graphs = graphs
        self.edge_types = list(graphs)
        self.device = device
        self._weighted, self._with_edge = weighted, with_edge
        own, other = (0, 2) if edge_dir == "out" else (2, 0)
        self.asking = {kind: None if kind is None else kind[own] for kind in graphs}
        self.seen = {kind: None if kind is None else kind[other] for kind in graphs}
        self.counts: dict[Type, int] = dict(counts)
        for kind, graph in graphs.items():
            for end, count in ((self.asking[kind], graph.row_count), (self.seen[kind], graph.col_count)):
                self.counts[end] = max(self.counts.get(end, 0), count)
        self.node_types = list(self.counts)
        self.at = {kind: place for place, kind in enumerate(self.node_types)}
        self._native: Optional[tuple[Any, Native, dict[Any, Sampler]]] = None

    def sample(
        self, seeds: Dict[Type, Tensor], fanouts: list[list[int]], numbers: Numbers, disjoint: bool = False
    ) -> Sample:
        """The neighbourhood of seeds. Fan-outs are by hop, and in it by edge type."""
        return self._sampler(fanouts, disjoint).sample(self._given(seeds), numbers)

    def induced(self, nodes: Tensor) -> Sample:
        """Every edge among these nodes."""
        return self._sampler([], False).sample_induced(self._given({None: nodes}), (0, 0, 0))

    def one_hop(self, seeds: Tensor, fanout: int, kind: Type, numbers: Numbers) -> tuple[Tensor, Tensor, Optional[Tensor]]:
        """Neighbours, how many each seed has, and ids of edges. Seeds that come twice draw twice."""
        if kind not in self.graphs:
            raise ValueError(f"there is no edge type {kind}; there are {self.edge_types}")
        fanouts = [[fanout if own == kind else 0 for own in self.edge_types]]
        sample = self.sample({self.asking[kind]: seeds}, fanouts, numbers, disjoint=True)
        place = self.edge_types.index(kind)
        neighbour, asking = _places.tensor(sample.edges(place), self.device)
        nodes = self.tensor(sample.nodes(self.at[self.seen[kind]]))
        return nodes[neighbour], torch.bincount(asking, minlength=seeds.numel()), self.ids(sample, place)

    def ids(self, sample: Sample, place: int) -> Optional[Tensor]:
        return self.tensor(sample.edge_ids(place)) if self._with_edge else None

    def tensor(self, array: Any) -> Optional[Tensor]:
        return _places.tensor(array, self.device)

    def _given(self, seeds: Dict[Type, Tensor]) -> list[tuple[int, Tensor, None]]:
        # An empty list is a float tensor in torch.
        return [(self.at[kind], on_host(own if own.numel() > 0 else own.long()), None) for kind, own in seeds.items()]

    def _sampler(self, fanouts: list[list[int]], disjoint: bool) -> Sampler:
        # Lists are read where they lie, and that changes when they are shared with other processes.
        where = tuple(graph.whereabouts() for graph in self.graphs.values())
        # Read once and set once: threads that ask together may make it twice, and each has a whole one.
        native = self._native
        if native is None or native[0] != where:
            self._native = native = (where, self._graph(), {})
        key = (tuple(map(tuple, fanouts)), disjoint)
        made = native[2].get(key)
        if made is None:
            made = native[2][key] = _places.sampler_for(
                native[1],
                fanouts,
                self.device,
                weighted=self._weighted,
                disjoint=disjoint,
                with_edge=self._with_edge,
            )
        return made

    def _graph(self) -> Native:
        relations = []
        for kind, graph in self.graphs.items():
            asking, seen = self.asking[kind], self.seen[kind]
            lists = graph.lists(self.counts[asking], self.counts[seen], self._weighted)
            relations.append((self.at[seen], "to" if kind is None else kind[1], self.at[asking], lists))
        types = [(str(kind), self.counts[kind]) for kind in self.node_types]
        return _places.graph_of(types, relations, self.device, [graph.mode for graph in self.graphs.values()])
