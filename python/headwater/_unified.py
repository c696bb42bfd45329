"""Unified tensors: in host memory, read by a GPU where they lie, computed on by whichever side the placement table says.

`t[ids]` with ids on a GPU is Headwater's gather. Every other operator of torch works too: its operands are seen from the side
that computes, and its result is made where the table wants it. Without a GPU all is computed by the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from multiprocessing.reduction import ForkingPickler
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from . import gpu as _gpu
from ._headwater import ManagedMemory, Table, placement
from ._unified_grad import Rows, Seen, ToHost
from ._unified_memory import IN_THE_HEAP, Memory, copied, own, result
from ._unified_names import HANDS_OUT, ITSELF, LOOKS, VIEWS, WRITES

_AFFINITIES = ("gpu", "host")
_ADVICE = (
    "SetReadMostly UnsetReadMostly SetPreferredLocation UnsetPreferredLocation SetAccessedBy UnsetAccessedBy".split()
)


class UnifiedTensor(Tensor):
    """A tensor in host memory that GPUs read. `headwater.unified` makes them."""

    _affinity: str = "gpu"
    _memory: Optional[Memory] = None
    _table: Optional[tuple] = None

    @staticmethod
    def _over(host: Tensor, affinity: str) -> UnifiedTensor:
        made = host.as_subclass(UnifiedTensor)
        made._affinity = affinity
        return made

    @staticmethod
    def _from(value: Tensor, affinity: str) -> UnifiedTensor:
        """A copy whose gradient goes back to where it came from."""
        return UnifiedTensor._over(ToHost.apply(_plain(value)), affinity)

    @property
    def is_unified(self) -> bool:
        return True

    @property
    def affinity(self) -> str:
        """`"gpu"`: operators prefer the GPU ("propagation"). `"host"`: they prefer the CPU."""
        return self._affinity

    def set_affinity(self, affinity: str) -> None:
        """Which side operators prefer from now on. Nothing moves."""
        _check_affinity(affinity)
        self._affinity = affinity

    def set_propagatedToCUDA(self, value: bool) -> None:  # noqa: N802, as PyTorch-Direct has it
        """`set_affinity`, in the words of PyTorch-Direct."""
        self.set_affinity("gpu" if value else "host")

    def mem_advise(self, advise: str, device: Any = "cuda") -> None:
        """Tells the driver how the memory will be used. Only managed memory takes advice: `unified(t, managed=True)`."""
        _check_advice(advise)
        owner = self._held().owner()
        if not isinstance(owner, ManagedMemory):
            raise RuntimeError("only managed memory takes advice; make the tensor with `unified(t, managed=True)`")
        where = torch.device(device)
        owner.advise(_ADVICE.index(advise) + 1, -1 if where.type == "cpu" else where.index or 0)

    memAdvise = mem_advise  # noqa: N815, as PyTorch-Direct has it

    @property
    def host(self) -> Tensor:
        """The same memory as an ordinary tensor of the CPU, behind what GPUs were about to read of it."""
        self._held().wait()
        return _plain(self)

    def on(self, device: Any) -> Tensor:
        """The same memory as a tensor of a GPU. The CPU writes to it behind all that the GPU has to do then."""
        place = _gpu.place_of(device)
        if place is None:
            return self
        seen = self._seen(place)
        if seen is None:
            raise RuntimeError(f"the GPU cannot read the tensor where it lies: {self._held().why_unseen()}")
        self._held().read_by(place, is_lent=True)
        return seen

    def _held(self) -> Memory:
        """What is known of the storage it lies in now, which is kept as long as somebody asks."""
        self._memory = Memory.of(_plain(self))
        return self._memory

    def _alias(self, place: _gpu.Place) -> Optional[Tensor]:
        """The same memory as a GPU sees it, without a gradient; nothing where it cannot."""
        host = _plain(self).detach()
        memory = self._held()
        if host.is_conj() or host.is_neg() or memory.why_unseen():
            return None
        if memory.nbytes == 0:
            alias = place.empty(host.shape, host.dtype)
        else:
            seen = memory.seen_by(place)
            alias = torch.empty(0, dtype=host.dtype, device=seen.device)
            alias.set_(seen.untyped_storage(), host.storage_offset(), host.shape, host.stride())
        # So it has the host's version: autograd notices writes from either side.
        host.data = alias
        return host

    def _seen(self, place: _gpu.Place) -> Optional[Tensor]:
        alias = self._alias(place)
        needs_grad = alias is not None and self.requires_grad and torch.is_grad_enabled()
        return Seen.apply(_plain(self), alias) if needs_grad else alias

    def _rows(self, place: _gpu.Place) -> Table:
        """Its rows for the gather."""
        host = _plain(self).detach()
        made_of = (self._held(), place.ordinal, host.storage_offset(), host.shape, host.dtype)
        if self._table is None or self._table[0] != made_of:
            self._table = (made_of, Table(host, place.ordinal, 0))
        return self._table[1]

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def __reduce_ex__(self, protocol: int) -> Any:
        # Whoever loads it gets an ordinary tensor.
        return _plain(self).__reduce_ex__(protocol)

    def __copy__(self) -> UnifiedTensor:
        # The same memory, as torch's own.
        return self.detach().requires_grad_(self.requires_grad)

    def __deepcopy__(self, memo: dict) -> UnifiedTensor:
        made = unified(_plain(self).detach().clone(), affinity=self._affinity).requires_grad_(self.requires_grad)
        made.grad = deepcopy(self.grad, memo)
        return made


def unified(
    tensor: Any,
    *,
    affinity: str = "gpu",
    copy: Optional[bool] = None,
    managed: bool = False,
    advise: Optional[str] = None,
    advise_device: Any = "cuda",
) -> UnifiedTensor:
    """A tensor or array in memory that CPU and GPU read.

    With `copy=False` it is read where it lies, and an error says why where that cannot be. With `copy=True` it is copied.
    Otherwise shared memory and NumPy's arrays of more than 32 MiB are read where they lie, and others are copied. `advise` is
    for managed memory, which it asks for, and `advise_device` for `advise`: see `UnifiedTensor.mem_advise`.

    >>> table = headwater.unified(torch.arange(6).view(3, 2))
    >>> table[torch.tensor([2, 0])].tolist()
    [[4, 5], [0, 1]]
    """
    _check_affinity(affinity)
    if advise is not None:
        _check_advice(advise)
    elif advise_device != "cuda":
        raise ValueError(f"advise_device is {advise_device!r}, but advise is None: there is no advice about it")
    if not isinstance(tensor, (Tensor, np.ndarray)):
        raise TypeError(f"tensor is a {type(tensor).__name__}; it should be a tensor or a NumPy array")
    needs_grad = isinstance(tensor, Tensor) and tensor.requires_grad
    if needs_grad and not tensor.is_leaf:
        raise ValueError(
            "tensor was computed from others that have gradients, and a unified tensor begins anew: detach() it first, or let "
            "gradients through by tensor.to('unified') after headwater.enable_unified_device()"
        )
    if managed or advise is not None:
        if copy is False:
            raise ValueError("copy is False, but managed memory is the driver's own; leave one of them out")
        made = _managed(_of_any(tensor), affinity)
        if advise is not None:
            made.mem_advise(advise, advise_device)
        return made.requires_grad_(needs_grad)
    why = _why_not_lent(tensor, copy)
    if copy is False and why is not None:
        raise ValueError(f"copy is False, but the tensor cannot be read where it lies: {why}")
    host = _of_any(tensor) if why is None else copied(_of_any(tensor))
    made = UnifiedTensor._over(host, affinity)
    if copy is False and _gpu.current() is not None:
        # Whatever the driver has against it is said now.
        made._alias(_gpu.current())
    return made.requires_grad_(needs_grad)


def _check_advice(advise: str) -> None:
    if advise not in _ADVICE:
        raise ValueError(f"advise is {advise!r}; it should be one of {', '.join(_ADVICE)}")


def _check_affinity(affinity: str) -> None:
    if affinity not in _AFFINITIES:
        raise ValueError(f"affinity is {affinity!r}; it should be 'gpu' or 'host'")


def _of_any(tensor: Any) -> Tensor:
    """As an ordinary tensor. Arrays that torch does not take as they are, or would write to, are copied."""
    if isinstance(tensor, Tensor):
        return _plain(tensor).detach()
    is_fine = tensor.flags.writeable and all(stride >= 0 for stride in tensor.strides)
    return torch.from_numpy(tensor if is_fine else tensor.copy())


def _why_not_lent(tensor: Any, copy: Optional[bool]) -> Optional[str]:
    """Why a tensor has to be copied, or nothing where it does not."""
    if copy:
        return "a copy was asked for"
    is_numpy = isinstance(tensor, np.ndarray)
    if is_numpy and not tensor.flags.writeable:
        return "the array is read-only"
    if is_numpy and any(stride < 0 for stride in tensor.strides):
        return f"the array has a negative stride, {tensor.strides}"
    host = _of_any(tensor)
    if host.device.type != "cpu":
        return f"it lies on {host.device}"
    if host.layout is not torch.strided or host.is_conj() or host.is_neg():
        return "its elements do not lie in memory as they are read"
    is_large = is_numpy and host.nbytes > IN_THE_HEAP
    if copy is None:
        return None if (host.is_shared() or is_large) and host.is_contiguous() else "it may change"
    return None if _gpu.current() is None else Memory.of(host).why_unseen()


def _managed(value: Tensor, affinity: str) -> UnifiedTensor:
    if _gpu.current() is None:
        raise RuntimeError("managed memory needs a GPU")
    memory = ManagedMemory(max(value.nbytes, 1), _gpu.current().ordinal)
    host = own(torch.from_dlpack(memory), memory)[: value.nbytes].view(value.dtype).view(value.shape)
    host.copy_(value)
    return UnifiedTensor._over(host, affinity)


# Who computes #########################################################################################################


def _run(func: Callable, args: tuple, kwargs: dict) -> Any:
    name = getattr(func, "__name__", "")
    if name == "__get__":
        # The attribute's name, where it is another view.
        attribute = getattr(getattr(func, "__self__", None), "__name__", name)
        name = attribute if attribute in VIEWS else name
    if name == "__getitem__" and isinstance(args[0], UnifiedTensor):
        rows = _gathered(args[0], args[1])
        if rows is not None:
            return rows
        name = "select" if not _has_tensors(args[1]) else name
    if name in ITSELF or _is_of_autograd(func) or (name in LOOKS and not (name == "to" and _keeps_its_device(args, kwargs))):
        return _looked(func, args, kwargs, name)
    if name in VIEWS:
        seen = _viewed(func, args, kwargs)
        if seen is not None:
            return seen
    operands = _tensors((args, kwargs))
    written = _written(func, args, kwargs)
    place, output = _placed(operands, name, written, kwargs)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not _is_init(func)):
        if place is None:
            return _by_cpu(func, args, kwargs, output, written)
        return _by_gpu(func, (args, kwargs), place, output, written)


def _tensors(given: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(given)[0] if isinstance(leaf, Tensor)]


def _is_of_autograd(func: Callable) -> bool:
    """Whether it asks for gradients of tensors, which are those of the tensors themselves."""
    return getattr(func, "__module__", None) == "torch.autograd"


def _is_init(func: Callable) -> bool:
    """Whether it fills a tensor whatever its gradient would be."""
    return getattr(func, "__module__", None) == "torch.nn.init"


def _written(func: Callable, args: tuple, kwargs: dict) -> list[Tensor]:
    """The tensors that an operator writes to."""
    name, targets = getattr(func, "__name__", ""), [kwargs.get("out")]
    if name in WRITES or _is_init(func) or kwargs.get("inplace") is True:
        targets.append(next(iter((*args, *kwargs.values())), None))
    if name in ("batch_norm", "instance_norm"):
        # The statistics that it keeps, which torch's own function takes behind weight and bias.
        at = 1 if getattr(func, "__module__", None) == "torch.nn.functional" else 3
        targets += [kwargs.get("running_mean"), kwargs.get("running_var"), *args[at : at + 2]]
    return _tensors(targets)


def _placed(operands: list[Tensor], name: str, written: list[Tensor], kwargs: dict) -> tuple[Optional[_gpu.Place], str]:
    """Who computes, none for the CPU, and where the result goes."""
    current = _gpu.current()
    side, output = placement([_kind(operand) for operand in operands], 0 if current is None else current.ordinal)
    if current is None:
        return None, "cpu" if output.startswith("cuda") else output
    # What is written to ordinary memory, is copied, or is drawn by a generator of the CPU's stays on the host where it can.
    generator = kwargs.get("generator")
    by_host = name == "copy_" or any(not isinstance(target, UnifiedTensor) for target in written)
    by_host = by_host or (generator is not None and generator.device.type == "cpu")
    if side == "cpu" or (by_host and not any(operand.is_cuda for operand in operands)):
        return None, output
    return _gpu.place_of(side), output


def _kind(operand: Tensor) -> str:
    if isinstance(operand, UnifiedTensor):
        return f"unified:{operand._affinity}"
    if operand.is_cuda:
        return f"cuda:{operand.device.index}"
    return "scalar" if operand.dim() == 0 else "cpu"


def _by_cpu(func: Callable, args: tuple, kwargs: dict, output: str, written: list[Tensor]) -> Any:
    for target in written:
        memory = target._held() if isinstance(target, UnifiedTensor) else Memory.known(target)
        if memory is not None:
            memory.wait()
    found, given = _plainly(func, args, kwargs), _tensors((args, kwargs))
    return tree_map(lambda value: _handed(value, given, output), found)


def _handed(value: Any, given: list[Tensor], output: str) -> Any:
    """What an operator of the CPU's returns: one of its operands, another view of one, or something new."""
    if not isinstance(value, Tensor) or any(value is leaf for leaf in given):
        return value
    for leaf in given:
        if _shares(value, leaf):
            return UnifiedTensor._over(value, leaf._affinity) if isinstance(leaf, UnifiedTensor) else value
    return _made(value, output)


