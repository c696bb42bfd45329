"""Activations that leave and come back while the emulator takes the work of streams in any order. `test_public_bugs.py` puts faults back
that this finds."""

import gc

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from conftest import IS_HELD  # noqa: E402
from headwater.offload import site  # noqa: E402
from offload_cases import CASES, ROWS, WIDTH, data, gradients, mlp, same  # noqa: E402

pytestmark = [pytest.mark.streams, pytest.mark.skipif(not IS_HELD, reason="needs the emulator with HWEMU_ORDER")]

WAYS = {"host": {"host": 4 << 20}, "little": {"host": 64 << 10}, "disk": {"host": 32 << 10, "disk": True}}


def offload(folder, way):
    settings = dict(WAYS[way])
    if settings.get("disk"):
        settings.update(disk=folder, allow_buffered=True)
    return headwater.Offload(slot=4096, smallest=0, policy="all", **settings)


def run(case, folder, way, **ways):
    import held

    expected = gradients(case, "cpu", **ways)
    with held.Homes():
        off = offload(folder, way)
        found = gradients(case, "cpu", off, **ways)
        gc.collect()
    assert off.report().blocks > 0
    return same(found, expected)


@pytest.fixture(autouse=True)
def _nothing_waits_for_long(monkeypatch):
    """Streams follow copies from the second block on."""
    monkeypatch.setattr(site, "_WINDOW", 4096)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_gradients_are_the_same_in_any_order(case, way, gpu, tmp_path):
    assert run(case, tmp_path, way)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_steps_by_plan_in_any_order(case, gpu, tmp_path):
    import held

    expected = gradients(case, "cpu")
    with held.Homes():
        off = headwater.Offload(slot=4096, smallest=0, host=4 << 20, gpu=1)
        for _ in range(5):
            assert same(gradients(case, "cpu", off), expected)
            held.driver("cuCtxSynchronize")
        gc.collect()
    assert off.report().plan.steps > 0


def test_a_graph_that_is_kept(gpu, tmp_path):
    assert run(mlp, tmp_path, "host", twice=True)


def on_another_stream(folder):
    """Forward on a stream that the offloader has not seen before, and again on a third."""
    import held

    expected = gradients(mlp, "cpu")
    found = []
    with held.Homes():
        off = offload(folder, "host")
        for _ in range(3):
            with held.at(held.new_stream()):
                found.append(gradients(mlp, "cpu", off))
                held.driver("cuCtxSynchronize")
    return all(same(own, expected) for own in found)


def test_streams_of_their_own(gpu, tmp_path):
    assert on_another_stream(tmp_path)


def in_turn(device, streams):
    """Layers on two streams in turn, each of which waits for the one before, as where parts of a model have streams of their own."""
    import held

    weight = data(device, ROWS, WIDTH, requires_grad=True)

    def loss():
        x = weight * 2
        before = held.stream()
        for handle in streams:
            held.follow(handle, before)
            with held.at(handle):
                x = x.exp().tanh().cos()
            before = handle
        held.follow(held.stream(), before)
        return x.square().sum()

    return [weight], loss


@pytest.mark.parametrize("way", WAYS)
def test_layers_on_streams_in_turn(way, gpu, tmp_path):
    """Memory goes back to the stream that made it, behind copies that another one followed."""
    import held

    first, second = held.new_stream(), held.new_stream()
    expected = gradients(lambda device: in_turn(device, [first, second] * 3), "cpu")
    with held.Homes(crosses=True):
        off = offload(tmp_path, way)
        for _ in range(3):
            found = gradients(lambda device: in_turn(device, [first, second] * 3), "cpu", off)
            held.driver("cuCtxSynchronize")
            assert same(found, expected)
        gc.collect()
