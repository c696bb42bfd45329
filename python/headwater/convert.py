"""Datasets as PyG's objects and back. Features, labels and times are the same memory on both sides."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Optional

import numpy
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from .pyg.topology import Wishes, describe

if TYPE_CHECKING:
    from .dataset import Dataset

_NODE_NAMES = {"features": "x", "labels": "y", "times": "time"}
_MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
_WEIGHT, _TIME, _ATTRIBUTES = "edge_weight", "edge_time", "edge_attr"


def to_pyg(dataset: Dataset) -> Any:
    """See `Dataset.to_pyg`."""
    is_plain = len(dataset.node_types) == 1 and len(dataset.relations) == 1
    data = Data() if is_plain else HeteroData()
    for kind, count in dataset.node_types.items():
        store = data if is_plain else data[kind]
        for what, name in _NODE_NAMES.items():
            if (array := dataset.array(what, kind)) is not None:
                store[name] = _tensor(array)
        for split, name in _MASKS.items():
            if (ids := dataset.split(split, kind)) is not None:
                store[name] = torch.zeros(count, dtype=torch.bool)
                store[name][_tensor(ids).long()] = True
        if "x" not in store:
            store.num_nodes = count
    for relation in dataset.relations:
        _put_edges(data if is_plain else data[relation], dataset, relation)
    return data


def _put_edges(store: Any, dataset: Dataset, relation: tuple) -> None:
    """Edges in the order they once had, where that is known, so that what belongs to them fits."""
    edges = _tensor(dataset.edge_index(relation))
    ids = dataset.array("edge_ids", relation)
    order = None if ids is None else _order(_tensor(ids).long(), edges.size(1))
    put = (lambda rows: rows) if order is None else (lambda rows: rows[..., order])
    store.edge_index = put(edges)
    for what, name in [("weights", _WEIGHT), ("times", _TIME)]:
        if (array := dataset.array(what, relation)) is not None:
            store[name] = put(_tensor(array))
    if (array := dataset.array("features", relation)) is not None:
        rows = _tensor(array)
        # Rows lie by edge id already.
        store[_ATTRIBUTES] = rows if ids is None or order is not None else rows[_tensor(ids).long()]


def _order(ids: Tensor, edges: int) -> Optional[Tensor]:
    """Where each edge is found, if every edge has an id of its own."""
    if edges == 0 or int(ids.max()) >= edges:
        return None
    order = torch.full((edges,), -1)
    order[ids] = torch.arange(edges)
    return None if bool((order < 0).any()) else order


def from_pyg(data: Any, name: str) -> Dataset:
    """See `headwater.from_pyg`."""
    from .dataset import Dataset

    if not isinstance(data, (Data, HeteroData)):
        raise TypeError(f"data is a {type(data).__name__}; it should be a Data or a HeteroData")
    is_plain = isinstance(data, Data)
    weight = _WEIGHT if any(_WEIGHT in store for store in data.edge_stores) else None
    time = _TIME if any(_TIME in store for store in data.edge_stores) else None
    for store in data.edge_stores:
        _check_weights(store[_WEIGHT] if _WEIGHT in store else None)
    described = describe(data, Wishes(time_attr=time, weight_attr=weight, is_backward=False))
    stores = {None: data} if is_plain else {kind: data[kind] for kind in described.node_types}

    def of_nodes(attribute: str) -> Any:
        found = {kind: store[attribute] for kind, store in stores.items() if attribute in store}
        return _only(found, is_plain)

    edges = {kind: data if is_plain else data[kind] for kind in described.edge_types}
    attributes = {kind: store[_ATTRIBUTES] for kind, store in edges.items() if _ATTRIBUTES in store}
    return Dataset.from_arrays(
        _only(described.topologies, is_plain),
        num_nodes=_only(described.num_nodes, is_plain),
        **{what: of_nodes(attribute) for what, attribute in {**_NODE_NAMES, **_MASKS}.items()},
        edge_features=_only(attributes, is_plain),
        name=name,
    )


def _check_weights(weights: Any) -> None:
    """Says that weights come back as others, where they do."""
    if isinstance(weights, Tensor) and weights.dtype == torch.float64 and not torch.equal(weights.float().double(), weights):
        warnings.warn(f"{_WEIGHT} is of float64 and is rounded: datasets keep weights as float32", stacklevel=4)


def _only(found: dict[Any, Any], is_plain: bool) -> Any:
    return found.get(None) if is_plain else found


def _tensor(array: Any) -> Tensor:
    try:
        return torch.from_dlpack(array)
    except BufferError:
        # Tensors can be written, so memory that must not be is copied.
        return torch.from_numpy(numpy.array(array))
