"""A module of somebody else's that runs as a compiled layer.

What is returned is the same module in another class: it shares the module's attributes, so training one trains the other, and
hooks, `state_dict` and `to` are the module's own. Its `forward` runs as one text where that can be said; else PyG's
`forward` runs as it is written and `propagate`, the part over edges, as a text; else all of it runs as it is written.
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections import OrderedDict
from typing import Any

import torch

from .message_passing import is_own_propagate, message_passing, propagate
from .notes import Fault, Own
from .plan import Found, NotTranslated, Translation, Wishes, kind_of, listed, translate

# Kinds of calls that a class keeps its plans for.
_MOST_PLANS = 64


def compile_module(module: torch.nn.Module, wishes: Wishes) -> torch.nn.Module:
    """The module, in a class that runs compiled kernels."""
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError("a scripted module has no Python to read; compile the module that was scripted")
    kind = getattr(type(module), "_headwater_of", type(module))
    return _in_class(module, _compiled_class(kind, wishes))


def _in_class(module: Any, kind: type) -> Any:
    """An object of another class with the same attributes."""
    other = object.__new__(kind)
    object.__setattr__(other, "__dict__", module.__dict__)
    return other


@functools.lru_cache(maxsize=256)
def _compiled_class(kind: type, wishes: Wishes) -> type:
    """The class of compiled modules of a class."""
    plans = Plans(kind, wishes)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return plans.forward(self, args, kwargs)

    def __reduce_ex__(self: Any, _: Any) -> Any:
        return compile_module, (_in_class(self, kind), wishes)

    members: dict[str, Any] = {
        "forward": functools.wraps(kind.forward)(forward),
        "translations": property(lambda self: plans.translations),
        "__reduce_ex__": __reduce_ex__,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "_headwater_of": kind,
    }
    base = message_passing()
    if base is not None and issubclass(kind, base) and not is_own_propagate(kind):

        def passed(self: Any, edge_index: Any, *args: Any, **kwargs: Any) -> Any:
            return plans.propagate(self, edge_index, args, kwargs)

        members["propagate"] = functools.wraps(kind.propagate)(passed)
    return type(kind)(kind.__name__, (kind,), members)


class Plans:
    """What calls of one class became. All modules of the class share it."""

    def __init__(self, kind: type, wishes: Wishes) -> None:
        self._kind, self._wishes = kind, wishes
        self._signature = inspect.signature(kind.forward)
        self._plans: OrderedDict[Any, list[Found]] = OrderedDict()
        self._is_told = False
        self._lock = threading.RLock()
        base = message_passing()
        self._passes = base is not None and issubclass(kind, base) and not is_own_propagate(kind)

    @property
    def translations(self) -> list[Translation]:
        return [one.translation for known in self._plans.values() for one in known]

    def forward(self, module: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The whole of `forward` as one layer, if that can be said."""
        if not _is_plain_time():
            return self._kind.forward(module, *args, **kwargs)
        try:
            bound = self._signature.bind(module, *args, **kwargs)
        except TypeError:
            return self._kind.forward(module, *args, **kwargs)
        bound.apply_defaults()
        given = dict(list(bound.arguments.items())[1:])

        def read(layer: Any, arguments: dict[str, Any]) -> Any:
            own = next(iter(self._signature.parameters))
            out = layer.run(self._kind.forward, {own: Own(module), **arguments})
            layer.finish(Own(module))
            return out

        out = self._run("forward", module, given, read, must=not self._passes)
        return self._kind.forward(module, *args, **kwargs) if out is NotImplemented else out

    def propagate(self, module: Any, edge_index: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What PyG's `propagate` does, as a layer of its own."""
        if args or not _is_plain_time():
            return self._kind.propagate(module, edge_index, *args, **kwargs)

        def read(layer: Any, arguments: dict[str, Any]) -> Any:
            out = propagate(layer, Own(module), **arguments)
            layer.finish(Own(module))
            return out

        out = self._run("propagate", module, {"edge_index": edge_index, **kwargs}, read, must=True)
        return self._kind.propagate(module, edge_index, **kwargs) if out is NotImplemented else out

    def _run(self, name: str, module: Any, given: dict[str, Any], read: Any, must: bool) -> Any:
        found = self._find(name, module, given, read)
        if found.plan is not None:
            out = found.plan.run(module, given)
            if out is NotImplemented and must and not self._wishes.fallback:
                why = (Fault("<call>", 0, name, "rows do not fit together"),)
                raise NotTranslated(f"{self._kind.__qualname__} cannot be compiled for this call:\n{listed(why)}", why)
            return out
        if must:
            self._tell(module, found.translation)
        return NotImplemented

    def _find(self, name: str, module: Any, given: dict[str, Any], read: Any) -> Found:
        key = (name, *((word, kind_of(value)) for word, value in given.items()))
        with self._lock:
            return self._found(key, name, module, given, read)

    def _found(self, key: Any, name: str, module: Any, given: dict[str, Any], read: Any) -> Found:
        known = self._plans.setdefault(key, [])
        self._plans.move_to_end(key)
        for found in reversed(known):
            if found.holds(module):
                return found
        found = translate(name, self._kind, read, given, self._wishes)
        known.append(found)
        del known[:-_MOST_PLANS]
        while len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)
        return found

    def _tell(self, module: Any, translation: Translation) -> None:
        """Says once a class what stays as it is, or raises where that was asked for."""
        told = f"Not supported:\n{listed(translation.unsupported)}{self._advice(module)}"
        if not self._wishes.fallback:
            raise NotTranslated(f"{self._kind.__qualname__} cannot be compiled. {told}", translation.unsupported)
        if not self._is_told:
            self._is_told = True
            # At the line that calls `propagate`.
            warnings.warn(f"{self._kind.__qualname__} runs as it is written, not compiled. {told}", stacklevel=5)

    def _advice(self, module: Any) -> str:
        base = message_passing()
        names = [name for name, child in module.named_modules() if base is not None and isinstance(child, base) and name]
        if self._passes or not names:
            return ""
        return f"\nA text is one layer. Compile those of the module: module.{names[0]} = headwater.compile(module.{names[0]})"


def _is_plain_time() -> bool:
    """Whether tensors are what they seem."""
    is_cast = torch.is_autocast_enabled() or torch.is_autocast_enabled("cpu")
    return not (is_cast or torch.jit.is_tracing() or torch.compiler.is_compiling())
