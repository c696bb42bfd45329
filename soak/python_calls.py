"""Random calls of the Python package in a process of their own, whose crash is seen here with its case."""

from __future__ import annotations

import re

from .bench import ROOT, Bench, Skipped
from .process import Ended, ended

WHAT = "random calls from Python: DLPack, array interfaces, arguments of tables, samplers and loaders"
SHARE = 3
# Calls a process: what one leaves behind is gone with it.
_AT_A_TIME = 2000
# A limit on the address space turns a call that would take the whole machine into one that fails.
_LIMITED = 'ulimit -v 16000000; exec "$0" "$@"'


def run(bench: Bench) -> None:
    if not bench.tools.python.exists():
        raise Skipped(f"there is no {bench.tools.python}; `make installed` makes it")
    if bench.only_case is not None:
        _judge(bench, _called(bench, bench.only_case, 1, 60), bench.only_case)
        return
    first = 0
    # At least one round, of which importing torch is a good part.
    while first == 0 or bench.left() > 30:
        done = _called(bench, first, _AT_A_TIME, max(30, min(240, bench.left())))
        _judge(bench, done, first)
        if bench.failures and len(bench.failures) > 10:
            return
        # What failed is left behind, and the others are tried.
        first = _last_case(done, first) + 1


def _called(bench: Bench, first: int, cases: int, seconds: float) -> Ended:
    wished = ["--seed", bench.seed, "--first", first, "--cases", cases, "--seconds", f"{seconds:.0f}", "--loaders"]
    program = [bench.tools.python, ROOT / "python/tests/random_calls.py", *wished]
    return ended(["sh", "-c", _LIMITED, *program], seconds + 300, cwd=bench.folder)


def _judge(bench: Bench, done: Ended, first: int) -> None:
    for gave, raised in re.findall(r"(\d+) gave a result, (\d+) raised", done.out):
        bench.counts["calls"] += int(gave) + int(raised)
        bench.counts["calls that gave a result"] += int(gave)
        bench.counts["calls that raised"] += int(raised)
    if done.code != 0 or done.is_late:
        number = _last_case(done, first)
        lines = [line for line in done.said.splitlines() if not line.startswith("case ")]
        bench.counts["calls"] += number - first + 1
        bench.fail(f"call {number} ended with {done.code}: {done.out.strip()} {' '.join(lines)[-600:]}\n    (--case {number})")


def _last_case(done: Ended, first: int) -> int:
    return int((re.findall(r"^case (\d+)$", done.said, re.MULTILINE) or [first])[-1])
