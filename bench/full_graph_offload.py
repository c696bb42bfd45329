"""Training over whole graphs with activations kept, moved to host memory or disk, or recomputed: GPU memory and epochs.

    python3 bench/full_graph_offload.py --headwater target/release/headwater data/reddit --model sage --hidden 256 --layers 6 \\
        --ways kept,host,recompute,auto --json reddit.jsonl

Each way is a process of its own, in turn, `--rounds` times. It is stopped (SIGINT) after `--epochs`, before its evaluation, which is the
CPU's. Of every run: the median of its epochs without the first, the plan, what was
expected and what was measured, and the most memory of the device that was in use at once, by NVML's count.
"""

import argparse
import json
import signal
import statistics
import subprocess
import tempfile
import threading
import time

WAYS = {"kept": None, "host": "host", "disk": "disk", "host+disk": "host,disk", "recompute": "recompute", "auto": "auto"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--headwater", default="target/release/headwater")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ways", default="kept,host,recompute,auto", help=", ".join(WAYS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=300, help="of a run; one that takes longer is stopped")
    parser.add_argument("--more", default="", help="further flags of `headwater train`")
    parser.add_argument("--json", help="lines of JSON are appended to this file")
    args = parser.parse_args()
    args.ways = args.ways.split(",")
    unknown = [way for way in args.ways if way not in WAYS]
    if unknown:
        parser.error(f"--ways: {', '.join(unknown)}: none of {', '.join(WAYS)}")
    return args


class MostUsed:
    """The most memory of the device in use at once, in bytes, while a process runs."""

    def __init__(self):
        self.most, self.is_over = 0, False
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--loop-ms=100"]
        try:
            with subprocess.Popen(query, stdout=subprocess.PIPE, text=True) as process:
                for line in process.stdout:
                    self.most = max(self.most, int(line.split()[0]) << 20)
                    if self.is_over:
                        process.kill()
        except (OSError, ValueError):
            self.most = 0

    def end(self):
        self.is_over = True
        self.thread.join(2)
        return self.most


def train(args, way):
    """One run. Epochs are lines; the last line is the summary."""
    with tempfile.TemporaryDirectory() as folder:
        command = [args.headwater, "train", args.dataset, "--model", args.model, "--full-graph", "--json", "-o", f"{folder}/run"]
        command += ["--hidden", str(args.hidden), "--layers", str(args.layers), "--epochs", "1000000", "--device", args.device]
        command += ["--evaluate-every", "0", "--checkpoint-every", "0", "--patience", "0", *args.more.split()]
        command += ["--offload", WAYS[way]] if WAYS[way] else []
        used, begun, epochs, summary = MostUsed(), time.monotonic(), [], {}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            stop = threading.Timer(args.seconds, process.kill)
            stop.start()
            said = []
            reader = threading.Thread(target=lambda: said.extend(process.stderr.read().splitlines()))
            reader.start()
            for line in process.stdout:
                found = json.loads(line)
                if "epoch_seconds" in found and "epoch" in found:
                    epochs.append(found["epoch_seconds"])
                    if len(epochs) == args.epochs:
                        process.send_signal(signal.SIGINT)
                elif "run_dir" in found:
                    summary = found
            stop.cancel()
            reader.join()
        line = {"way": way, "model": args.model, "hidden": args.hidden, "layers": args.layers, "exit": process.returncode}
        line |= {"wall_s": time.monotonic() - begun, "epochs": epochs, "device_most_bytes": used.end()}
        later = epochs[1:] or epochs
        line["epoch_ms"] = 1e3 * statistics.median(later) if later else None
        line["offload"] = summary.get("offload")
        line["said"] = [text for text in said if "activations" in text or "rror" in text or "memory" in text][-3:]
        return line


def main():
    args = arguments()
    for _ in range(args.rounds):
        for way in args.ways:
            line = train(args, way)
            shown = line["offload"] or {}
            print(way, "exit", line["exit"], "epoch ms", line["epoch_ms"], "device GB", line["device_most_bytes"] / 1e9,
                  "peak GB", shown.get("peak_bytes", 0) / 1e9, "kept GB", shown.get("kept_peak_bytes", 0) / 1e9,
                  "expected ms", shown.get("expected_ms"), "stall", shown.get("stall_ms"), *line["said"], flush=True)
            if args.json:
                with open(args.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"dataset": args.dataset} | line) + "\n")


if __name__ == "__main__":
    main()
