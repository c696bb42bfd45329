"""PyG's neighbour sampler, on Headwater's."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal, Optional, Union

import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
    SamplerOutput,
)
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from .._headwater import DeviceGraph, Graph, Sampler
from ..gpu import Drawer, Drawn, place_of
from .topology import Described, Type, Wishes, describe, on_host

Numbers = tuple[int, int, int]


def fresh_seed() -> int:
    """A seed out of torch's generator, so that `torch.manual_seed` fixes it."""
    return int(torch.randint(2**62, ()).item())


def seed_of(wished: Optional[int]) -> int:
    """The seed that is wished for, or a fresh one."""
    if wished is None:
        return fresh_seed()
    seed = operator.index(wished)
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed is {seed}; it should be from 0 to 2**64 - 1")
    return seed


class NeighborSampler(BaseSampler):
    """Draws neighbourhoods as PyG's `NeighborSampler` does, with its arguments.

    What is drawn depends on `seed` and on the number of the batch alone: not on threads, and not on `device`, which may be a
    GPU that draws. `is_sorted` saves sorting edges that are in the order of their targets, or of their sources where
    `sample_direction` is `"backward"`; those that are not are refused. `share_memory=True` is refused: nothing is to be shared.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        subgraph_type: Union[SubgraphType, str] = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: Optional[str] = None,
        weight_attr: Optional[str] = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
        sample_direction: Literal["forward", "backward"] = "forward",
        *,
        seed: Optional[int] = None,
        device: Any = None,
    ) -> None:
        if not directed:
            subgraph_type = SubgraphType.induced
            warnings.warn(
                "The 'directed' argument of 'NeighborSampler' is deprecated. Use `subgraph_type='induced'` instead.",
                stacklevel=2,
            )
        if sample_direction not in ("forward", "backward"):
            raise ValueError(f"sample_direction is {sample_direction!r}; it should be 'forward' or 'backward'")
        if temporal_strategy not in ("uniform", "last"):
            raise ValueError(f"temporal_strategy is {temporal_strategy!r}; it should be 'uniform' or 'last'")
        if sample_direction == "backward" and time_attr is not None:
            raise NotImplementedError("Temporal Sampling not yet supported for backward sampling")
        if share_memory:
            raise ValueError(
                "share_memory is True; lists are made in this process's memory, which threads share and forked processes "
                "inherit, and processes that are spawned make theirs. Leave it out"
            )
        self.sample_direction = sample_direction
        wishes = Wishes(time_attr, weight_attr, sample_direction == "backward", is_sorted)
        self._described: Described = describe(data, wishes)
        self._made_of = (data, wishes)
        self._graph: Graph = self._described.graph()
        self._made: Optional[tuple[Any, Any]] = None
        self.device, self.place = device, place_of(device)
        self._on_gpu = None if self.place is None else DeviceGraph(self._graph, self.place.ordinal)
        self.replace = replace
        self.temporal_strategy = temporal_strategy
        self.subgraph_type = _subgraph(subgraph_type)
        self.weighted = weight_attr is not None
        self._disjoint = disjoint
        self.keep_orig_edges = False
        self.seed = seed_of(seed)
        self._calls = itertools.count()
        self.num_neighbors = num_neighbors
        if self.disjoint and self.subgraph_type == SubgraphType.induced:
            raise ValueError("'disjoint' sampling not supported for neighbor sampling with `subgraph_type='induced'`")

    # What PyG's sampler shows #######################################################################################

    @property
    def num_nodes(self) -> Any:
        """Nodes, or nodes of each type."""
        nodes = self._described.num_nodes
        return dict(nodes) if self.is_hetero else nodes[None]

    @property
    def node_types(self) -> list:
        return self._described.node_types

    @property
    def edge_types(self) -> list:
        return self._described.edge_types

    @property
    def node_time(self) -> Any:
        times = self._described.node_time
        if not times:
            return None
        return dict(times) if self.is_hetero else times[None]

    @property
    def is_hetero(self) -> bool:
        return self._described.is_hetero

    @property
    def is_temporal(self) -> bool:
        return self._described.has_times

    @property
    def disjoint(self) -> bool:
        return self._disjoint or self.is_temporal

    @disjoint.setter
    def disjoint(self, disjoint: bool) -> None:
        self._disjoint = disjoint

    @property
    def num_neighbors(self) -> NumNeighbors:
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, num_neighbors: Any) -> None:
        made = num_neighbors if isinstance(num_neighbors, NumNeighbors) else NumNeighbors(num_neighbors)
        self._num_neighbors = made
        # Wrong fan-outs are said here and not in the first batch.
        self._native()

    @property
    def edge_permutation(self) -> None:
        """Nothing: edges are named by where they stand in the user's arrays."""
        return None

    # Sampling #######################################################################################################

    def sample_from_nodes(
        self, inputs: NodeSamplerInput, numbers: Optional[Numbers] = None
    ) -> Union[SamplerOutput, HeteroSamplerOutput]:
        return self._directed(node_sample(inputs, partial(self._sample, numbers=numbers)))

    def sample_from_edges(
        self,
        inputs: EdgeSamplerInput,
        neg_sampling: Optional[NegativeSampling] = None,
        numbers: Optional[Numbers] = None,
    ) -> Union[SamplerOutput, HeteroSamplerOutput]:
        numbers = self._next() if numbers is None else numbers
        if neg_sampling is not None:
            neg_sampling = _Keyed(NegativeSampling.cast(neg_sampling), numbers)
        sample = partial(self._sample, numbers=numbers)
        return self._directed(
            edge_sample(inputs, sample, self.num_nodes, self.disjoint, self.node_time, neg_sampling)
        )

    def _next(self) -> Numbers:
        """Numbers for whoever has none."""
        return (self.seed, 0, next(self._calls))

    def _directed(self, out: Any) -> Any:
        if self.subgraph_type != SubgraphType.bidirectional:
            return out
        if self.place is None:
            return out.to_bidirectional(keep_orig_edges=self.keep_orig_edges)
        # Which of several edges between two nodes is kept depends on a sort, which is another one on a GPU.
        there = _moved(out, Tensor.cpu).to_bidirectional(keep_orig_edges=self.keep_orig_edges)
        return _moved(there, self.place.bring)

    def _sample(
        self, seed: Any, seed_time: Any = None, numbers: Optional[Numbers] = None, **kwargs: Any
    ) -> Union[SamplerOutput, HeteroSamplerOutput]:
        numbers = self._next() if numbers is None else numbers
        seeds = seed if isinstance(seed, dict) else {None: seed}
        times = seed_time if isinstance(seed_time, dict) else {None: seed_time}
        at = {kind: place for place, kind in enumerate(self.node_types)}
        given = []
        for kind, nodes in seeds.items():
            time = (times or {}).get(kind)
            if time is None and self.is_temporal:
                self.check_times("input_time", [kind], None, nodes.numel())
                # Without times of their own, seeds see what was there when they came.
                time = self._described.node_time[kind][nodes]
            # An empty list is a float tensor in torch.
            nodes = nodes if nodes.numel() > 0 else nodes.long()
            given.append((at[kind], on_host(nodes), None if time is None else on_host(time)))
        if self.subgraph_type == SubgraphType.induced:
            sample = self._native().sample_induced(given, numbers)
        else:
            sample = self._native().sample(given, numbers)
        return self._hetero_output(sample) if isinstance(seed, dict) else self._output(sample)

    def check_times(self, name: str, kinds: Iterable[Type], times: Optional[Tensor], count: int) -> None:
        """Refuses times that are not those of so many seeds, and seeds without any: they would see the future."""
        if times is not None:
            if times.dtype not in (torch.int64, torch.int32) or times.numel() != count:
                found = f"{times.numel()} elements of {times.dtype}"
                raise ValueError(f"{name} has {found}; it should have one of torch.int64 for each of {count} inputs")
            return
        for kind in kinds:
            if self.is_temporal and kind not in self._described.node_time:
                whose = "the seeds" if kind is None else f"seeds of the type {kind!r}"
                has = "edges have times and nodes have none" if not self._described.node_time else "other types have times"
                raise ValueError(f"{whose} have no times: {has}; give them as `{name}`")

    def check_mask(self, name: str, seeds: Any) -> None:
        """Refuses a mask that does not say of every node whether it is meant."""
        kind, mask = seeds if isinstance(seeds, tuple) else (None, seeds)
        if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.numel() != self._described.num_nodes[kind]:
            raise IndexError(f"{name} has {mask.numel()} elements, but there are {self._described.num_nodes[kind]} nodes")

    def check_seeds(self, name: str, kind: Type, nodes: Tensor) -> None:
        """Refuses ids that name no node, before any batch is made."""
        count = self._described.num_nodes[kind]
        wrong = ((nodes < 0) | (nodes >= count)).nonzero()
        if wrong.numel() > 0:
            at = int(wrong[0])
            raise IndexError(f"{name}[{at}] is {int(nodes[at])}, but there are {count} nodes")

    def _native(self) -> Union[Sampler, Drawer]:
        """The sampler of these settings. They may be set anew, as PyG's may."""
        fanouts = self._fanouts()
        key = (fanouts, self.replace, self.disjoint, self.temporal_strategy)
        # Read once and set once: threads that ask together may make it twice, and each has a whole one.
        made = self._made
        if made is None or made[0] != key:
            wishes = {
                "replace": self.replace,
                "disjoint": self.disjoint,
                "weighted": self.weighted,
                "last": self.temporal_strategy == "last" and self.is_temporal,
            }
            if self.place is None:
                sampler = Sampler(self._graph, fanouts, **wishes)
            else:
                sampler = Drawer(self._on_gpu, fanouts, self.place, **wishes)
            self._made = made = (key, sampler)
        return made[1]

    def expected_reads(self, train: dict[Type, Tensor], batch: int) -> dict[Type, Tensor]:
        """How often each node will be read in an epoch in which these are seeds once. A GPU that has the graph counts."""
        at = {kind: place for place, kind in enumerate(self.node_types)}
        given = [(at[kind], on_host(nodes)) for kind, nodes in train.items()]
        reads = self._on_gpu.expected_reads(given, batch, self._fanouts())
        return {kind: torch.from_dlpack(numbers) for kind, numbers in zip(self.node_types, reads)}

    def _fanouts(self) -> list[list[int]]:
        if not self.is_hetero:
            return [[_whole(number)] for number in self.num_neighbors.get_mapped_values()]
        # Walked backwards, fan-outs are still told by the relations of the graph.
        turned = self.sample_direction == "backward"
        kinds = [kind[::-1] if turned else kind for kind in self.edge_types]
        by_kind = self.num_neighbors.get_mapped_values(kinds)
        named = [by_kind["__".join(kind)] for kind in kinds]
        return [[_whole(numbers[hop]) for numbers in named] for hop in range(self.num_neighbors.num_hops)]

    def _output(self, sample: Any) -> SamplerOutput:
        if isinstance(sample, Drawn):
            nodes, ends, edges = sample.whole()
        else:
            nodes, ends, edges = (_tensor(own) for own in (sample.nodes(0), sample.edges(0), sample.edge_ids(0)))
        row, col = ends
        if self.sample_direction == "backward":
            row, col = col, row
        is_induced = self.subgraph_type == SubgraphType.induced
        return SamplerOutput(
            node=nodes,
            row=row,
            col=col,
            edge=edges,
            batch=_tensor(sample.trees(0)) if self.disjoint else None,
            num_sampled_nodes=None if is_induced else sample.nodes_per_hop(0),
            num_sampled_edges=None if is_induced else sample.edges_per_hop(0),
        )

    def _hetero_output(self, sample: Any) -> HeteroSamplerOutput:
        is_backward = self.sample_direction == "backward"
        is_induced = self.subgraph_type == SubgraphType.induced
        kinds = [kind[::-1] if is_backward else kind for kind in self.edge_types]
        edges = {kind: _tensor(sample.edges(at)) for at, kind in enumerate(kinds)}
        neighbour, asking = (1, 0) if is_backward else (0, 1)
        trees = {kind: _tensor(sample.trees(at)) for at, kind in enumerate(self.node_types)}
        nodes = {kind: _tensor(sample.nodes(at)) for at, kind in enumerate(self.node_types)}
        node_hops = {kind: sample.nodes_per_hop(at) for at, kind in enumerate(self.node_types)}
        edge_hops = {kind: sample.edges_per_hop(at) for at, kind in enumerate(kinds)}
        return HeteroSamplerOutput(
            node=nodes,
            row={kind: ends[neighbour] for kind, ends in edges.items()},
            col={kind: ends[asking] for kind, ends in edges.items()},
            edge={kind: _tensor(sample.edge_ids(at)) for at, kind in enumerate(kinds)},
            batch=trees if self.disjoint else None,
            num_sampled_nodes=None if is_induced else node_hops,
            num_sampled_edges=None if is_induced else edge_hops,
        )

    # A sampler is made anew where it arrives: lists are not sent ####################################################

    def __getstate__(self) -> dict:
        state = dict(self.__dict__)
        for made in ("_described", "_graph", "_made", "_calls", "_on_gpu", "place"):
            del state[made]
        return state

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._described = describe(*self._made_of)
        self._graph = self._described.graph()
        self._made = None
        self._calls = itertools.count()
        self.place = place_of(self.device)
        self._on_gpu = None if self.place is None else DeviceGraph(self._graph, self.place.ordinal)


