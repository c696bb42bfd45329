"""Every operator that is read in modules of others: messages of a module, compiled and as torch computes them."""

import importlib.util
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import headwater  # noqa: E402

NODES, EDGES = 12, 40

MODULE = """
import math
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter, softmax

class Layer(MessagePassing):
    def __init__(self, which):
        super().__init__(aggr="sum", node_dim=0)
        self.which = which
        self.W, self.U = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(4, 6))
        self.v, self.a = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(1, 2, 3))
        self.s, self.p = nn.Parameter(torch.randn(())), nn.Parameter(torch.randn(2, 1))
        self.net = nn.Sequential(nn.Linear(6, 5), nn.ELU(0.7), nn.Identity(), nn.GELU(), nn.SiLU(), nn.Tanh(), nn.Sigmoid())

    def forward(self, x, edge_index, w):
        return self.propagate(edge_index, x=x, w=w)

    def message(self, x_i, x_j, w, index, size_i):
        h, q = x_j.view(-1, 2, 3), x_i.abs() + 0.5
"""

# Of `x_i`, `x_j` and `q`, which is positive, of shape [edges, 6]; `h` of [edges, 2, 3]; `w` of [edges].
READ = """
F.relu(x_j); torch.relu(x_j); x_j.relu(); F.leaky_relu(x_j); F.leaky_relu(x_j, negative_slope=0.3); F.elu(x_j, 0.5); F.gelu(x_j)
F.silu(x_j); torch.sigmoid(x_j); x_j.tanh(); torch.exp(x_j); q.log(); torch.sqrt(q); q.rsqrt(); torch.abs(x_j)
torch.reciprocal(q)
-x_j; torch.neg(x_j); x_j + x_i; torch.add(x_j, x_i, alpha=2); x_j - 1; torch.sub(1, x_j); 2 * x_j; x_j.mul(x_i); x_j / q; 1 / q
x_j ** 2; x_j.pow(3); torch.square(x_j); q ** 0.5; q.pow(-0.5); q ** -1; torch.maximum(x_j, x_i); torch.min(x_j, x_i)
x_j * w.view(-1, 1); x_j * w.unsqueeze(-1); x_j * w[:, None]; h * w.view(-1, 1, 1); x_j * self.v; x_j + self.s; h * self.a
h * self.p
h * self.p + self.a; w * 2; torch.cat([x_j, x_i, q], dim=-1); torch.cat([h, h * 2], dim=2); torch.concat((x_j, x_i), 1)
x_j.chunk(2, dim=-1)[1]; x_j.chunk(4, -1)[2]; torch.split(x_j, [1, 5], dim=1)[1]; x_j.split(4, 1)[1]; x_j[:, 2:5]; x_j[..., -2:]
x_j[:, 3]; x_j[:, -1]; h[:, :, 1:]; h[..., 0]; h[:, None, :, 0].squeeze(1); x_j.view(-1, 3, 2); x_j.reshape(x_j.size(0), 3, -1)
h.flatten(1); h.flatten(start_dim=1) + x_j; x_j.view(-1, 1, 6).squeeze(1); x_j.unsqueeze(2).squeeze(-1); h.view(-1, 6)
h.sum(-1); h.sum(dim=1); h.mean(dim=1); h.mean(-1, keepdim=True); torch.sum(x_j, dim=-1); x_j.mean(dim=(1,))
x_j.sum(1, keepdim=True)
(h * self.a).sum(-1); (x_j * x_i).sum(dim=-1); (h * h).sum(1); (x_j * self.v).sum(-1, keepdim=True); (h * self.p).sum(dim=-1)
x_j @ self.W; torch.matmul(x_j, self.W); x_j.mm(self.W); F.linear(x_j, self.U); F.linear(x_j, self.U, self.v[:4])
x_j @ self.U.t(); x_j @ self.U.T; x_j @ self.U.transpose(0, 1); self.net(x_j); self.net[0](x_j)
softmax(x_j, index, None, size_i)
softmax(h, index, num_nodes=size_i); softmax(w, index, num_nodes=size_i)[:, None] * x_j; F.dropout(x_j, 0.5, training=False)
F.dropout(x_j, 0.0); scatter(x_j, index, 0, size_i, "max")[index] * x_j; x_j.contiguous().clone()
x_j * math.sqrt(self.v.size(0))
x_j if x_j.dim() == 2 and x_j.shape[-1] == 6 else h; [y * 2 for y in (x_j, x_i)][0]; (lambda y: y + 1)(x_j); x_j.float()
x_j.add(w.view(-1, 1))
"""
# What is not: each would be wrong if it were taken for something else.
NOT_READ = """
x_j.sort(-1).values; x_j.cumsum(0); x_j.detach(); x_j.sum(); x_j.sum(0) + x_j; x_j.view(-1, 2)[:EDGES]
x_j * w if len(w) == 6 else w + 0
x_j.t().t(); x_j[0] + x_j; x_j[::2].repeat(2, 1); x_j.clamp(min=0); F.softmax(x_j, dim=-1); F.gelu(x_j, approximate="tanh")
x_j ** 1.5
torch.where(x_j > 0, x_j, x_i); x_j.max(-1)[0]; h @ self.W[:3]; x_j.double().float()
softmax(x_j.t(), index, num_nodes=size_i, dim=1).t()
h.transpose(1, 2).flatten(1); x_j.squeeze(); torch.randn_like(x_j) * 0; x_j.view(-1, 3).view(-1, 6) ; h.flatten(0, 1)[:EDGES]
torch.cat([x_j, x_i])[:EDGES]; x_j + float("inf"); x_j * (w.sum() > 0); torch.stack([x_j, x_i], 1); x_j.expand(-1, 6)
x_j.std(-1)
""".replace("EDGES", str(EDGES))


