"""What the peers' scripts share: arguments, arrays, batches, and the object they print."""

import argparse
import json
import resource
import statistics
import time

import numpy as np


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("arrays", help="folder written by `headwater export --npy`")
    parser.add_argument("--fanout", default="15,10,5", help="neighbours a hop, seeds first")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--features", action="store_true", help="also fetch the rows of features of every node")
    return parser


def read(args, name):
    return np.load(f"{args.arrays}/{name}.npy", mmap_mode=None)


def fanouts(args):
    return [int(number) for number in args.fanout.split(",")]


def batches(args):
    """The training nodes in order, repeated until there are enough."""
    train = read(args, "train_idx").astype(np.int64)
    seeds = np.resize(train, args.batch * args.batches)
    return seeds.reshape(args.batches, args.batch)


def measure(args, system, seeds, draw):
    """Runs `draw(seeds) -> (nodes, edges)` on every batch and prints the figures."""
    for batch in seeds[:4]:
        draw(batch)
    seconds, nodes, edges = [], 0, 0
    for batch in seeds:
        begun = time.perf_counter()
        counted = draw(batch)
        seconds.append(time.perf_counter() - begun)
        nodes, edges = nodes + counted[0], edges + counted[1]
    show(args, system, seconds, sum(seconds), nodes, edges)


def show(args, system, seconds, total, nodes, edges):
    count, median = len(seconds), statistics.median(seconds)
    figures = {
        "system": system,
        "dataset": args.arrays,
        "fanout": fanouts(args),
        "batch": args.batch,
        "batches": count,
        "ms_per_batch": median * 1e3,
        "spread": (max(seconds) - min(seconds)) / median,
        "seeds_per_s": count * args.batch / total,
        "edges_per_s": edges / total,
        "unique_nodes": nodes / count,
        "edges": edges / count,
        "features": args.features,
        "threads": args.threads,
        "device": "cpu",
        "graph": "cpu",
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(figures))