def _by_gpu(func: Callable, given: tuple, place: _gpu.Place, output: str, written: list[Tensor]) -> Any:
    leaves, shape = tree_flatten(given)
    needs_grad = torch.is_grad_enabled() and any(leaf.requires_grad for leaf in _tensors(given))
    aliases: list[tuple[UnifiedTensor, Tensor]] = []
    stand_ins: list[tuple[Tensor, Tensor, int]] = []

    def is_target(leaf: Tensor) -> bool:
        return any(leaf is target for target in written)

    def seen(leaf: Any) -> Any:
        is_unified = isinstance(leaf, UnifiedTensor)
        travels_as_it_is = isinstance(leaf, Tensor) and leaf.dim() == 0 and not is_unified and not is_target(leaf)
        if not isinstance(leaf, Tensor) or leaf.is_cuda or travels_as_it_is:
            return leaf
        alias = leaf._seen(place) if is_unified else None
        if alias is not None and not (is_target(leaf) and needs_grad):
            aliases.append((leaf, alias))
            return alias
        # Autograd has no in-place operators between two devices, so they work on a copy, which is written back.
        stand_in = place.bring(_plain(leaf)) if alias is None else alias.clone()
        stand_ins.append((leaf, stand_in, stand_in._version))
        return stand_in

    args, kwargs = tree_unflatten([seen(leaf) for leaf in leaves], shape)
    found = _plainly(func, args, kwargs)
    for leaf, alias in aliases:
        is_lent = needs_grad or any(_shares(value, alias) and value is not alias for value in _tensors(found))
        leaf._held().read_by(place, is_lent)
    if any(is_target(leaf) for leaf, _ in aliases):
        place.settle()
    for leaf, stand_in, version in stand_ins:
        if stand_in._version != version or is_target(leaf):
            _write_back(leaf, stand_in)
    return tree_map(lambda value: _brought_back(value, aliases, stand_ins, output), found)


