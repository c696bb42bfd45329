"""Headwater: graphs that do not fit in GPU memory, trained on as fast as if they did.

>>> import headwater, numpy
>>> edges = numpy.array([[0, 1], [1, 2]])
>>> topology = headwater.Topology.from_coo(edges[0], edges[1], 3, 3)
>>> graph = headwater.Graph([("node", 3)], [(0, "to", 0, topology)])
>>> graph.nodes, graph.edges
(3, 2)

`headwater.pyg` has the loaders of PyG users. It needs torch and torch-geometric; nothing else here does.
"""

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
