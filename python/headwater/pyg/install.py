"""PyG's own loaders on Headwater: the two operators that they look for, where no sampler library is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.sampler import NeighborSampler as PyGSampler

from .._headwater import Graph, Sampler, Topology
from .sampler import fresh_seed
from .topology import on_host

_TAIL = (
    "bool csc=False, bool replace=False, bool directed=True, bool disjoint=False, "
    "str temporal_strategy='uniform', bool return_edge_id=True"
)
_NEIGHBOR = (
    "neighbor_sample(Tensor rowptr, Tensor col, Tensor seed, int[] num_neighbors, Tensor? node_time=None, "
    f"Tensor? edge_time=None, Tensor? seed_time=None, Tensor? edge_weight=None, {_TAIL}) "
    "-> (Tensor, Tensor, Tensor, Tensor?, int[], int[])"
)
_HETERO = (
    "hetero_neighbor_sample(str[] node_types, (str, str, str)[] edge_types, Dict(str, Tensor) rowptr_dict, "
    "Dict(str, Tensor) col_dict, Dict(str, Tensor) seed_dict, Dict(str, int[]) num_neighbors_dict, "
    "Dict(str, Tensor)? node_time_dict=None, Dict(str, Tensor)? edge_time_dict=None, "
    f"Dict(str, Tensor)? seed_time_dict=None, Dict(str, Tensor)? edge_weight_dict=None, {_TAIL}) "
    "-> (Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor)?, Dict(str, int[]), Dict(str, int[]))"
)
# What PyG asks before it calls them.
_FLAGS = ("WITH_PYG_LIB", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")

_library: Optional[torch.library.Library] = None


def install() -> bool:
    """Lets PyG's own `NeighborLoader` and `LinkNeighborLoader` sample with Headwater.

    Whether it does: where `pyg-lib` is installed, nothing is changed. May be called again.

    >>> import headwater.pyg
    >>> headwater.pyg.install()
    True
    """
    global _library
    if _library is not None:
        return True
    if importlib.util.find_spec("pyg_lib") is not None:
        return False
    library = torch.library.Library("pyg", "FRAGMENT")
    library.define(_NEIGHBOR)
    library.define(_HETERO)
    library.impl("neighbor_sample", _neighbor_sample, "CPU")
    library.impl("hetero_neighbor_sample", _hetero_neighbor_sample, "CompositeExplicitAutograd")
    for flag in _FLAGS:
        setattr(torch_geometric.typing, flag, True)
    # Loaders send their sampler to processes that have not called this.
    PyGSampler.__reduce__ = _sent
    _library = library
    return True


def _sent(sampler: PyGSampler) -> Any:
    return _arrived, (type(sampler), dict(sampler.__dict__))


def _arrived(kind: type, state: dict[str, Any]) -> PyGSampler:
    install()
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


def _neighbor_sample(
    rowptr: Tensor,
    col: Tensor,
    seed: Tensor,
    num_neighbors: list[int],
    node_time: Optional[Tensor] = None,
    edge_time: Optional[Tensor] = None,
    seed_time: Optional[Tensor] = None,
    edge_weight: Optional[Tensor] = None,
    *tail: Any,
) -> Any:
    named = "n__to__n"
    times = {"n": node_time} if node_time is not None else None
    found = _hetero_neighbor_sample(
        ["n"],
        [("n", "to", "n")],
        {named: rowptr},
        {named: col},
        {"n": seed},
        {named: num_neighbors},
        times,
        {named: edge_time} if edge_time is not None else None,
        {"n": seed_time} if seed_time is not None else None,
        {named: edge_weight} if edge_weight is not None else None,
        *tail,
    )
    rows, cols, nodes, edges, node_hops, edge_hops = found
    edge = edges[named] if edges is not None else None
    return rows[named], cols[named], nodes["n"], edge, node_hops["n"], edge_hops[named]


def _hetero_neighbor_sample(
    node_types: list[str],
    edge_types: list[tuple[str, str, str]],
    rowptr_dict: dict[str, Tensor],
    col_dict: dict[str, Tensor],
    seed_dict: dict[str, Tensor],
    num_neighbors_dict: dict[str, list[int]],
    node_time_dict: Optional[dict[str, Tensor]] = None,
    edge_time_dict: Optional[dict[str, Tensor]] = None,
    seed_time_dict: Optional[dict[str, Tensor]] = None,
    edge_weight_dict: Optional[dict[str, Tensor]] = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> Any:
    if not directed:
        raise ValueError("subgraph_type='induced' is in headwater.pyg.NeighborLoader, not in PyG's operators")
    names = ["__".join(kind) for kind in edge_types]
    at = {kind: place for place, kind in enumerate(node_types)}
    counts = _counts(node_types, edge_types, rowptr_dict, col_dict, seed_dict, node_time_dict, csc)
    relations = []
    for kind, name in zip(edge_types, names):
        # Whoever owns the lists asks; in CSC that is the target.
        asking, seen = (kind[2], kind[0]) if csc else (kind[0], kind[2])
        carried = {
            "weights": (edge_weight_dict or {}).get(name),
            "times": (edge_time_dict or {}).get(name),
            "node_times": (node_time_dict or {}).get(seen),
        }
        carried = {name: on_host(value) for name, value in carried.items() if value is not None}
        topology = _lists(rowptr_dict[name], col_dict[name], counts[asking], counts[seen], carried)
        relations.append((at[seen], kind[1], at[asking], topology))
    graph = Graph([(kind, counts[kind]) for kind in node_types], relations)
    hops = max((len(numbers) for numbers in num_neighbors_dict.values()), default=0)
    fanouts = [[int(num_neighbors_dict[name][hop]) for name in names] for hop in range(hops)]
    sampler = Sampler(
        graph,
        fanouts,
        replace=replace,
        disjoint=disjoint,
        weighted=edge_weight_dict is not None,
        last=temporal_strategy == "last" and (node_time_dict is not None or edge_time_dict is not None),
    )
    times = seed_time_dict or {}
    seeds = []
    for kind, nodes in seed_dict.items():
        time = times.get(kind)
        if time is None and (node_time_dict or {}).get(kind) is not None:
            time = node_time_dict[kind][nodes.long()]
        if time is None and (node_time_dict is not None or edge_time_dict is not None):
            raise ValueError(f"seeds of {kind!r} have no times and would see the future; give them as `input_time`")
        seeds.append((at[kind], on_host(nodes), None if time is None else on_host(time)))
    sample = sampler.sample(seeds, (fresh_seed(), 0, 0))
    return _told(sample, node_types, names, csc, disjoint, return_edge_id, next(iter(seed_dict.values())).dtype)


def _counts(
    node_types: list[str],
    edge_types: list[tuple[str, str, str]],
    rowptrs: dict[str, Tensor],
    cols: dict[str, Tensor],
    seeds: dict[str, Tensor],
    times: Optional[dict[str, Tensor]],
    csc: bool,
) -> dict[str, int]:
    """How many nodes of each type there must be: the operators are not told."""
    counts = dict.fromkeys(node_types, 0)

    def seen(kind: str, count: int) -> None:
        counts[kind] = max(counts[kind], count)

    for kind in edge_types:
        name = "__".join(kind)
        asking, found = (kind[2], kind[0]) if csc else (kind[0], kind[2])
        seen(asking, rowptrs[name].numel() - 1)
        seen(found, _highest(cols[name]) + 1)
    for kind, nodes in seeds.items():
        seen(kind, int(nodes.max()) + 1 if nodes.numel() > 0 else 0)
    for kind, own in (times or {}).items():
        seen(kind, own.numel())
    return counts


# What was worked out of whole tensors, for as long as these are not others: every batch comes with the same ones.
_kept: dict[tuple, tuple[Any, Any]] = {}
_MOST_KEPT = 64


def _once(what: tuple, tensors: Sequence[Tensor], make: Callable[[], Any]) -> Any:
    key = (what, *((own.data_ptr(), own.numel(), own.dtype, own._version) for own in tensors))
    found = _kept.get(key)
    if found is None:
        while len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)), None)
        # Tensors are held, so that their addresses stay theirs.
        found = _kept[key] = (tensors, make())
    return found[1]


def _highest(ids: Tensor) -> int:
    return _once(("highest",), [ids], lambda: int(ids.max()) if ids.numel() > 0 else -1)


def _lists(offsets: Tensor, neighbours: Tensor, rows: int, columns: int, carried: dict[str, Tensor]) -> Topology:
    def make() -> Topology:
        padded = _padded(on_host(offsets), rows)
        return Topology.from_lists(padded, on_host(neighbours), columns, is_sorted=True, **carried)

    return _once(("lists", rows, columns, *carried), [offsets, neighbours, *carried.values()], make)


def _padded(offsets: Tensor, rows: int) -> Tensor:
    """Lists for all nodes of a type: those that a relation does not know have none."""
    missing = rows + 1 - offsets.numel()
    return torch.cat([offsets, offsets[-1:].expand(missing)]) if missing > 0 else offsets


def _told(
    sample: Any, node_types: list[str], names: list[str], csc: bool, disjoint: bool, keeps_ids: bool, dtype: torch.dtype
) -> Any:
    def tensor(array: Any) -> Tensor:
        return torch.from_dlpack(array).to(dtype)

    nodes = {kind: tensor(sample.nodes(at)) for at, kind in enumerate(node_types)}
    if disjoint:
        trees = {kind: tensor(sample.trees(at)) for at, kind in enumerate(node_types)}
        nodes = {kind: torch.stack([trees[kind], own], dim=1) for kind, own in nodes.items()}
    ends = {name: tensor(sample.edges(at)) for at, name in enumerate(names)}
    # Neighbours are told as rows in CSC, and as columns in CSR.
    row, col = (0, 1) if csc else (1, 0)
    edges = {name: tensor(sample.edge_ids(at)) for at, name in enumerate(names)} if keeps_ids else None
    return (
        {name: own[row] for name, own in ends.items()},
        {name: own[col] for name, own in ends.items()},
        nodes,
        edges,
        {kind: sample.nodes_per_hop(at) for at, kind in enumerate(node_types)},
        {name: sample.edges_per_hop(at) for at, name in enumerate(names)},
    )
