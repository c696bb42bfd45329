"""From values to a layer text: each operator is a line in the loop over its rows."""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .value import SymbolicValue, Types, Unsupported

_LOOPS = {"src": "for n in g.nodes():", "dst": "for n in g.dst_nodes():", "edge": "for e in g.edges():"}
_INPUTS = {"src": "node", "dst": "dst_node", "edge": "edge"}
# Where rows of each kind of tensor are given.
_DOMAINS = {"node": "src", "src": "src", "dst": "dst", "edge": "edge"}
_TAKEN = {"g", "n", "e", "out", "node", "dst_node", "edge", "matrix", "vector", "etype", "ntype", "src_pair", "constant", "when"}
_TAKEN |= {"linear", "transpose", "dot", "concat", "exp", "log", "relu", "leaky_relu", "elu", "sigmoid", "tanh", "gelu", "sqrt"}
_TAKEN |= {"rsqrt", "abs", "maximum", "minimum", "edge_softmax", "dropout", "reshape", "flatten", "sum", "mean", "max"}
_TAKEN |= {"sum_heads", "mean_heads", "sum_width", "mean_width", "relation_mean"}


@dataclass
class Text:
    """A text, and what its parameters are: where each is given, and the shape that it is taken in."""

    text: str
    # By name: where the caller gives it, what its rows are, the shape of each, and the one that the text has.
    inputs: dict[str, tuple[tuple, str, tuple[int, ...], tuple[int, ...]]]
    # By name: the way from the module, the shape that it has, and the one that the text has.
    weights: dict[str, tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]]
    types: list[Types]


