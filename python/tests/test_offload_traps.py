"""Traps that offloaders have been caught in, on streams that go their own ways: functions with a stream of their own, changes in place, several
forward passes before one backward pass, and streams that are captured."""

import contextlib
import gc

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from conftest import IS_HELD  # noqa: E402
from headwater.offload import OffloadError, site  # noqa: E402
from offload_cases import ROWS, WIDTH, data, gradients, mlp, same, seeded  # noqa: E402
from public_bugs import PublicBug, put_back  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = [pytest.mark.streams, pytest.mark.skipif(not IS_HELD, reason="needs the emulator with HWEMU_ORDER")]


@pytest.fixture(autouse=True)
def _nothing_waits_for_long(monkeypatch):
    """Streams follow copies from the second block on."""
    monkeypatch.setattr(site, "_WINDOW", 4096)


def offload(folder=None, **settings):
    if folder is not None:
        settings.update(host=32 << 10, disk=folder, allow_buffered=True)
    return headwater.Offload(**{"slot": 4096, "smallest": 0, "policy": "all", "host": 4 << 20, **settings})


def aside(stream):
    """A function whose forward and backward pass run on a stream of its own, which follows the current one and is followed by it."""
    import held

    def run(work, *tensors):
        home = held.stream()
        held.follow(stream, home)
        with held.at(stream):
            made = work(*tensors)
        held.follow(home, stream)
        return made

    class Aside(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            inner, made = run(lambda x: (x.sin(), x.exp().tanh()), x)
            ctx.save_for_backward(inner, made)
            return made * 1

        @staticmethod
        def backward(ctx, gradient):
            # They are asked for where they are used.
            return run(lambda gradient: gradient * ctx.saved_tensors[0] + ctx.saved_tensors[1], gradient)

    return Aside


def with_a_stream_of_its_own(folder, expected):
    import held

    handle = held.new_stream()
    with held.Homes(crosses=True):
        off = offload(folder)
        for _ in range(2):
            if not same(gradients(lambda device: through(aside(handle)), "cpu", off), expected):
                return False
            gc.collect()
    assert off.report().left > 0
    return True


def through(function):
    weight = data("cpu", ROWS, WIDTH, requires_grad=True)

    def loss():
        x = weight * 2
        for _ in range(2):
            x = function.apply(x).cos()
        return x.square().sum()

    return [weight], loss


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_a_function_with_a_stream_of_its_own(is_on_disk, gpu, tmp_path):
    import held

    expected = gradients(lambda device: through(aside(held.stream())), "cpu")
    for order in range(2):
        held.order(order)
        assert with_a_stream_of_its_own(tmp_path if is_on_disk else None, expected)


def test_a_stream_that_is_looked_up_once_is_found_by_it(gpu, monkeypatch):
    """The backward pass takes what was brought back on a stream that nobody has told of it."""
    import held

    expected = gradients(lambda device: through(aside(held.stream())), "cpu")
    put_back(PublicBug.STREAM_LOOKED_UP_ONCE, monkeypatch)
    with held.caught():
        before = held.driver.races()
        for order in range(12):
            held.order(order)
            with_a_stream_of_its_own(None, expected)
            held.driver("cuCtxSynchronize")
            if held.driver.races() > before:
                break


@pytest.mark.parametrize("smallest", [0, "1GB"], ids=["left", "kept"])
def test_what_is_changed_after_it_was_saved_is_an_error(smallest, gpu):
    import held

    with held.Homes():
        off = offload(smallest=smallest)
        for change in (lambda y: y.add_(1), lambda y: y[0].zero_(), lambda y: nn.functional.relu(y, inplace=True)):
            weight = data("cpu", ROWS, WIDTH, requires_grad=True)
            with off:
                y = weight * 2
                loss = y.exp().sum() + (y * y).sum()
            # Bytes that a copy reads meanwhile would be of no use, and are a race.
            held.driver("cuCtxSynchronize")
            with torch.no_grad():
                change(y)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
            del y, loss
            gc.collect()
        # An optimiser's step between forward and backward changes weights, which stay.
        net = seeded(lambda: nn.Linear(WIDTH, WIDTH))
        with off:
            loss = net(data("cpu", ROWS, WIDTH, requires_grad=True)).square().sum()
        net.weight.grad = torch.ones_like(net.weight)
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        del loss
        assert same(gradients(mlp, "cpu", off), gradients(mlp, "cpu"))


def policy_step(net, old, context):
    """As in GRPO: passes of the model that is trained and of an older one without gradients, in training mode, then several with, and one
    backward pass; of one more nobody wants gradients."""
    net.zero_grad()
    x, losses = data("cpu", ROWS, WIDTH), []
    for number in range(2):
        with context:
            with torch.no_grad():
                reference, before = old(x * (number + 1)), net(x * (number + 1))
            made = net(x * (number + 1))
            losses.append(((made - before.detach()).exp() - (made - reference)).square().mean())
    with context:
        unused = net(x)
    with context, torch.no_grad():
        net(x)
    (losses[1] * 2 + losses[0]).backward()
    del unused
    return [own.grad.clone() for own in net.parameters()]


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_several_forward_passes_before_one_backward_pass(is_on_disk, gpu, tmp_path):
    import held

    net, old = (seeded(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0), nn.GELU(), nn.Linear(WIDTH, WIDTH))) for _ in range(2))
    expected = policy_step(net, old, contextlib.nullcontext())
    with held.Homes():
        off = offload(tmp_path if is_on_disk else None)
        for order in range(3):
            held.order(order)
            assert same(policy_step(net, old, off), expected)
        gc.collect()
    assert off.report().blocks > 0 and [own.raw.held() for own in off._sites.values()] == [(0, 0)]


