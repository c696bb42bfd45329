"""PyG's two stores over Headwater: features that its gather reads, and edges that its samplers read.

They work with PyG's own loaders and with ours. Ours also honour features and weights of edges, which are put under the
type of their edges: `store["paper", "cites", "paper"], "weight"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

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
        self._tables[attr.group_name, attr.attr_name] = _Table(on_host(tensor), attr.index)
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

    def __init__(self, tensor: Tensor, index: Any) -> None:
        self.tensor = tensor
        self.ids = self.places = None
        if isinstance(index, Tensor):
            if index.numel() != tensor.size(0):
                raise ValueError(f"{index.numel()} ids were given for {tensor.size(0)} rows")
            self.ids, self.places = on_host(index).long().sort()

    def rows(self, index: Any, tables: Optional[Tables] = None) -> Tensor:
        if index is None or (isinstance(index, slice) and index == slice(None)):
            return self.tensor
        if tables is not None and isinstance(index, Tensor) and index.device == tables.place.device:
            return tables.take(self.tensor, index) if self.ids is None else tables.place.bring(self.rows(index))
        if isinstance(index, slice):
            index = torch.arange(*index.indices(self.tensor.size(0)))
        index = on_host(torch.as_tensor(index)).long()
        if self.ids is None or index.numel() == 0:
            return take(self.tensor, index)
        found = torch.searchsorted(self.ids, index).clamp(max=self.ids.numel() - 1)
        missing = (self.ids[found] != index).nonzero().view(-1)
        if missing.numel() > 0:
            at = int(missing[0])
            raise IndexError(f"index[{at}] is {int(index[at])}, which has no row")
        return take(self.tensor, self.places[found])


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
