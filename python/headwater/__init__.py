"""Headwater: graphs that do not fit in GPU memory, trained on as fast as if they did.

>>> import headwater, numpy
>>> edges = numpy.array([[0, 1], [1, 2]])
>>> topology = headwater.Topology.from_coo(edges[0], edges[1], 3, 3)
>>> graph = headwater.Graph([("node", 3)], [(0, "to", 0, topology)])
>>> graph.nodes, graph.edges
(3, 2)

`headwater.pyg` has the loaders of PyG users and `headwater.glt` the surface of GraphLearn's; they need torch and
torch-geometric. `headwater.unified` makes tensors that a GPU reads in host memory, and `headwater.compile` layers out of short
texts; calling these needs torch. Nothing else here does.
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
    synchronize,
    take_rows,
)
from .compile import compile, constant, when

# What needs torch is imported when it is asked for.
_OF_TORCH = {
    "LayerGraph": "layer_graph",
    "UnifiedTensor": "_unified",
    "disable_unified_device": "_unified",
    "enable_unified_device": "_unified",
    "unified": "_unified",
}

__all__ = [
    "Array",
    "DeviceGraph",
    "DeviceSample",
    "DeviceSampler",
    "Graph",
    "Sample",
    "Sampler",
    "Table",
    "Topology",
    "__version__",
    "compile",
    "constant",
    "gpu_count",
    "gpu_memory",
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
