"""PyG's two stores over Headwater: features that its gather reads, and edges that its samplers read.

They work with PyG's own loaders and with ours. Ours also honour features and weights of edges, which are put under the
type of their edges: `store["paper", "cites", "paper"], "weight"`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, TensorAttr
from torch_geometric.data import FeatureStore as PyGFeatureStore
from torch_geometric.data import GraphStore as PyGGraphStore

from .join import take
from .tables import Tables
from .topology import on_host


class FeatureStore(PyGFeatureStore):
    """Features of nodes and edges in host memory, by group and name.

    >>> features = FeatureStore()
    >>> features.put_tensor(torch.arange(6).view(3, 2), group_name="paper", attr_name="x", index=None)
    True
    >>> features.get_tensor("paper", "x", index=torch.tensor([2]))
    tensor([[4, 5]])

    `index` is numbers of rows, a mask, a slice, or one number. With one, `put_tensor` overwrites rows of a tensor that is there;
    of a new one it says under which ids its rows are.
    """

    def __init__(self, tensor_attr_cls: Optional[Any] = None) -> None:
        super().__init__(tensor_attr_cls)
        self._tables: dict[tuple, _Table] = {}
        self._on_gpu: Optional[Tables] = None

    def placed(self, tables: Tables) -> None:
        """Ids on a GPU are answered there from now on, out of these tables."""
        self._on_gpu = tables

    def plain_tables(self) -> Iterator[tuple[Any, Tensor]]:
        """Tensors of nodes whose rows are under their positions, with the type of the nodes."""
        for (group, _), table in self._tables.items():
            if table.ids is None and not isinstance(group, tuple):
                yield group, table.tensor

    def rows_of(self, nodes: Tensor, edges: Optional[Tensor]) -> dict[str, Tensor]:
        """Everything of these nodes and edges of a graph of one type, by name: what asking one by one gives, in less time."""
        found = {}
        for (group, name), table in self._tables.items():
            index = edges if isinstance(group, tuple) else nodes
            if index is not None:
                found[name] = table.rows(index, self._on_gpu)
        return found

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        """Makes a table, or with an index overwrites rows of one that is there, as PyG's own data does."""
        key, index = (attr.group_name, attr.attr_name), _told(attr.index)
        held = self._tables.get(key)
        if held is None or _is_all(index):
            self._tables[key] = _Table(on_host(tensor), index)
        else:
            self._tables[key] = held.overwritten(on_host(tensor), index, in_place=self._on_gpu is None)
        # What a GPU has of the old rows goes with them.
        if held is not None and self._on_gpu is not None:
            self._on_gpu.forget(held.tensor)
        return True

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        table = self._tables.get((attr.group_name, attr.attr_name))
        if table is None:
            raise KeyError(f"there is no tensor {attr.attr_name!r} of {attr.group_name!r}")
        return table.rows(attr.index, self._on_gpu)

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return self._tables.pop((attr.group_name, attr.attr_name), None) is not None

    def _get_tensor_size(self, attr: TensorAttr) -> Optional[tuple[int, ...]]:
        table = self._tables.get((attr.group_name, attr.attr_name))
        return None if table is None else tuple(table.tensor.shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        return [self._tensor_attr_cls.cast(*key) for key in self._tables]

    def __len__(self) -> int:
        return len(self._tables)


class _Table:
    """Rows, each under its position or under an id of its own."""

    def __init__(self, tensor: Tensor, index: Any = None) -> None:
        self.tensor = tensor
        self.ids = self.places = None
        if _is_all(index):
            return
        if isinstance(index, int):
            self.tensor = tensor = tensor.unsqueeze(0)
        if isinstance(index, slice):
            first, step = index.start or 0, index.step or 1
            stop = index.stop if index.stop is not None else first + step * tensor.size(0)
            ids = torch.tensor(range(first, stop, step), dtype=torch.long)
        else:
            ids = _numbers(index, None)
        if ids.numel() != tensor.size(0):
            raise ValueError(f"{ids.numel()} ids were given for {tensor.size(0)} rows")
        if ids.numel() > 0 and int(ids.min()) < 0:
            raise ValueError(f"an id is {int(ids.min())}; ids should not be negative")
        self.ids, self.places = ids.sort()

    def rows(self, index: Any, tables: Optional[Tables] = None) -> Tensor:
        index = _told(index)
        if _is_all(index):
            return self.tensor
        if tables is not None and isinstance(index, Tensor) and index.device == tables.place.device:
            is_plain = self.ids is None and index.dtype != torch.bool
            return tables.take(self.tensor, index) if is_plain else tables.place.bring(self.rows(index))
        if isinstance(index, int):
            return self.tensor[index] if self.ids is None else self.rows([index])[0]
        if isinstance(index, slice) and self.ids is None and (index.step or 1) > 0:
            return self.tensor[index]
        return take(self.tensor, self._places(index))

    def overwritten(self, rows: Tensor, index: Any, in_place: bool) -> _Table:
        """The table with other rows there."""
        made = copy.copy(self)
        made.tensor = self.tensor if in_place else self.tensor.clone()
        made.tensor[self._places([index] if isinstance(index, int) else index)] = rows.to(made.tensor.dtype)
        return made

    def _places(self, index: Any) -> Tensor:
        """Where the rows of an index are."""
        count = self.tensor.size(0) if self.ids is None else int(self.ids[-1]) + 1 if self.ids.numel() > 0 else 0
        wanted = _numbers(index, count)
        if self.ids is None or wanted.numel() == 0:
            return wanted
        found = torch.searchsorted(self.ids, wanted).clamp(max=self.ids.numel() - 1)
        missing = (self.ids[found] != wanted).nonzero().view(-1)
        if missing.numel() > 0:
            at = int(missing[0])
            raise IndexError(f"index[{at}] is {int(wanted[at])}, which has no row")
        return self.places[found]


def _told(index: Any) -> Any:
    """One number is one, whoever made it."""
    is_one = isinstance(index, (np.integer, Tensor, np.ndarray)) and index.ndim == 0 and index.dtype not in (torch.bool, bool)
    return int(index) if is_one else index


def _is_all(index: Any) -> bool:
    return index is None or (isinstance(index, slice) and index == slice(None))


def _numbers(index: Any, count: Optional[int]) -> Tensor:
    """The numbers that an index names, of so many: it may be a slice, a mask, or numbers themselves."""
    if isinstance(index, slice):
        return torch.tensor(range(*index.indices(count or 0)), dtype=torch.long)
    index = on_host(torch.as_tensor(index))
    if index.dtype == torch.bool:
        if count is not None and index.numel() != count:
            raise IndexError(f"the mask has {index.numel()} elements for {count} rows")
        return index.nonzero().view(-1)
    is_whole = index.dtype in (torch.int64, torch.int32, torch.int16, torch.int8)
    # An empty list is a float tensor in torch.
    if not is_whole and index.numel() > 0:
        raise IndexError(f"index has elements of {index.dtype}; it should be whole numbers, a mask, a slice or a number")
    return index.long().view(-1) if index.dim() <= 1 else index.long()


class GraphStore(PyGGraphStore):
    """Edges in host memory, by type and layout.

    >>> graph = GraphStore()
    >>> graph.put_edge_index(torch.tensor([[0, 1], [1, 2]]), edge_type=("a", "to", "a"), layout="coo", size=(3, 3))
    True
    """

    def __init__(self, edge_attr_cls: Optional[Any] = None) -> None:
        super().__init__(edge_attr_cls)
        self._edges: dict[tuple, tuple[EdgeAttr, tuple[Tensor, Tensor]]] = {}

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        ends = (on_host(edge_index[0]), on_host(edge_index[1]))
        self._edges[edge_attr.edge_type, edge_attr.layout] = (edge_attr, ends)
        return True

    def _get_edge_index(self, edge_attr: EdgeAttr) -> Optional[tuple[Tensor, Tensor]]:
        found = self._edges.get((edge_attr.edge_type, edge_attr.layout))
        return None if found is None else found[1]

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        return self._edges.pop((edge_attr.edge_type, edge_attr.layout), None) is not None

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        return [attr for attr, _ in self._edges.values()]
