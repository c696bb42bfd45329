"""Compiled layers under torch's autograd.

A call is prepared: tensors are looked at, the graph is brought into the kernels' order, and the layer is compiled if it was not
before. What does not depend on the contents of tensors is kept with the graph for calls like it. Then it runs. What the backward
kernels read is kept with `save_for_backward`, so that torch frees it, checks that nobody wrote to it, and hands it to whoever hooks
saved tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

import torch
from torch import Tensor

from . import _headwater, gpu
from .layer_graph import Arranged, ArrangedOnGpu, LayerGraph, graph_of

if TYPE_CHECKING:
    from .compile import Given, Layer


# Kernels read rows in pieces of so many bytes.
_ALIGN_BYTES = 16
# Numbers that keys of dropouts are drawn from.
_KEYS = 2**62


@dataclass
class Prepared:
    """A call that can run."""

    ready: Ready
    # What dropouts are drawn with: a number, or a tensor on the GPU that has it.
    key: Union[int, Tensor]
    tensors: dict[str, Tensor]
    # Types of nodes and how many of each are written, where the caller has tensors by type.
    by_type: Optional[dict[Any, int]]


@dataclass
class Ready:
    """What calls of one kind with one graph share: everything that depends on shapes, and on nothing in tensors."""

    bound: _headwater.BoundLayer
    graph: Union[_headwater.LayerGraph, _headwater.DeviceLayerGraph]
    kernels: Union[_OnHost, _OnGpu]
    # Inputs that have a row an edge, and the graph that knows their order.
    of_edges: list[str]
    arranged: Union[Arranged, ArrangedOnGpu]
    # What the way back reads besides the gradient.
    kept: list[str]
    has_dropout: bool


def call(layer: Layer, graph: Any, given: Given, training: bool) -> Any:
    """The layer's output, with or without a way back."""
    prepared = prepare(layer, graph, given, training)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in prepared.tensors.values()):
        out = _Run.apply(prepared, list(prepared.tensors), *prepared.tensors.values())
    else:
        out = prepared.ready.kernels.forward(prepared.tensors, prepared.key).pop("out")
    if prepared.by_type is None:
        return out
    return dict(zip(prepared.by_type, out.split(list(prepared.by_type.values()))))


def prepare(layer: Layer, graph: Any, given: Given, training: bool) -> Prepared:
    """Checks everything, and compiles what was not compiled."""
    arrays = given.arrays
    layer_graph, by_type = None, None
    if any(isinstance(value, dict) for value in arrays.values()):
        layer_graph = graph_of(graph, {})
        arrays, by_type = _joined(layer, layer_graph, arrays)
    tensors = {name: _checked(layer, name, value) for name, value in arrays.items()}
    place = gpu.holding(tensors)
    layer_graph = layer_graph or graph_of(graph, _rows_told(layer, tensors))
    ready = _ready(layer, layer_graph, given, training, tensors, place)
    for name in ready.of_edges:
        order = ready.arranged.order(name, place)
        if order is not None:
            tensors[name] = tensors[name].index_select(0, order)
    return Prepared(ready, _key(place) if ready.has_dropout else 0, tensors, by_type)


def _key(place: Optional[gpu.Place]) -> Union[int, Tensor]:
    """What the dropouts of a call are drawn with. A call that is recorded draws it on the GPU, where every replay draws another."""
    if place is not None and place.is_capturing():
        return torch.randint(_KEYS, (1,), device=place.device)
    return int(torch.randint(_KEYS, ()))


def _ready(
    layer: Layer, graph: LayerGraph, given: Given, training: bool, tensors: dict[str, Tensor], place: Optional[gpu.Place]
) -> Ready:
    """What calls like this one share, made by the first of them and kept with the graph."""
    learns = torch.is_grad_enabled()
    # Products on a GPU are as exact as torch's own.
    where = None if place is None else (place.ordinal, torch.get_float32_matmul_precision())
    shapes = tuple([(name, tensor.shape, learns and tensor.requires_grad) for name, tensor in tensors.items()])
    kind = (layer, where, training, given.key, shapes)
    found = graph.ready.get(kind)
    if found is None or not found.arranged.is_trusted:
        wanted = frozenset(name for name, _, is_wanted in shapes if is_wanted)
        rows = {name: _row(layer, name, tensor) for name, tensor in tensors.items()}
        bound = layer.bound(rows, given.sizes, given.options, wanted, training)
        of_edges = [name for name, (kind, _) in layer.inputs.items() if kind == "edge" and name in tensors]
        found = _made(bound, graph, {name: tensor.shape for name, tensor in tensors.items()}, of_edges, place)
        graph.keep_ready(kind, found)
    return found


