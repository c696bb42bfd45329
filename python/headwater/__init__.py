"""Headwater: graphs that do not fit in GPU memory, trained on as fast as if they did.

>>> import headwater, numpy
>>> edges = numpy.array([[0, 1], [1, 2]])
>>> topology = headwater.Topology.from_coo(edges[0], edges[1], 3, 3)
>>> graph = headwater.Graph([("node", 3)], [(0, "to", 0, topology)])
>>> graph.nodes, graph.edges
(3, 2)

`Dataset`, `generate`, `ingest` and `from_pyg` are graphs with features and labels, `Trainer` trains on them, `scores` and `plan`
say which rows are read most and where they should lie.

`headwater.pyg` has the loaders of PyG users and `headwater.glt` the surface of GraphLearn's; they need torch and
torch-geometric. `headwater.unified` makes tensors that a GPU reads in host memory, and `headwater.compile` layers out of short
texts; calling these needs torch. So do `from_pyg` and `Dataset.to_pyg`, and nothing else here does.
"""

from typing import Any

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
from .compile import compile, constant, when
from .dataset import Dataset, from_pyg, generate, ingest
from .run import Run
from .tiers import Plan, plan, scores
from .trainer import Trainer

# What needs torch is imported when it is asked for.
_OF_TORCH = {
    "LayerGraph": "layer_graph",
    "UnifiedTensor": "_unified",
    "disable_unified_device": "_unified",
    "enable_unified_device": "_unified",
    "forget_graphs": "layer_graph",
    "unified": "_unified",
}

__all__ = [
    "Array",
    "Dataset",
    "DeviceGraph",
    "DeviceSample",
    "DeviceSampler",
    "Graph",
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
    "plan",
    "scores",
    "shapes",
    "synchronize",
    "take_rows",
    "when",
    *_OF_TORCH,
]


def __getattr__(name: str) -> Any:
    if name in _OF_TORCH:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_OF_TORCH[name]}"), name)
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")
