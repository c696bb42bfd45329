"""Activations that leave under DDP and FSDP2: losses and gradients are those of runs in which none do, to the bit, also when gradients are
accumulated and parameters are gathered once more for the backward pass."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import headwater  # noqa: E402
from offload_ranks import check, joined, offload, ways  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def test_one_rank(tmp_path):
    with joined(0, 1, tmp_path / "store"):
        for _, wrap in ways():
            check(wrap, "cpu", offload(tmp_path))


def test_two_ranks(tmp_path):
    program = os.path.join(os.path.dirname(__file__), "offload_ranks.py")
    other = subprocess.Popen([sys.executable, program, "1", "2", tmp_path / "store", tmp_path])
    try:
        with joined(0, 2, tmp_path / "store"):
            for _, wrap in ways():
                check(wrap, "cpu", offload(tmp_path))
        assert other.wait(60) == 0
    finally:
        other.kill()


def test_one_rank_on_a_gpu(gpu, tmp_path):
    device = gpu if torch.cuda.is_available() else "cpu"
    with joined(0, 1, tmp_path / "store", "nccl" if torch.cuda.is_available() else "gloo"):
        for _, wrap in ways():
            check(wrap, device, headwater.Offload(host="8MiB", slot=4096, smallest=0, policy="all"))
