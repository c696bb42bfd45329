"""Random models whose activations leave, by every policy and to every tier, while streams go their own ways: gradients are those of a run
in which nothing leaves, to the bit."""

import gc
import json
import random

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from conftest import IS_HELD  # noqa: E402
from headwater.offload import site  # noqa: E402
from offload_cases import same  # noqa: E402
from offload_programs import Program, seeds  # noqa: E402

TIERS = [{"host": 4 << 20}, {"host": 64 << 10}, {"host": 16 << 10, "disk": True}, {"host": 128 << 10, "disk": True}]


def offload(drawn, folder, **settings):
    settings = {"slot": 4096, "smallest": drawn.choice([0, 0, 1500]), **settings, **drawn.choice(TIERS)}
    if settings.pop("disk", False) or "device" in settings:
        settings.update(disk=folder, allow_buffered=True)
    return headwater.Offload(**settings)


def is_free(off):
    """Whether nothing is held when all graphs are gone."""
    gc.collect()
    for own in off._sites.values():
        own._let_go(own.raw.drained())
        # A disk may still have what nobody needs.
        for _ in range(2000):
            if own.raw.held() == (0, 0):
                break
            own.raw.drained()
    return all(own.raw.held() == (0, 0) for own in off._sites.values())


@pytest.fixture
def _collections_are_short():
    """What torch has loaded by now stays, so collections, of which there are many, need not look at it."""
    Program(14).gradients()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.streams
@pytest.mark.skipif(not IS_HELD, reason="needs the emulator with HWEMU_ORDER")
def test_random_models_in_any_order(gpu, _collections_are_short, tmp_path, monkeypatch):
    import held

    streams, moved, planned = [held.new_stream() for _ in range(3)], 0, 0
    for seed in seeds(16):
        program, drawn, races = Program(seed), random.Random(seed + 1), held.driver.races()
        monkeypatch.setattr(site, "_WINDOW", drawn.choice([0, 4096, 64 << 10, 16 << 20]))
        policy = {"gpu": 1} if seed % 8 == 3 else {"policy": "all", "gpu": drawn.choice([None, None, 0])}
        # A plan is made of the third step.
        steps = drawn.randint(1, 2) if "policy" in policy else 5
        held.order(seed)
        expected, found = program.gradients(), []
        with held.Homes(crosses=True):
            off = offload(drawn, tmp_path, **policy)
            for _ in range(steps):
                found.append(program.gradients(off, streams[: program.streams]))
            held.driver("cuCtxSynchronize")
            assert all(same(own, expected) for own in found), f"model {seed}: other gradients"
            found.clear()
            assert is_free(off), f"model {seed}: blocks are left"
        assert held.driver.races() == races, f"model {seed}: {held.driver.last_race()}"
        report = off.report()
        moved, planned = moved + report.left, planned + (report.plan.steps if report.plan else 0)
        del off
    print(f"{len(seeds(16))} models, {moved} bytes left, {planned} steps by a plan")
    assert moved > 0


def test_random_models_of_a_cpu(_collections_are_short, tmp_path):
    written = 0
    for seed in seeds(20):
        program, off = Program(seed), offload(random.Random(seed), tmp_path, device="cpu")
        expected = program.gradients()
        for _ in range(2):
            assert same(program.gradients(off), expected), f"model {seed}: other gradients"
        assert is_free(off), f"model {seed}: blocks are left"
        written += json.loads(off._sites[torch.device("cpu")].raw.counts())["written"]
    assert written > 0
