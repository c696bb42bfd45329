"""Activations that leave a GPU for host memory and disk and come back."""

import contextlib
import gc

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from offload_cases import CASES, ROWS, WIDTH, data, gradients, mlp, same, seeded  # noqa: E402

pytestmark = pytest.mark.slowed

WAYS = {
    "host": {"host": 8 << 20},
    "little": {"host": 64 << 10},
    "disk": {"host": 32 << 10, "disk": True},
    "both": {"host": 256 << 10, "disk": True},
}


def device_of(gpu):
    return gpu if torch.cuda.is_available() else "cpu"


def offload(folder, **settings):
    if settings.get("disk"):
        settings["disk"] = folder
    return headwater.Offload(**{"slot": 4096, "smallest": 0, "policy": "all", "allow_buffered": "disk" in settings, **settings})


def held(off):
    gc.collect()
    return [site.raw.held() for site in off._sites.values()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_the_same_to_the_bit(case, way, gpu, tmp_path, monkeypatch):
    from headwater.offload import site

    # Whatever is under way, so that streams wait for copies.
    monkeypatch.setattr(site, "_WINDOW", 0 if way == "little" else 16 << 10)
    device, off = device_of(gpu), offload(tmp_path, **WAYS[way])
    for ways in ({}, {"inside": True}, {"twice": True}):
        expected = gradients(case, device, **({} if "inside" in ways else ways))
        assert same(gradients(case, device, off, **ways), expected), ways
    assert off.report().blocks > 0
    assert held(off) == [(0, 0)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("way", ["little", "both"])
def test_steps_by_plan_have_the_same_gradients(case, way, gpu, tmp_path):
    """As much leaves as can, before there is a plan and with one."""
    device, off = device_of(gpu), offload(tmp_path, policy="plan", gpu=1, **WAYS[way])
    expected = gradients(case, device)
    for _ in range(6):
        assert same(gradients(case, device, off), expected)
    report = off.report()
    assert report.steps == 6 and report.blocks > 0 and report.plan.steps > 0
    assert "would be needed" in str(report) and report.plan.limit != "rate"
    assert held(off) == [(0, 0)]


@pytest.mark.parametrize("hooked_ms", [1.0, 1e6])
def test_hooks_that_are_too_slow_move_nothing(hooked_ms, gpu, tmp_path, monkeypatch):
    """Not with the first steps of a plan either, nor when it is looked whether steps are still the same."""
    import headwater.gpu
    from headwater.offload import context, site

    monkeypatch.setattr(context, "_LOOK_AGAIN", 4)
    monkeypatch.setattr(site, "_WINDOW", 16 << 10)
    # What tests before this one allocated is not its own.
    monkeypatch.setattr(headwater.gpu.Place, "memory_use", lambda self: (0, 0))
    # Passes without hooks take a millisecond.
    device, off = device_of(gpu), offload(tmp_path, host=8 << 20, policy="plan", slack=100)
    monkeypatch.setattr(headwater.gpu.Place, "timed_mark", lambda self: off._tally.skipped)
    monkeypatch.setattr(headwater.gpu.Place, "ms_between", lambda self, one, other: 1.0 if other > one else hooked_ms, raising=False)
    weight = data(device, ROWS, WIDTH, requires_grad=True)

    def gradient(context):
        with context:
            x = weight * 2
            for _ in range(16):
                x = x.tanh() * x.sigmoid()
            loss = x.sum()
        return torch.autograd.grad(loss, weight)[0]

    expected = gradient(contextlib.nullcontext())
    said = []
    for _ in range(32):
        assert torch.equal(gradient(off), expected)
        said.append(off.report())
    report = said[-1]
    # What is only compared yet is no warning: the report says that it is, from the plan on and for as long as nothing may leave.
    compared = [str(one) for one in said if one.is_comparing]
    assert len(compared) >= 9 and not report.is_comparing
    assert all("compared" in words and "nothing has left" not in words for words in compared)
    assert report.plan.moved > 0 and report.is_host_bound == (hooked_ms > 1)
    assert report.skipped > 5 if report.is_host_bound else report.skipped == 5
    assert (report.left == 0) == report.is_host_bound, report


def test_what_fits_stays_until_there_is_a_plan(gpu, tmp_path):
    device, off = device_of(gpu), offload(tmp_path, host=8 << 20, policy="plan")
    gradients(mlp, device, off)
    report = off.report()
    assert report.blocks == 0 and report.kept["planned"][0] > 0 and report.plan is None


def test_hints_bring_back_what_a_micro_batch_needs(gpu, tmp_path):
    device, off = device_of(gpu), offload(tmp_path, host=8 << 20)
    weight = data(device, ROWS, WIDTH, requires_grad=True)

    def loss():
        return (weight * 2).exp().sin().tanh().sum()

    expected = torch.autograd.grad(loss(), weight)[0] * 2
    losses = []
    for microbatch in range(2):
        off.hint(next="forward", microbatch=microbatch)
        with off:
            losses.append(loss())
    # The first as well, although nobody knew of the device when it was told of.
    (site,) = off._sites.values()
    assert [len(site._microbatches[microbatch]) for microbatch in range(2)] == [len(site._blocks) // 2] * 2
    found = 0
    for microbatch in range(2):
        off.hint(next="backward", microbatch=microbatch)
        found = found + torch.autograd.grad(losses[microbatch], weight)[0]
    assert torch.equal(found, expected)
    assert off.report().blocks > 0 and held(off) == [(0, 0)]
    with pytest.raises(ValueError, match="next is 'sideways'"):
        off.hint(next="sideways")


def one_forward_one_backward(stage, stages, batches):
    """What a stage of a pipeline does, and for which micro-batch: as many forward passes ahead as stages come after it, then one backward
    pass for each forward pass, then what is left (1F1B)."""
    ahead = min(stages - stage - 1, batches)
    order = [("forward", own) for own in range(ahead)]
    for own in range(batches - ahead):
        order += [("forward", own + ahead), ("backward", own)]
    return order + [("backward", own) for own in range(batches - ahead, batches)]


@pytest.mark.parametrize("way", ["host", "both"])
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_schedules_of_pipelines_by_hints(stage, way, gpu, tmp_path):
    """Six micro-batches, of which up to four are in flight; their blocks come back when the schedule says whose backward pass is next."""
    device, batches, stages = device_of(gpu), 6, 4
    off = offload(tmp_path, **WAYS[way])
    order = one_forward_one_backward(stage, stages, batches)
    assert sorted(order) == sorted((kind, own) for kind in ("forward", "backward") for own in range(batches))
    net = seeded(lambda: torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH))).to(device)

    def run(off):
        net.zero_grad()
        outs, inputs = {}, {}
        for kind, own in order:
            if off is not None:
                off.hint(next=kind, microbatch=own)
            if kind == "forward":
                inputs[own] = (data(device, ROWS, WIDTH) * (own + 1)).requires_grad_()
                with off or contextlib.nullcontext():
                    outs[own] = net(inputs[own].sin())
                arrive(off)
            else:
                # What comes from the stage behind.
                outs.pop(own).backward(data(device, ROWS, WIDTH))
        return [*(weight.grad.clone() for weight in net.parameters()), *(own.grad for own in inputs.values())]

    expected = run(None)
    for _ in range(2):
        assert same(run(off), expected)
    report = off.report()
    assert report.came_early > 0 and held(off) == [(0, 0)]
    assert not any(site._microbatches for site in off._sites.values())


def arrive(off):
    """All that was saved has left."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    for site in off._sites.values() if off is not None else ():
        site._let_go(site.raw.drained())


def test_gradients_of_gradients(gpu, tmp_path):
    device = device_of(gpu)
    for way in WAYS.values():
        assert same(gradients(mlp, device, offload(tmp_path, **way), second=True), gradients(mlp, device, second=True))


def test_what_came_back_early_is_counted(gpu, tmp_path):
    device, off = device_of(gpu), offload(tmp_path, host=8 << 20)
    weight = data(device, ROWS, WIDTH, requires_grad=True)

    def loss():
        x = weight * 2
        for _ in range(8):
            x = x.exp().tanh()
        return x.sum()

    loss().backward()
    expected, weight.grad = weight.grad, None
    with off:
        made = loss()
    arrive(off)
    made.backward()
    assert torch.equal(weight.grad, expected)
    report = off.report()
    assert report.came_early > 0 and report.forwarded + report.came_early + report.came_late >= report.left
    assert "before they were needed" in str(report)


def test_what_finds_no_room_stays(gpu, tmp_path):
    device, off = device_of(gpu), offload(tmp_path, host=4096)
    assert same(gradients(mlp, device, off), gradients(mlp, device))
    assert "no room" in off.report().kept


@pytest.mark.parametrize("most", [None, 0])
def test_a_limit_for_the_gpu_makes_streams_wait(most, gpu, tmp_path, monkeypatch):
    import headwater.gpu

    # The emulator's tensors are the host's, which nobody counts.
    monkeypatch.setattr(headwater.gpu.Place, "memory_use", lambda self: (1, 1))
    device, off = device_of(gpu), offload(tmp_path, host=8 << 20, gpu=most)
    weights, loss = mlp(device)
    with off:
        made = loss()
    (site,) = off._sites.values()
    # Memory of all blocks is free behind the stream, or that of the last is still held.
    assert bool(site._leaving) == (most is None)
    made.backward()
    assert same([made.detach(), *(weight.grad for weight in weights)], gradients(mlp, device))
