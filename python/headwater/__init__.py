"""Headwater: graphs that do not fit in GPU memory, trained on as fast as if they did.

>>> import headwater, numpy
>>> edges = numpy.array([[0, 1], [1, 2]])
>>> topology = headwater.Topology.from_coo(edges[0], edges[1], 3, 3)
>>> graph = headwater.Graph([("node", 3)], [(0, "to", 0, topology)])
>>> graph.nodes, graph.edges
(3, 2)

`Dataset`, `generate`, `ingest` and `from_pyg` are graphs with features and labels, `Trainer` trains on them, `scores`
and `plan` say which rows are read most and where they should lie.

`headwater.pyg` has the loaders of PyG users. It needs torch and torch-geometric; so do `from_pyg` and `Dataset.to_pyg`,
and nothing else here does.
"""

from ._headwater import Array, Graph, Sample, Sampler, Topology, __version__, shapes, take_rows
from .dataset import Dataset, from_pyg, generate, ingest
from .run import Run
from .tiers import Plan, plan, scores
from .trainer import Trainer

__all__ = [
    "Array",
    "Dataset",
    "Graph",
    "Plan",
    "Run",
    "Sample",
    "Sampler",
    "Topology",
    "Trainer",
    "__version__",
    "from_pyg",
    "generate",
    "ingest",
    "plan",
    "scores",
    "shapes",
    "take_rows",
]
