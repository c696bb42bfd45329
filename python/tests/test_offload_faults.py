"""Disks that fill up, memory that is refused, folders, subclasses and captures: gradients are the same, or an error says what is wrong."""

import contextlib
import os
import resource
import time

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from offload_cases import ROWS, WIDTH, data, gradients, mlp, recurrent, same  # noqa: E402
from test_offload_gpu import device_of  # noqa: E402


def on_disk(folder, **settings):
    return headwater.Offload(**{"host": 32 << 10, "slot": 4096, "smallest": 0, "disk": folder, "device": "cpu", "allow_buffered": True, **settings})


@contextlib.contextmanager
def files_no_longer_than(count):
    """As a disk that is full from there on, for every file of this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_in_mid_step(tmp_path):
    """The file grows by 256 KiB at a time, of which the second does not fit."""
    weight, off = data("cpu", ROWS, WIDTH, requires_grad=True), on_disk(tmp_path)

    def loss():
        x = weight * 2
        for _ in range(8):
            x = x.sin()
        return x.sum()

    def gradient(losses):
        weight.grad = None
        for made in losses:
            made.backward()
        return weight.grad

    losses = []
    with files_no_longer_than(300 << 10):
        # Forward passes, until there was no room for what one of them saved.
        while not off.report().warnings and len(losses) < 200:
            with off:
                losses.append(loss())
            time.sleep(0.005)
        assert torch.equal(gradient(losses), gradient([loss() for _ in losses]))
        losses.clear()
        with off:
            losses.append(loss())
        assert torch.equal(gradient(losses), gradient([loss()])), "the next step does without the disk"
    report = off.report()
    assert "nothing more is written to disk" in str(report) and "File too large" in report.warnings[0]
    assert report.kept["no room"][0] > 0 and 0 < report.disk_most <= 256 << 10
    losses.clear()
    assert off._sites[torch.device("cpu")].raw.held() == (0, 0)


def test_a_folder_that_others_can_write_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ValueError, match="others may write there"):
        on_disk(folder)
    with pytest.raises(ValueError, match="tmpfs lies in host memory"):
        on_disk("/dev/shm")


def test_subclasses_of_tensors_stay(tmp_path):
    class Marked(torch.Tensor):
        pass

    class Dressed(torch.Tensor):
        """One that has no memory of its own."""

        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)

        def __init__(self, inner):
            self.content = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            bare = torch.utils._pytree.tree_map(lambda own: own.content if isinstance(own, cls) else own, (args, kwargs or {}))
            return torch.utils._pytree.tree_map(lambda own: cls(own) if isinstance(own, torch.Tensor) else own, func(*bare[0], **bare[1]))

    for kind in (lambda weight: weight.as_subclass(Marked), Dressed):
        found = []
        for off in (None, on_disk(tmp_path)):
            weight = data("cpu", ROWS, WIDTH)
            own = kind(weight).requires_grad_()
            with off or contextlib.nullcontext():
                loss = (own * 2).exp().sin().sum()
            loss.backward()
            found.append(getattr(own.grad, "content", own.grad).as_subclass(torch.Tensor))
        assert torch.equal(*found)
        # What an operator saves of its own result is plain before it is dressed.
        assert off.report().kept["not a plain tensor"][0] > 0


def test_what_a_stream_records_stays(gpu, monkeypatch):
    device, off = device_of(gpu), headwater.Offload(host=8 << 20, slot=4096, smallest=0, policy="all")
    expected = gradients(mlp, device)
    assert same(gradients(mlp, device, off), expected)
    left = off.report().left
    for site in off._sites.values():
        monkeypatch.setattr(site.place, "is_capturing", lambda: True)
    assert same(gradients(mlp, device, off), expected)
    assert off.report().left == left and off.report().kept["stream capture"][0] > 0


@pytest.mark.parametrize("case", [mlp, recurrent])
def test_pinned_memory_that_is_refused_is_done_without(case, gpu, tmp_path, monkeypatch):
    """A GPU has it; the emulator refuses as much as it is told to."""
    device = device_of(gpu)
    if device != "cpu":
        pytest.skip("the driver refuses nothing")
    expected = gradients(case, device)
    monkeypatch.setenv("HWEMU_REGISTER_BYTES", "1")
    for settings in ({}, {"disk": tmp_path, "allow_buffered": True}):
        off = headwater.Offload(host=64 << 10, slot=4096, smallest=0, policy="all", **settings)
        assert same(gradients(case, device, off), expected)
        report = off.report()
        assert report.left == report.host == 0 and report.kept["no room"][0] > 0
        assert "nothing has left the device" in report.warnings


def test_an_exception_in_a_forward_or_a_backward_leaves_nothing(tmp_path):
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            raise KeyError("broken")

    off, expected = on_disk(tmp_path), gradients(mlp, "cpu")
    weight = data("cpu", ROWS, WIDTH, requires_grad=True)
    for _ in range(3):
        with pytest.raises(KeyError), off:
            hidden = (weight * 2).exp()
            raise KeyError
        with off:
            loss = Breaks.apply((weight * 2).exp()).sin().square().sum()
        with pytest.raises(KeyError, match="broken"):
            loss.backward()
        del loss, hidden
        assert off._sites[torch.device("cpu")].raw.held() == (0, 0)
        assert same(gradients(mlp, "cpu", off), expected)
    assert os.listdir(tmp_path) == []
