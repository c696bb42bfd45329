"""A compiled layer as a module that owns its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import torch

if TYPE_CHECKING:
    from .compile import Given, Layer


class LayerModule(torch.nn.Module):
    """Called with a graph and the layer's inputs, in the order of the text or by name. `Layer.module` makes it."""

    def __init__(self, layer: Layer, given: Given, counts: dict[str, int], seed: Optional[int]) -> None:
        super().__init__()
        self.layer, self._given = layer, given
        bound = layer.bound({}, given.sizes, given.options, frozenset(layer.weights), True)
        # Inputs that are there with these options.
        self._inputs = [name for name in layer.inputs if name in bound.taken]
        self._counts = counts
        self.reset_parameters(seed)

    def reset_parameters(self, seed: Optional[int] = None) -> None:
        """Weights as they begin. `seed` comes from torch's generator by default."""
        seed = int(torch.randint(2**62, ())) if seed is None else seed
        given = self._given
        bound = self.layer.bound({}, given.sizes, given.options, frozenset(self.layer.weights), True)
        for name, shape, values in bound.first_weights(self._counts, seed):
            first = torch.from_dlpack(values).view(shape)
            if name in self._parameters:
                with torch.no_grad():
                    self._parameters[name].copy_(first)
            else:
                self.register_parameter(name, torch.nn.Parameter(first))

    def forward(self, graph: Any, *inputs: Any, **named: Any) -> Any:
        """The layer's output, with dropouts in training alone."""
        if len(inputs) > len(self._inputs):
            raise TypeError(f"{self.layer.__name__} takes {self._inputs} behind the graph, but {len(inputs)} were given")
        if not named:
            from .autograd import call

            own = {**dict(zip(self._inputs, inputs)), **self._parameters}
            given = self._given.with_arrays({name: value for name, value in own.items() if value is not None})
            return call(self.layer, graph, given, self.training)
        all_of_them = {**dict(zip(self._inputs, inputs)), **named}
        given = {**self._given.sizes, **self._given.options, **self._parameters}
        return self.layer(graph, training=self.training, **given, **all_of_them)

    def extra_repr(self) -> str:
        told = {**self._given.sizes, **self._given.options}
        if self.layer.without:
            told["without"] = list(self.layer.without)
        if self.layer.tune != "fixed":
            told["tune"] = self.layer.tune
        return ", ".join([self.layer.__name__, *(f"{name}={value!r}" for name, value in told.items())])
