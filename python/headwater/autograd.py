"""Compiled layers under torch's autograd.

A call is prepared: tensors are looked at, the graph is brought into the kernels' order, and the layer is compiled if it was not
before. Then it runs. What the backward kernels read is kept with `save_for_backward`, so that torch frees it, checks that nobody
wrote to it, and hands it to whoever hooks saved tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union

import torch
from torch import Tensor

from . import _headwater, gpu
from .layer_graph import LayerGraph, graph_of

if TYPE_CHECKING:
    from .compile import Given, Layer


# Shapes of arrays by name.
Shapes = dict[str, list[int]]
# Kernels read rows in pieces of so many bytes.
_ALIGN_BYTES = 16


@dataclass
class Prepared:
    """A call that can run."""

    bound: _headwater.BoundLayer
    plan: Union[_headwater.Plan, _headwater.DevicePlan]
    graph: Union[_headwater.LayerGraph, _headwater.DeviceLayerGraph]
    seed: int
    tensors: dict[str, Tensor]
    # Types of nodes and how many of each are written, where the caller has tensors by type.
    by_type: Optional[dict[Any, int]]
    kernels: Union[_OnHost, _OnGpu]


def call(layer: Layer, graph: Any, given: Given, training: bool) -> Any:
    """The layer's output, with or without a way back."""
    prepared = prepare(layer, graph, given, training)
    if any(tensor.requires_grad for tensor in prepared.tensors.values()) and torch.is_grad_enabled():
        out = _Run.apply(prepared, list(prepared.tensors), *prepared.tensors.values())
    else:
        out = _out(prepared, _forward(prepared))
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
    kernels = _OnHost() if place is None else _OnGpu(place)
    layer_graph = layer_graph or graph_of(graph, _rows_told(layer, tensors))
    wanted = frozenset(name for name, tensor in tensors.items() if tensor.requires_grad and torch.is_grad_enabled())
    rows = {name: _row(layer, name, tensor) for name, tensor in tensors.items()}
    bound = layer.bound(rows, given.sizes, given.options, wanted, training)
    of_edges = [name for name, (kind, _) in layer.inputs.items() if kind == "edge" and name in tensors]
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    native, plan, orders = kernels.ready(bound, layer_graph, shapes, of_edges)
    for name, order in orders.items():
        if order is not None:
            tensors[name] = tensors[name].index_select(0, order.to(tensors[name].device))
    seed = int(torch.randint(2**62, ())) if bound.has_dropout else 0
    return Prepared(bound, plan, native, seed, tensors, by_type, kernels)


