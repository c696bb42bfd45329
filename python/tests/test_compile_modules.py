"""Modules of others as compiled layers, against the modules themselves."""

import copy
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import dgl_style  # noqa: E402
import headwater  # noqa: E402
import pyg_style  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from dgl_style import fn  # noqa: E402
from headwater.translate.plan import NotTranslated  # noqa: E402
from torch import nn  # noqa: E402
from torch_geometric.nn import GATConv, GCNConv, MessagePassing, RGCNConv, SAGEConv  # noqa: E402

NODES, EDGES, D_IN, D_OUT, TYPES = 30, 160, 6, 5, 3


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


@pytest.fixture
def edges():
    # The last nodes are isolated.
    return torch.randint(0, NODES - 4, (2, EDGES))


def check(module, *inputs, texts=None, fallback=False):
    """Outputs and gradients of the compiled module are the module's, and of its functions these became texts."""
    compiled = headwater.compile(module, fallback=fallback)
    results = []
    for one in (compiled, module):
        given = [fresh(value) for value in inputs]
        out = one(*given)
        weight = torch.linspace(-1, 1, out.numel()).view(out.shape)
        leaves = [value for value in flat(given) if isinstance(value, torch.Tensor) and value.requires_grad]
        results.append((out, torch.autograd.grad((out * weight).sum(), [*leaves, *module.parameters()])))
    (out, gradients), (wanted, right) = results
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=2e-5)
    for found, gradient in zip(gradients, right):
        torch.testing.assert_close(found, gradient, rtol=1e-3, atol=1e-4)
    assert sorted({one.function for one in compiled.translations if one.text}) == (texts or ["forward"])
    return compiled


def fresh(value):
    if isinstance(value, tuple):
        return tuple(fresh(one) for one in value)
    is_leaf = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().clone().requires_grad_() if is_leaf else value


def flat(values):
    return [one for value in values for one in (value if isinstance(value, tuple) else (value,))]


x_of = torch.randn


def test_the_layer_of_pygs_tutorial(edges):
    compiled = check(pyg_style.Gcn(D_IN, D_OUT), x_of(NODES, D_IN), edges, texts=["propagate"])
    whole = next(one for one in compiled.translations if one.function == "forward")
    assert "add_self_loops" in str(whole.unsupported[0])


@pytest.mark.parametrize("aggr", ["mean", "add", "max", "min", "softmax", "var"])
def test_sage(edges, aggr):
    check(pyg_style.Sage(D_IN, D_OUT, aggr), x_of(NODES, D_IN), edges)


@pytest.mark.parametrize("written", [12, NODES, 45])
def test_nodes_that_are_read_and_written_differ(edges, written):
    edges = torch.stack([edges[0], edges[1] % written])
    compiled = check(pyg_style.Sage(D_IN, D_OUT), (x_of(NODES, D_IN), x_of(written, D_IN)), edges)
    assert "dst_node" in compiled.translations[0].text
    check(pyg_style.Sage(D_IN, D_OUT), (x_of(NODES, D_IN), x_of(written, D_IN)), edges, (NODES, written))
    out = headwater.compile(pyg_style.Sage(D_IN, D_OUT))((x_of(NODES, D_IN), None), edges, (NODES, written))
    assert out.shape == (written, D_OUT)


@pytest.mark.parametrize("heads, concat", [(1, True), (3, True), (3, False)])
def test_gat(edges, heads, concat):
    compiled = check(pyg_style.Gat(D_IN, D_OUT, heads, concat=concat), x_of(NODES, D_IN), edges)
    assert "edge_softmax" in compiled.translations[0].text


def test_weights_and_features_of_edges(edges):
    module = pyg_style.Weighted(D_IN, D_OUT, 4)
    check(module, x_of(NODES, D_IN), edges, x_of(EDGES, 4))
    compiled = check(module, x_of(NODES, D_IN), edges, x_of(EDGES, 4), torch.rand(EDGES))
    assert "edge_weight: edge[1]" in compiled.translations[-1].text


