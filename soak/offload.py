"""Activations that leave and come back: random programs and random models on the emulator that holds work back, models of others there, and
training that is killed while it writes to disk."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from .bench import ROOT, Bench, Case, Failed, Skipped, Tools
from .built import emulator, test_programs
from .process import Ended, ended

WHAT = "activations that leave: 10,000 random programs, 1,000 random models, models of others, and 400 kills"
SHARE = 4
# Of these rounds, each has so many.
_ROUNDS, _PROGRAMS, _MODELS, _KILLS = 10, 1000, 100, 40
_SECONDS = 1800


def build(tools: Tools) -> list[tuple[str, str]]:
    """Folder and path of the test program of the crate."""
    emulator(tools)
    return test_programs("headwater_offload")


def run(bench: Bench) -> None:
    ((folder, program),) = build(bench.tools)
    for case in bench.cases(_ROUNDS):
        # What was drawn once is not drawn again, whichever seed comes next.
        at = (bench.seed - 1) * _ROUNDS + case.number
        bench.tried(case, lambda: _programs(bench, at, folder, program))
        if bench.tools.python.exists():
            bench.tried(case, lambda: _models(bench, at))
            bench.tried(case, lambda: _kills(bench, case))
        else:
            bench.skip(f"there is no {bench.tools.python}; `make installed` makes it")
    if bench.only_case is None and bench.left() > 0 and bench.tools.python.exists():
        _others(bench)


def _programs(bench: Bench, at: int, folder: str, program: str) -> None:
    wished = [program, "device::schedules", "--nocapture", "--test-threads=1"]
    done = _held(bench, wished, at * _PROGRAMS, _PROGRAMS, cwd=folder).check_done()
    _count(bench, done, r"(\d+) programs: (\d+) blocks left", "programs", "blocks of programs that left")


def _models(bench: Bench, at: int) -> None:
    done = _held(bench, _pytest(bench, "test_offload_programs.py", "-s"), at * _MODELS, _MODELS).check_done()
    _count(bench, done, r"(\d+) models, (\d+) bytes left", "models", "bytes of models that left")


def _kills(bench: Bench, case: Case) -> None:
    folder = case.folder / "activations"
    folder.mkdir(mode=0o700)
    program = [bench.tools.python, ROOT / "python/tests/offload_kills.py", folder, _KILLS, case.random.randrange(1 << 30)]
    found = json.loads(ended(program, _SECONDS).check_done().out)
    if found["left"] or found["held"] > found["reserved"] // 2:
        raise Failed(f"killed training left {found}")
    for doing, count in found["killed"].items():
        bench.counts[f"killed while {doing}"] += count


def _others(bench: Bench) -> None:
    """Every model in every way to every tier."""
    done = _held(bench, _pytest(bench, "test_offload_models.py"), 0, 1)
    if done.is_late or done.code != 0:
        bench.fail(f"models of others: {(done.out + done.said)[-1500:]}")
    _count(bench, done, r"(\d+) passed", "models of others, ways and tiers")


def _pytest(bench: Bench, name: str, *flags: str) -> list[Any]:
    flags = ("-q", "-p", "no:cacheprovider", f"--basetemp={bench.folder / 'pytest'}", "-m", "streams", *flags)
    return [bench.tools.python, "-m", "pytest", *flags, ROOT / "python/tests" / name]


def _held(bench: Bench, command: list[Any], first: int, count: int, **wished: Any) -> Ended:
    environment = {
        **os.environ,
        "HEADWATER_EMULATOR": str(bench.tools.emulator),
        "HEADWATER_SCHEDULES": f"{first}..{first + count}",
        "HEADWATER_SOAK": "1",
        "HWEMU_COUNT_RACES": "1",
        "HWEMU_ORDER": str(bench.seed),
    }
    return ended([ROOT / "emulator/run.sh", *command], _SECONDS, env=environment, **{"cwd": ROOT, **wished})


def _count(bench: Bench, done: Ended, pattern: str, *names: str) -> None:
    found = re.search(pattern, done.out)
    if found is None:
        raise Failed(f"nothing was told of {names[0]}: {done.shown()}")
    for name, number in zip(names, found.groups()):
        bench.counts[name] += int(number)