def _brought_back(value: Any, aliases: list, stand_ins: list, output: str) -> Any:
    """What an operator of a GPU's returns: one of its operands, another view of one, or something new."""
    for leaf, stands_for_it, *_ in (*aliases, *stand_ins):
        if value is stands_for_it:
            return leaf
    is_view = isinstance(value, Tensor) and any(_shares(value, alias) for _, alias in aliases)
    return value if is_view else _made(value, output)


def _write_back(leaf: Tensor, stand_in: Tensor) -> None:
    memory = Memory.known(_plain(leaf))
    if memory is not None:
        memory.wait()
    with torch._C.DisableTorchFunctionSubclass():
        if leaf.shape != stand_in.shape:
            leaf.resize_(stand_in.shape)
        leaf.copy_(stand_in)


def _made(value: Any, output: str) -> Any:
    if not isinstance(value, Tensor) or not output.startswith("unified"):
        return value
    affinity = output.partition(":")[2]
    if value.is_cuda and value.requires_grad:
        return UnifiedTensor._from(value, affinity)
    host = _plain(value)
    if _gpu.current() is not None:
        # It keeps its gradient, and moves to where a GPU reads it.
        moved = result(host.detach())
        host = moved if host.is_cuda else host
        host.data = moved
    return UnifiedTensor._over(host, affinity)


