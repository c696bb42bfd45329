"""Every layer that comes with Headwater at the widths and on the graphs of real models, against PyG's or plain torch's in float64.

One graph: two node types, five relations of which one has no edges, a hub with a fifth of all edges, nodes without edges, and
edges of nodes to themselves.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import headwater  # noqa: E402
from torch_geometric.data import HeteroData  # noqa: E402

COUNTS, RELATIONS = {"a": 3000, "b": 1500}, [("a", 0, "a"), ("a", 1, "b"), ("b", 2, "a"), ("b", 3, "b"), ("a", 4, "a")]
NODES, EDGES, ISOLATED = 4500, 100_000, 200


@pytest.fixture(scope="module")
def graph():
    draw = torch.Generator().manual_seed(5)
    data, starts = HeteroData(), {"a": 0, "b": COUNTS["a"]}
    for name, count in COUNTS.items():
        data[name].num_nodes = count
    parts, types = [], []
    for (source, at, target), share in zip(RELATIONS, (0.4, 0.25, 0.2, 0.15, 0.0)):
        count = int(EDGES * share)
        ends = torch.stack([torch.randint(COUNTS[kind] - ISOLATED, (count,), generator=draw) for kind in (source, target)])
        if at == 0:
            ends[1, : EDGES // 5] = 7
            ends[:, -100:] = torch.arange(100)
        data[source, f"r{at}", target].edge_index = ends
        parts.append(ends + torch.tensor([[starts[source]], [starts[target]]]))
        types.append(torch.full((count,), at))
    edges, types = torch.cat(parts, 1), torch.cat(types)
    order = torch.randperm(edges.size(1), generator=draw)
    node_types = torch.tensor([0, 1]).repeat_interleave(torch.tensor(list(COUNTS.values())))
    return SimpleNamespace(data=data, edges=edges[:, order].contiguous(), types=types[order].contiguous(), node_types=node_types)


def leaf(tensor):
    return tensor.detach().float().contiguous().requires_grad_()


def wide(*shape):
    """Numbers of single precision in double precision: both sides have the same, and sums of many rows are right."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).mul_(0.3).double().requires_grad_()


def total(rows, index, count=NODES):
    return rows.new_zeros(count, *rows.shape[1:]).index_add(0, index, rows)


def shares(logits, index, count):
    most = logits.new_full((count, *logits.shape[1:]), -torch.inf)
    most = most.scatter_reduce(0, index.view(-1, *[1] * (logits.dim() - 1)).expand_as(logits), logits.detach(), "amax")
    raised = (logits - most[index]).exp()
    return raised / total(raised, index, count)[index]


def compare(ours, theirs, given):
    """Outputs, and gradients of everything: `given` has for each of our names a tensor of theirs, and how ours is made of it."""
    own = {name: leaf(turn(tensor)) for name, (tensor, turn) in given.items()}
    out, wanted = ours(**own), theirs()
    weight = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1))
    (out * weight).sum().backward()
    (wanted * weight.double()).sum().backward()
    for name, found, right in [("out", out, wanted), *((n, own[n].grad, turn(t.grad)) for n, (t, turn) in given.items())]:
        far = (found.detach().double() - right.detach()).abs().max().item() / right.abs().max().clamp(min=1e-3).item()
        assert far < 3e-4, (name, far)


def same(tensor):
    return tensor


def turned(tensor):
    return tensor.t()


def first(tensor):
    return tensor[0]


def gcn(graph, d_in, d_out, heads):
    x, theirs = wide(NODES, d_in), pyg.GCNConv(d_in, d_out).double()
    others = graph.edges[:, graph.edges[0] != graph.edges[1]]
    degrees = (others[1].bincount(minlength=NODES) + 1).float()
    scales = {"src_scale": degrees.rsqrt(), "dst_scale": degrees.rsqrt(), "self_scale": 1 / degrees}
    given = {"x": (x, same), "W": (theirs.lin.weight, turned), "b": (theirs.bias, same)}
    layer = headwater.compile("gcn")
    compare(lambda **own: layer(graph.edges, **own, **scales), lambda: theirs(x, graph.edges), given)


