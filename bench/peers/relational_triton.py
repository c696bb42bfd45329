"""RGCN, RGAT and HGT as an expert writes them with Triton: kernels of `relational_kernels.py` and `relational_attention.py`, cuBLAS
for products with one matrix, all directions by hand.

Variants: gradients (or sums) of rows of (relation, node) pairs go to their nodes by atomics out of the product, or are stored and
summed over lists.
"""

import math
import os

import torch
import triton

from relational_attention import attend, attend_back
from relational_expert import spread_matrices
from relational_graph import Layer
from relational_kernels import CHUNK_ROWS, TILE_ROWS, Lists, Tiles, dots, dots_back, outer, sums, times
from relational_ops import ByType

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def precision():
    """Of products: three products of TF32 are about as exact as float32."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


class Side:
    """(relation, node) pairs at one end of edges, as kernels read them."""

    def __init__(self, pairs, nodes, is_atomic):
        self.source, self.count, self.relations = pairs.node.int(), len(pairs), pairs.relations
        self.tiles, self.chunks = Tiles(pairs, TILE_ROWS), Tiles(pairs, CHUNK_ROWS)
        self.to_nodes = None
        if not is_atomic:
            order = pairs.node.argsort(stable=True)
            self.to_nodes = Lists(pairs.node[order], order, nodes)

    def times(self, x, matrices, **how):
        return times(self.tiles, self.count, x, matrices, precision(), **how)

    def times_to_nodes(self, x, matrices, nodes, **how):
        """Products of rows, added to `nodes` in place."""
        if self.to_nodes is None:
            return self.times(x, matrices, into=self.source, out=nodes, **how)
        return sums(self.to_nodes, self.times(x, matrices, **how), added=nodes)

    def outer(self, left, right, **how):
        return outer(self.chunks, left, right, self.source, self.relations, precision(), **how)


class Rgcn(Layer):
    def __init__(self, problem, first, is_atomic):
        super().__init__(problem)
        graph, self.first = problem.graph, first
        pairs = graph.src_pairs if first == "transform" else graph.dst_pairs
        self.side = Side(pairs, graph.nodes, is_atomic)
        if first == "transform":
            self.edges, self.means = Lists(graph.dst, pairs.of_edge, graph.nodes), graph.mean_weights
            self.back = self.edges.back(len(pairs))
        else:
            order = pairs.of_edge.argsort(stable=True)
            self.edges = Lists(pairs.of_edge[order], graph.src[order], len(pairs))
            self.means = graph.mean_weights[order].contiguous()
            self.back = self.edges.back(graph.nodes)

    def __call__(self, x):
        return _Rgcn.apply(self, x, *(self.leaves[name] for name in ("W", "root_W", "b")))


class _Rgcn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, layer, x, matrices, root, bias):
        side, kept = layer.side, None
        out = torch.addmm(bias, x, root)
        if layer.first == "transform":
            sums(layer.edges, side.times(x, matrices, source=side.source), layer.means, added=out)
        else:
            kept = sums(layer.edges, x, layer.means)
            side.times_to_nodes(kept, matrices, out)
        ctx.layer = layer
        ctx.save_for_backward(x, matrices, root, kept)
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, matrices, root, kept = ctx.saved_tensors
        layer, side, gradient = ctx.layer, ctx.layer.side, gradient.contiguous()
        d_x = gradient @ root.t()
        if layer.first == "transform":
            d_rows = sums(layer.back, gradient, layer.means)
            side.times_to_nodes(d_rows, matrices, d_x, turned=True)
            d_matrices = side.outer(x, d_rows)
        else:
            d_rows = side.times(gradient, matrices, source=side.source, turned=True)
            sums(layer.back, d_rows, layer.means, added=d_x)
            d_matrices = side.outer(kept, gradient, gathered="right")
        return None, d_x, d_matrices, x.t() @ gradient, gradient.sum(0)


class Rgat(Layer):
    def __init__(self, problem, is_atomic):
        super().__init__(problem)
        graph, heads = problem.graph, problem.heads
        self.sources = Side(graph.src_pairs, graph.nodes, is_atomic)
        self.targets = Side(graph.dst_pairs, graph.nodes, True)
        self.edges = Lists(graph.dst, graph.src_pairs.of_edge, graph.nodes)
        self.back, self.of_edge = self.edges.back(len(graph.src_pairs)), graph.dst_pairs.of_edge.int()
        # For each node the vectors of its pairs, a row of relation r and head h being r heads + h.
        order = graph.dst_pairs.node.argsort(stable=True)
        head = torch.arange(heads, device=graph.device)
        spread = (order[:, None] * heads + head).view(-1), (graph.dst_pairs.relation[order][:, None] * heads + head).view(-1)
        self.vectors = Lists(graph.dst_pairs.node[order].repeat_interleave(heads), spread[1], graph.nodes, spread[0])

    def __call__(self, x):
        return _Rgat.apply(self, x, *(self.leaves[name] for name in ("W", "al", "ar", "b")))


class _Rgat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, layer, x, matrices, al, ar, bias):
        heads = layer.problem.heads
        z, left = layer.sources.times(x, matrices, source=layer.sources.source, dots=al)
        # The product with `ar` comes first: a vector of x's width for each relation and head.
        vectors = torch.einsum("rihj,rhj->rhi", matrices.view(*matrices.shape[:2], heads, -1), ar).contiguous()
        right = dots(layer.targets.tiles, x, layer.targets.source, vectors)
        out, level = attend(layer.edges, layer.of_edge, left, right, z, heads, bias)
        ctx.layer = layer
        ctx.save_for_backward(x, matrices, al, ar, bias, z, left, right, vectors, out, level)
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, matrices, al, ar, bias, z, left, right, vectors, out, level = ctx.saved_tensors
        layer, gradient, heads = ctx.layer, gradient.contiguous(), ctx.layer.problem.heads
        weights, d_logits, d_right = attend_back(layer.edges, layer.of_edge, left, right, z, heads, out, level, gradient, bias)
        d_z, d_left = sums(layer.back, gradient, weights, heads, scalars=d_logits)
        d_matrices, d_al = layer.sources.outer(x, d_z, raised=(d_left, al, z))
        d_x = sums(layer.vectors, vectors.view(-1, x.shape[1]), d_right)
        layer.sources.times_to_nodes(d_z, matrices, d_x, turned=True, raised=(d_left, al))
        d_vectors = dots_back(layer.targets.chunks, x, layer.targets.source, d_right, matrices.shape[0])
        split = matrices.view(*matrices.shape[:2], heads, -1)
        d_ar = torch.einsum("rhi,rihj->rhj", d_vectors, split)
        d_matrices += torch.einsum("rhi,rhj->rihj", d_vectors, ar).reshape_as(d_matrices)
        return None, d_x, d_matrices, d_al, d_ar, gradient.sum(0)


class Hgt(Layer):
    """Matrices of types and relations are multiplied beforehand; autograd has those products, and kernels the rest."""

    def __init__(self, problem, is_atomic):
        super().__init__(problem)
        graph = problem.graph
        self.side = Side(graph.src_pairs, graph.nodes, is_atomic)
        self.edges = Lists(graph.dst, graph.src_pairs.of_edge, graph.nodes)
        self.back = self.edges.back(len(graph.src_pairs))

    def __call__(self, x):
        graph, leaves = self.problem.graph, self.leaves
        scale = (leaves["mu"] / math.sqrt(self.problem.head_width)).unsqueeze(3)
        types = graph.src_type
        attend = torch.bmm(leaves["K"].index_select(0, types), spread_matrices(leaves["W_att"] * scale))
        send = torch.bmm(leaves["V"].index_select(0, types), spread_matrices(leaves["W_msg"]))
        q = ByType.apply(graph.type_offsets, x, leaves["Q"])
        h = _Hgt.apply(self, x, q, attend, send)
        return ByType.apply(graph.type_offsets, h, leaves["A"] * torch.sigmoid(leaves["skip"]).unsqueeze(2))


class _Hgt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, layer, x, q, attend_by, send_by):
        side, heads = layer.side, layer.problem.heads
        k, v = (side.times(x, matrices, source=side.source) for matrices in (attend_by, send_by))
        out, level = attend(layer.edges, None, k, q, v, heads)
        ctx.layer = layer
        ctx.save_for_backward(x, q, attend_by, send_by, k, v, out, level)
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, q, attend_by, send_by, k, v, out, level = ctx.saved_tensors
        layer, side, gradient, heads = ctx.layer, ctx.layer.side, gradient.contiguous(), ctx.layer.problem.heads
        weights, d_scores, d_q = attend_back(layer.edges, None, k, q, v, heads, out, level, gradient)
        d_v, d_k = sums(layer.back, gradient, weights, heads), sums(layer.back, q, d_scores, heads)
        d_x = torch.zeros_like(x)
        side.times_to_nodes(d_v, send_by, d_x, turned=True)
        side.times_to_nodes(d_k, attend_by, d_x, turned=True)
        return None, d_x, d_q, side.outer(x, d_k), side.outer(x, d_v)


def variants(problem, options):
    if problem.graph.device.type != "cuda" and not INTERPRETED:
        raise RuntimeError("needs a GPU, or TRITON_INTERPRET=1")
    ways = {"atomics": True, "lists": False}
    if problem.model == "rgcn":
        return {
            f"{first} first, {way}": lambda args=(first, is_atomic): Rgcn(problem, *args)
            for first in ("transform", "aggregate")
            for way, is_atomic in ways.items()
        }
    kind = Rgat if problem.model == "rgat" else Hgt
    return {way: lambda is_atomic=is_atomic: kind(problem, is_atomic) for way, is_atomic in ways.items()}


def version():
    return f"triton {triton.__version__}"
