"""Headwater: graphs that do not fit in GPU memory, trained on as fast as if they did.

>>> import headwater, numpy
>>> edges = numpy.array([[0, 1], [1, 2]])
>>> topology = headwater.Topology.from_coo(edges[0], edges[1], 3, 3)
>>> graph = headwater.Graph([("node", 3)], [(0, "to", 0, topology)])
>>> graph.nodes, graph.edges
(3, 2)

`headwater.pyg` has the loaders of PyG users; it needs torch and torch-geometric. `headwater.compile` makes layers out of short
texts; calling one needs torch.
"""

from typing import Any

from ._headwater import Array, Graph, Sample, Sampler, Topology, __version__, take_rows
from .compile import compile, constant, when

__all__ = [
    "Array",
    "Graph",
    "Sample",
    "Sampler",
    "Topology",
    "__version__",
    "compile",
    "constant",
    "take_rows",
    "when",
]


def __getattr__(name: str) -> Any:
    # What needs torch is imported when it is asked for.
    if name == "LayerGraph":
        from .layer_graph import LayerGraph

        return LayerGraph
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")