def test_as_many_edges_as_nodes(edges):
    check(pyg_style.Weighted(D_IN, D_OUT, D_IN), x_of(NODES, D_IN), edges[:, :NODES], x_of(NODES, D_IN), torch.rand(NODES))


def test_a_network_on_every_edge(edges):
    module = pyg_style.EdgeConv(D_IN, D_OUT).eval()
    compiled = check(module, x_of(NODES, D_IN), edges)
    assert "dropout" not in compiled.translations[0].text
    x = x_of(NODES, D_IN)
    kept = compiled(x, edges)
    module.train()
    drawn = compiled(x, edges)
    assert "dropout" in compiled.translations[-1].text and not torch.equal(kept, drawn)
    module.eval()
    assert torch.equal(compiled(x, edges), kept)


def test_types_of_edges(edges):
    types = torch.randint(0, TYPES, (EDGES,))
    compiled = check(pyg_style.Typed(D_IN, D_OUT, TYPES), x_of(NODES, D_IN), edges, types)
    assert "weight: matrix[etype, 6, 5]" in compiled.translations[0].text
    module = pyg_style.Typed(D_IN, D_OUT, TYPES)
    module.shift = nn.Embedding(TYPES + 1, D_OUT)
    with pytest.raises(NotTranslated, match="weights for 3 and 4 types of edges"):
        headwater.compile(module, fallback=False)(x_of(NODES, D_IN), edges, types)


def test_functions_of_the_users_own(edges, monkeypatch):
    module = pyg_style.Own(D_IN, D_OUT)
    x = x_of(NODES, D_IN)
    before = check(module, x, edges)(x, edges)
    monkeypatch.setattr(pyg_style, "SCALE", 4.0)
    assert not torch.allclose(check(module, x, edges)(x, edges), before)


def test_edge_updater_and_two_aggregations(edges):
    check(pyg_style.Updater(D_IN, D_OUT), x_of(NODES, D_IN), edges)


def test_two_rounds_are_two_layers(edges):
    compiled = check(pyg_style.Twice(), x_of(NODES, D_IN), edges, texts=["propagate"])
    assert "sent on" in str(compiled.translations[0].unsupported[0])


def test_layers_of_pyg(edges):
    x, types = x_of(NODES, D_IN), torch.randint(0, TYPES, (EDGES,))
    check(GCNConv(D_IN, D_OUT), x, edges, torch.rand(EDGES), texts=["propagate"])
    check(SAGEConv(D_IN, D_OUT, aggr="max"), x, edges)
    check(GATConv(D_IN, D_OUT, heads=2), x, edges, texts=["propagate"])
    check(RGCNConv(D_IN, D_OUT, TYPES), x, edges, types, texts=["propagate"])


def test_the_compiled_module_is_the_module(edges):
    module, x = pyg_style.Gat(D_IN, D_OUT, 2), x_of(NODES, D_IN)
    compiled = headwater.compile(module)
    assert isinstance(compiled, pyg_style.Gat) and repr(compiled) == repr(module)
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert all(one is other for one, other in zip(compiled.parameters(), module.parameters()))
    optimiser = torch.optim.SGD(compiled.parameters(), lr=0.1)
    before = module(x, edges).detach()
    compiled(x, edges).square().mean().backward()
    optimiser.step()
    after = module(x, edges)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(compiled(x, edges), after, rtol=1e-4, atol=1e-5)
    assert compiled.eval() is compiled and not module.training
    calls = []
    hook = module.register_forward_hook(lambda *_: calls.append(1))
    compiled(x, edges)
    hook.remove()
    assert calls == [1]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)), headwater.compile])
def test_copies_are_compiled_too(edges, again):
    module, x = pyg_style.Sage(D_IN, D_OUT), x_of(NODES, D_IN)
    compiled = headwater.compile(module)
    other = again(compiled)
    assert type(other) is type(compiled)
    assert torch.equal(other(x, edges), compiled(x, edges))
    with torch.no_grad():
        other.lin_l.bias += 1
    assert torch.equal(other.lin_l.bias, module.lin_l.bias) == (again is headwater.compile)


