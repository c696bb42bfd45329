"""Offloaders of others for `offload.py`, by their own code, as their trainers use it: TRL's, torchtune's, accelerate's and transformers'.

The first two are single modules of packages that import much besides, so they are loaded by their path, and what is not installed of what
they ask for has a stand-in. `scripts/peer-wheels.sh` brings them to a machine where nothing can be installed.
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import logging
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

FILES = {"trl": "models/activation_offloading.py", "torchtune": "training/_activation_offloading.py"}
# Names that those modules import, and do not need for tensors of a plain model.
STAND_INS = {
    "psutil": {"virtual_memory": lambda: types.SimpleNamespace(percent=0.0)},
    "accelerate.logging": {"get_logger": logging.getLogger},
    "accelerate.utils.versions": {"is_torch_version": lambda compares, version: True},
    "transformers": {"is_torch_npu_available": lambda: False},
    "torchao": {"__version__": "0.7.0"},
    "torchao.dtypes.nf4tensor": {"NF4Tensor": type("NF4Tensor", (), {})},
    "torchtune.modules": {"TiedLinear": type("TiedLinear", (), {})},
    "torchtune.utils": {"get_logger": logging.getLogger},
}


class LeftOut(Exception):
    """Why a way cannot be measured here."""


@dataclass
class Prepared:
    """Layers to call, the context around them, and whether `backward` belongs in it."""

    layers: nn.ModuleList
    context: contextlib.AbstractContextManager
    holds_backward: bool
    version: str


class Net(nn.Module):
    def __init__(self, layers, head):
        super().__init__()
        self.layers = layers
        # Under this name both leave what it saves on the GPU.
        self.output = head


def prepared(way, layers, head):
    """A way of others, for layers that have been made; "trl-checkpoint" is TRL's context around layers that the caller checkpoints."""
    package = way.partition("-")[0]
    try:
        if package in FILES:
            return by_hooks(package, Net(layers, head))
        return {"accelerate": by_accelerate, "transformers": by_transformers}[package](layers)
    except ImportError as why:
        raise LeftOut(f"{package} cannot be imported: {why}") from why


def by_hooks(package, net):
    """TRL's trainer has forward and backward in the context, torchtune's recipes the model's forward alone."""
    module = module_of(package)
    make = {"trl": lambda: module.get_act_offloading_ctx_manager(net), "torchtune": lambda: module.get_act_offloading_ctx_manager(net, True)}
    try:
        return Prepared(net.layers, make[package](), package == "trl", version_of(package))
    except (AttributeError, RuntimeError) as why:
        raise LeftOut(f"{package} refuses this device: {str(why).splitlines()[0]}") from why


def by_accelerate(layers):
    """What `fsdp_activation_checkpointing_offload` does to a model, without its shards."""
    from accelerate.utils.fsdp_utils import fsdp2_apply_ac
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    plugin = types.SimpleNamespace(activation_checkpointing_offload=True, auto_wrap_policy=transformer_auto_wrap_policy)
    plugin.transformer_cls_names_to_wrap = [type(layers[0]).__name__]
    net = fsdp2_apply_ac(types.SimpleNamespace(state=types.SimpleNamespace(fsdp_plugin=plugin)), Net(layers, nn.Identity()))
    if type(net.layers[0]).__name__ != "OffloadWrapper":
        raise LeftOut(f"accelerate {version_of('accelerate')} does not offload checkpoints")
    return Prepared(net.layers, contextlib.nullcontext(), False, version_of("accelerate"))


def by_transformers(layers):
    """What `activation_checkpointing_kwargs={"offload": True}` does to a model."""
    from transformers import PretrainedConfig, PreTrainedModel
    from transformers.modeling_layers import GradientCheckpointingLayer

    class Checkpointed(GradientCheckpointingLayer):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, hidden_states):
            return self.layer(hidden_states)

    class Model(PreTrainedModel):
        supports_gradient_checkpointing = True
        main_input_name = "hidden_states"

        def __init__(self):
            super().__init__(PretrainedConfig())
            self.layers = nn.ModuleList(Checkpointed(layer) for layer in layers)

    model = Model().train()
    if not hasattr(model, "activation_checkpointing_enable"):
        raise LeftOut(f"transformers {version_of('transformers')} does not offload checkpoints")
    model.activation_checkpointing_enable(offload=True)
    return Prepared(model.layers, contextlib.nullcontext(), False, version_of("transformers"))


def module_of(package):
    """The module of a package that offloads, without the package."""
    found = importlib.util.find_spec(package)
    folders = list(found.submodule_search_locations or []) if found else []
    path = next((at for folder in folders if (at := Path(folder) / FILES[package]).is_file()), None)
    if path is None:
        raise LeftOut(f"{package} is not installed; scripts/peer-wheels.sh FOLDER brings it, for PYTHONPATH=FOLDER")
    spec = importlib.util.spec_from_file_location(f"{package}_activation_offloading", path)
    module = importlib.util.module_from_spec(spec)
    with stand_ins():
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def stand_ins():
    """Modules with nothing in them but the names of `STAND_INS`, where there are none."""
    put = []
    for name, names in STAND_INS.items():
        try:
            found = importlib.import_module(name)
            if all(hasattr(found, own) for own in names):
                continue
        except Exception:  # a package that is there and cannot be imported raises what it likes
            pass
        parts = name.split(".")
        for known in (".".join(parts[: count + 1]) for count in range(len(parts))):
            if known == name or known not in sys.modules:
                put.append((known, sys.modules.get(known)))
                sys.modules[known] = types.ModuleType(known)
        vars(sys.modules[name]).update(names)
    try:
        yield
    finally:
        for name, before in reversed(put):
            sys.modules.pop(name)
            if before is not None:
                sys.modules[name] = before


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
