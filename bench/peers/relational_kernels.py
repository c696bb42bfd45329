"""Triton kernels for relational layers, and what lays work out for them.

Sums over lists of edges are tasks of at most `TASK_EDGES` edges, so that hubs keep nobody waiting: a row of one task is written, a
row of several grows by atomics. Products are tiles of `TILE_ROWS` rows of one relation, gradients of matrices are chunks of
`CHUNK_ROWS` rows of one relation, which grow by atomics. Rows are as wide as a power of two; offsets into them are 64 bits.
"""

import torch
import triton
import triton.language as tl

from relational_graph import offsets_of

TASK_EDGES, TILE_ROWS, CHUNK_ROWS = 256, 64, 1024


class Lists:
    """For each row, the columns that it sums over; `order` says which weight an edge has, None where weights are in this order."""

    def __init__(self, rows, columns, row_count, order=None):
        device = rows.device
        offsets = offsets_of(rows, row_count)
        self.offsets, self.columns, self.count = offsets.int(), columns.int(), row_count
        self.order = None if order is None else order.int()
        tasks = ((offsets.diff() + TASK_EDGES - 1) // TASK_EDGES).clamp(min=1)
        row = torch.repeat_interleave(torch.arange(row_count, device=device), tasks)
        first = torch.arange(len(row), device=device) - (tasks.cumsum(0) - tasks)[row]
        begin = offsets[row] + first * TASK_EDGES
        self.tasks = row.int(), begin.int(), torch.minimum(begin + TASK_EDGES, offsets[row + 1]).int(), (tasks[row] > 1).int()
        # Rows of several tasks.
        self.shared = (tasks > 1).nonzero().view(-1)

    def back(self, column_count):
        """The same edges from their columns to their rows; weights stay in the order of these lists."""
        rows = torch.repeat_interleave(torch.arange(self.count, device=self.columns.device), self.offsets.diff())
        columns = self.columns.long()
        order = columns.argsort(stable=True)
        return Lists(columns[order], rows[order], column_count, order)


class Tiles:
    """Rows of `pairs` cut into pieces of one relation: (relation, begin, end)."""

    def __init__(self, pairs, rows):
        sizes = pairs.offsets.diff()
        counts = (sizes + rows - 1) // rows
        kind = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), counts)
        first = torch.arange(len(kind), device=sizes.device) - (counts.cumsum(0) - counts)[kind]
        begin = pairs.offsets[kind] + first * rows
        self.parts = kind.int(), begin.int(), torch.minimum(begin + rows, pairs.offsets[kind + 1]).int()
        self.count = len(kind)