class _OnHost:
    """Kernels that run on CPU threads, on tensors where they lie."""

    def ready(self, bound: Any, graph: LayerGraph, shapes: Shapes, of_edges: list[str]) -> tuple[Any, Any, dict]:
        """The graph in the kernels' order, the kernels, and how rows of edges are brought into that order."""
        arranged = graph.on_host(bound.self_loops)
        orders = {name: arranged.order(name) for name in of_edges}
        return arranged.native, bound.plan(arranged.native, shapes), orders

    def forward(self, prepared: Prepared, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
        return _tensors(prepared.plan.forward(prepared.graph, arrays, prepared.seed))

    def backward(self, prepared: Prepared, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
        return _tensors(prepared.plan.backward(prepared.graph, arrays, prepared.seed))


def _tensors(arrays: dict[str, _headwater.Array]) -> dict[str, Tensor]:
    return {name: torch.from_dlpack(array) for name, array in arrays.items()}


class _OnGpu:
    """Kernels that a GPU runs on torch's current stream, into tensors that torch makes."""

    def __init__(self, place: gpu.Place) -> None:
        self._place = place

    def ready(self, bound: Any, graph: LayerGraph, shapes: Shapes, of_edges: list[str]) -> tuple[Any, Any, dict]:
        """As `_OnHost.ready`. A graph that was made on the GPU may lack what a layer asks for; then it is made on the host."""
        arranged = graph.on_gpu(self._place, bound.self_loops)
        found = None if arranged is None else self._ready(bound, arranged, shapes, of_edges)
        return found or self._ready(bound, graph.on_host(bound.self_loops), shapes, of_edges)

    def _ready(self, bound: Any, arranged: Any, shapes: Shapes, of_edges: list[str]) -> Optional[tuple[Any, Any, dict]]:
        orders = {name: arranged.order(name) for name in of_edges}
        # Products are as exact as torch's own.
        precision = torch.get_float32_matmul_precision()
        plan = bound.device_plan(arranged.native, shapes, self._place.ordinal, precision)
        return None if plan is None else (arranged.native, plan, orders)

    def forward(self, prepared: Prepared, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._run(prepared, arrays, False)

    def backward(self, prepared: Prepared, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._run(prepared, arrays, True)

    def _run(self, prepared: Prepared, arrays: dict[str, Tensor], backward: bool) -> dict[str, Tensor]:
        with self._place.entered():
            return self._run_there(prepared, arrays, backward, self._place.stream())

    def _run_there(
        self, prepared: Prepared, arrays: dict[str, Tensor], backward: bool, stream: int
    ) -> dict[str, Tensor]:
        needs, spare_bytes = prepared.plan.needs(prepared.graph, backward, stream)
        made = {name: self._place.empty((count,), torch.float32) for name, count in needs}
        spare = self._place.empty((spare_bytes,), torch.uint8)
        arrays = {name: self._readable(name, tensor) for name, tensor in arrays.items()}
        memory = {name: (tensor.data_ptr(), tensor.nbytes) for name, tensor in (*arrays.items(), *made.items())}
        own = (spare.data_ptr(), spare_bytes)
        prepared.plan._queue(prepared.graph, backward, memory, own, prepared.seed, stream)
        return made

    def _readable(self, name: str, tensor: Tensor) -> Tensor:
        """A tensor that kernels read at its address. Hooks on saved tensors may have given back another than was saved."""
        if tensor.device != self._place.device or tensor.dtype != torch.float32:
            found, wanted = f"{tensor.dtype} on {tensor.device}", f"torch.float32 on {self._place.device}"
            raise ValueError(f"{name} is of {found}; it should be of {wanted}")
        # An address tells nothing of signs that torch has yet to write.
        tensor = tensor.resolve_neg()
        is_aligned = tensor.data_ptr() % _ALIGN_BYTES == 0
        return tensor.contiguous() if is_aligned else tensor.clone(memory_format=torch.contiguous_format)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, prepared: Prepared, names: list[str], *tensors: Tensor) -> Tensor:
        made = _forward(prepared)
        out = _out(prepared, made)
        # The output itself may be read on the way back, and is kept as such.
        known = {**dict(zip(names, tensors)), **made, "out": out}
        ctx.kept = [name for name in prepared.plan.backward_reads if name != "d.out"]
        ctx.save_for_backward(*(known[name] for name in ctx.kept))
        ctx.names, ctx.shapes = names, [tensor.shape for tensor in tensors]
        # Tensors are held by what was saved alone.
        prepared.tensors = {}
        ctx.prepared = prepared
        return out

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
        arrays = {name: tensor.detach() for name, tensor in zip(ctx.kept, ctx.saved_tensors)}
        arrays["d.out"] = gradient.detach().contiguous()
        made = ctx.prepared.kernels.backward(ctx.prepared, arrays)
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


def _forward(prepared: Prepared) -> dict[str, Tensor]:
    arrays = {name: tensor.detach() for name, tensor in prepared.tensors.items()}
    return prepared.kernels.forward(prepared, arrays)


def _out(prepared: Prepared, made: dict[str, Tensor]) -> Tensor:
    out = made.pop("out").view(prepared.graph.rows("node.dst"), *prepared.bound.out_row)
    # Autograd lets nobody write to a view that a function returns: the same memory, and no view.
    return torch.empty(0, dtype=out.dtype, device=out.device).set_(out.untyped_storage(), out.storage_offset(), out.shape)


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
