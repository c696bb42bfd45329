"""Runs campaigns of faults, one after the other, and says what came of them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

from . import damage, disk, flat, fuzz, held, kills, loader_kills, memory_limit, offload, python_calls, sampled, two_jobs
from .bench import ROOT, Bench, Failed, Skipped, Tools
from .report import markdown, outcome, table

# In this order. Those that stop after so many cases leave what is left of their share to those that come after.
CAMPAIGNS: dict[str, ModuleType] = {
    "kills": kills,
    "loader-kills": loader_kills,
    "two-jobs": two_jobs,
    "disk": disk,
    "damage": damage,
    "memory-limit": memory_limit,
    "sampled": sampled,
    "held": held,
    "offload": offload,
    "python": python_calls,
    "fuzz": fuzz,
}
# Goes on beside all others, since what grows slowly is seen late.
BESIDE = {"flat": flat}

EXAMPLES = """examples:
  make soak SOAK_MINUTES=90                          everything, with an hour and more of loaders and training watched
  python3 -m soak --only kills,damage --minutes 5    two campaigns
  python3 -m soak --only kills --seed 7 --case 12    one case again, as a failure says
"""


def main() -> int:
    asked = _arguments()
    os.nice(asked.nice)
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    watched = tuple(asked.watch.split(",")) if asked.watch else ()
    tools = Tools(asked.program.absolute(), asked.python.absolute(), asked.emulator.absolute(), out, watched)
    names = [*CAMPAIGNS, *BESIDE] if asked.only is None else asked.only.split(",")
    unknown = [name for name in names if name not in CAMPAIGNS and name not in BESIDE]
    if unknown:
        print(f"there is no campaign {unknown[0]}; there are {', '.join([*CAMPAIGNS, *BESIDE])}", file=sys.stderr)
        return 2
    benches = _run(names, asked, tools)
    outcomes = [outcome(bench, seconds) for bench, seconds in benches]
    report = {"seed": asked.seed, "minutes": asked.minutes, "machine": _machine(), "campaigns": outcomes}
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    (out / "report.md").write_text(markdown(report, {**CAMPAIGNS, **BESIDE}))
    print(json.dumps(report) if asked.json else table(outcomes))
    return 1 if any(one["failures"] for one in outcomes) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m soak", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ", ".join([*CAMPAIGNS, *BESIDE])
    parser.add_argument("--minutes", type=float, default=30, help="how long all of it may take, builds aside (30)")
    parser.add_argument("--only", metavar="NAMES", help=f"these, with commas between: {known}")
    parser.add_argument("--seed", type=int, default=1, help="what is random comes out of this number (1)")
    parser.add_argument("--case", type=int, help="this case alone, of one campaign")
    parser.add_argument("--json", action="store_true", help="the report as JSON instead of a table")
    parser.add_argument("--out", type=Path, default=ROOT / "target/soak", help="folder of reports and of what failed")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/headwater", help="the release program")
    parser.add_argument("--python", type=Path, default=ROOT / "target/python/bin/python", help="a Python with the package")
    parser.add_argument("--emulator", type=Path, default=ROOT / "target/emulator-plain", help="folder of the emulator")
    parser.add_argument("--watch", metavar="NAMES", help=f"programs that flat watches (all): {', '.join(flat.PROGRAMS)}")
    parser.add_argument("--nice", type=int, default=0, help="lower the priority by so much")
    return parser.parse_args()


def _run(names: list[str], asked: argparse.Namespace, tools: Tools) -> list[tuple[Bench, float]]:
    """All campaigns, each with its bench and the seconds it took."""
    # Builds are not counted. What cannot be built says so when its turn comes.
    for name in names:
        if build := getattr(CAMPAIGNS.get(name), "build", None):
            with contextlib.suppress(Failed, Skipped):
                build(tools)
    ends_at = time.monotonic() + 60 * asked.minutes
    beside = [_Beside(Bench(name, asked.seed, tools, ends_at), BESIDE[name]) for name in names if name in BESIDE]
    done, waiting = [], [name for name in CAMPAIGNS if name in names]
    for name in list(waiting):
        shares = {other: CAMPAIGNS[other].SHARE for other in waiting}
        left = max(0.0, ends_at - time.monotonic())
        waiting.remove(name)
        bench = Bench(name, asked.seed, tools, time.monotonic() + left * shares[name] / sum(shares.values()), asked.case)
        bench.say(f"{CAMPAIGNS[name].WHAT}, at most {bench.left() / 60:.1f} minutes")
        done.append((bench, _timed(bench, CAMPAIGNS[name])))
        bench.say(", ".join(f"{count} {what}" for what, count in bench.counts.items()) or "nothing done")
    return done + [one.joined() for one in beside]


def _timed(bench: Bench, campaign: ModuleType) -> float:
    begun = time.monotonic()
    bench.folder.mkdir(parents=True, exist_ok=True)
    try:
        campaign.run(bench)
    except Failed as why:
        bench.fail(str(why))
    except Skipped as why:
        bench.skip(str(why))
    return time.monotonic() - begun


class _Beside:
    """A campaign on a thread of its own."""

    def __init__(self, bench: Bench, campaign: ModuleType) -> None:
        self.bench, self.seconds = bench, 0.0
        self._thread = threading.Thread(target=self._run, args=(campaign,))
        self._thread.start()

    def _run(self, campaign: ModuleType) -> None:
        try:
            self.seconds = _timed(self.bench, campaign)
        except Exception as why:  # noqa: BLE001
            # A thread that dies must not pass for one that found nothing.
            self.bench.fail(f"the campaign itself failed: {why!r}")

    def joined(self) -> tuple[Bench, float]:
        self._thread.join()
        return self.bench, self.seconds


def _machine() -> dict[str, object]:
    asked = ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return {"system": platform.platform(), "cores": os.cpu_count(), "commit": commit}


if __name__ == "__main__":
    sys.exit(main())
