"""Training by Headwater and by its peers in turn, on the same arrays, several rounds: medians, and how many times faster than the
fastest peer of each round.

    python bench/train.py sage rmat20 --peers-python PYTHON
    python bench/train.py full cora pubmed --peers-python PYTHON
    python bench/train.py growth --least 17 --most 21

Datasets are folders that `headwater ingest` or `headwater generate` wrote; their arrays are exported to a temporary folder. A system
that is not installed in PYTHON is left out, with a line that says so. Machines drift and a busy one slows peers more than us: run
this on an idle one. The last line is JSON."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

PEERS = pathlib.Path(__file__).parent / "peers"


def main():
    args = arguments()
    print(json.dumps({"sage": sage, "full": full, "growth": growth}[args.job](args)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headwater", default="target/release/headwater", help="the program")
    jobs = parser.add_subparsers(dest="job", required=True)
    for name, what in (("sage", "GraphSAGE on sampled batches"), ("full", "GCN and GAT on whole graphs")):
        job = jobs.add_parser(name, help=what)
        job.add_argument("datasets", nargs="+")
        job.add_argument("--peers-python", help="a Python that has DGL, PyG or both")
        job.add_argument("--rounds", type=int, default=5)
    job = jobs.add_parser("growth", help="the same job on R-MAT graphs of growing size")
    job.add_argument("--least", type=int, default=17, help="nodes of the smallest, as a power of 2")
    job.add_argument("--most", type=int, default=21)
    job.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def sage(args):
    """Two layers, mean, hidden 256, fan-out (10, 10), batches of 1024, Adam, no dropout."""
    found = {}
    for dataset, arrays in exported(args):
        systems = {"headwater": lambda: headwater(args, dataset, *SAGE)}
        for system in ("dgl", "graphbolt", "pyg"):
            systems[system] = peer(args, "train_sage.py", arrays, "--system", system, "--fanout", "10,10")
        found[dataset] = compare(dataset, systems, args.rounds)
    return found


SAGE = ["--model", "sage", "--hidden", "256", "--fanout", "10,10", "--batch", "1024", "--epochs", "4", "--rate", "0.003",
        "--decay", "0", "--dropout", "0", "--normalise-features", "false", "--evaluate-every", "0"]


def full(args):
    found = {}
    for dataset, arrays in exported(args):
        for model in ("gcn", "gat"):
            heads = ["--output-heads", "8"] if model == "gat" and "pubmed" in dataset else []
            ours = ["--model", model, "--full-graph", "--epochs", "100", "--evaluate-every", "0", *heads]
            systems = {"headwater": lambda: headwater(args, dataset, *ours)}
            for system in ("dgl", "pyg"):
                systems[system] = peer(args, "train_full.py", arrays, "--system", system, "--model", model, *heads)
            name = f"{pathlib.Path(dataset).name} {model}"
            found[name] = compare(name, systems, args.rounds)
    return found


def growth(args):
    """The same share of nodes is trained on, so work grows as the graph does."""
    rows = []
    for power in range(args.least, args.most + 1):
        with tempfile.TemporaryDirectory() as folder:
            shape = ["--nodes-log2", str(power), "--edges-per-node", "16", "--features", "128", "--classes", "32"]
            run([args.headwater, "generate", "rmat", *shape, "-o", f"{folder}/graph"])
            runs = [headwater(args, f"{folder}/graph", *SAGE) for _ in range(args.rounds)]
        row = {"nodes": 1 << power}
        for field in ("epoch_seconds", "sample_seconds", "gather_seconds", "compute_seconds", "peak_rss_bytes"):
            row[field] = statistics.median(one[field] for one in runs)
        row["microseconds_a_node"] = 1e6 * row["epoch_seconds"] / row["nodes"]
        rows.append(row)
        print(f"2^{power} nodes: {row['epoch_seconds']:.3f} s an epoch, {row['microseconds_a_node']:.3f} us a node, "
              f"{row['peak_rss_bytes'] / 2**30:.2f} GiB", file=sys.stderr)
    return rows


def compare(name, systems, rounds):
    """Every system in turn, `rounds` times."""
    runs = {system: [] for system in systems}
    for _ in range(rounds):
        for system, once in systems.items():
            done = once()
            if done is not None:
                runs[system].append(done)
    runs = {system: all_of_it for system, all_of_it in runs.items() if all_of_it}
    seconds = {system: [one["epoch_seconds"] for one in some] for system, some in runs.items()}
    table = {}
    for system, some in runs.items():
        row = {"median_s": statistics.median(seconds[system]), "least_s": min(seconds[system]), "most_s": max(seconds[system]),
               "peak_rss_bytes": statistics.median(memory(one) for one in some)}
        for part in ("sample_seconds", "gather_seconds", "compute_seconds"):
            if part in some[0]:
                row[part] = statistics.median(one[part] for one in some)
        row["system"] = some[0].get("system", "headwater")
        table[system] = row
        print(f"{name}: {row['system']}: {1e3 * row['median_s']:.2f} ms an epoch ({1e3 * row['least_s']:.2f} to "
              f"{1e3 * row['most_s']:.2f}), {row['peak_rss_bytes'] / 2**20:.0f} MiB", file=sys.stderr)
    others = [system for system in runs if system != "headwater"]
    if not others:
        return {"systems": table}
    ratios = sorted(min(seconds[other][at] for other in others) / seconds["headwater"][at] for at in range(rounds))
    print(f"{name}: {statistics.median(ratios):.2f} times the fastest peer ({ratios[0]:.2f} to {ratios[-1]:.2f})", file=sys.stderr)
    return {"systems": table, "ratio": statistics.median(ratios), "ratio_least": ratios[0], "ratio_most": ratios[-1]}


def memory(run):
    """Peers only train, so of our runs too it is training that counts."""
    return run.get("training_rss_bytes", run["peak_rss_bytes"])


def exported(args):
    """Every dataset with a folder of its arrays."""
    for dataset in args.datasets:
        with tempfile.TemporaryDirectory() as folder:
            run([args.headwater, "export", dataset, "--npy", f"{folder}/arrays"])
            yield dataset, f"{folder}/arrays"


def headwater(args, dataset, *flags):
    with tempfile.TemporaryDirectory() as folder:
        return run([args.headwater, "train", dataset, *flags, "--json", "-o", f"{folder}/run"])


def peer(args, script, arrays, *flags):
    """A run of a peer's script; nothing where it is not installed."""
    missing = []

    def once():
        if args.peers_python is None or missing:
            return None
        done = subprocess.run([args.peers_python, str(PEERS / script), arrays, *flags], capture_output=True, text=True)
        if done.returncode:
            missing.append(script)
            print(f"{script} {' '.join(flags)} is left out: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            return None
        return json.loads(done.stdout.splitlines()[-1])

    return once


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None


if __name__ == "__main__":
    main()
