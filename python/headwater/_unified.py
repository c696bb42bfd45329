"""Unified tensors: in host memory, read by a GPU where they lie, computed on by whichever side the placement table says.

`t[ids]` with ids on a GPU is Headwater's gather. Every other operator of torch works too: its operands are seen from the side
that computes, and its result is made where the table wants it. Without a GPU all is computed by the CPU.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from . import gpu as _gpu
from ._headwater import ManagedMemory, Mapped, Table, placement

# Of these a tensor sees its own memory differently, which stays where it is.
_VIEWS = frozenset(
    "view view_as reshape reshape_as narrow select transpose t permute movedim moveaxis swapaxes swapdims expand expand_as "
    "squeeze unsqueeze flatten unflatten diagonal unbind split chunk tensor_split detach alias as_strided real imag "
    "__iter__ T mT H mH data".split()
)
# These look at a tensor, or change what is known of it, and compute nothing.
_LOOKS = frozenset(
    "size dim ndimension numel nelement stride storage_offset is_contiguous data_ptr element_size __len__ tolist item "
    "__repr__ __str__ __format__ numpy __array__ requires_grad_ backward register_hook retain_grad is_floating_point "
    "is_complex is_signed is_shared share_memory_ is_pinned untyped_storage storage __hash__ __bool__ __int__ __float__ "
    "__index__ __contains__ __dlpack__ __dlpack_device__ get_device is_set_to is_same_size type_as __deepcopy__ is_tensor "
    "is_storage result_type can_cast cpu cuda to".split()
)
_AFFINITIES = ("gpu", "host")
_ADVICE = (
    "SetReadMostly UnsetReadMostly SetPreferredLocation UnsetPreferredLocation SetAccessedBy UnsetAccessedBy".split()
)
# Registering takes whole pages. Arrays up to this lie in the heap and may share theirs with other data, which the driver
# would then no longer copy; beyond it every array has pages of its own.
_IN_THE_HEAP = 32 << 20
# Smaller copies lie in memory that torch has pinned already.
_SMALL = 1 << 20


class UnifiedTensor(Tensor):
    """A tensor in host memory that GPUs read. `headwater.unified` makes them."""

    _affinity: str
    _memory: Optional[ManagedMemory]

    @staticmethod
    def _over(host: Tensor, affinity: str, memory: Optional[ManagedMemory] = None) -> UnifiedTensor:
        made = host.as_subclass(UnifiedTensor)
        made._affinity, made._memory = affinity, memory
        made._seen, made._table = {}, None
        return made

    @property
    def is_unified(self) -> bool:
        return True

    @property
    def affinity(self) -> str:
        """`"gpu"`: operators prefer the GPU ("propagation"). `"host"`: they prefer the CPU."""
        return self._affinity

    def set_affinity(self, affinity: str) -> None:
        """Which side operators prefer from now on. Nothing moves."""
        if affinity not in _AFFINITIES:
            raise ValueError(f"affinity is {affinity!r}; it should be 'gpu' or 'host'")
        self._affinity = affinity

    def set_propagatedToCUDA(self, value: bool) -> None:  # noqa: N802, as PyTorch-Direct has it
        """`set_affinity`, in the words of PyTorch-Direct."""
        self.set_affinity("gpu" if value else "host")

    def mem_advise(self, advise: str, device: Any = "cuda") -> None:
        """Tells the driver how the memory will be used. Only managed memory takes advice: `unified(t, managed=True)`."""
        if advise not in _ADVICE:
            raise ValueError(f"advise is {advise!r}; it should be one of {', '.join(_ADVICE)}")
        if self._memory is None:
            raise RuntimeError("only managed memory takes advice; make the tensor with `unified(t, managed=True)`")
        where = torch.device(device)
        self._memory.advise(_ADVICE.index(advise) + 1, -1 if where.type == "cpu" else where.index or 0)

    memAdvise = mem_advise  # noqa: N815, as PyTorch-Direct has it

    @property
    def host(self) -> Tensor:
        """The same memory as an ordinary tensor of the CPU."""
        return _plain(self)

    def on(self, device: Any) -> Tensor:
        """The same memory as a tensor of a GPU."""
        place = _gpu.place_of(device)
        return self if place is None else _Seen.apply(_plain(self), self._alias(place))

    def _alias(self, place: _gpu.Place) -> Tensor:
        own = _plain(self)
        if not own.is_contiguous():
            # Parts that lie apart are seen through what lies between them.
            ends = sum((length - 1) * stride for length, stride in zip(own.shape, own.stride())) + 1
            around = UnifiedTensor._over(own.detach().as_strided((ends,), (1,)), self._affinity, self._memory)
            seen = around._alias(place)
            return seen.as_strided(own.shape, own.stride(), seen.storage_offset())
        if place.ordinal not in self._seen:
            is_ours = self._memory is None
            seen = Mapped(own.detach(), place.ordinal, is_pinned=own.is_pinned()) if is_ours else self._memory.mapped()
            self._seen[place.ordinal] = seen
        seen = torch.from_dlpack(self._seen[place.ordinal])
        if self._memory is None:
            return seen
        first = own.data_ptr() - torch.from_dlpack(self._memory).data_ptr()
        return seen[first : first + own.nbytes].view(own.dtype).view(own.shape)

    def _rows(self, place: _gpu.Place) -> Table:
        if self._table is None or self._table.device != place.ordinal:
            self._table = Table(_plain(self).detach(), place.ordinal, 0)
        return self._table

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def __reduce_ex__(self, protocol: int) -> Any:
        # Whoever loads it gets an ordinary tensor.
        return _plain(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict) -> UnifiedTensor:
        return unified(_plain(self).detach().clone(), affinity=self._affinity).requires_grad_(self.requires_grad)


def unified(
    tensor: Any, *, affinity: str = "gpu", managed: bool = False, advise: Optional[str] = None, advise_device: Any = "cuda"
) -> UnifiedTensor:
    """A tensor or array in memory that CPU and GPU read.

    Shared memory is read where it lies, without a copy, and so are NumPy's arrays of more than 32 MiB; others are copied.

    >>> table = headwater.unified(torch.arange(6).view(3, 2))
    >>> table[torch.tensor([2, 0])].tolist()
    [[4, 5], [0, 1]]
    """
    if affinity not in _AFFINITIES:
        raise ValueError(f"affinity is {affinity!r}; it should be 'gpu' or 'host'")
    if isinstance(tensor, UnifiedTensor):
        tensor = tensor.host
    is_numpy = isinstance(tensor, np.ndarray)
    if not is_numpy and not isinstance(tensor, Tensor):
        raise TypeError(f"tensor is a {type(tensor).__name__}; it should be a tensor or a NumPy array")
    needs_grad = not is_numpy and tensor.requires_grad
    own = torch.from_numpy(tensor) if is_numpy else tensor.detach()
    if managed or advise is not None:
        made = _managed(own, affinity)
        if advise is not None:
            made.mem_advise(advise, advise_device)
        return made.requires_grad_(needs_grad)
    is_lent = own.device.type == "cpu" and (own.is_shared() or (is_numpy and own.nbytes > _IN_THE_HEAP))
    if not is_lent or not own.is_contiguous():
        own = _copied(own)
    return UnifiedTensor._over(own, affinity).requires_grad_(needs_grad)


def _copied(own: Tensor) -> Tensor:
    """A copy in memory that a GPU can read. Torch rounds large pinned memory up to a power of two, so what is large gets pages
    of its own, which are registered when a GPU first reads them."""
    if _current() is None or own.nbytes == 0:
        return torch.empty(own.shape, dtype=own.dtype).copy_(own)
    if own.nbytes <= _SMALL and torch.cuda.is_available():
        return torch.empty(own.shape, dtype=own.dtype, pin_memory=True).copy_(own)
    pages = torch.frombuffer(mmap.mmap(-1, own.nbytes), dtype=torch.uint8)
    return pages.view(own.dtype).view(own.shape).copy_(own)


def _managed(own: Tensor, affinity: str) -> UnifiedTensor:
    if _current() is None:
        raise RuntimeError("managed memory needs a GPU")
    memory = ManagedMemory(max(own.nbytes, 1), _current().ordinal)
    host = torch.from_dlpack(memory)[: own.nbytes].view(own.dtype).view(own.shape)
    host.copy_(own)
    return UnifiedTensor._over(host, affinity, memory)


# Who computes #########################################################################################################


def _run(func: Callable, args: tuple, kwargs: dict) -> Any:
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        name = getattr(getattr(func, "__self__", None), "__name__", name)
        name = name if name in _VIEWS else "size"
    if name == "__getitem__" and isinstance(args[0], UnifiedTensor):
        rows = _gathered(args[0], args[1])
        if rows is not None:
            return rows
        name = "view" if not _has_tensors(args[1]) else name
    if name in _LOOKS or name in _VIEWS:
        return _looked(func, args, kwargs, name in _VIEWS)
    operands = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
    side, output = _placed(operands)
    is_in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
    if is_in_place and isinstance(args[0], UnifiedTensor):
        return _in_place(func, args, kwargs, operands)
    if side is None:
        found = _plainly(func, args, kwargs)
        return tree_map(lambda value: _made(value, output), found)
    place = _gpu.place_of(side)
    found = _plainly(func, *_seen_from(place, args, kwargs))
    return tree_map(lambda value: _made(value, output), found)


def _placed(operands: list[Tensor]) -> tuple[Optional[str], str]:
    """Who computes, none for the CPU, and where the result goes."""
    side, output = placement([_kind(operand) for operand in operands], 0 if _current() is None else _current().ordinal)
    if _current() is None:
        return None, "cpu" if output.startswith("cuda") else output
    return (None if side == "cpu" else side), output


def _kind(operand: Tensor) -> str:
    if isinstance(operand, UnifiedTensor):
        return f"unified:{operand._affinity}"
    if operand.is_cuda:
        return f"cuda:{operand.device.index}"
    return "scalar" if operand.dim() == 0 else "cpu"


def _made(value: Any, output: str) -> Any:
    if not isinstance(value, Tensor) or not output.startswith("unified"):
        return value
    affinity = output.partition(":")[2]
    if value.requires_grad:
        return UnifiedTensor._over(_ToHost.apply(_plain(value)), affinity)
    return UnifiedTensor._over(_copied(_plain(value)), affinity)


def _seen_from(place: _gpu.Place, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    leaves, shape = tree_flatten((args, kwargs))

    def seen(leaf: Any) -> Any:
        if isinstance(leaf, UnifiedTensor):
            return leaf.on(place.device if place.device.type == "cuda" else "cuda")
        if isinstance(leaf, Tensor) and leaf.dim() > 0 and not leaf.is_cuda:
            return place.bring(leaf)
        return leaf

    return tree_unflatten([seen(leaf) for leaf in leaves], shape)


def _in_place(func: Callable, args: tuple, kwargs: dict, operands: list[Tensor]) -> Any:
    """Writes to a unified tensor. A GPU writes only where the CPU cannot read what is written."""
    target = args[0]
    on_gpu = next((operand for operand in operands if operand.is_cuda), None)
    if on_gpu is None:
        _plainly(func, args, kwargs)
        return target
    if target.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("a unified tensor that needs gradients cannot be written in place by a GPU")
    place = _gpu.place_of(on_gpu.device)
    with torch.no_grad():
        _plainly(func, *_seen_from(place, args, kwargs))
    torch.cuda.current_stream(place.device).synchronize()
    return target


def _looked(func: Callable, args: tuple, kwargs: dict, is_view: bool) -> Any:
    found = _plainly(func, args, kwargs)
    owner = next((leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, UnifiedTensor)), None)
    if owner is None or not is_view:
        return owner if found is not None and found is _plain_of(owner, found) else found
    where = _plain(owner).untyped_storage().data_ptr()

    def same(value: Any) -> Any:
        if isinstance(value, Tensor) and not value.is_cuda and value.untyped_storage().data_ptr() == where:
            return UnifiedTensor._over(value, owner._affinity, owner._memory)
        return value

    return tree_map(same, list(found) if isinstance(found, Iterator) else found)


def _plain_of(owner: Optional[UnifiedTensor], found: Any) -> Any:
    """Methods that return the tensor they were called on, as `requires_grad_` does."""
    same = isinstance(found, Tensor) and owner is not None and found.shape == owner.shape
    return found if same and found.data_ptr() == owner.data_ptr() and found.dtype == owner.dtype else None


def _plain(tensor: Tensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(Tensor) if type(tensor) is not Tensor else tensor


def _plainly(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Runs an operator on ordinary tensors. What it returns is ordinary too."""
    with torch._C.DisableTorchFunctionSubclass():
        found = func(*args, **kwargs)
    return tree_map(lambda value: _plain(value) if isinstance(value, UnifiedTensor) else value, found)


