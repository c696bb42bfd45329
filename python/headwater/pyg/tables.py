"""What belongs to nodes and edges, where a GPU reads it: hot rows in GPU memory, the others in host memory."""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Optional, Union

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import recursive_apply
from torch_geometric.loader.utils import index_select

from .._headwater import Table
from ..gpu import Place, gather
from .handed import Handed, tensors_in

Budget = Union[int, float, str, None]
MODES = ("auto", "tiered", "zero-copy", "all-gpu")
# Of the memory that is free, when nobody says how much features may take: models need some too.
_FREE_SHARE = 0.5
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def budget_bytes(budget: Budget, all_bytes: int, free_bytes: int) -> int:
    """Bytes of GPU memory that features may take: a number of them, "8GB", a share of the features, or half of what is free."""
    if budget is None:
        return min(all_bytes, int(free_bytes * _FREE_SHARE))
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*([0-9.]+)\s*([KMG]?I?)B?\s*", budget.upper())
        if found is None:
            raise ValueError(f"budget is {budget!r}; it should be bytes as in '8GB', a number of bytes, or a share below 1")
        return int(float(found[1]) * _UNITS[found[2]])
    if isinstance(budget, float) and 0.0 <= budget <= 1.0:
        return int(budget * all_bytes)
    if budget < 0:
        raise ValueError(f"budget is {budget}; it should not be negative")
    return int(budget)


