"""Weighted reverse PageRank and renumbered lists: SciPy, NumPy and Headwater in turn on the same graph, several rounds.

SciPy's five iterations are written the plain way, with a CSR product in 64-bit floats over lists by source; NumPy's lists
are permuted and relabelled in the order of in-degrees, hubs first. Neither is charged for what Headwater reports apart:
turning lists round (`prepare_s` beside `tocsr_s`), and sorting nodes by degree (`order_s` beside `argsort_s`)."""

import argparse
import json
import statistics
import subprocess
import time

import numpy as np
import scipy.sparse

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dataset", help="a dataset folder of one node type and one relation by target")
parser.add_argument("--headwater", default="target/release/headwater", help="the program")
parser.add_argument("--rounds", type=int, default=3)
args = parser.parse_args()

with open(f"{args.dataset}/headwater.json") as file:
    manifest = json.load(file)
relation, nodes = manifest["relations"][0], manifest["nodes"][0]
offsets = np.load(f"{args.dataset}/{relation['offsets']}").astype(np.int64)
sources = np.load(f"{args.dataset}/{relation['neighbours']}").astype(np.int32)
train = np.load(f"{args.dataset}/{nodes['splits']['train']}")
count = nodes["count"]


def timed(work):
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def weighted_pagerank(by_source, in_degrees, damping=0.85, iterations=5):
    score = np.full(count, 1 / count)
    score[train] *= count / len(train)
    for _ in range(iterations):
        share = np.divide(score, in_degrees, out=np.zeros(count), where=in_degrees > 0)
        score = (1 - damping) / count + damping * (by_source @ share)
    return score


def renumbered(order):
    new_of_old = np.empty(count, dtype=np.int32)
    new_of_old[order] = np.arange(count, dtype=np.int32)
    degrees = np.diff(offsets)[order]
    moved_offsets = np.concatenate([[0], np.cumsum(degrees)])
    places = np.arange(len(sources)) + np.repeat(offsets[:-1][order] - moved_offsets[:-1], degrees)
    return moved_offsets, new_of_old[sources[places]]


def headwater(*command):
    done = subprocess.run([args.headwater, *command, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


by_target = scipy.sparse.csc_matrix((np.ones(len(sources)), sources, offsets), shape=(count, count))
found = {name: [] for name in ["scipy_s", "headwater_s", "tocsr_s", "prepare_s", "numpy_s", "reorder_s", "argsort_s", "order_s"]}
for _ in range(args.rounds):
    tocsr_s, by_source = timed(by_target.tocsr)
    found["tocsr_s"].append(tocsr_s)
    degrees = np.diff(offsets)
    found["scipy_s"].append(statistics.median(timed(lambda: weighted_pagerank(by_source, degrees))[0] for _ in range(3)))
    ours = headwater("bench", "score", args.dataset)
    row = next(row for row in ours["scores"] if row["score"] == "weighted-pagerank")
    found["headwater_s"].append(row["seconds"])
    found["prepare_s"].append(ours["prepare_s"])
    argsort_s, order = timed(lambda: np.argsort(-degrees, kind="stable"))
    found["argsort_s"].append(argsort_s)
    found["numpy_s"].append(timed(lambda: renumbered(order))[0])
    ours = headwater("bench", "reorder", args.dataset)
    found["reorder_s"].append(ours["reorder_s"])
    found["order_s"].append(ours["order_s"])

medians = {name: statistics.median(seconds) for name, seconds in found.items()}
ratio = lambda peer, ours: statistics.median(a / b for a, b in zip(found[peer], found[ours]))
print(json.dumps({"dataset": manifest["name"], "rounds": args.rounds, **medians,
                  "scipy_over_headwater": ratio("scipy_s", "headwater_s"),
                  "numpy_over_headwater": ratio("numpy_s", "reorder_s")}))
