"""Calling a layer: what is compiled when, what is refused in which words, modules, and looking at plans."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from headwater import LayerGraph  # noqa: E402
from headwater.layer_graph import _MOST_GRAPHS, _remembered_graphs  # noqa: E402
from layers import D_IN, D_OUT, EDGES, NODES, close, draw, gat, gcn, rgcn, sage, weighted  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


@pytest.fixture
def edges():
    # The last nodes are isolated.
    return torch.randint(0, NODES - 5, (2, EDGES))


def test_it_is_compiled_once_a_kind_of_call(edges):
    layer = headwater.compile("sage")
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


@pytest.mark.parametrize("has_types", [False, True])
def test_a_graph_that_was_written_to_behind_torch_is_noticed(edges, has_types):
    x, w = torch.randn(NODES, D_IN), torch.ones(EDGES)
    types = torch.zeros(EDGES, dtype=torch.long)

    def changed_by(change):
        weighted((edges, types) if has_types else edges, x, w)
        change()
        wanted = torch.zeros(NODES, D_IN).index_add(0, edges[1], x[edges[0]])
        close(weighted((edges, types) if has_types else edges, x, w), wanted)

    def put():
        edges.numpy()[0, 5] = (edges[0, 5] + 1) % NODES

    changed_by(put)
    changed_by(lambda: edges.data.copy_(edges.flip(1)))
    changed_by(lambda: setattr(edges, "data", edges.flip(0).contiguous()))
    changed_by(lambda: edges.resize_(2, EDGES))
    headwater.forget_graphs()
    assert not _remembered_graphs


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
    looped = headwater.compile(
        '@layer(self_loops=True)\ndef f(g, x: node[d], w: edge[1]):\n    for n in g.dst_nodes():\n'
        '        n["out"] = sum(e.w * e.src.x for e in n.incoming_edges())\n'
    )
    with pytest.raises(ValueError, match="w has a row an edge, but every node gets an edge to itself"):
        looped(edges, x, torch.ones(EDGES))
    with pytest.raises(ValueError, match=r"^w: its shape is \[299, 1\]; expected \[300, 1\]: the graph has 300 edges"):
        weighted(edges, x, torch.ones(EDGES - 1))
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
    with pytest.raises(ValueError, match="no built-in layer \"gcnn\"; there are gcn, sage"):
        headwater.compile("gcnn")
    for wrong in (3, lambda g: g, len):
        with pytest.raises((TypeError, SyntaxError)):
            headwater.compile(wrong)
    there = {}
    exec("def f(g, x): pass", there)
    with pytest.raises(ValueError, match="the text of f is not there"):
        headwater.compile(there["f"])
    with pytest.raises(ValueError, match="does not stand above"):
        headwater.compile(same, uses=[line_of])
    with pytest.raises(ValueError, match="another file"):
        headwater.compile(line_of, uses=[copy.copy.__globals__["deepcopy"]])
    with pytest.raises(TypeError, match="itself"):
        headwater.compile("gat", self_loops=True)


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
    with pytest.raises(ValueError, match="E has a row for each pair.src, and nobody says .* give module.. a graph"):
        headwater.compile("rgcn").module(d_out=3, features=False)


def test_a_module_has_rows_for_what_a_graph_has(edges):
    graph = edges, torch.randint(0, 3, (EDGES,))
    learnt = headwater.compile("rgcn").module(d_out=3, features=False, graph=graph, num_nodes=NODES)
    pairs = torch.unique(torch.stack([graph[1], edges[0]]), dim=1).size(1)
    assert learnt.E.shape == (pairs, 3) and learnt.root_E.shape == (NODES, 3)
    learnt(graph).sum().backward()
    assert learnt.E.grad.any()
    with pytest.raises(ValueError, match="the graph has 3 rows of etype, but 2 were said"):
        headwater.compile("rgcn").module(d_in=2, d_out=3, graph=LayerGraph(edges, NODES, edge_type=graph[1]), num_edge_types=2)
    assert headwater.compile("rgcn").module(d_in=2, d_out=3, graph=graph, num_nodes=NODES).W.shape == (3, 2, 3)


def test_what_gin_learns_begins_at_eps():
    for eps in (0.0, 0.5, 2):
        module = headwater.compile("gin").module(d_in=2, d_hidden=2, d_out=2, train_eps=True, eps=eps)
        assert module.epsilon.tolist() == [eps]


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


def test_optimisations_are_left_out_by_name(edges):
    graph, x = (edges, torch.randint(0, 3, (EDGES,))), torch.randn(NODES, D_IN)
    names = headwater.OPTIMISATIONS
    assert {"fuse", "compact", "merge"} < set(names)
    layers = [headwater.compile("rgcn", without=without) for without in ((), ["compact"], names)]
    modules = [layer.module(d_in=D_IN, d_out=D_OUT, num_edge_types=3, seed=1) for layer in layers]
    modules.append(headwater.compile("rgcn").module(d_in=D_IN, d_out=D_OUT, num_edge_types=3, seed=1, without=names))
    wanted = modules[0](graph, x)
    grads = torch.autograd.grad(wanted.square().sum(), list(modules[0].parameters()))
    for module in modules[1:]:
        out = module(graph, x)
        close(out, wanted, 1e-4)
        for one, other in zip(torch.autograd.grad(out.square().sum(), list(module.parameters())), grads):
            close(one, other, 1e-3)
    counts = [layer.explain(level="kernels").count("\n") for layer in layers]
    assert counts[2] > counts[0] and modules[3].layer.explain(level="kernels").count("\n") == counts[2]
    assert modules[3].layer.without == names and "without=['one_type'" in repr(modules[3]) and "without" not in repr(modules[0])
    for twin in (copy.deepcopy(modules[3]), pickle.loads(pickle.dumps(modules[3]))):
        assert twin.layer.without == names and torch.equal(twin(graph, x), modules[3](graph, x))

    @headwater.compile(without=["fuse"], self_loops=True)
    def summed(g, x: node[d]):
        for n in g.dst_nodes():
            n["out"] = sum(e.src.x for e in n.incoming_edges())

    assert summed.without == ("fuse",) and summed(edges, x).shape == x.shape
    for wrong, kind, words in (
        (["dust"], ValueError, 'without: there is no optimisation "dust"; there are one_type, linear_linear, .*fuse'),
        ("fuse", TypeError, "without is 'fuse'; it should be a list of names"),
        ([3], TypeError, "it should be a list of names"),
    ):
        with pytest.raises(kind, match=words):
            headwater.compile("rgcn", without=wrong)
        with pytest.raises(kind, match=words):
            rgcn.module(d_in=D_IN, d_out=D_OUT, without=wrong)


def test_a_layer_is_a_python_object(edges):
    assert gcn.__name__ == "gcn" and "norm x W" in gcn.__doc__ and gcn.__module__ == "layers"
    assert repr(sage) == "<headwater layer sage(x, W, root, b)>"
    x, w = torch.randn(NODES, 2), torch.rand(EDGES)
    assert torch.equal(pickle.loads(pickle.dumps(weighted))(edges, x, w), weighted(edges, x, w))


def test_threads_call_a_layer_together(edges):
    from concurrent.futures import ThreadPoolExecutor

    given = draw(NODES, D_IN), draw(D_IN, D_OUT), draw(D_IN, D_OUT), draw(D_OUT)
    wanted = torch.autograd.grad(sage(edges, *given).square().sum(), given)

    def once(_):
        return torch.autograd.grad(sage(edges, *given).square().sum(), given)

    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(once, range(32)):
            assert all(torch.equal(one, other) for one, other in zip(found, wanted))


def test_gradients_of_gradients_are_refused_and_outputs_are_written_to(edges):
    x, w = torch.randn(NODES, D_IN, requires_grad=True), torch.randn(D_IN, D_OUT, requires_grad=True)
    layer = headwater.compile(
        "def f(g, x: node[d], w: matrix[d, k]):\n    for n in g.dst_nodes():\n"
        '        n["out"] = tanh(linear(sum(e.src.x for e in n.incoming_edges()), w))\n'
    )
    out = layer(edges, x, w)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    out.sum().backward(retain_graph=True)
    assert torch.equal(slope, x.grad) and slope.requires_grad
    with pytest.raises(RuntimeError, match="compiled layer's gradients"):
        slope.pow(2).sum().backward()
    # Where nobody reads the output on the way back it may be written to, as any tensor.
    plain = headwater.compile(
        'def f(g, x: node[d]):\n    for n in g.dst_nodes():\n        n["out"] = sum(e.src.x for e in n.incoming_edges())\n'
    )
    x.grad = None
    torch.nn.functional.relu(plain(edges, x), inplace=True).sum().backward()
    own, x.grad = x.grad, None
    plain(edges, x).relu().sum().backward()
    assert torch.equal(own, x.grad)


def test_texts_are_read_without_torch():
    program = "import sys; sys.modules['torch'] = None; import headwater; print(headwater.compile('gat').explain()[:9])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd="/")
    assert done.stdout.strip() == "== values", done.stderr
