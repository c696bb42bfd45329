"""Offloaders of others that `bench/peers/offload.py` measures: found where they are installed, and left out by name where not."""

import importlib
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

PEERS = Path(__file__).parents[2] / "bench" / "peers"


@pytest.fixture
def others(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    yield importlib.import_module("offload_others")
    sys.modules.pop("offload_others", None)


@pytest.fixture
def layers():
    return torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))


def test_one_that_is_not_installed_is_left_out_by_name(others, layers, monkeypatch):
    monkeypatch.setattr(others.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(others.LeftOut, match="trl is not installed; scripts/peer-wheels.sh"):
        others.prepared("trl", layers, torch.nn.Identity())
    monkeypatch.setitem(sys.modules, "accelerate.utils.fsdp_utils", None)
    with pytest.raises(others.LeftOut, match="accelerate cannot be imported"):
        others.prepared("accelerate-checkpoint", layers, torch.nn.Identity())


def test_a_module_is_loaded_without_what_its_package_needs(others, layers, tmp_path, monkeypatch):
    package = tmp_path / "torchtune"
    (package / "training").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('torchao is missing')")
    (package / "training" / "_activation_offloading.py").write_text(
        "import contextlib\n"
        "from torchao.dtypes.nf4tensor import NF4Tensor\n"
        "from torchtune.modules import TiedLinear\n"
        "from torchtune.utils import get_logger\n"
        "def get_act_offloading_ctx_manager(model, enable_activation_offloading):\n"
        "    assert enable_activation_offloading and isinstance(model.output, object)\n"
        "    return contextlib.nullcontext('theirs')\n"
    )
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torchtune", "torchao")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = others.prepared("torchtune", layers, torch.nn.Linear(8, 2))
    with made.context as context:
        assert context == "theirs" and made.layers is layers and not made.holds_backward
    assert not [name for name in sys.modules if name.startswith(("torchtune.", "torchao"))]


@pytest.mark.parametrize("way", ["accelerate-checkpoint", "transformers-checkpoint"])
def test_checkpoints_of_others_have_the_gradients_of_plain_layers(way, others, layers):
    pytest.importorskip(way.partition("-")[0])
    x, found = torch.randn(4, 8), []
    for called in (list(layers), others.prepared(way, layers, torch.nn.Identity()).layers):
        hidden = x
        for layer in called:
            hidden = layer(hidden).tanh()
        found.append(torch.autograd.grad(hidden.sum(), list(layers.parameters())))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
