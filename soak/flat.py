"""Loaders and training for as long as there is time. After a while nothing may grow, be it memory, threads or registrations."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from .bench import ROOT, Bench, Skipped
from .built import emulator
from .process import killed, proc_numbers, started
from .training import prepare, recipes

WHAT = "loaders and training, watched: memory, descriptors, threads, registrations and pinned bytes"
SHARE = 0
# Growth that is none.
MOST_GROWTH = 0.01
# Of the time until nothing new is made any more.
WARM_UP = 1 / 3
_FEWEST_SAMPLES = 30
_SECONDS_A_SAMPLE = 2
PROGRAMS = ("train", "loaders", "trainer", "emulated-loaders", "emulated-trainer")
# What the emulator counts, as programs on it tell.
_HOST = ("host_allocations", "host_bytes", "registrations", "registered_bytes")
LIVE = (*_HOST, "device_bytes", "streams", "events", "graphs", "modules")
# Priority below everything else: it has all the time there is.
_NICE = 9


@dataclass
class Watched:
    """A program that goes on, and what was seen of it."""

    name: str
    child: subprocess.Popen
    samples: list[dict[str, float]] = field(default_factory=list)
    told: dict[str, int] = field(default_factory=dict)

    def listen(self) -> None:
        for line in self.child.stdout:
            if line.startswith(b"{"):
                self.told = json.loads(line)

    def look(self, at: float) -> None:
        numbers = proc_numbers(self.child.pid)
        if numbers is not None and self.child.poll() is None:
            live = {name: self.told[name] for name in LIVE if name in self.told}
            self.samples.append({"at": at, **numbers, **live})


def run(bench: Bench) -> None:
    all_watched, begun = _begun(bench), time.monotonic()
    try:
        while bench.left() > 0:
            time.sleep(min(_SECONDS_A_SAMPLE, max(0.1, bench.left())))
            for watched in all_watched:
                watched.look(time.monotonic() - begun)
                if watched.child.poll() is not None:
                    bench.fail(f"{watched.name} has ended with {watched.child.returncode}; see {bench.folder}")
                    all_watched.remove(watched)
                    break
    finally:
        for watched in all_watched:
            killed(watched.child)
            watched.child.wait()
    for watched in all_watched:
        _judge(bench, watched)
    bench.counts["minutes"] = round((time.monotonic() - begun) / 60)
    bench.counts["programs"] = len(all_watched)


def _begun(bench: Bench) -> list[Watched]:
    recipe = recipes()[0]
    prepare(bench.tools, recipe)
    shutil.rmtree(bench.folder, ignore_errors=True)
    bench.folder.mkdir(parents=True)
    flags = ["--epochs", "100000000", *_without_epochs(recipe.flags), "--threads", "1", "--evaluate-every", "10", "--json"]
    commands: dict[str, list[Any]] = {"train": [bench.tools.program, "train", recipe.data, "-o", bench.folder / "run", *flags]}
    try:
        emulator(bench.tools)
        has_emulator = True
    except Skipped as why:
        bench.skip(f"{why}; registrations and pinned bytes are not watched")
        has_emulator = False
    for name in PROGRAMS[1:] if bench.tools.python.exists() else ():
        command = [bench.tools.python, "-m", "soak.flat_loop", name, bench.folder / name]
        if not name.startswith("emulated"):
            commands[name] = command
        elif has_emulator:
            commands[name] = [ROOT / "emulator/run.sh", *command]
    wanted = bench.tools.watched or PROGRAMS
    return [_watched(bench, name, command) for name, command in commands.items() if name in wanted]


def _watched(bench: Bench, name: str, command: list[Any]) -> Watched:
    environment = {**os.environ, "HEADWATER_EMULATOR": str(bench.tools.emulator), "HWEMU_SMS": "4"}
    with (bench.folder / f"{name}.said").open("wb") as said:
        child = started(["nice", "-n", _NICE, *command], cwd=ROOT, env=environment, stderr=said)
    watched = Watched(name, child)
    threading.Thread(target=watched.listen, daemon=True).start()
    return watched


# The time, and the share of pages that other processes have too: it changes when these end.
_NOT_JUDGED = ("at", "pss_bytes")


def _judge(bench: Bench, watched: Watched) -> None:
    """Medians of bytes and the least counts of the two halves after the warm-up. What a round opens and closes again is in neither
    least count, and what is never closed lifts it."""
    samples = watched.samples
    (bench.folder / f"{watched.name}.json").write_text(json.dumps(samples))
    settled = [sample for sample in samples if sample["at"] >= samples[-1]["at"] * WARM_UP] if samples else []
    if len(settled) < _FEWEST_SAMPLES:
        bench.remarks.append(f"{watched.name}: {len(settled)} samples are too few to say anything")
        return
    first, second = settled[: len(settled) // 2], settled[len(settled) // 2 :]
    seen = {"rounds": watched.told.get("rounds"), "epochs": watched.told.get("epoch")}
    for name in (name for name in settled[-1] if name not in _NOT_JUDGED):
        level = statistics.median if name.endswith("bytes") else min
        before, after = (level([one.get(name, 0) for one in half]) for half in (first, second))
        growth = (after - before) / max(before, 1)
        seen[name] = {"first_half": before, "second_half": after, "growth": round(growth, 5)}
        if growth > MOST_GROWTH:
            bench.fail(f"{name} of {watched.name} grew by {100 * growth:.2f}%, from {before:.0f} to {after:.0f}")
    bench.details[watched.name] = seen


def _without_epochs(flags: list[str]) -> list[str]:
    at = flags.index("--epochs")
    return [*flags[:at], *flags[at + 2 :]]
