"""Layers written as texts and called with torch tensors, against PyG's layers, plain torch and central differences."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import headwater  # noqa: E402
from headwater import LayerGraph  # noqa: E402
from layers import D_IN, D_OUT, EDGES, NODES, TYPES, close, draw, gat, gcn, leaf, rgcn, sage  # noqa: E402
from layers import check_special_reductions, check_special_values  # noqa: E402
from layers import same_with_gradients, weighted, with_function  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


@pytest.fixture
def edges():
    # The last nodes are isolated.
    return torch.randint(0, NODES - 5, (2, EDGES))


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
    with pytest.raises(RuntimeError, match="compiled layer.s gradients"):
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


def test_special_values_are_those_of_torch():
    check_special_values("cpu")


def test_special_values_of_edges_are_those_of_torch():
    check_special_reductions("cpu")


@pytest.mark.parametrize("heads, width", [(3, 1), (3, 2), (5, 2), (7, 9), (33, 1), (4, 4)])
def test_nodes_without_edges_have_a_softmax_of_nothing(heads, width):
    edges = torch.tensor([[0, 1, 2], [1, 1, 3]])
    layer = headwater.compile(
        'def f(g, x: node[heads, d]):\n    for e in g.edges():\n        e["a"] = edge_softmax(e.src.x)\n'
        '    for n in g.dst_nodes():\n        n["out"] = sum(e["a"] * e.src.x for e in n.incoming_edges())\n'
    )
    x = draw(5, heads, width)
    rows = [x[:2].softmax(0).mul(x[:2]).sum(0), x[2], x[2] * 0]
    wanted = torch.stack([rows[2], rows[0], rows[2], rows[1], rows[2]])
    grads = [torch.autograd.grad(end.square().sum(), x, retain_graph=True)[0] for end in (layer(edges, x), wanted)]
    close(layer(edges, x), wanted)
    close(*grads)


def test_rgat_with_three_heads_and_isolated_nodes():
    edges = torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 0])
    out = headwater.compile("rgat").module(d_in=4, d_out=2, heads=3)(edges, torch.randn(3, 4))
    assert out.shape == (3, 6) and not out[0].any() and out[1:].any()


def test_numbers_times_narrow_rows_are_multiplied():
    for product in ("linear(2 * n.x, W)", "linear(n.x * 2, W)"):
        layer = headwater.compile(
            f'def f(g, x: node[d], W: matrix[d, k]):\n    for n in g.nodes():\n        n["z"] = {product}\n'
            '    for n in g.dst_nodes():\n        n["out"] = n["z"] + mean(e.src["z"] for e in n.incoming_edges())\n'
        )
        edges = torch.tensor([[0, 1, 2], [1, 2, 2]])
        for d, k in ((1, 1), (1, 3), (2, 1)):
            x, W = draw(3, d), draw(d, k)
            z = 2 * x @ W
            wanted = z + torch.stack([0 * z[0], z[0], (z[1] + z[2]) / 2])
            out = layer(edges, x, W)
            close(out, wanted)
            for one, other in zip(*(torch.autograd.grad(end.square().sum(), [x, W], retain_graph=True) for end in (out, wanted))):
                close(one, other)


def scales_of(edges, nodes):
    """What `gcn` takes of a graph: degrees of other nodes plus one."""
    others = edges[:, edges[0] != edges[1]]
    degrees = (others[1].bincount(minlength=nodes) + 1).float()
    return {"src_scale": degrees.rsqrt(), "dst_scale": degrees.rsqrt(), "self_scale": 1 / degrees}


@pytest.mark.parametrize("loops", [0, 1, 3])
def test_every_node_counts_itself_once(loops):
    edges = torch.cat([torch.randint(0, 20, (2, 60)), torch.arange(8).repeat(loops).expand(2, -1)], 1)
    edges = edges[:, torch.randperm(edges.size(1))]
    x = draw(20, D_IN)
    other, convolution = leaf(x), pyg.GCNConv(D_IN, D_OUT)
    given = {"W": leaf(convolution.lin.weight.t()), "b": leaf(convolution.bias)}
    out = headwater.compile("gcn")(edges, x, **given, **scales_of(edges, 20))
    same_with_gradients(out, convolution(other, edges), [(x, other), (given["b"], convolution.bias)])
    attention, other = pyg.GATConv(D_IN, D_OUT, heads=2), leaf(x)
    given = {"W": attention.lin.weight.t(), "al": attention.att_src[0], "ar": attention.att_dst[0], "b": attention.bias}
    x = leaf(x)
    out = headwater.compile("gat")(edges, x, **{name: leaf(own) for name, own in given.items()})
    same_with_gradients(out, attention(other, edges), [(x, other)])


def test_edges_to_oneself_are_left_out_where_a_layer_says_so():
    @headwater.compile(drop_self_loops=True)
    def others(g, x: node[d]):
        for n in g.dst_nodes():
            n["out"] = sum(e.src.x for e in n.incoming_edges())

    edges, x = torch.tensor([[0, 1, 1, 2, 2], [0, 1, 0, 2, 1]]), torch.tensor([[1.0], [10.0], [100.0]])
    assert others(edges, x).flatten().tolist() == [10.0, 100.0, 0.0]
    with pytest.raises(TypeError, match="give one of them"):
        headwater.compile(close, self_loops=True, drop_self_loops=True)


def test_rows_of_each_type_are_counted():
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 3, 2
    data["a", "to", "b"].edge_index = torch.tensor([[0, 2], [1, 0]])
    data["b", "to", "b"].edge_index = torch.tensor([[0], [1]])
    x, w = {"a": torch.randn(3, 2), "b": torch.randn(2, 2)}, {kind: torch.ones(data[kind].num_edges) for kind in data.edge_types}
    assert weighted(data, x, w)["b"].shape == (2, 2)
    wrong = [
        (dict(x={"a": torch.randn(2, 2), "b": torch.randn(3, 2)}), r"^x\['a'\] has shape \[2, 2\]; it should be \[3, 2\]"),
        (dict(x={"a": torch.randn(3, 2), "b": torch.randn(2, 3)}), r"^x\['b'\] has shape \[2, 3\]; it should be \[2, 2\]"),
        (dict(w={data.edge_types[0]: torch.ones(1), data.edge_types[1]: torch.ones(2)}), r"^w\[\('a', 'to', 'b'\)\] has shape"),
    ]
    for change, words in wrong:
        with pytest.raises(ValueError, match=words):
            weighted(data, **{"x": x, "w": w, **change})
    with pytest.raises(TypeError, match=r"^x\['a'\] is a list"):
        weighted(data, {"a": [1.0], "b": x["b"]}, w)
    with pytest.raises(ValueError, match="^W is a dictionary, but its rows are not nodes or edges"):
        rgcn(data, x, dict(zip(data.edge_types, torch.randn(2, 2, 3))), torch.randn(2, 3), torch.randn(3))


def test_rows_of_numbers_are_multiplied():
    layer = headwater.compile(
        'def f(g, x: node[d], W: matrix[1, k]):\n    for n in g.dst_nodes():\n        n["out"] = linear(3, W) + dot(n.x, n.x)\n'
    )
    x, W = torch.randn(4, 2), draw(1, 3)
    out = layer(torch.tensor([[0], [1]]), x, W)
    wanted = 3 * W + (x * x).sum(1, keepdim=True)
    close(out, wanted)
    close(*(torch.autograd.grad(end.square().sum(), W, retain_graph=True)[0] for end in (out, wanted)))


def test_loops_of_graphs_with_types_are_refused():
    x, given = torch.randn(4, 2), (torch.randn(2, 3), torch.randn(1, 3), torch.randn(1, 3), torch.randn(3))
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 2, 2
    data["a", "to", "b"].edge_index = torch.tensor([[0], [1]])
    for graph, rows in [((edges, torch.tensor([0, 1, 0])), x), (data, {"a": x[:2], "b": x[2:]})]:
        with pytest.raises(ValueError, match="self_loops gives every node one edge to itself, but the graph has several types"):
            gat(graph, rows, *given)
    assert gat((edges, torch.zeros(3, dtype=torch.long)), x, *given).shape == (4, 3)
