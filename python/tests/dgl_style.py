"""A stand-in for DGL: graphs with data by name, functions of edges and nodes that are called as DGL calls them."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import torch


class Graph:
    """Edges of one type. With `num_dst` nodes that are written are others than those that are read, as in DGL's blocks."""

    def __init__(self, source, target, num_nodes, num_dst=None):
        self._edges, self._nodes = (source, target), (num_nodes, num_nodes if num_dst is None else num_dst)
        self.is_block = num_dst is not None
        self.srcdata, self.edata = {}, {}
        self.dstdata = {} if self.is_block else self.srcdata

    ndata = property(lambda self: self.srcdata)

    def edges(self):
        return self._edges

    def num_nodes(self):
        return self._nodes[0]

    num_src_nodes = num_nodes

    def num_dst_nodes(self):
        return self._nodes[1]

    @contextlib.contextmanager
    def local_scope(self):
        frames = (self.srcdata, self.dstdata, self.edata)
        before = [dict(frame) for frame in frames]
        yield
        for frame, old in zip(frames, before):
            frame.clear()
            frame.update(old)

    def _batch(self, chosen=slice(None)):
        source, target = (end[chosen] for end in self._edges)
        return SimpleNamespace(
            src={name: value[source] for name, value in self.srcdata.items()},
            dst={name: value[target] for name, value in self.dstdata.items()},
            data={name: value[chosen] for name, value in self.edata.items()},
        )

    def apply_edges(self, function):
        self.edata.update(function(self._batch()))

    def update_all(self, message_func, reduce_func, apply_node_func=None):
        messages, target = message_func(self._batch()), self._edges[1]
        degrees = target.bincount(minlength=self._nodes[1])
        made = {}
        # DGL calls the function once for all nodes of one degree. Those without edges have zeros.
        for degree in degrees.unique().tolist():
            nodes = (degrees == degree).nonzero().flatten()
            if degree == 0:
                continue
            order = torch.stack([(target == node).nonzero().flatten() for node in nodes])
            data = {name: value[nodes] for name, value in self.dstdata.items()}
            mailbox = {name: value[order] for name, value in messages.items()}
            for name, value in reduce_func(SimpleNamespace(data=data, mailbox=mailbox)).items():
                before = made.get(name, value.new_zeros(self._nodes[1], *value.shape[1:]))
                made[name] = before.index_copy(0, nodes, value)
        self.dstdata.update(made)
        if apply_node_func is not None:
            self.dstdata.update(apply_node_func(SimpleNamespace(data=self.dstdata)))


def _end(batch, which):
    return {"u": batch.src, "v": batch.dst, "e": batch.data}[which]


def _two(left, operator, right):
    def make(lhs_field, rhs_field, out):
        def message(edges):
            a, b = _end(edges, left)[lhs_field], _end(edges, right)[rhs_field]
            # Rows apart, dimensions of 1 are repeated.
            count = max(a.dim(), b.dim())
            a, b = (one.reshape(len(one), *[1] * (count - one.dim()), *one.shape[1:]) for one in (a, b))
            return {out: operator(a, b)}

        return message

    return make


def _reduce(operator):
    return lambda msg, out: lambda nodes: {out: operator(nodes.mailbox[msg])}


fn = SimpleNamespace(
    copy_u=lambda u, out: lambda edges: {out: edges.src[u]},
    copy_e=lambda e, out: lambda edges: {out: edges.data[e]},
    u_mul_e=_two("u", torch.mul, "e"),
    u_add_v=_two("u", torch.add, "v"),
    u_dot_v=_two("u", lambda a, b: (a * b).sum(-1, keepdim=True), "v"),
    sum=_reduce(lambda box: box.sum(1)),
    mean=_reduce(lambda box: box.mean(1)),
    max=_reduce(lambda box: box.amax(1)),
)


def edge_softmax(graph, logits):
    """The softmax over the edges into each node."""
    target, rest = graph.edges()[1], logits.shape[1:]
    index = target.view(-1, *[1] * len(rest)).expand_as(logits)
    most = logits.new_zeros(graph.num_dst_nodes(), *rest).scatter_reduce(0, index, logits, "amax", include_self=False)
    shares = (logits - most[target]).exp()
    return shares / logits.new_zeros(graph.num_dst_nodes(), *rest).index_add(0, target, shares)[target]