def _subgraph(wished: Union[SubgraphType, str]) -> SubgraphType:
    if wished not in [*SubgraphType, *(own.value for own in SubgraphType)]:
        raise ValueError(f"subgraph_type is {wished!r}; it should be one of {', '.join(own.value for own in SubgraphType)}")
    return SubgraphType(wished)


def _whole(number: Any) -> int:
    if int(number) != number:
        raise ValueError(f"num_neighbors has {number}; it should be whole numbers")
    return int(number)


class _Keyed(NegativeSampling):
    """Negatives as the user wishes them, drawn under the numbers of their batch and not in the order of threads."""

    def __init__(self, wished: NegativeSampling, numbers: Numbers) -> None:
        super().__init__(wished.mode, wished.amount, wished.src_weight, wished.dst_weight)
        self._generator = torch.Generator().manual_seed(mixed(numbers))

    def sample(self, num_samples: int, endpoint: str, num_nodes: Optional[int] = None) -> Tensor:
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        if weight is None:
            if num_nodes is None:
                raise ValueError("negatives cannot be drawn without a number of nodes")
            return torch.randint(num_nodes, (num_samples,), generator=self._generator)
        if num_nodes is not None and weight.numel() != num_nodes:
            raise ValueError(f"the weights of negatives are {weight.numel()}; there are {num_nodes} nodes")
        return torch.multinomial(weight, num_samples, replacement=True, generator=self._generator)


def _moved(out: Any, move: Any) -> Any:
    """A sampler's output with all its tensors moved."""
    fields = {field.name: getattr(out, field.name) for field in dataclasses.fields(out) if field.name != "metadata"}
    moved = tree_map(lambda value: move(value) if isinstance(value, Tensor) else value, fields)
    return type(out)(**moved, metadata=out.metadata)


def mixed(numbers: tuple[int, ...]) -> int:
    """One number out of several, for torch's generators."""
    state = 0
    for number in numbers:
        state = (state ^ number) * 0x9E3779B97F4A7C15 % 2**64
        state ^= state >> 29
    return state % 2**63


def _tensor(array: Any) -> Any:
    """What a sample has, as torch's. A GPU's samples are torch's already."""
    return array if array is None or isinstance(array, Tensor) else torch.from_dlpack(array)
