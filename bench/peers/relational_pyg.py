"""PyG's own relational layers on the problems of the benchmark, with the problem's weights.

RGATConv has one pair of attention vectors for all relations: its reference has the vectors of the first relation everywhere, and
the gradient of a vector is the sum over relations. HGTConv has biases, a GELU and a residual that Hector's HGT has not: its
reference ends as it does (`form` "pyg"), with biases of zero, so the work is a little more than that of the others.
"""

import dataclasses

import torch
import torch_geometric
from torch_geometric.nn import FastRGCNConv, HGTConv, RGATConv, RGCNConv

from relational_graph import Layer


class _Conv(Layer):
    """A module of PyG, whose parameters take the place of the problem's weights."""

    def __init__(self, problem):
        super().__init__(problem, names=())
        graph = problem.graph
        self.edges = torch.stack([graph.src, graph.dst]), graph.rel
        self.conv = self.made().to(graph.device)
        with torch.no_grad():
            self.fill({name: weight.detach() for name, weight in problem.weights.items()})
        self.leaves |= {f"pyg.{name}": parameter for name, parameter in self.conv.named_parameters()}

    def __call__(self, x):
        return self.conv(x, *self.edges)


class Rgcn(_Conv):
    def __init__(self, problem, conv):
        self.kind = conv
        super().__init__(problem)

    def made(self):
        return self.kind(self.problem.width, self.problem.width, self.problem.graph.relations)

    def fill(self, weights):
        self.conv.weight.copy_(weights["W"])
        self.conv.root.copy_(weights["root_W"])
        self.conv.bias.copy_(weights["b"])

    def gradients(self):
        conv = self.conv
        return {"x": self.leaves["x"].grad, "W": conv.weight.grad, "root_W": conv.root.grad, "b": conv.bias.grad}


class Rgat(_Conv):
    def made(self):
        problem = self.problem
        settings = {"attention_mechanism": "across-relation", "attention_mode": "additive-self-attention"}
        return RGATConv(problem.width, problem.head_width, problem.graph.relations, heads=problem.heads, **settings)

    def fill(self, weights):
        # A column a head, which sees the elements of its own head alone.
        self.own = torch.eye(self.problem.heads, device=self.problem.graph.device).repeat_interleave(self.problem.head_width, 0)
        self.conv.weight.copy_(weights["W"])
        self.conv.k.copy_(weights["al"][0].reshape(-1, 1) * self.own)
        self.conv.q.copy_(weights["ar"][0].reshape(-1, 1) * self.own)
        self.conv.bias.copy_(weights["b"])

    def reference_problem(self):
        weights = dict(self.problem.weights)
        for name in ("al", "ar"):
            weights[name] = weights[name][:1].expand_as(weights[name]).contiguous()
        return dataclasses.replace(self.problem, weights=weights)

    def gradients(self):
        conv = self.conv
        heads = self.problem.heads, self.problem.head_width
        made = {"x": self.leaves["x"].grad, "W": conv.weight.grad, "b": conv.bias.grad}
        made["al"], made["ar"] = ((tensor.grad * self.own).sum(1).view(heads) for tensor in (conv.k, conv.q))
        return made

    def of_reference(self, name, gradient):
        return gradient.sum(0) if name in ("al", "ar") else gradient


class Hgt(_Conv):
    form = "pyg"

    def made(self):
        graph = self.problem.graph
        self.node_names = [f"t{at}" for at in range(graph.types)]
        sources, targets = graph.src_type.tolist(), graph.dst_type.tolist()
        self.edge_names = [
            (self.node_names[source], f"r{at}", self.node_names[target])
            for at, (source, target) in enumerate(zip(sources, targets))
        ]
        order = graph.rel.argsort(stable=True)
        sizes = torch.bincount(graph.rel, minlength=graph.relations).tolist()
        parts = torch.stack([graph.src[order], graph.dst[order]]).split(sizes, dim=1)
        begins = torch.tensor(graph.type_offsets, device=graph.device)
        starts = torch.stack([begins[graph.src_type], begins[graph.dst_type]])
        self.edge_lists = {name: part - starts[:, at : at + 1] for at, (name, part) in enumerate(zip(self.edge_names, parts))}
        width = self.problem.width
        return HGTConv(width, width, (self.node_names, self.edge_names), self.problem.heads)

    def __call__(self, x):
        offsets = self.problem.graph.type_offsets
        parts = {name: x[begin:end] for name, begin, end in zip(self.node_names, offsets, offsets[1:])}
        made = self.conv(parts, self.edge_lists)
        # Types that no edge ends at have no output: the reference has a share of x there.
        shares = [torch.sigmoid(self.conv.skip[name]) for name in self.node_names]
        left = {name: (1 - share) * parts[name] for name, share in zip(self.node_names, shares) if made.get(name) is None}
        return torch.cat([left[name] if name in left else made[name] for name in self.node_names])

    def fill(self, weights):
        conv, width = self.conv, self.problem.width
        for at, name in enumerate(self.node_names):
            for part, own in enumerate("KQV"):
                conv.kqv_lin.lins[name].weight[part * width : (part + 1) * width].copy_(weights[own][at].t())
            conv.kqv_lin.lins[name].bias.zero_()
            conv.out_lin.lins[name].weight.copy_(weights["A"][at].t())
            conv.out_lin.lins[name].bias.zero_()
            conv.skip[name].copy_(weights["skip"][at])
        for module, own in ((conv.k_rel, "W_att"), (conv.v_rel, "W_msg")):
            # All relations of a head, then those of the next.
            module.weight.copy_(weights[own].transpose(0, 1).reshape(module.weight.shape))
        for at, name in enumerate(self.edge_names):
            conv.p_rel["__".join(name)].copy_(weights["mu"][at].view(1, -1))

    def gradients(self):
        conv, problem = self.conv, self.problem
        width, heads, relations = problem.width, problem.heads, problem.graph.relations
        made = {"x": self.leaves["x"].grad}
        nodes = self.node_names

        def of(parameter):
            return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

        wide = torch.stack([of(conv.kqv_lin.lins[name].weight) for name in nodes])
        for part, own in enumerate("KQV"):
            made[own] = wide[:, part * width : (part + 1) * width].transpose(1, 2)
        made["A"] = torch.stack([of(conv.out_lin.lins[name].weight) for name in nodes]).transpose(1, 2)
        made["skip"] = torch.stack([of(conv.skip[name]).view(1) for name in nodes])
        each = problem.head_width
        for module, own in ((conv.k_rel, "W_att"), (conv.v_rel, "W_msg")):
            made[own] = of(module.weight).view(heads, relations, each, each).transpose(0, 1)
        made["mu"] = torch.stack([of(conv.p_rel["__".join(name)]).view(heads, 1) for name in self.edge_names])
        return made


def variants(problem, options):
    if problem.model == "rgcn":
        return {
            "FastRGCNConv": lambda: Rgcn(problem, FastRGCNConv),
            "RGCNConv": lambda: Rgcn(problem, RGCNConv),
        }
    if problem.model == "rgat":
        return {"RGATConv": lambda: Rgat(problem)}
    return {"HGTConv": lambda: Hgt(problem)}


def version():
    return f"torch_geometric {torch_geometric.__version__}"
