"""Headwater: graphs that do not fit in GPU memory, trained on as fast as if they did.

>>> import headwater, numpy
>>> edges = numpy.array([[0, 1], [1, 2]])
>>> topology = headwater.Topology.from_coo(edges[0], edges[1], 3, 3)
>>> graph = headwater.Graph([("node", 3)], [(0, "to", 0, topology)])
>>> graph.nodes, graph.edges
(3, 2)

`Dataset`, `generate`, `ingest` and `from_pyg` are graphs with features and labels, `open` is one in a folder, `Trainer` trains on
them, `scores` and `plan` say which rows are read most and where they should lie.

`headwater.pyg` has the loaders of PyG users and `headwater.glt` the surface of GraphLearn's; they need torch and
torch-geometric. `headwater.unified` makes tensors that a GPU reads in host memory, and `headwater.compile` layers out of short
texts; calling these needs torch. So do `from_pyg` and `Dataset.to_pyg`, and nothing else here does.
"""

from importlib import import_module as _import
from typing import Any as _Any

from ._headwater import (
    Array,
    DeviceGraph,
    DeviceSample,
    DeviceSampler,
    Graph,
    Sample,
    Sampler,
    Table,
    Topology,
    __version__,
    gpu_count,
    gpu_memory,
    shapes,
    synchronize,
    take_rows,
)
from .compile import OPTIMISATIONS, compile, constant, when
from .dataset import Dataset, from_pyg, generate, ingest
from .run import Run
from .tiers import Plan, plan, scores
from .trainer import Trainer

# A dataset folder, by the shortest name.
open = Dataset.open

# What needs torch is imported when it is asked for.
_OF_TORCH = {
    "LayerGraph": "layer_graph",
    "Offload": "offload",
    "OffloadError": "offload",
    "UnifiedTensor": "_unified",
    "checkpoint": "offload",
    "device": "_unified_device",
    "disable_unified_device": "_unified_device",
    "enable_unified_device": "_unified_device",
    "forget_graphs": "layer_graph",
    "offload_callback": "offload",
    "unified": "_unified",
}
_PACKAGES = ("glt", "pyg")

__all__ = [
    "Array",
    "Dataset",
    "DeviceGraph",
    "DeviceSample",
    "DeviceSampler",
    "Graph",
    "OPTIMISATIONS",
    "Plan",
    "Run",
    "Sample",
    "Sampler",
    "Table",
    "Topology",
    "Trainer",
    "__version__",
    "compile",
    "constant",
    "from_pyg",
    "generate",
    "gpu_count",
    "gpu_memory",
    "ingest",
    "open",
    "plan",
    "scores",
    "shapes",
    "synchronize",
    "take_rows",
    "when",
    *_OF_TORCH,
]


def __getattr__(name: str) -> _Any:
    if name in _OF_TORCH:
        return getattr(_import(f"{__name__}.{_OF_TORCH[name]}"), name)
    if name in _PACKAGES:
        return _import(f"{__name__}.{name}")
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
