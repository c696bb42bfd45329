"""RGCN, RGAT and HGT as an expert writes them in PyTorch without kernels of his own, in several variants: the best one counts.

One row of a product for each (relation, node) pair instead of each edge, matrices that follow each other multiplied beforehand,
both directions of every adjacency built once, gradients of a node's rows summed where they are made. `relational_ops.py` has the
parts.
The first variant of each model is the reference that all systems are compared with: it follows the formula, and folds nothing.
"""

import math

import torch
import torch.nn.functional as F

from relational_graph import Layer
from relational_ops import Adjacency, ByType, EdgeSums, Rows, TypedProducts, compiled, softmax, spread_heads, weighted_sums

SLOPE = 0.2


def edge_attention(left, right, columns, of_edge, rows, count):
    """RGAT's attention, [heads, edges], of scores of pairs."""
    logits = F.leaky_relu(left.index_select(0, columns) + right.index_select(0, of_edge), SLOPE)
    return softmax(logits.t(), rows, count)


class Rgcn(Layer):
    """`first` is what happens first to a row: "transform" multiplies rows of (relation, source) pairs and sums products over edges;
    "aggregate" sums rows over edges into (relation, destination) pairs and multiplies those."""

    def __init__(self, problem, first, layout, how):
        super().__init__(problem)
        graph, self.how, self.first = problem.graph, how, first
        pairs = graph.src_pairs if first == "transform" else graph.dst_pairs
        self.rows = Rows(pairs, graph.nodes, layout)
        self.own = graph.src, graph.dst, self.rows.at[pairs.of_edge], graph.mean_weights
        if how == "compiled":
            return
        src, dst, at, means = self.own
        if first == "transform":
            self.edges = Adjacency(dst, at, graph.nodes, self.rows.count).fix(means)
        else:
            order = at.argsort(stable=True)
            self.edges = Adjacency(at[order], src[order], self.rows.count, graph.nodes).fix(means[order])

    def __call__(self, x):
        return _Rgcn.apply(self, x, *(self.leaves[name] for name in ("W", "root_W", "b")))

    def over_edges(self, x, back=False):
        """Sums over edges, or the way back: from gradients of what was summed into to those of what was read."""
        if self.how != "compiled":
            return self.edges.sums_back(x, self.how) if back else self.edges.sums(x, self.how)
        src, dst, at, means = self.own
        read, into = (at, dst) if self.first == "transform" else (src, at)
        count = (self.problem.graph.nodes, self.rows.count)
        count = count if self.first == "transform" else count[::-1]
        if back:
            read, into, count = into, read, count[::-1]
        return compiled(weighted_sums)(x.unsqueeze(1), read, means.unsqueeze(0), into, count[0]).squeeze(1)


class _Rgcn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, layer, x, matrices, root, bias):
        rows = layer.rows
        if layer.first == "transform":
            kept = x.index_select(0, rows.source)
            summed = layer.over_edges(rows.times(kept, matrices))
        else:
            kept = layer.over_edges(x)
            summed = rows.sum_to_nodes(rows.times(kept, matrices), layer.how)
        ctx.layer = layer
        ctx.save_for_backward(x, kept, matrices, root)
        return torch.addmm(bias, x, root).add_(summed)

    @staticmethod
    def backward(ctx, gradient):
        x, kept, matrices, root = ctx.saved_tensors
        layer, rows, gradient = ctx.layer, ctx.layer.rows, gradient.contiguous()
        turned = matrices.transpose(1, 2)
        if layer.first == "transform":
            d_rows = layer.over_edges(gradient, back=True)
            d_x = rows.sum_to_nodes(rows.times(d_rows, turned), layer.how)
            d_matrices = rows.outer(kept, d_rows)
        else:
            d_rows = gradient.index_select(0, rows.source)
            d_x = layer.over_edges(rows.times(d_rows, turned), back=True)
            # Rows of padding are zero in `kept`.
            d_matrices = rows.outer(kept, d_rows)
        return None, d_x.addmm_(gradient, root.t()), d_matrices, x.t() @ gradient, gradient.sum(0)


