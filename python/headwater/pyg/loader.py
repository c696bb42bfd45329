"""PyG's loaders, on Headwater's samplers. Arguments and batches are PyG's."""

from __future__ import annotations

from typing import Any, Callable, Optional, Union

import torch
from torch import Tensor
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.sampler import BaseSampler, NegativeSampling, SamplerOutput
from torch_geometric.sampler.base import SubgraphType

from .join import fill, join
from .placed import Placed
from .sampler import NeighborSampler
from .tables import Budget


class NeighborLoader(Placed, NodeLoader):
    """Batches of nodes with a sampled neighbourhood, as `torch_geometric.loader.NeighborLoader` makes them.

    >>> loader = NeighborLoader(data, num_neighbors=[12, 12], batch_size=128, input_nodes=data.train_mask)
    >>> for batch in loader:
    ...     out = model(batch.x, batch.edge_index)[:batch.batch_size]

    Beyond PyG's arguments: `seed` fixes what is drawn and in which order; `num_workers` is a number of threads;
    `device="cuda"` draws and gathers on a GPU and yields batches there. `features` says where it finds what belongs to nodes:
    `"tiered"` has the rows that are read most in GPU memory, as many as `budget` allows (bytes, `"8GB"`, or a share below 1),
    and reads the others out of host memory; `"zero-copy"` has none there, `"all-gpu"` all, `"auto"` what fits.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Optional[Tensor] = None,
        replace: bool = False,
        subgraph_type: Union[SubgraphType, str] = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: Optional[str] = None,
        weight_attr: Optional[str] = None,
        transform: Optional[Callable] = None,
        transform_sampler_output: Optional[Callable] = None,
        is_sorted: bool = False,
        filter_per_worker: Optional[bool] = None,
        neighbor_sampler: Optional[BaseSampler] = None,
        directed: bool = True,
        *,
        seed: Optional[int] = None,
        device: Any = None,
        features: Optional[str] = None,
        budget: Budget = None,
        **kwargs: Any,
    ) -> None:
        if input_time is not None and time_attr is None:
            raise ValueError(
                "Received conflicting 'input_time' and 'time_attr' arguments: 'input_time' is set while 'time_attr' is "
                "not set."
            )
        kwargs = self._wish(kwargs, seed, device, features, budget)
        wished = {
            "num_neighbors": num_neighbors,
            "replace": replace,
            "subgraph_type": subgraph_type,
            "disjoint": disjoint,
            "temporal_strategy": temporal_strategy,
            "time_attr": time_attr,
            "weight_attr": weight_attr,
            "is_sorted": is_sorted,
            "directed": directed,
        }
        super().__init__(
            data=data,
            node_sampler=self._sampler(data, neighbor_sampler, wished),
            input_nodes=input_nodes,
            input_time=input_time,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=self._filters(filter_per_worker),
            **kwargs,
        )
        self._made()
        if isinstance(self.node_sampler, NeighborSampler):
            kind, nodes = self.input_data.input_type, self.input_data.node
            self.node_sampler.check_mask("input_nodes", input_nodes)
            self.node_sampler.check_seeds("input_nodes", kind, nodes)
            self.node_sampler.check_times("input_time", [kind], input_time, nodes.numel())

    def collate_fn(self, index: Any, numbers: Any = None) -> Any:
        """Samples around the input nodes at these positions."""
        out = self._drawn(index, numbers)
        return self.filter_fn(out) if self.filter_per_worker else out

    def _drawn(self, index: Any, numbers: Any) -> Any:
        numbered = self._numbered(self.node_sampler, numbers)
        return self.node_sampler.sample_from_nodes(self.input_data[index], **numbered)

    def filter_fn(self, out: Any) -> Any:
        """The batch of a sample."""
        if not isinstance(self.node_sampler, NeighborSampler):
            return super().filter_fn(out)
        if self.transform_sampler_output:
            out = self.transform_sampler_output(out)
        data = self._joined(out)
        return data if self.transform is None else self.transform(data)

    def _joined(self, out: Any) -> Any:
        """The sample with everything that belongs to it, before the transform."""
        data = join(self.data, out, self.custom_cls, self.tables)
        store = data if isinstance(out, SamplerOutput) else data[self.input_data.input_type]
        inputs, times = self._brought(out.metadata[:2])
        fill(store, {"input_id": inputs, "seed_time": times, "batch_size": inputs.size(0)})
        return data

    def _seeds(self) -> dict[Any, Tensor]:
        return {self.input_data.input_type: self.input_data.node}


class LinkNeighborLoader(Placed, LinkLoader):
    """Batches of edges with a sampled neighbourhood, as `torch_geometric.loader.LinkNeighborLoader` makes them.

    Beyond PyG's arguments: `seed`, `num_workers`, `device`, `features` and `budget` as in `NeighborLoader`.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Optional[Tensor] = None,
        edge_label_time: Optional[Tensor] = None,
        replace: bool = False,
        subgraph_type: Union[SubgraphType, str] = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Optional[NegativeSampling] = None,
        neg_sampling_ratio: Optional[Union[int, float]] = None,
        time_attr: Optional[str] = None,
        weight_attr: Optional[str] = None,
        transform: Optional[Callable] = None,
        transform_sampler_output: Optional[Callable] = None,
        is_sorted: bool = False,
        filter_per_worker: Optional[bool] = None,
        neighbor_sampler: Optional[BaseSampler] = None,
        directed: bool = True,
        *,
        seed: Optional[int] = None,
        device: Any = None,
        features: Optional[str] = None,
        budget: Budget = None,
        **kwargs: Any,
    ) -> None:
        if (edge_label_time is not None) != (time_attr is not None):
            is_set = {True: "set", False: "not set"}
            raise ValueError(
                f"Received conflicting 'edge_label_time' and 'time_attr' arguments: 'edge_label_time' is "
                f"{is_set[edge_label_time is not None]} while 'time_attr' is {is_set[time_attr is not None]}. Both "
                f"arguments must be provided for temporal sampling."
            )
        kwargs = self._wish(kwargs, seed, device, features, budget)
        wished = {
            "num_neighbors": num_neighbors,
            "replace": replace,
            "subgraph_type": subgraph_type,
            "disjoint": disjoint,
            "temporal_strategy": temporal_strategy,
            "time_attr": time_attr,
            "weight_attr": weight_attr,
            "is_sorted": is_sorted,
            "directed": directed,
        }
        self.edge_label, self.edge_label_time = edge_label, edge_label_time
        super().__init__(
            data=data,
            link_sampler=self._sampler(data, neighbor_sampler, wished),
            edge_label_index=edge_label_index,
            edge_label=edge_label,
            edge_label_time=edge_label_time,
            neg_sampling=neg_sampling,
            neg_sampling_ratio=neg_sampling_ratio,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=self._filters(filter_per_worker),
            **kwargs,
        )
        self._made()
        if isinstance(self.link_sampler, NeighborSampler):
            inputs = self.input_data
            kinds = (None, None) if inputs.input_type is None else (inputs.input_type[0], inputs.input_type[-1])
            for at, (kind, nodes) in enumerate(zip(kinds, (inputs.row, inputs.col))):
                self.link_sampler.check_seeds(f"edge_label_index[{at}]", kind, nodes)
            self.link_sampler.check_times("edge_label_time", kinds, inputs.time, inputs.row.numel())

    def collate_fn(self, index: Any, numbers: Any = None) -> Any:
        """Samples around the ends of the input edges at these positions."""
        out = self._drawn(index, numbers)
        return self.filter_fn(out) if self.filter_per_worker else out

    def _drawn(self, index: Any, numbers: Any) -> Any:
        numbered = self._numbered(self.link_sampler, numbers)
        wished = {"neg_sampling": self.neg_sampling, **numbered}
        return self.link_sampler.sample_from_edges(self.input_data[index], **wished)

    def filter_fn(self, out: Any) -> Any:
        """The batch of a sample."""
        if not isinstance(self.link_sampler, NeighborSampler):
            return super().filter_fn(out)
        if self.transform_sampler_output:
            out = self.transform_sampler_output(out)
        data = self._joined(out)
        return data if self.transform is None else self.transform(data)

    def _joined(self, out: Any) -> Any:
        """The sample with everything that belongs to it, before the transform."""
        data = join(self.data, out, self.custom_cls, self.tables)
        told = self._brought(out.metadata)
        kind = None if isinstance(out, SamplerOutput) else self.input_data.input_type
        store, source, target = (data, data, data) if kind is None else (data[kind], data[kind[0]], data[kind[-1]])
        store.input_id = told[0]
        if self.neg_sampling is None or self.neg_sampling.is_binary():
            store.edge_label_index, store.edge_label, store.edge_label_time = told[1:4]
        else:
            source.src_index, target.dst_pos_index, target.dst_neg_index = told[1:4]
            source.seed_time = target.seed_time = told[4]
            # The graph's own are of all edges.
            if kind is None or kind in data.edge_types:
                del store.edge_label_index
                del store.edge_label_time
        return data

    def _seeds(self) -> dict[Any, Tensor]:
        kind = self.input_data.input_type
        if kind is None:
            return {None: torch.cat([self.input_data.row, self.input_data.col]).unique()}
        ends = {kind[0]: [self.input_data.row], kind[-1]: [self.input_data.col]}
        if kind[0] == kind[-1]:
            ends = {kind[0]: [self.input_data.row, self.input_data.col]}
        return {name: torch.cat(lists).unique() for name, lists in ends.items()}
