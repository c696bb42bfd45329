"""Full-graph GCN or GAT by DGL or PyG, on arrays that Headwater exported: the seconds of a training step without evaluation.

The networks and their settings are the published ones, as `headwater train DATASET --model gcn|gat` has them: GCN 16 hidden, dropout
0.5, Adam 0.01, decay 5e-4 on the first layer; GAT 8 heads of 8, dropout 0.6, Adam 0.005, decay 5e-4 (PubMed: 8 output heads, 0.01
and 1e-3). Rows of features are divided by their sums."""

import argparse
import json
import resource
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("arrays", help="folder written by `headwater export --npy`")
parser.add_argument("--system", choices=["dgl", "pyg"], required=True)
parser.add_argument("--model", choices=["gcn", "gat"], required=True)
parser.add_argument("--output-heads", type=int, default=1, help="8 for PubMed")
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()
torch.set_num_threads(args.threads)

read = lambda name: torch.from_numpy(np.load(f"{args.arrays}/{name}.npy"))
x, y, train = read("feat").float(), read("label").long(), read("train_idx").long()
x = x / x.sum(1, keepdim=True).clamp(min=1e-12)
indptr, indices = read("indptr"), read("indices").long()
nodes, classes = len(indptr) - 1, int(y.max()) + 1
targets = torch.repeat_interleave(torch.arange(nodes), indptr.diff())


def of_dgl():
    import dgl
    from dgl.nn.pytorch import GATConv, GraphConv

    graph = dgl.add_self_loop(dgl.graph((indices, targets), num_nodes=nodes))
    if args.model == "gcn":
        layers = [GraphConv(x.shape[1], 16), GraphConv(16, classes)]
        apply = lambda layer, x: layer(graph, x)
    else:
        drop = {"feat_drop": 0.0, "attn_drop": 0.6}
        layers = [GATConv(x.shape[1], 8, 8, **drop), GATConv(64, classes, args.output_heads, **drop)]
        apply = lambda layer, x: layer(graph, x).flatten(1) if layer is layers[0] else layer(graph, x).mean(1)
    return layers, apply, f"DGL {dgl.__version__}"


def of_pyg():
    import torch_geometric
    from torch_geometric.nn import GATConv, GCNConv

    edges = torch.stack([indices, targets])
    if args.model == "gcn":
        layers = [GCNConv(x.shape[1], 16, cached=True), GCNConv(16, classes, cached=True)]
    else:
        layers = [GATConv(x.shape[1], 8, heads=8, dropout=0.6),
                  GATConv(64, classes, heads=args.output_heads, concat=False, dropout=0.6)]
    return layers, lambda layer, x: layer(x, edges), f"PyG {torch_geometric.__version__}"


torch.manual_seed(1)
(first, second), apply, name = of_dgl() if args.system == "dgl" else of_pyg()
dropout, between = (0.5, F.relu) if args.model == "gcn" else (0.6, F.elu)
if args.model == "gcn":
    groups = [{"params": first.parameters(), "weight_decay": 5e-4}, {"params": second.parameters(), "weight_decay": 0.0}]
    optimiser = torch.optim.Adam(groups, lr=0.01)
else:
    rate, decay = (0.01, 1e-3) if args.output_heads > 1 else (0.005, 5e-4)
    optimiser = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=rate, weight_decay=decay)

seconds = []
for _ in range(args.epochs):
    begun = time.perf_counter()
    optimiser.zero_grad()
    hidden = between(apply(first, F.dropout(x, dropout)))
    F.cross_entropy(apply(second, F.dropout(hidden, dropout))[train], y[train]).backward()
    optimiser.step()
    seconds.append(time.perf_counter() - begun)

print(json.dumps({
    "system": f"{name}, torch {torch.__version__}",
    "epoch_seconds": statistics.median(seconds[5:]),
    "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
