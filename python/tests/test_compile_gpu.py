"""Compiled layers on a GPU: what PyG's layers give on the CPU, and what our own kernels give there."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import headwater  # noqa: E402
from headwater import LayerGraph  # noqa: E402
from layers import D_IN, D_OUT, EDGES, NODES, TYPES, check_special_reductions, check_special_values  # noqa: E402
from layers import close, gat, leaf, rgcn, sage, weighted  # noqa: E402
from torch_geometric.data import HeteroData  # noqa: E402


@pytest.fixture
def place(gpu):
    torch.manual_seed(7)
    return headwater.gpu.place_of(gpu)


@pytest.fixture
def edges():
    # The last nodes are isolated.
    return torch.randint(0, NODES - 5, (2, EDGES), generator=torch.Generator().manual_seed(3))


def same(place, ours, theirs, given):
    """A layer of ours on the GPU and one of PyG's on the CPU: outputs, and gradients of a loss of them. `given` has for each
    tensor of ours where PyG's lies, and how ours is made of it."""
    tensors = {name: leaf(turn(own).to(place.device)) for name, (own, turn) in given.items()}
    out, wanted = ours(**tensors), theirs()
    assert out.device == place.device
    close(out.cpu(), wanted)
    weight = torch.randn(wanted.shape)
    (out * weight.to(place.device)).sum().backward()
    (wanted * weight).sum().backward()
    for name, (own, turn) in given.items():
        close(tensors[name].grad.cpu(), turn(own.grad), 1e-4)


def of_sage(device):
    """What a layer of GraphSAGE takes."""
    shapes = (NODES, D_IN), (D_IN, D_OUT), (D_IN, D_OUT), (D_OUT,)
    return [torch.randn(*shape, device=device, requires_grad=True) for shape in shapes]


def as_is(tensor):
    return tensor


def turned(tensor):
    return tensor.t().contiguous()


def first(tensor):
    return tensor[0]


def test_sage_is_pyg(place, edges):
    theirs, x = pyg.SAGEConv(D_IN, D_OUT), torch.randn(NODES, D_IN, requires_grad=True)
    given = {
        "x": (x, as_is),
        "W": (theirs.lin_l.weight, turned),
        "root": (theirs.lin_r.weight, turned),
        "b": (theirs.lin_l.bias, as_is),
    }
    same(place, lambda **own: sage(edges.to(place.device), **own), lambda: theirs(x, edges), given)


def test_signs_that_torch_has_yet_to_write_are_kept(place, edges):
    given = [own.detach() for own in of_sage(place.device)]
    wanted = sage(edges.to(place.device), -given[0], *given[1:])
    close(sage(edges.to(place.device), torch._neg_view(given[0]), *given[1:]), wanted)


@pytest.mark.parametrize("heads", [1, 3])
def test_gat_is_pyg(place, edges, heads):
    theirs, x = pyg.GATConv(D_IN, D_OUT, heads=heads), torch.randn(NODES, D_IN, requires_grad=True)
    given = {
        "x": (x, as_is),
        "W": (theirs.lin.weight, turned),
        "al": (theirs.att_src, first),
        "ar": (theirs.att_dst, first),
        "b": (theirs.bias, as_is),
    }
    # Edges may lie with the CPU: they are sorted there.
    same(place, lambda **own: gat(edges, **own), lambda: theirs(x, edges), given)


def test_rgcn_is_pyg(place, edges):
    theirs, x = pyg.RGCNConv(D_IN, D_OUT, TYPES), torch.randn(NODES, D_IN, requires_grad=True)
    types = torch.randint(0, TYPES - 1, (EDGES,))
    given = {name: (own, as_is) for name, own in (("x", x), ("W", theirs.weight), ("root", theirs.root), ("b", theirs.bias))}
    same(place, lambda **own: rgcn((edges, types), **own), lambda: theirs(x, edges, types), given)


def test_edge_data_is_in_the_callers_order(place, edges):
    x, w = (torch.randn(*shape, requires_grad=True) for shape in ((NODES, D_IN), (EDGES,)))
    wanted = torch.zeros(NODES, D_IN).index_add(0, edges[1], w[:, None] * x[edges[0]])
    close(weighted(edges, x.to(place.device), w.to(place.device)).cpu(), wanted)


def test_dropouts_are_those_of_the_cpu(place, edges, monkeypatch):
    def given():
        torch.manual_seed(11)
        shapes = (NODES, 4), (4, 6), (2, 3), (2, 3), (6,)
        return [torch.randn(*shape) for shape in shapes]

    def run(device):
        own = [leaf(tensor.to(device)) for tensor in given()]
        out = gat(edges, *own, p=0.5)
        out.square().sum().backward()
        return [out.cpu(), *(tensor.grad.cpu() for tensor in own)]

    found = run(place.device)
    other = run(place.device)
    monkeypatch.setattr(headwater.gpu, "holding", lambda tensors: None)
    for one, again, wanted in zip(found, other, run("cpu")):
        assert torch.equal(one, again)
        close(one, wanted, 1e-4)