def terms(text):
    return [term.strip() for line in text.strip().splitlines() for term in line.split(";") if term.strip()]


def layers_of(folder, name, text):
    """A class whose messages are one of these terms, and the terms."""
    lines = [f"        if self.which == {at}:\n            return {term}\n" for at, term in enumerate(terms(text))]
    (folder / f"{name}.py").write_text(MODULE + "".join(lines))
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    # PyG looks for the module of a class there.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Layer, enumerate(terms(text))


def both(layer, fallback):
    """What the compiled layer and the layer itself give, and gradients."""
    edges, leaves = torch.randint(NODES - 2, (2, EDGES)), [torch.randn(NODES, 6), torch.rand(EDGES)]
    for one in (headwater.compile(layer, fallback=fallback), layer):
        x, w = (leaf.clone().requires_grad_() for leaf in leaves)
        out = one(x, edges, w)
        weight = torch.linspace(-1, 2, out.numel()).view(out.shape)
        found = torch.autograd.grad((out * weight).sum(), [x, w, *layer.parameters()], allow_unused=True)
        # What is not used has no gradient, or zeros.
        yield out, [torch.zeros(1) if one is None else one for one in found]


def test_what_is_read_is_what_torch_computes(tmp_path):
    torch.manual_seed(1)
    layer, all_of_them = layers_of(tmp_path, "terms_that_are_read", READ)
    for at, term in all_of_them:
        (out, gradients), (wanted, right) = both(layer(at), fallback=False)
        torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-4, msg=lambda why: f"{term}: {why}")
        for pair in zip(gradients, right):
            one, other = torch.broadcast_tensors(*pair)
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3, msg=lambda why: f"{term}: {why}")


@pytest.mark.filterwarnings("ignore:Layer runs as it is written")
def test_what_is_not_read_is_left_to_torch(tmp_path):
    torch.manual_seed(2)
    layer, all_of_them = layers_of(tmp_path, "terms_that_are_not_read", NOT_READ)
    ran = 0
    for at, term in all_of_them:
        try:
            (out, _), (right, _) = both(layer(at), fallback=True)
        except (RuntimeError, ValueError):
            # PyG or torch refuses it, or there is no gradient.
            pass
        else:
            torch.testing.assert_close(out, right, equal_nan=True, msg=lambda why: f"{term}: {why}")
            ran += 1
        told = headwater.compile(layer(at)).translations
        assert told[-1].text is None and told[-1].unsupported, term
    assert ran > 20