def sage(how):
    def check(graph, d_in, d_out, heads):
        x, theirs = wide(NODES, d_in), pyg.SAGEConv(d_in, d_out, aggr=how).double()
        given = {
            "x": (x, same),
            "W_neigh": (theirs.lin_l.weight, turned),
            "W_root": (theirs.lin_r.weight, turned),
            "b": (theirs.lin_l.bias, same),
        }
        layer = headwater.compile("sage")
        compare(lambda **own: layer(graph.edges, **own, aggregate=how), lambda: theirs(x, graph.edges), given)

    return check


def gin(graph, d_in, d_out, heads):
    hidden = torch.nn.Linear(d_in, d_out), torch.nn.Linear(d_out, d_out)
    theirs = pyg.GINConv(torch.nn.Sequential(hidden[0], torch.nn.ReLU(), hidden[1]), eps=0.3, train_eps=True).double()
    x = wide(NODES, d_in)
    given = {"x": (x, same), "W1": (hidden[0].weight, turned), "b1": (hidden[0].bias, same), "epsilon": (theirs.eps, same)}
    given.update({"W2": (hidden[1].weight, turned), "b2": (hidden[1].bias, same)})
    layer = headwater.compile("gin")
    compare(lambda **own: layer(graph.edges, **own, train_eps=True), lambda: theirs(x, graph.edges), given)


