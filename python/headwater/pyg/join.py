"""A batch out of a sample: its nodes and edges with everything that belongs to them."""

from __future__ import annotations

import copy
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.utils import filter_custom_hetero_store, index_select
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from .._headwater import take_rows
from .tables import Tables, in_numbers


def take(value: Any, index: Tensor, dim: int = 0) -> Any:
    """`value[index]` along a dimension. Rows in host memory are gathered by Headwater's threads."""
    is_plain = isinstance(value, Tensor) and type(value) is Tensor and value.layout == torch.strided and not value.is_cuda
    if is_plain and dim == 0 and value.dim() > 0 and value.is_contiguous() and not value.requires_grad:
        # Signs and conjugates that torch has yet to write are torch's to look up.
        if not value.is_neg() and not value.is_conj():
            rows = torch.from_dlpack(take_rows(in_numbers(value), index))
            return rows if rows.dtype == value.dtype else rows.view(value.dtype)
    if isinstance(value, np.ndarray) and dim == 0 and value.flags.c_contiguous and value.dtype.isnative:
        return torch.from_dlpack(take_rows(value, index))
    if isinstance(value, Tensor):
        index = index.to(value.device)
    return index_select(value, index, dim=dim)


def join(source: Any, out: Any, custom_cls: Optional[type] = None, tables: Optional[Tables] = None) -> Any:
    """The batch of a sample that names its edges by where they stand in the user's arrays; on a GPU with its tables."""
    if tables is not None and isinstance(source, (tuple, list)) and not hasattr(source[0], "placed"):
        source = (_Remote(source[0], tables), source[1])
    if isinstance(out, SamplerOutput):
        return _join_one(source, out, custom_cls, tables)
    if isinstance(out, HeteroSamplerOutput):
        return _join_types(source, out, custom_cls, tables)
    raise TypeError(f"a sampler returned a {type(out).__name__}; it should be a SamplerOutput or a HeteroSamplerOutput")


def fill(data: Any, fields: dict[str, Any]) -> None:
    """Sets attributes of a batch; those that are None go. One by one, PyG asks each for properties and caches, which takes
    longer than to gather the rows. A plain batch that nobody has looked at has none."""
    if type(data) is not Data or "_cached_attr" in data._store.__dict__:
        for key, value in fields.items():
            setattr(data, key, value)
        return
    held = data._store._mapping
    for key, value in fields.items():
        if value is not None:
            held[key] = value
        else:
            held.pop(key, None)


def _join_one(source: Any, out: SamplerOutput, custom_cls: Optional[type], tables: Optional[Tables]) -> Any:
    if isinstance(source, Data):
        data = copy.copy(source)
        _fill_nodes(source._store, data._store, out.node, tables)
        size = (out.node.numel(), out.node.numel())
        _fill_edges(source._store, data._store, size, (out.row, out.col), out.edge, tables)
        _fill_rest(source._store, data._store, tables)
    else:
        data = _of_stores(source[0], out, custom_cls)
    fields = {}
    if "n_id" not in data._store:
        fields["n_id"] = out.node
    if out.edge is not None and "e_id" not in data._store:
        fields["e_id"] = out.edge
    fields["batch"] = out.batch
    fields["num_sampled_nodes"] = out.num_sampled_nodes
    fields["num_sampled_edges"] = out.num_sampled_edges
    fill(data, fields)
    if out.orig_row is not None and out.orig_col is not None:
        data._orig_edge_index = torch.stack([out.orig_row, out.orig_col])
    return data


def _join_types(source: Any, out: HeteroSamplerOutput, custom_cls: Optional[type], tables: Optional[Tables]) -> Any:
    if isinstance(source, HeteroData):
        data = copy.copy(source)
        nothing = torch.empty(0, dtype=torch.long, device=None if tables is None else tables.place.device)
        for kind in data.node_types:
            _fill_nodes(source[kind], data[kind], out.node.setdefault(kind, nothing), tables)
        for kind in data.edge_types:
            row, col = out.row.setdefault(kind, nothing), out.col.setdefault(kind, nothing)
            size = (out.node[kind[0]].numel(), out.node[kind[-1]].numel())
            _fill_edges(source[kind], data[kind], size, (row, col), (out.edge or {}).get(kind), tables)
        for store, filled in zip(source.stores, data.stores):
            _fill_rest(store, filled, tables)
    else:
        data = filter_custom_hetero_store(*source, out.node, out.row, out.col, out.edge or {}, custom_cls)
        for attr in source[0].get_all_tensor_attrs():
            edges = (out.edge or {}).get(attr.group_name)
            if edges is not None:
                attr.index = edges
                data[attr.group_name][attr.attr_name] = source[0].get_tensor(attr)
    for kind, nodes in out.node.items():
        if "n_id" not in data[kind]:
            data[kind].n_id = nodes
    for kind, edges in (out.edge or {}).items():
        if edges is not None and "e_id" not in data[kind]:
            data[kind].e_id = edges
    data.set_value_dict("batch", out.batch)
    data.set_value_dict("num_sampled_nodes", out.num_sampled_nodes)
    data.set_value_dict("num_sampled_edges", out.num_sampled_edges)
    if out.orig_row is not None and out.orig_col is not None:
        for kind in out.orig_row:
            data[kind]._orig_edge_index = torch.stack([out.orig_row[kind], out.orig_col[kind]])
    return data


