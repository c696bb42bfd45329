"""Layers as users of PyG write them, which know nothing of Headwater."""

import torch
import torch.nn.functional as F
from torch.nn import Linear, Parameter
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import add_self_loops, degree, scatter, softmax

SCALE = 2.0


class Gcn(MessagePassing):
    """The layer of PyG's tutorial. What it does around `propagate` is no matter of edges' messages."""

    def __init__(self, d_in, d_out):
        super().__init__(aggr="add")
        self.lin = Linear(d_in, d_out, bias=False)
        self.bias = Parameter(torch.randn(d_out))

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        x = self.lin(x)
        row, col = edge_index
        deg = degree(col, x.size(0), dtype=x.dtype)
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        return self.propagate(edge_index, x=x, norm=norm) + self.bias

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class Sage(MessagePassing):
    def __init__(self, d_in, d_out, aggr="mean"):
        super().__init__(aggr=aggr)
        self.lin_l, self.lin_r = Linear(d_in, d_out), Linear(d_in, d_out, bias=False)

    def forward(self, x, edge_index, size=None):
        if isinstance(x, torch.Tensor):
            x = (x, x)
        out = self.propagate(edge_index, x=x, size=size)
        out = self.lin_l(out)
        if x[1] is not None:
            out = out + self.lin_r(x[1])
        return out


class Gat(MessagePassing):
    def __init__(self, d_in, d_out, heads, slope=0.2, concat=True):
        super().__init__(aggr="add", node_dim=0)
        self.heads, self.d_out, self.slope, self.concat = heads, d_out, slope, concat
        self.lin = Linear(d_in, heads * d_out, bias=False)
        self.att_src, self.att_dst = (Parameter(torch.randn(1, heads, d_out)) for _ in range(2))
        self.bias = Parameter(torch.randn(heads * d_out if concat else d_out))
        self._alpha = None

    def forward(self, x, edge_index):
        H, C = self.heads, self.d_out
        x = self.lin(x).view(-1, H, C)
        alpha_src = (x * self.att_src).sum(dim=-1)
        alpha_dst = (x * self.att_dst).sum(-1)
        out = self.propagate(edge_index, x=x, alpha=(alpha_src, alpha_dst), size=None)
        assert self._alpha is not None
        self._alpha = None
        out = out.view(-1, H * C) if self.concat else out.mean(dim=1)
        out += self.bias
        return out

    def message(self, x_j, alpha_i, alpha_j, index, ptr, size_i):
        alpha = F.leaky_relu(alpha_i + alpha_j, self.slope)
        alpha = softmax(alpha, index, ptr, size_i)
        self._alpha = alpha
        return x_j * alpha.unsqueeze(-1)


class Weighted(MessagePassing):
    """Edge weights, or none, and features of edges."""

    def __init__(self, d_in, d_out, d_edge):
        super().__init__(aggr="sum")
        self.lin, self.of_edges = Linear(d_in, d_out), Linear(d_edge, d_out)

    def forward(self, x, edge_index, edge_attr, edge_weight=None):
        x = self.lin(x)
        return self.propagate(edge_index, x=x, edge_attr=edge_attr, edge_weight=edge_weight)

    def message(self, x_j, edge_attr, edge_weight):
        m = F.relu(x_j + self.of_edges(edge_attr))
        return m if edge_weight is None else edge_weight.unsqueeze(-1) * m


class EdgeConv(MessagePassing):
    """A network on both ends of every edge."""

    def __init__(self, d_in, d_out, aggr="max"):
        super().__init__(aggr=aggr)
        self.mlp = torch.nn.Sequential(Linear(2 * d_in, 7), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.5), Linear(7, d_out))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=-1))


class Typed(MessagePassing):
    """Matrices and vectors of edge types."""

    def __init__(self, d_in, d_out, types):
        super().__init__(aggr="mean")
        self.weight = Parameter(torch.randn(types, d_in, d_out))
        self.shift = torch.nn.Embedding(types, d_out)
        self.root = Parameter(torch.randn(d_in, d_out))

    def forward(self, x, edge_index, edge_type):
        return self.propagate(edge_index, x=x, edge_type=edge_type) + x @ self.root

    def message(self, x_j, edge_type):
        return torch.bmm(x_j.unsqueeze(1), self.weight[edge_type]).squeeze(1) + self.shift(edge_type)


class Own(MessagePassing):
    """All four functions, a helper, a constant of the file, parts and powers."""

    def __init__(self, d_in, d_out):
        super().__init__(aggr=None)
        self.lins = torch.nn.ModuleList([Linear(d_in, d_out) for _ in range(2)])
        self.gate = Parameter(torch.randn(d_out))

    def forward(self, x, edge_index):
        hs = [lin(x) for lin in self.lins]
        h = 0
        for one in hs:
            h = h + one ** 2
        return self.propagate(edge_index, x=h, raw=x)

    def message(self, x_i, x_j):
        return scaled(torch.sigmoid(x_i * self.gate) * x_j)

    def aggregate(self, inputs, index, dim_size):
        total = scatter(inputs, index, dim=self.node_dim, dim_size=dim_size, reduce="sum")
        return torch.cat([total, scatter(inputs, index, 0, dim_size, "min")], dim=-1)

    def update(self, inputs, raw):
        first, second = inputs.chunk(2, dim=-1)
        return first.abs().sqrt() + second[:, :1] - raw[..., 1:2] / 3


def scaled(x):
    return SCALE * x


class Updater(MessagePassing):
    """`edge_updater` in front of `propagate`."""

    def __init__(self, d_in, d_out):
        super().__init__(aggr=["mean", "max"])
        self.lin, self.att = Linear(d_in, d_out), Parameter(torch.randn(1, d_out))

    def forward(self, x, edge_index):
        x = self.lin(x)
        alpha = self.edge_updater(edge_index, x=x)
        return self.propagate(edge_index, x=x, alpha=alpha)

    def edge_update(self, x_i, x_j, index, size_i):
        return softmax((torch.tanh(x_i + x_j) * self.att).sum(-1, keepdim=True), index, num_nodes=size_i)

    def message(self, x_j, alpha):
        return alpha * x_j


class Twice(MessagePassing):
    """Two rounds in one layer."""

    def forward(self, x, edge_index):
        for _ in range(2):
            x = self.propagate(edge_index, x=x)
        return x


class Strange(MessagePassing):
    """Three things that no text says."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        order = torch.cumsum(x_j, dim=0)
        sign = torch.sign(x_j)
        return x_j + 0 * order.flip(0) + sign
