"""What came of a soak, as a table, as JSON and as a page."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .bench import Bench


def outcome(bench: Bench, seconds: float) -> dict[str, Any]:
    """A campaign in numbers."""
    return {
        "name": bench.name,
        "seconds": round(seconds, 1),
        "counts": dict(bench.counts),
        "failures": bench.failures,
        "skipped": bench.skipped,
        "remarks": bench.remarks,
        "details": bench.details,
    }


def table(outcomes: list[dict[str, Any]]) -> str:
    """For people, at the end of a run."""
    lines = []
    for one in outcomes:
        counts = ", ".join(f"{count} {what}" for what, count in one["counts"].items())
        verdict = f"{len(one['failures'])} FAILED" if one["failures"] else "ok"
        lines.append(f"{one['name']:<13} {one['seconds']:7.0f} s  {verdict:<9} {counts}")
        lines += [f"{'':<15}skipped: {why}" for why in one["skipped"]]
        lines += [f"{'':<15}{remark}" for remark in one["remarks"]]
    failures = [f"{one['name']}: {failure}" for one in outcomes for failure in one["failures"]]
    return "\n".join([*lines, *failures, "all campaigns passed" if not failures else f"{len(failures)} failures"])


def markdown(report: dict[str, Any], campaigns: dict[str, ModuleType]) -> str:
    """The same as a page."""
    machine = report["machine"]
    lines = [
        f"# Soak of {machine['commit']}",
        "",
        f"{machine['system']}, {machine['cores']} cores, seed {report['seed']}, at most {report['minutes']:g} minutes.",
        "",
        "| campaign | seconds | counts | failures |",
        "| --- | --- | --- | --- |",
    ]
    for one in report["campaigns"]:
        counts = ", ".join(f"{count} {what}" for what, count in one["counts"].items())
        about = f"{one['name']}: {campaigns[one['name']].WHAT}"
        lines.append(f"| {about} | {one['seconds']:.0f} | {counts} | {len(one['failures'])} |")
    for one in report["campaigns"]:
        for kind in ("failures", "skipped", "remarks"):
            lines += [f"\n{one['name']}, {kind}: {text}" for text in one[kind]]
    return "\n".join(lines) + "\n"