def _has_tensors(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, (Tensor, list, np.ndarray)) for part in parts)


# Rows #################################################################################################################


def _gathered(table: UnifiedTensor, ids: Any) -> Any:
    """`table[ids]` of whole rows by Headwater's gather, or nothing where that is not what is asked for."""
    is_ids = isinstance(ids, Tensor) and ids.dtype in (torch.int64, torch.int32) and ids.dim() > 0
    host = _plain(table)
    is_table = host.dim() > 0 and host.is_contiguous() and host.nbytes > _IN_THE_HEAP
    if not is_ids or not is_table or _current() is None:
        return None
    side, output = _placed([table, ids])
    if side is None:
        return None
    place = _gpu.place_of(side)
    flat = place.bring(_plain(ids)).reshape(-1).contiguous()
    rows = _Rows.apply(host, flat, table._rows(place), place)
    return _made(rows.view(*ids.shape, *host.shape[1:]), output)


class _Rows(torch.autograd.Function):
    """The gather. Its gradient goes to the rows that were read."""

    @staticmethod
    def forward(ctx: Any, host: Tensor, ids: Tensor, table: Table, place: _gpu.Place) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.like = host
        return _gpu.gather(table, ids, host.dtype, place)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple:
        (ids,) = ctx.saved_tensors
        return torch.zeros_like(ctx.like).index_add_(0, ids.cpu().long(), slope.cpu()), None, None, None


