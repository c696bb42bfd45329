"""Torch's operators on values: each checks shapes as torch does, and says what it is in a text.

They have torch's parameters, so calls bind to them as they bind to torch's functions.
"""

from __future__ import annotations

import math
from typing import Any, Optional, Union

from .value import Count, Ends, Picked, Poisoned, Rows, SymbolicEdgeIndex, SymbolicValue, Types, Unknown, Unsupported

Number = Union[int, float]


def value_of(given: Any) -> SymbolicValue:
    """A value, or a number as one."""
    if isinstance(given, SymbolicValue):
        return given
    if isinstance(given, (bool, int, float)):
        if not math.isfinite(given):
            raise Unsupported(f"the number {given}")
        return SymbolicValue(_literal(given), (), (), (), "number", given)
    if isinstance(given, Picked):
        return _picked_rows(given)
    if isinstance(given, Unknown):
        raise Poisoned
    if isinstance(given, (SymbolicEdgeIndex, Ends, Types, Count)):
        raise Unsupported("numbers of nodes, edges or types are used as values")
    raise Unsupported(f"a {type(given).__name__} is used as a tensor")


def _literal(number: Number) -> str:
    text = repr(float(number) if isinstance(number, bool) else number)
    return f"({text})" if number < 0 else text


def _picked_rows(picked: Picked) -> SymbolicValue:
    weight = picked.weight
    if len(weight.shape) not in (2, 3):
        raise Unsupported(f"a row of a tensor of shape {list(weight.shape)} for every edge")
    return SymbolicValue("{0}[e.etype]", (weight,), (picked.types.rows,), weight.shape[1:], "pick", picked.types)


def unary(name: str, x: Any, *numbers: Number) -> SymbolicValue:
    x = value_of(x)
    more = "".join(f", {_literal(number)}" for number in numbers)
    return SymbolicValue(f"{name}({{0}}{more})", (x,), x.lead, x.shape)


def binary(template: str, x: Any, y: Any) -> SymbolicValue:
    x, y = _beside_messages(value_of(x), value_of(y))
    lead, shape = broadcast(x, y)
    made = SymbolicValue(template, (x, y), lead, shape)
    for one in (made, x, y):
        one.check_row()
    return made


def _beside_messages(x: SymbolicValue, y: SymbolicValue) -> tuple[SymbolicValue, SymbolicValue]:
    """Where one is messages, `[nodes, degree, ...]`, and the other of their nodes, `[nodes, 1, ...]`: that at every message."""
    if (len(x.lead), len(y.lead)) == (1, 2):
        y, x = _beside_messages(y, x)
    elif (len(x.lead), len(y.lead)) == (2, 1) and len(x.full) == len(y.full) and y.shape[0] == 1:
        y.lead[0].unify(x.lead[0])
        own = view(y, y.lead, y.shape[1:])
        y = SymbolicValue("", (own,), x.lead, own.shape, "lift", "dst")
    return x, y


def broadcast(x: SymbolicValue, y: SymbolicValue) -> tuple[tuple[Rows, ...], tuple[int, ...]]:
    """The shape of an elementwise operation, as torch has it."""
    count = max(len(x.full), len(y.full))
    found: list[Any] = []
    for a, b in zip(*((1,) * (count - len(one.full)) + one.full for one in (x, y))):
        if isinstance(a, Rows) and isinstance(b, Rows):
            a.unify(b)
        elif b == 1 or (not isinstance(a, Rows) and a == b):
            pass
        elif a == 1:
            a = b
        else:
            raise Unsupported(f"shapes {_shown(x)} and {_shown(y)} meet element by element")
        found.append(a)
    lead = len(x.lead) or len(y.lead)
    if any(isinstance(size, Rows) for size in found[lead:]) or not all(isinstance(size, Rows) for size in found[:lead]):
        raise Unsupported(f"shapes {_shown(x)} and {_shown(y)} meet element by element")
    return tuple(found[:lead]), tuple(found[lead:])


def _shown(x: SymbolicValue) -> str:
    words = {None: "rows", "edge": "edges", "degree": "degree"}
    return "[" + ", ".join(words.get(s.kind, "nodes") if isinstance(s, Rows) else str(s) for s in x.full) + "]"


def add(input: Any, other: Any, *, alpha: Number = 1) -> SymbolicValue:
    return binary("{0} + {1}", input, other if alpha == 1 else mul(other, alpha))


