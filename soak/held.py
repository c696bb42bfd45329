"""Device tests of `train` and `compile` on the emulator that holds the work of streams back: too slow for `make races`.

Each test is a process of its own, in an order and with an order of streams that the seed draws, as many as there is time for.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from .bench import ROOT, Bench, Failed, Skipped, Tools
from .process import ended

WHAT = "device tests of train and compile on the held emulator, with several seeds"
SHARE = 5
CRATES = ("headwater_train", "headwater_compile")
ORDERS = 3
# Types of elements do not matter to streams, and there are many.
_SKIPPED = ("every_type_in_and_out",)
_TEST_SECONDS, _BUILD_SECONDS = 900, 3600


def run(bench: Bench) -> None:
    programs = build(bench.tools)
    tests = [(program, test) for program in programs for test in _tests(program)]
    every = [(order, *test) for order in range(ORDERS) for test in bench.drawn(order).sample(tests, len(tests))]
    numbers = range(len(every)) if bench.only_case is None else [bench.only_case]
    for number in numbers:
        # A test may take a minute, so the last one may end a minute late.
        if bench.left() <= 0:
            bench.remarks.append(f"the time was over after {number} of {len(every)}")
            break
        order, program, test = every[number]
        _held(bench, number, f"{bench.seed}{order}", program, test)
    bench.counts["tests there are"] = len(tests)


def _held(bench: Bench, number: int, order: str, program: tuple[str, str], test: str) -> None:
    environment = {**os.environ, "HEADWATER_EMULATOR": str(bench.tools.emulator), "HWEMU_ORDER": order}
    wished = [program[1], test, "--exact", "--test-threads=1"]
    done = ended([ROOT / "emulator/run.sh", *wished], _TEST_SECONDS, cwd=program[0], env=environment)
    bench.counts["tests run"] += 1
    bench.details[f"{number}"] = {"test": test, "order": order, "seconds": round(done.seconds, 1), "code": done.code}
    if done.is_late or done.code != 0:
        bench.fail(f"{test} with HWEMU_ORDER={order}: {(done.out + done.said)[-1500:]}\n    (--case {number})")


def build(tools: Tools) -> list[tuple[str, str]]:
    """Folder and path of each test program. The whole workspace is built, as by `make test`: other stages have built that."""
    if ended(["sh", "-c", "command -v g++"]).code != 0:
        raise Skipped("there is no g++, which compiles kernels for the emulator; `apt install g++` installs it")
    ended([ROOT / "emulator/build.sh", tools.emulator], _BUILD_SECONDS).check_done()
    wished = ["cargo", "test", "--workspace", "--lib", "--no-run", "--message-format=json"]
    done = ended(wished, _BUILD_SECONDS, cwd=ROOT)
    if done.code != 0:
        raise Failed(f"the tests cannot be built: {done.shown()}")
    messages = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    built = [one for one in messages if one.get("executable") and one["profile"]["test"] and one["target"]["name"] in CRATES]
    return [(str(Path(one["manifest_path"]).parent), one["executable"]) for one in built]


def _tests(program: tuple[str, str]) -> list[str]:
    listed = ended([program[1], "device", "--list", "--format=terse"], cwd=program[0]).check_done().out
    names = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    return [name for name in names if not any(word in name for word in _SKIPPED)]
