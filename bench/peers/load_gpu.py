"""Loaders for a GPU, in one job: Headwater's and PyG's own, on the graph that `headwater bench train --export DIR --export-graph` wrote.

    headwater bench train --like papers100m --model sage --features tiered --export DIR --export-graph
    python3 bench/peers/load_gpu.py DIR/papers100m --features tiered --share 0.1 --peer-batches 0
    python3 bench/peers/load_gpu.py DIR/papers100m --batches 0

Both get the graph and the features from Headwater's two stores, and the same seeds. PyG's loader forks workers that draw and
collect, and its batches are copied to the GPU; where no sampler library is installed it draws with Headwater's operators
(`headwater.pyg.install()`), which are faster than those of pyg-lib. Headwater's draws and gathers on the GPU. `load_ms` is a batch
that lies in GPU memory, `train_ms` a batch that a GraphSAGE of PyG's was trained on too. The table of features has one number
everywhere; what rows hold does not change how long they take."""

import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric

import headwater.pyg
from trimmed import Sage

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", help="what --export-graph wrote for one shape")
parser.add_argument("--features", default="tiered", help="where Headwater has the features")
parser.add_argument("--share", type=float, default=0.1, help="of them in GPU memory, when tiered")
parser.add_argument("--batch", type=int, default=1024)
parser.add_argument("--batches", type=int, default=200, help="that are timed, of Headwater's; 0 leaves it out")
parser.add_argument("--peer-batches", type=int, default=24, help="that are timed, of PyG's; 0 leaves PyG out")
parser.add_argument("--workers", type=int, default=12, help="processes of PyG's loader")
parser.add_argument("--threads", type=int, nargs="+", default=[2], help="threads of Headwater's")
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--no-training", action="store_true")
args = parser.parse_args()

about = json.load(open(f"{args.folder}/batches.json"))
read = lambda name: np.load(f"{args.folder}/{name}.npy", mmap_mode="r")  # noqa: E731
offsets = torch.from_numpy(np.array(read("offsets")).view(np.int64))
neighbours = torch.from_numpy(np.array(read("neighbours")).view(np.int32))
train = torch.from_numpy(np.array(read("train")).view(np.int64))
nodes, width = offsets.numel() - 1, about["width"]


def stores():
    features, graph = headwater.pyg.FeatureStore(), headwater.pyg.GraphStore()
    x = torch.empty(nodes, width)
    x.fill_(0.5)
    features.put_tensor(x, group_name=None, attr_name="x", index=None)
    graph.put_edge_index((neighbours, offsets), edge_type=None, layout="csc", size=(nodes, nodes))
    return features, graph


labels = torch.zeros(nodes, dtype=torch.uint8, device="cuda").long()
network = Sage([width] + [args.hidden] * (len(about["fanout"]) - 1) + [about["classes"]]).cuda()
optimiser = torch.optim.Adam(network.parameters(), lr=0.003)


def step(batch):
    optimiser.zero_grad(set_to_none=True)
    F.cross_entropy(network(batch), labels[batch.n_id[: batch.batch_size]]).backward()
    optimiser.step()


def timed(loader, count, skipped, deed):
    """Milliseconds a batch, of rounds of a quarter of the batches each."""
    found, rows, at, last, used = [], 0, 0, None, 0.0
    piece = max(count // 4, 1)
    for batch in loader:
        if not batch.x.is_cuda:
            batch = batch.to("cuda", non_blocking=True)
        if deed is not None:
            deed(batch)
        at += 1
        if at >= skipped and (at - skipped) % piece == 0:
            torch.cuda.synchronize()
            now = time.perf_counter()
            if last is not None:
                found.append(1e3 * (now - last) / piece)
            else:
                used = time.process_time()
            last = now
        rows += batch.num_nodes
        if at >= skipped + 4 * piece:
            break
    cpu = 1e3 * (time.process_time() - used) / (4 * piece)
    return {"ms": statistics.median(found), "least": min(found), "most": max(found), "cpu_ms": cpu, "nodes": rows / at}


def show(name, kind, found):
    print(json.dumps({"loader": name, "what": kind, **{key: round(value, 3) for key, value in found.items()}}), flush=True)


print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "pyg": torch_geometric.__version__}))
source = stores()

# In a process of its own (`--batches 0`): beside memory that is pinned for a GPU, forks take more than there is.
if args.peer_batches > 0:
    if not torch_geometric.typing.WITH_PYG_LIB:
        headwater.pyg.install()
    from torch_geometric.loader import NeighborLoader

    theirs = NeighborLoader(
        source, about["fanout"], input_nodes=train, batch_size=args.batch, shuffle=True, num_workers=args.workers,
        persistent_workers=True, is_sorted=True,
    )
    show("pyg", "load", timed(theirs, args.peer_batches, args.workers, None))
    if not args.no_training:
        show("pyg", "train", timed(theirs, args.peer_batches, args.workers, step))

for threads in args.threads if args.batches > 0 else []:
    begun = time.perf_counter()
    wished = {} if args.features != "tiered" else {"budget": args.share}
    ours = headwater.pyg.NeighborLoader(
        source, about["fanout"], input_nodes=train, batch_size=args.batch, shuffle=True, seed=1, num_workers=threads,
        device="cuda", features=args.features, **wished,
    )
    made = round(time.perf_counter() - begun, 1)
    print(json.dumps({"threads": threads, "seconds_to_make": made, "tables": repr(ours.tables)}), flush=True)
    show("headwater", "load", timed(ours, args.batches, 50, None))
    if not args.no_training:
        show("headwater", "train", timed(ours, args.batches, 50, step))
    print(json.dumps(ours.tables.served), flush=True)
