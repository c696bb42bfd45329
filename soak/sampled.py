"""Tests that take a sample with every change take all of it: sets of defines of kernels, orders of plans, widths, random layers."""

from __future__ import annotations

import os

from .bench import ROOT, Bench, Tools
from .built import test_programs, tests_of
from .process import ended

WHAT = "all of what `make test` samples"
SHARE = 4
# By program, what the names of such tests have in them.
_TESTS = {
    "it": ("nvrtc::every_kernel_compiles",),
    "headwater_compile": ("plans_test::every_plan_of", "every_layer_of_every_width", "random_test::"),
}
_SECONDS = 1800


def build(_tools: Tools) -> list[tuple[str, str]]:
    """Folder and path of each test program."""
    return test_programs(*_TESTS)


def run(bench: Bench) -> None:
    environment = {**os.environ, "HEADWATER_SOAK": "1"}
    compiler = ROOT / "target/venv/nvrtc.stamp"
    if compiler.exists():
        environment["HEADWATER_REAL_NVRTC"] = compiler.read_text().strip()
    else:
        bench.skip("NVRTC is not there; `make target/venv/nvrtc.stamp` installs it")
    for name, words in _TESTS.items():
        for program in test_programs(name):
            for test in [test for word in words for test in tests_of(program, word)]:
                if bench.left() <= 0:
                    bench.remarks.append(f"the time was over before {test}")
                    return
                done = ended([program[1], test, "--exact"], _SECONDS, cwd=program[0], env=environment)
                bench.counts["tests run"] += 1
                bench.details[test] = {"seconds": round(done.seconds, 1), "code": done.code}
                if done.is_late or done.code != 0:
                    bench.fail(f"HEADWATER_SOAK=1 {test}: {(done.out + done.said)[-1500:]}")
