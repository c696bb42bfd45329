"""Runs of `headwater train` and what is left of them: weights and figures that must be the same, whatever happened on the way."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any, Optional

from .bench import Failed, Tools
from .process import Ended, ended, started

# Longest that any of these runs may take: the longest takes 10 s of a core, and machines are shared.
RUN_SECONDS = 600
_SMALL = ["--hidden", "16", "--device", "cpu"]
_SAMPLED = ["--full-graph", "false", "--batch", "128", "--fanout", "4,4"]
# Figures of a run that say how long it took, or what was done since it went on.
_OF_THE_CLOCK = {
    "epoch_seconds", "seconds", "evaluate_seconds", "sample_seconds", "gather_seconds", "compute_seconds", "peak_bytes",
    "epochs", "features", "gpu_features", "feature_hit_rate", "run_dir",
}  # fmt: skip


@dataclass
class Recipe:
    """A run: what is trained, on what."""

    name: str
    flags: list[str]
    # Arguments of `headwater generate`; without them the program makes up its own graph in the folder of the run.
    graph: Optional[list[str]] = None
    weight: int = 4
    # Made once.
    data: Optional[Path] = None
    seconds: float = 0.0
    want: dict[str, Any] = field(default_factory=dict)


def recipes() -> list[Recipe]:
    """Every kind of run once: sampled and whole graphs, one type of nodes and several, features in memory and on disk."""
    planted = ["planted", "--nodes", "4000", "--classes", "5", "--features", "16"]
    mag = ["--like", "mag", "--scale", "0.0005"]
    return [
        Recipe("sage", [*_SMALL, *_SAMPLED, "--epochs", "12"], planted),
        Recipe("disk", [*_SMALL, *_SAMPLED, "--epochs", "12", "--features", "disk", "--checkpoint-every", "3"], planted),
        Recipe("tiered", [*_SMALL, *_SAMPLED, "--epochs", "10", "--features", "tiered", "--keep", "4"], planted),
        Recipe("gat", [*_SMALL, *_SAMPLED, "--model", "gat", "--epochs", "8", "--schedule", "cosine"], planted),
        Recipe("gcn", [*_SMALL, "--model", "gcn", "--full-graph", "--epochs", "60", "--patience", "9"], planted),
        Recipe("rgcn", [*_SMALL, *_SAMPLED, "--model", "rgcn", "--epochs", "12", "--norm", "batch"], mag),
        Recipe("own graph", ["--hidden", "16", "--fanout", "3,3", "--epochs", "2", "--device", "cpu"], None, 1),
    ]


def prepare(tools: Tools, recipe: Recipe) -> None:
    """Makes the graph and the undisturbed run, once in a campaign."""
    if recipe.want:
        return
    folder = tools.out / "recipes" / recipe.name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if recipe.graph is not None:
        recipe.data = folder / "data"
        ended([tools.program, "generate", *recipe.graph, "-o", recipe.data]).check_done()
    done = begin(tools, recipe, folder / "undisturbed").check_done()
    recipe.seconds, recipe.want = done.seconds, result(folder / "undisturbed")


def prepare_half(tools: Tools, recipe: Recipe) -> Path:
    """A run of the first half of the epochs, to be copied. Epochs that a schedule ends with are told when it goes on."""
    prepare(tools, recipe)
    half = tools.out / "recipes" / recipe.name / "half"
    if not half.exists():
        at = recipe.flags.index("--epochs") + 1
        flags = [*recipe.flags[:at], str(int(recipe.flags[at]) // 2), *recipe.flags[at + 1 :]]
        begin(tools, replace(recipe, flags=flags), half).check_done()
    return half


def command(tools: Tools, recipe: Recipe, run: Path, more: list[str]) -> list[Any]:
    """The command that begins a run."""
    data = [] if recipe.data is None else [recipe.data]
    return [tools.program, "train", *data, "-o", run, *recipe.flags, *more]


def has_begun(run: Path) -> bool:
    """Whether there is a run to go on with."""
    return (run / "config.toml").exists()


def next_command(tools: Tools, recipe: Recipe, run: Path, more: list[str]) -> list[Any]:
    """The command of a user who was interrupted: go on where there is a run, else begin."""
    return [tools.program, "train", "--resume", run, *more] if has_begun(run) else command(tools, recipe, run, more)


def begin(tools: Tools, recipe: Recipe, run: Path, more: Optional[list[str]] = None, **wished: Any) -> Ended:
    return ended(command(tools, recipe, run, more or []), RUN_SECONDS, **wished)


def go_on(tools: Tools, recipe: Recipe, run: Path, more: Optional[list[str]] = None, **wished: Any) -> Ended:
    return ended(next_command(tools, recipe, run, more or []), RUN_SECONDS, **wished)


def launched(tools: Tools, recipe: Recipe, run: Path, more: list[str], said: Path, **wished: Any) -> Popen:
    """The same, without waiting for its end. What it says goes to a file."""
    with said.open("ab") as file:
        streams = {"stdout": DEVNULL, "stderr": file}
        return started(next_command(tools, recipe, run, more), **streams, **wished)


def check_same(recipe: Recipe, run: Path, may_lack_lines: bool = False) -> None:
    """The run has come to what the undisturbed one came to, to the bit. Lines that found no room, as it said, may be missing."""
    found = result(run, recipe.want)
    if may_lack_lines:
        missing = [line for line in recipe.want["figures"] if line not in found["figures"]]
        found["figures"] = sorted(found["figures"] + missing, key=lambda line: line.get("epoch", 0))
        # A summary is of the lines that are there.
        found["summary"] = recipe.want["summary"] if missing else found["summary"]
    for name, want in recipe.want.items():
        if found[name] != want:
            raise Failed(f"{name} of {run} ({recipe.name}) differ: {_difference(want, found[name])}")
    left = [name for folder in (run, run / "checkpoints") for name in os.listdir(folder) if name.endswith(".partial")]
    if left:
        raise Failed(f"{run} has files that nobody finished: {left}")


def result(run: Path, names: Iterable[str] = ("weights", "figures", "summary")) -> dict[str, Any]:
    """What a run came to, without what depends on the clock."""
    readers = {"weights": _weights, "figures": _figures, "summary": _summary}
    try:
        return {name: readers[name](run) for name in names}
    except (OSError, ValueError) as why:
        raise Failed(f"the results of {run} cannot be read: {why}") from None


def _weights(run: Path) -> dict[str, Any]:
    return {path.name: weights_of(path) for path in sorted((run / "checkpoints").glob("*.safetensors"))}


def _figures(run: Path) -> list[dict[str, Any]]:
    return [_timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]


def _summary(run: Path) -> dict[str, Any]:
    return _timeless(json.loads((run / "summary.json").read_text()))


def weights_of(path: Path) -> dict[str, Any]:
    """A checkpoint as digests of its arrays and its state. The journal is longer or shorter by the digits of times."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    texts = header.pop("__metadata__")
    meta = next(json.loads(text) for text in texts.values() if text.startswith("{"))
    for name in ("journal_bytes", "journal_sum"):
        meta["state"].pop(name, None)
    pieces = {name: data[end + one["data_offsets"][0] : end + one["data_offsets"][1]] for name, one in header.items()}
    return {"state": meta, **{name: hashlib.blake2b(piece).hexdigest() for name, piece in pieces.items()}}


def _timeless(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if name not in _OF_THE_CLOCK}


def _difference(want: Any, found: Any) -> str:
    if isinstance(want, dict) and isinstance(found, dict):
        names = [name for name in {**want, **found} if want.get(name) != found.get(name)]
        return "; ".join(f"{name}: {_difference(want.get(name), found.get(name))}" for name in names[:3])
    if isinstance(want, list) and isinstance(found, list) and len(want) != len(found):
        return f"{len(want)} wanted, {len(found)} found"
    if isinstance(want, list) and isinstance(found, list):
        return next(f"at {at}: {_difference(*pair)}" for at, pair in enumerate(zip(want, found)) if pair[0] != pair[1])
    return f"{want!r:.80} wanted, {found!r:.80} found"