def test_types_go_in_and_come_out_by_name(place):
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 5, 4
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 4], [0, 0, 3]])
    data["b", "to", "a"].edge_index = torch.tensor([[2, 3], [1, 1]])
    own = {"a": torch.randn(5, 3), "b": torch.randn(4, 3)}
    W, root, b = torch.randn(2, 3, 2), torch.randn(3, 2), torch.randn(2)
    out = rgcn(data, {kind: x.to(place.device) for kind, x in own.items()}, *(t.to(place.device) for t in (W, root, b)))
    wanted = own["b"] @ root + b
    wanted[0] += ((own["a"][0] + own["a"][1]) / 2) @ W[0]
    wanted[3] += own["a"][4] @ W[0]
    close(out["b"].cpu(), wanted)
    assert out["a"].shape == (5, 2)


def test_nothing_and_little_and_oddly_placed(place, edges):
    """No edges, no nodes, one written node, tensors that begin anywhere and lie any way, and no gradients."""
    device = place.device
    x = torch.randn(NODES * D_IN + 1, device=device)[1:].view(NODES, D_IN)
    W, root = (torch.randn(D_OUT, D_IN, device=device).t() for _ in range(2))
    b = torch.randn(D_OUT, device=device)
    own = x.cpu() @ root.cpu() + b.cpu()
    with torch.no_grad():
        close(sage(edges[:, :0], x, W, root, b).cpu(), own)
        assert sage(edges[:, :0], x[:0], W, root, b).shape == (0, D_OUT)
        block = LayerGraph(torch.tensor([[3, 4], [0, 0]]), NODES, num_written=1)
        wanted = own[:1] + (x[3:5].cpu().mean(0, keepdim=True) @ W.cpu())
        close(sage(block, x, W, root, b).cpu(), wanted)