def _made(
    bound: Any, graph: LayerGraph, shapes: dict[str, Sequence[int]], of_edges: list[str], place: Optional[gpu.Place]
) -> Ready:
    if place is not None:
        arranged = graph.on_gpu(place, bound.self_loops)
        # A graph that was made on the GPU may lack what a layer asks for; then it is made on the host.
        made = None if arranged is None else _OnGpu.made(bound, arranged, shapes, of_edges, place)
        return made or _OnGpu.made(bound, graph.on_host(bound.self_loops), shapes, of_edges, place)
    arranged = graph.on_host(bound.self_loops)
    for name in of_edges:
        arranged.order(name, None)
    plan = bound.plan(arranged.native, {name: list(shape) for name, shape in shapes.items()})
    kernels = _OnHost(plan, arranged.native, (arranged.native.rows("node.dst"), *bound.out_row))
    return Ready(bound, arranged.native, kernels, of_edges, arranged, _kept(plan), bound.has_dropout)


def _kept(plan: Union[_headwater.Plan, _headwater.DevicePlan]) -> list[str]:
    return [name for name in plan.backward_reads if name != "d.out"]


class _OnHost:
    """Kernels that run on CPU threads, on tensors where they lie."""

    def __init__(self, plan: _headwater.Plan, graph: _headwater.LayerGraph, out_shape: Sequence[int]) -> None:
        self._plan, self._graph, self._out_shape = plan, graph, out_shape

    def forward(self, tensors: dict[str, Tensor], key: Any) -> dict[str, Tensor]:
        arrays = {name: tensor.detach() for name, tensor in tensors.items()}
        made = _tensors(self._plan.forward(self._graph, arrays, key))
        out = made["out"].view(self._out_shape)
        # Autograd lets nobody write to a view that a function returns: the same memory, and no view.
        made["out"] = torch.empty(0, dtype=out.dtype).set_(out.untyped_storage(), out.storage_offset(), out.shape)
        return made

    def backward(self, tensors: dict[str, Tensor], key: Any) -> dict[str, Tensor]:
        arrays = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        return _tensors(self._plan.backward(self._graph, arrays, key))


def _tensors(arrays: dict[str, _headwater.Array]) -> dict[str, Tensor]:
    return {name: torch.from_dlpack(array) for name, array in arrays.items()}


class _Way(NamedTuple):
    """A direction on a GPU: what it reads and makes, in order, what of that it makes, and bytes that it needs besides."""

    takes: list[str]
    makes: dict[str, Sequence[int]]
    spare_bytes: int


class _OnGpu:
    """Kernels that a GPU runs on torch's current stream, into tensors that torch makes."""

    @staticmethod
    def made(bound: Any, arranged: Any, shapes: dict[str, Sequence[int]], of_edges: list[str], place: gpu.Place) -> Optional[Ready]:
        """All that calls share; None where the graph lacks what the layer asks for."""
        for name in of_edges:
            arranged.order(name, place)
        precision, own = torch.get_float32_matmul_precision(), {name: list(shape) for name, shape in shapes.items()}
        plan = bound.device_plan(arranged.native, own, place.ordinal, precision)
        if plan is None:
            return None
        with place.entered():
            placed = plan.placed(arranged.native, place.stream())
        # Tensors are made in the shapes that the caller sees them in, where they see them at all.
        told = {f"d.{name}": shape for name, shape in shapes.items()}
        told["out"] = (arranged.native.rows("node.dst"), *bound.out_row)
        kernels = _OnGpu(placed, place, told)
        return Ready(bound, arranged.native, kernels, of_edges, arranged, _kept(plan), bound.has_dropout)

    def __init__(self, placed: _headwater.PlacedPlan, place: gpu.Place, shapes: dict[str, Sequence[int]]) -> None:
        self.placed, self._place = placed, place
        self._ways = [self._way(backward, shapes) for backward in (False, True)]

    def _way(self, backward: bool, shapes: dict[str, Sequence[int]]) -> _Way:
        takes, makes, spare_bytes = self.placed.needs(backward)
        flat = {name: (count,) for name, count in makes}
        told = {name: shapes[name] for name, (count,) in flat.items() if math.prod(shapes.get(name, ())) == count and name in shapes}
        return _Way(takes, {**flat, **told}, spare_bytes)

    def forward(self, tensors: dict[str, Tensor], key: Union[int, Tensor]) -> dict[str, Tensor]:
        return self._run(tensors, key, False)

    def backward(self, tensors: dict[str, Tensor], key: Union[int, Tensor]) -> dict[str, Tensor]:
        return self._run(tensors, key, True)

    def _run(self, tensors: dict[str, Tensor], key: Union[int, Tensor], backward: bool) -> dict[str, Tensor]:
        way, place = self._ways[backward], self._place
        with place.entered():
            made = {name: place.empty(shape, torch.float32) for name, shape in way.makes.items()}
            spare = place.empty((way.spare_bytes,), torch.uint8)
            # Copies live until all is queued: their memory would be given to the next one.
            all_of_them = [made[name] if name in made else self._readable(name, tensors[name]) for name in way.takes]
            memory = [(tensor.data_ptr(), tensor.nbytes) for tensor in all_of_them]
            seed, drawn = (key, None) if isinstance(key, int) else (0, key.data_ptr())
            own = (spare.data_ptr(), way.spare_bytes)
            self.placed._queue(backward, memory, own, seed, drawn, place.stream())
        return made

    def _readable(self, name: str, tensor: Tensor) -> Tensor:
        """A tensor that kernels read at its address. Hooks on saved tensors may have given back another than was saved."""
        if tensor.device != self._place.device or tensor.dtype != torch.float32:
            found, wanted = f"{tensor.dtype} on {tensor.device}", f"torch.float32 on {self._place.device}"
            raise ValueError(f"{name} is of {found}; it should be of {wanted}")
        # An address tells nothing of signs that torch has yet to write.
        tensor = tensor.detach().resolve_neg() if tensor.is_neg() else tensor
        if tensor.data_ptr() % _ALIGN_BYTES == 0:
            return tensor if tensor.is_contiguous() else tensor.detach().contiguous()
        return tensor.detach().clone(memory_format=torch.contiguous_format)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, prepared: Prepared, names: list[str], *tensors: Tensor) -> Tensor:
        made = prepared.ready.kernels.forward(prepared.tensors, prepared.key)
        # The output itself may be read on the way back, and is kept as such.
        known = {**dict(zip(names, tensors)), **made}
        ctx.save_for_backward(*[known[name] for name in prepared.ready.kept])
        ctx.names, ctx.shapes = names, [tensor.shape for tensor in tensors]
        # Tensors are held by what was saved alone.
        prepared.tensors = {}
        ctx.prepared = prepared
        return made["out"]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        # With `create_graph=True` gradients are recorded, too.
        is_recorded = torch.is_grad_enabled()
        with torch.no_grad():
            gradients = _Run._gradients(ctx, gradient)
        if is_recorded:
            mark = torch.zeros((), requires_grad=True)
            gradients = [None if own is None else _OnceOnly.apply(own, mark) for own in gradients]
        return (None, None, *gradients)

    @staticmethod
    def _gradients(ctx: Any, gradient: Tensor) -> list[Optional[Tensor]]:
        prepared = ctx.prepared
        arrays = {**dict(zip(prepared.ready.kept, ctx.saved_tensors)), "d.out": gradient}
        made = prepared.ready.kernels.backward(arrays, prepared.key)
        own = zip(ctx.names, ctx.shapes, ctx.needs_input_grad[2:])
        return [made[f"d.{name}"].view(shape) if needed else None for name, shape, needed in own]