class _Remote:
    """A feature store of others, asked with ids in host memory. What it gives is brought to the GPU."""

    def __init__(self, features: Any, tables: Tables) -> None:
        self._features, self._tables = features, tables
        self.get_all_tensor_attrs = features.get_all_tensor_attrs

    def multi_get_tensor(self, attrs: list, **wishes: Any) -> list:
        for attr in attrs:
            attr.index = attr.index.cpu()
        return [self._tables.place.bring(value) for value in self._features.multi_get_tensor(attrs, **wishes)]

    def get_tensor(self, attr: Any, **wishes: Any) -> Any:
        return self.multi_get_tensor([attr], **wishes)[0]


def _of_stores(features: Any, out: SamplerOutput, custom_cls: Optional[type]) -> Any:
    """What a feature store has of the nodes and edges of a graph of one type. Edges' own are under a triple of names."""
    data = custom_cls() if custom_cls is not None else Data()
    fields = {"edge_index": _stacked(out.row, out.col), "num_nodes": out.node.numel()}
    if hasattr(features, "rows_of"):
        fields.update(features.rows_of(out.node, out.edge))
    else:
        attrs = list(features.get_all_tensor_attrs())
        for attr in attrs:
            attr.index = out.edge if isinstance(attr.group_name, tuple) else out.node
        wanted = [attr for attr in attrs if attr.index is not None]
        fields.update(zip((attr.attr_name for attr in wanted), features.multi_get_tensor(wanted)))
    fill(data, fields)
    return data


def _fill_nodes(store: Any, filled: Any, nodes: Tensor, tables: Optional[Tables]) -> None:
    fetch = take if tables is None else tables.take
    for key, value in store.items():
        if key == "num_nodes":
            filled.num_nodes = nodes.numel()
        elif store.is_node_attr(key):
            filled[key] = fetch(value, nodes, store._parent().__cat_dim__(key, value, store))


def _fill_edges(
    store: Any,
    filled: Any,
    size: tuple[int, int],
    ends: tuple[Tensor, Tensor],
    edges: Optional[Tensor],
    tables: Optional[Tables],
) -> None:
    fetch = take if tables is None else tables.take
    row, col = ends
    for key, value in store.items():
        if key == "edge_index":
            filled.edge_index = _stacked(row, col).to(value.device if tables is None else tables.place.device)
        elif key == "adj_t":
            matrix = _matrix(value, size[::-1], row, col, edges)
            filled.adj_t = matrix if tables is None else matrix.to(tables.place.device)
        elif store.is_edge_attr(key):
            dim = store._parent().__cat_dim__(key, value, store)
            filled[key] = None if edges is None else fetch(value, edges, dim)


def _fill_rest(store: Any, filled: Any, tables: Optional[Tables]) -> None:
    """What belongs to the whole graph goes where the batch is."""
    if tables is None:
        return
    for key, value in store.items():
        if filled[key] is value:
            filled[key] = tables.whole(value)


def _stacked(row: Tensor, col: Tensor) -> Tensor:
    """Both ends in one tensor. Those of a sample are rows of one already."""
    both = row._base
    if both is not None and both is col._base and both.dim() == 2 and both.size(0) == 2:
        if both[0].data_ptr() == row.data_ptr() and both[1].data_ptr() == col.data_ptr() and both.is_contiguous():
            return both
    return torch.stack([row, col])


def check_matrices(store: Any) -> None:
    """Refuses matrices whose entries do not stand as edges are numbered: by target, and in it by source."""
    matrix = store["adj_t"] if "adj_t" in store else None
    if isinstance(matrix, Tensor) and matrix.layout != torch.sparse_csr:
        raise ValueError(f"adj_t is a tensor of the layout {matrix.layout}; it should be adj_t.to_sparse_csr()")


def _matrix(value: Any, size: tuple, row: Tensor, col: Tensor, edges: Optional[Tensor]) -> Any:
    """A sparse matrix of the kind that the graph has, torch's or torch-sparse's; rows are targets."""
    if isinstance(value, Tensor):
        return _torch_matrix(value, size, row.to(value.device), col.to(value.device), edges)
    from torch_geometric.typing import SparseTensor

    device = value.device() if callable(value.device) else value.device
    weights = value.storage.value()
    if weights is not None:
        weights = None if edges is None else take(weights, edges.to(device))
    return SparseTensor(
        row=col.to(device), col=row.to(device), value=weights, sparse_sizes=size, is_sorted=False, trust_data=True
    )


def _torch_matrix(value: Tensor, size: tuple, row: Tensor, col: Tensor, edges: Optional[Tensor]) -> Tensor:
    """Edges that were drawn twice are there twice."""
    order = row.argsort(stable=True)
    order = order[col[order].argsort(stable=True)]
    begins = col.new_zeros(size[0] + 1)
    begins[1:] = torch.bincount(col, minlength=size[0]).cumsum(0)
    whole = value.values()
    weights = whole.new_ones(row.numel()) if edges is None else take(whole, edges.to(value.device)[order])
    return torch.sparse_csr_tensor(begins, row[order], weights, size=size, check_invariants=False)
