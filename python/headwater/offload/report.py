"""What an offloader did, in numbers and words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from .site import Site


def shown(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


@dataclass
class Report:
    """Sums since the offloader was made. Bytes unless a name says otherwise."""

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
    waited_ms: float = 0.0
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)
    disk_engine: str = ""
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The same, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"left the device: {shown(self.left)} in {self.blocks} blocks, {self.shared} more tensors saw the same bytes",
            f"came back: {shown(self.came_early)} before they were needed, {shown(self.came_late)} when they were, "
            f"{shown(self.forwarded)} had not gone yet",
            f"host memory: {shown(self.host_most)} at most, {shown(self.host)} held",
        ]
        if self.disk_engine:
            lines.append(
                f"disk: {shown(self.written)} written, {shown(self.read)} read, {shown(self.disk_most)} at most, "
                f"waited for {self.waited_ms:.1f} ms, by {self.disk_engine}"
            )
        lines += [f"kept, {why}: {shown(nbytes)} in {count} tensors" for why, (count, nbytes) in sorted(self.kept.items())]
        return "\n".join(lines + [f"warning: {words}" for words in self.warnings])


class Tally:
    """Counts what Python sees; the rest is counted where it is done."""

    def __init__(self) -> None:
        self._report = Report()

    def keep(self, why: str, tensor: Tensor) -> None:
        count, nbytes = self._report.kept.get(why, (0, 0))
        # Others have bytes in several places.
        is_plain = not tensor.is_nested and tensor.layout == torch.strided
        self._report.kept[why] = (count + 1, nbytes + (tensor.nbytes if is_plain else 0))

    def leave(self) -> None:
        self._report.blocks += 1

    def share(self) -> None:
        self._report.shared += 1

    def forward(self, nbytes: int) -> None:
        self._report.forwarded += nbytes

    def early(self, nbytes: int) -> None:
        self._report.came_early += nbytes

    def late(self, nbytes: int) -> None:
        self._report.came_late += nbytes

    def report(self, sites: Iterable[Site]) -> Report:
        made = Report(**asdict(self._report))
        for site in sites:
            counts = json.loads(site.raw.counts())
            for name in ("written", "read", "writes_cancelled", "host", "host_most", "disk_most", "overdraft"):
                setattr(made, name, getattr(made, name) + counts[name])
            made.left += counts["down"]
            made.waited_ms += counts["waited_ns"] / 1e6
            made.disk_engine = counts["disk_engine"] or made.disk_engine
            if counts["disk_fault"]:
                made.warnings.append(f"nothing more is written to disk: {counts['disk_fault']}")
        if made.blocks == 0 and made.kept:
            made.warnings.append("nothing has left the device")
        return made
