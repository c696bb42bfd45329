"""Programs that are started, watched and killed. None may run longer than it is allowed to: a hang is a failure."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from .bench import Failed

# What a Rust program leaves with when it panics.
PANIC = 101


@dataclass
class Ended:
    """How a program ended."""

    command: list[str]
    code: int
    out: str
    said: str
    seconds: float
    is_late: bool = False

    def check_sound(self) -> Ended:
        """Any end is fine but a panic, a signal that nobody sent, and none at all."""
        if self.is_late:
            raise Failed(f"still running after {self.seconds:.0f} s: {self.shown()}")
        if self.code < 0:
            raise Failed(f"ended by signal {signal.Signals(-self.code).name}: {self.shown()}")
        if self.code == PANIC or "panicked at" in self.said:
            raise Failed(f"panicked: {self.shown()}")
        return self

    def check_done(self) -> Ended:
        """It ended well."""
        if self.check_sound().code != 0:
            raise Failed(f"ended with {self.code}: {self.shown()}")
        return self

    def check_refused(self, *words: str) -> Ended:
        """It refused, and one of these words says what."""
        if self.check_sound().code == 0:
            raise Failed(f"was not refused: {self.shown()}")
        if words and not any(word in self.said for word in words):
            raise Failed(f"the refusal names none of {', '.join(words)}: {self.shown()}")
        return self

    def shown(self) -> str:
        tail = (self.said.strip() or self.out.strip())[-600:]
        return f"{' '.join(map(str, self.command))}: {tail}"


def ended(command: list[Any], seconds: float = 300, **wished: Any) -> Ended:
    """Runs a program to its end, or kills it with all that it started when the time is over."""
    return finished(started(command, **wished), seconds)


def finished(child: subprocess.Popen, seconds: float) -> Ended:
    """How a program ends that was started before."""
    begun, is_late = time.monotonic(), False
    try:
        out, said = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        is_late = True
        killed(child)
        out, said = child.communicate()
    took = time.monotonic() - begun
    texts = [text.decode(errors="replace") for text in (out or b"", said or b"")]
    return Ended(list(child.args), child.returncode, *texts, took, is_late)


def started(command: list[Any], **wished: Any) -> subprocess.Popen:
    """A program in a session of its own, so that it can be killed with all it started."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([str(word) for word in command], start_new_session=True, **{**streams, **wished})


def killed(child: subprocess.Popen) -> None:
    """SIGKILL, to the program and to all it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def killed_when(child: subprocess.Popen, is_time: Callable[[], bool], seconds: float, pause: float) -> bool:
    """Kills a program once it is time, unless it ends before. Says whether it was killed."""
    limit = time.monotonic() + seconds
    while child.poll() is None:
        if is_time():
            killed(child)
            child.communicate()
            return child.returncode == -signal.SIGKILL
        if time.monotonic() > limit:
            killed(child)
            child.communicate()
            raise Failed(f"still running after {seconds:.0f} s: {' '.join(map(str, child.args))}")
        if pause:
            time.sleep(pause)
    return False


def proc_numbers(process: int) -> Optional[dict[str, int]]:
    """What the system says of a process; nothing when it is gone."""
    folder = Path("/proc") / str(process)
    try:
        fields = dict(line.split(":", 1) for line in (folder / "smaps_rollup").read_text().splitlines()[1:])
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        descriptors = len(os.listdir(folder / "fd"))
    except (OSError, ValueError):
        return None
    return {
        "rss_bytes": int(fields["Rss"].split()[0]) * 1024,
        "pss_bytes": int(fields["Pss"].split()[0]) * 1024,
        "private_bytes": int(fields["Private_Dirty"].split()[0]) * 1024,
        "descriptors": descriptors,
        "threads": int(status["Threads"]),
    }