def test_a_module_learns_there(place, edges):
    model = gat.module(d_in=D_IN, d_out=4, heads=2, p=0.2).to(place.device)
    x, y = torch.randn(NODES, D_IN).to(place.device), torch.randint(8, (NODES,)).to(place.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(edges, x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_saved_tensors_may_leave_and_come_back(place, edges):
    given = of_sage(place.device)
    wanted = torch.autograd.grad(sage(edges, *given).square().sum(), given)
    pack, unpack = lambda tensor: tensor.cpu(), lambda tensor: tensor.to(place.device)  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = sage(edges, *given)
    assert all(torch.equal(*pair) for pair in zip(torch.autograd.grad(out.square().sum(), given), wanted))
    # What a hook gives back is not believed.
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.flatten()[:1].to(place.device)):
        out = sage(edges, *given)
    with pytest.raises(ValueError, match="has 1 numbers; expected"):
        out.sum().backward()


def test_products_are_as_exact_as_torchs(place, edges):
    x, W = torch.randn(NODES, 64, device=place.device), torch.randn(64, 64, device=place.device)
    root, b = torch.zeros(64, 64, device=place.device), torch.zeros(64, device=place.device)
    graph = LayerGraph(torch.stack([torch.arange(NODES)] * 2), NODES)
    exact = (x.double() @ W.double()).cpu()
    before = torch.get_float32_matmul_precision()
    far = {}
    try:
        for name in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(name)
            with torch.no_grad():
                far[name] = (sage(graph, x, W, root, b).cpu().double() - exact).abs().max().item()
    finally:
        torch.set_float32_matmul_precision(before)
    assert far["highest"] < 1e-4 < far["high"] == far["medium"] < 1


def test_tensors_on_two_devices_are_refused_by_name(edges):
    x, W, root, b = of_sage("cpu")
    with pytest.raises(ValueError, match="W lies on meta and x on cpu; they should lie on one device"):
        sage(edges, x, W.to("meta"), root, b)
    with pytest.raises(ValueError, match="device is 'meta'; it should be 'cpu' or 'cuda'"):
        sage(edges, *(tensor.to("meta") for tensor in (x, W, root, b)))


def test_streams_do_not_disturb_each_other(place, edges):
    if place.device.type != "cuda":
        pytest.skip("the emulator has one stream")
    given = of_sage(place.device)
    wanted = torch.autograd.grad(sage(edges, *given).square().sum(), given)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    found = []
    for turn in range(60):
        with torch.cuda.stream(streams[turn % 3]):
            found.append(torch.autograd.grad(sage(edges, *given).square().sum(), given))
    torch.cuda.synchronize()
    for gradients in found:
        assert all(torch.equal(*pair) for pair in zip(gradients, wanted))


def test_edges_that_lie_there_stay_there(place, edges):
    x, w = torch.randn(NODES, 3), torch.randn(EDGES)
    wanted = torch.zeros(NODES, 3).index_add(0, edges[1], w[:, None] * x[edges[0]])
    x, w, there = x.to(place.device), w.to(place.device), edges.to(place.device)
    graph = LayerGraph(there, NODES)
    close(weighted(graph, x, w).cpu(), wanted)
    assert graph._relations is None
    order = edges[1].argsort(stable=True)
    in_order = LayerGraph(there[:, order.to(place.device)], NODES, is_sorted=True)
    close(weighted(in_order, x, w[order.to(place.device)]).cpu(), wanted)
    # Means over the edges of each type ask for more than is made there.
    W, root, b = torch.randn(1, 3, 3), torch.zeros(3, 3), torch.zeros(3)
    means = torch.zeros(NODES, 3).index_add(0, edges[1], x.cpu()[edges[0]])
    means /= edges[1].bincount(minlength=NODES).clamp(min=1)[:, None]
    close(rgcn(graph, x, *(t.to(place.device) for t in (W, root, b))).cpu(), means @ W[0])
    with pytest.raises(ValueError, match="w has a row an edge, but every node gets an edge to itself"):
        looped = headwater.compile(with_loops)
        looped(there, x, w)


with_loops = """
@layer(self_loops=True)
def looped(g, x: node[d], w: edge[1]):
    for n in g.dst_nodes():
        n["out"] = sum(e.w * e.src.x for e in n.incoming_edges())
"""


@pytest.mark.parametrize("wrong", [NODES, -1, 2**32 + 1, -(2**32) + 5])
def test_a_number_that_is_no_node_is_told_by_a_later_call(place, edges, wrong):
    edges = edges.clone()
    edges[0, 7] = wrong
    edges, given = edges.to(place.device), [tensor.detach() for tensor in of_sage(place.device)]
    # And each time: a graph that a fault may have been about is not used again.
    for _ in range(3):
        with pytest.raises(IndexError, match="out of range for a table of 40 rows"):
            sage(edges, *given)
            headwater._headwater.synchronize(place.ordinal, place.stream())


def test_edges_are_what_they_were_and_how_they_were_said_to_be(place, edges):
    x, w = torch.randn(NODES, 3), torch.randn(EDGES)
    in_order = edges[:, edges[1].argsort(stable=True)]
    wanted = torch.zeros(NODES, 3).index_add(0, in_order[1], w[:, None] * x[in_order[0]])
    x, w = x.to(place.device), w.to(place.device)
    pairs = in_order.t().contiguous().to(place.device)
    close(weighted(LayerGraph(pairs.t(), NODES, is_sorted=True), x, w).cpu(), wanted)
    with pytest.raises(ValueError, match="targets do not fall"):
        weighted(LayerGraph(edges.to(place.device), NODES, is_sorted=True), x, w)
        headwater._headwater.synchronize(place.ordinal, place.stream())
    own = edges.to(place.device).clone()
    graph = LayerGraph(own, NODES)
    own[0, 0] = 1
    with pytest.raises(ValueError, match="edge_index was written to"):
        weighted(graph, x, w)
    with torch.inference_mode():
        close(weighted(LayerGraph(in_order.to(place.device).clone(), NODES), x, w).cpu(), wanted)


def test_a_call_is_explained(place, edges):
    there = edges.to(place.device)
    assert "== kernels, backward" in sage.explain(there, *of_sage(place.device))


def test_batches_of_a_loader_are_layers_graphs(place, gpu):
    from headwater.pyg import NeighborLoader
    from torch_geometric.data import Data

    data = Data(x=torch.randn(60, D_IN), edge_index=torch.randint(60, (2, 400)))
    theirs = pyg.SAGEConv(D_IN, D_OUT)
    given = (theirs.lin_l.weight.t(), theirs.lin_r.weight.t(), theirs.lin_l.bias)
    there = [tensor.detach().to(place.device) for tensor in given]
    for batch in NeighborLoader(data, [3, 3], batch_size=16, device=gpu, seed=1):
        close(sage(batch.edge_index, batch.x, *there).cpu(), theirs(batch.x.cpu(), batch.edge_index.cpu()))


def test_a_graph_that_changed_on_the_gpu_is_noticed_or_forgotten(place, edges):
    own, x, w = edges.to(place.device), torch.randn(NODES, D_IN, device=place.device), torch.ones(EDGES, device=place.device)

    def is_right():
        wanted = torch.zeros(NODES, D_IN).index_add(0, own.cpu()[1], x.cpu()[own.cpu()[0]])
        close(weighted(own, x, w).cpu(), wanted)

    is_right()
    own[0, 3] = (own[0, 3] + 1) % NODES
    is_right()
    own.data = own.flip(1)
    is_right()
    # Nothing tells of this one.
    own.data[0, 4] = (own[0, 4] + 1) % NODES
    headwater.forget_graphs()
    is_right()


def test_special_values_are_those_of_torch(place):
    check_special_values(place.device)


def test_special_values_of_edges_are_those_of_torch(place):
    check_special_reductions(place.device)
