"""Layer texts that stand in a class: what they read of `self` is the object's."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from torch import nn  # noqa: E402

NODES, EDGES, D_IN, D_OUT = 20, 90, 6, 4


@pytest.fixture
def edges():
    torch.manual_seed(5)
    return torch.randint(0, NODES - 3, (2, EDGES))


def mean(edges, x):
    total = torch.zeros(NODES, x.size(1)).index_add(0, edges[1], x[edges[0]])
    return total / edges[1].bincount(minlength=NODES).clamp(min=1)[:, None]


def twice(x):
    return x + x


class Sage(nn.Module):
    def __init__(self, heads=2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(D_IN, D_OUT))
        self.root = nn.Linear(D_IN, D_OUT)
        self.gate = nn.Parameter(torch.randn(heads, D_OUT // heads))
        self.heads, self.scale, self.kind = heads, 0.5, "plain"
        self.shift = nn.Parameter(torch.tensor(0.25))

    @headwater.compile(uses=[twice])
    def forward(
        self,
        g,
        x: node[d_in],  # what nodes have
        p: float = 0.0,
    ):
        """A text may say what it is."""
        for n in g.dst_nodes():
            n["m"] = twice(mean(e.src.x for e in n.incoming_edges())) @ self.weight
            n["r"] = linear(n.x, transpose(self.root.weight)) + self.root.bias
            n["z"] = reshape(dropout(n["r"], p), self.heads, d_in - 4) * self.gate
            n["out"] = n["m"] + self.scale * flatten(n["z"]) + self.shift if self.kind == "plain" else n["m"]


def wanted(module, edges, x):
    gated = (module.root(x).view(NODES, *module.gate.shape) * module.gate).flatten(1)
    return 2 * mean(edges, x) @ module.weight + module.scale * gated + module.shift


def test_what_is_read_of_self_is_a_parameter(edges):
    module, x = Sage(), torch.randn(NODES, D_IN, requires_grad=True)
    out, right = module(edges, x), wanted(module, edges, x)
    torch.testing.assert_close(out, right)
    leaves = [x, *module.parameters()]
    for one, other in zip(*(torch.autograd.grad(end.square().sum(), leaves) for end in (out, right))):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    module.scale = 3
    torch.testing.assert_close(module(edges, x), wanted(module, edges, x))
    module.kind = "bare"
    torch.testing.assert_close(module(edges, x), 2 * mean(edges, x) @ module.weight)


def test_objects_of_one_class_have_their_own(edges):
    one, other, x = Sage(), copy.deepcopy(Sage()), torch.randn(NODES, D_IN)
    torch.testing.assert_close(one(edges, x), wanted(one, edges, x))
    with torch.no_grad():
        other.weight += 1
    torch.testing.assert_close(other.forward(edges, x=x), wanted(other, edges, x))
    torch.testing.assert_close(one(edges, x), wanted(one, edges, x))
    assert repr(one.forward) == "<bound <headwater method Sage.forward> of a Sage>"


def test_dropouts_follow_the_module(edges):
    module, x = Sage(), torch.randn(NODES, D_IN)
    assert not torch.equal(module(edges, x, 0.5), module(edges, x))
    assert torch.equal(module.eval()(edges, x, 0.5), module(edges, x))
    assert "== kernels, forward" in module.forward.explain(edges, x, level="kernels")


class Typed:
    """No module: any object will do. The class says what sizes are called."""

    W: matrix[etype, d_in, d_out]

    def __init__(self):
        self.W = torch.randn(3, D_IN, D_OUT, requires_grad=True)
        self.b = torch.randn(3, D_OUT)

    @headwater.compile
    def messages(self, g, x: node[d_in]):
        for n in g.dst_nodes():
            n["out"] = sum(linear(e.src.x, self.W[e.etype]) + self.b[e.etype] for e in n.incoming_edges()) / d_out


def test_weights_of_types(edges):
    typed, types, x = Typed(), torch.randint(0, 3, (EDGES,)), torch.randn(NODES, D_IN)
    out = typed.messages((edges, types), x)
    each = torch.einsum("ei,eio->eo", x[edges[0]], typed.W[types]) + typed.b[types]
    torch.testing.assert_close(out, torch.zeros(NODES, D_OUT).index_add(0, edges[1], each) / D_OUT)
    out.sum().backward()
    assert typed.W.grad.shape == typed.W.shape


def test_faults_of_objects_are_named(edges):
    module, x = Sage(), torch.randn(NODES, D_IN)
    with pytest.raises(TypeError, match="Sage.forward reads `self`; call it on an object"):
        Sage.forward(edges, x)
    module.gate = nn.Parameter(torch.randn(2, 1, 2, 1))
    with pytest.raises(ValueError, match=r"self.gate has shape \[2, 1, 2, 1\], but is used as a vector: expected 1 dimen"):
        module(edges, x)
    del module.gate
    module.gate = nn.ReLU()
    with pytest.raises(TypeError, match=r"self.gate is a ReLU, but line \d+ of .*test_compile_method.py reads it"):
        module(edges, x)
    del module.gate
    with pytest.raises(AttributeError, match=r"a Sage has no `gate`, but line \d+ of .* reads self.gate"):
        module(edges, x)
    module = Sage()
    module.weight = nn.Parameter(torch.randn(D_IN + 1, D_OUT))
    with pytest.raises(SyntaxError, match="rows of .* meet a matrix") as fault:
        module(edges, x)
    assert fault.value.text.strip().endswith("@ self.weight")


WRONG = {
    "no_graph": "expected `g` behind `self`",
    "writes": "a layer only reads `self`",
    "calls": "calls no methods of `self`",
    "itself": "only reads `self`; expected an attribute",
    "both": "is used in another way",
    "names": "would both be called self_a_b",
    "taken": "which is a parameter",
    "lines": "in one line",
}


class Wrong:
    def no_graph(self):
        pass

    def writes(self, g, x: node[d]):
        self.x = x

    def calls(self, g, x: node[d]):
        for n in g.dst_nodes():
            n["out"] = self.lin(n.x)

    def itself(self, g, x: node[d]):
        for n in g.dst_nodes():
            n["out"] = linear(n.x, self)

    def both(self, g, x: node[d]):
        for n in g.dst_nodes():
            n["out"] = linear(n.x, self.W) * self.W

    def names(self, g, x: node[d]):
        for n in g.dst_nodes():
            n["out"] = n.x * self.a_b + self.a.b

    def taken(self, g, self_w: node[d]):
        for n in g.dst_nodes():
            n["out"] = n.self_w * self.w

    def lines(self, g, x: node[d]):
        for n in g.dst_nodes():
            n["out"] = n.x * (self.
                              w)


@pytest.mark.parametrize("name", WRONG)
def test_faults_of_texts_have_their_line(name):
    function = getattr(Wrong, name)
    with pytest.raises(SyntaxError, match=WRONG[name]) as fault:
        headwater.compile(function)
    first = function.__code__.co_firstlineno
    assert fault.value.filename == __file__ and first <= fault.value.lineno <= first + 4
