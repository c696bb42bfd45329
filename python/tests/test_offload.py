"""Activations that leave for disk and come back, of models on the CPU."""

import contextlib
import copy
import gc
import json
import os
import threading
import time
import types
import weakref

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from headwater.offload import OffloadError  # noqa: E402
from headwater.offload.trial import Trial  # noqa: E402
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
    site = off._sites[torch.device("cpu")]
    assert site.raw.held() == (0, 0) and not site._leaving, "all memory is free when the graph is gone"


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
    with pytest.raises(OffloadError, match=r"saved tensor of shape \(.*\), torch.float32 that \w+Backward0 needs: .*damaged on disk"):
        made.backward()
    del made, loss, weights
    gc.collect()
    # The next step is as any other.
    assert same(gradients(mlp, "cpu", off), expected)


def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path):
    off = offload(tmp_path, host=32 << 10, disk_bytes=8192)
    assert same(gradients(mlp, "cpu", off), gradients(mlp, "cpu"))
    assert off.report().disk_most <= 8192
    with pytest.raises(OffloadError, match="[0-9]+ bytes are needed there and [0-9]+ are free"):
        offload(tmp_path, disk_bytes=1 << 59)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"host": "much"}, "host is 'much'"),
        ({"host": -1}, "host is -1"),
        ({"host": True}, "host is True"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"gpu": "1GB"}, "gpu is given"),
        ({"disk": None, "allow_buffered": False}, "disk is not given"),
        ({"disk": None, "device": "cuda"}, "allow_buffered .* is given, but disk is not"),
        ({"slot": 100}, "slot is 100"),
        ({"slot": 1 << 40}, "slot is 1099511627776"),
        ({"slot": 4096, "host": 4096}, "host is 4096"),
        ({"host": 10**30}, "host is 1000000"),
        ({"host": "0.5B"}, "host is '0.5B'"),
        ({"disk": "/nowhere/at/all"}, "/nowhere/at/all cannot hold activations"),
        ({"disk": "/nowhere/at/all", "device": "cuda"}, "/nowhere/at/all cannot hold activations"),
        ({"disk": []}, "disk names no folder"),
        ({"disk": ["/tmp", "/tmp/../tmp"]}, "every folder once"),
        ({"disk": b"/tmp"}, "it should be a folder"),
        ({"disk": ""}, "it should be a folder"),
        ({"disk": 5}, "it should be a folder"),
        ({"disk_bytes": 4095}, "disk_bytes is 4095"),
        ({"endurance": 0}, "endurance is 0"),
        ({"endurance": "600 TBW"}, "endurance is '600 TBW'"),
        ({"allow_buffered": "no"}, "allow_buffered is 'no'"),
    ],
)
def test_settings_that_make_no_sense(settings, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        offload(tmp_path, **settings)


def test_sizes():
    from headwater.offload.context import in_bytes

    sizes = (0, 7, "1KB", "1.5 GiB", "2mb", "12B", torch.tensor(5), "0", " 4096 ")
    assert [in_bytes("x", size) for size in sizes] == [0, 7, 1000, 3 << 29, 2_000_000, 12, 5, 0, 4096]


def test_contexts_are_left_where_they_were_entered_and_are_not_copied(tmp_path):
    off = offload(tmp_path, device=torch.device("cpu"))
    with pytest.raises(RuntimeError, match="has not entered"):
        off.__exit__(None, None, None)
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.deepcopy(off)


def both(tmp_path, run):
    """What a run gives without an offloader and with one."""
    found = []
    for context in (contextlib.nullcontext(), offload(tmp_path)):
        torch.manual_seed(3)
        found.append(run(context))
    return found


def test_bytes_that_change_without_being_counted_are_saved_again(tmp_path):
    """Running statistics, memory of NumPy and `.data` have no version."""

    def statistics(context):
        x, mean, variance = torch.randn(16, 8, requires_grad=True), torch.zeros(8), torch.ones(8)
        with context:
            first = nn.functional.batch_norm(x * 3 + 1, mean, variance, training=True, momentum=0.5)
            loss = (first * nn.functional.batch_norm(x * 2, mean, variance, training=False)).square().sum()
        loss.backward()
        return [x.grad]

    def memory(context):
        net, x = nn.Linear(WIDTH, 4), torch.ones(ROWS, WIDTH)
        shown = x.numpy()
        with context:
            alive = net(x).sum()
        shown[:] = 2
        with context:
            loss = net(x).sum()
        x.data.mul_(1)
        loss.backward()
        return [net.weight.grad, alive.detach()]

    for run in (statistics, memory):
        assert same(*both(tmp_path, run))


def test_a_backward_that_changes_what_it_was_given_is_noticed(tmp_path):
    class Changes(torch.autograd.Function):
        @staticmethod
        def forward(context, x, factor):
            context.save_for_backward(factor)
            return x * factor

        @staticmethod
        def backward(context, gradient):
            (factor,) = context.saved_tensors
            return factor.mul_(gradient).clone(), None

    weight = torch.ones(8, 10, requires_grad=True)
    for when in ("at once", "later"):
        off = offload(tmp_path)
        with off:
            factor = weight * 2
            out = Changes.apply(weight, factor.detach()) * 3
        del factor
        if when == "later":
            off._sites[torch.device("cpu")]._let_go(off._sites[torch.device("cpu")].raw.drained())
        out.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_tensors_that_are_not_plain_stay(tmp_path):
    weight = torch.randn(60, 60, requires_grad=True)

    class Quantised(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(torch.quantize_per_tensor(x.detach(), 0.1, 0, torch.quint8))
            return x * 2

        @staticmethod
        def backward(context, gradient):
            return gradient + context.saved_tensors[0].dequantize()

    def nested(weight):
        made = torch.nested.as_nested_tensor([weight[:30] * 2, weight[30:50] * 2])
        return torch.nested.to_padded_tensor(made * made, 0.0)

    runs = [
        lambda: torch.sparse.mm(torch.eye(60).to_sparse(), weight),
        lambda: torch.sparse.mm(torch.eye(60).to_sparse_csr(), weight),
        lambda: nested(weight),
        lambda: weight * torch._efficientzerotensor(60, 60) + weight,
        lambda: Quantised.apply(weight),
        lambda: (weight.cos()[:0, :3] * weight.sin()[:0, :3]).sum() + weight.exp(),
        lambda: torch.view_as_real((torch.view_as_complex(weight.view(60, 30, 2)) * 2j).conj().exp()),
        lambda: torch.func.vmap(lambda row: row.sin() * weight[0])(weight),
    ]
    for number, made in enumerate(runs):
        found = []
        for context in (contextlib.nullcontext(), offload(tmp_path)):
            weight.grad = None
            with context:
                loss = made().square().sum()
            loss.backward()
            found.append([weight.grad])
        assert same(*found), number


def test_a_module_that_is_being_made_is_passed_by(tmp_path):
    class Half(nn.Module):
        pass

    half = Half.__new__(Half)
    with offload(tmp_path):
        pass
    del half


def test_what_is_remembered_does_not_grow(tmp_path):
    off, net = offload(tmp_path, host=64 << 10), nn.Linear(32, 64)
    with off:
        kept = net(torch.randn(16, 32)).exp().sum()
    for _ in range(400):
        with off:
            loss = net(torch.randn(4, 32)).square().sum()
        loss.backward()
    site = off._sites[torch.device("cpu")]
    assert len(off._lasting) <= 1024 and len(site._blocks) <= 64 and len(site._early) == 0
    kept.backward()


def test_checkpoints_take_lists_and_options_of_torch():
    seen, x = [], torch.ones(3, requires_grad=True)
    out = headwater.checkpoint(lambda x, seen: (seen.append(1), x.sin())[1], x, seen, use_reentrant=False, preserve_rng_state=False)
    assert seen == [1] and torch.equal(out, x.sin())
    with pytest.raises(ValueError, match="use_reentrant is True"):
        headwater.checkpoint(torch.sin, x, use_reentrant=True)
    assert headwater.checkpoint(lambda: 5) == 5


def test_a_report_says_when_nothing_left(tmp_path):
    off = offload(tmp_path, smallest="1GB")
    assert same(gradients(mlp, "cpu", off), gradients(mlp, "cpu"))
    report = off.report()
    assert report.warnings == ["nothing has left the device"] and "nothing has left" in str(report)
    assert report.as_dict()["kept"]["small"][0] > 0


def test_threads_with_an_offloader_each_and_one_together(tmp_path):
    shared, found = offload(tmp_path, host=64 << 10), []

    def loss(weight):
        y = weight * 2
        for _ in range(8):
            y = (y @ weight * 0.05).sin() + y.cos()
        return y.sum()

    def work(own, seed):
        weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        expected = torch.autograd.grad(loss(weight), weight)
        for _ in range(60):
            with own:
                made = loss(weight)
            found.append(same(torch.autograd.grad(made, weight), expected))

    threads = [threading.Thread(target=work, args=(own, seed)) for seed, own in enumerate((shared, shared, offload(tmp_path)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 180 and all(found)


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


def test_hooks_that_would_do_nothing_are_off_but_for_a_look(tmp_path, monkeypatch):
    off, seen = offload(tmp_path), []
    x = torch.ones(4, requires_grad=True)
    site = types.SimpleNamespace(raw=types.SimpleNamespace(is_idle=lambda: True), begin_step=lambda: None)
    off._settings["slack"] = 0.02
    monkeypatch.setattr(off, "_sites", {"cpu": site})
    monkeypatch.setattr(off, "_pack", lambda tensor: seen.append(tensor) or tensor.detach())
    monkeypatch.setattr(off, "_unpack", lambda tensor: tensor)
    for _ in range(512):
        with off:
            loss = x.exp().sum()
        loss.backward()
    assert len(seen) == 2 and off._tally.skipped == 512


@pytest.mark.parametrize(
    "hooked, planned, is_slow", [(10.0, 10.0, False), (10.2, 10.2, False), (10.4, 10.4, True), (25.0, 10.0, True), (10.0, 10.4, True)]
)
def test_hooks_that_cost_more_than_they_may_are_off(hooked, planned, is_slow):
    trial, now, was_bare, kept = Trial(0.02), [0.0], [], []

    class Clock:
        """Steps take 10 ms without hooks."""

        def timed_mark(self):
            with_hooks = hooked if kept and kept[-1] else planned
            now.append(now[-1] + (10.0 if was_bare and was_bare[-1] else with_hooks))
            return len(now) - 1

        def ms_between(self, one, other):
            return now[other] - now[one] if self.is_there else None

        is_there = True

    clock = Clock()
    for _ in range(40):
        was_bare.append(trial.next_is_bare(clock, True))
        kept.append(trial.keeps)
    assert trial.is_too_slow == is_slow
    # As long as hooks alone are compared, and where they are off, nothing leaves; the plan has its passes where hooks are fast enough.
    by_plan = 5 if hooked < 10.3 else 0
    assert was_bare[:9] == [False] * 4 + [True] * 5 and was_bare[9:] == [False] * by_plan + [is_slow] * (31 - by_plan)
    assert kept[:9] == [True] * 9 and kept[9:] == [False] * by_plan + [is_slow] * (31 - by_plan)
    # Without memory for all, hooks are needed, whatever they cost.
    assert not trial.next_is_bare(clock, False) and not trial.is_too_slow and not trial.keeps
    # Nobody waits for a GPU that is behind.
    clock.is_there = False
    assert not any(trial.next_is_bare(clock, True) for _ in range(4))
    assert all(trial.next_is_bare(clock, True) for _ in range(8)) and trial.keeps
    # While a stream records, nothing can be compared.
    clock.timed_mark = lambda: None
    assert not trial.next_is_bare(clock, True) and not trial.keeps
