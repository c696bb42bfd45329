"""Activations that leave and come back while the emulator takes the work of streams in any order. Faults that offloaders have had are
put back here, and each is found."""

import gc

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from conftest import IS_HELD  # noqa: E402
from headwater.offload import site  # noqa: E402
from headwater.offload.context import Saved  # noqa: E402
from offload_cases import CASES, ROWS, WIDTH, attention, data, gradients, mlp, same  # noqa: E402

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


# The faults.


def test_memory_that_goes_before_its_copy_is_over_is_found(gpu, tmp_path, monkeypatch):
    """Torchtune dropped tensors while they were read."""
    import held

    saved = site.Site.save

    def save(self, *given):
        block = saved(self, *given)
        self._leaving.clear()
        return block

    monkeypatch.setattr(site.Site, "save", save)
    with held.caught():
        run(mlp, tmp_path, "host")


def test_what_is_used_before_it_is_back_is_found(gpu, tmp_path, monkeypatch):
    """Nobody waits for the copy that brings a tensor back."""
    import held

    monkeypatch.setattr(site.Block, "mark", property(lambda self: None, lambda self, mark: None), raising=False)
    with held.caught():
        run(mlp, tmp_path, "host")


def test_a_stream_that_was_looked_up_once_is_found(gpu, tmp_path, monkeypatch):
    """Torchtitan and TRL asked for the current stream when they were made."""
    import held

    first = []

    def stream(self):
        first.append(self.place.stream())
        return first[0]

    monkeypatch.setattr(site.Site, "_stream", stream)
    with held.caught():
        on_another_stream(tmp_path)


def test_slices_that_pass_for_each_other_are_found(gpu, tmp_path, monkeypatch):
    """FlashTrain and ms-swift told views apart by their shapes."""
    before = Saved.over
    monkeypatch.setattr(Saved, "over", lambda self, storage, start: before(self, storage, self.offset * self.dtype.itemsize))
    assert not run(attention, tmp_path, "host")


def test_memory_that_goes_before_it_was_filled_is_found(gpu, tmp_path, monkeypatch):
    """A block that was brought back early and that nobody asks for."""
    import held

    def half(device):
        weight = data(device, ROWS, WIDTH, requires_grad=True)

        def loss():
            dropped = weight.sin().exp().tanh().cos()
            needed = weight.cos().exp().sin().square().sum()
            needed.register_hook(lambda gradient: kept.append(dropped))
            return needed

        return [weight], loss

    kept = []
    assert run(half, tmp_path, "host") and kept
    kept.clear()
    monkeypatch.setattr(site.Site, "_land", lambda self, block: None)
    with held.caught("free"):
        run(half, tmp_path, "host")
        kept.clear()
