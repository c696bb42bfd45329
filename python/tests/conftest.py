"""What tests share: a GPU, real or emulated, and tests that are left out where there is none."""

import contextlib
import os

import pytest


def pytest_configure(config):
    # Here and not in the project's settings: GPU machines have the tests and no project.
    config.addinivalue_line("markers", "gpu: runs on a GPU where there is one, and on the emulator")


def pytest_collection_modifyitems(items):
    """Whoever asks for a GPU runs where one is. A file whose tests choose for themselves says so with `pytestmark`."""
    for item in items:
        if "gpu" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture
def gpu(monkeypatch):
    """The name of a GPU. On the emulator torch has none, and its tensors in host memory stand in for those of a GPU."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        return "cuda"
    if not os.environ.get("HEADWATER_EMULATOR"):
        pytest.skip("there is no GPU, and no emulator is set")
    import headwater.gpu

    class Emulated(headwater.gpu.Place):
        def __init__(self, device):
            self.ordinal, self.device = 0, torch.device("cpu")

        def stream(self):
            return 0

        def free_bytes(self):
            return 1 << 30

        def entered(self):
            return contextlib.nullcontext()

        def enter(self):
            return self

        def leave(self, lanes):
            assert all(lane is self for lane in lanes)

        def mark(self):
            return self

        def meet(self, mark, tensors):
            assert mark is self and all(isinstance(tensor, torch.Tensor) for tensor in tensors)

    monkeypatch.setattr(headwater.gpu, "Place", Emulated)
    monkeypatch.setattr(headwater.gpu, "current", lambda: Emulated(None))
    monkeypatch.setattr(headwater.gpu, "holding", lambda tensors: Emulated(None))
    monkeypatch.setattr(headwater.gpu, "lies_there", lambda tensor: True)
    return "cuda"