def hot_counts(reads: dict[Any, Tensor], row_bytes: dict[Any, int], budget: int) -> dict[Any, int]:
    """How many rows of each type are hot, when a budget goes to the rows that are read most a byte."""
    kinds = [kind for kind in reads if row_bytes[kind] > 0 and reads[kind].numel() > 0]
    if len(kinds) <= 1:
        return {kind: min(reads[kind].numel(), budget // row_bytes[kind]) for kind in kinds}
    worth = torch.cat([reads[kind].double() / row_bytes[kind] for kind in kinds])
    sizes = torch.cat([torch.full((reads[kind].numel(),), row_bytes[kind]) for kind in kinds])
    order = worth.argsort(descending=True, stable=True)
    taken = order[: int((sizes[order].cumsum(0) <= budget).sum())]
    whose = torch.repeat_interleave(torch.arange(len(kinds)), torch.tensor([reads[kind].numel() for kind in kinds]))
    counts = torch.bincount(whose[taken], minlength=len(kinds)).tolist()
    return dict(zip(kinds, counts))


class Tables:
    """Attributes of a graph for one GPU."""

    def __init__(self, place: Place) -> None:
        self.place = place
        # Attributes are held, so that their identities stay their own.
        self._tables: dict[int, tuple[Any, Table]] = {}
        self._whole: dict[int, tuple[Any, list[int], Handed]] = {}
        # What belongs to the whole graph and has nothing that a GPU reads, with its length.
        self.without_tensors: dict[int, tuple[Any, int]] = {}

    def put(self, value: Any, hot_rows: int, reads: Optional[Tensor] = None) -> Table:
        """Places an attribute. Where GPU memory is short after all, fewer of its rows are hot."""
        while True:
            try:
                table = Table(_rows(value), self.place.ordinal, hot_rows, reads=reads if hot_rows > 0 else None)
                break
            except MemoryError:
                if hot_rows == 0:
                    raise
                warnings.warn(f"GPU memory is short: {hot_rows // 2} rows are hot instead of {hot_rows}", stacklevel=2)
                hot_rows //= 2
        self._tables[id(value)] = (value, table)
        return table

    def forget(self, value: Any) -> None:
        """Nobody asks for this attribute any more. What is queued on it goes on."""
        self._tables.pop(id(value), None)

    def take(self, value: Any, index: Tensor, dim: int = 0) -> Any:
        """`value[index]` on the GPU. `index` lies there."""
        if isinstance(value, Tensor) and value.device == self.place.device and value.is_cuda:
            return value.index_select(dim, index)
        if dim != 0 or not _has_rows(value):
            return self.place.bring(_tensor(index_select(value, index.cpu(), dim=dim)))
        held = self._tables.get(id(value))
        table = self.put(value, 0) if held is None else held[1]
        dtype = _dtype(value)
        return gather(table, index, _NUMBERS.get(dtype, dtype), self.place).view(dtype)

    def whole(self, value: Any) -> Any:
        """An attribute of the whole graph, brought once, by one stream for all of them."""
        versions = [0 if own.is_inference() else own._version for own in tensors_in(value, self.without_tensors)]
        if not versions:
            if isinstance(value, (list, tuple, dict)):
                self.without_tensors[id(value)] = (value, len(value))
            return value
        held = self._whole.get(id(value))
        if held is None or held[1] != versions:
            brought = recursive_apply(value, self.place.bring)
            held = self._whole[id(value)] = (value, versions, Handed(self.place, brought))
        return held[2].taken()

    @property
    def served(self) -> dict[str, int]:
        """Rows that came out of GPU memory and out of host memory so far."""
        counts = [table.served(self.place.stream()) for _, table in self._tables.values()]
        return {"gpu_rows": sum(gpu for gpu, _ in counts), "host_rows": sum(host for _, host in counts)}

    def __repr__(self) -> str:
        return f"Tables({[table for _, table in self._tables.values()]})"


# Loaders of one graph share what they have in GPU memory.
_shared: weakref.WeakValueDictionary[tuple, Tables] = weakref.WeakValueDictionary()


def tables_of(place: Place, source: Any, features: Optional[str], budget: Budget, reads: Callable[[], Any]) -> Tables:
    """What belongs to nodes and edges, placed as `features` says; `reads` tells on demand how often nodes are read."""
    features = "auto" if features is None else features
    if features not in MODES:
        raise ValueError(f"features is {features!r}; it should be one of {', '.join(map(repr, MODES))}")
    if features in ("zero-copy", "all-gpu") and budget is not None:
        raise ValueError(f"budget is for features='tiered'; features is {features!r}")
    own = [(kind, value) for kind, value in _of_nodes(source) if _has_rows(value)]
    key = (place.ordinal, features, budget, *(id(value) for _, value in own))
    found = _shared.get(key)
    if found is None:
        found = _shared[key] = Tables(place)
        _place(found, own, features, budget, reads)
    return found


def _place(tables: Tables, own: list[tuple[Any, Any]], features: str, budget: Budget, reads: Callable[[], Any]) -> None:
    all_bytes = sum(value.nbytes for _, value in own)
    if features == "zero-copy":
        most = 0
    elif features == "all-gpu":
        most = all_bytes
    else:
        most = budget_bytes(budget, all_bytes, tables.place.free_bytes() if budget is None else 0)
    if most >= all_bytes or most <= 0:
        for _, value in own:
            tables.put(value, len(value) if most > 0 else 0)
        return
    row_bytes: dict[Any, int] = {}
    for kind, value in own:
        row_bytes[kind] = row_bytes.get(kind, 0) + value.nbytes // len(value)
    ranked = {kind: numbers for kind, numbers in reads().items() if kind in row_bytes}
    counts = hot_counts(ranked, row_bytes, most)
    for kind, value in own:
        tables.put(value, counts.get(kind, 0), ranked.get(kind))


def _of_nodes(source: Any) -> Iterator[tuple[Any, Any]]:
    """What belongs to nodes, with the type of its nodes."""
    if isinstance(source, (Data, HeteroData)):
        for store in source.node_stores:
            for key, value in store.items():
                if store.is_node_attr(key) and store._parent().__cat_dim__(key, value, store) == 0:
                    yield store._key, value
        return
    from .stores import FeatureStore

    if isinstance(source[0], FeatureStore):
        yield from source[0].plain_tables()


def _has_rows(value: Any) -> bool:
    """Whether the GPU can read rows of it where it lies."""
    if isinstance(value, np.ndarray):
        return value.flags.c_contiguous and value.dtype.isnative and value.ndim > 0 and value.size > 0
    is_plain = isinstance(value, Tensor) and type(value) is Tensor and value.layout == torch.strided
    # Rows that learn are looked up by torch, which knows the way back.
    is_plain = is_plain and not value.is_cuda and not value.requires_grad
    return is_plain and value.dim() > 0 and value.numel() > 0 and value.is_contiguous()


def _rows(value: Any) -> Any:
    return in_numbers(value.detach()) if isinstance(value, Tensor) else value


def in_numbers(value: Tensor) -> Tensor:
    """The tensor over elements that other libraries know, of the same size. Rows are moved and not looked at."""
    return value.view(_NUMBERS[value.dtype]) if value.dtype in _NUMBERS else value


# Kinds of elements that the protocol between libraries has no name for, or one that few know.
_NUMBERS = {
    getattr(torch, name): torch.int32 if name == "complex32" else torch.uint8
    for name in dir(torch)
    if name == "complex32" or name.startswith(("float8_", "float4_"))
}


def _dtype(value: Any) -> torch.dtype:
    return value.dtype if isinstance(value, Tensor) else torch.from_numpy(np.empty(0, value.dtype)).dtype


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.as_tensor(value)
