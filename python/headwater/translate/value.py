"""What an expression of somebody else's layer means: rows of nodes or edges that nobody has computed yet.

A value has the shape that torch would give it. Its first dimension counts nodes or edges: which of them, and how many, is not
known while the layer is read, so such a dimension is a `Rows`, and two that meet in one operation become the same.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Optional

_order = itertools.count()


class Unsupported(Exception):
    """What a layer says and a text cannot. `value` is where it was found, if that was after reading."""

    value: Optional[SymbolicValue] = None


class Rows:
    """A dimension that counts nodes or edges. `kind` is None until something tells."""

    def __init__(self, kind: Optional[str] = None) -> None:
        self._kind = kind
        self._same_as: Optional[Rows] = None

    def root(self) -> Rows:
        rows: Any = self
        while rows._same_as is not None:
            rows = rows._same_as
        return rows

    @property
    def kind(self) -> Optional[str]:
        """`node`, `edge`, `degree`, or `src` and `dst` where nodes that are read and written differ."""
        return self.root()._kind

    @property
    def plural(self) -> str:
        return _PLURAL[self.kind or "node"]

    def be(self, kind: str) -> None:
        """Says what is counted."""
        root = self.root()
        if root._kind not in (None, kind):
            raise Unsupported(f"rows of {_PLURAL[root._kind]} are used as rows of {_PLURAL[kind]}")
        root._kind = kind

    def unify(self, other: Rows) -> None:
        """Says that both count the same."""
        mine, theirs = self.root(), other.root()
        if mine is theirs:
            return
        # A layer has one graph, so there is one set of each kind.
        if None not in (mine._kind, theirs._kind) and mine._kind != theirs._kind:
            raise Unsupported(f"rows of {_PLURAL[mine._kind]} meet rows of {_PLURAL[theirs._kind]}")
        theirs._kind = mine._kind or theirs._kind
        mine._same_as = theirs

    def is_same(self, other: Rows) -> bool:
        mine, theirs = self.root(), other.root()
        return mine is theirs or (mine._kind is not None and mine._kind == theirs._kind)


_PLURAL = {
    "node": "nodes",
    "src": "nodes that are read",
    "dst": "nodes that are written",
    "edge": "edges",
    "degree": "the edges of a node",
}


@dataclass(eq=False)
class SymbolicValue:
    """A tensor. `lead` are its dimensions that count, in front of `shape`: none for what is the same for all rows, one, or two
    for the messages of a node. `text` is the operator as texts have it, with `{0}` for its first operand."""

    text: str
    operands: tuple[SymbolicValue, ...]
    lead: tuple[Rows, ...]
    shape: tuple[int, ...]
    # What it is, where that is more than an operator on rows: "input", "weight", "number", "lift", "reduce", "view"
    # and so on.
    op: str = ""
    data: Any = None
    # Where it stands in the layer.
    at: Any = None
    # Whether others than the layer have it, too.
    is_shared: bool = False
    order: int = field(default_factory=lambda: next(_order))

    @property
    def full(self) -> tuple[Any, ...]:
        return (*self.lead, *self.shape)

    def check_row(self) -> None:
        """Whether a text can have it."""
        _ = self.row

    @property
    def row(self) -> tuple[int, int]:
        """Heads and width, which is what texts have."""
        if any(size != 1 for size in self.shape[:-2]):
            raise Unsupported(f"a row of shape {list(self.shape)} has more than two dimensions")
        return tuple(((1, 1) + self.shape)[-2:])  # type: ignore[return-value]

    def axis(self, dim: int) -> int:
        """Which dimension `dim` is, counted from the front."""
        count = len(self.full)
        if not isinstance(dim, int) or not -count <= dim < count:
            raise Unsupported(f"dimension {dim} of a tensor with {count}")
        return dim % count

    def root(self) -> SymbolicValue:
        """The tensor whose memory this is."""
        return self.operands[0].root() if self.op in ("view", "part") else self


@dataclass(frozen=True)
class Count:
    """How many rows there are: `x.size(0)`."""

    rows: Rows


@dataclass(frozen=True)
class Ends:
    """One row of an edge_index: where edges begin (`src`) or end (`dst`)."""

    edges: SymbolicEdgeIndex
    side: str


@dataclass(eq=False)
class SymbolicEdgeIndex:
    """The edges, and where the caller gives them."""

    place: tuple
    rows: Rows = field(default_factory=lambda: Rows("edge"))


@dataclass(eq=False)
class Types:
    """A whole number an edge, and where the caller gives them."""

    place: tuple
    rows: Rows = field(default_factory=Rows)


@dataclass(eq=False)
class Picked:
    """Something learnt, a row for the type of each edge: `weight[edge_type]`."""

    weight: SymbolicValue
    types: Types


class Unknown:
    """What came of something that is not supported. What uses it says nothing more."""


UNKNOWN = Unknown()


class Poisoned(Exception):
    """An expression reads what was not supported above."""
