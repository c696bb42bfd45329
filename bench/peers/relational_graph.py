"""Synthetic relational graphs of the shapes that Hector was evaluated on, and the arrays that all systems compute on.

A graph is drawn once a process. Node types are contiguous ranges of nodes, the k-th with a share of 1/k; relations have shares of
1/k^0.9 and go from one node type to one node type; sources are skewed towards the first nodes of a type (the square of a uniform
number), destinations are uniform. Edges are sorted by destination, then relation, then source.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch

# Nodes, node types, edges, relations.
SHAPES = {
    "aifb": (7_262, 7, 48_810, 104),
    "mutag": (27_163, 5, 148_100, 50),
    "bgs": (94_806, 27, 672_884, 122),
    "fb15k": (14_541, 1, 620_232, 474),
    "biokg": (93_773, 5, 4_762_678, 51),
    "am": (881_680, 7, 5_668_682, 108),
    "mag": (1_939_743, 4, 21_111_007, 4),
    "wikikg2": (2_500_604, 1, 16_109_182, 535),
}
MODELS = ("rgcn", "rgat", "hgt")


def scaled(name, scale):
    """Counts of a shape with that share of its nodes and edges, and all of its types: `--scale` of the benchmark."""
    nodes, types, edges, relations = SHAPES[name]
    if scale == 1:
        return SHAPES[name]
    return max(int(nodes * scale), 4 * types), types, max(int(edges * scale), relations), relations


def offsets_of(sorted_kinds, count):
    """Where the rows of each kind begin, and where the last ones end."""
    ends = torch.bincount(sorted_kinds, minlength=count).cumsum(0)
    return torch.cat([ends.new_zeros(1), ends])


class Pairs:
    """Distinct (relation, node) pairs that edges have at one end, relation after relation: what compaction computes on."""

    def __init__(self, relation, node, nodes, relations):
        keys, self.of_edge = torch.unique(relation * nodes + node, return_inverse=True)
        self.relation, self.node = keys // nodes, keys % nodes
        self.offsets = offsets_of(self.relation, relations)
        self.relations = relations

    def __len__(self):
        return len(self.node)


class Graph:
    """Edges as tensors of int64 on a device: `src`, `dst`, `rel`, sorted as the module says."""

    def __init__(self, counts, device, seed=1):
        self.nodes, self.types, self.edges, self.relations = counts
        self.device = torch.device(device)
        random = torch.Generator(device=device).manual_seed(seed)
        shares = 1 / torch.arange(1, self.types + 1, dtype=torch.float64)
        sizes = (shares / shares.sum() * self.nodes).long().clamp(min=2)
        sizes[0] += self.nodes - sizes.sum()
        # Where the nodes of each type begin, and where the last ones end.
        self.type_offsets = [0, *sizes.cumsum(0).tolist()]
        begins = torch.tensor(self.type_offsets, device=device)
        sizes = sizes.to(device)
        self.node_type = torch.repeat_interleave(torch.arange(self.types, device=device), sizes)

        shares = 1 / torch.arange(1, self.relations + 1, dtype=torch.float64, device=device) ** 0.9
        rel = torch.multinomial((shares / shares.sum()).float(), self.edges, True, generator=random)
        rel[: self.relations] = torch.arange(self.relations, device=device)  # none is empty
        chances = sizes.double() / sizes.sum()
        # The node types that each relation goes from and to.
        self.src_type = torch.multinomial(chances, self.relations, True, generator=random)
        self.dst_type = torch.multinomial(chances, self.relations, True, generator=random)

        def drawn(types, power):
            place = torch.rand(self.edges, device=device, generator=random).double().pow(power)
            return torch.minimum((place * sizes[types]).long(), sizes[types] - 1) + begins[types]

        src, dst = drawn(self.src_type[rel], 2), drawn(self.dst_type[rel], 1)
        order = ((dst * self.relations + rel) * self.nodes + src).argsort()
        self.src, self.dst, self.rel = src[order], dst[order], rel[order]

    @cached_property
    def src_pairs(self):
        return Pairs(self.rel, self.src, self.nodes, self.relations)

    @cached_property
    def dst_pairs(self):
        return Pairs(self.rel, self.dst, self.nodes, self.relations)

    @cached_property
    def mean_weights(self):
        """One over how many edges of an edge's relation end where it ends: RGCN's mean as a weighted sum."""
        of_edge = self.dst_pairs.of_edge
        return 1 / torch.bincount(of_edge, minlength=len(self.dst_pairs))[of_edge].float()


@dataclass
class Problem:
    """A layer on a graph: shapes of weights are those that Headwater's layers of these names take. `width` is of inputs and
    outputs, all heads together."""

    graph: Graph
    model: str
    width: int
    heads: int
    x: torch.Tensor
    weights: dict
    # What the loss compares with, and the gradient that the layer alone is given.
    labels: torch.Tensor
    gradient: torch.Tensor

    @property
    def head_width(self):
        return self.width // self.heads


def problem(graph, model, width, heads, seed=2):
    """Inputs and weights, drawn on the CPU so that every device has the same."""
    if width % heads:
        raise ValueError(f"{heads} heads do not divide a width of {width}")
    # Pairs and weights of means are shared, and no system's own.
    _ = graph.src_pairs, graph.mean_weights
    random = torch.Generator().manual_seed(seed)
    each, device = width // heads, graph.device

    def drawn(*shape, scale):
        return (torch.randn(*shape, generator=random) * scale).to(device)

    matrix = 1 / math.sqrt(width)
    relations, types = graph.relations, graph.types
    if model == "rgcn":
        weights = {
            "W": drawn(relations, width, width, scale=matrix),
            "root_W": drawn(width, width, scale=matrix),
            "b": drawn(width, scale=0.1),
        }
    elif model == "rgat":
        weights = {
            "W": drawn(relations, width, width, scale=matrix),
            "al": drawn(relations, heads, each, scale=1 / math.sqrt(each)),
            "ar": drawn(relations, heads, each, scale=1 / math.sqrt(each)),
            "b": drawn(width, scale=0.1),
        }
    elif model == "hgt":
        weights = {name: drawn(types, width, width, scale=matrix) for name in ("K", "Q", "V", "A")}
        weights["W_att"] = drawn(relations, heads, each, each, scale=1 / math.sqrt(each))
        weights["W_msg"] = drawn(relations, heads, each, each, scale=1 / math.sqrt(each))
        weights["mu"] = 1 + drawn(relations, heads, 1, scale=0.2)
        weights["skip"] = drawn(types, 1, scale=1.0)
    else:
        raise ValueError(f"{model} is none of {', '.join(MODELS)}")
    x = drawn(graph.nodes, width, scale=1.0)
    labels = torch.randint(width, (graph.nodes,), generator=random).to(device)
    return Problem(graph, model, width, heads, x, weights, labels, drawn(graph.nodes, width, scale=1.0))


class Layer:
    """A layer of some system, ready to be called: what the benchmark times.

    `leaves` are tensors that gradients are asked of, `x` among them. `form` names the formula where a system has another one than
    the problem's own; the reference is then computed in that form. `close` drops what the system keeps outside of this object.
    """

    form = "own"

    def __init__(self, problem, names=None):
        names = problem.weights if names is None else names
        self.problem = problem
        self.leaves = {"x": problem.x.detach().requires_grad_()}
        self.leaves |= {name: problem.weights[name].detach().requires_grad_() for name in names}

    def __call__(self, x):
        raise NotImplementedError

    def gradients(self):
        """Gradients after a backward pass, by the problem's names and in its shapes; those that a form lacks are left out."""
        return {name: leaf.grad for name, leaf in self.leaves.items()}

    def reference_problem(self):
        """The problem whose reference this layer is compared with."""
        return self.problem

    def of_reference(self, name, gradient):
        """A gradient of the reference as this layer has it."""
        return gradient

    def close(self):
        pass
