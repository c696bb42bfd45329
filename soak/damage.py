"""Files that were cut, flipped, emptied, lengthened or taken away.

Of a run: it goes on from the checkpoint before and comes to the same weights, or refuses and names the file. Of a dataset:
whoever reads all of it (`inspect`, `train --verify`) refuses and names the file; whoever only opens it may compute something
else where a value was flipped, but ends, and without a panic.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

from .bench import Bench, Case, Failed
from .process import Ended, ended
from .training import Recipe, check_same, go_on, prepare, prepare_half, recipes

WHAT = "damaged checkpoints, files of runs, manifests and arrays"
SHARE = 3
CASES = 200


def run(bench: Bench) -> None:
    known = [recipe for recipe in recipes() if recipe.graph is not None]
    for case in bench.cases(CASES):
        recipe = case.random.choice(known)
        prepare(bench.tools, recipe)
        attempt = case.random.choice([_run_files, _run_files, _dataset])
        bench.tried(case, lambda: attempt(bench, case, recipe))
        if (case.number + 1) % 50 == 0:
            bench.say(f"{case.number + 1} cases, {bench.left():.0f} s left")


def _run_files(bench: Bench, case: Case, recipe: Recipe) -> None:
    """A run that stopped half way, one file of which is damaged before it goes on."""
    run, epochs = case.folder / "run", recipe.flags[recipe.flags.index("--epochs") + 1]
    shutil.copytree(prepare_half(bench.tools, recipe), run)
    path = case.random.choice(sorted(path for path in run.rglob("*") if path.is_file()))
    how = damaged(path, case.random)
    done = go_on(bench.tools, recipe, run, ["--epochs", epochs]) if (run / "config.toml").exists() else None
    if done is None or done.check_sound().code != 0:
        # A folder is named where its file is gone.
        _names(done, path, run, how)
        bench.counts["damaged files of runs: refused"] += 1
        return
    # A cosine over fewer epochs has come elsewhere when it is half way.
    if "cosine" not in recipe.flags:
        _same(recipe, run, path, how, done)
    ended([bench.tools.program, "infer", run]).check_done()
    bench.counts["damaged files of runs: went on"] += 1


def _same(recipe: Recipe, run: Path, path: Path, how: str, done: Ended) -> None:
    """Lines of a journal are no reason not to go on, but somebody must hear that they are not what they were."""
    if path.name == "metrics.jsonl" and path.name in done.said:
        recipe = replace(recipe, want={"weights": recipe.want["weights"]})
    try:
        check_same(recipe, run)
    except Failed as why:
        raise Failed(f"{path.name} was {how}, and the run went on to something else: {why}") from None


def _dataset(bench: Bench, case: Case, recipe: Recipe) -> None:
    """A dataset one file of which is damaged."""
    data, program = case.folder / "data", bench.tools.program
    shutil.copytree(recipe.data, data)
    path = case.random.choice(sorted(data.iterdir()))
    how = damaged(path, case.random)
    for wanted in ([program, "inspect", data], [program, "train", data, "-o", case.folder / "run", "--verify", *recipe.flags]):
        done = ended(wanted)
        if done.check_sound().code == 0:
            raise Failed(f"{path.name} was {how}, and nobody noticed: {done.shown()}")
        _names(done, path, data, how)
    plain = ended([program, "train", data, "-o", case.folder / "plain", *recipe.flags]).check_sound()
    came = "trained on without --verify" if plain.code == 0 else "refused"
    bench.counts[f"damaged files of datasets: {came}"] += 1
    ended([program, "export", data, "-o", case.folder / "exported"]).check_sound()


def _names(done: Ended | None, path: Path, folder: Path, how: str) -> None:
    if done is None:
        return
    words = [path.name] if path.exists() else [path.name, str(folder)]
    if path.name == "dataset.json":
        # It says which dataset it was; which of the two was changed nobody knows.
        words.append("is not the dataset of the run")
    try:
        done.check_refused(*words)
    except Failed as why:
        raise Failed(f"{path.name} was {how}: {why}") from None


def damaged(path: Path, drawn: random.Random) -> str:
    """Damages a file, and says how."""
    data = path.read_bytes()
    how = drawn.choice(["cut", "flipped", "flipped", "flipped", "emptied", "lengthened", "removed", "overwritten"])
    at = drawn.randrange(max(1, len(data)))
    if how == "removed":
        path.unlink()
        return how
    if how == "flipped" and data:
        bit = drawn.randrange(8)
        data = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        how = f"flipped in bit {bit} of byte {at}"
    elif how == "cut":
        data, how = data[:at], f"cut to {at} bytes"
    elif how == "lengthened":
        data += drawn.randbytes(drawn.randint(1, 9))
    elif how == "overwritten":
        piece = drawn.randbytes(drawn.randint(1, 64))
        data = data[:at] + piece + data[at + len(piece) :]
    else:
        data = b""
    path.write_bytes(data)
    return how
