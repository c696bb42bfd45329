"""What tests share: a GPU, real or emulated, and tests that are left out where there is none."""

import contextlib
import gc
import os

import pytest

# The emulator holds work of streams back and looks for races between them.
IS_HELD = bool(os.environ.get("HEADWATER_EMULATOR") and os.environ.get("HWEMU_ORDER"))


def pytest_configure(config):
    # Here and not in the project's settings: GPU machines have the tests and no project.
    config.addinivalue_line("markers", "gpu: runs on a GPU where there is one, and on the emulator")
    config.addinivalue_line("markers", "slowed: runs once more with every copy of ours behind a delay (emulator/slow)")
    config.addinivalue_line("markers", "streams: runs on the emulator that holds the work of streams back")


def pytest_collection_modifyitems(items):
    """Whoever asks for a GPU runs where one is. A file whose tests choose for themselves says so with `pytestmark`."""
    for item in items:
        if "gpu" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.gpu)


def pytest_collection_finish():
    """What was imported stays: the collector, which many tests call, need not walk a million objects of torch and others each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def one_thread():
    """Small models are slower with threads, which wait for CPUs that other tests have."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def gpu(monkeypatch):
    """The name of a GPU. On the emulator torch has none, and its tensors in host memory stand in for those of a GPU."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        yield "cuda"
        return
    if not os.environ.get("HEADWATER_EMULATOR"):
        pytest.skip("there is no GPU, and no emulator is set")
    if not IS_HELD:
        stand_in(monkeypatch, emulated())
        yield "cuda"
        return
    import held

    before = held.driver.races() - held.caught_races
    stand_in(monkeypatch, held.Held)
    with held.uses():
        yield "cuda"
        held.driver("cuCtxSynchronize")
    assert held.driver.races() - held.caught_races == before, held.driver.last_race()


def stand_in(monkeypatch, place):
    import headwater.gpu

    monkeypatch.setattr(headwater.gpu, "Place", place)
    monkeypatch.setattr(headwater.gpu, "current", lambda: place(None))
    monkeypatch.setattr(headwater.gpu, "holding", lambda tensors: place(None))
    monkeypatch.setattr(headwater.gpu, "lies_there", lambda tensor: True)


def emulated():
    """A GPU whose work is done when it is queued: what is brought there is a copy, as it would be, and `log` has what was marked and
    waited for."""
    import headwater.gpu
    import torch

    class Emulated(headwater.gpu.Place):
        log = []

        def __init__(self, device):
            self.ordinal, self.device = 0, torch.device("cpu")

        def stream(self):
            return 0

        def bring(self, value, *, non_blocking=False):
            return value.clone()

        def free_bytes(self):
            return 1 << 30

        def entered(self):
            return contextlib.nullcontext()

        def enter(self):
            return self

        def leave(self, lanes):
            assert all(isinstance(lane, Emulated) for lane in lanes)

        def mark(self):
            self.log.append(("mark", len(self.log)))
            return self.log[-1]

        def meet(self, mark, tensors):
            assert mark in self.log and all(isinstance(tensor, torch.Tensor) for tensor in tensors)

        def wait(self, mark):
            self.log.append(("wait", mark))

        def drain(self):
            self.log.append(("drain",))

        def settle(self):
            self.log.append(("settle",))

        def is_capturing(self):
            return False

        def use(self, tensor):
            assert isinstance(tensor, torch.Tensor)

        def timed_mark(self):
            return None

        def memory_use(self):
            return 0, 0

        def total_bytes(self):
            return 1 << 30

    return Emulated
