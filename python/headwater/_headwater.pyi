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

class _HasCudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

class _TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...

# A stream: 0 is the default one. The driver follows any number as if it were a stream, so other numbers are refused.
_Stream = Union[int, _TorchStream, _HasCudaStream]

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

class DeviceGraph:
    """A graph where a GPU reads it: in GPU memory, or in pinned host memory."""

    def __init__(self, graph: Graph, device: int = 0, storage: str = "auto") -> None: ...
    @property
    def storage(self) -> str: ...
    @property
    def device(self) -> int: ...
    def expected_reads(
        self, train: Sequence[tuple[int, _Array]], batch: int, fanouts: Sequence[Sequence[int]]
    ) -> list[Array]:
        """How often each node of each type will be read in an epoch in which every node of `train` is a seed once."""

class DeviceSampler:
    """Draws neighbourhoods on a GPU. The same seeds under the same numbers give the sample that `Sampler` gives."""

    def __init__(
        self,
        graph: DeviceGraph,
        fanouts: Sequence[Sequence[int]],
        *,
        replace: bool = False,
        disjoint: bool = False,
        weighted: bool = False,
        last: bool = False,
        edge_ids: bool = True,
    ) -> None: ...
    def sample(
        self, seeds: Sequence[tuple[int, _Array, Optional[_Array]]], numbers: tuple[int, int, int], stream: _Stream
    ) -> DeviceSample:
        """The neighbourhood of seeds in host memory, drawn on a stream. Returns when it is there."""
    def sample_induced(
        self, seeds: Sequence[tuple[int, _Array, Optional[_Array]]], numbers: tuple[int, int, int], stream: _Stream
    ) -> DeviceSample:
        """As `sample`, with every edge among the nodes that were found."""

class DeviceSample:
    """A sampled neighbourhood in GPU memory, which is written into int64 tensors of the caller's."""

    def node_count(self, node_type: int) -> int: ...
    def edge_count(self, relation: int) -> int: ...
    def nodes_per_hop(self, node_type: int) -> list[int]: ...
    def edges_per_hop(self, relation: int) -> list[int]: ...
    def nodes_into(self, node_type: int, out: _Array, stream: _Stream) -> None: ...
    def trees_into(self, node_type: int, out: _Array, stream: _Stream) -> bool: ...
    def edges_into(self, relation: int, out: _Array, stream: _Stream) -> None: ...
    def edge_ids_into(self, relation: int, out: _Array, stream: _Stream) -> bool: ...
    def _write(self, nodes: int, edges: int, edge_ids: int, stream: _Stream) -> None: ...