def test_changes_of_the_module_are_seen(edges):
    module, x = pyg_style.Gat(D_IN, D_OUT, 2), x_of(NODES, D_IN)
    compiled = headwater.compile(module, fallback=False)
    compiled(x, edges)
    module.slope, module.lin = 0.7, nn.Linear(D_IN, 2 * D_OUT)
    torch.testing.assert_close(compiled(x, edges), module(x, edges), rtol=1e-4, atol=1e-5)
    module = pyg_style.Sage(D_IN, D_OUT)
    compiled = headwater.compile(module, fallback=False)
    compiled(x, edges)
    module.lin_l.register_forward_hook(lambda module, given, out: 2 * out)
    torch.testing.assert_close(compiled(x, edges), module(x, edges), rtol=1e-4, atol=1e-5)
    module.register_message_forward_hook(lambda module, given, out: 2 * out)
    with pytest.raises(NotTranslated, match="has hooks"):
        compiled(x, edges)


def test_what_is_not_supported_is_listed_once_and_runs(edges):
    x, other = x_of(NODES, D_IN), x_of(NODES, D_OUT)
    with pytest.warns(UserWarning, match="Strange runs as it is written") as told:
        out = headwater.compile(pyg_style.Strange())(x, edges)
    assert torch.equal(out, pyg_style.Strange()(x, edges))
    text = str(told[0].message)
    lines, first = _lines_of(pyg_style.Strange.message)
    for word in ("torch.cumsum(x_j, dim=0)", "torch.sign(x_j)"):
        at = first + next(at for at, line in enumerate(lines) if word in line)
        assert f"pyg_style.py:{at}: `{word}`" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        headwater.compile(pyg_style.Strange())(other, edges)
    with pytest.raises(NotTranslated, match="Strange cannot be compiled") as raised:
        headwater.compile(pyg_style.Strange(), fallback=False)(x, edges)
    assert [fault.construct for fault in raised.value.unsupported] == ["torch.cumsum(x_j, dim=0)", "torch.sign(x_j)"]


def _lines_of(function):
    import inspect

    return inspect.getsourcelines(function)


class Written(MessagePassing):
    """Tensors that are written to, some of them under two names."""

    def __init__(self, how):
        super().__init__(aggr="add")
        self.how, self.log = how, []

    def forward(self, x, edge_index):
        y = x * 2
        if self.how == "a name":
            y += 1
        elif self.how == "two names":
            z = y
            z += 1
        elif self.how == "a view":
            z = y.view(-1, 2, 3)
            y += 1
            y = z.flatten(1)
        elif self.how == "a list":
            zs = [y]
            y += 1
            y = y + zs[0]
        elif self.how == "a function":
            z = F.relu(y, True)
            y = y + z
        elif self.how == "a part":
            y[:, 0] = 0
        elif self.how == "the module":
            self.log.append(1)
        elif self.how == "a new list":
            zs = [y]
            zs += [x]
            zs.append(y)
            y = torch.cat(zs, -1)
        out = self.propagate(edge_index, x=y)
        return out

    def message(self, x_j):
        x_j = F.relu(x_j, inplace=True)
        return x_j


HOW = {"a name": True, "two names": False, "a view": False, "a list": False, "a function": True, "a part": False}
HOW |= {"the module": False, "a new list": True}


@pytest.mark.parametrize("how", HOW)
def test_tensors_that_are_written_to(edges, how):
    module = Written(how)
    compiled = headwater.compile(module)
    x = x_of(NODES, D_IN)
    torch.testing.assert_close(compiled(x, edges), module(x, edges))
    assert len(module.log) == 2 * (how == "the module")
    whole = [one for one in compiled.translations if one.function == "forward"][-1]
    assert (whole.text is not None) == HOW[how], whole.unsupported