def _viewed(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Other views of memory that is there, which stays where it is; nothing where a copy was made."""
    found = _plainly(func, args, kwargs)
    is_iterator = isinstance(found, Iterator)
    leaves, shape = tree_flatten(list(found) if is_iterator else found)
    given = _tensors((args, kwargs))
    if any(isinstance(value, Tensor) and not any(_shares(value, leaf) for leaf in given) for value in leaves):
        return None
    seen = tree_unflatten([_handed(value, given, "") for value in leaves], shape)
    return iter(seen) if is_iterator else seen


def _looked(func: Callable, args: tuple, kwargs: dict, name: str) -> Any:
    owners = [leaf for leaf in _tensors((args, kwargs)) if isinstance(leaf, UnifiedTensor)]
    if name in HANDS_OUT:
        for owner in owners:
            owner._held().wait()
    if name == "__format__":
        # Torch asks for the very type.
        args = (_plain(args[0]), *args[1:])
    found = _plainly(func, args, kwargs)
    if isinstance(found, Tensor) and found.is_cuda:
        for owner in owners:
            owner._held().read_by(_gpu.place_of(found.device), is_lent=False)
    return found


def _keeps_its_device(args: tuple, kwargs: dict) -> bool:
    """Whether `to` asks for another kind of element alone."""
    wishes = (*args[1:], kwargs.get("device"), kwargs.get("other"))
    return not any(isinstance(wish, (str, int, torch.device, Tensor)) and not isinstance(wish, bool) for wish in wishes)


def _shares(value: Tensor, leaf: Tensor) -> bool:
    if value.layout is not torch.strided or leaf.layout is not torch.strided or value.device != leaf.device:
        return False
    return _plain(value).untyped_storage()._cdata == _plain(leaf).untyped_storage()._cdata


def _plain(tensor: Tensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(Tensor) if isinstance(tensor, UnifiedTensor) else tensor


def _plainly(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Runs an operator as if all tensors were ordinary ones."""
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _has_tensors(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, (Tensor, list, np.ndarray)) for part in parts)


