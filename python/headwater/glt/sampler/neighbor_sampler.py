"""GraphLearn's neighbour sampler, on Headwater's: without replacement, and the same sample for the same numbers."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, Literal, Optional, Tuple, Union

import torch
from torch import Tensor

from ...pyg.sampler import mixed, seed_of
from .. import _places
from ..data.graph import Graph
from ..typing import EdgeType, NodeType, NumNeighbors, reverse_edge_type
from .base import BaseSampler
from .inputs import EdgeSamplerInput, NodeSamplerInput
from .links import Ends, Negatives
from .negative_sampler import check_direction
from .outputs import EdgeIndex, HeteroSamplerOutput, NeighborOutput, SamplerOutput
from .prob import probabilities
from .walk import Numbers, Type, Walk, first_seen


def check_strategy(strategy: str) -> None:
    """There is one way to draw."""
    if strategy != "random":
        raise ValueError(f"strategy is {strategy!r}; there is 'random' alone")


class NeighborSampler(BaseSampler):
    """Draws the neighbourhoods of nodes and of edges.

    `graph` is a `Graph`, or a dict of them by edge type. `num_neighbors` has a number for every hop, -1 for all neighbours;
    for several edge types it may be a dict with a list for each. In direction 'out' edges are followed from their sources and
    come back turned around, so that they point to whoever asked: of ('user', 'buys', 'item') as ('item', 'rev_buys', 'user').

    What is drawn depends on `seed` and on how many samples were drawn before. A graph knows only the nodes that have edges;
    `num_nodes`, a number or a dict by type, tells of more. With `with_neg` the edges are looked at for negatives at once, else
    when the first negatives are wished for.
    """

    def __init__(
        self,
        graph: Union[Graph, Dict[EdgeType, Graph]],
        num_neighbors: Optional[NumNeighbors] = None,
        device: _places.Device = torch.device("cuda:0"),
        with_edge: bool = False,
        with_neg: bool = False,
        with_weight: bool = False,
        strategy: str = "random",
        edge_dir: Literal["in", "out"] = "out",
        seed: Optional[int] = None,
        *,
        num_nodes: Optional[Union[int, Dict[NodeType, int]]] = None,
    ) -> None:
        check_strategy(strategy)
        self.is_hetero = isinstance(graph, dict)
        graphs: Dict[Type, Graph] = graph if isinstance(graph, dict) else {None: graph}
        if not graphs or not all(isinstance(own, Graph) for own in graphs.values()):
            raise ValueError("graph should be a Graph, or a dict of them by edge type")
        for own in graphs.values():
            check_direction(own, edge_dir)
        if with_weight and all(own.topo.edge_weights is None for own in graphs.values()):
            raise ValueError("with_weight needs a topology with edge_weights")
        self.graph = graph
        is_of_cpu = all(own.mode == "CPU" for own in graphs.values())
        self.device = _places.CPU if is_of_cpu else _places.resolve(device)
        self.with_edge, self.with_neg, self.with_weight = with_edge, with_neg, with_weight
        self.strategy, self.edge_dir = strategy, edge_dir
        self.seed = seed_of(seed)
        counts = num_nodes if isinstance(num_nodes, dict) else {} if num_nodes is None else {None: int(num_nodes)}
        self._made_of = (graphs, edge_dir, counts)
        self.num_neighbors = num_neighbors
        self._fanouts = None if num_neighbors is None else self._by_hop(num_neighbors)
        self._begin()

    def _begin(self) -> None:
        self._walk = Walk(*self._made_of, self.device, self.with_weight, self.with_edge)
        self._negatives = Negatives(self._walk, self.edge_dir)
        if self.with_neg:
            for kind in self._walk.graphs:
                self._negatives.of(kind)
        self._calls = itertools.count()

    def _by_hop(self, given: NumNeighbors) -> List[List[int]]:
        """The numbers of each hop by edge type."""
        kinds = list(self._made_of[0])
        if not isinstance(given, dict):
            by_kind = {kind: list(given) for kind in kinds}
        elif not self.is_hetero or set(given) != set(kinds):
            raise ValueError(f"num_neighbors is of the edge types {list(given)}; the graph's are {kinds}")
        else:
            by_kind = {kind: list(given[kind]) for kind in kinds}
            self.num_neighbors = by_kind
        hops = len(by_kind[kinds[0]])
        for kind, numbers in by_kind.items():
            if len(numbers) != hops or not all(-1 <= int(number) < 2**32 for number in numbers):
                words = f"it should have {hops} numbers from -1, for all, to {2**32 - 1}"
                raise ValueError(f"num_neighbors of {kind} is {numbers}; {words}")
        return [[int(by_kind[kind][hop]) for kind in kinds] for hop in range(hops)]

    @property
    def edge_types(self) -> List[EdgeType]:
        return self._walk.edge_types

    @property
    def node_types(self) -> List[NodeType]:
        return self._walk.node_types

    @property
    def num_hops(self) -> int:
        return len(self._fanouts or [])

    # Nodes ############################################################################################################

    def sample_one_hop(self, input_seeds: Tensor, req_num: int, etype: Optional[EdgeType] = None) -> NeighborOutput:
        """Neighbours of each seed. Seeds that come twice draw twice."""
        return NeighborOutput(*self._walk.one_hop(torch.as_tensor(input_seeds), int(req_num), etype, self._next()))

    def sample_from_nodes(
        self, inputs: NodeSamplerInput, *, device: _places.Device = None, numbers: Optional[Numbers] = None
    ) -> Union[HeteroSamplerOutput, SamplerOutput]:
        """The neighbourhood of seeds, each of which is taken once."""
        if device is not None and _places.resolve(device) != self.device:
            raise ValueError(f"this sampler is of {self.device}, not of {device}")
        inputs = NodeSamplerInput.cast(inputs)
        seeds = {self._checked(inputs.input_type): first_seen(torch.as_tensor(inputs.node))}
        return self._sample(seeds, self._next() if numbers is None else numbers)

    def sample_pyg_v1(
        self, ids: Tensor, numbers: Optional[Numbers] = None
    ) -> Tuple[int, Tensor, List[EdgeIndex]]:
        """Hop by hop as PyG's first loader had it: every hop draws anew for all nodes found so far. The last comes first."""
        self._only_one_type("sample_pyg_v1")
        seed, epoch, batch = self._next() if numbers is None else numbers
        nodes = first_seen(torch.as_tensor(ids))
        size, hops = nodes.numel(), []
        for hop, fanouts in enumerate(self._wished()):
            sample = self._walk.sample({None: nodes}, [fanouts], (mixed((seed, hop)), epoch, batch))
            found = self._walk.tensor(sample.nodes(0))
            edges = self._walk.tensor(sample.edges(0))
            hops.append(EdgeIndex(edges, self._walk.ids(sample, 0), (found.numel(), nodes.numel())))
            nodes = found
        return size, nodes.to(self.device), hops[::-1]

    def subgraph(self, inputs: NodeSamplerInput, *, numbers: Optional[Numbers] = None) -> SamplerOutput:
        """Every edge among seeds and, with `num_neighbors`, their neighbourhood. Nodes are sorted."""
        self._only_one_type("subgraph")
        seeds = torch.as_tensor(NodeSamplerInput.cast(inputs).node).cpu()
        nodes = seeds.unique()
        if self._fanouts:
            sample = self._walk.sample({None: nodes}, self._fanouts, self._next() if numbers is None else numbers)
            nodes = self._walk.tensor(sample.nodes(0)).cpu().sort().values
        sample = self._walk.induced(nodes)
        row, col = self._walk.tensor(sample.edges(0))
        return SamplerOutput(
            node=nodes.to(self.device),
            row=row,
            col=col,
            edge=self._walk.ids(sample, 0),
            batch=seeds.to(self.device),
            device=self.device,
            metadata=torch.searchsorted(nodes, seeds).to(self.device),
        )

    def sample_prob(
        self, inputs: NodeSamplerInput, node_cnt: Union[int, Dict[NodeType, Any]]
    ) -> Union[Tensor, Dict[NodeType, Tensor]]:
        """How likely each node is to be in the neighbourhood of these seeds, which says how often its row is asked for.

        Exact for one hop without parallel edges. Beyond, draws are taken as independent.
        """
        if self.with_weight:
            raise ValueError("sample_prob is for samplers without weights")
        inputs = NodeSamplerInput.cast(inputs)
        counts = node_cnt if isinstance(node_cnt, dict) else {None: node_cnt}
        sizes = {kind: own.numel() if isinstance(own, Tensor) else int(own) for kind, own in counts.items()}
        seeds = {self._checked(inputs.input_type): torch.as_tensor(inputs.node)}
        found = probabilities(self._walk, seeds, self._wished(), sizes)
        found = {kind: own.to(self.device) for kind, own in found.items()}
        return found if self.is_hetero else found[None]

    # Edges ############################################################################################################

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, *, numbers: Optional[Numbers] = None
    ) -> Union[HeteroSamplerOutput, SamplerOutput]:
        """The neighbourhood of the ends of edges, and of negatives, which are never edges.

        `metadata` says where they are among the nodes: `edge_label_index` and `edge_label`, or for triplets `src_index`,
        `dst_pos_index` and `dst_neg_index`.
        """
        inputs = EdgeSamplerInput.cast(inputs)
        kind = inputs.input_type if inputs.input_type is None else tuple(inputs.input_type)
        if (kind is not None) != self.is_hetero or kind not in self._made_of[0]:
            raise ValueError(f"input_type is {kind}; the graph's edge types are {self.edge_types}")
        numbers = self._next() if numbers is None else numbers
        ends = Ends.of(inputs, self._negatives, kind, numbers)
        seeds, places = ends.seeds(kind)
        out = self._sample(seeds, numbers)
        out.metadata = ends.metadata(places, self.device)
        if self.is_hetero:
            out.input_type = kind
        return out

    # How it is done ###################################################################################################

    def _next(self) -> Numbers:
        return (self.seed, 0, next(self._calls))

    def _wished(self) -> List[List[int]]:
        if self._fanouts is None:
            raise ValueError("this sampler was made without num_neighbors")
        return self._fanouts

    def _only_one_type(self, name: str) -> None:
        if self.is_hetero:
            raise ValueError(f"{name} is for graphs with one type of nodes")

    def _checked(self, kind: Optional[NodeType]) -> Optional[NodeType]:
        if (kind is not None) != self.is_hetero or kind not in self._walk.at:
            known = self.node_types if self.is_hetero else "of one type"
            raise ValueError(f"input_type is {kind!r}; the graph's nodes are {known}")
        return kind

    def _sample(self, seeds: Dict[Type, Tensor], numbers: Numbers) -> Union[HeteroSamplerOutput, SamplerOutput]:
        sample = self._walk.sample(seeds, self._wished(), numbers)
        batch = {kind: own.to(self.device) for kind, own in seeds.items()}
        if self.is_hetero:
            return self._by_type(sample, batch)
        row, col = self._walk.tensor(sample.edges(0))
        return SamplerOutput(
            node=self._walk.tensor(sample.nodes(0)),
            row=row,
            col=col,
            edge=self._walk.ids(sample, 0),
            batch=batch[None],
            num_sampled_nodes=sample.nodes_per_hop(0),
            num_sampled_edges=sample.edges_per_hop(0),
            device=self.device,
        )

    def _by_type(self, sample: Any, batch: Dict[NodeType, Tensor]) -> HeteroSamplerOutput:
        walk = self._walk
        out = HeteroSamplerOutput({}, {}, {}, {} if self.with_edge else None, batch, {}, {}, device=self.device)
        out.edge_types = [self._told(kind) for kind in walk.edge_types]
        reached = {kind: 1 for kind in batch}
        for at, kind in enumerate(walk.edge_types):
            hops = sample.edges_per_hop(at)
            while hops and hops[-1] == 0:
                hops.pop()
            if not hops:
                continue
            told, seen = self._told(kind), walk.seen[kind]
            reached[seen] = max(reached.get(seen, 0), len(hops) + 1)
            out.row[told], out.col[told] = walk.tensor(sample.edges(at))
            out.num_sampled_edges[told] = torch.tensor(hops, device=self.device)
            if out.edge is not None:
                out.edge[told] = walk.ids(sample, at)
        for kind, hops in reached.items():
            at = walk.at[kind]
            out.node[kind] = walk.tensor(sample.nodes(at))
            out.num_sampled_nodes[kind] = torch.tensor(sample.nodes_per_hop(at)[:hops], device=self.device)
        return out

    def _told(self, kind: EdgeType) -> EdgeType:
        return reverse_edge_type(kind) if self.edge_dir == "out" else kind

    # A sampler is made anew where it arrives: Headwater's lists are not sent ##########################################

    def __getstate__(self) -> Dict[str, Any]:
        made = ("_walk", "_negatives", "_calls")
        return {name: own for name, own in self.__dict__.items() if name not in made}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()
