"""What a campaign works on: its time, its seed, its folder, and what it counts and finds."""

from __future__ import annotations

import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

# A campaign that finds so many stops: more of them say nothing new.
MOST_FAILURES = 20
ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Tools:
    """Programs that campaigns start, and where they may write."""

    program: Path
    python: Path
    emulator: Path
    out: Path
    # Programs that `flat` watches; all without.
    watched: tuple[str, ...] = ()
    # Passed on to builds, so that a soak takes no more of the machine than it should.
    jobs: int = 2


@dataclass
class Case:
    """One thing that is tried. All that is random in it comes out of its seed."""

    number: int
    random: random.Random
    folder: Path


class Failed(Exception):
    """A case that went wrong, in words."""


class Skipped(Exception):
    """What cannot be tried on this machine, and why."""


@dataclass
class Bench:
    """A campaign in progress."""

    name: str
    seed: int
    tools: Tools
    ends_at: float
    # The one case that is wanted, where one is repeated.
    only_case: Optional[int] = None
    counts: Counter = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def folder(self) -> Path:
        """Everything the campaign writes."""
        return self.tools.out / self.name

    def left(self) -> float:
        """Seconds that are left of its share."""
        return self.ends_at - time.monotonic()

    def drawn(self, number: int) -> random.Random:
        """The random numbers of a case."""
        return random.Random(f"{self.seed}/{self.name}/{number}")

    def cases(self, most: int) -> Iterator[Case]:
        """Cases until there are enough or the time is over. The folder of one that passed is removed."""
        numbers = range(most) if self.only_case is None else [self.only_case]
        for number in numbers:
            if self.left() <= 0:
                self.remarks.append(f"the time was over after {number} of {most}")
                return
            if len(self.failures) >= MOST_FAILURES:
                self.remarks.append(f"given up after {number} of {most}")
                return
            folder = self.folder / f"case-{number}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            found = len(self.failures)
            yield Case(number, self.drawn(number), folder)
            if len(self.failures) == found:
                shutil.rmtree(folder, ignore_errors=True)

    def tried(self, case: Case, attempt: Any) -> bool:
        """Runs one case. What it raises is noted with the command that repeats it."""
        try:
            attempt()
        except Failed as why:
            self.fail(str(why), case)
            return False
        except Skipped as why:
            self.skip(str(why))
        return True

    def fail(self, said: str, case: Optional[Case] = None) -> None:
        again = f"python3 -m soak --only {self.name} --seed {self.seed}"
        if case is not None:
            again += f" --case {case.number}"
            said = f"case {case.number}: {said} (left in {case.folder})"
        with self._lock:
            self.failures.append(f"{said}\n    again: {again}")
        self.say(f"FAILED {said}\n    again: {again}")

    def skip(self, why: str) -> None:
        if why not in self.skipped:
            self.skipped.append(why)
            self.say(f"skipped: {why}")

    def say(self, words: str) -> None:
        print(f"[{self.name}] {words}", file=sys.stderr, flush=True)
