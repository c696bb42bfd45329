"""Models drawn from a seed: operators that save views, slices and strides, changes in place of what nobody has saved, checkpoints, layers on
streams of their own, and micro-batches whose passes come in any order."""

import contextlib
import gc
import os
import random

import torch
from offload_cases import data
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import headwater


def seeds(few):
    """Those of `HEADWATER_SCHEDULES`, such as 0..1000, or a few."""
    first, last = (int(text) for text in os.environ.get("HEADWATER_SCHEDULES", f"0..{few}").split(".."))
    return range(first, last)


def _halves(x, other, weight):
    half = x.shape[0] // 2
    return torch.cat([x[half:] * other[:half], x[:half].sin()])


def _attention(x, other, weight):
    return torch.softmax(x @ other.t() * 0.1, -1) @ x


def _chunks(x, other, weight):
    first, second = (x @ torch.cat([weight, weight.t()], 1)).chunk(2, -1)
    return first * second.sigmoid()


def _steps(x, other, weight):
    return x * (x[::2] * other[1::2]).repeat_interleave(2, 0)


def _expanded(x, other, weight):
    return x.mean(1, keepdim=True).expand_as(x) * other


def _in_place(x, other, weight):
    return F.relu((x + 1).mul_(0.5).add_(0.1), inplace=True) + other


def _not_learnt(x, other, weight):
    with torch.no_grad():
        scale = other.cos().exp()
    return x * scale


def _checkpointed(x, other, weight):
    return checkpoint(lambda x, other: (x @ weight).sin() * other, x, other, use_reentrant=False)


def _by_keyword(x, other, weight):
    return headwater.checkpoint(lambda rest, *, hidden: (hidden @ weight).tanh() + rest[0], [other], hidden=x)


OPERATORS = [
    lambda x, other, weight: x.sin() * other,
    lambda x, other, weight: F.gelu(x) + other.tanh(),
    lambda x, other, weight: F.layer_norm(x, x.shape[1:]),
    lambda x, other, weight: (x @ weight * 0.05).exp().cos(),
    lambda x, other, weight: F.linear(x, weight.t()) * 0.5,
    lambda x, other, weight: x.t().cos().t() - other,
    _halves,
    _attention,
    _chunks,
    _steps,
    _expanded,
    _in_place,
    _not_learnt,
    _checkpointed,
    _by_keyword,
]


class Program:
    """What a step does. The same seed is the same step, whoever holds what it saves."""

    def __init__(self, seed):
        drawn = self._drawn = random.Random(seed)
        self.rows, self.width = drawn.choice([16, 32, 64]), drawn.choice([8, 16, 32])
        self.weights = drawn.randint(1, 3)
        self.batches = [self._layers(drawn) for _ in range(drawn.choice([1, 1, 2, 3]))]
        self.order = self._passes(drawn)
        self.streams = drawn.choice([0, 0, 1, 2])
        self.hints = drawn.random() < 0.3
        self.is_abandoned = drawn.random() < 0.1

    def _layers(self, drawn):
        return [(drawn.randrange(len(OPERATORS)), drawn.random(), drawn.randrange(3), drawn.random() < 0.2) for _ in range(drawn.randint(2, 7))]

    def _passes(self, drawn):
        """Which micro-batch goes forward or back next, and whether its graph is kept for a second time."""
        order, open_, to_come = [], [], list(range(len(self.batches)))
        while to_come or open_:
            if to_come and (not open_ or drawn.random() < 0.6):
                open_.append(to_come.pop(0))
                order.append(("forward", open_[-1]))
            else:
                own = open_.pop(drawn.randrange(len(open_)))
                order += [("again", own)] if drawn.random() < 0.2 else []
                order.append(("backward", own))
        return order

    def gradients(self, off=None, streams=()):
        """Of all weights, and all losses."""
        weights = [data("cpu", self.width, self.width, requires_grad=True) for _ in range(self.weights)]
        first = data("cpu", self.rows, self.width, requires_grad=True)
        losses, graphs, hints = [], {}, off is not None and self.hints
        for way, own in self.order:
            if hints and way != "again":
                off.hint(next=way, microbatch=own)
            if way == "forward":
                with off or contextlib.nullcontext():
                    graphs[own] = self._forward(self.batches[own], first * (own + 1), weights, streams)
                losses.append(graphs[own].detach())
            else:
                graph = graphs[own] if way == "again" else graphs.pop(own)
                graph.backward(retain_graph=way == "again")
        if self.is_abandoned:
            with off or contextlib.nullcontext():
                self._forward(self.batches[0], first * 3, weights, streams)
            gc.collect()
        return [*losses, first.grad, *(weight.grad for weight in weights if weight.grad is not None)]

    def _forward(self, layers, x, weights, streams):
        known, on, home = [x, x.cos()], 0, None
        if streams:
            import held

            home = before = held.stream()
        for operator, at, weight, is_moved in layers:
            if streams and is_moved:
                on = (on + 1) % len(streams)
                held.follow(streams[on], before)
                before = streams[on]
            with held.at(before) if streams else contextlib.nullcontext():
                other = known[int(at * len(known))]
                made = OPERATORS[operator](known[-1], other, weights[weight % len(weights)])
                # Nothing grows beyond all bounds: what is not a number is equal to nothing.
                known.append(made.tanh() if len(known) % 2 == 0 else made * 0.3)
        if streams:
            held.follow(home, before)
        return known[-1].square().mean() + (known[-1] * known[len(known) // 2]).sum() * 1e-3
