"""Triton kernels for attention over the edges of a node: softmax and weighted sum in one walk, and the way back in another.

Scores are leaky_relu(left[pair of source] + right[pair of destination]) as RGAT has them, or products of rows of k (a pair's) and q
(a node's) as HGT has them. A program has a destination: `level` is the logarithm of its sum of exponentials, and all that the way
back needs of the softmax.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _logits(left, right, column, of_edge, node, held, PRODUCTS: tl.constexpr, HEADS: tl.constexpr, EACH: tl.constexpr):
    """Scores before leaky_relu, [edges, heads], and rows of k where scores are products."""
    head, place = tl.arange(0, HEADS), tl.arange(0, EACH)
    if PRODUCTS:
        inside = head[:, None] * EACH + place[None, :]
        query = tl.load(right + node * HEADS * EACH + inside)
        key = tl.load(left + column[:, None, None] * HEADS * EACH + inside[None, :, :], mask=held[:, None, None], other=0.0)
        return tl.sum(key * query[None, :, :], 2)
    else:
        mine = tl.load(left + column[:, None] * HEADS + head[None, :], mask=held[:, None], other=0.0)
        return mine + tl.load(right + of_edge[:, None] * HEADS + head[None, :], mask=held[:, None], other=0.0)


@triton.jit
def _attend(
    left, right, z, bias, out, level, offsets, columns, of_edges, slope,
    PRODUCTS: tl.constexpr, HEADS: tl.constexpr, EACH: tl.constexpr, EDGES: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    node = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(offsets + node), tl.load(offsets + node + 1)
    head, place = tl.arange(0, HEADS), tl.arange(0, EACH)
    inside = head[:, None] * EACH + place[None, :]
    most, total = tl.full([HEADS], -1e30, tl.float32), tl.zeros([HEADS], tl.float32)
    sums = tl.zeros([HEADS, EACH], tl.float32)
    for first in range(begin, end, EDGES):
        edge = first + tl.arange(0, EDGES)
        held = edge < end
        column = tl.load(columns + edge, mask=held, other=0).to(tl.int64)
        of_edge = column
        if not PRODUCTS:
            of_edge = tl.load(of_edges + edge, mask=held, other=0).to(tl.int64)
        logit = _logits(left, right, column, of_edge, node, held, PRODUCTS, HEADS, EACH)
        if not PRODUCTS:
            logit = tl.where(logit > 0, logit, logit * slope)
        logit = tl.where(held[:, None], logit, -float("inf"))
        raised = tl.maximum(most, tl.max(logit, 0))
        scale, weight = tl.exp(most - raised), tl.exp(logit - raised[None, :])
        part = tl.load(z + column[:, None, None] * HEADS * EACH + inside[None, :, :], mask=held[:, None, None], other=0.0)
        sums = sums * scale[:, None] + tl.sum(part * weight[:, :, None], 0)
        total = total * scale + tl.sum(weight, 0)
        most = raised
    filled = tl.where(total > 0, total, 1.0)
    made = sums / filled[:, None]
    if BIASED:
        made += tl.load(bias + inside)
    tl.store(out + node * HEADS * EACH + inside, made)
    tl.store(level + node * HEADS + head, most + tl.log(filled))


@triton.jit
def _attend_back(
    left, right, z, bias, out, level, gradient, offsets, columns, of_edges, slope, weights, d_logits, d_right,
    PRODUCTS: tl.constexpr, HEADS: tl.constexpr, EACH: tl.constexpr, EDGES: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    node = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(offsets + node), tl.load(offsets + node + 1)
    head, place = tl.arange(0, HEADS), tl.arange(0, EACH)
    inside = head[:, None] * EACH + place[None, :]
    own = tl.load(gradient + node * HEADS * EACH + inside)
    made = tl.load(out + node * HEADS * EACH + inside)
    if BIASED:
        made -= tl.load(bias + inside)
    # The sum of weights times their gradients is the gradient times the output.
    mean = tl.sum(own * made, 1)
    logarithm = tl.load(level + node * HEADS + head)
    d_query = tl.zeros([HEADS, EACH], tl.float32)
    for first in range(begin, end, EDGES):
        edge = first + tl.arange(0, EDGES)
        held = edge < end
        column = tl.load(columns + edge, mask=held, other=0).to(tl.int64)
        of_edge = column
        if not PRODUCTS:
            of_edge = tl.load(of_edges + edge, mask=held, other=0).to(tl.int64)
        logit = _logits(left, right, column, of_edge, node, held, PRODUCTS, HEADS, EACH)
        rise = tl.where(logit > 0, 1.0, slope)
        if PRODUCTS:
            weight = tl.exp(logit - logarithm[None, :])
        else:
            weight = tl.exp(logit * rise - logarithm[None, :])
        part = tl.load(z + column[:, None, None] * HEADS * EACH + inside[None, :, :], mask=held[:, None, None], other=0.0)
        d_logit = weight * (tl.sum(part * own[None, :, :], 2) - mean[None, :])
        if not PRODUCTS:
            d_logit *= rise
        at = edge.to(tl.int64)[:, None] * HEADS + head[None, :]
        tl.store(weights + at, weight, mask=held[:, None])
        tl.store(d_logits + at, d_logit, mask=held[:, None])
        if PRODUCTS:
            key = tl.load(left + column[:, None, None] * HEADS * EACH + inside[None, :, :], mask=held[:, None, None], other=0.0)
            d_query += tl.sum(tl.where(held[:, None, None], key * d_logit[:, :, None], 0.0), 0)
        else:
            tl.atomic_add(d_right + of_edge[:, None] * HEADS + head[None, :], d_logit, mask=held[:, None], sem="relaxed")
    if PRODUCTS:
        tl.store(d_right + node * HEADS * EACH + inside, d_query)


def _settings(z, heads, is_products):
    width = z.shape[1]
    return {"PRODUCTS": is_products, "HEADS": heads, "EACH": width // heads, "EDGES": max(512 // width, 1), "num_warps": 1}


def attend(lists, of_edge, left, right, z, heads, bias=None, slope=0.2):
    """Attention over `lists`: (output, level). `of_edge` is None where scores are products of rows of left (k) and right (q)."""
    out = torch.empty(lists.count, z.shape[1], device=z.device)
    level = torch.empty(lists.count, heads, device=z.device)
    _attend[(lists.count,)](
        left, right, z, bias, out, level, lists.offsets, lists.columns, of_edge, slope,
        BIASED=bias is not None, **_settings(z, heads, of_edge is None),
    )  # fmt: skip
    return out, level


def attend_back(lists, of_edge, left, right, z, heads, out, level, gradient, bias=None, slope=0.2):
    """Weights and gradients of scores, [edges, heads] each, and the gradient of `right`."""
    edges = len(lists.columns)
    weights, d_logits = (torch.empty(edges, heads, device=z.device) for _ in range(2))
    d_right = torch.empty_like(right) if of_edge is None else torch.zeros_like(right)
    _attend_back[(lists.count,)](
        left, right, z, bias, out, level, gradient, lists.offsets, lists.columns, of_edge, slope, weights, d_logits, d_right,
        BIASED=bias is not None, **_settings(z, heads, of_edge is None),
    )  # fmt: skip
    return weights, d_logits, d_right
