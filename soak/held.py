"""Device tests of `train` and `compile` on the emulator that holds the work of streams back: too slow for `make races`.

Each test is a process of its own, in an order and with an order of streams that the seed draws, as many as there is time for.
"""

from __future__ import annotations

import os

from .bench import ROOT, Bench, Tools
from .built import emulator, test_programs, tests_of
from .process import ended

WHAT = "device tests of train and compile on the held emulator, with several seeds"
SHARE = 5
CRATES = ("headwater_train", "headwater_compile")
ORDERS = 3
# Types of elements do not matter to streams, and there are many.
_SKIPPED = ("every_type_in_and_out",)
_TEST_SECONDS = 900


def run(bench: Bench) -> None:
    tests = [(program, test) for program in build(bench.tools) for test in _tests(program)]
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
    """Folder and path of each test program."""
    emulator(tools)
    return test_programs(*CRATES)


def _tests(program: tuple[str, str]) -> list[str]:
    return [name for name in tests_of(program, "device") if not any(word in name for word in _SKIPPED)]
