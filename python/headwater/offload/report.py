"""What an offloader did, in numbers and words."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Optional

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from .peak import StepPeaks
    from .site import Block, Site


def shown(count: float) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} PB"


@dataclass
class StepPlan:
    """What was expected of steps, and how those went that kept to it. `peak` is that of activations, above what was allocated when a step
    began, and `peak_measured` the most that such steps took; none before one was measured. Rates are bytes a second."""

    steps: int
    peak: int
    peak_measured: Optional[int]
    peak_kept: int
    stall_ms: float
    stall_measured_ms: float
    step_ms: float
    base: int
    moved: int
    written: int
    rate_needed: float
    rate_down: float
    rate_up: float
    limit: str

    def __str__(self) -> str:
        share = 100 * (1 - self.peak / max(self.peak_kept, 1))
        measured = "" if self.peak_measured is None else f" ({shown(self.peak_measured)} measured)"
        return (
            f"plan: {shown(self.moved)} leave in each step of {self.step_ms:.1f} ms, activations take {shown(self.peak)}{measured} instead of "
            f"{shown(self.peak_kept)} ({share:.0f} % less), the GPU waits {self.stall_ms:.2f} ms ({self.stall_measured_ms:.2f} measured, "
            f"{self.steps} steps); {_LIMITS[self.limit]} ({self.rate_needed / 1e9:.1f} GB/s would be needed, the link has "
            f"{self.rate_down / 1e9:.1f})"
        )


_DAY_S, _YEAR_S = 24 * 3600.0, 365 * 24 * 3600.0

_LIMITS = {
    "nothing": "all of them leave",
    "time": "more would make steps longer",
    "space": "there is no room for more",
    "peak": "more would not have left by the peak",
    "enough": "more is not needed",
    "rate": "all is kept, since less than a fifth of the peak would have left in time",
}


@dataclass
class Report:
    """Sums since the offloader was made. Bytes unless a name says otherwise. Training lasts from the first forward pass to the last tensor
    that was needed; `disk_years` are those until `endurance` bytes are written, if it goes on like this.

    `activation_peak` is the most that a step had allocated above what was allocated when it began, as `StepPeaks` measures it; of all GPUs
    the one with the most, and none on a CPU. `peak` is the most that torch had allocated at once, weights and optimiser states included,
    since it was told to forget that (`torch.cuda.max_memory_allocated`).

    `is_comparing` while steps with hooks are compared with steps without, in which all stays that has room: nothing leaves by the plan yet.
    `is_host_bound` where that found hooks to cost more than they may."""

    left: int = 0
    blocks: int = 0
    shared: int = 0
    forwarded: int = 0
    came_early: int = 0
    came_late: int = 0
    written: int = 0
    read: int = 0
    writes_cancelled: int = 0
    host: int = 0
    host_most: int = 0
    disk_most: int = 0
    overdraft: int = 0
    training_s: float = 0.0
    written_per_s: float = 0.0
    endurance: Optional[int] = None
    disk_years: Optional[float] = None
    waited_ms: float = 0.0
    stalled_ms: float = 0.0
    steps: int = 0
    skipped: int = 0
    is_host_bound: bool = False
    is_comparing: bool = False
    activation_peak: Optional[int] = None
    peak: int = 0
    plan: Optional[StepPlan] = None
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)
    disk_engine: str = ""
    gds: bool = False
    why_no_gds: str = ""
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The same, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"left the device: {shown(self.left)} in {self.blocks} blocks, {self.shared} more tensors saw the same bytes",
            f"came back: {shown(self.came_early)} before they were needed, {shown(self.came_late)} when they were, "
            f"{shown(self.forwarded)} had not gone yet",
            f"{'GPU memory on the way' if self.gds else 'host memory'}: {shown(self.host_most)} at most, {shown(self.host)} held",
        ]
        if self.disk_engine:
            lines.append(
                f"disk: {shown(self.written)} written, {shown(self.read)} read, {shown(self.disk_most)} at most, "
                f"waited for {self.waited_ms:.1f} ms, by {self.disk_engine}"
            )
        if self.why_no_gds:
            lines.append(f"the GPU does not reach the disk by itself: {self.why_no_gds}")
        if self.written_per_s > 0:
            lines.append(self._wear())
        aside = f", and {self.skipped} more forward passes were left alone" if self.skipped else ""
        lines.append(f"the GPU waited {self.stalled_ms:.1f} ms for copies in {self.steps} steps{aside}")
        if self.activation_peak is not None:
            lines.append(
                f"activations took {shown(self.activation_peak)} at most, above what was allocated when a step began; "
                f"torch had {shown(self.peak)} allocated at most, weights included"
            )
        if self.plan is not None:
            lines.append(str(self.plan))
        if self.is_comparing:
            lines.append("all that has room is kept for now: a few steps with hooks are compared with a few without")
        if self.is_host_bound:
            lines.append("all is kept meanwhile: the GPU waits for the host, and hooks make steps longer than `slack` allows")
        lines += [f"kept, {why}: {shown(nbytes)} in {count} tensors" for why, (count, nbytes) in sorted(self.kept.items())]
        return "\n".join(lines + [f"warning: {words}" for words in self.warnings])

    def _wear(self) -> str:
        wear = f"disk life: {shown(self.written_per_s)} are written in each second of training, {shown(self.written_per_s * _DAY_S)} a day"
        if self.disk_years is None:
            return f"{wear}; with `endurance`, this says how long disks last"
        return f"{wear}; {shown(self.endurance or 0)} last {self.disk_years:.2g} years of it"


class Tally:
    """Counts what Python sees; the rest is counted where it is done."""

    def __init__(self, endurance: Optional[int] = None) -> None:
        self._report = Report(endurance=endurance)
        self._begun: Optional[float] = None
        self._last = 0.0
        # Of all blocks, those that stay as well.
        self.seen_bytes = 0

    def moment(self) -> None:
        """Training goes on."""
        self._last = time.monotonic()
        if self._begun is None:
            self._begun = self._last

    def warn(self, words: str) -> None:
        self._report.warnings.append(words)

    def note_way(self, is_direct: bool, why: str = "") -> None:
        """Whether the GPU reaches disks by itself, or why not."""
        self._report.gds, self._report.why_no_gds = is_direct, why

    def keep(self, why: str, tensor: Tensor) -> None:
        count, nbytes = self._report.kept.get(why, (0, 0))
        # Others have bytes in several places.
        is_plain = not tensor.is_nested and tensor.layout == torch.strided
        self._report.kept[why] = (count + 1, nbytes + (tensor.nbytes if is_plain else 0))

    def save(self, block: Block) -> None:
        self.seen_bytes += block.nbytes
        if block.kept is None:
            self._report.blocks += 1
            return
        why = "no room" if block.stored is not None and block.stored.leaves is None else "planned"
        count, nbytes = self._report.kept.get(why, (0, 0))
        self._report.kept[why] = (count + 1, nbytes + block.nbytes)

    def skip(self, is_too_slow: bool) -> None:
        self._report.skipped += 1
        self._report.is_host_bound = is_too_slow

    @property
    def skipped(self) -> int:
        return self._report.skipped

    def share(self) -> None:
        self._report.shared += 1

    def forward(self, nbytes: int) -> None:
        self._report.forwarded += nbytes

    def early(self, nbytes: int) -> None:
        self._report.came_early += nbytes

    def late(self, nbytes: int) -> None:
        self._report.came_late += nbytes

    def report(self, sites: Iterable[Site], *, keeps_for_now: bool = False) -> Report:
        """What was counted; `keeps_for_now` while plans are not kept to, since hooks are compared."""
        made = replace(self._report, kept=dict(self._report.kept), warnings=list(self._report.warnings))
        for site in sites:
            counts = json.loads(site.raw.counts())
            for name in ("written", "read", "writes_cancelled", "host", "host_most", "disk_most", "overdraft"):
                setattr(made, name, getattr(made, name) + counts[name])
            made.left += counts["down"]
            made.waited_ms += counts["waited_ns"] / 1e6
            made.stalled_ms += counts["stalled_ns"] / 1e6
            steps = json.loads(site.raw.steps())
            made.steps, made.plan = _steps(steps, made, site.peaks)
            if steps.get("slow_disk"):
                made.warnings.append(steps["slow_disk"])
            if site.place is not None:
                made.peak = max(made.peak, site.place.memory_use()[1])
            if site.peaks.most is not None:
                made.activation_peak = max(made.activation_peak or 0, site.peaks.most)
            made.disk_engine = counts["disk_engine"] or made.disk_engine
            if counts["disk_fault"]:
                made.warnings.append(f"nothing more is written to disk: {counts['disk_fault']}")
        made.training_s = 0.0 if self._begun is None else self._last - self._begun
        if made.written > 0 and made.training_s > 0:
            made.written_per_s = made.written / made.training_s
            made.disk_years = None if made.endurance is None else made.endurance / made.written_per_s / _YEAR_S
        made.is_comparing = keeps_for_now and made.plan is not None and made.plan.moved > 0
        if made.blocks == 0 and made.kept and not made.is_comparing and (made.plan is None or made.plan.moved > 0):
            made.warnings.append("nothing has left the device")
        return made


def _steps(found: dict[str, Any], before: Report, peaks: StepPeaks) -> tuple[int, Optional[StepPlan]]:
    """Steps of all devices, and the plan of the last that has one."""
    steps, expected = before.steps + found["steps"], found["expected"]
    if expected is None:
        return steps, before.plan
    planned = found["planned_steps"]
    return steps, StepPlan(
        steps=planned,
        peak=expected["peak_bytes"],
        peak_measured=peaks.planned_most if peaks.is_of(expected) else None,
        peak_kept=found["kept"]["peak_bytes"],
        stall_ms=1e3 * expected["stall_s"],
        stall_measured_ms=1e3 * found["planned_stall_s"] / max(planned, 1),
        step_ms=1e3 * expected["step_s"],
        base=found["base_bytes"],
        moved=expected["moved_bytes"],
        written=expected["written_bytes"],
        rate_needed=found["needed_rate"],
        rate_down=found["rates"]["down"],
        rate_up=found["rates"]["up"],
        limit=found["limit"],
    )
