"""Loops over PyG loaders that are killed at random moments and go on until they are done."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Optional

from .bench import ROOT, Bench, Case, Failed, Skipped
from .process import killed, started

WHAT = "a Python loop over loaders, killed and resumed until it is done"
SHARE = 3
CASES = 100
MOST_KILLS = 4
RECIPES = ["plain", "weighted", "links", "typed"]
# Longest that one loop may take, and torch to be imported.
LOOP_SECONDS, IMPORT_SECONDS = 300, 600


def run(bench: Bench) -> None:
    loops = _Loops(bench)
    known: dict[str, tuple[bytes, float]] = {}
    try:
        for case in bench.cases(CASES):
            recipe = case.random.choice(RECIPES)
            if recipe not in known:
                known[recipe] = _undisturbed(bench, loops, recipe)
            bench.tried(case, lambda: _case(bench, case, loops, recipe, *known[recipe]))
            if (case.number + 1) % 20 == 0:
                bench.say(f"{case.number + 1} loops, {bench.counts['kills']} kills, {bench.left():.0f} s left")
    finally:
        loops.close()


def _undisturbed(bench: Bench, loops: _Loops, recipe: str) -> tuple[bytes, float]:
    folder = bench.folder / "undisturbed" / recipe
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    begun = time.monotonic()
    if loops.ran(recipe, 0, folder, None) != 0:
        raise Failed(f"the undisturbed loop {recipe} failed; see {loops.said}")
    return (folder / "batches").read_bytes(), time.monotonic() - begun


def _case(bench: Bench, case: Case, loops: _Loops, recipe: str, want: bytes, seconds: float) -> None:
    for _ in range(case.random.randint(1, MOST_KILLS)):
        code = loops.ran(recipe, case.random.choice([0, 1, 3]), case.folder, case.random.uniform(0, 0.9) * seconds)
        if code != -signal.SIGKILL:
            _check_code(code, recipe, loops)
            bench.counts["done before the kill"] += 1
            break
        bench.counts["kills"] += 1
    if not (case.folder / "done").exists():
        _check_code(loops.ran(recipe, case.random.choice([0, 2]), case.folder, None), recipe, loops)
    found = (case.folder / "batches").read_bytes()
    if found != want:
        pairs = zip(want.split(), found.split())
        first = next((at for at, (one, other) in enumerate(pairs) if one != other), "the end")
        raise Failed(f"batches of {recipe} differ from {first} on: {len(want)} bytes of notes wanted, {len(found)} found")
    bench.counts["loops"] += 1
    bench.counts["batches compared"] += want.count(b"\n")


def _check_code(code: int, recipe: str, loops: _Loops) -> None:
    if code != 0:
        raise Failed(f"a loop over {recipe} ended with {code}; see {loops.said}")


class _Loops:
    """The program that is forked for each loop."""

    def __init__(self, bench: Bench) -> None:
        if not bench.tools.python.exists():
            raise Skipped(f"there is no {bench.tools.python}; `make installed` makes it")
        self.said = bench.folder / "loops.said"
        with self.said.open("wb") as said:
            command = [bench.tools.python, "-m", "soak.loader_loop"]
            self._server = started(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=said)
        self._lines: queue.Queue[Optional[dict[str, Any]]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._wait = IMPORT_SECONDS

    def ran(self, recipe: str, workers: int, folder: Path, kill_after: Optional[float]) -> int:
        """How a loop ended that was killed after so many seconds, unless it ended before."""
        asked = {"recipe": recipe, "workers": workers, "folder": str(folder)}
        self._server.stdin.write(json.dumps(asked).encode() + b"\n")
        self._server.stdin.flush()
        try:
            process = self._line(self._wait)["process"]
        except queue.Empty:
            raise Failed(f"the program that loops are forked from does not answer; see {self.said}") from None
        self._wait = LOOP_SECONDS
        if kill_after is not None:
            try:
                return self._line(kill_after)["code"]
            except queue.Empty:
                os.kill(process, signal.SIGKILL)
        try:
            return self._line(LOOP_SECONDS)["code"]
        except queue.Empty:
            os.kill(process, signal.SIGKILL)
            raise Failed(f"a loop over {recipe} still ran after {LOOP_SECONDS} s; see {self.said}") from None

    def close(self) -> None:
        self._server.stdin.close()
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            killed(self._server)
            self._server.wait()

    def _line(self, seconds: float) -> dict[str, Any]:
        line = self._lines.get(timeout=seconds)
        if line is None:
            raise Failed(f"the program that loops are forked from has ended; see {self.said}")
        return line

    def _read(self) -> None:
        for line in self._server.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)
