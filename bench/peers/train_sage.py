"""One epoch and more of GraphSAGE on sampled batches, by DGL, by DGL's GraphBolt or by PyG, on arrays that Headwater exported.

Two layers, mean, cross-entropy, Adam; the same job as `headwater train DATASET --model sage --dropout 0 --decay 0`. PyG draws with
its own NeighborLoader where a sampler library (pyg-lib or torch-sparse) is installed. Where none is, it is given the blocks that
DGL's sampler draws, which are also its trimmed form: layers compute only the rows that are needed."""

import json
import resource
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F

import common

parser = common.arguments(__doc__)
parser.add_argument("--system", choices=["dgl", "graphbolt", "pyg"], required=True)
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--rate", type=float, default=0.003)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
torch.set_num_threads(args.threads)

features = torch.from_numpy(common.read(args, "feat"))
labels = torch.from_numpy(common.read(args, "label")).long()
train = torch.from_numpy(common.read(args, "train_idx").astype(np.int64))
indptr, indices = torch.from_numpy(common.read(args, "indptr")), torch.from_numpy(common.read(args, "indices"))
classes = int(labels.max()) + 1
fanouts = common.fanouts(args)
widths = [features.shape[1]] + [args.hidden] * (len(fanouts) - 1) + [classes]


class Network(torch.nn.Module):
    """Layers of a library: `make(in, out)` gives one, `run(layer, block, x)` applies it."""

    def __init__(self, make, run):
        super().__init__()
        self.layers = torch.nn.ModuleList(make(*pair) for pair in zip(widths, widths[1:]))
        self.run = run

    def forward(self, blocks, x):
        for at, (layer, block) in enumerate(zip(self.layers, blocks)):
            x = self.run(layer, block, x)
            if at + 1 < len(self.layers):
                x = x.relu()
        return x


def dgl_batches(seeds):
    """Nodes that are read, blocks, seeds."""
    import dgl
    from dgl.dataloading import DataLoader, NeighborSampler

    graph = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))), num_nodes=len(indptr) - 1)
    # DGL takes fan-outs in the order of layers, the seeds' own last.
    loader = DataLoader(graph.formats("csc"), seeds, NeighborSampler(fanouts[::-1]), batch_size=args.batch, device="cpu")
    return ((nodes, blocks, seeds) for nodes, seeds, blocks in loader)


def graphbolt_batches(seeds):
    import dgl.graphbolt as gb

    items = gb.ItemSampler(gb.ItemSet(seeds, names="seed_nodes"), batch_size=args.batch, shuffle=False)
    pipe = items.sample_neighbor(gb.fused_csc_sampling_graph(indptr, indices), fanouts[::-1])
    return ((batch.input_nodes, batch.blocks, batch.seed_nodes) for batch in gb.DataLoader(pipe))


def dgl_network():
    import dgl
    from dgl.nn.pytorch import SAGEConv

    make = lambda inputs, outputs: SAGEConv(inputs, outputs, "mean")
    return Network(make, lambda layer, block, x: layer(block, x)), f"DGL {dgl.__version__}"


def pyg_network():
    import torch_geometric
    from torch_geometric.nn import SAGEConv

    def run(layer, block, x):
        sources, targets = block.edges()
        written = x[: block.num_dst_nodes()]
        return layer((x, written), torch.stack([sources, targets]), size=(len(x), len(written)))

    return Network(SAGEConv, run), f"PyG {torch_geometric.__version__} on DGL's blocks"


def pyg_loader():
    """Batches and a network of PyG alone, trimmed layer by layer."""
    import torch_geometric
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import SAGEConv
    from torch_geometric.utils import trim_to_layer

    nodes = len(indptr) - 1
    targets = torch.repeat_interleave(torch.arange(nodes), indptr.diff())
    data = Data(edge_index=torch.stack([indices.long(), targets]), num_nodes=nodes)

    def batches(seeds):
        loader = NeighborLoader(data, num_neighbors=fanouts, input_nodes=seeds, batch_size=args.batch, is_sorted=True)
        return ((b.n_id, b, b.n_id[: b.batch_size]) for b in loader)

    class Trimmed(Network):
        def forward(self, batch, x):
            edges = batch.edge_index
            for at, layer in enumerate(self.layers):
                x, edges, _ = trim_to_layer(at, batch.num_sampled_nodes, batch.num_sampled_edges, x, edges)
                x = layer(x, edges)
                if at + 1 < len(self.layers):
                    x = x.relu()
            return x[: batch.batch_size]

    return batches, lambda: (Trimmed(SAGEConv, None), f"PyG {torch_geometric.__version__} NeighborLoader, trimmed")


def has_pyg_sampler():
    from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

    return WITH_PYG_LIB or WITH_TORCH_SPARSE


batches_of = {"dgl": dgl_batches, "graphbolt": graphbolt_batches, "pyg": dgl_batches}[args.system]
make_network = pyg_network if args.system == "pyg" else dgl_network
if args.system == "pyg" and has_pyg_sampler():
    batches_of, make_network = pyg_loader()

torch.manual_seed(1)
network, name = make_network()
optimiser = torch.optim.Adam(network.parameters(), lr=args.rate)
epochs = []
for epoch in range(args.epochs):
    order = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch))]
    spent = {"sample": 0.0, "gather": 0.0, "compute": 0.0}
    begun = last = time.perf_counter()
    for nodes, blocks, seeds in batches_of(order):
        sampled = time.perf_counter()
        x, y = torch.index_select(features, 0, nodes), labels[seeds]
        gathered = time.perf_counter()
        loss = F.cross_entropy(network(blocks, x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        done = time.perf_counter()
        for part, seconds in zip(spent, (sampled - last, gathered - sampled, done - gathered)):
            spent[part] += seconds
        last = done
    epochs.append({"epoch": time.perf_counter() - begun, **spent})

median = lambda part: statistics.median(epoch[part] for epoch in epochs)
print(json.dumps({
    "system": f"{name}, torch {torch.__version__}",
    "epoch_seconds": median("epoch"),
    "sample_seconds": median("sample"),
    "gather_seconds": median("gather"),
    "compute_seconds": median("compute"),
    "loss": float(loss),
    "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
