"""The native part of Headwater."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Protocol, Union

__version__: str

class _HasDLPack(Protocol):
    def __dlpack__(self) -> Any: ...

class _HasInterface(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

# What is read where it lies: tensors of torch and arrays of NumPy among others.
_Array = Union[_HasDLPack, _HasInterface]

class Array:
    """An array in host memory: `torch.from_dlpack(a)` and `numpy.asarray(a)` see it where it lies."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...
    def __dlpack__(self, **wishes: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def take_rows(table: _Array, ids: _Array) -> Array:
    """`table[ids]`, gathered by threads out of host memory."""

class Topology:
    """Who is next to whom: the neighbour lists of one relation."""

    @staticmethod
    def from_coo(
        sources: _Array,
        targets: _Array,
        source_count: int,
        target_count: int,
        layout: str = "csc",
        *,
        edge_ids: Optional[_Array] = None,
        weights: Optional[_Array] = None,
        times: Optional[_Array] = None,
        node_times: Optional[_Array] = None,
    ) -> Topology:
        """Sorts edges into lists, in parallel. Edges of a row keep their order, or take that of their times."""
    @staticmethod
    def from_lists(
        offsets: _Array,
        neighbours: _Array,
        columns: int,
        layout: str = "csc",
        *,
        edge_ids: Optional[_Array] = None,
        weights: Optional[_Array] = None,
        times: Optional[_Array] = None,
        node_times: Optional[_Array] = None,
        is_sorted: bool = False,
    ) -> Topology:
        """Over lists that are there already. They are read where they lie."""
    @property
    def rows(self) -> int: ...
    @property
    def edges(self) -> int: ...
    def offsets(self) -> Array: ...
    def neighbours(self) -> Array: ...
    def edge_ids(self) -> Array: ...

class Graph:
    """A graph in host memory: node types with their counts, and relations between them."""

    def __init__(
        self, node_types: Sequence[tuple[str, int]], relations: Sequence[tuple[int, str, int, Topology]]
    ) -> None: ...
    @property
    def node_types(self) -> list[tuple[str, int]]: ...
    @property
    def nodes(self) -> int: ...
    @property
    def edges(self) -> int: ...
    @property
    def bytes(self) -> int: ...

class Sampler:
    """Draws neighbourhoods on CPU threads. The same seeds under the same numbers give the same sample."""

    def __init__(
        self,
        graph: Graph,
        fanouts: Sequence[Sequence[int]],
        *,
        replace: bool = False,
        disjoint: bool = False,
        weighted: bool = False,
        last: bool = False,
        edge_ids: bool = True,
    ) -> None: ...
    def sample(
        self, seeds: Sequence[tuple[int, _Array, Optional[_Array]]], numbers: tuple[int, int, int]
    ) -> Sample:
        """The neighbourhood of seeds of some types, drawn under (seed, epoch, batch)."""
    def sample_induced(
        self, seeds: Sequence[tuple[int, _Array, Optional[_Array]]], numbers: tuple[int, int, int]
    ) -> Sample:
        """As `sample`, with every edge among the nodes that were found."""

class Sample:
    """A sampled neighbourhood. Positions are types and relations of the graph."""

    def nodes(self, node_type: int) -> Array: ...
    def trees(self, node_type: int) -> Optional[Array]: ...
    def nodes_per_hop(self, node_type: int) -> list[int]: ...
    def edges(self, relation: int) -> Array: ...
    def edge_ids(self, relation: int) -> Optional[Array]: ...
    def edges_per_hop(self, relation: int) -> list[int]: ...

_Given = Optional[_Array]

class RawDataset:
    """A dataset by positions of its types and relations; `headwater.Dataset` has names for them."""

    @staticmethod
    def open(path: str) -> RawDataset: ...
    @staticmethod
    def in_memory(
        name: str,
        graph: Graph,
        nodes: Sequence[tuple[_Given, _Given, Optional[int], _Given, Sequence[_Given]]],
        edges: Sequence[tuple[_Given, _Given]],
    ) -> RawDataset:
        """Nodes have features, labels, classes, times and three splits; edges have features and labels."""
    def save(self, path: str) -> None: ...
    def verify(self) -> None: ...
    @property
    def path(self) -> Optional[Path]: ...
    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def node_types(self) -> list[tuple[str, int]]: ...
    @property
    def relations(self) -> list[tuple[str, str, str, int]]: ...
    def classes(self, node_type: int) -> Optional[int]: ...
    def graph(self) -> Graph: ...
    def topology(self, relation: int) -> Topology: ...
    def edges(self, relation: int) -> Array: ...
    def of_nodes(self, node_type: int, what: str) -> Optional[Array]: ...
    def of_edges(self, relation: int, what: str) -> Optional[Array]: ...
    def original_id(self, node_type: int, node: int) -> Optional[str]: ...

def generate_rmat(
    path: str,
    *,
    nodes_log2: int = 20,
    edges_per_node: int = 16,
    features: int = 0,
    classes: int = 0,
    even: bool = False,
    simple: bool = False,
    by_rank: bool = False,
    seed: int = 1,
) -> RawDataset:
    """A power-law graph as Graph500 draws it."""

def generate_planted(
    path: str,
    *,
    nodes: int = 10_000,
    edges_per_node: int = 10,
    classes: int = 8,
    features: int = 64,
    homophily: float = 0.7,
    separation: float = 1.0,
    seed: int = 1,
) -> RawDataset:
    """Communities with features and labels that a graph network can learn."""

def generate_like(name: str, path: str, *, scale: float = 1.0, seed: int = 1) -> RawDataset:
    """The shape of a published dataset."""

def shapes() -> list[str]:
    """The datasets whose shapes are known."""

def ingest(
    source: Optional[str],
    path: str,
    *,
    format: Optional[str],
    name: Optional[str],
    layout: str,
    reverse: bool,
    nodes: Sequence[tuple[Optional[str], int]],
    sparse_features: str,
    edges: Sequence[tuple[str, str, str, str]],
    ids: str,
    text: Mapping[str, Any],
) -> RawDataset:
    """A dataset out of what others wrote."""

def score(
    graph: Graph,
    kind: str,
    train: Sequence[_Given],
    fanout: Sequence[int],
    batch: int,
    batches: Optional[int],
    seed: int,
) -> list[Array]:
    """One array a node type."""

def score_kinds() -> list[str]:
    """The names of all scores."""

_Tier = tuple[str, int, float, float, float]

def plan(
    tables: Sequence[tuple[_Array, int, Optional[float]]],
    room: tuple[int, int, int, bool],
    links: Optional[Sequence[float]],
    in_order: bool,
) -> tuple[list[tuple[tuple[int, int, int], list[_Tier], float]], list[_Tier], float]:
    """Where rows lie and what that costs: for every table, and for all of them together."""

class RawTrainer:
    """A run in its folder; `headwater.Trainer` is what users see."""

    @staticmethod
    def open(dataset: RawDataset, folder: str, given: dict[str, Any], resume: bool) -> RawTrainer: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def note(self) -> Optional[str]: ...
    @property
    def epoch(self) -> int: ...
    def run(
        self, on_epoch: Callable[[dict[str, Any]], Any], on_batch: Optional[Callable[[int, int, float], Any]]
    ) -> tuple[dict[str, Any], bool]:
        """The summary, and whether it came to its end."""

def run_history(run: str) -> list[dict[str, Any]]:
    """Every epoch of a run, as far as it was written down."""

def run_config(run: str) -> dict[str, Any]:
    """All fields of a run."""

def run_dataset(run: str) -> Optional[Path]:
    """Where the dataset of a run was; None where it was in memory."""

def run_checkpoints(run: str) -> list[Path]:
    """The files of its checkpoints, the newest last."""

def run_predict(
    run: str, dataset: RawDataset, nodes: Union[_Array, list[int], None], form: str, checkpoint: str
) -> Array:
    """What the network of a run says of nodes, all of them where none are named."""
