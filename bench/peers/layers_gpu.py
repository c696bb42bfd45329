"""Layers of `@headwater.compile` beside PyG's own, on one GPU: milliseconds of a forward and a backward pass.

    python3 bench/peers/layers_gpu.py --shape arxiv products batch

Graphs are random, with `--skew 1` all nodes alike and with `--skew 3` a few hubs that have many edges; `batch` is the shape of a
sampled batch. For each layer PyG's module and ours get the same weights, and outputs are compared before anything is timed.
`graph_ms` is ours for a graph that was not seen before: its edges are sorted on the GPU. PyG sorts nothing and adds by atomics.
`memory` is what a pass takes at most of torch's memory, in MB, above what was there; our graph lies beside
that. Products of both are as exact as torch's default says."""

import argparse
import itertools
import json
import statistics
import time

import torch
import torch_geometric
from torch_geometric.nn import GATConv, SAGEConv

import headwater

SHAPES = {  # nodes, edges
    "arxiv": (169_343, 1_166_243),
    "products": (2_449_029, 61_859_140),
    "batch": (200_000, 1_500_000),
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--shape", nargs="+", choices=SHAPES, default=["arxiv", "batch"])
parser.add_argument("--width", type=int, default=128, help="of features, and of outputs")
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--skew", type=float, nargs="+", default=[1.0, 3.0], help="of degrees")
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--round-ms", type=float, default=200.0, help="that a round takes about")
args = parser.parse_args()


def graph(nodes, edges, skew):
    random = torch.Generator("cuda").manual_seed(5)
    ends = torch.rand(2, edges, device="cuda", generator=random).pow(skew) * nodes
    where = torch.randperm(nodes, device="cuda", generator=random)
    return where[ends.long().clamp(max=nodes - 1)]


def sage():
    theirs = SAGEConv(args.width, args.width).cuda()
    ours = headwater.compile("sage").module(d_in=args.width, d_out=args.width).cuda()
    with torch.no_grad():
        weights = dict(ours.named_parameters())
        for name, own in (("W_neigh", theirs.lin_l.weight.t()), ("W_root", theirs.lin_r.weight.t()), ("b", theirs.lin_l.bias)):
            weights[name].copy_(own.view_as(weights[name]))
    return theirs, ours


def gat():
    each = args.width // args.heads
    theirs = GATConv(args.width, each, heads=args.heads).cuda()
    ours = headwater.compile("gat").module(d_in=args.width, d_out=each, heads=args.heads).cuda()
    with torch.no_grad():
        weights = dict(ours.named_parameters())
        own = {"W": theirs.lin.weight.t(), "al": theirs.att_src[0], "ar": theirs.att_dst[0], "b": theirs.bias}
        for name, tensor in own.items():
            weights[name].copy_(tensor.view_as(weights[name]))
    return theirs, ours


def passed(run, x):
    """Forward and backward."""
    out = run(x)
    out.backward(torch.ones_like(out))


def round_of(run, x, passes):
    """Milliseconds a pass."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(passes):
        passed(run, x)
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begun) / passes


def timed(run, x):
    passed(run, x)
    passes = max(int(args.round_ms / round_of(run, x, 3)), 1)
    return [round_of(run, x, passes) for _ in range(args.rounds)]


def taken(run, x):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    passed(run, x)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def timed_of(line, who, run, x):
    """Median, least and most of a pass, and its memory."""
    times = timed(run, x)
    line[f"{who}_ms"] = [round(pick(times), 3) for pick in (statistics.median, min, max)]
    line[f"{who}_memory"] = round(taken(run, x))


print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "pyg": torch_geometric.__version__}))
for shape, skew in itertools.product(args.shape, args.skew):
    nodes, edges = SHAPES[shape]
    edge_index, x = graph(nodes, edges, skew), torch.randn(nodes, args.width, device="cuda", requires_grad=True)
    for name, make in (("sage", sage), ("gat", gat)):
        theirs, ours = make()
        runs = {"pyg": lambda x: theirs(x, edge_index), "headwater": lambda x: ours(edge_index, x)}  # noqa: B023
        line = {"shape": shape, "skew": skew, "most_edges": int(edge_index[1].bincount().max()), "layer": name}
        try:
            line["far"] = (runs["pyg"](x) - runs["headwater"](x)).abs().max().item()
            timed_of(line, "pyg", runs["pyg"], x)
        except torch.OutOfMemoryError:
            line["pyg_ms"] = "out of memory"
            torch.cuda.empty_cache()
        timed_of(line, "headwater", runs["headwater"], x)
        line["graph_ms"] = round(statistics.median(timed(lambda x: ours(edge_index.view(2, -1), x), x)), 3)  # noqa: B023
        if "pyg_memory" in line:
            line["ratio"] = round(line["pyg_ms"][0] / line["headwater_ms"][0], 2)
        print(json.dumps(line), flush=True)
        del theirs, ours
