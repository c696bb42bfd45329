"""Datasets: a graph with features, labels and splits, in a folder or in memory.

A folder is mapped, not read: opening one takes milliseconds whatever its size. Arrays come as `headwater.Array`, which
`numpy.asarray` and `torch.from_dlpack` see where it lies. Those of a folder are mapped so that writing to them changes
neither the file nor what Headwater reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from . import _headwater
from ._headwater import Array, Graph, RawDataset, Topology

Relation = tuple[str, str, str]
Path = Union[str, "os.PathLike[str]"]

_OF_NODES = ("features", "labels", "times", "train", "valid", "test")
_OF_EDGES = ("offsets", "neighbours", "edge_ids", "weights", "times", "labels", "features")
_SPLITS = ("train", "valid", "test")
_NODE, _EDGE = "node", ("node", "to", "node")


class Dataset:
    """A graph with what belongs to its nodes and edges.

    >>> import numpy
    >>> edges = numpy.array([[0, 1, 2], [1, 2, 0]])
    >>> dataset = Dataset.from_arrays(edges, features=numpy.eye(3, dtype=numpy.float32), labels=numpy.array([0, 1, 1]))
    >>> dataset
    Dataset('arrays', nodes {'node': 3}, edges {('node', 'to', 'node'): 3}, in memory)
    >>> numpy.asarray(dataset.labels())
    array([0, 1, 1])
    """

    def __init__(self, raw: RawDataset) -> None:
        self._raw = raw
        self._arrays: dict[tuple, Optional[Array]] = {}
        self._types: dict[str, int] = dict(raw.node_types)
        self._relations: dict[Relation, int] = {own[:3]: own[3] for own in raw.relations}

    @classmethod
    def open(cls, path: Path, *, verify: bool = False) -> Dataset:
        """The dataset in a folder, as `generate`, `ingest`, `save` or the command line wrote it.

        The manifest, lengths, headers and small files are checked. With `verify` every file is read and compared with
        its checksum, as `Dataset.verify` does.
        """
        return cls(RawDataset.open(_full(path), verify))

    @classmethod
    def from_arrays(
        cls,
        edges: Any,
        *,
        num_nodes: Any = None,
        features: Any = None,
        labels: Any = None,
        classes: Any = None,
        times: Any = None,
        train: Any = None,
        valid: Any = None,
        test: Any = None,
        weights: Any = None,
        edge_times: Any = None,
        edge_features: Any = None,
        edge_labels: Any = None,
        name: str = "arrays",
    ) -> Dataset:
        """A dataset over arrays of torch, NumPy or SciPy, which are read where they lie and must not change meanwhile.

        `edges` is a pair of sources and targets, a sparse matrix with an edge from each row to each column, or a
        `Topology`. Splits are ids or masks. What belongs to edges is in the order the edges are given in. A graph with
        several types has dictionaries everywhere: of node types by name, of relations by `(source, name, target)`.

        >>> import numpy
        >>> cites = {("paper", "cites", "paper"): numpy.array([[0], [1]]), ("author", "writes", "paper"): ([0], [1])}
        >>> cites = {relation: numpy.array(ends) for relation, ends in cites.items()}
        >>> Dataset.from_arrays(cites, num_nodes={"paper": 2, "author": 1}).node_types
        {'paper': 2, 'author': 1}
        """
        is_typed = isinstance(edges, Mapping)
        relations = {_triple(key): value for key, value in edges.items()} if is_typed else {_EDGE: edges}
        nodes = {
            what: _by_type(what, value, is_typed, _NODE)
            for what, value in [
                ("features", features), ("labels", labels), ("classes", classes), ("times", times),
                ("train", train), ("valid", valid), ("test", test), ("num_nodes", num_nodes),
            ]
        }  # fmt: skip
        of_edges = {
            what: _by_type(what, value, is_typed, _EDGE)
            for what, value in [
                ("weights", weights), ("edge_times", edge_times),
                ("edge_features", edge_features), ("edge_labels", edge_labels),
            ]
        }  # fmt: skip
        counts = _counts(relations, nodes)
        for what, given in of_edges.items():
            _check_known(what, given, relations)
        lists = _lists(relations, counts, of_edges)
        at = {kind: place for place, kind in enumerate(counts)}
        ends = [(at[source], middle, at[target], lists[source, middle, target]) for source, middle, target in relations]
        graph = Graph(list(counts.items()), ends)
        arrays = [
            (
                plain(nodes["features"].get(kind)), plain(nodes["labels"].get(kind)), nodes["classes"].get(kind),
                plain(nodes["times"].get(kind)), [plain(nodes[split].get(kind)) for split in _SPLITS],
            )
            for kind in counts
        ]  # fmt: skip
        beside = [
            (plain(of_edges["edge_features"].get(relation)), plain(of_edges["edge_labels"].get(relation)))
            for relation in relations
        ]
        return cls(RawDataset.in_memory(name, graph, arrays, beside))

    def save(self, path: Path) -> Dataset:
        """Writes all of it into a new folder, which is whole or not there, and opens that."""
        self._raw.save(_full(path))
        return Dataset.open(path)

    def verify(self) -> None:
        """Reads every file and compares checksums; a ValueError names the first that differs."""
        self._raw.verify()

    @property
    def path(self) -> Optional[str]:
        """The folder; None for a dataset in memory."""
        found = self._raw.path
        return None if found is None else os.fspath(found)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._raw.name

    @property
    def origin(self) -> str:
        """How it was made, in words."""
        return self._raw.origin

    @property
    def node_types(self) -> dict[str, int]:
        """How many nodes of each type there are."""
        return dict(self._types)

    @property
    def relations(self) -> dict[Relation, int]:
        """How many edges of each relation there are."""
        return dict(self._relations)

    @property
    def nodes(self) -> int:
        """Nodes of all types."""
        return sum(self._types.values())

    @property
    def edges(self) -> int:
        """Edges of all relations."""
        return sum(self._relations.values())

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        return self._raw.bytes

    def graph(self) -> Graph:
        """The graph alone, for samplers and scores."""
        return self._raw.graph()

    def topology(self, relation: Optional[Relation] = None) -> Topology:
        """The neighbour lists of a relation, or of the only one."""
        return self._raw.topology(self._relation_at(relation))

    def features(self, of: Union[str, Relation, None] = None) -> Optional[Array]:
        """One row a node of a type, or an edge of a relation."""
        return self.array("features", of)

    def labels(self, of: Union[str, Relation, None] = None) -> Optional[Array]:
        """One number or row a node of a type, or an edge of a relation."""
        return self.array("labels", of)

    def classes(self, node_type: Optional[str] = None) -> Optional[int]:
        """Labels are below this, where they are classes and the dataset says how many there are."""
        return self._raw.classes(self._type_at(node_type))

    def split(self, name: str, node_type: Optional[str] = None) -> Optional[Array]:
        """Ids of the nodes to learn from (`train`), to choose by (`valid`) or to report on (`test`)."""
        if name not in _SPLITS:
            raise ValueError(f"split is {name!r}; it should be one of {', '.join(_SPLITS)}")
        return self.array(name, node_type)

    def edge_index(self, relation: Optional[Relation] = None) -> Array:
        """Sources, and below them targets, of all edges in the order of the neighbour lists. A copy."""
        return self._raw.edges(self._relation_at(relation))

    def array(self, what: str, of: Union[str, Relation, None] = None) -> Optional[Array]:
        """Any array of a node type or of a relation, as it lies; None where there is none.

        Node types have `features`, `labels`, `times`, `train`, `valid` and `test`; relations have `offsets`,
        `neighbours`, `edge_ids` where those are not positions, `weights`, `times`, `labels` and `features`.
        """
        is_of_edges = isinstance(of, tuple) or (of is None and what not in _OF_NODES)
        known = _OF_EDGES if is_of_edges else _OF_NODES
        if what not in known:
            raise ValueError(f"there are no arrays called {what!r} here; there are {', '.join(known)}")
        key = (is_of_edges, self._relation_at(of) if is_of_edges else self._type_at(of), what)
        self._raw.check()
        if key not in self._arrays:
            read = self._raw.of_edges if is_of_edges else self._raw.of_nodes
            # Kept, so that whoever writes to an array finds it again.
            self._arrays[key] = read(*key[1:])
        return self._arrays[key]

    def links(self, split: str) -> Optional[Array]:
        """Edges to predict of `train`, `valid` or `test`, where the dataset has them beside its graph.

        One row an edge: source, position of its relation in `relations`, target.
        """
        return self._raw.links(split)

    def original_id(self, node: int, node_type: Optional[str] = None) -> Optional[str]:
        """What a node was called where the dataset came from."""
        return self._raw.original_id(self._type_at(node_type), node)

    def to_pyg(self) -> Any:
        """A `Data`, or a `HeteroData` where there are several types. Features and labels are not copied.

        >>> import numpy
        >>> dataset = Dataset.from_arrays(numpy.array([[0, 1], [1, 0]]), features=numpy.ones((2, 3), numpy.float32))
        >>> dataset.to_pyg()
        Data(x=[2, 3], edge_index=[2, 2])
        """
        from .convert import to_pyg

        return to_pyg(self)

    def _type_at(self, name: Any) -> int:
        names = list(self._types)
        if name is None and len(names) == 1:
            return 0
        if name not in self._types:
            is_open = "there are several node types; name one of"
            why = is_open if name is None else f"there is no node type {name!r} among"
            raise ValueError(f"{why} {', '.join(names)}")
        return names.index(name)

    def _relation_at(self, relation: Any) -> int:
        known = list(self._relations)
        if relation is None and len(known) == 1:
            return 0
        if relation not in self._relations:
            is_open = "there are several relations; name one of"
            why = is_open if relation is None else f"there is no relation {relation!r} among"
            raise ValueError(f"{why} {', '.join(map(str, known))}")
        return known.index(relation)

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(self.path)
        relations: Any = self._relations
        if len(relations) > 6:
            relations = f"{{{len(relations)} relations: {self.edges}}}"
        return f"Dataset({self.name!r}, nodes {self._types}, edges {relations}, {where})"

    def __reduce__(self) -> Any:
        if self.path is None:
            raise TypeError("a dataset in memory cannot be sent to another process; save it first")
        return Dataset.open, (self.path,)


def generate(kind: str, path: Path, **options: Any) -> Dataset:
    """Makes a graph up and writes it into a new folder. The same seed makes the same graph.

    `planted` has communities with features and labels to learn (`nodes`, `edges_per_node`, `classes`, `features`,
    `homophily`, `separation`, `seed`), `rmat` is a power law as Graph500 draws it (`nodes_log2`, `edges_per_node`,
    `features`, `classes`, `even`, `simple`, `by_rank`, `seed`), and any name of `headwater.shapes()` has the counts of
    a published dataset (`scale`, `seed`).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     generate("planted", folder + "/small", nodes=100, classes=2, features=4).node_types
    {'node': 100}
    """
    made = {"planted": _headwater.generate_planted, "rmat": _headwater.generate_rmat}.get(kind)
    if made is not None:
        return Dataset(made(_full(path), **options))
    if kind not in _headwater.shapes():
        raise ValueError(f"kind is {kind!r}; it should be one of planted, rmat, {', '.join(_headwater.shapes())}")
    return Dataset(_headwater.generate_like(kind, _full(path), **options))


def ingest(
    source: Optional[Path],
    path: Path,
    *,
    format: Optional[str] = None,
    name: Optional[str] = None,
    layout: str = "csc",
    reverse: bool = False,
    nodes: Union[int, Mapping[str, int], None] = None,
    sparse_features: str = "dense",
    labels: str = "auto",
    edges: Optional[Mapping[Relation, Path]] = None,
    ids: str = "auto",
    delimiter: Optional[str] = None,
    header: Optional[bool] = None,
    source_column: Union[str, int, None] = None,
    target_column: Union[str, int, None] = None,
    weight_column: Union[str, int, None] = None,
    time_column: Union[str, int, None] = None,
    relation_column: Union[str, int, None] = None,
    source_type_column: Union[str, int, None] = None,
    target_type_column: Union[str, int, None] = None,
) -> Dataset:
    """Reads what others wrote, and writes it as a dataset: edge lists as text, NumPy's archives, folders of OGB.

    What a source is and how a text is written is found out where it is not said. `edges` has one edge list a relation,
    and no source then. Pickles are never read.

    `ids` are "dense" (kept), "integer" (numbered anew), "string" (names) or found out: whole numbers where all of the
    first lines have them, names where most have others, and an error between. `labels` are "classes", "values" (numbers
    to predict) or found out: whole numbers are classes, also as floats. What is guessed or left out is a warning of the
    logger `headwater`.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "edges.csv").write_text("ann,bob\\nbob,eve\\n")
    ...     made = ingest(folder + "/edges.csv", folder + "/people")
    ...     made.edges, made.original_id(2)
    (2, 'eve')
    """
    counts = [] if nodes is None else [(None, nodes)] if isinstance(nodes, int) else list(nodes.items())
    columns = {
        "source_column": source_column, "target_column": target_column, "weight_column": weight_column,
        "time_column": time_column, "relation_column": relation_column,
        "source_type_column": source_type_column, "target_type_column": target_type_column,
    }  # fmt: skip
    text = {what: None if column is None else str(column) for what, column in columns.items()}
    raw = _headwater.ingest(
        None if source is None else os.fspath(source),
        _full(path),
        format=format,
        name=name,
        layout=layout,
        reverse=reverse,
        nodes=counts,
        sparse_features=sparse_features,
        labels=labels,
        edges=[(*_triple(relation), os.fspath(file)) for relation, file in (edges or {}).items()],
        ids=ids,
        text={"delimiter": delimiter, "header": header, **text},
    )
    return Dataset(raw)


def from_pyg(data: Any, *, name: str = "pyg") -> Dataset:
    """A dataset over a `Data` or a `HeteroData` of PyG, whose features and labels are read where they lie.

    Nodes have `x`, `y`, `time`, `train_mask`, `val_mask` and `test_mask`; edges have `edge_weight`, `edge_time` and
    `edge_attr`.
    """
    from .convert import from_pyg as convert

    return convert(data, name)


def _full(path: Path) -> str:
    """A path that means the same folder wherever the process goes."""
    return os.path.abspath(os.fspath(path))


def plain(array: Any) -> Any:
    """An array that can be read where it lies: without gradients, row after row."""
    if hasattr(array, "detach"):
        return array.detach().contiguous()
    if hasattr(array, "flags") and hasattr(array, "copy") and not array.flags.c_contiguous:
        return array.copy(order="C")
    return array


def _triple(relation: Any) -> Relation:
    if isinstance(relation, tuple) and len(relation) == 3 and all(isinstance(part, str) for part in relation):
        return relation
    raise ValueError(f"a relation is {relation!r}; it should be (source type, name, target type)")


def _by_type(what: str, value: Any, is_typed: bool, only: Any) -> dict[Any, Any]:
    """What was given, by type."""
    if value is None:
        return {}
    if not is_typed:
        return {only: value}
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} should be a dictionary by type, as edges are")
    return dict(value)


def _check_known(what: str, given: Mapping, known: Mapping) -> None:
    for kind in given:
        if kind not in known:
            raise ValueError(f"{what} names {kind!r}; there are {', '.join(map(str, known))}")


def _counts(relations: Mapping[Relation, Any], nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Nodes of every type: as given, or as many as something has rows."""
    kinds = dict.fromkeys(nodes["num_nodes"])
    kinds.update(dict.fromkeys(kind for source, _, target in relations for kind in (source, target)))
    found = {}
    for kind in kinds:
        rows = [len(nodes[what][kind]) for what in ("features", "labels", "times") if kind in nodes[what]]
        for (source, _, target), value in relations.items():
            if _is_matrix(value):
                rows += [value.shape[0]] * (source == kind) + [value.shape[1]] * (target == kind)
        rows = [nodes["num_nodes"][kind]] if kind in nodes["num_nodes"] else rows
        if not rows:
            raise ValueError(f"num_nodes of {kind!r} is not known; nothing has a row a node, so it must be given")
        found[kind] = int(rows[0])
    for what, given in nodes.items():
        _check_known(what, given, found)
    return found


