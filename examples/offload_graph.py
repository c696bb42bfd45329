"""GCN or GraphSAGE of PyG on a whole graph. The more neighbours a node has, the more time there is for its activations to leave.

    python examples/offload_graph.py --check
    python examples/offload_graph.py --model gcn --check
    python examples/offload_graph.py --nodes 2000000 --degree 100 --hidden 512 --layers 4 --host 64GB             # 80 GB of GPU memory
"""

import warnings

import torch
from running import flags, train
from torch_geometric.nn import GCNConv, SAGEConv

CLASSES = 16
KINDS = {"gcn": lambda *sizes: GCNConv(*sizes, cached=True), "sage": lambda *sizes: SAGEConv(*sizes, aggr="mean")}


class Net(torch.nn.Module):
    def __init__(self, kind, sizes):
        super().__init__()
        self.layers = torch.nn.ModuleList(KINDS[kind](*pair) for pair in zip(sizes, sizes[1:]))

    def forward(self, x, adjacency):
        for layer in self.layers[:-1]:
            x = torch.nn.functional.dropout(layer(x, adjacency).relu(), 0.5, self.training)
        return self.layers[-1](x, adjacency)


def random_graph(nodes, degree, device):
    """Adjacency as a sparse matrix, so that no layer makes a row for each edge."""
    warnings.filterwarnings("ignore", "Sparse")
    starts = torch.arange(nodes + 1, device=device) * degree
    neighbours = torch.randint(0, nodes, (nodes, degree), device=device).sort(dim=1).values.view(-1)
    return torch.sparse_csr_tensor(starts, neighbours, torch.ones(nodes * degree, device=device), (nodes, nodes))


def main(words=None):
    made = flags(__doc__, nodes=500, degree=50, features=64, hidden=128, layers=3)
    made.add_argument("--model", choices=KINDS, default="sage", help="default: sage")
    given = made.parse_args(words)
    torch.manual_seed(0)
    model = Net(given.model, [given.features, *[given.hidden] * (given.layers - 1), CLASSES]).to(given.device).train()
    adjacency = random_graph(given.nodes, given.degree, given.device)
    x = torch.randn(given.nodes, given.features, device=given.device)
    labels = torch.randint(0, CLASSES, (given.nodes,), device=given.device)
    train(given, model, lambda: torch.nn.functional.cross_entropy(model(x, adjacency), labels))


if __name__ == "__main__":
    main()