def test_calls_that_are_not_for_kernels_run_as_they_are(edges):
    module, x = pyg_style.Sage(D_IN, D_OUT), x_of(NODES, D_IN)
    compiled = headwater.compile(module)
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(x, edges).dtype == torch.bfloat16
    assert not compiled.translations or all(one.text for one in compiled.translations)
    with pytest.raises(TypeError, match="missing"):
        compiled(x)
    with pytest.raises(Exception) as ours:
        compiled(x[:, :4], edges)
    with pytest.raises(type(ours.value)):
        module(x[:, :4], edges)
    double = copy.deepcopy(module).double()
    with pytest.warns(UserWarning, match="float64"):
        out = headwater.compile(double)(x.double(), edges)
    assert torch.equal(out, double(x.double(), edges))


def test_rows_that_do_not_fit_are_the_modules_own_error(edges):
    module = pyg_style.Weighted(D_IN, D_OUT, 4)
    compiled = headwater.compile(module)
    compiled(x_of(NODES, D_IN), edges, x_of(EDGES, 4))
    with pytest.raises(RuntimeError, match="must match"):
        compiled(x_of(NODES, D_IN), edges, x_of(EDGES - 1, 4))
    # One row for all edges is right in torch, and another layer than one a row.
    given = x_of(NODES, D_IN), edges, x_of(1, 4)
    torch.testing.assert_close(compiled(*given), module(*given))
    with pytest.raises(NotTranslated, match="rows do not fit"):
        headwater.compile(module, fallback=False)(*given)


def test_what_is_no_layer(edges):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = pyg_style.Sage(D_IN, D_IN), pyg_style.Sage(D_IN, D_OUT)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index), edge_index)

    model, x = Model(), x_of(NODES, D_IN)
    with pytest.warns(UserWarning, match="module.first = headwater.compile"):
        out = headwater.compile(model)(x, edges)
    model.first = headwater.compile(model.first, fallback=False)
    torch.testing.assert_close(model(x, edges), out, rtol=1e-4, atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(TypeError, match="scripted"):
        headwater.compile(scripted)
    with pytest.raises(TypeError, match="self_loops"):
        headwater.compile(model, self_loops=True)


# Modules in DGL's style.


class DglGcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D_IN, D_OUT)

    def forward(self, h, g):
        with g.local_scope():
            g.ndata["h"] = h
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))
            return F.relu(self.linear(g.ndata["h"]))


class DglWeighted(nn.Module):
    def forward(self, h, g):
        g.srcdata["h"] = h
        g.update_all(fn.u_mul_e("h", "w", "m"), reduce_func=fn.mean("m", "out"))
        return g.dstdata["out"]


class DglGat(nn.Module):
    """The layer of DGL's tutorial, which has its graph."""

    def __init__(self, g):
        super().__init__()
        self.g, self.fc, self.attn_fc = g, nn.Linear(D_IN, D_OUT, bias=False), nn.Linear(2 * D_OUT, 1, bias=False)

    def edge_attention(self, edges):
        z2 = torch.cat([edges.src["z"], edges.dst["z"]], dim=1)
        return {"e": F.leaky_relu(self.attn_fc(z2))}

    def message_func(self, edges):
        return {"z": edges.src["z"], "e": edges.data["e"]}

    def reduce_func(self, nodes):
        alpha = F.softmax(nodes.mailbox["e"], dim=1)
        h = torch.sum(alpha * nodes.mailbox["z"], dim=1)
        return {"h": h}

    def forward(self, h):
        z = self.fc(h)
        self.g.ndata["z"] = z
        self.g.apply_edges(self.edge_attention)
        self.g.update_all(self.message_func, self.reduce_func)
        return self.g.ndata.pop("h")


class DglHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.slope = nn.Linear(D_IN, 2 * D_OUT, bias=False), nn.LeakyReLU(0.2)
        self.al, self.ar = (nn.Parameter(torch.randn(1, 2, D_OUT)) for _ in "lr")

    def forward(self, h, g):
        z = self.fc(h).view(-1, 2, D_OUT)
        with g.local_scope():
            g.srcdata.update({"ft": z, "el": (z * self.al).sum(dim=-1).unsqueeze(-1)})
            g.dstdata.update({"er": (z * self.ar).sum(dim=-1).unsqueeze(-1)})
            g.apply_edges(fn.u_add_v("el", "er", "e"))
            g.edata["a"] = dgl_style.edge_softmax(g, self.slope(g.edata.pop("e")))
            g.update_all(fn.u_mul_e("ft", "a", "m"), fn.sum("m", "ft"))
            return g.dstdata["ft"]