def gat(concat):
    def check(graph, d_in, d_out, heads):
        x, theirs = wide(NODES, d_in), pyg.GATConv(d_in, d_out // heads, heads=heads, concat=concat).double()
        given = {
            "x": (x, same),
            "W": (theirs.lin.weight, turned),
            "al": (theirs.att_src, first),
            "ar": (theirs.att_dst, first),
            "b": (theirs.bias, same),
        }
        layer = headwater.compile("gat")
        compare(lambda **own: layer(graph.edges, **own, concat_heads=concat), lambda: theirs(x, graph.edges), given)

    return check


def rgcn(how, norm):
    def check(graph, d_in, d_out, heads):
        x, theirs = wide(NODES, d_in), pyg.RGCNConv(d_in, d_out, len(RELATIONS), aggr=how).double()
        given = {name: (own, same) for name, own in zip(("x", "W", "root_W", "b"), (x, theirs.weight, theirs.root, theirs.bias))}
        layer, typed = headwater.compile("rgcn"), (graph.edges, graph.types)
        compare(lambda **own: layer(typed, **own, norm=norm), lambda: theirs(x, *typed), given)

    return check


def of_relations(graph, rows, W):
    """Every edge's row times the matrix of its type."""
    out = rows.new_zeros(graph.edges.size(1), W.size(2))
    for at in range(len(RELATIONS)):
        of_type = (graph.types == at).nonzero()[:, 0]
        out = out.index_add(0, of_type, rows[of_type] @ W[at])
    return out


def rgat(vectors, by):
    def check(graph, d_in, d_out, heads):
        width, kinds = d_out // heads, len(RELATIONS)
        x, W, b = wide(NODES, d_in), wide(kinds, d_in, heads * width), wide(heads * width)
        rows = (kinds, heads, width) if vectors == "relation" else (heads, width)
        al, ar = wide(*rows), wide(*rows, 1)[..., 0].detach().mul(-0.5).requires_grad_()

        def theirs():
            z, q = (of_relations(graph, x[end], W).view(-1, heads, width) for end in graph.edges)
            own = [part[graph.types] if vectors == "relation" else part for part in (al, ar)]
            logits = torch.nn.functional.leaky_relu((z * own[0]).sum(-1) + (q * own[1]).sum(-1), 0.2)
            group = graph.edges[1] if by == "dst" else graph.edges[1] * kinds + graph.types
            part = shares(logits, group, NODES if by == "dst" else NODES * kinds)
            return total((part[..., None] * z).flatten(1), graph.edges[1]) + b

        names = ("al", "ar") if vectors == "relation" else ("shared_al", "shared_ar")
        given = {name: (own, same) for name, own in zip(("x", "W", *names, "b"), (x, W, al, ar, b))}
        layer = headwater.compile("rgat")
        compare(lambda **own: layer((graph.edges, graph.types), **own, vectors=vectors, by=by), theirs, given)

    return check


def hgt(graph, d_in, d_out, heads):
    kinds = [(source, f"r{at}", target) for source, at, target in RELATIONS]
    theirs = pyg.HGTConv(d_in, d_out, (list(COUNTS), kinds), heads).double()
    for parameter in theirs.parameters():
        torch.nn.init.uniform_(parameter, -0.3, 0.3)
    x = wide(NODES, d_in)
    parts = dict(zip(COUNTS, x.split(list(COUNTS.values()))))
    own = {}
    own["x"] = [x], same
    for at, name in enumerate("KQV"):
        piece = slice(at * d_out, (at + 1) * d_out)
        own[name] = [theirs.kqv_lin.lins[kind].weight for kind in COUNTS], lambda t, piece=piece: t[piece].t()
        own[f"{name}_b"] = [theirs.kqv_lin.lins[kind].bias for kind in COUNTS], lambda t, piece=piece: t[piece].view(heads, -1)
    own["A"] = [theirs.out_lin.lins[kind].weight for kind in COUNTS], turned
    own["A_b"] = [theirs.out_lin.lins[kind].bias for kind in COUNTS], same
    width = d_out // heads
    # PyG has all relations of a head, then those of the next.
    inside = lambda tensor: tensor.reshape(heads, len(kinds), width, width).transpose(0, 1)  # noqa: E731
    own["W_att"], own["W_msg"] = ([theirs.k_rel.weight], inside), ([theirs.v_rel.weight], inside)
    own["mu"] = [theirs.p_rel["__".join(kind)] for kind in kinds], lambda t: t.view(heads, 1)
    if d_in == d_out:
        own["skip"] = [theirs.skip[kind] for kind in COUNTS], lambda t: t.view(1)
    lone = {"x", "W_att", "W_msg"}

    def joined(name, pick):
        tensors, turn = own[name]
        made = [turn(pick(tensor)) for tensor in tensors]
        return made[0] if name in lone else torch.stack(made)

    ours = {name: leaf(joined(name, lambda t: t)) for name in own}
    out = headwater.compile("hgt")(graph.data, **{**ours, "x": dict(zip(COUNTS, ours["x"].split(list(COUNTS.values()))))})
    wanted = theirs(parts, {kind: graph.data[kind].edge_index for kind in kinds})
    out, wanted = (torch.cat([end[kind] for kind in COUNTS]) for end in (out, wanted))
    weight = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1))
    (out * weight).sum().backward()
    (wanted * weight.double()).sum().backward()
    zeros = lambda t: torch.zeros_like(t) if t.grad is None else t.grad  # noqa: E731
    for name, found, right in [("out", out, wanted), *((name, ours[name].grad, joined(name, zeros)) for name in own)]:
        far = (found.detach().double() - right.detach()).abs().max().item() / right.abs().max().clamp(min=1e-3).item()
        assert far < 3e-4, (name, far)


def hector(graph, d_in, d_out, heads):
    width, kinds = d_out // heads, len(RELATIONS)
    x, A, skip = wide(NODES, d_in), wide(2, d_out, d_out), wide(2, 1)
    K, Q, V = (wide(2, d_in, d_out, at)[..., 0].detach().requires_grad_() for at in (1, 2, 3))
    W_att, W_msg = (wide(kinds, heads, width, width, at)[..., 0].detach().requires_grad_() for at in (1, 2))
    mu = wide(kinds, heads, 1)

    def of_types(rows, W):
        return torch.cat([part @ own for part, own in zip(rows.split(list(COUNTS.values())), W)])

    def of_heads(rows, W):
        each = [of_relations(graph, rows[:, head], W[:, head]) for head in range(heads)]
        return torch.stack(each, 1)

    def theirs():
        k, q, v = (of_types(x, W).view(NODES, heads, width) for W in (K, Q, V))
        source, target = graph.edges
        logits = (of_heads(k[source], W_att) * q[target]).sum(-1) * mu[graph.types, :, 0] / width**0.5
        h = total((shares(logits, target, NODES)[..., None] * of_heads(v[source], W_msg)).flatten(1), target)
        return skip.sigmoid()[graph.node_types] * of_types(h, A)

    names = ("x", "K", "Q", "V", "W_att", "W_msg", "mu", "A", "skip")
    given = {name: (own, same) for name, own in zip(names, (x, K, Q, V, W_att, W_msg, mu, A, skip))}
    layer = headwater.compile("hgt")
    compare(lambda **own: layer(graph.data, **own, variant="hector"), theirs, given)


