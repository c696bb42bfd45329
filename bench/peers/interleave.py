"""Headwater and its peers in turn on the same graph, several rounds: medians, and the ratio of seeds a second to the
best peer of each round."""

import argparse
import json
import pathlib
import statistics
import subprocess

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dataset", help="a dataset folder")
parser.add_argument("arrays", help="the same graph, written by `headwater export --npy`")
parser.add_argument("--headwater", default="target/release/headwater", help="the program")
parser.add_argument("--dgl-python", help="a Python that has DGL: runs NeighborSampler")
parser.add_argument("--graphbolt-python", help="a Python that has DGL 2.1 or later: runs GraphBolt")
parser.add_argument("--pyg-python", help="a Python that has PyG and a sampler library: runs NeighborLoader")
parser.add_argument("--fanout", action="append", help="may be given several times")
parser.add_argument("--batch", default="1024")
parser.add_argument("--batches", default="96")
parser.add_argument("--threads", default="2")
parser.add_argument("--features", action="store_true")
parser.add_argument("--rounds", type=int, default=5)
args = parser.parse_args()
pythons = {"dgl": args.dgl_python, "graphbolt": args.graphbolt_python, "pyg": args.pyg_python}
pythons = {peer: python for peer, python in pythons.items() if python}
if not pythons:
    parser.error("name at least one peer, as in --dgl-python PYTHON")

here = pathlib.Path(__file__).parent
shared = ["--batch", args.batch, "--batches", args.batches, "--threads", args.threads]
shared += ["--features"] if args.features else []


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


for fanout in args.fanout or ["10,10", "15,10,5", "12,12,12"]:
    ours = [args.headwater, "bench", "sample", args.dataset]
    systems = {"headwater": [*ours, "--json", "--fanout", fanout, *shared]}
    for peer, python in pythons.items():
        systems[peer] = [python, str(here / f"sample_{peer}.py"), args.arrays, "--fanout", fanout, *shared]
    rates = {name: [] for name in systems}
    for _ in range(args.rounds):
        for name, command in systems.items():
            rates[name].append(run(command)["seeds_per_s"])
    best = [max(rates[peer][at] for peer in pythons) for at in range(args.rounds)]
    ratios = sorted(ours / theirs for ours, theirs in zip(rates["headwater"], best))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    print(json.dumps({"fanout": fanout, "features": args.features, "seeds_per_s": medians,
                      "ratio": statistics.median(ratios), "ratio_least": ratios[0], "ratio_most": ratios[-1]}))