@triton.jit
def _sums(
    x, columns, order, weights, scalars, out, scalars_out, task_row, task_begin, task_end, task_shared,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, EDGES: tl.constexpr,
    WEIGHTED: tl.constexpr, ORDERED: tl.constexpr, SCALARS: tl.constexpr, ADDED: tl.constexpr,
):  # fmt: skip
    task = tl.program_id(0)
    row, begin, end = tl.load(task_row + task).to(tl.int64), tl.load(task_begin + task), tl.load(task_end + task)
    shared = tl.load(task_shared + task)
    place, head = tl.arange(0, WIDTH), tl.arange(0, HEADS)
    total, scalar = tl.zeros([WIDTH], tl.float32), tl.zeros([HEADS], tl.float32)
    for first in range(begin, end, EDGES):
        edge = first + tl.arange(0, EDGES)
        held = edge < end
        column = tl.load(columns + edge, mask=held, other=0).to(tl.int64)
        part = tl.load(x + column[:, None] * WIDTH + place[None, :], mask=held[:, None], other=0.0)
        weight = edge.to(tl.int64)
        if ORDERED:
            weight = tl.load(order + edge, mask=held, other=0).to(tl.int64)
        if WEIGHTED:
            own = weights + weight[:, None] * HEADS + (place // (WIDTH // HEADS))[None, :]
            part *= tl.load(own, mask=held[:, None], other=0.0)
        total += tl.sum(part, 0)
        if SCALARS:
            scalar += tl.sum(tl.load(scalars + weight[:, None] * HEADS + head[None, :], mask=held[:, None], other=0.0), 0)
    if shared != 0:
        tl.atomic_add(out + row * WIDTH + place, total, sem="relaxed")
        if SCALARS:
            tl.atomic_add(scalars_out + row * HEADS + head, scalar, sem="relaxed")
    else:
        if ADDED:
            total += tl.load(out + row * WIDTH + place)
        tl.store(out + row * WIDTH + place, total)
        if SCALARS:
            tl.store(scalars_out + row * HEADS + head, scalar)


def sums(lists, x, weights=None, heads=1, scalars=None, added=None):
    """Sums of rows of x by weights [edges, heads]. With `scalars` [edges, heads], also their sums. `added` grows in place."""
    width = x.shape[1]
    out = torch.empty(lists.count, width, device=x.device) if added is None else added
    scalars_out = None if scalars is None else torch.empty(lists.count, heads, device=x.device)
    if added is None:
        out.index_fill_(0, lists.shared, 0.0)
    if scalars is not None:
        scalars_out.index_fill_(0, lists.shared, 0.0)
    _sums[(len(lists.tasks[0]),)](
        x, lists.columns, lists.order, weights, scalars, out, scalars_out, *lists.tasks,
        WIDTH=width, HEADS=heads, EDGES=max(1024 // width, 1), WEIGHTED=weights is not None, ORDERED=lists.order is not None,
        SCALARS=scalars is not None, ADDED=added is not None, num_warps=1,
    )  # fmt: skip
    return out if scalars is None else (out, scalars_out)


@triton.jit
def _times(
    x, source, matrices, vectors, scalars, out, into, dots, tile_kind, tile_begin, tile_end,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, GATHERED: tl.constexpr, TURNED: tl.constexpr,
    DOTS: tl.constexpr, RAISED: tl.constexpr, SCATTERED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    kind = tl.load(tile_kind + tile).to(tl.int64)
    row = tl.load(tile_begin + tile) + tl.arange(0, ROWS)
    held = row < tl.load(tile_end + tile)
    place, head = tl.arange(0, WIDTH), tl.arange(0, HEADS)
    at = row.to(tl.int64)
    if GATHERED:
        at = tl.load(source + row, mask=held, other=0).to(tl.int64)
    own = tl.load(x + at[:, None] * WIDTH + place[None, :], mask=held[:, None], other=0.0)
    if RAISED:
        own_scalars = scalars + row.to(tl.int64)[:, None] * HEADS + (place // (WIDTH // HEADS))[None, :]
        scale = tl.load(own_scalars, mask=held[:, None], other=0.0)
        own += scale * tl.load(vectors + kind * WIDTH + place)[None, :]
    if TURNED:
        matrix = tl.load(matrices + kind * WIDTH * WIDTH + place[:, None] + place[None, :] * WIDTH)
    else:
        matrix = tl.load(matrices + kind * WIDTH * WIDTH + place[:, None] * WIDTH + place[None, :])
    made = tl.dot(own, matrix, input_precision=PRECISION)
    if SCATTERED:
        target = tl.load(into + row, mask=held, other=0).to(tl.int64)
        tl.atomic_add(out + target[:, None] * WIDTH + place[None, :], made, mask=held[:, None], sem="relaxed")
    else:
        tl.store(out + row.to(tl.int64)[:, None] * WIDTH + place[None, :], made, mask=held[:, None])
    if DOTS:
        scores = made * tl.load(vectors + kind * WIDTH + place)[None, :]
        scores = tl.sum(tl.reshape(scores, [ROWS, HEADS, WIDTH // HEADS]), 2)
        tl.store(dots + row.to(tl.int64)[:, None] * HEADS + head[None, :], scores, mask=held[:, None])


def times(tiles, rows, x, matrices, precision, source=None, turned=False, dots=None, raised=None, into=None, out=None):
    """`rows` rows by the matrix of their relation, turned (transposed) where asked. Row i is x[source[i]], or x[i].

    `dots` are vectors [relations, heads, each]: products of results with them are returned too. `raised` is (scalars, vectors):
    rows are raised by a vector of their relation times a scalar of their own first. With `into`, row i is added to out[into[i]]."""
    width = x.shape[1]
    out = torch.empty(rows, width, device=x.device) if out is None else out
    scalars, vectors = (None, dots) if raised is None else raised
    heads = 1 if vectors is None else vectors.shape[1]
    made = None if dots is None else torch.empty(rows, heads, device=x.device)
    _times[(tiles.count,)](
        x, source, matrices, vectors, scalars, out, into, made, *tiles.parts,
        WIDTH=width, HEADS=heads, ROWS=TILE_ROWS, GATHERED=source is not None, TURNED=turned, DOTS=dots is not None,
        RAISED=raised is not None, SCATTERED=into is not None, PRECISION=precision, num_warps=4 if width < 128 else 8,
    )  # fmt: skip
    return out if dots is None else (out, made)


@triton.jit
def _outer(
    left, right, source, vectors, scalars, rows, out, out_vectors, chunk_kind, chunk_begin, chunk_end,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, GATHERED: tl.constexpr, RAISED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0)
    kind = tl.load(chunk_kind + chunk).to(tl.int64)
    begin, end = tl.load(chunk_begin + chunk), tl.load(chunk_end + chunk)
    place = tl.arange(0, WIDTH)
    total, of_vectors = tl.zeros([WIDTH, WIDTH], tl.float32), tl.zeros([WIDTH], tl.float32)
    for first in range(begin, end, ROWS):
        row = first + tl.arange(0, ROWS)
        held = row < end
        plain = row.to(tl.int64)
        at = tl.load(source + row, mask=held, other=0).to(tl.int64)
        if GATHERED == 1:
            own = tl.load(left + at[:, None] * WIDTH + place[None, :], mask=held[:, None], other=0.0)
            other = tl.load(right + plain[:, None] * WIDTH + place[None, :], mask=held[:, None], other=0.0)
        else:
            own = tl.load(left + plain[:, None] * WIDTH + place[None, :], mask=held[:, None], other=0.0)
            other = tl.load(right + at[:, None] * WIDTH + place[None, :], mask=held[:, None], other=0.0)
        if RAISED:
            own_scalars = scalars + plain[:, None] * HEADS + (place // (WIDTH // HEADS))[None, :]
            scale = tl.load(own_scalars, mask=held[:, None], other=0.0)
            other += scale * tl.load(vectors + kind * WIDTH + place)[None, :]
            result = tl.load(rows + plain[:, None] * WIDTH + place[None, :], mask=held[:, None], other=0.0)
            of_vectors += tl.sum(scale * result, 0)
        total += tl.dot(tl.trans(own), other, input_precision=PRECISION)
    tl.atomic_add(out + kind * WIDTH * WIDTH + place[:, None] * WIDTH + place[None, :], total, sem="relaxed")
    if RAISED:
        tl.atomic_add(out_vectors + kind * WIDTH + place, of_vectors, sem="relaxed")


def outer(chunks, left, right, source, relations, precision, gathered="left", raised=None):
    """For each relation the sum of left^T right over its rows, one of which is read through `source`.

    `raised` is (scalars, vectors, rows): right is raised by a vector of the relation times scalars, and sums of scalars times `rows`,
    the gradient of the vectors, are returned too."""
    width = left.shape[1]
    out = torch.zeros(relations, width, width, device=left.device)
    scalars, vectors, rows = raised or (None, None, None)
    heads = 1 if vectors is None else vectors.shape[1]
    out_vectors = None if raised is None else torch.zeros_like(vectors)
    _outer[(chunks.count,)](
        left, right, source, vectors, scalars, rows, out, out_vectors, *chunks.parts,
        WIDTH=width, HEADS=heads, ROWS=32, GATHERED=1 if gathered == "left" else 2, RAISED=raised is not None,
        PRECISION=precision, num_warps=4 if width < 128 else 8,
    )  # fmt: skip
    return out if raised is None else (out, out_vectors)


@triton.jit
def _dots(
    x, source, vectors, out, tile_kind, tile_begin, tile_end, WIDTH: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr
):
    tile = tl.program_id(0)
    kind = tl.load(tile_kind + tile).to(tl.int64)
    row = tl.load(tile_begin + tile) + tl.arange(0, ROWS)
    held = row < tl.load(tile_end + tile)
    place = tl.arange(0, WIDTH)
    at = tl.load(source + row, mask=held, other=0).to(tl.int64)
    own = tl.load(x + at[:, None] * WIDTH + place[None, :], mask=held[:, None], other=0.0)
    for head in tl.static_range(HEADS):
        vector = tl.load(vectors + (kind * HEADS + head) * WIDTH + place)
        tl.store(out + row.to(tl.int64) * HEADS + head, tl.sum(own * vector[None, :], 1), mask=held)


def dots(tiles, x, source, vectors):
    """Products of rows x[source] with vectors [relations, heads, width] of their relation, [rows, heads]."""
    out = torch.empty(len(source), vectors.shape[1], device=x.device)
    _dots[(tiles.count,)](
        x, source, vectors, out, *tiles.parts, WIDTH=x.shape[1], HEADS=vectors.shape[1], ROWS=TILE_ROWS, num_warps=4
    )
    return out


@triton.jit
def _dots_back(x, source, scalars, out, kinds, begins, ends, WIDTH: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr):
    chunk = tl.program_id(0)
    kind = tl.load(kinds + chunk).to(tl.int64)
    begin, end = tl.load(begins + chunk), tl.load(ends + chunk)
    place = tl.arange(0, WIDTH)
    for head in tl.static_range(HEADS):
        total = tl.zeros([WIDTH], tl.float32)
        for first in range(begin, end, ROWS):
            row = first + tl.arange(0, ROWS)
            held = row < end
            at = tl.load(source + row, mask=held, other=0).to(tl.int64)
            own = tl.load(x + at[:, None] * WIDTH + place[None, :], mask=held[:, None], other=0.0)
            scale = tl.load(scalars + row.to(tl.int64) * HEADS + head, mask=held, other=0.0)
            total += tl.sum(own * scale[:, None], 0)
        tl.atomic_add(out + (kind * HEADS + head) * WIDTH + place, total, sem="relaxed")


def dots_back(chunks, x, source, scalars, relations):
    """Gradients of `vectors` of `dots`."""
    out = torch.zeros(relations, scalars.shape[1], x.shape[1], device=x.device)
    _dots_back[(chunks.count,)](
        x, source, scalars, out, *chunks.parts, WIDTH=x.shape[1], HEADS=scalars.shape[1], ROWS=TILE_ROWS, num_warps=4
    )
    return out
