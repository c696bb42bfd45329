"""Disks that a GPU reaches by itself, with the emulator's cuFile. A real machine that has them runs the same."""

import ctypes
import os

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from offload_cases import CASES, gradients, same  # noqa: E402

USUAL = {"nvfs": 1, "p2p": 0, "parameters": 1, "file": 0, "most": 0, "fail_reads": 0, "fail_writes": 0, "flip": 0, "late_ms": 0}


@pytest.fixture
def cufile(gpu):
    """Sets what the machine has, which has just been started."""
    path = os.environ.get("HEADWATER_LIBCUFILE", "")
    if not os.path.exists(path) or not hasattr(ctypes.CDLL(path), "hwemu_cufile"):
        pytest.skip("needs the emulator's cuFile")
    library = ctypes.CDLL(path)
    library.cuFileDriverClose_v2()

    def put(**settings):
        for name, value in settings.items():
            library.hwemu_cufile(name.encode(), ctypes.c_long(value))

    put(**USUAL)
    yield put
    library.cuFileDriverClose_v2()
    put(**{**USUAL, "nvfs": 0})


def device_of(gpu):
    return gpu if torch.cuda.is_available() else "cpu"


def offload(folder, gds="64KiB", **settings):
    return headwater.Offload(**{"disk": folder, "slot": 4096, "smallest": 0, "policy": "all", "gds": gds, **settings})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_gradients_are_the_same_to_the_bit(case, gpu, cufile, tmp_path):
    device, off = device_of(gpu), offload(tmp_path)
    for ways in ({}, {"inside": True}, {"twice": True}):
        expected = gradients(case, device, **({} if "inside" in ways else ways))
        assert same(gradients(case, device, off, **ways), expected), ways
    report = off.report()
    assert report.blocks > 0 and report.disk_engine == "cuFile (nvidia-fs 2.25)"
    assert "GPU memory on the way" in str(report)


def test_what_was_opened_is_what_is_used(gpu, cufile, tmp_path):
    device, off = device_of(gpu), offload(tmp_path)
    assert off.report().gds and "GPU memory on the way" in str(off.report())
    # Later faults of files that are open already do not matter, and a disk that fails does not end a step.
    cufile(file=1, fail_writes=1000)
    expected = gradients(CASES[0], device)
    assert same(gradients(CASES[0], device, off), expected)
    cufile(file=0, fail_writes=0)


def test_the_ring_is_all_that_is_taken(gpu, cufile, tmp_path):
    """One graph goes back while another has all of the ring: the disk takes that one's block meanwhile."""
    device, off = device_of(gpu), offload(tmp_path, gds="8KiB")
    for _ in range(3):
        graphs = []
        for _ in range(4):
            with off:
                x = torch.arange(1500.0, device=device).requires_grad_()
                graphs.append((x, (x * 2).exp().sum()))
        for x, loss in graphs:
            loss.backward()
        wanted = [torch.autograd.grad((x * 2).exp().sum(), x)[0] for x, _ in graphs]
        assert all(torch.equal(x.grad, own) for (x, _), own in zip(graphs, wanted))
    report = off.report()
    assert (report.overdraft, report.host) == (0, 8192), report


def test_a_machine_without_it_says_so(gpu, cufile, tmp_path):
    cufile(nvfs=0)
    with pytest.raises((ValueError, RuntimeError), match="GPUDirect Storage is not available"):
        offload(tmp_path, gds=True)
    device, off = device_of(gpu), offload(tmp_path, gds="auto", host="64KiB", allow_buffered=True)
    assert same(gradients(CASES[0], device, off), gradients(CASES[0], device))
    report = off.report()
    assert "GPUDirect Storage is not available" in report.why_no_gds and report.why_no_gds in str(report)
    assert "cuFile" not in report.disk_engine and report.blocks > 0
    small = offload(tmp_path, gds="auto", gpu="100MB", host="64KiB", allow_buffered=True)
    assert "gpu is '100MB'" in small.report().why_no_gds
    cufile(nvfs=1, file=1)
    with pytest.raises(ValueError, match="no direct way to a GPU"):
        offload(tmp_path, gds=True)


def test_settings_that_contradict_it_are_refused(tmp_path):
    for settings, words in (
        ({"gds": True}, "disk is not given"),
        ({"gds": True, "disk": tmp_path, "device": "cpu"}, "device is 'cpu'"),
        ({"gds": True, "disk": tmp_path, "host": "1GB"}, "host is given"),
        ({"gds": True, "disk": tmp_path, "allow_buffered": True}, "allow_buffered is given"),
        ({"gds": "4KiB", "disk": tmp_path}, "two slots"),
        ({"gds": "yes", "disk": tmp_path}, "gds is 'yes'"),
        ({"gds": True, "disk": tmp_path, "gpu": "100MB"}, "gpu is '100MB'"),
    ):
        with pytest.raises(ValueError, match=words):
            headwater.Offload(**settings)
