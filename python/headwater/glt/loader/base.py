"""What all loaders share: the order of seeds, threads that are ahead, and the features of what was sampled."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ...pyg.ahead import Ahead, Stages
from .. import _places
from ..data import Dataset, Feature
from ..sampler import BaseSampler, HeteroSamplerOutput, NeighborSampler, SamplerOutput
from ..typing import EdgeType, reverse_edge_type
from .transform import to_data, to_hetero_data


class Loader(Ahead, DataLoader):
    """Batches of some seeds at a time. It is a PyTorch data loader and takes its arguments; workers are threads."""

    def __init__(
        self, data: Dataset, sampler: BaseSampler, seeds: int, device: _places.Device, seed: Optional[int], kwargs: Dict
    ) -> None:
        self.data = data
        self.device = _places.resolve(device)
        self._tables = _places.tables(self.device)
        kwargs = self._prepare(kwargs, seed, None if self._tables is None else self._tables.place)
        self._drawn_by = sampler
        super().__init__(range(seeds), collate_fn=self._collated, **kwargs)
        self._made()

    def _collated(self, index: Any, numbers: Any = None) -> Any:
        # Our samplers draw by the number of a batch, so that threads do not matter. Those of users draw as they do.
        is_ours = isinstance(self._drawn_by, NeighborSampler) and numbers is not None
        batch = self._batch_of(torch.as_tensor(index).view(-1), {"numbers": numbers} if is_ours else {})
        return batch.to(self.device) if hasattr(batch, "to") and _places.is_on_gpu(self.device) else batch

    def _stages(self) -> Stages:
        if self._asked_workers == 0 and not self._draws_ours():
            return Stages(None, self._collated)
        return Stages(self._collated, lambda batch: batch)

    def _has_own_code(self) -> bool:
        return super()._has_own_code() or not self._draws_ours()

    def _draws_ours(self) -> bool:
        return type(self._drawn_by) is NeighborSampler

    def _batch_of(self, index: Tensor, numbered: Dict[str, Any]) -> Any:
        raise NotImplementedError

    def __getstate__(self) -> Dict[str, Any]:
        # Memory of a GPU is not sent: what lies there is placed anew.
        return {**self.__dict__, "_tables": None, "_place": None, "_crew": None}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._tables = _places.tables(self.device)
        self._place = None if self._tables is None else self._tables.place

    @property
    def _seed_loader(self) -> DataLoader:
        """The seeds alone, in batches."""
        return DataLoader(self.dataset, batch_sampler=self.batch_sampler)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def _collate_fn(self, sampler_out: Any, labels: Any = None) -> Any:
        """The batch of a sample."""
        out, data = sampler_out, self.data
        if isinstance(out, SamplerOutput):
            return to_data(
                out,
                self._rows(labels, out.node),
                self._rows(data.get_node_feature(), out.node),
                self._rows(data.get_edge_feature(), out.edge),
                edge_dir=data.edge_dir,
            )
        if not isinstance(out, HeteroSamplerOutput):
            raise TypeError(f"a sampler returned a {type(out).__name__}")
        labels = {kind: self._rows(own, out.node[kind]) for kind, own in (labels or {}).items() if own is not None}
        nodes = {kind: self._rows(data.get_node_feature(kind), own) for kind, own in out.node.items()}
        edges = {kind: self._rows(self._of_edges(kind), own) for kind, own in (out.edge or {}).items()}
        return to_hetero_data(out, labels, _there(nodes), _there(edges), data.edge_dir)

    def _rows(self, table: Any, ids: Optional[Tensor]) -> Optional[Tensor]:
        if table is None or ids is None:
            return None
        if isinstance(table, Feature):
            return table[ids]
        if self._tables is not None and _places.is_on_gpu(ids.device):
            return self._tables.take(table, ids)
        return _places.gather([table.contiguous()], ids, _places.CPU)

    def _of_edges(self, kind: EdgeType) -> Optional[Feature]:
        """The features of edges are under the type that the graph has them."""
        return self.data.get_edge_feature(reverse_edge_type(kind) if self.data.edge_dir == "out" else kind)


def _there(rows: Dict[Any, Optional[Tensor]]) -> Dict[Any, Tensor]:
    return {kind: own for kind, own in rows.items() if own is not None}


def seeds_of(nodes: Any, count: int) -> Tensor:
    """Seed nodes by number: all of them, those of a mask, or those of a list."""
    if nodes is None:
        return torch.arange(count)
    nodes = torch.as_tensor(nodes).cpu()
    if nodes.dtype == torch.bool:
        return nodes.nonzero().view(-1)
    if nodes.numel() > 0 and nodes.is_floating_point():
        raise ValueError(f"input_nodes has elements of {nodes.dtype}; they should be whole numbers or a mask")
    return nodes.long().view(-1)
