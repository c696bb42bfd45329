"""Runs of `headwater train` that are killed at random moments and go on until they are done."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

from .bench import Bench, Case, Failed
from .process import killed_when
from .training import RUN_SECONDS, Recipe, check_same, go_on, has_begun, launched, prepare, recipes

WHAT = "`headwater train`, killed and resumed until it is done"
SHARE = 4
CASES = 100
MOST_KILLS = 4


def run(bench: Bench) -> None:
    known = recipes()
    for case in bench.cases(CASES):
        recipe = case.random.choices(known, [one.weight for one in known])[0]
        bench.tried(case, lambda: _case(bench, case, recipe))
        if (case.number + 1) % 10 == 0:
            bench.say(f"{case.number + 1} runs, {bench.counts['kills']} kills, {bench.left():.0f} s left")


def _case(bench: Bench, case: Case, recipe: Recipe) -> None:
    prepare(bench.tools, recipe)
    run = case.folder / "run"
    for _ in range(case.random.randint(1, MOST_KILLS)):
        # What is learnt does not depend on threads, so they may be others every time.
        threads = ["--threads", str(case.random.choice([1, 2, 3]))]
        moment, pause = _moment(case.random, recipe, run)
        was_begun = has_begun(run)
        if not _killed(bench, case, launched(bench.tools, recipe, run, threads, case.folder / "said"), moment, pause):
            bench.counts["done before the kill"] += 1
            break
        bench.counts["kills"] += 1
        bench.counts["kills of a resumed run" if was_begun else "kills of a first start"] += 1
    go_on(bench.tools, recipe, run).check_done()
    check_same(recipe, run)
    bench.counts["runs"] += 1


def _killed(bench: Bench, case: Case, child: Popen, moment: Callable[[], bool], pause: float) -> bool:
    was_killed = killed_when(child, moment, RUN_SECONDS, pause)
    said = (case.folder / "said").read_text(errors="replace")
    if "panicked at" in said or (not was_killed and child.returncode != 0):
        raise Failed(f"ended with {child.returncode}: {' '.join(child.args)}: {said[-600:]}")
    return was_killed


def _moment(drawn: random.Random, recipe: Recipe, run: Path) -> tuple[Callable[[], bool], float]:
    """When to kill: after a random time, or just when a file is being written, which is where it could hurt most."""
    if drawn.random() < 0.6:
        at = time.monotonic() + drawn.uniform(0, 0.9) * recipe.seconds
        return lambda: time.monotonic() >= at, 0.0005
    which, seen = drawn.randint(1, 12), set()

    def is_time() -> bool:
        for folder in (run, run / "checkpoints"):
            seen.update(path.name for path in folder.glob(".*.partial"))
        return len(seen) >= which

    return is_time, 0.0002