class _OnceOnly(torch.autograd.Function):
    """A gradient that has none of its own: whoever asks for one is told, instead of taking it for a constant."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, mark: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        raise RuntimeError("gradients of a compiled layer's gradients are not there: create_graph=True cannot be followed")


def _checked(layer: Layer, name: str, value: Any) -> Tensor:
    """A tensor as kernels read it. One that is not contiguous is copied."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}; it should be a tensor")
    if value.dtype != torch.float32:
        raise ValueError(f"{name} is of {value.dtype}; it should be torch.float32")
    if value.layout != torch.strided:
        raise ValueError(f"{name} is sparse; it should be dense")
    kind, sizes = layer.arrays[name]
    if value.dim() == len(sizes) and sizes[-1] == "1" and kind != "const":
        # One number a row needs no dimension of its own.
        value = value.unsqueeze(-1)
    return value.contiguous()


def _row(layer: Layer, name: str, tensor: Tensor) -> list[int]:
    """Extents of a row."""
    return list(tensor.shape if layer.arrays[name][0] == "const" else tensor.shape[1:])


def _rows_told(layer: Layer, tensors: dict[str, Tensor]) -> dict[str, int]:
    """How many nodes, edge types and so on there are, by the first tensor that has a row for each."""
    told: dict[str, int] = {}
    for name, (kind, _) in layer.arrays.items():
        if name in tensors and tensors[name].dim() > 0:
            told.setdefault(kind, tensors[name].size(0))
    return told


def _joined(layer: Layer, graph: LayerGraph, arrays: dict[str, Any]) -> tuple[dict[str, Any], Optional[dict[Any, int]]]:
    """Tensors by type, type after type. Each has as many rows as there are nodes or edges of its type."""
    joined, by_type = {}, None
    for name, value in arrays.items():
        if isinstance(value, dict):
            kind = layer.arrays[name][0]
            counts = graph.counts(kind)
            if counts is None:
                raise ValueError(f"{name} is a dictionary, but its rows are not nodes or edges; it should be a tensor")
            if set(value) != set(counts):
                raise ValueError(f"{name} has the types {list(value)}; the graph has {list(counts)}")
            value = _in_order(name, value, counts)
            if kind != "edge":
                by_type = dict(zip(graph.node_types, graph.targets))
        joined[name] = value
    return joined, by_type


def _in_order(name: str, value: dict[Any, Any], counts: dict[Any, int]) -> Tensor:
    """All tensors of a dictionary as one."""
    parts = []
    for kind, count in counts.items():
        part = value[kind]
        if not isinstance(part, Tensor):
            raise TypeError(f"{name}[{kind!r}] is a {type(part).__name__}; it should be a tensor")
        wanted = [count, *(parts[0].shape[1:] if parts else part.shape[1:])]
        if list(part.shape) != wanted:
            raise ValueError(
                f"{name}[{kind!r}] has shape {list(part.shape)}; it should be {wanted}: the graph has {count} rows of that type"
            )
        parts.append(part)
    return torch.cat(parts)
