"""Disks that are full, files that may not grow, and folders that must not be written.

A run whose results find no room fails and says which file it was, or is done; with room again it goes on to what the
undisturbed run came to. Full disks are small file systems in memory, where this program may mount some.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .bench import Bench, Case, Failed, Skipped
from .process import Ended, ended, finished, started
from .training import RUN_SECONDS, Recipe, begin, check_same, command, go_on, prepare, recipes

WHAT = "full disks, files that may not grow, read-only folders"
SHARE = 2
CASES = 60
NOBODY = 65534


def run(bench: Bench) -> None:
    known = [recipe for recipe in recipes() if recipe.graph is not None]
    kinds = [_full_run, _full_run, _short_files, _full_dataset, _read_only, _taken_away]
    for case in bench.cases(CASES):
        recipe, attempt = case.random.choice(known), kinds[case.number % len(kinds)]
        prepare(bench.tools, recipe)
        bench.tried(case, lambda: attempt(bench, case, recipe))


def _full_run(bench: Bench, case: Case, recipe: Recipe) -> None:
    """A file system that is too small for the run, and then is not."""
    with _mounted(case.folder / "disk", case.random.choice([4, 8, 16, 24, 32, 48, 64, 96])) as disk:
        run = disk / "run"
        _says_why(begin(bench.tools, recipe, run), str(disk), "No space left")
        _remount(disk, "size=64m")
        _goes_on(bench, recipe, run)
    bench.counts["full disks under runs"] += 1


def _short_files(bench: Bench, case: Case, recipe: Recipe) -> None:
    """No file may be longer than so many bytes."""
    run, most = case.folder / "run", case.random.choice([0, 100, 500, 1500, 4000, 9000, 20000])

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    # What a program says goes to pipes, which have no length.
    _says_why(begin(bench.tools, recipe, run, preexec_fn=limited), str(run), "File too large")
    _goes_on(bench, recipe, run)
    bench.counts["limits on the length of files"] += 1


def _full_dataset(bench: Bench, case: Case, recipe: Recipe) -> None:
    """What is made, turned, exported or copied finds no room: nothing is left of it."""
    with _mounted(case.folder / "disk", case.random.choice([4, 16, 40, 100, 200])) as disk:
        out = disk / "out"
        tools, data = bench.tools, recipe.data
        wanted = case.random.choice(
            [
                [tools.program, "generate", *recipe.graph, "-o", out],
                [tools.program, "reorder", data, "-o", out],
                [tools.program, "export", data, "-o", out],
            ]
        )
        done = ended(wanted)
        _says_why(done, str(out), "No space left")
        if done.code != 0 and os.listdir(disk):
            raise Failed(f"{os.listdir(disk)} are left by {done.shown()}")
        _remount(disk, "size=64m")
        shutil.rmtree(out, ignore_errors=True)
        ended(wanted).check_done()
        if wanted[1] != "export":
            ended([tools.program, "inspect", out]).check_done()
    bench.counts["full disks under datasets"] += 1


def _read_only(bench: Bench, case: Case, recipe: Recipe) -> None:
    """A run on a file system that was writable once. What only reads works; what writes is refused and names the place."""
    with _mounted(case.folder / "disk", 64 * 1024) as disk:
        run, program = disk / "run", bench.tools.program
        begin(bench.tools, recipe, run).check_done()
        _remount(disk, "ro")
        ended([program, "infer", run]).check_sound()
        for wanted in (
            [program, "train", "--resume", run, "--epochs", "99"],
            command(bench.tools, recipe, disk / "other", []),
            [program, "generate", *recipe.graph, "-o", disk / "data"],
        ):
            ended(wanted).check_refused(str(disk))
        _remount(disk, "rw")
        _goes_on(bench, recipe, run)
    bench.counts["read-only disks"] += 1


def _taken_away(bench: Bench, case: Case, recipe: Recipe) -> None:
    """A folder that may no longer be written while a run is at it."""
    run, wished = case.folder / "run", _as_nobody(case)
    child = started(command(bench.tools, recipe, run, []), **wished)
    limit = time.monotonic() + recipe.seconds * case.random.uniform(0.1, 0.9)
    while time.monotonic() < limit and child.poll() is None:
        time.sleep(0.002)
    folders = [folder for folder in (run / "checkpoints", run) if folder.exists()]
    for folder in folders:
        folder.chmod(0o555)
    done = finished(child, RUN_SECONDS)
    for folder in folders:
        folder.chmod(0o755)
    _says_why(done, str(run), "Permission denied")
    _goes_on(bench, recipe, run, **wished)
    bench.counts["folders taken away from a run"] += 1


def _goes_on(bench: Bench, recipe: Recipe, run: Path, **wished: Any) -> None:
    """The run comes to what it would have come to. Where nothing of it could be kept, it says so, and another folder is taken."""
    if not list(run.glob("checkpoints/*.safetensors")) and (run / "metrics.jsonl").exists():
        done = go_on(bench.tools, recipe, run, **wished).check_sound()
        if done.code != 0:
            done.check_refused("has no checkpoint, though")
            bench.counts["runs of which nothing could be kept"] += 1
            run = run.with_name("other")
    go_on(bench.tools, recipe, run, **wished).check_done()
    check_same(recipe, run, may_lack_lines=True)


def _says_why(done: Ended, *words: str) -> None:
    """It is done, or says where there was no room."""
    if done.check_sound().code != 0:
        done.check_refused(words[0]).check_refused(*words[1:])


def _as_nobody(case: Case) -> dict[str, Any]:
    """Root may write anywhere, so it lets somebody else run the program."""
    if os.geteuid() != 0:
        return {}
    for path in (case.folder, *case.folder.parents):
        if not path.stat().st_mode & 0o001:
            raise Skipped(f"{path} may not be entered by others, and root may write in read-only folders")
    os.chown(case.folder, NOBODY, NOBODY)
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@contextlib.contextmanager
def _mounted(path: Path, kib: int) -> Iterator[Path]:
    """A file system in memory of so many KiB."""
    path.mkdir()
    done = ended(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", path])
    if done.code != 0:
        raise Skipped(f"no file system can be mounted here: {done.said.strip()}")
    try:
        yield path
    finally:
        ended(["umount", "-l", path])


def _remount(path: Path, option: str) -> None:
    ended(["mount", "-o", f"remount,{option}", path]).check_done()
