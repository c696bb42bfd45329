"""A GPU of torch's on the emulator that holds work back (`HWEMU_ORDER`): streams, events, and an allocator that gives memory back in
the order of streams, as torch's does. Tensors lie in memory of the emulator. What torch does with them runs at once, on the
CPU, and is told to the emulator as work of the current stream, so that its checker knows of it."""

import contextlib
import ctypes
import math
import os
import threading
import weakref

import headwater.gpu
import torch
from headwater._headwater import _lasting_stream
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

_NON_BLOCKING = 1
# Calls that the host waits for and that torch makes no operator of, for tensors in host memory.
_ON_HOST = ("cpu", "tolist", "numpy", "__array__")
_here = threading.local()
_memories = weakref.WeakValueDictionary()


class Driver:
    """The emulator's driver, with a context in every thread that calls it."""

    def __init__(self):
        self._library = ctypes.CDLL(os.environ["HEADWATER_LIBCUDA"])
        self._library.hwemu_races.restype = ctypes.c_ulonglong
        self._library.hwemu_last_race.restype = ctypes.c_char_p
        self._library.hwemu_newest_stream.restype = ctypes.c_void_p
        self._context = None

    def __call__(self, name, *given):
        if self._context is None:
            self._checked("cuInit", 0)
            context = ctypes.c_void_p()
            self._checked("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            self._context = context
        if not getattr(_here, "is_bound", False):
            _here.is_bound = True
            self._checked("cuCtxSetCurrent", self._context)
        self._checked(name, *given)

    def _checked(self, name, *given):
        code = getattr(self._library, name)(*given)
        if code:
            raise RuntimeError(f"{name} gave {code}")

    def made(self, name, *given):
        out = ctypes.c_void_p()
        self(name, ctypes.byref(out), *given)
        return out.value

    def newest_stream(self, before):
        return self._library.hwemu_newest_stream(before)

    def races(self):
        return self._library.hwemu_races()

    def last_race(self):
        return self._library.hwemu_last_race().decode()


driver = Driver()


# The stream that has no handle of its own, where one is asked for.
DEFAULT = 1


def streams():
    """All that there are, the one that was made last first."""
    made = []
    while (handle := driver.newest_stream(len(made))) is not None:
        made.append(handle)
    return [*made, DEFAULT]


def lose(waiter, awaited):
    """A stream no longer waits for another one, and the host where that is none, until `found_again`."""
    driver("hwemu_lose", ctypes.c_void_p(waiter), ctypes.c_void_p(awaited))


def order(seed):
    """All work is done, and what is held from now on is taken in an order of this seed."""
    driver("hwemu_order", seed)


@contextlib.contextmanager
def found_again():
    """Behind this every wait is made again."""
    try:
        yield
    finally:
        driver("hwemu_lose", None, None)


def stream():
    return getattr(_here, "stream", 0)


def new_stream():
    handle = driver.made("cuStreamCreateWithPriority", _NON_BLOCKING, 0)
    _lasting_stream(handle)
    return handle


class at:  # noqa: N801, as torch has it
    """Another current stream meanwhile."""

    def __init__(self, handle):
        self._handle = handle

    def __enter__(self):
        self._before, _here.stream = stream(), self._handle

    def __exit__(self, *_):
        _here.stream = self._before


def follow(handle, before):
    """One stream goes on behind another."""
    driver("cuStreamWaitEvent", ctypes.c_void_p(handle), ctypes.c_void_p(event_on(before)), 0)


@contextlib.contextmanager
def captured(handle):
    """Work is captured on a stream meanwhile, as `torch.cuda.graph` does it, and what would spoil that is an error. What is allocated inside is
    the graph's, which is not run: it has to be gone by the end."""
    driver("cuStreamBeginCapture_v2", ctypes.c_void_p(handle), 0)
    graph = ctypes.c_void_p()
    try:
        with at(handle):
            yield
    except BaseException:
        _ended(handle, graph)
        raise
    driver("cuStreamEndCapture", ctypes.c_void_p(handle), ctypes.byref(graph))
    driver("cuGraphDestroy", graph)


def _ended(handle, graph):
    """A capture that may have been spoilt is over."""
    with contextlib.suppress(RuntimeError):
        driver("cuStreamEndCapture", ctypes.c_void_p(handle), ctypes.byref(graph))
        driver("cuGraphDestroy", graph)


def event_on(handle):
    event = driver.made("cuEventCreate", 2)
    driver("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(handle))
    return event


class Memory:
    """What torch's allocator knows of a block: the stream that asked for it, and those that it was recorded for."""

    def __init__(self, nbytes):
        self.stream, self.used_by = stream(), set()
        self.base = driver.made("cuMemAllocAsync", ctypes.c_size_t(nbytes), ctypes.c_void_p(self.stream))
        self.nbytes = nbytes

    def __del__(self):
        stream = self.stream
        if self.used_by:
            # It goes when all of them have come this far, and none of them waits for the others.
            stream = new_stream()
            for handle in [self.stream, *self.used_by]:
                driver("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event_on(handle)), 0)
        driver("cuMemFreeAsync", ctypes.c_void_p(self.base), ctypes.c_void_p(stream))


def empty(shape, dtype):
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    if nbytes == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    memory = Memory(nbytes)
    buffer = type("Bytes", (ctypes.c_ubyte * nbytes,), {}).from_address(memory.base)
    buffer.memory = _memories[memory.base] = memory
    return torch.frombuffer(buffer, dtype=dtype).view(tuple(shape))


def memory_of(tensor):
    is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and tensor.numel() > 0
    return _memories.get(tensor.untyped_storage().data_ptr()) if is_plain else None


def touch(tensor, is_written, name):
    if memory_of(tensor) is None:
        return
    length = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    nbytes = ctypes.c_size_t(length * tensor.element_size())
    driver(
        "hwemu_touch", ctypes.c_void_p(stream()), ctypes.c_void_p(tensor.data_ptr()), nbytes, int(is_written), f"torch's {name}".encode()
    )


def reads(found, name):
    for own in found:
        touch(own, False, name)
    if found:
        driver("cuStreamSynchronize", ctypes.c_void_p(stream()))


def leaves(value):
    """What lists, tuples and dictionaries of an operator hold in the end."""
    if isinstance(value, (list, tuple)):
        for own in value:
            yield from leaves(own)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))
    else:
        yield value


def there(*values):
    """Tensors among the values that lie in the emulator's memory."""
    return [own for own in leaves(values) if isinstance(own, torch.Tensor) and memory_of(own) is not None]


class Operators(TorchDispatchMode):
    """Tells of what torch's operators read and write."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, asked = kwargs or {}, func._schema.arguments
        given = [*args, *(kwargs.get(argument.name) for argument in asked[len(args) :])]
        for argument, value in zip(asked, given):
            alias = argument.alias_info
            # A view looks at no element.
            for own in there(value) if alias is None or alias.is_write else []:
                touch(own, alias is not None, func._schema.name.removeprefix("aten::"))
        found = func(*args, **kwargs)
        if any(isinstance(own, (bool, int, float)) for own in leaves(found)) and there(given):
            driver("cuStreamSynchronize", ctypes.c_void_p(stream()))
        return found


class Homes(Operators):
    """As `Operators`, and what they make lies in the emulator's memory, as everything does that a model on a GPU makes. Whoever uses
    several streams tells the allocator of each tensor that crosses (`Tensor.record_stream`), or has that done: `crosses`."""

    def __init__(self, crosses=False):
        super().__init__()
        self._crosses = crosses

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for own in there(args, kwargs) if self._crosses else []:
            memory = memory_of(own)
            if memory.stream != stream():
                memory.used_by.add(stream())
        found = super().__torch_dispatch__(func, types, args, kwargs)
        is_new = [returned.alias_info is None for returned in func._schema.returns]
        if not any(is_new):
            return found
        name = func._schema.name.removeprefix("aten::")
        return tree_map(lambda own: homed(own, name) if isinstance(own, torch.Tensor) else own, found)


def homed(own, name):
    if own.numel() == 0 or own.layout != torch.strided or own.device.type != "cpu" or memory_of(own) is not None:
        return own
    length = 1 + sum((size - 1) * step for size, step in zip(own.shape, own.stride()))
    made = empty((length,), own.dtype).as_strided(own.shape, own.stride()).copy_(own)
    touch(made, True, name)
    return made


class Calls(TorchFunctionMode):
    """Tells of what the host reads without an operator."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in _ON_HOST:
            reads(there(args[:1]), name)
        return args[0].clone() if name == "cpu" else func(*args, **(kwargs or {}))


@contextlib.contextmanager
def uses():
    """The current thread's torch tells of what it does."""
    with Operators(), Calls():
        yield


class Lane:
    def __init__(self):
        self.own, self.urgent = new_stream(), new_stream()


class Held(headwater.gpu.Place):
    """A GPU whose streams go their own ways."""

    def __init__(self, device):
        self.ordinal, self.device = 0, torch.device("cpu")

    def empty(self, shape, dtype):
        return empty(shape, dtype)

    def stream(self):
        return stream()

    def urgent_stream(self):
        return getattr(_here, "urgent", stream())

    def bring(self, value, *, non_blocking=False):
        # Torch knows the way back of what learns.
        if value.requires_grad:
            return value.clone()
        value = value.contiguous()
        out = empty(value.shape, value.dtype)
        if value.numel() > 0:
            nbytes = ctypes.c_size_t(out.nbytes)
            driver("cuMemcpyAsync", *map(ctypes.c_void_p, (out.data_ptr(), value.data_ptr())), nbytes, ctypes.c_void_p(stream()))
        return out

    def free_bytes(self):
        return 1 << 30

    def entered(self):
        return contextlib.nullcontext()

    def enter(self):
        lane = Lane()
        _here.stream, _here.urgent = lane.own, lane.urgent
        # For as long as the thread lives.
        Operators().__enter__()
        Calls().__enter__()
        return lane

    def leave(self, lanes):
        pass

    def mark(self):
        return event_on(stream())

    def wait(self, mark):
        driver("cuEventSynchronize", ctypes.c_void_p(mark))

    def settle(self):
        driver("cuStreamSynchronize", ctypes.c_void_p(stream()))

    def drain(self):
        driver("cuCtxSynchronize")

    def is_capturing(self):
        status = ctypes.c_int()
        driver("cuStreamIsCapturing", ctypes.c_void_p(stream()), ctypes.byref(status))
        return status.value == 1

    def meet(self, mark, tensors):
        driver("cuStreamWaitEvent", ctypes.c_void_p(stream()), ctypes.c_void_p(mark), 0)
        for tensor in tensors:
            self.use(tensor)

    def use(self, tensor):
        memory = memory_of(tensor)
        if memory is not None and memory.stream != stream():
            memory.used_by.add(stream())

    def timed_mark(self):
        return None

    def memory_use(self):
        allocated = sum(memory.nbytes for memory in _memories.values())
        return allocated, allocated

    def total_bytes(self):
        return 1 << 30


# Races that a test made on purpose.
caught_races = 0


@contextlib.contextmanager
def caught(*words):
    """The emulator finds a race here, and its report has these words."""
    global caught_races
    before = driver.races()
    yield
    driver("cuCtxSynchronize")
    found = driver.races() - before
    caught_races += found
    assert found > 0, "no race was found"
    assert all(word in driver.last_race() for word in words), driver.last_race()