class Emitter:
    """Writes one text."""

    def __init__(self) -> None:
        self._domains: dict[SymbolicValue, str] = {}
        self._names: dict[Any, str] = {}
        self._lines: list[str] = []
        self._loop = ""
        self._made: set[SymbolicValue] = set()
        self._text = Text("", {}, {}, [])
        self._declared: list[str] = []

    def write(self, name: str, out: SymbolicValue) -> Text:
        if len(out.lead) != 1 or self.domain(out) not in ("src", "dst") or out.lead[0].kind == "src":
            raise Unsupported("the result is no value of nodes")
        for value in sorted(_all_of(out), key=lambda value: value.order):
            self._line(value)
        self._enter("dst")
        self._lines.append(f'        n["out"] = {self._read(out, "dst")}')
        head = f"def {name}(g, {', '.join(self._declared)}):" if self._declared else f"def {name}(g):"
        self._text.text = "\n".join([head, *self._lines, ""])
        return self._text

    def domain(self, value: SymbolicValue) -> str:
        """Where a value is computed: `const`, `src`, `dst` or `edge`."""
        if value not in self._domains:
            try:
                self._domains[value] = self._domain_of(value)
            except Unsupported as why:
                why.value = why.value or value
                raise
        return self._domains[value]

    def _domain_of(self, value: SymbolicValue) -> str:
        if value.op == "input":
            kind = value.lead[0].kind if value.lead else "const"
            if kind is None:
                raise Unsupported(f"`{_words(value.data)[-1]}`: nothing says whether its rows are nodes or edges")
            return _DOMAINS.get(kind, "const")
        if value.op == "lift":
            if value.data == "src" and self.domain(value.operands[0]) == "dst":
                raise Unsupported("what nodes have gathered is sent on in the same layer")
            return "edge"
        if value.op in ("reduce", "pick"):
            return "dst" if value.op == "reduce" else "edge"
        found = {self.domain(one) for one in value.operands} - {"const"}
        if value.op == "linear" and value.data is not None:
            found.add("edge")
        if found == {"src", "dst"}:
            return "dst"
        if len(found) > 1:
            raise Unsupported("values of nodes and of edges meet in one operation")
        return found.pop() if found else "const"

    def _line(self, value: SymbolicValue) -> None:
        """The line that computes a value, unless it is read where it is used."""
        if value.op in ("input", "weight", "number", "lift", "transposed"):
            self.domain(value)
            self._declare(value)
            return
        if value.op == "view" and value.row == value.operands[0].row:
            return
        domain = self.domain(value)
        if value.op in ("pick", "linear") and value.data is not None and value.data not in self._text.types:
            self._text.types.append(value.data)
        self._enter(domain)
        if value.op == "view":
            text = f"reshape({self._read(value.operands[0], domain)}, {value.row[0]}, {value.row[1]})"
        elif value.op == "reduce":
            text = f"{value.text}({self._read(value.operands[0], 'edge')} for e in n.incoming_edges())"
        else:
            is_picked = value.data is not None and value.op in ("pick", "linear")
            role = ("picked " if is_picked else "") + ("matrix" if value.op == "linear" else "vector")
            text = value.text.format(*(self._read(one, domain, role) for one in value.operands))
        at = len(self._made)
        self._made.add(value)
        self._names[value] = f"v{at}"
        indent = "    " if domain == "const" else "        "
        self._lines.append(f"{indent}{self._own(value, domain)} = {text}")

    def _enter(self, domain: str) -> None:
        if domain != self._loop and domain != "const":
            self._lines.append(f"    {_LOOPS[domain]}")
        self._loop = domain

    def _own(self, value: SymbolicValue, domain: str) -> str:
        name = self._names[value]
        return {"const": name, "edge": f'e["{name}"]'}.get(domain, f'n["{name}"]')

    def _read(self, value: SymbolicValue, loop: str, role: str = "vector") -> str:
        """How a line in a loop reads a value. `role` is what it is taken for if it is the module's."""
        if value.op == "number":
            return value.text
        if value.op == "transposed":
            return f"transpose({self._read(value.operands[0], loop, role)})"
        if value.op == "view" and value not in self._made:
            return self._read(value.operands[0], loop)
        if value.op == "lift":
            return self._at_end(value.operands[0], value.data)
        if value.op == "weight":
            return self._weight(value, role)
        if value.op == "input":
            name = self._names[value]
            return {"const": name, "edge": f"e.{name}"}.get(self.domain(value), f"n.{name}")
        return self._own(value, self.domain(value))

    def _at_end(self, value: SymbolicValue, side: str) -> str:
        while value.op == "view" and value not in self._made:
            value = value.operands[0]
        if value.op == "input":
            return f"e.{side}.{self._names[value]}"
        if self.domain(value) not in ("src", "dst"):
            raise Unsupported("a value that is not one of nodes, at the ends of edges")
        return f'e.{side}["{self._names[value]}"]'

    def _declare(self, value: SymbolicValue) -> None:
        if value.op != "input":
            return
        name = self._names[value] = self._free_name("_".join(_words(value.data)))
        domain = self.domain(value)
        shape = _short(value.row)
        self._text.inputs[name] = (value.data, value.lead[0].kind if value.lead else "const", value.shape, shape)
        word = _INPUTS.get(domain, "vector")
        self._declared.append(f"{name}: {word}[{', '.join(map(str, shape))}]")

    def _weight(self, value: SymbolicValue, role: str) -> str:
        """The name of something of the module. In each role, it is a parameter of its own."""
        key = (value.data, role)
        if key not in self._names:
            name = self._names[key] = self._free_name("_".join(value.data))
            is_vector = role == "vector"
            shape = _short(value.row) if is_vector else value.shape
            sizes = ["etype", *map(str, shape[1:])] if role.startswith("picked") else [*map(str, shape)]
            self._text.weights[name] = (value.data, value.shape, shape)
            self._declared.append(f"{name}: {role.split()[-1]}[{', '.join(sizes)}]")
        return self._names[key]

    def _free_name(self, wanted: str) -> str:
        name = "".join(sign if sign.isalnum() or sign == "_" else "_" for sign in wanted)
        if not name.isidentifier() or keyword.iskeyword(name) or name in _TAKEN or name[1:].isdigit():
            name = f"in_{name}"
        taken = {*self._text.inputs, *self._text.weights}
        while name in taken:
            name += "_"
        return name


def _short(row: tuple[int, int]) -> tuple[int, ...]:
    """A row without heads where there is one."""
    return row if row[0] > 1 else (row[1],)


def _words(place: tuple) -> list[str]:
    return [str(part[0]) if isinstance(part, tuple) else str(part) for part in place]


def _all_of(out: SymbolicValue) -> Iterable[SymbolicValue]:
    found: set[SymbolicValue] = set()
    stack = [out]
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            stack += value.operands
    return found