class Table:
    """Rows of an array in host memory that a GPU reads, the hot ones out of its own memory."""

    def __init__(
        self,
        rows: _Array,
        device: int = 0,
        hot_rows: int = 0,
        *,
        reads: Optional[_Array] = None,
        id_map: Optional[_Array] = None,
    ) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def device(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...
    @property
    def hot_rows(self) -> int: ...
    def gather_into(self, ids: _Array, out: _Array, stream: _Stream) -> None:
        """Queues `out[i] = rows[ids[i]]`. An id that is none is raised by `synchronize`, or by a later gather."""
    def _gather(self, ids: int, count: int, out: int, stream: _Stream) -> None: ...
    def served(self, stream: _Stream) -> tuple[int, int]:
        """Rows that came out of GPU memory and out of host memory so far."""
    def retier(self, reads: _Array) -> None:
        """Moves the rows that are read most to GPU memory. Waits for all gathers."""

class Mapped:
    """A tensor in host memory, for a GPU: `torch.from_dlpack(m)` is a tensor of that GPU over the same memory."""

    def __init__(self, array: _Array, device: int = 0) -> None: ...
    def __dlpack__(self, **wishes: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class ManagedMemory:
    """Bytes that the driver moves between CPU and GPU by itself. They take advice."""

    def __init__(self, bytes: int, device: int = 0) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def device(self) -> int: ...
    def mapped(self) -> Mapped: ...
    def advise(self, advice: int, device: int) -> None: ...
    def __dlpack__(self, **wishes: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class PinnedMemory:
    """Pinned bytes for results, which go back to a pool when the last tensor over them is gone."""

    def __init__(self, bytes: int, device: int = 0) -> None: ...
    @staticmethod
    def usage(device: int = 0) -> tuple[int, int, int]:
        """How many were served from kept memory, how many had to pin some, and how many bytes are held."""
    @property
    def address(self) -> int: ...
    @property
    def device(self) -> int: ...
    def mapped(self) -> Mapped: ...
    def __dlpack__(self, **wishes: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def placement(operands: Sequence[str], current: int) -> tuple[str, str]:
    """Who computes an operator and where its result goes, by the placement table."""

def _panic(on: str) -> None:
    """Panics on the "caller"'s thread, on the process's "threads" or in a "run", for tests."""

def fingerprint(array: _Array) -> int:
    """A number that follows from the bytes of an array in host memory."""

def gpu_count() -> int:
    """How many GPUs there are; none where there is no driver."""

def gpu_memory(device: int) -> tuple[int, int]:
    """Free and total bytes of a GPU's memory."""

def _lasting_stream(handle: int) -> None:
    """Tells of a stream that is never destroyed; its handle alone names it from then on."""

def synchronize(device: int, stream: _Stream) -> None:
    """Waits for a stream, and raises what its kernels met."""
class Layer:
    """The text of a layer. `name` is what errors call it."""

    def __init__(self, name: str, text: str, without: Sequence[str], tune: str) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> list[str]:
        """Names of what it takes behind the graph, in their order."""
    @property
    def inputs(self) -> list[tuple[str, str, list[str]]]:
        """Rows that are given at every call: name, kind of rows, and the extents of one as they are written."""
    @property
    def weights(self) -> list[tuple[str, str, list[str]]]: ...
    @property
    def sizes(self) -> list[str]: ...
    @property
    def options(self) -> list[tuple[str, Union[bool, int, float, str]]]: ...
    def bind(
        self,
        rows: dict[str, list[int]],
        sizes: dict[str, int],
        options: dict[str, Union[bool, int, float, str]],
        gradients: set[str],
        training: bool,
    ) -> BoundLayer:
        """The layer for one kind of call. `rows` has the extents of a row of each array."""

def optimisations() -> list[str]:
    """Names of everything that compiled layers may be left without."""

def check_compiled_with(without: list[str], tune: str) -> None:
    """Refuses names of optimisations and ways to tune that do not exist, where no text is there yet."""

def builtin_layer(name: str) -> str:
    """The text of a layer that comes with Headwater."""

class BoundLayer:
    """A layer for one kind of call. It is compiled when it meets a graph."""

    @property
    def self_loops(self) -> str:
        """What becomes of edges from nodes to themselves: "as they are", "added" or "dropped"."""
    @property
    def has_dropout(self) -> bool: ...
    @property
    def plan_count(self) -> int: ...
    @property
    def out_row(self) -> list[int]: ...
    @property
    def taken(self) -> list[str]: ...
    def plan(self, graph: LayerGraph, shapes: dict[str, list[int]]) -> Plan:
        """Kernels for arrays of these shapes on a graph."""
    def device_plan(
        self, graph: Union[LayerGraph, DeviceLayerGraph], shapes: dict[str, list[int]], gpu: int, precision: str
    ) -> Optional[DevicePlan]:
        """The same for a GPU, with products as exact as torch's: "highest", "high" or "medium". None where the graph was made
        on the GPU and lacks what the layer asks for."""
    def explain(self, graph: Union[LayerGraph, DeviceLayerGraph, None] = None, level: str = "all") -> str: ...
    def first_weights(self, counts: dict[str, int], seed: int) -> list[tuple[str, list[int], Array]]: ...

class LayerGraph:
    """A graph as layers take it: nodes of each type that are read and written, and relations between them."""

    def __init__(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        relations: Sequence[tuple[int, int, Topology]],
        self_loops: str,
    ) -> None: ...
    @staticmethod
    def parts(graph: Graph) -> tuple[list[tuple[str, int]], list[tuple[int, str, int, Topology]]]:
        """What a graph was made of."""
    def rows(self, kind: str) -> int: ...
    def edge_order(self) -> Optional[Array]: ...

class Plan:
    """Kernels of a layer, forward and backward. Arrays that come out are flat."""

    @property
    def backward_reads(self) -> list[str]: ...
    def forward(self, graph: LayerGraph, arrays: dict[str, _Array], seed: int) -> dict[str, Array]: ...
    def backward(self, graph: LayerGraph, arrays: dict[str, _Array], seed: int) -> dict[str, Array]: ...

class DeviceLayerGraph:
    """A graph of one node type and one relation, made on a GPU out of int32 tensors there: two addresses and how many edges."""

    def __init__(
        self, edges: tuple[int, int, int], nodes: int, written: int, self_loops: str, gpu: int, stream: _Stream
    ) -> None: ...
    @property
    def is_trusted(self) -> bool:
        """Whether no fault of a kernel was told since it was made."""
    def rows(self, kind: str) -> int: ...

class DevicePlan:
    """Kernels of a layer for a GPU. They run on a stream, on memory by address and bytes."""

    @property
    def backward_reads(self) -> list[str]: ...
    def placed(self, graph: Union[LayerGraph, DeviceLayerGraph], stream: _Stream) -> PlacedPlan:
        """The kernels for a graph, which is brought to the GPU if it was not there."""

class PlacedPlan:
    """Kernels of a layer for a GPU and a graph."""

    def needs(self, backward: bool) -> tuple[list[str], list[tuple[str, int]], int]:
        """Names of what a direction reads and makes, those that it makes with how many numbers, and the bytes that it needs
        besides."""
    def _queue(
        self,
        backward: bool,
        memory: Sequence[tuple[int, int]],
        temporaries: tuple[int, int],
        seed: int,
        key: Optional[int],
        stream: _Stream,
    ) -> None: ...
    def repeats(self, backward: bool) -> Optional[tuple[int, int, int, int]]:
        """Places that are kept, calls at a new place, calls at a known one, and those of them that were one launch."""

_Given = Optional[_Array]

class RawDataset:
    """A dataset by positions of its types and relations; `headwater.Dataset` has names for them."""

    @staticmethod
    def open(path: str, verify: bool) -> RawDataset: ...
    def links(self, split: str) -> Optional[Array]: ...
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
    def check(self) -> None:
        """Fails when memory of others that it was made over is not there any more."""
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
    labels: str,
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
    damping: Optional[float],
    iterations: Optional[int],
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
    def open(
        dataset: RawDataset, folder: Optional[str], stem: str, given: dict[str, Any], resume: bool
    ) -> RawTrainer: ...
    @property
    def path(self) -> Any: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def note(self) -> Optional[str]: ...
    @property
    def remarks(self) -> list[str]: ...
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

class OffloadError(RuntimeError):
    """Bytes that left a device could not come back."""

class CopyMark:
    """The end of a copy to a GPU."""

class StoredBlock:
    """A block, released when this goes."""

    @property
    def number(self) -> int: ...
    @property
    def leaves(self) -> Optional[bool]: ...

class RawOffloader:
    """Blocks of one device, by addresses and numbers."""

    def __init__(
        self,
        device: Optional[int],
        lengths: tuple[int, int, int],
        disks: Optional[tuple[list[str], int, bool, bool, bool, bool]],
        most_bytes: Optional[int],
        planning: Optional[tuple[float, int]],
    ) -> None: ...
    def save(
        self, address: int, bytes: int, named: _Stream, used: tuple[int, int, int]
    ) -> tuple[StoredBlock, list[int], list[int]]: ...
    def need(self, block: int, named: _Stream, used: tuple[int, int, int], here: list[int], early: int) -> list[int]: ...
    def expect(self, soon: list[int], here: list[int], early: int) -> list[int]: ...
    def would_stay(self, bytes: int, used: tuple[int, int, int]) -> bool: ...
    def is_idle(self) -> bool: ...
    def may_keep(self) -> tuple[bool, bool]: ...
    def keep(self, keeps: bool) -> None: ...
    def measuring(self) -> int: ...
    def steps(self) -> str: ...
    def drained(self) -> list[int]: ...
    def unnamed(self) -> list[int]: ...
    def load(self, block: int, address: int, bytes: int, named: _Stream) -> CopyMark: ...
    def join(self, mark: CopyMark, named: _Stream) -> None: ...
    def is_near(self, block: int) -> bool: ...
    def held(self) -> tuple[int, int]: ...
    def counts(self) -> str: ...

def _host_bytes_available() -> int: ...