def dots(graph, d_in, d_out, heads):
    """The attention that fits on five lines."""
    width = d_in // heads
    x = wide(NODES, heads, width)
    layer = headwater.compile(
        'def f(g, x: node[heads, d]):\n    for e in g.edges():\n        e["a"] = edge_softmax(dot(e.src.x, e.dst.x))\n'
        '    for n in g.dst_nodes():\n        n["out"] = flatten(sum(e["a"] * e.src.x for e in n.incoming_edges()))\n'
    )

    def theirs():
        part = shares((x[graph.edges[0]] * x[graph.edges[1]]).sum(-1), graph.edges[1], NODES)
        return total((part[..., None] * x[graph.edges[0]]).flatten(1), graph.edges[1])

    compare(lambda x: layer(graph.edges, x), theirs, {"x": (x, same)})


def both_ends(graph, d_in, d_out, heads):
    """An edge's row out of both of its ends, with a weight a type."""
    x, W, v = wide(NODES, d_in), wide(len(RELATIONS), 2 * d_in, d_out), wide(d_out)
    layer = headwater.compile(
        'def f(g, x: node[d], W: matrix[etype, 2 * d, k], v: vector[k]):\n    for e in g.edges():\n'
        '        e["m"] = linear(concat(e.src.x, e.dst.x - e.src.x), W[e.etype])\n'
        '        e["a"] = edge_softmax(dot(tanh(e["m"]), v))\n'
        '    for n in g.dst_nodes():\n        n["out"] = n.x[0:1] * sum(e["a"] * relu(e["m"]) for e in n.incoming_edges())\n'
    )

    def theirs():
        source, target = (x[end] for end in graph.edges)
        m = of_relations(graph, torch.cat([source, target - source], 1), W)
        part = shares((m.tanh() * v).sum(1), graph.edges[1], NODES)
        return x[:, :1] * total(part[:, None] * m.relu(), graph.edges[1])

    given = {"x": (x, same), "W": (W, same), "v": (v, same)}
    compare(lambda **own: layer((graph.edges, graph.types), **own), theirs, given)


WIDE, ODD = (64, 64), (17, 33)
CHECKS = {
    "gcn": (gcn, [(*WIDE, 1), (*ODD, 1)]),
    "sage, mean": (sage("mean"), [(*WIDE, 1), (*ODD, 1)]),
    "sage, sum": (sage("sum"), [(*ODD, 1)]),
    "sage, max": (sage("max"), [(*ODD, 1)]),
    "gin": (gin, [(*WIDE, 1)]),
    "gat": (gat(True), [(*WIDE, 1), (*ODD, 3), (*WIDE, 4), (*WIDE, 8)]),
    "gat, mean of heads": (gat(False), [(*ODD, 3)]),
    "rgcn, mean": (rgcn("mean", "rel_mean"), [(*WIDE, 1)]),
    "rgcn, sum": (rgcn("add", "none"), [(*ODD, 1)]),
    "rgat": (rgat("relation", "dst"), [(*WIDE, 4)]),
    "rgat, shared, within types": (rgat("shared", "etype"), [(*ODD, 3)]),
    "hgt": (hgt, [(*ODD, 3), (*WIDE, 8)]),
    "hgt, hector": (hector, [(*WIDE, 1)]),
    "dot attention": (dots, [(33, 33, 3), (*WIDE, 8)]),
    "both ends": (both_ends, [(*ODD, 1)]),
}


@pytest.mark.parametrize("name, sizes", [(name, sizes) for name, (_, all_sizes) in CHECKS.items() for sizes in all_sizes])
def test_layers_at_size(graph, name, sizes):
    torch.manual_seed(2)
    CHECKS[name][0](graph, *sizes)