@pytest.mark.parametrize("are_back", [False, True], ids=["on their way", "back early"])
def test_what_is_saved_while_a_stream_is_captured_stays(are_back, gpu):
    """A training step is captured, and meanwhile blocks of others are told of and dropped: nothing of ours spoils the capture."""
    import held

    expected = gradients(mlp, "cpu")
    handle = held.new_stream()
    with held.Homes():
        off = offload()
        _, loss = mlp("cpu")
        made = []
        for microbatch in range(2):
            off.hint(next="forward", microbatch=microbatch)
            with off:
                made.append(loss())
        if are_back:
            settle(off)
            off.hint(next="backward", microbatch=1)
        before = off.report().blocks
        with held.captured(handle):
            off.hint(next="backward", microbatch=0)
            del made[1]
            weight = data("cpu", ROWS, WIDTH, requires_grad=True)
            with off:
                captured = (weight * 2).exp().sin().sum()
            captured.backward()
            del captured, weight
            gc.collect()
        report = off.report()
        assert report.blocks == before and report.kept["stream capture"][0] == 2
        made.pop().backward()
        assert same(gradients(mlp, "cpu", off), expected)
        gc.collect()
    assert [own.raw.held() for own in off._sites.values()] == [(0, 0)] and not any(own._landing for own in off._sites.values())


def settle(off):
    """All has left by then, as where much comes in between."""
    import held

    held.driver("cuCtxSynchronize")
    for own in off._sites.values():
        own._let_go(own.raw.drained())


def test_a_captured_backward_pass_of_what_has_left_is_an_error(gpu):
    """What is replayed would read memory that nobody fills."""
    import held

    handle = held.new_stream()
    with held.Homes():
        off = offload()
        _, loss = mlp("cpu")
        with off:
            made = loss()
        settle(off)
        with held.captured(handle):
            # Nothing may hold on to what the graph owns, as tracebacks do.
            try:
                made.backward()
            except OffloadError as error:
                words = str(error)
            gc.collect()
        assert "capture forward and backward together" in words
        del made, loss
        gc.collect()
        assert same(gradients(mlp, "cpu", off), gradients(mlp, "cpu"))


def test_a_captured_backward_pass_is_not_recorded_for_a_plan(gpu):
    """All stays before there is a plan, so that this one can be captured; marks of the capture have no moments."""
    import held

    expected, handle = gradients(mlp, "cpu"), held.new_stream()
    with held.Homes():
        off = offload(policy="plan")
        for _ in range(2):
            assert same(gradients(mlp, "cpu", off), expected)
            held.driver("cuCtxSynchronize")
            weights, loss = mlp("cpu")
            with off:
                made = loss()
            with held.captured(handle):
                made.backward()
                del made, loss, weights
                gc.collect()
        for _ in range(4):
            assert same(gradients(mlp, "cpu", off), expected)
            held.driver("cuCtxSynchronize")
    assert off.report().plan is not None
