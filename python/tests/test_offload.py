"""Activations that leave for disk and come back, of models on the CPU."""

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from headwater.offload import OffloadError  # noqa: E402
from offload_cases import CASES, ROWS, WIDTH, data, gradients, mlp, same  # noqa: E402
from torch import nn  # noqa: E402


def offload(folder, **settings):
    return headwater.Offload(**{"host": 1 << 20, "slot": 4096, "smallest": 0, "disk": folder, "device": "cpu", "allow_buffered": True, **settings})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("host", [1 << 20, 64 << 10], ids=["roomy", "tight"])
def test_gradients_are_the_same_to_the_bit(case, host, tmp_path):
    off = offload(tmp_path, host=host)
    expected = gradients(case, "cpu")
    for ways in ({}, {"inside": True}, {"twice": True}):
        assert same(gradients(case, "cpu", off, **ways), gradients(case, "cpu", **ways) if ways.get("twice") else expected), ways
    assert off.report().blocks > 0
    gc.collect()
    assert off._sites[torch.device("cpu")].raw.held() == (0, 0)


@pytest.mark.parametrize("case", [mlp, *(case for case in CASES if case.__name__ in ("transposes", "slices", "strides", "tied"))])
def test_gradients_of_gradients(case, tmp_path):
    assert same(gradients(case, "cpu", offload(tmp_path), second=True), gradients(case, "cpu", second=True))


def test_several_forwards_before_one_backward(tmp_path):
    """Accumulation, the order of pipelines, and passes that save nothing in between."""
    nets, off = [nn.Linear(WIDTH, WIDTH) for _ in range(3)], offload(tmp_path, host=64 << 10)
    x = data("cpu", ROWS, WIDTH)

    def run(context):
        for net in nets:
            net.zero_grad()
        losses = []
        for net in nets:
            with context:
                losses.append(net(x.clone()).tanh().exp().sum())
                with torch.no_grad():
                    net(x).tanh()
        losses[1].backward()
        (losses[0] + losses[2]).backward()
        return [parameter.grad.clone() for net in nets for parameter in net.parameters()]

    import contextlib

    assert same(run(off), run(contextlib.nullcontext()))


def test_what_is_changed_after_it_was_saved_is_an_error(tmp_path):
    for smallest in (0, "1GB"):
        off = offload(tmp_path, smallest=smallest)
        for change in (lambda y: y.add_(1), lambda y: y.mul_(0), lambda y: y[0].zero_()):
            weight = data("cpu", ROWS, WIDTH, requires_grad=True)
            with off:
                y = weight * 2
                out = y.exp()
                loss = (y * y).sum() + out.sum()
            change(y)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        weight = data("cpu", ROWS, WIDTH, requires_grad=True)
        with off:
            out = weight.exp()
        del out


def test_a_weight_changed_by_an_optimiser_before_backward_is_an_error(tmp_path):
    net, off = nn.Linear(WIDTH, WIDTH), offload(tmp_path)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    with off:
        loss = net(data("cpu", ROWS, WIDTH, requires_grad=True)).square().sum()
    net.weight.grad = torch.ones_like(net.weight)
    optimiser.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_parameters_buffers_and_what_others_hold_stay(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3 * WIDTH, WIDTH))
            self.frozen = nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False)
            self.register_buffer("scale", torch.randn(ROWS, WIDTH))

        def forward(self, x):
            return (x @ self.weight[:WIDTH].t() @ self.frozen.t() * self.scale).sum()

    net, off = Net(), offload(tmp_path, smallest=1024)
    held = data("cpu", ROWS, WIDTH) * 2
    for _ in range(3):
        with off:
            net(held.requires_grad_(False)).backward()
    kept = off.report().kept
    # `scale` always, and `held` when it was seen to be there after the first step.
    assert kept["parameter"][0] == 3 and kept["held by others"][0] == 3 + 2
    assert off.report().blocks == 1, off.report()


def test_an_abandoned_graph_leaves_nothing(tmp_path):
    off = offload(tmp_path)
    for _ in range(5):
        weights, loss = mlp("cpu")
        with off:
            made = loss()
        del made, weights, loss
    with pytest.raises(KeyError), off:
        weights, loss = mlp("cpu")
        made = loss()
        raise KeyError
    del made, weights, loss
    gc.collect()
    assert off._sites[torch.device("cpu")].raw.held() == (0, 0)
    assert same(gradients(mlp, "cpu", off), gradients(mlp, "cpu"))


def test_memory_goes_when_bytes_have_left(tmp_path):
    off = offload(tmp_path)
    weight = data("cpu", ROWS, WIDTH, requires_grad=True)
    with off:
        hidden = weight * 2
        loss = hidden.exp().square().sum()
    storage = torch.multiprocessing.reductions.StorageWeakRef(hidden.untyped_storage())
    del hidden
    off._sites[torch.device("cpu")]._let_go(off._sites[torch.device("cpu")].raw.drained())
    assert storage.expired()
    loss.backward()


def test_two_hundred_steps_hold_no_more_than_ten(tmp_path):
    off = offload(tmp_path, host=64 << 10)

    def held():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count(), off.report().host, len(off._sites[torch.device("cpu")]._line)

    for step in range(200):
        gradients(mlp, "cpu", off)
        if step == 10:
            early = held()
    assert held() == early