def _is_matrix(value: Any) -> bool:
    """Whether it is one of SciPy's, of which nothing need be imported to see it."""
    return hasattr(value, "tocoo") and hasattr(value, "shape")


def _lists(relations: Mapping[Relation, Any], counts: Mapping[str, int], of_edges: Mapping) -> dict[Relation, Topology]:
    """Neighbour lists of all relations, by target unless all of them lie by source already."""
    kinds = {getattr(value, "format", None) for value in relations.values()}
    layout = "csr" if kinds == {"csr"} else "csc"
    found = {}
    for relation, value in relations.items():
        size = (counts[relation[0]], counts[relation[2]])
        carried = {"weights": of_edges["weights"].get(relation), "times": of_edges["edge_times"].get(relation)}
        carried = {what: plain(array) for what, array in carried.items() if array is not None}
        found[relation] = _topology(value, size, layout, carried)
    return found


def _topology(value: Any, size: tuple[int, int], layout: str, carried: dict[str, Any]) -> Topology:
    if isinstance(value, Topology):
        if carried:
            raise ValueError(f"{' and '.join(carried)} belong to the Topology; give them there")
        return value
    if _is_matrix(value):
        if value.format == layout:
            columns = size[0] if layout == "csc" else size[1]
            return Topology.from_lists(plain(value.indptr), plain(value.indices), columns, layout, **carried)
        matrix = value.tocoo()
        value = (matrix.row, matrix.col)
    if not hasattr(value, "__len__") or len(value) != 2:
        raise ValueError("edges should be sources and targets: a pair of lists, or two rows")
    ends: Sequence[Any] = (plain(value[0]), plain(value[1]))
    return Topology.from_coo(ends[0], ends[1], *size, layout, **carried)