class DglBlock(nn.Module):
    """Nodes without edges get zeros of the reduce function, whatever it would say of them."""

    def __init__(self):
        super().__init__()
        self.W = nn.Linear(2 * D_IN, D_OUT)

    def apply_nodes(self, nodes):
        return {"h": F.relu(self.W(torch.cat([nodes.data["x"], nodes.data["n"]], 1)))}

    def forward(self, x, x_dst, block):
        block.srcdata["x"] = x
        block.dstdata["x"] = x_dst
        key = f"m{1}"
        block.update_all(
            lambda edges: {key: edges.src["x"] * edges.dst["x"]},
            lambda nodes: {"n": nodes.mailbox[key].max(1)[0] + nodes.mailbox[key].mean(dim=1) + 1},
            self.apply_nodes,
        )
        return block.dstdata["h"]


class DglAttention(nn.Module):
    """Messages meet what their node has."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(D_IN, D_OUT), nn.Linear(D_IN, D_OUT)

    def reduce(self, nodes):
        score = (nodes.data["q"].unsqueeze(1) * nodes.mailbox["k"]).sum(-1) / 2.0
        alpha = torch.softmax(score - nodes.data["b"].unsqueeze(1), 1)
        return {"out": (alpha.unsqueeze(-1) * nodes.mailbox["k"]).sum(dim=1)}

    def forward(self, h, g):
        with g.local_scope():
            g.ndata["q"], g.ndata["k"] = self.q(h), self.k(h)
            g.ndata["b"] = h[:, 0]
            g.update_all(fn.copy_u("k", "k"), self.reduce)
            return g.ndata["out"]


def graph_of(edges, written=None):
    graph = dgl_style.Graph(*edges, NODES, written)
    graph.edata["w"] = torch.rand(edges.size(1))
    return graph


@pytest.mark.parametrize("module", [DglGcn, DglWeighted, DglHeads, DglAttention])
def test_modules_in_the_style_of_dgl(edges, module):
    check(module(), x_of(NODES, D_IN), graph_of(edges))


def test_a_module_that_has_its_graph(edges):
    module = DglGat(graph_of(edges))
    check(module, x_of(NODES, D_IN))
    module.g = graph_of(edges.flip(0))
    check(module, x_of(NODES, D_IN))


def test_a_block_of_dgl(edges):
    block = graph_of(torch.stack([edges[0], edges[1] % 9 + 1]), 12)
    compiled = check(DglBlock(), x_of(NODES, D_IN), x_of(12, D_IN), block)
    assert "x_dst: dst_node[6]" in compiled.translations[0].text


def test_edges_of_a_graph_that_change_are_seen(edges):
    graph, module, x = graph_of(edges), DglGcn(), x_of(NODES, D_IN)
    compiled = headwater.compile(module, fallback=False)
    compiled(x, graph)
    graph._edges = graph._edges[::-1]
    torch.testing.assert_close(compiled(x, graph), module(x, graph), rtol=1e-4, atol=1e-5)


class DglStrange(nn.Module):
    def forward(self, h, g):
        g.ndata["h"] = h
        g.update_all(fn.copy_u("h", "m"), lambda nodes: {"h": nodes.mailbox["m"].std(1)})
        g.ndata["i"] = g.in_degrees()
        return g.ndata["h"]


def test_what_is_not_supported_of_dgl(edges):
    with pytest.raises(NotTranslated) as raised:
        headwater.compile(DglStrange(), fallback=False)(x_of(NODES, D_IN), graph_of(edges))
    assert [fault.construct for fault in raised.value.unsupported] == ["nodes.mailbox['m'].std", "g.in_degrees"]
