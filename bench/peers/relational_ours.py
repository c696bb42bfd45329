"""Headwater's compiled layers on the problems of the benchmark, with schedules by the model and, on a GPU, by measuring."""

import torch

import headwater
from relational_graph import Layer


class Compiled(Layer):
    """`headwater.compile(name)`. The graph is made once, as a user keeps it; it has node types only where a layer asks for them."""

    def __init__(self, problem, tune="fixed"):
        super().__init__(problem)
        self.layer = headwater.compile(problem.model, tune=tune)
        self.options = {}
        if problem.model != "rgcn":
            self.options["heads"] = problem.heads
        if problem.model == "hgt":
            self.options["variant"] = "hector"
        graph = problem.graph
        if problem.model == "hgt" and graph.types > 1:
            self.graph = of_types(graph)
        else:
            edge_index = torch.stack([graph.src, graph.dst])
            self.graph = headwater.LayerGraph(edge_index, graph.nodes, edge_type=graph.rel, num_edge_types=graph.relations)

    def __call__(self, x):
        weights = {name: leaf for name, leaf in self.leaves.items() if name != "x"}
        return self.layer(self.graph, x=x, **weights, **self.options)

    def close(self):
        self.graph = None
        headwater.forget_graphs()


def of_types(graph):
    """The graph with node types, whose ranges of nodes follow each other as they do in `x`."""
    offsets, relations = graph.type_offsets, []
    sources, targets = graph.src_type.tolist(), graph.dst_type.tolist()
    order = graph.rel.argsort(stable=True)
    src, dst = graph.src[order].cpu(), graph.dst[order].cpu()
    sizes = torch.bincount(graph.rel, minlength=graph.relations).tolist()
    counts = [end - begin for begin, end in zip(offsets, offsets[1:])]
    for at, (own_src, own_dst) in enumerate(zip(src.split(sizes), dst.split(sizes))):
        source, target = sources[at], targets[at]
        ends = own_src - offsets[source], own_dst - offsets[target]
        lists = headwater.Topology.from_coo(*ends, counts[source], counts[target])
        relations.append((source, f"r{at}", target, lists))
    types = [(f"t{at}", count) for at, count in enumerate(counts)]
    return headwater.LayerGraph.of(headwater.Graph(types, relations))


def variants(problem, options):
    found = {"compiled": lambda: Compiled(problem)}
    if problem.graph.device.type == "cuda":
        found["tuned"] = lambda: Compiled(problem, tune="measure")
    return found


def version():
    return f"headwater {getattr(headwater, '__version__', '')}".strip()
