"""What an expert builds relational layers of in PyTorch without kernels of his own: sums over edges, scores of edges, softmax over
the edges of a node, and products whose matrix depends on the relation or type of a row. All index arrays are made once.

Ways to sum rows over edges (`how`):
  cusparse  SpMM and SDDMM of cuSPARSE, through torch's CSR tensors
  bags      the kernel of embedding_bag, which walks lists of rows with weights and uses no atomics
  compiled  gather, scale and index_add as one kernel with atomics, which torch.compile makes
Ways to multiply rows (`layout`):
  blocks    rows of a relation padded to multiples of 128, one bmm over all blocks; each block gets a copy of its matrix
  buckets   relations of about the same size side by side, a bmm for each bucket; one copy of each matrix, and no partial sums
  grouped   torch._grouped_mm over rows without padding
"""

import warnings
from functools import cache, cached_property

import torch

from relational_graph import offsets_of

warnings.filterwarnings("ignore", message=".*[Ss]parse CSR tensor support is in beta.*")

BLOCK_ROWS = 128
# Rows that padding may add to a bucket, as a share, and rows below which a bucket takes more relations whatever that adds.
BUCKET_WASTE, BUCKET_ROWS = 0.1, 2048


@cache
def compiled(function):
    """The function by torch.compile for any sizes. Compiled when it is first called."""
    return torch.compile(function, dynamic=True)


def weighted_sums(x, columns, weights, rows, count):
    """Sums of rows of x, [count, heads, each]; weights are [heads, edges]."""
    picked = x.index_select(0, columns) * weights.t().unsqueeze(2)
    return picked.new_zeros(count, *x.shape[1:]).index_add(0, rows, picked)


def scores(q, rows, k, columns):
    """Products of a row of q and one of k for each edge and head, [heads, edges]."""
    return (q.index_select(0, rows) * k.index_select(0, columns)).sum(2).t()


class Lists:
    """For each row, the columns that it sums over: CSR with 32-bit indices."""

    def __init__(self, rows, columns, row_count, column_count):
        self.shape = row_count, column_count
        self.columns = columns.int()
        self.offsets = offsets_of(rows, row_count).int()

    def sums(self, weights, x, how):
        if how == "cusparse":
            return torch.sparse.mm(self.matrix(weights), x)
        return torch.ops.aten._embedding_bag_forward_only(x, self.columns, self.offsets, False, 0, False, weights, True)[0]

    def scores(self, q, k):
        zeros = torch.zeros(len(self.columns), device=q.device)
        return torch.sparse.sampled_addmm(self.matrix(zeros), q, k.t()).values()

    def matrix(self, weights):
        return torch.sparse_csr_tensor(self.offsets, self.columns, weights, self.shape, check_invariants=False)


class Adjacency:
    """Rows that sum over columns, in both directions. Weights of edges are in the order of rows, so that only the way back has to
    bring them into another order; weights that never change are brought there once (`fix`)."""

    def __init__(self, rows, columns, row_count, column_count):
        self.lists = Lists(rows, columns, row_count, column_count)
        self.order = columns.argsort(stable=True)
        self.back = Lists(columns[self.order], rows[self.order], column_count, row_count)
        self.fixed = None

    def fix(self, weights):
        self.fixed = weights, weights[self.order].contiguous()
        return self

    def sums(self, x, how):
        return self.lists.sums(self.fixed[0], x, how)

    def sums_back(self, x, how):
        return self.back.sums(self.fixed[1], x, how)


class SumOverEdges(torch.autograd.Function):
    """Rows of x summed by weights, both with gradients."""

    @staticmethod
    def forward(ctx, adjacency, weights, x, how):
        ctx.adjacency, ctx.how = adjacency, how
        ctx.save_for_backward(weights, x)
        return adjacency.lists.sums(weights, x, how)

    @staticmethod
    def backward(ctx, gradient):
        weights, x = ctx.saved_tensors
        gradient = gradient.contiguous()
        adjacency = ctx.adjacency
        d_x = adjacency.back.sums(weights.index_select(0, adjacency.order), gradient, ctx.how)
        return None, adjacency.lists.scores(gradient, x), d_x, None


