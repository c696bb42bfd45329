"""Headwater and DGL in turn on the same graph, several rounds: medians and the ratio of seeds a second."""

import argparse
import json
import pathlib
import statistics
import subprocess

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dataset", help="a dataset folder")
parser.add_argument("arrays", help="the same graph, written by `headwater export --npy`")
parser.add_argument("--headwater", default="target/release/headwater", help="the program")
parser.add_argument("--dgl-python", required=True, help="a Python that has DGL")
parser.add_argument("--fanout", action="append", help="may be given several times")
parser.add_argument("--batch", default="1024")
parser.add_argument("--batches", default="96")
parser.add_argument("--threads", default="2")
parser.add_argument("--features", action="store_true")
parser.add_argument("--rounds", type=int, default=5)
args = parser.parse_args()

here = pathlib.Path(__file__).parent
shared = ["--batch", args.batch, "--batches", args.batches, "--threads", args.threads]
shared += ["--features"] if args.features else []


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


for fanout in args.fanout or ["10,10", "15,10,5", "12,12,12"]:
    systems = {
        "headwater": [args.headwater, "bench", "sample", args.dataset, "--json", "--fanout", fanout, *shared],
        "dgl": [args.dgl_python, str(here / "sample_dgl.py"), args.arrays, "--fanout", fanout, *shared],
    }
    rates = {name: [] for name in systems}
    for _ in range(args.rounds):
        for name, command in systems.items():
            rates[name].append(run(command)["seeds_per_s"])
    ratios = sorted(ours / theirs for ours, theirs in zip(rates["headwater"], rates["dgl"]))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    print(json.dumps({"fanout": fanout, "features": args.features, "seeds_per_s": medians,
                      "ratio": statistics.median(ratios), "ratio_least": ratios[0], "ratio_most": ratios[-1]}))
