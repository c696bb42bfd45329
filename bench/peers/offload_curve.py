"""SSDTrain's ROK curve, measured: how fast tokens are trained on against the peak of activations, for micro-batches of several sizes, with
activations recomputed, offloaded and kept. It runs `offload.py` for every size, and draws what its lines say.

    python3 bench/peers/offload_curve.py --hidden 12288 --layers 3 --batches 4,8,16,32 --json rok.jsonl --plot rok.svg
    python3 bench/peers/offload_curve.py --json rok.jsonl --plot rok.svg --batches ""      draws lines that are there
"""

import argparse
import json
import pathlib
import subprocess
import sys

NAMES = {"checkpoint": "recompute", "headwater": "offload", "keep": "keep"}


def arguments():
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--hidden", type=int, default=12288)
    made.add_argument("--layers", type=int, default=3)
    made.add_argument("--sequence", type=int, default=1024)
    made.add_argument("--batches", default="4,8,16,32", help="sizes of micro-batches")
    made.add_argument("--steps", type=int, default=5)
    made.add_argument("--more", default="", help="further flags of offload.py")
    made.add_argument("--json", required=True, help="a file that lines are added to")
    made.add_argument("--plot", help="an SVG file")
    return made.parse_args()


def measure(given, batch):
    here = pathlib.Path(__file__).parent
    command = [sys.executable, str(here / "offload.py"), "--ways", ",".join(NAMES), "--rounds", "1", "--batch", str(batch), "--json", given.json]
    for name in ("hidden", "layers", "sequence", "steps"):
        command += [f"--{name}", str(getattr(given, name))]
    subprocess.run([*command, *given.more.split()], check=True)


def curve(path):
    """Points of every way: gigabytes of activations, and thousands of tokens a second."""
    lines = {}
    for text in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line.get("way") in NAMES and line.get("peak_bytes"):
            tokens = line["batch"] * line["sequence"]
            lines.setdefault(NAMES[line["way"]], []).append((line["peak_bytes"] / 1e9, tokens / line["ms"]))
    return {name: sorted(points) for name, points in lines.items()}


def main():
    given = arguments()
    for batch in filter(None, given.batches.split(",")):
        measure(given, int(batch))
    found = curve(given.json)
    for name, points in found.items():
        print(f"{name:10}", "  ".join(f"{peak:.1f} GB {speed:.2f} k/s" for peak, speed in points))
    if given.plot:
        from headwater.picture import Chart, draw

        title = "thousand tokens a second, by the peak of activations"
        pathlib.Path(given.plot).write_text(draw([Chart(title, found, "GB of activations at most")]), encoding="utf-8")


if __name__ == "__main__":
    main()
