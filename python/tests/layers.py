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


NAN, INF = float("nan"), float("inf")
VALUES = [NAN, INF, -INF, 0.0, 1.0, -1.0, 2.0]

# Functions as a text has them, and as torch has them.
UNARY = {
    "relu(n.x)": torch.relu,
    "leaky_relu(n.x, 0.2)": lambda x: torch.nn.functional.leaky_relu(x, 0.2),
    "leaky_relu(n.x, 0.0)": lambda x: torch.nn.functional.leaky_relu(x, 0.0),
    "elu(n.x)": torch.nn.functional.elu,
    "sigmoid(n.x)": torch.sigmoid,
    "tanh(n.x)": torch.tanh,
    "exp(n.x)": torch.exp,
    "log(n.x)": torch.log,
    "sqrt(n.x)": torch.sqrt,
    "rsqrt(n.x)": torch.rsqrt,
    "abs(n.x)": torch.abs,
    "1 / n.x": torch.reciprocal,
}
BINARY = {"maximum(n.x, n.y)": torch.maximum, "minimum(n.x, n.y)": torch.minimum}


def check_special_values(device):
    """Every function of NaN, infinities, zero and others is torch's, and so are slopes. One layer computes all of them, each of
    inputs of its own."""
    pairs = torch.cartesian_prod(torch.tensor(VALUES), torch.tensor(VALUES))
    functions = [*UNARY.items(), *BINARY.items()]
    terms, ours, wanted, theirs = [], {}, [], []
    for at, (name, function) in enumerate(functions):
        count = 1 if name in UNARY else 2
        terms.append(name.replace("n.x", f"n.x{at}").replace("n.y", f"n.y{at}"))
        theirs.append([leaf(pairs[:, end].view(-1, 7)) for end in range(count)])
        ours.update({f"{end}{at}": leaf(own.to(device)) for end, own in zip("xy", theirs[-1])})
        wanted.append(function(*theirs[-1]))
    joined = terms[0]
    for term in terms[1:]:
        joined = f"concat({joined}, {term})"
    inputs = "".join(f", {name}: node[d]" for name in ours)
    layer = headwater.compile(f'def f(g{inputs}):\n    for n in g.dst_nodes():\n        n["out"] = {joined}\n')
    out = layer(torch.empty(2, 0, dtype=torch.long, device=device), **ours)
    out.backward(torch.ones_like(out))
    for at, ((name, _), found, right) in enumerate(zip(functions, out.detach().cpu().split(7, 1), wanted)):
        right.backward(torch.ones_like(right))
        ends = [(ours[f"{end}{at}"].grad.cpu(), own.grad) for end, own in zip("xy", theirs[at])]
        for one, other in [(found, right.detach()), *ends]:
            torch.testing.assert_close(one, other, equal_nan=True, msg=lambda why: f"{name}: {why}")


def check_special_reductions(device):
    """Maxima and shares of edges are torch's where edges have NaN or infinities."""
    hub = 700  # more than a group of lanes has alone
    columns = [[NAN, 1.0], [1.0, NAN], [-INF, -INF], [INF, 1.0], [-INF, 2.0, -INF], [2.0, 2.0, 1.0], [-3.0], []]
    columns += [[0.5] * hub, [0.5] * (hub - 1) + [NAN], [-INF] * (hub - 1) + [0.25]]
    x = torch.tensor([value for column in columns for value in column])[:, None].repeat(1, 3)
    targets = torch.repeat_interleave(torch.arange(len(columns)), torch.tensor([len(column) for column in columns]))
    edges = torch.stack([torch.arange(len(x)), targets])
    most, shares = (
        headwater.compile(
            f'def f(g, x: node[d]):\n    for e in g.edges():\n        e["a"] = {what}\n'
            f'    for n in g.dst_nodes():\n        n["out"] = {how}(e["a"] for e in n.incoming_edges())\n'
        )
        for what, how in (("e.src.x", "max"), ("edge_softmax(e.src.x) * e.src.x", "sum"))
    )
    ours, theirs = leaf(x.to(device)), leaf(x)
    graph = headwater.LayerGraph(edges.to(device), len(x), num_written=len(columns))
    out = most(graph, ours)
    index = targets[:, None].expand(-1, 3)
    wanted = torch.zeros(len(columns), 3).scatter_reduce(0, index, theirs, "amax", include_self=False)
    out.backward(torch.ones_like(out))
    wanted.backward(torch.ones_like(wanted))
    torch.testing.assert_close(out.detach().cpu(), wanted.detach(), equal_nan=True)
    torch.testing.assert_close(ours.grad.cpu(), theirs.grad, equal_nan=True)
    parts = [torch.tensor(column).softmax(0) * torch.tensor(column) for column in columns]
    wanted = torch.stack([part.sum() for part in parts])[:, None].repeat(1, 3)
    torch.testing.assert_close(shares(graph, x.to(device)).cpu(), wanted, equal_nan=True)
