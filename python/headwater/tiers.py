"""Which nodes are read most, and in which memory their rows should lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _headwater
from ._headwater import Array, Graph
from .dataset import Dataset, plain

# Which kinds of scores follow what may be given.
_FOLLOWS = {
    "train": ("weighted-pagerank", "expected", "presampled"),
    "fanout": ("expected", "presampled"),
    "batch": ("expected", "presampled"),
    "batches": ("presampled",),
    "seed": ("presampled",),
    "damping": ("pagerank", "weighted-pagerank"),
    "iterations": ("pagerank", "weighted-pagerank"),
}
_MOST_ITERATIONS = 1000
_LINKS = ("device", "peer", "host", "disk")


def scores(
    graph: Union[Graph, Dataset],
    kind: str = "weighted-pagerank",
    *,
    train: Any = None,
    fanout: Sequence[int] = (12, 12, 12),
    batch: int = 1024,
    batches: Optional[int] = None,
    seed: int = 1,
    damping: Optional[float] = None,
    iterations: Optional[int] = None,
) -> dict[str, Array]:
    """How much every node will be read, as an array a node type; larger is more.

    `out-degree`, `in-degree` and `presampled` are counts, `pagerank` (reverse PageRank) and `weighted-pagerank` (with
    weight on the training nodes) are shares, and `expected` is reads an epoch. The last three must know the training
    nodes: those of the dataset, or `train`, ids by node type. `expected` and `presampled` also follow `fanout` and
    `batch`; the latter draws `batches` batches, by `seed`. Of both ranks, `damping` is the share of a score that is
    handed on, 0.85 by default, and `iterations` says how many there are: five with weight on training nodes, else until
    nothing changes. What a kind does not follow is refused where it is given.

    >>> import numpy
    >>> topology = _headwater.Topology.from_coo(numpy.array([0, 0]), numpy.array([1, 2]), 3, 3)
    >>> numpy.asarray(scores(Graph([("node", 3)], [(0, "to", 0, topology)]), "out-degree")["node"])
    array([2, 0, 0])
    """
    if iterations is not None and not 1 <= iterations <= _MOST_ITERATIONS:
        raise ValueError(f"iterations is {iterations}; it should be from 1 to {_MOST_ITERATIONS}")
    given = {"train": train, "batches": batches, "damping": damping, "iterations": iterations}
    usual = {"fanout": (fanout, (12, 12, 12)), "batch": (batch, 1024), "seed": (seed, 1)}
    given.update({name: own for name, (own, default) in usual.items() if (tuple(own) if name == "fanout" else own) != default})
    for name, own in given.items():
        if own is not None and kind in _headwater.score_kinds() and kind not in _FOLLOWS[name]:
            raise ValueError(f"{name} is given, but {kind} does not follow it; it is for {' and '.join(_FOLLOWS[name])}")
    lists = graph.graph() if isinstance(graph, Dataset) else graph
    types = [name for name, _ in lists.node_types]
    if train is None and isinstance(graph, Dataset):
        train = {name: graph.split("train", name) for name in types}
    given = _by_type("train", train, types)
    ids = [plain(given.get(name)) for name in types]
    found = _headwater.score(lists, kind, ids, list(fanout), batch, batches, seed, damping, iterations)
    return dict(zip(types, found))


@dataclass(frozen=True)
class Tier:
    """What is expected of a memory: `replicated` in every GPU, `interleaved` over them, `host` or `disk`."""

    name: str
    rows: int
    hit_rate: float
    bytes_per_epoch: float
    seconds_per_epoch: float


@dataclass(frozen=True)
class TablePlan:
    """Where the rows of a table lie, the most read first: three ends, and the rest on disk."""

    replicated_end: int
    interleaved_end: int
    host_end: int
    tiers: tuple[Tier, ...]
    seconds_per_epoch: float


@dataclass(frozen=True)
class Plan:
    """Where rows lie, and what an epoch takes: as long as its busiest link."""

    tables: dict[str, TablePlan]
    tiers: tuple[Tier, ...]
    seconds_per_epoch: float

    def __repr__(self) -> str:
        lines = [f"Plan of {len(self.tables)} table(s), {self.seconds_per_epoch:.6g} s an epoch"]
        for tier in self.tiers:
            lines.append(
                f"  {tier.name:<11} {tier.rows:>12} rows {100 * tier.hit_rate:6.2f}% of reads "
                f"{tier.bytes_per_epoch / 1e9:10.4f} GB {tier.seconds_per_epoch:.6g} s"
            )
        return "\n".join(lines)


def plan(
    scores: Any,
    row_bytes: Union[int, Mapping[str, int]],
    *,
    gpu_bytes: int,
    host_bytes: int,
    gpus: int = 1,
    disk: bool = True,
    reads_per_epoch: Union[float, Mapping[str, float], None] = None,
    links: Optional[Mapping[str, float]] = None,
    in_order: bool = False,
) -> Plan:
    """Divides the rows of a table, or of one a node type, between memories so that an epoch is shortest.

    `scores` has a number a row, larger for rows that are read more; rows are then placed the most read first, or as
    they stand with `in_order`. Without `reads_per_epoch` their sum is taken for it. `gpu_bytes` are of each of the
    `gpus`, and `links` are GB/s to `device`, `peer`, `host` and `disk`. Rows that fit nowhere are a MemoryError without
    `disk`.

    >>> import numpy
    >>> found = plan(numpy.array([1, 6, 3]), 100, gpu_bytes=100, host_bytes=100)
    >>> [(tier.name, tier.rows, round(tier.hit_rate, 2)) for tier in found.tiers]
    [('replicated', 1, 0.6), ('interleaved', 0, 0.0), ('host', 1, 0.3), ('disk', 1, 0.1)]
    """
    tables = dict(scores) if isinstance(scores, Mapping) else {"node": scores}
    widths, reads = _by_type("row_bytes", row_bytes, tables), _by_type("reads_per_epoch", reads_per_epoch, tables)
    for name in tables:
        if name not in widths:
            raise ValueError(f"row_bytes has nothing for {name!r}")
    if gpus < 1:
        raise ValueError(f"gpus is {gpus}; it should be at least 1")
    found, tiers, seconds = _headwater.plan(
        [(plain(own), widths[name], reads.get(name)) for name, own in tables.items()],
        (gpu_bytes, gpus, host_bytes, disk),
        _rates(links),
        in_order,
    )
    planned = {
        name: TablePlan(*ends, tuple(Tier(*tier) for tier in own), taken)
        for name, (ends, own, taken) in zip(tables, found)
    }
    return Plan(planned, tuple(Tier(*tier) for tier in tiers), seconds)


def _rates(links: Optional[Mapping[str, float]]) -> Optional[list[float]]:
    if links is None:
        return None
    if set(links) != set(_LINKS):
        raise ValueError(f"links names {', '.join(links)}; it should name {', '.join(_LINKS)}")
    return [float(links[name]) for name in _LINKS]


def _by_type(what: str, value: Any, types: Any) -> dict[str, Any]:
    """What was given, by type; one that is given alone belongs to the only one."""
    if value is None:
        return {}
    names = list(types)
    if not isinstance(value, Mapping):
        if len(names) != 1:
            raise ValueError(f"{what} should be a dictionary by node type: {', '.join(names)}")
        return {names[0]: value}
    for name in value:
        if name not in names:
            raise ValueError(f"{what} names {name!r}; there are {', '.join(names)}")
    return dict(value)
