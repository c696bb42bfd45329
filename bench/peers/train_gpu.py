"""PyG on a GPU, on the batches that `headwater bench train --export DIR` wrote.

`loader_ms` is the loop that PyG's users have: workers of a DataLoader collect rows of features out of host memory into memory they
share with the trainer, a copy brings them to the GPU, layers are PyG's own with layer trimming (`trim_to_layer`). `loop_ms` is what a
careful user could write instead: threads of the trainer collect into pinned memory. Batches are given, so drawing neighbours costs
nothing in either: where no sampler library (pyg-lib, torch-sparse) is installed, PyG cannot draw them at all. The table of features
has the shape's size and one number everywhere; what rows hold does not change how long they take.

`compute_ms` is the step alone, on batches that lie in GPU memory: forward, loss, backward, Adam; eager, and with torch.compile
where that works."""

import argparse
import json
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric
from torch_geometric.nn import GATConv, SAGEConv
from torch_geometric.utils import trim_to_layer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", help="what --export wrote for one shape")
parser.add_argument("--model", choices=["sage", "gat"], default="sage")
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--rounds", type=int, default=5, help="times each batch is trained on")
parser.add_argument("--threads", type=int, default=12, help="CPU threads, or workers, that collect rows")
parser.add_argument("--tf32", action="store_true", help="products in TF32")
parser.add_argument("--compute-only", action="store_true", help="without the table of features")
parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.backends.cuda.matmul.allow_tf32 = args.tf32
torch.backends.cudnn.allow_tf32 = args.tf32
about = json.load(open(f"{args.folder}/batches.json"))
width, classes = about["width"], about["classes"]


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        hidden = [args.hidden] * (len(about["fanout"]) - 1)
        widths = list(zip([width] + hidden, hidden + [classes]))
        self.layers = torch.nn.ModuleList()
        for at, (inputs, outputs) in enumerate(widths):
            is_last = at + 1 == len(widths)
            if args.model == "sage":
                self.layers.append(SAGEConv(inputs, outputs, "mean"))
            elif is_last:
                self.layers.append(GATConv(inputs, outputs, 1, concat=False))
            else:
                self.layers.append(GATConv(inputs, outputs // args.heads, args.heads))

    def forward(self, x, edge_index, nodes_per_hop, edges_per_hop):
        for at, layer in enumerate(self.layers):
            x, edge_index, _ = trim_to_layer(at, nodes_per_hop, edges_per_hop, x, edge_index)
            x = layer(x, edge_index)
            if at + 1 < len(self.layers):
                x = x.relu()
        return x


class Batch:
    """One batch, its edges and labels on the GPU."""

    def __init__(self, at, hops):
        read = lambda name: np.load(f"{args.folder}/{at}.{name}.npy")
        self.nodes = torch.from_numpy(read("nodes").astype(np.int64))
        row, col = (torch.from_numpy(read(name).astype(np.int64)) for name in ("row", "col"))
        self.edges = torch.stack([row, col]).pin_memory()
        self.labels = torch.from_numpy(read("labels")).cuda()
        self.nodes_per_hop, self.edges_per_hop = hops["nodes"], hops["edges"]


class Rows(torch.utils.data.Dataset):
    """The features of batches, as a worker of PyG's loaders collects them."""

    def __init__(self, table, nodes, rounds):
        self.table, self.nodes, self.rounds = table, nodes, rounds

    def __len__(self):
        return len(self.nodes) * self.rounds

    def __getitem__(self, at):
        return torch.index_select(self.table, 0, self.nodes[at % len(self.nodes)])


def trained(network):
    """A step on a batch: its features and edges are on the GPU."""
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003)

    def step(batch, x, edges):
        optimiser.zero_grad(set_to_none=True)
        out = network(x, edges, batch.nodes_per_hop, batch.edges_per_hop)
        loss = F.cross_entropy(out[: len(batch.labels)], batch.labels)
        loss.backward()
        optimiser.step()
        return loss

    return step


def timed(work, batches):
    """Milliseconds of one batch, the median of all rounds but the first."""
    times = []
    for round in range(args.rounds + 1):
        for batch in batches:
            torch.cuda.synchronize()
            begun = time.perf_counter()
            work(batch)
            torch.cuda.synchronize()
            if round:
                times.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(times), min(times), max(times)


def compute(batches, compiled):
    torch.manual_seed(1)
    network = Network().cuda()
    if compiled:
        network = torch.compile(network, dynamic=True)
    step = trained(network)
    x = {id(batch): torch.rand(len(batch.nodes), width, device="cuda") for batch in batches}
    edges = {id(batch): batch.edges.cuda() for batch in batches}
    return timed(lambda batch: step(batch, x[id(batch)], edges[id(batch)]), batches)


def loader(batches, table):
    """Milliseconds of one batch after the other out of a DataLoader; one figure, since batches overlap."""
    rounds = max(args.rounds, 1) * max(1, 4 * args.threads // len(batches))
    rows = Rows(table, [batch.nodes for batch in batches], rounds)
    step = trained(Network().cuda())
    warm, begun = 2 * args.threads, None
    for at, x in enumerate(torch.utils.data.DataLoader(rows, batch_size=None, num_workers=args.threads)):
        if at == warm:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        batch = batches[at % len(batches)]
        step(batch, x.cuda(), batch.edges.cuda())
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begun) / (len(rows) - warm)


def loop(batches, table):
    staging = torch.empty(max(len(batch.nodes) for batch in batches), width).pin_memory()
    step = trained(Network().cuda())

    def work(batch):
        rows = staging[: len(batch.nodes)]
        torch.index_select(table, 0, batch.nodes, out=rows)
        step(batch, rows.cuda(non_blocking=True), batch.edges.cuda(non_blocking=True))

    return timed(work, batches)


batches = [Batch(at, hops) for at, hops in enumerate(about["batches"])]
found = {
    "system": f"PyG {torch_geometric.__version__}, torch {torch.__version__}",
    "gpu": torch.cuda.get_device_name(),
    "model": args.model,
    "tf32": args.tf32,
    "batches": len(batches),
    "nodes": statistics.mean(len(batch.nodes) for batch in batches),
    "compute_ms": compute(batches, False),
}
if not args.no_compile:
    try:
        found["compiled_ms"] = compute(batches, True)
    except Exception as why:  # What torch.compile cannot do is said, and the rest is measured.
        print(f"torch.compile: {type(why).__name__}: {str(why).splitlines()[0]}", file=sys.stderr)
        found["compiled_ms"] = None
if not args.compute_only:
    table = torch.empty(about["nodes"], width)
    table.fill_(0.5)
    found["loop_ms"] = loop(batches, table)
    found["loader_ms"] = loader(batches, table)
print(json.dumps(found))