def test_boundaries_of_checkpoints_leave_however_they_are_passed(tmp_path):
    net = nn.Linear(WIDTH, WIDTH)

    def blocks(run):
        off = offload(tmp_path, smallest=ROWS * WIDTH * 4)
        x = data("cpu", ROWS, WIDTH, requires_grad=True) * 2
        with off:
            loss = run(x).sum()
        loss.backward()
        return off.report()

    def positional(x):
        return torch.utils.checkpoint.checkpoint(lambda hidden: net(hidden).tanh(), x, use_reentrant=False)

    def by_keyword(x):
        return headwater.checkpoint(lambda rest, *, hidden: net(hidden["x"]).tanh() + len(rest), [1, 2], hidden={"x": x})

    assert blocks(positional).blocks == blocks(by_keyword).blocks == 1
    # What is computed again is needed at once.
    assert blocks(by_keyword).kept.get("recomputed", (0, 0))[0] == 0


def damage(folder):
    for entry in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{entry}"
        if os.path.exists(path) and os.readlink(path).startswith(str(folder)):
            with open(path, "r+b", buffering=0) as file:
                for at in range(0, os.fstat(file.fileno()).st_size, 4096):
                    file.seek(at + 5)
                    file.write(b"\x55")


def test_bytes_that_were_damaged_on_disk_are_an_error_and_never_data(tmp_path):
    off = offload(tmp_path, host=32 << 10)
    expected = gradients(mlp, "cpu")
    weights, loss = mlp("cpu")
    with off:
        made = loss()
    site = off._sites[torch.device("cpu")]
    until = time.monotonic() + 20
    while json.loads(site.raw.counts())["written"] < 2 * 4096 or site.raw.is_near(0):
        assert time.monotonic() < until
        site.raw.drained()
    time.sleep(0.1)
    damage(tmp_path)
    with pytest.raises(OffloadError, match="damaged on disk"):
        made.backward()
    del made, loss, weights
    gc.collect()
    # The next step is as any other.
    assert same(gradients(mlp, "cpu", off), expected)


def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path):
    off = offload(tmp_path, host=64 << 10, disk_bytes=8192)
    assert same(gradients(mlp, "cpu", off), gradients(mlp, "cpu"))
    assert off.report().disk_most <= 8192
    with pytest.raises(OffloadError, match="preallocate"):
        offload(tmp_path, disk_bytes=1 << 60)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"host": "much"}, "host is 'much'"),
        ({"host": -1}, "host is -1"),
        ({"host": True}, "host is True"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"gpu": "1GB"}, "gpu is given"),
        ({"disk": None}, "disk is not given"),
        ({"slot": 100}, "slot_bytes is 100"),
        ({"slot": 4096, "host": 4096}, "host_bytes is 4096"),
        ({"disk": "/nowhere/at/all"}, "/nowhere/at/all cannot hold activations"),
        ({"disk": []}, "disk names no folder"),
    ],
)
def test_settings_that_make_no_sense(settings, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        offload(tmp_path, **settings)


def test_sizes():
    from headwater.offload.context import in_bytes

    assert [in_bytes("x", size) for size in (0, 7, "1KB", "1.5 GiB", "2mb", "12B")] == [0, 7, 1000, 3 << 29, 2_000_000, 12]


def test_a_report_says_when_nothing_left(tmp_path):
    off = offload(tmp_path, smallest="1GB")
    assert same(gradients(mlp, "cpu", off), gradients(mlp, "cpu"))
    report = off.report()
    assert report.warnings == ["nothing has left the device"] and "nothing has left" in str(report)
    assert report.as_dict()["kept"]["small"][0] > 0


def run(text, **settings):
    """Another Python, with the cases at hand and an offloader of its own."""
    head = f"""
        import os, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import headwater, torch
        from offload_cases import gradients, mlp, same
        torch.set_num_threads(1)
        off = headwater.Offload(host=32 << 10, slot=4096, smallest=0, device="cpu", allow_buffered=True, **{settings!r})
        weights, loss = mlp("cpu")
        with off:
            made = loss()
        print("saved", flush=True)
    """
    text = textwrap.dedent(head) + textwrap.dedent(text)
    return subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_forked_process_keeps_its_own(tmp_path):
    child = run(
        """
        child = os.fork()
        if child == 0:
            fine = same(gradients(mlp, "cpu", off), gradients(mlp, "cpu"))
            os._exit(0 if fine and any("forked" in why for why in off._tally._report.kept) else 1)
        assert os.waitpid(child, 0)[1] == 0
        made.backward()
        assert same([weight.grad for weight in weights], gradients(mlp, "cpu")[1:])
        """,
        disk=str(tmp_path),
    )
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors.decode()


def test_threads_with_an_offloader_each_and_one_together(tmp_path):
    shared, expected, found = offload(tmp_path), gradients(mlp, "cpu"), []

    def work(own):
        for _ in range(5):
            found.append(same(gradients(mlp, "cpu", own), expected))

    threads = [threading.Thread(target=work, args=(own,)) for own in (shared, shared, offload(tmp_path))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 15 and all(found)


def test_collections_in_hooks_and_objects_in_cycles(tmp_path):
    off = offload(tmp_path)

    class Cycle:
        pass

    for _ in range(3):
        cycle = Cycle()
        cycle.own, cycle.loss = cycle, None
        weights, loss = mlp("cpu")
        with off:
            cycle.loss = loss()
            gc.collect()
        gone = weakref.ref(cycle)
        del cycle, weights, loss
        gc.collect()
        assert gone() is None
    assert off._sites[torch.device("cpu")].raw.held() == (0, 0)


def test_a_killed_process_leaves_nothing(tmp_path):
    process = run("sys.stdin.read()", disk=str(tmp_path))
    assert process.stdout.readline() == b"saved\n"
    assert os.listdir(tmp_path) == []
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert os.listdir(tmp_path) == []


def test_an_interpreter_that_ends_with_graphs_alive(tmp_path):
    process = run("", disk=str(tmp_path))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and b"Error" not in errors, errors.decode()
