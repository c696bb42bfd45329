"""PyG's NeighborLoader and Headwater's in turn, on the same graph in one process: sampling and features on CPU cores.

    python3 bench/peers/load_cpu.py ARRAYS --fanout 10,10 --rounds 7
    python3 bench/peers/load_cpu.py ARRAYS --fanout 10,10 --epochs 4 --seeds 3

The scripts differ by the import alone. A round is an epoch over the same seeds with each loader, in an order that changes from
round to round; the clock runs from before `iter()` to the last batch. PyG draws with the sampler library that is installed,
pyg-lib or torch-sparse. Nothing else may run meanwhile: a busy core slows torch's threads, and so PyG, several times.

With `--epochs`, PyG's GraphSAGE is trained on the batches of each loader, from the same weights, and classifies the test nodes."""

import gc
import json
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader as Theirs
from torch_geometric.typing import WITH_PYG_LIB

import common
from headwater.pyg import NeighborLoader as Ours
from trimmed import Sage

parser = common.arguments(__doc__)
parser.add_argument("--workers", type=int, default=0, help="processes of PyG's loader, threads of Headwater's")
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--epochs", type=int, default=0, help="of training, instead of rounds")
parser.add_argument("--seeds", type=int, default=3, help="that training begins from")
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--rate", type=float, default=0.003)
args = parser.parse_args()
torch.set_num_threads(args.threads)
LOADERS = {"pyg": Theirs, "headwater": Ours}

indptr, indices = common.read(args, "indptr"), common.read(args, "indices")
targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
data = Data(edge_index=torch.from_numpy(np.stack([indices, targets])), num_nodes=len(indptr) - 1)
data.x = torch.from_numpy(common.read(args, "feat"))
fanouts = common.fanouts(args)


def loader(kind, nodes, shuffle=True):
    return kind(
        data, num_neighbors=fanouts, input_nodes=nodes, batch_size=args.batch, shuffle=shuffle, num_workers=args.workers,
        persistent_workers=args.workers > 0, is_sorted=True,
    )


def rounds():
    """Seeds a second of both, and the ratio in each round."""
    seeds = torch.from_numpy(common.batches(args).reshape(-1))
    made = {name: loader(kind, seeds) for name, kind in LOADERS.items()}
    found = {name: [] for name in made}
    for at in range(args.rounds + 1):
        for name in sorted(made, reverse=at % 2 == 0):
            gc.collect()
            begun = time.perf_counter()
            rows = sum(batch.x.size(0) for batch in made[name])
            found[name].append((len(seeds) / (time.perf_counter() - begun), rows / len(seeds)))
    # The first round is not counted.
    rates = {name: [rate for rate, _ in runs[1:]] for name, runs in found.items()}
    for name, some in rates.items():
        told = {"seeds_per_s": round(statistics.median(some)), "least": round(min(some)), "most": round(max(some))}
        print(json.dumps({"loader": name, "fanout": fanouts, **told, "nodes_per_seed": round(found[name][-1][1], 2)}))
    ratios = sorted(ours / theirs for ours, theirs in zip(rates["headwater"], rates["pyg"]))
    told = {"ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}
    print(json.dumps({"fanout": fanouts, **{name: round(ratio, 2) for name, ratio in told.items()}}))


def trained(kind, seed):
    """The accuracy on the test nodes after the last epoch, and the seconds of an epoch."""
    data.y = torch.from_numpy(common.read(args, "label")).long()
    torch.manual_seed(seed)
    network = Sage([data.x.size(1)] + [args.hidden] * (len(fanouts) - 1) + [int(data.y.max()) + 1])
    train, test = (torch.from_numpy(common.read(args, name).astype(np.int64)) for name in ("train_idx", "test_idx"))
    optimiser = torch.optim.Adam(network.parameters(), lr=args.rate)
    batches, seconds = loader(kind, train), []
    for _ in range(args.epochs):
        begun = time.perf_counter()
        for batch in batches:
            optimiser.zero_grad()
            F.cross_entropy(network(batch), batch.y[: batch.batch_size]).backward()
            optimiser.step()
        seconds.append(time.perf_counter() - begun)
    with torch.no_grad():
        hits = [network(batch).argmax(1) == batch.y[: batch.batch_size] for batch in loader(kind, test, shuffle=False)]
    return 100 * torch.cat(hits).float().mean().item(), statistics.median(seconds)


library = "pyg-lib" if WITH_PYG_LIB else "torch-sparse"
print(json.dumps({"sampler": library, "torch": torch.__version__, "pyg": torch_geometric.__version__, "threads": args.threads}))
if args.epochs == 0:
    rounds()
else:
    for name, kind in LOADERS.items():
        runs = [trained(kind, seed) for seed in range(1, args.seeds + 1)]
        scores = [round(score, 2) for score, _ in runs]
        told = {"mean": round(statistics.mean(scores), 2), "epoch_s": round(statistics.median(time for _, time in runs), 2)}
        print(json.dumps({"loader": name, "fanout": fanouts, "test": scores, **told}), flush=True)