def sub(input: Any, other: Any, *, alpha: Number = 1) -> SymbolicValue:
    return binary("{0} - {1}", input, other if alpha == 1 else mul(other, alpha))


def mul(input: Any, other: Any) -> SymbolicValue:
    made = binary("{0} * {1}", input, other)
    made.op = "mul"
    return made


def div(input: Any, other: Any) -> SymbolicValue:
    return binary("{0} / {1}", input, other)


def maximum(input: Any, other: Any) -> SymbolicValue:
    return binary("maximum({0}, {1})", input, other)


def minimum(input: Any, other: Any) -> SymbolicValue:
    return binary("minimum({0}, {1})", input, other)


def neg(input: Any) -> SymbolicValue:
    x = value_of(input)
    return SymbolicValue("-{0}", (x,), x.lead, x.shape)


def power(input: Any, exponent: Any) -> SymbolicValue:
    if not isinstance(exponent, (int, float)):
        raise Unsupported("an exponent that is no number")
    if exponent in (2, 3, 4):
        made = value_of(input)
        for _ in range(int(exponent) - 1):
            made = mul(made, input)
        return made
    known = {0.5: lambda: unary("sqrt", input), -0.5: lambda: unary("rsqrt", input), -1: lambda: div(1, input)}
    if exponent not in known:
        raise Unsupported(f"the exponent {exponent}; there are 2, 3, 4, 0.5, -0.5 and -1")
    return known[exponent]()


def leaky_relu(input: Any, negative_slope: Number = 0.01, inplace: bool = False) -> SymbolicValue:
    return unary("leaky_relu", input, negative_slope)


def elu(input: Any, alpha: Number = 1.0, inplace: bool = False) -> SymbolicValue:
    return unary("elu", input, alpha)


def gelu(input: Any, approximate: str = "none") -> SymbolicValue:
    if approximate != "none":
        raise Unsupported(f"GELU with approximate={approximate!r}")
    return unary("gelu", input)


def silu(input: Any, inplace: bool = False) -> SymbolicValue:
    return mul(input, unary("sigmoid", input))


def dropout(input: Any, p: Number = 0.5, training: bool = True, inplace: bool = False) -> SymbolicValue:
    x = value_of(input)
    return unary("dropout", x, p) if training and p > 0 else x


def reshape(x: Any, *shape: Any) -> SymbolicValue:
    """`view` and `reshape`: rows stay, and what is in each gets another shape."""
    x = value_of(x)
    wanted = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else list(shape)
    if x.lead:
        wanted = _behind_rows(x, wanted)
    if not all(isinstance(size, int) for size in wanted):
        raise Unsupported("a shape whose sizes are not known")
    total = math.prod(x.shape)
    if wanted.count(-1) == 1:
        rest = math.prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = total // rest if rest and total % rest == 0 else 0
    if math.prod(wanted) != total:
        raise Unsupported(f"shape {_shown(x)} as {[*map(_size, shape)]}")
    return view(x, x.lead, tuple(wanted))


def _size(size: Any) -> str:
    return "rows" if isinstance(size, Count) else str(size)


def _behind_rows(x: SymbolicValue, wanted: list[Any]) -> list[Any]:
    if len(x.lead) > 1:
        raise Unsupported("messages of a node in another shape")
    head, rest = (wanted[0], wanted[1:]) if wanted else (None, [])
    is_known = all(isinstance(size, int) and size >= 0 for size in rest)
    if isinstance(head, Count) and head.rows.is_same(x.lead[0]):
        return rest
    if head == -1 and is_known and math.prod(rest) == math.prod(x.shape):
        return rest
    raise Unsupported(f"shape {_shown(x)} as [{', '.join(map(_size, wanted))}]: expected rows to stay rows")


def view(x: SymbolicValue, lead: tuple[Rows, ...], shape: tuple[int, ...]) -> SymbolicValue:
    x = x.operands[0] if x.op == "view" else x
    return SymbolicValue("", (x,), lead, shape, "view")


def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> SymbolicValue:
    x = value_of(input)
    start, end = x.axis(start_dim), x.axis(end_dim)
    at = len(x.lead)
    if start < at or end < start:
        raise Unsupported(f"flatten({start_dim}, {end_dim}) joins rows")
    whole = math.prod(x.full[start : end + 1])
    return view(x, x.lead, (*x.shape[: start - at], whole, *x.shape[end + 1 - at :]))


