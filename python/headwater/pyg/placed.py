"""What PyG's loaders have beyond threads: who draws for them, and where the features lie that a GPU reads."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor
from torch_geometric.sampler import BaseSampler

from ..gpu import place_of
from .ahead import Ahead
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

    def _made(self) -> None:
        super()._made()
        self._place_features()

    def _place_features(self) -> None:
        if self._place is None:
            return
        # Everything about a batch is queued by the thread that draws it.
        self.filter_per_worker = True

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
        return {**self.__dict__, "tables": None, "_place": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._place = place_of(self.device)
        self._place_features()
