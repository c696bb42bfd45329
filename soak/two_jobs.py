"""Two programs on one folder: one of them has it, the other is told so, and the run is what it would have been alone."""

from __future__ import annotations

import os
import time

from .bench import Bench, Case, Failed
from .process import ended, finished, killed, started
from .training import RUN_SECONDS, Recipe, check_same, command, go_on, has_begun, next_command, prepare, recipes

WHAT = "two jobs on one folder: of a run, and of a dataset"
SHARE = 1
CASES = 40


def run(bench: Bench) -> None:
    known = [recipe for recipe in recipes() if recipe.graph is not None]
    for case in bench.cases(CASES):
        attempt = case.random.choice([_two_runs, _two_runs, _two_datasets])
        bench.tried(case, lambda: attempt(bench, case, case.random.choice(known)))


def _two_runs(bench: Bench, case: Case, recipe: Recipe) -> None:
    prepare(bench.tools, recipe)
    run = case.folder / "run"
    first = started(command(bench.tools, recipe, run, []))
    # Together, or while the other one is at it.
    if case.random.random() < 0.7:
        time.sleep(case.random.uniform(0, 0.9) * recipe.seconds)
    second = started(next_command(bench.tools, recipe, run, []))
    ends = [finished(child, RUN_SECONDS) for child in (first, second)]
    for end in ends:
        if end.check_sound().code != 0:
            end.check_refused(str(run))
            bench.counts["refused"] += 1
    if all(end.code != 0 for end in ends):
        raise Failed(f"neither of two jobs ran: {ends[0].shown()} | {ends[1].shown()}")
    if not has_begun(run):
        raise Failed(f"nothing is left of the run in {run}")
    go_on(bench.tools, recipe, run).check_done()
    check_same(recipe, run)
    bench.counts["pairs of runs"] += 1


def _two_datasets(bench: Bench, case: Case, recipe: Recipe) -> None:
    data = case.folder / "data"
    wanted = [bench.tools.program, "generate", *recipe.graph, "-o", data]
    first, second = started(wanted), started(wanted)
    if case.random.random() < 0.5:
        time.sleep(case.random.uniform(0, 0.03))
        killed(first)
        first.communicate()
        finished(second, RUN_SECONDS).check_sound()
    else:
        ends = [finished(child, RUN_SECONDS).check_sound() for child in (first, second)]
        if all(end.code != 0 for end in ends):
            raise Failed(f"neither of two jobs made the dataset: {ends[0].shown()} | {ends[1].shown()}")
    if not data.exists():
        ended(wanted).check_done()
        # What the killed one had begun went before the next one began.
        if os.listdir(case.folder) != ["data"]:
            raise Failed(f"{os.listdir(case.folder)} are left in {case.folder}")
    ended([bench.tools.program, "inspect", data]).check_done()
    bench.counts["pairs of datasets"] += 1
