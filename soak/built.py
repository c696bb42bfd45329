"""What campaigns build: the emulator, and the test programs of the crates."""

from __future__ import annotations

import json
from pathlib import Path

from .bench import ROOT, Failed, Skipped, Tools
from .process import ended

_SECONDS = 3600


def emulator(tools: Tools) -> None:
    """The emulator, without sanitizers."""
    if ended(["sh", "-c", "command -v g++"]).code != 0:
        raise Skipped("there is no g++, which compiles the emulator and its kernels; `apt install g++` installs it")
    ended(["make", "-s", f"-j{tools.jobs}", "-C", ROOT / "emulator", f"OUT={tools.emulator}"], _SECONDS).check_done()


def test_programs(*names: str) -> list[tuple[str, str]]:
    """Folder and path of each of these. The whole workspace is built, as by `make test`: other stages have built that."""
    wished = ["cargo", "test", "--workspace", "--lib", "--tests", "--no-run", "--message-format=json"]
    done = ended(wished, _SECONDS, cwd=ROOT)
    if done.code != 0:
        raise Failed(f"the tests cannot be built: {done.shown()}")
    messages = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    built = [one for one in messages if one.get("executable") and one["profile"]["test"] and one["target"]["name"] in names]
    return [(str(Path(one["manifest_path"]).parent), one["executable"]) for one in built]


def tests_of(program: tuple[str, str], words: str) -> list[str]:
    """Tests with these words in their names."""
    listed = ended([program[1], words, "--list", "--format=terse"], cwd=program[0]).check_done().out
    return [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