class ScoresOfEdges(torch.autograd.Function):
    """Products of a row of q and a row of k for each edge."""

    @staticmethod
    def forward(ctx, adjacency, q, k, how):
        ctx.adjacency, ctx.how = adjacency, how
        ctx.save_for_backward(q, k)
        return adjacency.lists.scores(q, k)

    @staticmethod
    def backward(ctx, gradient):
        q, k = ctx.saved_tensors
        adjacency, gradient = ctx.adjacency, gradient.contiguous()
        d_q = adjacency.lists.sums(gradient, k, ctx.how)
        return None, d_q, adjacency.back.sums(gradient.index_select(0, adjacency.order), q, ctx.how), None


def softmax(logits, rows, count):
    """Softmax over edges of the same row. Logits are [heads, edges], sorted by rows; `rows` says which row an edge has."""
    heads = logits.shape[0]
    rows = rows.expand(heads, -1)
    most = torch.full((heads, count), -1e30, device=logits.device).scatter_reduce(1, rows, logits.detach(), "amax")
    raised = (logits - most.gather(1, rows)).exp()
    totals = torch.zeros(heads, count, device=logits.device).scatter_add(1, rows, raised)
    return raised / totals.clamp(min=1e-20).gather(1, rows)


class EdgeSums:
    """Attention over edges, `heads` of them, between rows (of destinations) and columns (of pairs or nodes).

    Weights of edges are [heads, edges], so a head's are in the order of the lists. To cuSPARSE heads are further rows: row h N + n
    sums over columns p heads + h, whose rows of x are a head's share."""

    def __init__(self, rows, columns, row_count, column_count, heads, how):
        self.rows, self.columns, self.count, self.heads, self.how = rows, columns, row_count, heads, how
        if how != "compiled":
            head = torch.arange(heads, device=rows.device)[:, None]
            wide_rows, wide_columns = (head * row_count + rows).view(-1), (columns * heads + head).view(-1)
            self.adjacency = Adjacency(wide_rows, wide_columns, heads * row_count, heads * column_count)

    def sums(self, weights, x):
        each = x.shape[1] // self.heads
        if self.how == "compiled":
            split = x.view(-1, self.heads, each)
            return compiled(weighted_sums)(split, self.columns, weights, self.rows, self.count).flatten(1)
        made = SumOverEdges.apply(self.adjacency, weights.reshape(-1), x.view(-1, each), self.how)
        return made.view(self.heads, self.count, each).transpose(0, 1).reshape(self.count, -1)

    def scores(self, q, k):
        each = q.shape[1] // self.heads
        if self.how == "compiled":
            return compiled(scores)(q.view(-1, self.heads, each), self.rows, k.view(-1, self.heads, each), self.columns)
        by_head = q.view(-1, self.heads, each).transpose(0, 1).reshape(-1, each)
        return ScoresOfEdges.apply(self.adjacency, by_head, k.view(-1, each), self.how).view(self.heads, -1)


