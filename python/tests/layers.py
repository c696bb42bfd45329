"""Layers as users write them, and what tests of them share."""

from __future__ import annotations

import headwater
import torch
from headwater import constant, when


@headwater.compile
def gcn(g, x: node[d_in], W: matrix[d_in, d_out], norm: edge[1] = constant, b: vector[d_out] = when(lambda: bias),
        bias: bool = True):
    """The sum over neighbours of norm x W."""
    for e in g.edges():
        e["m"] = e.norm * linear(e.src.x, W)
    for n in g.dst_nodes():
        n["out"] = sum(e["m"] for e in n.incoming_edges())
        if bias:
            n["out"] += b


@headwater.compile
def sage(g, x: node[d_in], W: matrix[d_in, d_out], root: matrix[d_in, d_out], b: vector[d_out]):
    for n in g.dst_nodes():
        n["out"] = linear(mean(e.src.x for e in n.incoming_edges()), W) + linear(n.x, root) + b


@headwater.compile(self_loops=True)
def gat(g, x: node[d_in], W: matrix[d_in, heads * d_out], al: vector[heads, d_out], ar: vector[heads, d_out],
        b: vector[heads * d_out], slope: float = 0.2, p: float = 0.0):
    for n in g.nodes():
        n["z"] = reshape(linear(n.x, W), heads, d_out)
    for e in g.edges():
        e["a"] = dropout(edge_softmax(leaky_relu(dot(e.src["z"], al) + dot(e.dst["z"], ar), slope)), p)
    for n in g.dst_nodes():
        n["out"] = flatten(sum(e["a"] * e.src["z"] for e in n.incoming_edges())) + b


@headwater.compile
def rgcn(g, x: node[d_in], W: matrix[etype, d_in, d_out], root: matrix[d_in, d_out], b: vector[d_out]):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        n["out"] = relation_mean(e["m"] for e in n.incoming_edges()) + linear(n.x, root) + b


@headwater.compile
def weighted(g, x: node[d], w: edge[1]):
    for n in g.dst_nodes():
        n["out"] = sum(e.w * e.src.x for e in n.incoming_edges())


def doubled(x):
    return x + x


@headwater.compile(uses=[doubled])
def with_function(g, x: node[d]):
    for n in g.dst_nodes():
        n["out"] = sum(doubled(e.src.x) for e in n.incoming_edges())


NODES, EDGES, D_IN, D_OUT, TYPES = 40, 300, 6, 5, 4


def draw(*shape):
    return torch.randn(*shape, requires_grad=True)


def close(one, other, tolerance=2e-5):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=tolerance)


def same_with_gradients(out, wanted, pairs):
    """Outputs are the same, and gradients of a loss of them."""
    close(out, wanted)
    weight = torch.randn_like(wanted)
    (out * weight).sum().backward()
    (wanted * weight).sum().backward()
    for ours, theirs in pairs:
        close(ours.grad, theirs.grad)


def leaf(tensor):
    return tensor.detach().clone().requires_grad_()
