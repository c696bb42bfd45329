"""Layers written as texts and called with torch tensors, against PyG's layers, plain torch and central differences."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import headwater  # noqa: E402
from headwater import LayerGraph, constant, when  # noqa: E402
from headwater.layer_graph import _MOST_GRAPHS, _remembered_graphs  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402


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


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


@pytest.fixture
def edges():
    # The last nodes are isolated.
    return torch.randint(0, NODES - 5, (2, EDGES))


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


def test_gcn_is_pyg(edges):
    theirs = pyg.GCNConv(D_IN, D_OUT, add_self_loops=False)
    x, W, b = draw(NODES, D_IN), leaf(theirs.lin.weight.t()), leaf(theirs.bias)
    degrees = edges[1].bincount(minlength=NODES).float().clamp(min=1)
    norm = 1 / (degrees[edges[0]] * degrees[edges[1]]).sqrt()
    # PyG's own norm is 0 where a source has no edges of its own.
    norm[edges[1].bincount(minlength=NODES)[edges[0]] == 0] = 0
    other = leaf(x)
    out = gcn(edges, x, W, norm, b)
    wanted = theirs(other, edges)
    weight = torch.randn_like(wanted)
    close(out, wanted)
    (out * weight).sum().backward()
    (wanted * weight).sum().backward()
    close(x.grad, other.grad)
    close(W.grad.t(), theirs.lin.weight.grad)
    close(b.grad, theirs.bias.grad)
    assert torch.equal(out[-5:], b.expand(5, -1))


def test_sage_is_pyg(edges):
    theirs = pyg.SAGEConv(D_IN, D_OUT)
    x = draw(NODES, D_IN)
    other = leaf(x)
    W, root, b = leaf(theirs.lin_l.weight.t()), leaf(theirs.lin_r.weight.t()), leaf(theirs.lin_l.bias)
    out, wanted = sage(edges, x, W, root, b), theirs(other, edges)
    same_with_gradients(out, wanted, [(x, other), (b, theirs.lin_l.bias)])
    close(W.grad.t(), theirs.lin_l.weight.grad)
    close(root.grad.t(), theirs.lin_r.weight.grad)


@pytest.mark.parametrize("heads", [1, 3])
def test_gat_is_pyg(edges, heads):
    theirs = pyg.GATConv(D_IN, D_OUT, heads=heads)
    x = draw(NODES, D_IN)
    other, W, b = leaf(x), leaf(theirs.lin.weight.t()), leaf(theirs.bias)
    al, ar = leaf(theirs.att_src[0]), leaf(theirs.att_dst[0])
    out, wanted = gat(edges, x, W, al, ar, b), theirs(other, edges)
    same_with_gradients(out, wanted, [(x, other), (b, theirs.bias)])
    close(W.grad.t(), theirs.lin.weight.grad)
    close(al.grad[None], theirs.att_src.grad)
    close(ar.grad[None], theirs.att_dst.grad)


def test_rgcn_is_pyg(edges):
    theirs = pyg.RGCNConv(D_IN, D_OUT, TYPES)
    # The last type has no edges: how many there are follows from the weights.
    types = torch.randint(0, TYPES - 1, (EDGES,))
    x = draw(NODES, D_IN)
    other, W, root, b = leaf(x), leaf(theirs.weight), leaf(theirs.root), leaf(theirs.bias)
    out, wanted = rgcn((edges, types), x, W, root, b), theirs(other, edges, types)
    same_with_gradients(out, wanted, [(x, other), (W, theirs.weight), (root, theirs.root), (b, theirs.bias)])
    data = Data(edge_index=edges, edge_type=types, num_nodes=NODES)
    assert torch.equal(rgcn(data, x, W, root, b), out)


def test_gradients_are_those_of_central_differences():
    edges = torch.tensor([[0, 1, 2, 2, 3], [1, 2, 0, 1, 0]])
    given = {"x": draw(4, 2), "W": draw(2, 4), "al": draw(2, 2), "ar": draw(2, 2), "b": draw(4)}
    weight = torch.randn(4, 4)

    def loss(**given):
        return (gat(edges, **given) * weight).sum()

    loss(**given).backward()
    step = 1e-2
    for name, tensor in given.items():
        for at in range(tensor.numel()):
            moved = []
            for by in (step, -step):
                other = {key: value.detach().clone() for key, value in given.items()}
                other[name].view(-1)[at] += by
                moved.append(loss(**other).item())
            wanted = (moved[0] - moved[1]) / (2 * step)
            assert abs(wanted - tensor.grad.view(-1)[at].item()) < 2e-2, (name, at)


def test_edge_data_is_in_the_callers_order(edges):
    x, w = draw(NODES, D_IN), draw(EDGES)
    wanted = torch.zeros(NODES, D_IN).index_add(0, edges[1], w[:, None] * x[edges[0]])
    grads = torch.autograd.grad(wanted.square().sum(), [x, w])
    types = torch.randint(0, 3, (EDGES,))
    topology = headwater.Topology.from_coo(edges[0], edges[1], NODES, NODES, "csr")
    native = headwater.Graph([("node", NODES)], [(0, "to", 0, topology)])
    for graph in (edges, (edges, types), native, Data(edge_index=edges, num_nodes=NODES)):
        for rows in (w, w[:, None]):
            out = weighted(graph, x, rows)
            close(out, wanted)
            for found, gradient in zip(torch.autograd.grad(out.square().sum(), [x, w]), grads):
                close(found, gradient, 1e-3)
    far = headwater.Topology.from_coo(edges[0], edges[1], NODES, NODES, edge_ids=torch.arange(EDGES) + 1)
    with pytest.raises(ValueError, match="w has a row an edge, but edges have ids"):
        weighted(headwater.Graph([("node", NODES)], [(0, "to", 0, far)]), x, w)


def test_nodes_and_edges_of_several_types():
    data = HeteroData()
    data["paper"].num_nodes, data["author"].num_nodes = 30, 10
    data["author", "writes", "paper"].edge_index = torch.stack([torch.randint(0, n, (50,)) for n in (10, 30)])
    data["paper", "cites", "paper"].edge_index = torch.randint(0, 30, (2, 80))
    x = {"author": draw(10, D_IN), "paper": draw(30, D_IN)}
    W, root, b = draw(2, D_IN, D_OUT), torch.zeros(D_IN, D_OUT), torch.zeros(D_OUT)
    out = rgcn(data, x, W, root, b)
    assert list(out) == data.node_types and out["author"].shape == (10, D_OUT)
    wanted = torch.zeros(30, D_OUT)
    for weight, kind in zip(W, data.edge_types):
        source, target = data[kind].edge_index
        count = target.bincount(minlength=30).clamp(min=1)
        wanted = wanted.index_add(0, target, (x[kind[0]] @ weight)[source] / count[target, None])
    close(out["paper"], wanted)
    assert not out["author"].any()
    grads = [torch.autograd.grad(end.square().sum(), [*x.values(), W], retain_graph=True) for end in (out["paper"], wanted)]
    for one, other in zip(*grads):
        close(one, other, 1e-3)
    w = {kind: torch.rand(data[kind].num_edges) for kind in data.edge_types}
    joined = torch.cat([x[kind] for kind in data.node_types]), torch.cat([w[kind] for kind in data.edge_types])
    assert torch.equal(torch.cat(list(weighted(data, x, w).values())), weighted(data, *joined))
    with pytest.raises(ValueError, match="x has the types"):
        rgcn(data, {"paper": x["paper"]}, W, root, b)


def test_a_block_writes_its_first_nodes(edges):
    inside = edges[:, edges[1] < 12]
    graph = LayerGraph(inside, NODES, num_written=12)
    x, W, root, b = draw(NODES, D_IN), draw(D_IN, D_OUT), draw(D_IN, D_OUT), draw(D_OUT)
    out, whole = sage(graph, x, W, root, b), sage(edges, x, W, root, b)
    close(out, whole[:12])
    for one, other in zip(*(torch.autograd.grad(end.sum(), [x, W, root]) for end in (out, whole[:12]))):
        close(one, other, 1e-4)


def test_a_layer_is_used_twice_in_one_graph(edges):
    x, W, root, b = draw(NODES, D_IN), draw(D_IN, D_IN), draw(D_IN, D_IN), draw(D_IN)

    def plain(x):
        mean = torch.zeros(NODES, D_IN).index_add(0, edges[1], x[edges[0]])
        return mean / edges[1].bincount(minlength=NODES).clamp(min=1)[:, None] @ W + x @ root + b

    ours = sage(edges, sage(edges, x, W, root, b).relu(), W, root, b)
    wanted = plain(plain(x).relu())
    close(ours, wanted, 1e-4)
    for one, other in zip(*(torch.autograd.grad(out.square().mean(), [x, W, root, b]) for out in (ours, wanted))):
        close(one, other, 1e-3)


def test_it_is_compiled_once_a_kind_of_call(edges):
    layer = copy.copy(headwater.compile("sage"))
    assert layer.__name__ == "sage" and not layer._bound
    x, W, root, b = draw(NODES, D_IN), draw(D_IN, D_OUT), draw(D_IN, D_OUT), draw(D_OUT)
    for _ in range(3):
        layer(edges, x, W, root, b)
    half = edges[:, ::2].contiguous()
    layer(half, x, W, root, b)
    assert [bound.plan_count for bound in layer._bound.values()] == [1]
    layer(edges, x.detach(), W, root, b)
    layer(edges, x, W, root, bias=False)
    layer(edges, x, W, root, b, aggregate="sum")
    assert len(layer._bound) == 4
    with torch.no_grad():
        layer(edges, x, W, root, b)
        layer(edges, x.detach(), W.detach(), root, b)
    assert len(layer._bound) == 5


def test_graphs_are_remembered_until_they_change(edges):
    x, w = draw(NODES, D_IN), torch.ones(EDGES)
    first = weighted(edges, x, w)
    known = list(_remembered_graphs)
    assert torch.equal(weighted(edges, x, w), first) and list(_remembered_graphs) == known
    edges[0] = (edges[0] + 1) % NODES
    wanted = torch.zeros(NODES, D_IN).index_add(0, edges[1], x[edges[0]])
    close(weighted(edges, x, w), wanted)
    for _ in range(2 * _MOST_GRAPHS):
        weighted(edges.clone(), x, w)
    kept = [edges.clone() for _ in range(2 * _MOST_GRAPHS)]
    for graph in kept:
        weighted(graph, x, w)
    assert len(_remembered_graphs) == _MOST_GRAPHS
    with torch.inference_mode():
        close(weighted(edges.clone(), x, w), wanted.detach())


def test_arguments_that_do_not_fit_are_named(edges):
    x, W, root, b = (torch.randn(*shape) for shape in ((NODES, D_IN), (D_IN, D_OUT), (D_IN, D_OUT), (D_OUT,)))
    cases = [
        (dict(W=torch.randn(D_IN + 1, D_OUT)), ValueError, r"^W: its shape is \[7, 5\]; expected \[6, 5\]"),
        (dict(root=torch.randn(D_IN, D_OUT, 1)), ValueError, "^root: a row of it is"),
        (dict(b=torch.randn(D_OUT + 1)), ValueError, r"^b: its shape is \[6\]; expected \[5\]"),
        (dict(x=torch.randn(NODES)), ValueError, "^x: a row of it is"),
        (dict(x=torch.randn(NODES, 0)), ValueError, "^x: a row of it is"),
        (dict(x=torch.randn(())), ValueError, "no tensor tells"),
        (dict(x=x.double()), ValueError, "^x is of torch.float64"),
        (dict(x=x.to_sparse()), ValueError, "^x is sparse"),
        (dict(x=x.numpy()), TypeError, "^x is a ndarray"),
        (dict(b=None), ValueError, "^b: it is missing"),
        (dict(W=None, root=None, b=None), ValueError, "^d_out: no array tells this size"),
        (dict(c=x), TypeError, "unexpected argument 'c'"),
        (dict(graph=LayerGraph(edges, NODES + 1)), ValueError, r"^x: its shape is .* the graph has 41 nodes"),
        (dict(graph=edges[0]), ValueError, "edge_index has shape"),
        (dict(graph=edges.float()), ValueError, "edge_index is of torch.float32"),
        (dict(graph=edges + NODES), IndexError, r"sources\[0\] is \d+, but there are only 40 nodes"),
        (dict(graph="edges"), TypeError, "the graph is a str"),
    ]
    for change, kind, words in cases:
        given = {"graph": edges, "x": x, "W": W, "root": root, "b": b, **change}
        with pytest.raises(kind, match=words):
            sage(given.pop("graph"), **given)
    with pytest.raises(TypeError, match="takes 4 arguments behind the graph"):
        sage(edges, x, W, root, b, b)
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        sage(edges, x, W, root, b, x=x)
    with pytest.raises(ValueError, match="^slope: expected float"):
        gat(edges, x, torch.randn(D_IN, D_OUT), torch.randn(1, D_OUT), torch.randn(1, D_OUT), b, slope="steep")
    with pytest.raises(ValueError, match="^norm: its gradient is asked for, but the text has it as constant"):
        gcn(edges, x, W, torch.ones(EDGES, requires_grad=True), b)
    with pytest.raises(ValueError, match=r"^W: its shape is \[2, 6, 5\]; expected \[3, 6, 5\]: the graph has 3 edge types"):
        types = torch.randint(0, 3, (EDGES,))
        rgcn(LayerGraph(edges, NODES, edge_type=types, num_edge_types=3), x, torch.randn(2, D_IN, D_OUT), root, b)
    with pytest.raises(ValueError, match="edge_type has 2, but there are only 2 edge types"):
        rgcn((edges, torch.full((EDGES,), 2)), x, torch.randn(2, D_IN, D_OUT), root, b)


def test_sizes_that_tensors_do_not_tell_are_given_by_name(edges):
    @headwater.compile
    def layer(g, x: node[heads * d]):
        for n in g.dst_nodes():
            n["out"] = mean_heads(reshape(n.x, heads, d))

    x = torch.randn(NODES, 6)
    close(layer(edges, x, heads=2), x.view(NODES, 2, 3).mean(1))
    close(layer(edges, x, d=2), x.view(NODES, 3, 2).mean(1))
    with pytest.raises(ValueError, match="^(heads|d): no array tells this size; give it by name"):
        layer(edges, x)


def same(function):
    return function


def line_of(text):
    return next(number for number, line in enumerate(open(__file__), 1) if line.rstrip().endswith(f"# {text}"))


def test_faults_of_a_text_have_the_line_of_their_file(edges):
    x = torch.randn(NODES, D_IN)

    @headwater.compile
    def unknown(g, x: node[d]):
        for n in g.dst_nodes():
            n["z"] = n.x
            n["out"] = n["y"] + n.x  # the fault

    with pytest.raises(SyntaxError, match="there is no") as found:
        unknown(edges, x)
    assert (found.value.filename, found.value.lineno) == (__file__, line_of("the fault"))
    assert 'n["out"] = n["y"]' in found.value.text

    with pytest.raises(SyntaxError, match="expected an annotation") as found:

        @headwater.compile
        def bare(
            g,
            x,  # the bare one
        ):
            for n in g.dst_nodes():
                n["out"] = n.x

    assert (found.value.filename, found.value.lineno) == (__file__, line_of("the bare one"))

    with pytest.raises(SyntaxError, match="expected one decorator") as found:

        @headwater.compile
        @same  # the second one
        def twice(g, x: node[d]):
            pass

    assert found.value.lineno == line_of("the second one")

    with pytest.raises(SyntaxError) as found:
        headwater.compile("def f(g, x: node[d]):\n    for n in g.nodes()\n        pass\n")
    assert (found.value.filename, found.value.lineno) == ("<layer>", 2)


def test_what_is_no_layer_is_refused():
    for wrong in (3, lambda g: g, len):
        with pytest.raises((TypeError, SyntaxError)):
            headwater.compile(wrong)
    there = {}
    exec("def f(g, x): pass", there)
    with pytest.raises(ValueError, match="the text of f is not there"):
        headwater.compile(there["f"])
    with pytest.raises(ValueError, match="does not stand above"):
        headwater.compile(doubled, uses=[line_of])
    with pytest.raises(ValueError, match="another file"):
        headwater.compile(line_of, uses=[copy.copy.__globals__["deepcopy"]])
    with pytest.raises(TypeError, match="itself"):
        headwater.compile("gat", self_loops=True)


def test_a_layer_uses_functions(edges):
    x = torch.randn(NODES, D_IN)
    close(with_function(edges, x), 2 * torch.zeros(NODES, D_IN).index_add(0, edges[1], x[edges[0]]))


def test_tensors_that_are_not_contiguous_are_copied(edges):
    x, W, root, b = draw(D_IN, NODES), draw(D_OUT, D_IN), draw(D_IN, 2 * D_OUT), draw(D_OUT)
    views = x.t(), W.t(), root[:, ::2], b
    out = sage(edges.t().contiguous().t(), *views)
    assert torch.equal(out, sage(edges, *(view.contiguous() for view in views)))
    out.t().contiguous().sum().backward()
    plain = [leaf(view) for view in views]
    sage(edges, *plain).sum().backward()
    close(x.grad.t(), plain[0].grad)
    close(W.grad.t(), plain[1].grad)
    close(root.grad[:, ::2], plain[2].grad)
    expanded = torch.ones(1, D_IN).expand(NODES, D_IN)
    assert torch.equal(sage(edges, expanded, *plain[1:]), sage(edges, torch.ones(NODES, D_IN), *plain[1:]))


@pytest.mark.parametrize("nodes", [0, 1, 9])
def test_graphs_without_edges_and_without_nodes(nodes):
    empty = torch.empty(2, 0, dtype=torch.long)
    x, W, root, b = draw(nodes, D_IN), draw(D_IN, D_OUT), draw(D_IN, D_OUT), draw(D_OUT)
    out = sage(empty, x, W, root, b)
    close(out, x @ root + b)
    out.sum().backward()
    assert not W.grad.any() and x.grad.shape == (nodes, D_IN)
    close(b.grad, torch.full((D_OUT,), float(nodes)))
    typed = rgcn((empty, torch.empty(0, dtype=torch.long)), x, draw(3, D_IN, D_OUT), root, b)
    close(typed, x @ root + b)
    al, ar = draw(1, D_OUT), draw(1, D_OUT)
    close(gat(empty, x, W, al, ar, b), x @ W + b)
    assert weighted(empty, x, torch.empty(0)).shape == (nodes, D_IN)


def test_only_what_requires_gradients_gets_them(edges):
    every = [draw(NODES, D_IN), draw(D_IN, D_OUT), draw(D_IN, D_OUT), draw(D_OUT)]
    wanted = torch.autograd.grad(sage(edges, *every).square().sum(), every)
    for mask in range(16):
        given = [leaf(t) if mask >> at & 1 else t.detach() for at, t in enumerate(every)]
        out = sage(edges, *given)
        assert out.requires_grad == (mask > 0)
        if mask:
            out.square().sum().backward()
        for at, tensor in enumerate(given):
            if mask >> at & 1:
                close(tensor.grad, wanted[at], 1e-3)
            else:
                assert tensor.grad is None


def test_nothing_is_kept_without_gradients(edges):
    given = draw(NODES, D_IN), draw(D_IN, D_OUT), draw(D_IN, D_OUT), draw(D_OUT)
    trained = sage(edges, *given)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = sage(edges, *given)
        assert not out.requires_grad and out.grad_fn is None
        close(out, trained.detach())


def test_the_way_back_is_torchs_own(edges):
    given = [draw(NODES, D_IN), draw(D_IN, D_OUT), draw(D_IN, D_OUT), draw(D_OUT)]
    out = sage(edges, *given)
    out.sum().backward(retain_graph=True)
    first = given[1].grad.clone()
    out.sum().backward()
    assert torch.equal(given[1].grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()
    out = sage(edges, *given)
    with torch.no_grad():
        given[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    (gradient,) = torch.autograd.grad(sage(edges, *given).square().sum(), given[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        gat(edges, given[0], draw(D_IN, D_OUT), draw(1, D_OUT), draw(1, D_OUT), given[3])
    assert len(kept) > 3, "activations too"


def test_dropout_draws_from_torchs_generator(edges):
    x, W, al, ar, b = draw(NODES, D_IN), draw(D_IN, D_OUT), draw(1, D_OUT), draw(1, D_OUT), draw(D_OUT)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(gat(edges, x, W, al, ar, b, p=0.5))
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])
    # The same elements are dropped on the way back: without the rest, the output is linear in W.
    zeros = [t.detach() * 0 for t in (al, ar, b)]
    linear = gat(edges, x, W, *zeros, p=0.5)
    (gradient,) = torch.autograd.grad(linear.sum(), W)
    close((gradient * W).sum(), linear.sum(), 1e-3)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    still = gat(edges, x, W, al, ar, b, p=0.5, training=False)
    assert torch.equal(still, gat(edges, x, W, al, ar, b)) and torch.equal(torch.random.get_rng_state(), before)


def test_an_optimiser_lowers_a_loss(edges):
    labels = torch.randint(0, 3, (NODES,))
    x = torch.nn.functional.one_hot(labels, 3).float() + 0.5 * torch.randn(NODES, 3)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = gat.module(d_in=3, d_out=8, heads=2, p=0.1)
            self.two = headwater.compile("sage").module(d_in=16, d_out=3)

        def forward(self, edges, x):
            return self.two(edges, self.one(edges, x).relu())

    net = Net()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(edges, x), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    net.eval()
    assert torch.equal(net(edges, x), net(edges, x))


def test_a_module_owns_its_weights(edges):
    module = rgcn.module(d_in=D_IN, d_out=D_OUT, num_edge_types=3, seed=1)
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == {
        "W": (3, D_IN, D_OUT),
        "root": (D_IN, D_OUT),
        "b": (D_OUT,),
    }
    assert not module.b.any() and module.W.abs().max() <= (6 / (D_IN + D_OUT)) ** 0.5
    assert "rgcn, d_in=6, d_out=5" in repr(module)
    same, other = (rgcn.module(d_in=D_IN, d_out=D_OUT, num_edge_types=3, seed=seed) for seed in (1, 2))
    assert torch.equal(module.W, same.W) and not torch.equal(module.W, other.W)
    graph = (edges, torch.randint(0, 3, (EDGES,)))
    x = torch.randn(NODES, D_IN)
    out = module(graph, x)
    assert torch.equal(out, rgcn(graph, x, module.W, module.root, module.b))
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(graph, x=x), out)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(graph, x), out)
    assert gat.module(d_in=2, d_out=3, heads=1).al.shape == (1, 3)
    assert "b" not in dict(gcn.module(d_in=2, d_out=3, bias=False).named_parameters())
    with pytest.raises(ValueError, match="^d_out: no array tells"):
        rgcn.module(d_in=3)
    with pytest.raises(TypeError, match="x is an array"):
        rgcn.module(x=x)
    with pytest.raises(TypeError, match="but 2 were given"):
        module(graph, x, x)
    with pytest.raises(ValueError, match="E has a row for each pair.src, and nobody says how many there are"):
        headwater.compile("rgcn").module(d_out=3, features=False)


def test_a_plan_can_be_looked_at(edges):
    text = sage.explain()
    for section in ("values, forward", "values, backward", "kernels, forward", "kernels, backward", "plan"):
        assert f"== {section}\n" in text
    assert "[1, 64, 64]" in text and "[1, 64, 7]" in sage.explain(d_out=7, level="kernels")
    given = draw(NODES, D_IN), draw(D_IN, D_OUT), draw(D_IN, D_OUT), draw(D_OUT)
    told = sage.explain(edges, *given, level="kernels")
    assert "gemm" in told and "d.W" in told and "== values" not in told
    with torch.no_grad():
        assert sage.explain(edges, *given).startswith("== kernels, inference")
    with pytest.raises(ValueError, match='level is "dust"'):
        sage.explain(level="dust")


def test_a_layer_is_a_python_object(edges):
    assert gcn.__name__ == "gcn" and "norm x W" in gcn.__doc__ and gcn.__module__ == __name__
    assert repr(sage) == "<headwater layer sage(x, W, root, b)>"
    x, w = torch.randn(NODES, 2), torch.rand(EDGES)
    assert torch.equal(pickle.loads(pickle.dumps(weighted))(edges, x, w), weighted(edges, x, w))


def test_tensors_on_a_gpu_are_refused_in_words(edges):
    x, W, root, b = (torch.randn(*shape) for shape in ((NODES, D_IN), (D_IN, D_OUT), (D_IN, D_OUT), (D_OUT,)))
    with pytest.raises(RuntimeError, match="W lies on meta; compiled layers run on CPU tensors so far"):
        sage(edges, x, W.to("meta"), root, b)


def test_threads_call_a_layer_together(edges):
    from concurrent.futures import ThreadPoolExecutor

    given = draw(NODES, D_IN), draw(D_IN, D_OUT), draw(D_IN, D_OUT), draw(D_OUT)
    wanted = torch.autograd.grad(sage(edges, *given).square().sum(), given)

    def once(_):
        return torch.autograd.grad(sage(edges, *given).square().sum(), given)

    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(once, range(32)):
            assert all(torch.equal(one, other) for one, other in zip(found, wanted))


def test_texts_are_read_without_torch():
    program = "import sys; sys.modules['torch'] = None; import headwater; print(headwater.compile('gat').explain()[:9])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd="/")
    assert done.stdout.strip() == "== values", done.stderr