class Rgat(Layer):
    def __init__(self, problem, layout, how, fused):
        super().__init__(problem)
        graph, heads, self.fused = problem.graph, problem.heads, fused
        self.sources = Rows(graph.src_pairs, graph.nodes, layout)
        self.targets = Rows(graph.dst_pairs, graph.nodes, layout)
        self.columns, self.of_edge = self.sources.at[graph.src_pairs.of_edge], self.targets.at[graph.dst_pairs.of_edge]
        self.edges = EdgeSums(graph.dst, self.columns, graph.nodes, self.sources.count, heads, how)
        self.how = how

    def __call__(self, x):
        graph, leaves = self.problem.graph, self.leaves
        z, left = TypedProducts.apply(self.sources, self.how, x, leaves["al"], leaves["W"])
        # Products with destinations are needed only in products with `ar`, so those come first.
        (right,) = TypedProducts.apply(self.targets, self.how, x, None, torch.bmm(leaves["W"], spread_heads(leaves["ar"])))
        attention = compiled(edge_attention) if self.fused else edge_attention
        return self.edges.sums(attention(left, right, self.columns, self.of_edge, graph.dst, graph.nodes), z) + leaves["b"]


class Hgt(Layer):
    """`folded` multiplies K and W_att, and V and W_msg, for each relation beforehand: every relation has one type of sources. So k
    and v of nodes are never made. `form` "pyg" ends as PyG's HGTConv does, with GELU and a residual."""

    def __init__(self, problem, layout, how, fused, folded, form="own"):
        super().__init__(problem)
        graph, self.fused, self.folded, self.form, self.how = problem.graph, fused, folded, form, how
        self.rows = Rows(graph.src_pairs, graph.nodes, layout)
        columns = self.rows.at[graph.src_pairs.of_edge]
        self.edges = EdgeSums(graph.dst, columns, graph.nodes, self.rows.count, problem.heads, how)

    def __call__(self, x):
        graph, leaves, types = self.problem.graph, self.leaves, self.problem.graph.type_offsets
        scale = (leaves["mu"] / math.sqrt(self.problem.head_width)).unsqueeze(3)
        attend, send = spread_matrices(leaves["W_att"] * scale), spread_matrices(leaves["W_msg"])
        q = ByType.apply(types, x, leaves["Q"])
        if self.folded:
            attend = torch.bmm(leaves["K"].index_select(0, graph.src_type), attend)
            send = torch.bmm(leaves["V"].index_select(0, graph.src_type), send)
            k, v = TypedProducts.apply(self.rows, self.how, x, None, attend, send)
        else:
            (k,) = TypedProducts.apply(self.rows, self.how, ByType.apply(types, x, leaves["K"]), None, attend)
            (v,) = TypedProducts.apply(self.rows, self.how, ByType.apply(types, x, leaves["V"]), None, send)
        attention = compiled(softmax) if self.fused else softmax
        h = self.edges.sums(attention(self.edges.scores(q, k), graph.dst, graph.nodes), v)
        share = torch.sigmoid(leaves["skip"]).unsqueeze(2)
        if self.form == "own":
            return ByType.apply(types, h, leaves["A"] * share)
        share = share.view(-1, 1).index_select(0, graph.node_type)
        return ByType.apply(types, F.gelu(h), leaves["A"]) * share + (1 - share) * x


def spread_matrices(matrices):
    """[relations, heads, each, each] as one matrix a relation, with zeros outside of the heads' blocks."""
    relations, heads, each, _ = matrices.shape
    if heads == 1:
        return matrices.squeeze(1)
    ones = torch.eye(heads, device=matrices.device)
    return (matrices.unsqueeze(3) * ones[:, None, :, None]).reshape(relations, heads * each, heads * each)


def reference(problem, form="own"):
    """The first variant, in the form that another system has."""
    if problem.model == "rgcn":
        return Rgcn(problem, "transform", "blocks", "cusparse")
    if problem.model == "rgat":
        return Rgat(problem, "blocks", "cusparse", fused=False)
    return Hgt(problem, "blocks", "cusparse", fused=False, folded=False, form=form)


def variants(problem, options):
    """Names and how to make each. `options.compile` is whether torch.compile may be used."""
    own = {"reference": lambda: reference(problem)}
    ways = [("cusparse", "blocks"), ("cusparse", "buckets"), ("bags", "buckets"), ("bags", "blocks"), ("cusparse", "grouped")]
    if options.compile:
        ways += [("compiled", "buckets"), ("compiled", "blocks")]
    for how, layout in ways:
        fused = options.compile
        if problem.model == "rgcn":
            for first in ("transform", "aggregate"):
                if (first, layout, how) != ("transform", "blocks", "cusparse"):
                    own[f"{first} first, {how}, {layout}"] = lambda args=(first, layout, how): Rgcn(problem, *args)
        elif problem.model == "rgat":
            own[f"{how}, {layout}"] = lambda args=(layout, how, fused): Rgat(problem, *args)
        else:
            own[f"folded, {how}, {layout}"] = lambda args=(layout, how, fused, True): Hgt(problem, *args)
    return own
