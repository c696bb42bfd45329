"""Faults that offloaders have been published with: each is put back under ours, and what looks for it finds it."""

import gc

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from conftest import IS_HELD  # noqa: E402
from headwater.offload import site  # noqa: E402
from offload_cases import ROWS, WIDTH, attention, data, gradients, label_shift, mlp, same, slices, strides  # noqa: E402
from public_bugs import KEYS, PublicBug, load_what_has_not_gone, put_back  # noqa: E402

HELD = [pytest.mark.streams, pytest.mark.skipif(not IS_HELD, reason="needs the emulator with HWEMU_ORDER")]


def half(device):
    """What is brought back early, and dropped before anybody needs it."""
    weight, kept = data(device, ROWS, WIDTH, requires_grad=True), []

    def loss():
        dropped = weight.sin().exp().tanh().cos()
        needed = weight.cos().exp().sin().square().sum()
        needed.register_hook(lambda gradient: kept.append(dropped))
        return needed

    return [weight], loss


def wide(device):
    """Blocks of many slots, whose copies take long."""
    weight = data(device, 8 * ROWS, WIDTH, requires_grad=True)

    def loss():
        x = weight.sin()
        for _ in range(4):
            x = x.exp().tanh()
        return x.sum()

    return [weight], loss


def offload(host):
    return headwater.Offload(slot=4096, smallest=0, policy="all", host=host)


def steps(case, host=4 << 20):
    """Steps on streams of their own, for which nobody waits: what they found and what they should have."""
    import held

    expected, found = gradients(case, "cpu"), []
    streams = [held.new_stream() for _ in range(2)]
    with held.Homes():
        off = offload(host)
        for handle in streams:
            with held.at(handle):
                found.append(gradients(case, "cpu", off))
            gc.collect()
    assert off.report().blocks > 0
    return found, [expected] * len(streams)


def abandoned(case, host):
    """A micro-batch that is told of, brought back and dropped, and the next one on another stream, which has the same slots."""
    import held

    expected, first, second = gradients(case, "cpu"), held.new_stream(), held.new_stream()
    with held.Homes():
        off = offload(host)
        with held.at(first):
            found = gradients(case, "cpu", off)
            off.hint(next="forward", microbatch=0)
            _, loss = case("cpu")
            with off:
                made = loss()
            # All of it has left by then, as where other micro-batches come in between.
            held.driver("cuCtxSynchronize")
            (own,) = off._sites.values()
            own._let_go(own.raw.drained())
            off.hint(next="backward", microbatch=0)
            del made, loss
            gc.collect()
        with held.at(second):
            return [found, gradients(case, "cpu", off)], [expected] * 2


EARLY, LATE = 4096, 1 << 20
# What finds each, and how many bytes of copies streams do not wait for meanwhile. Of the first, it is the case of those who found it.
FOUND_BY = {
    PublicBug.COPIED_BEFORE_IT_IS_COMPUTED: (lambda: steps(label_shift), EARLY),
    PublicBug.STREAM_LOOKED_UP_ONCE: (lambda: steps(mlp), EARLY),
    PublicBug.BACK_BEFORE_IT_HAS_LEFT: (lambda: steps(wide), LATE),
    PublicBug.MEMORY_GIVEN_UP_BEFORE_IT_IS_COPIED: (lambda: steps(mlp), EARLY),
    PublicBug.SLOT_USED_BEFORE_IT_IS_READ: (lambda: abandoned(wide, 4 << 20), LATE),
    PublicBug.USED_BEFORE_IT_IS_BACK: (lambda: steps(mlp), EARLY),
    PublicBug.MEMORY_GIVEN_UP_BEFORE_IT_IS_FILLED: (lambda: steps(half), EARLY),
}
# Orders of streams in one of which a fault is seen.
ORDERS = 12


def is_right(bug, order, monkeypatch):
    """Whether gradients are as they should be, with streams in an order of their own."""
    import held

    run, window = FOUND_BY[bug]
    monkeypatch.setattr(site, "_WINDOW", window)
    held.order(order)
    found, expected = run()
    held.driver("cuCtxSynchronize")
    return all(same(*both) for both in zip(found, expected))


@pytest.mark.parametrize("bug", [pytest.param(bug, marks=HELD) for bug in FOUND_BY], ids=lambda bug: bug.name.lower())
def test_a_race_is_found(bug, request, monkeypatch):
    request.getfixturevalue("gpu")
    import held

    put_back(bug, monkeypatch)
    with held.caught():
        before = held.driver.races()
        for order in range(ORDERS):
            with held.found_again():
                is_right(bug, order, monkeypatch)
            if held.driver.races() > before:
                break


# Others are found by what `test_offload_races.py` does without a fault.
OF_THIS_FILE = (
    PublicBug.BACK_BEFORE_IT_HAS_LEFT,
    PublicBug.SLOT_USED_BEFORE_IT_IS_READ,
    PublicBug.MEMORY_GIVEN_UP_BEFORE_IT_IS_FILLED,
)


@pytest.mark.parametrize("bug", [pytest.param(bug, marks=HELD) for bug in OF_THIS_FILE], ids=lambda bug: bug.name.lower())
def test_without_it_nothing_is_found(bug, request, monkeypatch):
    request.getfixturevalue("gpu")
    if bug == PublicBug.BACK_BEFORE_IT_HAS_LEFT:
        # To load what has not gone is slow and not wrong, as long as streams wait.
        load_what_has_not_gone(monkeypatch)
    assert is_right(bug, 0, monkeypatch)


@pytest.mark.parametrize("bug", KEYS, ids=lambda bug: bug.name.lower())
def test_a_key_is_found(bug, tmp_path, monkeypatch):
    put_back(bug, monkeypatch)
    off = headwater.Offload(host=1 << 20, slot=4096, smallest=0, disk=tmp_path, device="cpu", allow_buffered=True)
    wrong = [case for case in (attention, slices, strides) if not same(gradients(case, "cpu", off), gradients(case, "cpu"))]
    assert slices in wrong, wrong


def test_all_of_them_are_put_back():
    assert {*FOUND_BY, *KEYS} == set(PublicBug) and len(PublicBug) == 7 + 2