class _ToHost(torch.autograd.Function):
    """A result in memory that both sides read. Its gradient goes back to where it was computed."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        ctx.device = value.device
        return _copied(value)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return _plain(slope).to(ctx.device)


class _Seen(torch.autograd.Function):
    """The same memory from the other side. Gradients come back to the host."""

    @staticmethod
    def forward(ctx: Any, host: Tensor, alias: Tensor) -> Tensor:
        return alias.view_as(alias)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple:
        return slope.cpu(), None


def _current() -> Optional[_gpu.Place]:
    """The GPU that operators without one of their own run on."""
    return _gpu.current()


# Between processes ####################################################################################################


def _rebuilt(host: Tensor, affinity: str) -> UnifiedTensor:
    return UnifiedTensor._over(host, affinity)


def _sent(tensor: UnifiedTensor) -> tuple:
    """Moves the memory to where processes share it, once. Nothing is copied after that."""
    host = _plain(tensor).detach()
    if not host.is_shared():
        host.share_memory_()
        tensor._seen, tensor._table = {}, None
    return _rebuilt, (host, tensor._affinity)


ForkingPickler.register(UnifiedTensor, _sent)


# The papers' spelling #################################################################################################

_FACTORIES = "ones zeros empty full rand randn randint arange tensor as_tensor linspace eye ones_like zeros_like".split()
_replaced: dict[tuple[Any, str], Any] = {}


def enable_unified_device() -> None:
    """Lets `t.to("unified")`, `torch.ones(128, device="unified")` and `t.is_unified` mean what PyTorch-Direct means by them.

    >>> headwater.enable_unified_device()
    >>> torch.ones(3, device="unified").is_unified, torch.ones(3).is_unified
    (True, False)
    >>> headwater.disable_unified_device()
    """
    if _replaced:
        return
    _replace(torch.Tensor, "to", _to(torch.Tensor.to))
    for name in _FACTORIES:
        _replace(torch, name, _factory(getattr(torch, name)))
    _replace(torch.Tensor, "is_unified", property(lambda self: False))
    for name in ("set_affinity", "set_propagatedToCUDA", "mem_advise", "memAdvise"):
        _replace(torch.Tensor, name, _refusal(name))


def disable_unified_device() -> None:
    """Takes that back. Tensors that were made stay unified."""
    for (owner, name), before in _replaced.items():
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
    _replaced.clear()


def _replace(owner: Any, name: str, value: Any) -> None:
    _replaced[owner, name] = owner.__dict__.get(name, getattr(owner, name, None))
    setattr(owner, name, value)


def _to(before: Callable) -> Callable:
    def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        device = kwargs.get("device", args[0] if args else None)
        if not (isinstance(device, str) and device == "unified"):
            return before(self, *args, **kwargs)
        rest = {name: value for name, value in kwargs.items() if name != "device"}
        wished = {"advise": rest.pop("advise", None), "advise_device": rest.pop("adviseDevice", "cuda")}
        affinity = "gpu" if rest.pop("propagatedToCUDA", True) else "host"
        source = before(self, *args[1:], **rest) if len(args) > 1 or rest else self
        return unified(source, affinity=affinity, **wished)

    return to


def _factory(before: Callable) -> Callable:
    def made(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        if isinstance(device, str) and device == "unified":
            needs_grad = kwargs.pop("requires_grad", False)
            return unified(before(*args, **kwargs)).requires_grad_(needs_grad)
        return before(*args, **kwargs) if device is None else before(*args, device=device, **kwargs)

    made.__name__, made.__doc__ = before.__name__, before.__doc__
    return made


def _refusal(name: str) -> Callable:
    def refuse(self: Tensor, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"{name} is for unified tensors; this one lies with {self.device}")

    return refuse
