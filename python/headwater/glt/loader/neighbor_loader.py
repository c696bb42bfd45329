"""GraphLearn's `NeighborLoader`."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch
from torch import Tensor

from .. import _places
from ..data import Dataset
from ..sampler import NeighborSampler
from ..typing import InputNodes, NumNeighbors
from ._sampler import sampler_of
from .node_loader import NodeLoader


class NeighborLoader(NodeLoader):
    """Batches of nodes with a sampled neighbourhood.

    >>> loader = NeighborLoader(dataset, [15, 10], train_idx, batch_size=1024, shuffle=True)
    >>> for batch in loader:
    ...     out = model(batch.x, batch.edge_index)[:batch.batch_size]

    A `neighbor_sampler` of one's own is used as it is, and what it does not do is refused. `seed` fixes what is drawn and in
    which order. `num_workers` is a number of threads. With `as_pyg_v1`, batches are (batch_size, nodes, hops) as of PyG's
    first loader.
    """

    def __init__(
        self,
        data: Dataset,
        num_neighbors: NumNeighbors,
        input_nodes: InputNodes,
        neighbor_sampler: Optional[NeighborSampler] = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        with_edge: bool = False,
        with_weight: bool = False,
        strategy: str = "random",
        device: _places.Device = torch.device("cuda:0"),
        as_pyg_v1: bool = False,
        seed: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        if as_pyg_v1 and isinstance(data.graph, dict):
            raise ValueError("as_pyg_v1 is for graphs with one type of nodes")
        neighbor_sampler = sampler_of(
            neighbor_sampler,
            data,
            num_neighbors,
            device=device,
            with_edge=with_edge,
            with_weight=with_weight,
            strategy=strategy,
            seed=seed,
        )
        self.as_pyg_v1 = as_pyg_v1
        wished = {"batch_size": batch_size, "shuffle": shuffle, "drop_last": drop_last, **kwargs}
        super().__init__(data, neighbor_sampler, input_nodes, device, seed=seed, **wished)

    def _batch_of(self, index: Tensor, numbered: Dict[str, Any]) -> Any:
        if not self.as_pyg_v1:
            return super()._batch_of(index, numbered)
        size, nodes, hops = self.node_sampler.sample_pyg_v1(self._seeds[index], **numbered)
        return size, nodes.to(self.device), [hop.to(self.device) for hop in hops]
