"""What PyG's loaders have beyond threads: who draws for them, and where the features lie that a GPU reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import BaseSampler

from ..gpu import place_of
from .ahead import Ahead, Stages
from .join import check_matrices
from .sampler import NeighborSampler
from .stores import FeatureStore
from .tables import Budget, Tables, tables_of


class Placed(Ahead):
    """What `NeighborLoader` and `LinkNeighborLoader` share."""

    def _wish(
        self, kwargs: dict[str, Any], seed: Optional[int], device: Any, features: Optional[str], budget: Budget
    ) -> dict[str, Any]:
        """The arguments that are left for DataLoader. Lightning makes loaders anew out of their attributes, so these stay."""
        self.device, self.features, self.budget = device, features, budget
        self.tables: Optional[Tables] = None
        if kwargs.get("batch_size", 1) is None and kwargs.get("batch_sampler") is None:
            raise ValueError("batch_size is None, and there is no batch_sampler; it should be a number of inputs")
        # Lightning hands on what a loader has of these.
        given = kwargs.get("collate_fn")
        if given is not None and not isinstance(getattr(given, "__self__", None), Placed):
            raise ValueError("collate_fn is given; a batch is made of what was drawn, so use `transform`")
        if not isinstance(kwargs.get("dataset", range(0)), range):
            raise ValueError("dataset is given; a loader goes through its input nodes or edges")
        place = place_of(device)
        if place is None and (features is not None or budget is not None):
            raise ValueError("features and budget say where a GPU finds features; give device='cuda' too")
        return self._prepare(kwargs, seed, place)

    def _sampler(self, data: Any, given: Optional[BaseSampler], wished: dict[str, Any]) -> BaseSampler:
        """The user's sampler, or one of ours."""
        self.num_neighbors, self.time_attr = wished["num_neighbors"], wished["time_attr"]
        if given is None:
            given = NeighborSampler(data, **wished, seed=self.seed, device=self.device)
        elif self._place is not None and getattr(given, "place", None) is None:
            raise ValueError("neighbor_sampler draws on the CPU; make it with device='cuda' too, or leave `device` out")
        self.neighbor_sampler = given
        return given

    def _filters(self, wished: Optional[bool]) -> Optional[bool]:
        """Whether threads look features up. Where a GPU has them, everything about a batch is queued by who draws it."""
        return True if wished is None and self._place is not None else wished

    def _made(self) -> None:
        super()._made()
        if self.custom_cls is not None and not isinstance(self.data, (tuple, list)):
            raise ValueError("custom_cls is for batches of stores; those of a Data or HeteroData are of its own class")
        for store in self.data.edge_stores if isinstance(self.data, (Data, HeteroData)) else []:
            check_matrices(store)
        self._place_features()

    # Who does what ####################################################################################################

    def _stages(self) -> Stages:
        collate = self._collated if self._is_own("collate_fn") else lambda index, numbers: self.collate_fn(index)
        if self._asked_workers > 0:
            return Stages(collate, _as_it_is if self.filter_per_worker else self.filter_fn)
        if type(self.neighbor_sampler) is not NeighborSampler or not self._is_own("collate_fn"):
            return Stages(None, lambda *given: self._filtered(collate(*given)))
        if not self.filter_per_worker or self._asks_before_features():
            return Stages(self._drawn, self.filter_fn)
        return Stages(
            lambda index, numbers: self._joined(self._drawn(index, numbers)),
            _as_it_is if self.transform is None else self.transform,
        )

    def _asks_before_features(self) -> bool:
        """Whether code of the user's says what features a batch has, or where they come from."""
        is_store = isinstance(self.data, (tuple, list)) and type(self.data[0]) is not FeatureStore
        return is_store or self.transform_sampler_output is not None or not self._is_own("filter_fn")

    def _has_own_code(self) -> bool:
        is_theirs = type(self.neighbor_sampler) is not NeighborSampler or not self._is_own("collate_fn")
        return super()._has_own_code() or is_theirs or self.transform is not None or self._asks_before_features()

    def _is_own(self, name: str) -> bool:
        """Whether a method is one of ours, and not of a class that somebody made of a loader."""
        return getattr(type(self), name).__module__.startswith(__package__)

    def _collated(self, index: Any, numbers: Any) -> Any:
        return self.collate_fn(index, numbers)

    def _filtered(self, made: Any) -> Any:
        return made if self.filter_per_worker else self.filter_fn(made)

    def enable_cpu_affinity(self, loader_cores: Any = None) -> None:
        """Refused: it would pin the whole process."""
        raise NotImplementedError("workers are threads of this process, which use its cores; pin the process, as by `taskset`")

    def enable_multithreading(self, worker_threads: Any = None) -> None:
        """Refused: it would set the number for the whole process."""
        raise NotImplementedError("workers are threads of this process, which use its cores; there is nothing to enable")

    # What a GPU reads #################################################################################################

    def _without_tensors(self) -> Mapping[int, tuple[Any, int]]:
        return {} if self.tables is None else self.tables.without_tensors

    def _place_features(self) -> None:
        if self._place is None:
            return

        def reads() -> dict:
            return self.neighbor_sampler.expected_reads(self._seeds(), self.batch_size or 1)

        self.tables = tables_of(self._place, self.data, self.features, self.budget, reads)
        if isinstance(self.data, (tuple, list)) and isinstance(self.data[0], FeatureStore):
            self.data[0].placed(self.tables)

    def _seeds(self) -> dict[Any, Tensor]:
        """Nodes of each type that batches begin at."""
        raise NotImplementedError

    def _brought(self, values: Any) -> Any:
        """Tensors that belong to a batch, where it is."""
        if self._place is None:
            return values
        return tuple(self._place.bring(value) if isinstance(value, Tensor) else value for value in values)

    def _numbered(self, sampler: Any, numbers: Any) -> dict[str, Any]:
        """Our samplers draw by the number of a batch, so that threads do not matter."""
        return {"numbers": numbers} if isinstance(sampler, NeighborSampler) else {}

    def __getstate__(self) -> dict[str, Any]:
        # Memory of a GPU is not sent: what lies there is placed anew.
        return {**self.__dict__, "tables": None, "_place": None, "_crew": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._place = place_of(self.device)
        self._place_features()


def _as_it_is(batch: Any) -> Any:
    return batch