class Rows:
    """Rows of `pairs`, laid out so that products of all relations are a few calls. `at` says where each pair's row is; rows between
    are padding, whose products nobody reads. `source` is the node of every row; padding has various ones, so that it makes no node
    a hub."""

    def __init__(self, pairs, nodes, layout):
        self.layout, self.relations = layout, pairs.relations
        device = pairs.node.device
        sizes = pairs.offsets.diff()
        begins = self._blocks(sizes) if layout == "blocks" else self._buckets(sizes) if layout == "buckets" else pairs.offsets[:-1]
        if layout == "grouped":
            self.count, self.ends = len(pairs), pairs.offsets[1:].int()
        place = torch.arange(len(pairs), device=device) - pairs.offsets[pairs.relation]
        self.at = begins[pairs.relation] + place
        self.source = torch.arange(self.count, device=device) % nodes
        self.source[self.at] = pairs.node
        self._pairs, self._nodes = pairs, nodes

    def _blocks(self, sizes):
        blocks = (sizes + BLOCK_ROWS - 1) // BLOCK_ROWS
        self.count = int(blocks.sum()) * BLOCK_ROWS
        self.relation_of_block = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), blocks)
        return (blocks.cumsum(0) - blocks) * BLOCK_ROWS

    def _buckets(self, sizes):
        """Buckets of relations by falling size: (first row, relations, rows a relation)."""
        self.buckets, begins, row = [], torch.zeros_like(sizes), 0
        members, rows = [], 0
        by_size = sorted(enumerate(sizes.tolist()), key=lambda pair: -pair[1])
        for at, (relation, size) in enumerate(by_size):
            members.append(relation)
            rows += size
            height = -(-by_size[at - len(members) + 1][1] // 16) * 16
            if at + 1 < len(by_size):
                following = by_size[at + 1][1]
                padded = height * (len(members) + 1)
                if padded <= max((rows + following) * (1 + BUCKET_WASTE), BUCKET_ROWS):
                    continue
            held = torch.tensor(members, device=sizes.device)
            begins[held] = row + height * torch.arange(len(members), device=sizes.device)
            self.buckets.append((row, held, height))
            row += height * len(members)
            members, rows = [], 0
        self.count = row
        return begins

    @cached_property
    def to_nodes(self):
        """Nodes that sum over the rows of their pairs."""
        order = self._pairs.node.argsort(stable=True)
        lists = Lists(self._pairs.node[order], self.at[order], self._nodes, self.count)
        return lists, torch.ones(len(order), device=order.device)

    def sum_to_nodes(self, rows, how):
        if how == "compiled":
            return torch.zeros(self._nodes, rows.shape[1], device=rows.device).index_add_(0, self.source, rows)
        lists, ones = self.to_nodes
        return lists.sums(ones, rows, how)

    def times(self, rows, matrices, added=None):
        """Each row by the matrix of its relation. Where `added` is given, that grows by it in place."""
        width = matrices.shape[2]
        if self.layout == "grouped":
            matrices = _whole(_whole(matrices).transpose(1, 2)).transpose(1, 2).contiguous()
            made = torch._grouped_mm(_whole(rows), matrices, offs=self.ends)[:, :width]
            return made if added is None else added.add_(made)
        out = torch.empty(self.count, width, device=rows.device) if added is None else added
        groups = [(0, self.relation_of_block, BLOCK_ROWS)] if self.layout == "blocks" else self.buckets
        for first, relations, height in groups:
            many = len(relations)
            part = slice(first, first + many * height)
            own, target = rows[part].view(many, height, -1), out[part].view(many, height, width)
            if added is None:
                torch.bmm(own, matrices.index_select(0, relations), out=target)
            else:
                target.baddbmm_(own, matrices.index_select(0, relations))
        return out

    def outer(self, left, right):
        """For each relation, the sum of left^T right over its rows: gradients of matrices."""
        shape = self.relations, left.shape[1], right.shape[1]
        if self.layout == "grouped":
            return torch._grouped_mm(left.t(), _whole(right), offs=self.ends)[..., : right.shape[1]]
        made = torch.zeros(shape, device=left.device)
        if self.layout == "blocks":
            parts = [tensor.view(-1, BLOCK_ROWS, tensor.shape[1]) for tensor in (left, right)]
            return made.index_add_(0, self.relation_of_block, torch.bmm(parts[0].transpose(1, 2), parts[1]))
        for first, relations, height in self.buckets:
            part = slice(first, first + len(relations) * height)
            parts = [tensor[part].view(len(relations), height, -1) for tensor in (left, right)]
            made.index_copy_(0, relations, torch.bmm(parts[0].transpose(1, 2), parts[1]))
        return made


def _whole(tensor):
    """With zeros behind rows, so that they have multiples of 16 bytes, which torch._grouped_mm asks for."""
    lacking = -tensor.shape[-1] % 4
    return torch.nn.functional.pad(tensor, (0, lacking)) if lacking else tensor


class TypedProducts(torch.autograd.Function):
    """Rows of x that pairs read, by several matrices a relation: a tensor for each. Where `vectors` ([relations, heads, each]) are
    given, products of the first result with them follow, [rows, heads]. Padding has to have no gradient."""

    @staticmethod
    def forward(ctx, rows, how, x, vectors, *matrices):
        picked = x.index_select(0, rows.source)
        made = [rows.times(picked, own) for own in matrices]
        ctx.rows, ctx.how, ctx.count = rows, how, len(matrices)
        if vectors is None:
            ctx.save_for_backward(picked, *matrices)
            return tuple(made)
        spread = spread_heads(vectors)
        ctx.save_for_backward(picked, *matrices, made[0], spread)
        return *made, rows.times(made[0], spread)

    @staticmethod
    def backward(ctx, *gradients):
        rows, count = ctx.rows, ctx.count
        picked, *saved = ctx.saved_tensors
        matrices, gradients, d_vectors = saved[:count], [gradient.contiguous() for gradient in gradients], None
        if len(gradients) > count:
            first, spread = saved[count:]
            d_spread = rows.outer(first, gradients[count])
            d_vectors = gathered_heads(d_spread)
            # The caller made this gradient for nobody else.
            gradients[0] = rows.times(gradients[count], spread.transpose(1, 2).contiguous(), gradients[0])
        d_picked, d_matrices = None, []
        for own, gradient in zip(matrices, gradients):
            d_picked = rows.times(gradient, own.transpose(1, 2), d_picked)
            d_matrices.append(rows.outer(picked, gradient))
        d_x = rows.sum_to_nodes(d_picked, ctx.how)
        return None, None, d_x, d_vectors, *d_matrices


def spread_heads(vectors):
    """[relations, heads, each] as matrices [relations, heads each, heads] whose column h has zeros but for head h's elements."""
    relations, heads, each = vectors.shape
    spread = vectors.new_zeros(relations, heads, each, heads)
    spread.diagonal(dim1=1, dim2=3).copy_(vectors.transpose(1, 2))
    return spread.view(relations, heads * each, heads)


def gathered_heads(spread):
    """What `spread_heads` takes, out of what it makes."""
    relations, wide, heads = spread.shape
    return spread.view(relations, heads, wide // heads, heads).diagonal(dim1=1, dim2=3).transpose(1, 2)


class ByType(torch.autograd.Function):
    """Rows of nodes by the matrix of their type: types are ranges of rows, and each product goes where it belongs."""

    @staticmethod
    def forward(ctx, offsets, x, matrices):
        ctx.offsets = offsets
        ctx.save_for_backward(x, matrices)
        return _by_type(offsets, x, matrices)

    @staticmethod
    def backward(ctx, gradient):
        x, matrices = ctx.saved_tensors
        gradient = gradient.contiguous()
        d_matrices = torch.empty_like(matrices)
        for at, (begin, end) in enumerate(zip(ctx.offsets, ctx.offsets[1:])):
            torch.mm(x[begin:end].t(), gradient[begin:end], out=d_matrices[at])
        return None, _by_type(ctx.offsets, gradient, matrices.transpose(1, 2)), d_matrices


def _by_type(offsets, x, matrices):
    out = torch.empty(len(x), matrices.shape[2], device=x.device)
    for at, (begin, end) in enumerate(zip(offsets, offsets[1:])):
        torch.mm(x[begin:end], matrices[at], out=out[begin:end])
    return out
