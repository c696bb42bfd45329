"""Runs in a control group with little memory: done, refused or killed by the kernel, and then resumed to the same weights."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from .bench import Bench, Case, Skipped
from .process import ended
from .training import RUN_SECONDS, Recipe, check_same, go_on, next_command, prepare, recipes

WHAT = "runs in a control group with little memory"
SHARE = 1
CASES = 30
_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def run(bench: Bench) -> None:
    known = [recipe for recipe in recipes() if recipe.graph is not None]
    for case in bench.cases(CASES):
        recipe = case.random.choice(known)
        prepare(bench.tools, recipe)
        bench.tried(case, lambda: _case(bench, case, recipe))
        if bench.skipped:
            return


def _case(bench: Bench, case: Case, recipe: Recipe) -> None:
    # The program takes 20 MiB and more, so some of these are too little for it to begin.
    limit, run = case.random.choice([2, 4, 6, 8, 10, 12, 16, 24]) << 20, case.folder / "run"
    with _group(limit) as enter:
        done = ended(next_command(bench.tools, recipe, run, []), RUN_SECONDS, preexec_fn=enter)
    if done.is_late:
        done.check_sound()
    if done.code == -signal.SIGKILL:
        bench.counts["killed by the kernel"] += 1
    elif done.check_sound().code == 0:
        bench.counts["done within the limit"] += 1
    else:
        bench.counts["refused"] += 1
    go_on(bench.tools, recipe, run).check_done()
    check_same(recipe, run)
    bench.counts["runs"] += 1


@contextlib.contextmanager
def _group(limit_bytes: int) -> Iterator[Callable[[], None]]:
    """A group of this process's own one, and what makes a process enter it."""
    parent, limit = _own_group()
    group = parent / f"headwater-soak-{os.getpid()}"
    try:
        group.mkdir(exist_ok=True)
        (group / limit).write_text(str(limit_bytes))
    except OSError as why:
        raise Skipped(f"no control group with a limit can be made: {why}") from None
    # Without this the limit only moves pages out.
    for name in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
        with contextlib.suppress(OSError):
            (group / name).write_text(str(limit_bytes if "memsw" in name else 0))

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    try:
        yield enter
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


def _own_group() -> tuple[Path, str]:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") and _V1.is_dir():
            return _V1 / path.lstrip("/"), "memory.limit_in_bytes"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, _, path = line.split(":", 2)
        if number == "0" and "memory" in _read(_V2 / path.lstrip("/") / "cgroup.controllers").split():
            return _V2 / path.lstrip("/"), "memory.max"
    raise Skipped("this process is in no control group for memory")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
