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