def unsqueeze(input: Any, dim: int) -> SymbolicValue:
    x = value_of(input)
    count = len(x.full) + 1
    if not isinstance(dim, int) or not -count <= dim < count:
        raise Unsupported(f"unsqueeze({dim}) of a tensor with {count - 1} dimensions")
    at = dim % count - len(x.lead)
    if x.lead and at < 0:
        raise Unsupported("a dimension in front of rows")
    return view(x, x.lead, (*x.shape[:at], 1, *x.shape[at:]))


def squeeze(input: Any, dim: Optional[int] = None) -> SymbolicValue:
    x = value_of(input)
    if dim is None:
        raise Unsupported("squeeze() without a dimension: whether rows go depends on how many there are")
    at = x.axis(dim) - len(x.lead)
    if at < 0:
        raise Unsupported("squeeze of rows")
    return view(x, x.lead, (*x.shape[:at], *x.shape[at + 1 :])) if x.shape[at] == 1 else x


def transpose(input: Any, dim0: int = 0, dim1: int = 1) -> SymbolicValue:
    x = value_of(input)
    if x.op != "weight" or len(x.shape) != 2 or {x.axis(dim0), x.axis(dim1)} != {0, 1}:
        raise Unsupported("transpose of anything but a matrix of the module")
    return SymbolicValue("transpose({0})", (x,), (), x.shape[::-1], "transposed")


def cat(tensors: Any, dim: int = 0) -> SymbolicValue:
    values = [value_of(one) for one in tensors]
    made = values[0]
    for one in values[1:]:
        at = made.axis(dim)
        if len(one.full) != len(made.full) or at < len(made.lead) or at != len(made.full) - 1:
            raise Unsupported("cat along another dimension than the last")
        for a, b in zip(made.lead, one.lead):
            a.unify(b)
        if len(made.lead) != len(one.lead) or made.shape[:-1] != one.shape[:-1]:
            raise Unsupported(f"cat of shapes {_shown(made)} and {_shown(one)}")
        made = SymbolicValue("concat({0}, {1})", (made, one), made.lead, (*made.shape[:-1], made.shape[-1] + one.shape[-1]))
    return made


def part(x: SymbolicValue, begin: int, end: int) -> SymbolicValue:
    """Elements of the last dimension."""
    if not 0 <= begin < end <= x.shape[-1]:
        raise Unsupported(f"elements {begin} to {end} of {x.shape[-1]}")
    if (begin, end) == (0, x.shape[-1]):
        return x
    return SymbolicValue(f"{{0}}[{begin}:{end}]", (x,), x.lead, (*x.shape[:-1], end - begin), "part")


