"""The native part of Headwater."""

from collections.abc import Sequence
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
        self, seeds: Sequence[tuple[int, _Array, Optional[_Array]]], numbers: tuple[int, int, int], stream: int
    ) -> DeviceSample:
        """The neighbourhood of seeds in host memory, drawn on a stream. Returns when it is there."""
    def sample_induced(
        self, seeds: Sequence[tuple[int, _Array, Optional[_Array]]], numbers: tuple[int, int, int], stream: int
    ) -> DeviceSample:
        """As `sample`, with every edge among the nodes that were found."""

class DeviceSample:
    """A sampled neighbourhood in GPU memory, which is written into int64 tensors of the caller's."""

    def node_count(self, node_type: int) -> int: ...
    def edge_count(self, relation: int) -> int: ...
    def nodes_per_hop(self, node_type: int) -> list[int]: ...
    def edges_per_hop(self, relation: int) -> list[int]: ...
    def nodes_into(self, node_type: int, out: _Array, stream: int) -> None: ...
    def trees_into(self, node_type: int, out: _Array, stream: int) -> bool: ...
    def edges_into(self, relation: int, out: _Array, stream: int) -> None: ...
    def edge_ids_into(self, relation: int, out: _Array, stream: int) -> bool: ...

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
    def hot_rows(self) -> int: ...
    def gather_into(self, ids: _Array, out: _Array, stream: int) -> None:
        """Queues `out[i] = rows[ids[i]]`. An id that is none is raised by `synchronize`, or by a later gather."""
    def served(self, stream: int) -> tuple[int, int]:
        """Rows that came out of GPU memory and out of host memory so far."""
    def retier(self, reads: _Array) -> None:
        """Moves the rows that are read most to GPU memory. Waits for all gathers."""

class Mapped:
    """A tensor in host memory, for a GPU: `torch.from_dlpack(m)` is a tensor of that GPU over the same memory."""

    def __init__(self, array: _Array, device: int = 0, *, is_pinned: bool = False) -> None: ...
    def __dlpack__(self, **wishes: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class ManagedMemory:
    """Bytes that the driver moves between CPU and GPU by itself. They take advice."""

    def __init__(self, bytes: int, device: int = 0) -> None: ...
    def mapped(self) -> Mapped: ...
    def advise(self, advice: int, device: int) -> None: ...
    def __dlpack__(self, **wishes: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def placement(operands: Sequence[str], current: int) -> tuple[str, str]:
    """Who computes an operator and where its result goes, by the placement table."""

def gpu_count() -> int:
    """How many GPUs there are; none where there is no driver."""

def gpu_memory(device: int) -> tuple[int, int]:
    """Free and total bytes of a GPU's memory."""

def synchronize(device: int, stream: int) -> None:
    """Waits for a stream, and raises what its kernels met."""
class Layer:
    """The text of a layer. `name` is what errors call it."""

    def __init__(self, name: str, text: str) -> None: ...
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

def builtin_layer(name: str) -> Optional[str]:
    """The text of a layer that comes with Headwater."""

class BoundLayer:
    """A layer for one kind of call. It is compiled when it meets a graph."""

    @property
    def self_loops(self) -> bool: ...
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
    def explain(self, graph: Optional[LayerGraph] = None, level: str = "all") -> str: ...
    def first_weights(self, counts: dict[str, int], seed: int) -> list[tuple[str, list[int], Array]]: ...

class LayerGraph:
    """A graph as layers take it: nodes of each type that are read and written, and relations between them."""

    def __init__(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        relations: Sequence[tuple[int, int, Topology]],
        self_loops: bool,
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