# Rows #################################################################################################################


def _gathered(table: UnifiedTensor, ids: Any) -> Any:
    """`table[ids]` of whole rows by Headwater's gather, or nothing where that is not what is asked for."""
    is_ids = isinstance(ids, Tensor) and ids.dtype in (torch.int64, torch.int32) and ids.dim() > 0
    host = _plain(table)
    is_table = host.dim() > 0 and host.is_contiguous() and host.nbytes > IN_THE_HEAP
    if not is_ids or not is_table or _gpu.current() is None:
        return None
    place, output = _placed([table, ids], "__getitem__", [], {})
    if place is None:
        return None
    flat = place.bring(_plain(ids)).reshape(-1).contiguous()
    rows = Rows.apply(host, flat, table._rows(place), place)
    table._held().read_by(place, is_lent=False)
    return _made(rows.view(*ids.shape, *host.shape[1:]), output)


# Between processes ####################################################################################################


def _rebuilt(host: Tensor, affinity: str) -> UnifiedTensor:
    return UnifiedTensor._over(host, affinity)


def _sent(tensor: UnifiedTensor) -> tuple:
    """Moves the memory to where processes share it, once. Nothing is copied after that."""
    host = _plain(tensor).detach()
    if not host.is_shared():
        host.share_memory_()
    return _rebuilt, (host, tensor._affinity)


ForkingPickler.register(UnifiedTensor, _sent)
