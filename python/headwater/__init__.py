"""Headwater: graphs that do not fit in GPU memory, trained on as fast as if they did.

>>> import headwater, numpy
>>> edges = numpy.array([[0, 1], [1, 2]])
>>> topology = headwater.Topology.from_coo(edges[0], edges[1], 3, 3)
>>> graph = headwater.Graph([("node", 3)], [(0, "to", 0, topology)])
>>> graph.nodes, graph.edges
(3, 2)

`headwater.pyg` has the loaders of PyG users, which need torch and torch-geometric. Unified tensors need torch; nothing else
here does.
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
    "gpu_count",
    "gpu_memory",
    "synchronize",
    "take_rows",
]

# These need torch, which is imported when the first of them is asked for.
_OF_TORCH = ("UnifiedTensor", "disable_unified_device", "enable_unified_device", "unified")
__all__ += _OF_TORCH


def __getattr__(name: str) -> Any:
    if name in _OF_TORCH:
        from importlib import import_module

        # A module of this name lies beside the function.
        found = import_module(f"{__name__}._unified")
        return getattr(found, name)
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")
