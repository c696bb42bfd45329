"""Models and graphs of autograd in which offloaders have been wrong, each as a function of a device that makes what has gradients and a
loss. Whatever leaves meanwhile, losses and gradients must be those of a run in which nothing does, to the bit."""

import threading

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import headwater

ROWS, WIDTH = 64, 32
_one_at_a_time = threading.Lock()


def data(device, *shape, requires_grad=False):
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[0]))
    return made.to(device).requires_grad_(requires_grad)


def seeded(make):
    # The seed is the whole process's.
    with _one_at_a_time:
        torch.manual_seed(5)
        return make()


def mlp(device):
    net = seeded(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh())).to(device)
    return list(net.parameters()), lambda: net(data(device, ROWS, WIDTH)).square().mean()


def attention(device):
    """Query, key and value are slices of one storage."""
    net = seeded(lambda: nn.Linear(WIDTH, 3 * WIDTH)).to(device)

    def loss():
        query, key, value = net(data(device, 4, 16, WIDTH)).chunk(3, -1)
        weights = torch.softmax(query @ key.transpose(1, 2) / WIDTH**0.5, -1)
        return (weights @ value).square().sum()

    return list(net.parameters()), loss


def transposes(device):
    """A square matrix and its transpose have one storage, one shape and other strides."""
    weight = data(device, WIDTH, WIDTH, requires_grad=True)

    def loss():
        square = weight * 2
        return ((square @ square.t() * 1e-2).exp() + square.t() * square).tanh().sum()

    return [weight], loss


def slices(device):
    """Overlapping slices of one storage, with the same shape."""
    weight = data(device, 3 * ROWS, WIDTH, requires_grad=True)

    def loss():
        whole = weight.sin()
        first, second, third = whole[:ROWS], whole[10 : ROWS + 10], whole[2 * ROWS :]
        return (first * second).sum() + (second * third).exp().sum() + (first[:, :8] * third[:, 8:16]).sum()

    return [weight], loss


def strides(device):
    """Expanded, permuted, in steps, and of no size."""
    weight = data(device, 8, 6, 10, 4, requires_grad=True)

    def loss():
        x = weight.cos()
        expanded = x[:, :1].expand(-1, 6, -1, -1)
        permuted = x.permute(3, 1, 0, 2)
        steps = x[::2, 1::3]
        nothing = x[:0] * x[:0]
        return (expanded * x).sum() + permuted.exp().prod(0).sum() + (steps * steps.flip(0)).sum() + nothing.sum()

    return [weight], loss


def convolution(device):
    net = seeded(lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3))).to(device)
    net = net.to(memory_format=torch.channels_last)
    x = data(device, 2, 3, 16, 16).contiguous(memory_format=torch.channels_last)
    return list(net.parameters()), lambda: net(x).square().mean()


def recurrent(device):
    cell = seeded(lambda: nn.GRUCell(WIDTH, WIDTH)).to(device)

    def loss():
        state = data(device, ROWS, WIDTH)
        for step in range(5):
            state = cell(data(device, ROWS, WIDTH) * (step + 1), state)
        return state.square().mean()

    return list(cell.parameters()), loss


def tied(device):
    """One matrix is an embedding, a projection, and both transposed."""
    weight = data(device, ROWS, WIDTH, requires_grad=True)
    ids = torch.arange(0, ROWS, 3, device=device)

    def loss():
        hidden = F.embedding(ids, weight).tanh()
        return F.cross_entropy(hidden @ weight.t(), ids) + (hidden @ weight[:8].t()).square().mean()

    return [weight], loss


def label_shift(device):
    """Slices with an offset, of a tensor that is large and gone at once."""
    net = seeded(lambda: nn.Linear(WIDTH, ROWS)).to(device)
    labels = torch.arange(ROWS, device=device)

    def loss():
        logits = net(data(device, 2, ROWS, WIDTH))
        return F.cross_entropy(logits[:, :-1].reshape(-1, ROWS), labels[1:].repeat(2))

    return list(net.parameters()), loss


def in_place_on_what_was_not_saved(device):
    net = seeded(lambda: nn.Linear(WIDTH, WIDTH)).to(device)

    def loss():
        x = net(data(device, ROWS, WIDTH))
        return (F.relu(x, inplace=True) + 1).exp().mean()

    return list(net.parameters()), loss


def checkpointed(device):
    net = seeded(lambda: nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU()) for _ in range(4))).to(device)

    def loss():
        x = net[0](data(device, ROWS, WIDTH))
        x = checkpoint(net[1], x, use_reentrant=False)
        x = checkpoint(net[2], x, use_reentrant=True)
        return headwater.checkpoint(lambda *, hidden: net[3](hidden), hidden=x).square().mean()

    return list(net.parameters()), loss


def graph_layers(device):
    """Sums over edges, as layers of PyG are made of."""
    net = seeded(lambda: nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))).to(device)
    source = torch.arange(4 * ROWS, device=device) * 7 % ROWS
    target = torch.arange(4 * ROWS, device=device) * 5 % ROWS

    def loss():
        x = data(device, ROWS, WIDTH)
        for layer in net:
            gathered = layer(x)[source]
            x = F.relu(torch.zeros_like(x).index_add(0, target, gathered * gathered.sigmoid()))
        return x.square().mean()

    return list(net.parameters()), loss


CASES = [
    mlp,
    attention,
    transposes,
    slices,
    strides,
    convolution,
    recurrent,
    tied,
    label_shift,
    in_place_on_what_was_not_saved,
    checkpointed,
    graph_layers,
]


def gradients(case, device, context=None, *, inside=False, twice=False, second=False):
    """The loss and all gradients; `twice` with a graph that is kept, `second` of the gradients themselves."""
    weights, loss = case(device)
    if context is None:
        made = loss()
    else:
        with context:
            made = loss()
            if inside:
                made.backward(retain_graph=True)
                for weight in weights:
                    weight.grad = None
    if second:
        first = torch.autograd.grad(made, weights, create_graph=True)
        made = sum(own.square().sum() for own in first)
    if twice:
        made.backward(retain_graph=True)
    made.backward()
    return [made.detach(), *(weight.grad for weight in weights)]


def same(found, expected):
    return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