def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[SymbolicValue, ...]:
    x = value_of(input)
    width = x.shape[-1] if x.shape else 0
    return split(x, -(-width // chunks) if width else 1, dim)


def split(input: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[SymbolicValue, ...]:
    x, sizes = value_of(input), split_size_or_sections
    if not x.shape or x.axis(dim) != len(x.full) - 1:
        raise Unsupported("parts along another dimension than the last")
    width = x.shape[-1]
    if isinstance(sizes, int):
        sizes = [min(sizes, width - begin) for begin in range(0, width, sizes)]
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    return tuple(part(x, end - size, end) for size, end in zip(sizes, ends))


def linear(input: Any, weight: Any, bias: Any = None) -> SymbolicValue:
    product = matmul(input, transpose(weight) if isinstance(weight, SymbolicValue) and len(weight.shape) == 2 else weight)
    return product if bias is None else add(product, bias)


def matmul(input: Any, other: Any) -> SymbolicValue:
    if isinstance(other, Picked):
        return _matmul_picked(value_of(input), other)
    x, w = value_of(input), value_of(other)
    if w.op not in ("weight", "transposed") or len(w.shape) != 2:
        raise Unsupported("a product with anything but a matrix of the module")
    if not x.lead or not x.shape or x.shape[-1] != w.shape[0] or math.prod(x.shape[:-1]) != 1:
        raise Unsupported(f"shape {_shown(x)} times {list(w.shape)}: expected rows of {w.shape[0]}")
    return SymbolicValue("linear({0}, {1})", (x, w), x.lead, (*x.shape[:-1], w.shape[1]), "linear")


def _matmul_picked(x: SymbolicValue, picked: Picked) -> SymbolicValue:
    weight = picked.weight
    if len(weight.shape) != 3 or len(x.lead) != 1 or x.shape != (1, weight.shape[1]):
        raise Unsupported(f"shape {_shown(x)} times matrices {list(weight.shape)} of types: expected [edges, 1, width]")
    x.lead[0].unify(picked.types.rows)
    text = "linear({0}, {1}[e.etype])"
    return SymbolicValue(text, (x, weight), x.lead, (1, weight.shape[2]), "linear", picked.types)


def total(name: str, input: Any, dim: Any = None, keepdim: bool = False) -> SymbolicValue:
    """`sum` and `mean` over what is in a row, or over the messages of a node."""
    x = value_of(input)
    if isinstance(dim, (tuple, list)) and len(dim) == 1:
        dim = dim[0]
    if not isinstance(dim, int) or not x.lead:
        raise Unsupported(f"{name} without one dimension")
    at = x.axis(dim) - len(x.lead)
    if at < 0:
        return over_messages(name, x, at, keepdim)
    x_row = x.row
    left = (*x.shape[:at], *((1,) if keepdim else ()), *x.shape[at + 1 :])
    if x.shape[at] == 1:
        return view(x, x.lead, left)
    is_width = at == len(x.shape) - 1
    if not is_width and len(x.shape) != 2:
        raise Unsupported(f"{name} over dimension {dim} of {_shown(x)}")
    a, b = x.operands if x.op == "mul" else (None, None)
    if is_width and name == "sum" and a is not None and b is not None and a.row == b.row == x_row:
        made = SymbolicValue("dot({0}, {1})", (a, b), x.lead, (*x.shape[:at], 1))
    else:
        text = f"{name}_{'width' if is_width else 'heads'}({{0}})"
        made = SymbolicValue(text, (x,), x.lead, (*x.shape[:at], 1) if is_width else (1, x.shape[1]))
    return made if made.shape == left else view(made, x.lead, left)


def over_messages(name: str, x: SymbolicValue, at: int, keepdim: bool = False) -> SymbolicValue:
    if len(x.lead) != 2 or at != -1 or keepdim:
        raise Unsupported(f"{name} over rows")
    return reduce(name, x, x.lead[0])


def reduce(how: str, x: SymbolicValue, to: Rows) -> SymbolicValue:
    """Values of edges combined at the nodes that they end at."""
    how = {"add": "sum", "amax": "max", "amin": "min"}.get(how, how)
    if how == "min":
        return neg(reduce("max", neg(x), to))
    if how not in ("sum", "mean", "max"):
        raise Unsupported(f"the aggregation {how!r}; there are sum, mean, max and min")
    if len(x.lead) == 1:
        x.lead[0].be("edge")
    return SymbolicValue(how, (x,), (to,), x.shape, "reduce")


def softmax_over_edges(x: Any) -> SymbolicValue:
    x = value_of(x)
    if len(x.lead) == 1:
        x.lead[0].be("edge")
    return SymbolicValue("edge_softmax({0})", (x,), x.lead, x.shape)


def lift(x: SymbolicValue, side: str, edges: Rows) -> SymbolicValue:
    """What a node at an end of each edge has."""
    if len(x.lead) != 1:
        raise Unsupported("a value that is not one of nodes, at the ends of edges")
    if x.lead[0].kind is None:
        x.lead[0].be("node")
    if x.lead[0].kind not in ("node", side):
        raise Unsupported(f"values of {x.lead[0].plural} at the other end of edges")
    return SymbolicValue("", (x,), (edges,), x.shape, "lift", side)


def softmax(input: Any, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None) -> SymbolicValue:
    x = value_of(input)
    if len(x.lead) != 2 or dim is None or x.axis(dim) != 1 or dtype is not None:
        raise Unsupported("a softmax that is not over the messages of a node")
    return softmax_over_edges(x)


class Most(tuple):
    """What torch's max over a dimension returns."""

    @property
    def values(self) -> Any:
        return self[0]


def most(name: str, input: Any, other: Any = None, keepdim: bool = False, dim: Any = None) -> Any:
    """`max` and `min` of two tensors, or over the messages of a node."""
    from .value import UNKNOWN

    if isinstance(other, SymbolicValue):
        return maximum(input, other) if name == "max" else minimum(input, other)
    x, dim = value_of(input), other if dim is None else dim
    if not isinstance(dim, int):
        raise Unsupported(f"{name} of all elements")
    return Most((over_messages(name, x, x.axis(dim) - len(x.lead), keepdim), UNKNOWN))


def amost(name: str, input: Any, dim: Any = None, keepdim: bool = False) -> SymbolicValue:
    return most(name, input, dim, keepdim)[0]
