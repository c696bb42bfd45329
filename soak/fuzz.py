"""Every fuzz target for its part of the time. What it finds interesting is kept below target/ and tried first the next time."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from .bench import ROOT, Bench, Failed, Skipped, Tools
from .process import Ended, ended

WHAT = "every target of fuzz/, under AddressSanitizer"
SHARE = 4
TRIPLE = "x86_64-unknown-linux-gnu"
# What cargo-fuzz sets, which is then not needed. The passes are those that libFuzzer reads coverage from.
_FLAGS = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
    "-Cdebug-assertions",
    "-Ccodegen-units=1",
    "-Zsanitizer=address",
]
_BUILD_SECONDS = 3600
# Longest that one input may take, and most memory that it may ask for.
_INPUT_SECONDS, _INPUT_MEGABYTES = 25, 2048


def targets() -> list[str]:
    return sorted(path.stem for path in (ROOT / "fuzz/fuzz_targets").glob("*.rs"))


def run(bench: Bench) -> None:
    programs = build(bench.tools)
    names = targets() if bench.only_case is None else [targets()[bench.only_case]]
    for at, name in enumerate(names):
        seconds = max(5, int(bench.left() / (len(names) - at)))
        done = fuzzed(bench, programs / name, name, seconds)
        executions = int((re.findall(r"stat::number_of_executed_units:\s*(\d+)", done.said) or ["0"])[0])
        bench.counts["executions"] += executions
        bench.details[name] = {"executions": executions, "seconds": round(done.seconds), "corpus": _corpus_size(name)}
        bench.say(f"{name}: {executions} executions in {done.seconds:.0f} s, {bench.details[name]['corpus']} inputs kept")
        if done.is_late or done.code != 0:
            found = sorted(str(path) for path in _artifacts(bench, name).iterdir())
            bench.fail(f"{name} ended with {done.code}, inputs {found}: {done.said[-1500:]}")
    bench.counts["targets"] += len(names)


def build(tools: Tools) -> Path:
    """The folder of the programs."""
    if shutil.which("rustup") is None or "nightly" not in ended(["rustup", "toolchain", "list"]).out:
        raise Skipped("there is no nightly compiler; `rustup toolchain install nightly` installs it")
    folder = ROOT / "target/fuzz"
    command = ["rustup", "run", "nightly", "cargo", "build", "--release", "--bins", "-j", tools.jobs, "--target", TRIPLE]
    # Without the settings of the caller, which may name another linker or target.
    environment = {**os.environ, "RUSTFLAGS": " ".join(_FLAGS), "CARGO_TARGET_DIR": str(folder)}
    done = ended(command, _BUILD_SECONDS, cwd=ROOT / "fuzz", env=environment)
    if done.code != 0:
        raise Failed(f"the targets cannot be built: {done.shown()}")
    return folder / TRIPLE / "release"


def fuzzed(bench: Bench, program: Path, name: str, seconds: int) -> Ended:
    """One target for so long."""
    corpus, artifacts = _corpus(name), _artifacts(bench, name)
    for folder in (corpus, artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    folders = [corpus, *(folder for folder in [ROOT / "fuzz/seeds" / name] if folder.is_dir())]
    # Leaks are not looked for: the thread that reads ahead may outlive a refused input by a moment.
    wishes = {
        "max_total_time": seconds,
        "seed": bench.seed,
        "detect_leaks": 0,
        "timeout": _INPUT_SECONDS,
        "rss_limit_mb": _INPUT_MEGABYTES,
        "print_final_stats": 1,
        "artifact_prefix": f"{artifacts}/",
    }
    wished = [f"-{name}={value}" for name, value in wishes.items()]
    return ended([program, *wished, *folders], seconds + 120 + _INPUT_SECONDS, cwd=ROOT / "fuzz")


def _corpus(name: str) -> Path:
    return ROOT / "target/corpus" / name


def _artifacts(bench: Bench, name: str) -> Path:
    return bench.folder / "found" / name


def _corpus_size(name: str) -> int:
    return len(os.listdir(_corpus(name)))
