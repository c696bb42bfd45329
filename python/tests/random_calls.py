"""Random calls of the package, drawn from a seed: each gives what NumPy gives, or raises an exception that Python code can catch.

A program and not a test: what reads memory that is not its own ends the process, and whoever started it hears with which case.

    python random_calls.py --seed 1 --first 0 --cases 500 [--seconds 60] [--loaders]
"""

import argparse
import ctypes
import faulthandler
import random
import sys
import time
import warnings

import numpy as np

import headwater

ROWS = 9
DTYPES = ["i1", "i2", "<i4", "<i8", "u1", "u2", "<u4", "<u8", "<f2", "<f4", "<f8", "?", "<c8", ">i4", ">f8", "S3", "O", "M8[s]"]
# Either small or more than any machine has: 2**31 rows would be made.
NUMBERS = [0, 1, 2, 3, ROWS, -1, -7, 2**45, 2**62, 2**63 - 1, 2**63, 2**64, 1.5, None, "3", True]
# Whatever the words, these say that something broke inside.
BROKEN = (SystemError, RecursionError, AssertionError)


class Wrong(Exception):
    """A call that gave what NumPy does not give."""


# Arrays ###############################################################################################################


def array(drawn, dtype=None, shape=None, tame=False):
    """Any array, in any layout that NumPy has."""
    dtype = np.dtype(dtype or drawn.choice(DTYPES))
    shape = shape or tuple(drawn.choice([0, 1, 2, 3, ROWS]) for _ in range(drawn.choice([0, 1, 1, 2, 2, 3])))
    values = np.array([drawn.randint(0, ROWS - 1) for _ in range(int(np.prod(shape)))], np.int64).reshape(shape)
    made = values.astype(dtype)
    return made if tame else layout(drawn, made)


def layout(drawn, made):
    kind = drawn.choice(["as it is", "read-only", "every other", "backwards", "columns first", "broadcast", "misaligned", "turned"])
    if kind == "read-only":
        made = made.copy()
        made.flags.writeable = False
    elif kind == "every other" and made.ndim:
        made = np.repeat(made, 2, axis=0)[::2]
    elif kind == "backwards" and made.ndim:
        made = made[::-1]
    elif kind == "columns first":
        made = np.asfortranarray(made)
    elif kind == "broadcast" and made.ndim and len(made):
        made = np.broadcast_to(made[:1], made.shape)
    elif kind == "misaligned" and made.dtype.kind != "O":
        memory = np.zeros(made.nbytes + 1, np.uint8)[1:]
        memory[:] = np.frombuffer(made.tobytes(), np.uint8)
        made = memory.view(made.dtype).reshape(made.shape)
    elif kind == "turned":
        made = made.T
    return made


def ids(drawn):
    """Ids, most of them in range."""
    if drawn.random() < 0.3:
        return lent(drawn, array(drawn))
    made = array(drawn, drawn.choice(["<i8", "<i4", "<u4", "<u8"]), (drawn.choice([0, 1, 5, 20]),))
    if made.size and drawn.random() < 0.3:
        made = made.copy()
        made[drawn.randrange(made.size)] = drawn.choice([ROWS, 2**31 - 1, 127, 100])
    return lent(drawn, made)


# Who lends them #######################################################################################################


class Interface:
    """An array by NumPy's interface alone."""

    def __init__(self, array, **changes):
        self.kept = array
        self.__array_interface__ = {**array.__array_interface__, **changes}


class Cuda:
    """An array that says that it lies on a GPU."""

    def __init__(self, array):
        self.kept = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3, "stream": 1}


class Dlpack:
    """An array by DLPack alone, with whatever it is asked to give."""

    def __init__(self, capsule, device=(1, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **wishes):
        return self.capsule(**wishes) if callable(self.capsule) else self.capsule

    def __dlpack_device__(self):
        return self.device


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# Tensors, their memory and the names of capsules: a capsule does not keep them.
_held = []


def raw_dlpack(drawn):
    """A tensor as C code would lend it, sound or not. Its memory is always there, so what is refused is refused by what it says."""
    memory = np.arange(4096, dtype=np.int64) % ROWS
    shape = (ctypes.c_int64 * 3)(drawn.choice([0, 1, 3, -1, 2**62]), drawn.choice([1, 2]), 1)
    strides = (ctypes.c_int64 * 3)(drawn.choice([1, 0, 2, 2**61]), 1, 1)
    deleted = _DELETER(lambda _: None)
    tensor = _Tensor(
        data=drawn.choice([memory.ctypes.data, memory.ctypes.data, memory.ctypes.data + 1, None]),
        device_type=drawn.choice([1, 1, 1, 2, 3, 10, 0, -1]),
        ndim=drawn.choice([1, 1, 1, 2, 0, -1]),
        code=drawn.choice([0, 0, 1, 2, 4, 9, 255]),
        bits=drawn.choice([64, 64, 32, 8, 0, 7, 255]),
        lanes=drawn.choice([1, 1, 1, 0, 2]),
        shape=drawn.choice([ctypes.addressof(shape)] * 4 + [None]),
        strides=drawn.choice([ctypes.addressof(strides), None, None]),
        byte_offset=drawn.choice([0, 0, 8, 1, 2**63]),
        deleter=drawn.choice([ctypes.cast(deleted, ctypes.c_void_p).value, None]),
    )
    name = drawn.choice([b"dltensor", b"dltensor", b"dltensor", b"used_dltensor", b"dltensor_versioned_", b"other"])
    # A huge extent with a stride, or a huge offset, is a lie about memory that nobody can see through.
    if abs(shape[0]) > 4096 or strides[0] > 4096 or tensor.byte_offset > 4096:
        tensor.data = None
    _held.append((memory, shape, strides, deleted, tensor, name))
    del _held[:-64]
    return Dlpack(_capsule(ctypes.addressof(tensor), name, None), drawn.choice([(1, 0), (1, 0), (2, 0), (1,), None, "cpu"]))


def lent(drawn, made):
    """The array, as one library or another would lend it, or something that is none."""
    kind = drawn.random()
    if kind < 0.45:
        return made
    if kind < 0.6:
        return Interface(made)
    if kind < 0.75:
        return Dlpack(lambda **wishes: made.__dlpack__(**wishes))
    if kind < 0.82:
        return raw_dlpack(drawn)
    if kind < 0.85:
        return Cuda(made)
    if kind < 0.93:
        changes = {
            "shape": drawn.choice([(-1,), (2**62, 2**62), [3], None, ("3",), (1.5,), ()]),
            "typestr": drawn.choice(["<i8", "<i9", "", "|V8", 3, None, "<f16"]),
            "data": drawn.choice([None, (0, False), (1,), ("x", False), (-8, True), b"bytes"]),
            "strides": drawn.choice([None, (), (8, 8, 8, 8), (2**63,), ("x",)]),
            "version": drawn.choice([3, 2, -1, "3", None]),
        }
        name = drawn.choice(list(changes))
        # Memory is described by all of them together: a shape that is larger than the memory would be a lie.
        return Interface(np.zeros(4, np.int64) if name != "typestr" else np.zeros(64, np.int64)[:2], **{name: changes[name]})
    return drawn.choice([None, 3, "ids", [0, 1], object(), made.tolist(), b"12345678", range(3), Dlpack(None), Dlpack(7, (1, 0))])


def plain(thing):
    """What NumPy sees, where it sees anything."""
    if isinstance(thing, Dlpack):
        return np.from_dlpack(thing)
    return np.asarray(thing.kept if isinstance(thing, Cuda) else thing)


# Calls ################################################################################################################


def take_rows(drawn):
    table, at = lent(drawn, array(drawn, shape=(ROWS, drawn.choice([0, 1, 3, 16])) if drawn.random() < 0.8 else None)), ids(drawn)
    found = np.asarray(headwater.take_rows(table, at))
    if isinstance(table, (np.ndarray, Interface)) and isinstance(at, (np.ndarray, Interface)):
        same(found, plain(table)[plain(at).astype(np.int64)])


def take_rows_plainly(drawn):
    """What is well said is never refused."""
    table, at = array(drawn, drawn.choice(["<f4", "<i8", "u1"]), (ROWS, 3), True), array(drawn, "<i8", (5,), True)
    same(np.asarray(headwater.take_rows(table, at)), table[at])


def from_coo(drawn):
    count = drawn.choice([5, 20, 0])
    ends = [array(drawn, drawn.choice(["<i8", "<i4"]), (count,)) for _ in range(2)]
    given = [lent(drawn, end) if drawn.random() < 0.3 else end for end in ends]
    counts = [drawn.choice(NUMBERS) if drawn.random() < 0.2 else ROWS for _ in range(2)]
    more = {}
    for name in ("edge_ids", "weights", "times", "node_times"):
        if drawn.random() < 0.2:
            more[name] = lent(drawn, array(drawn, shape=(drawn.choice([count, ROWS, 3]),)))
    lists = headwater.Topology.from_coo(*given, *counts, drawn.choice(["csc", "csr", "coo", ""]), **more)
    offsets, neighbours = np.asarray(lists.offsets()), np.asarray(lists.neighbours())
    if not (offsets[0] == 0 and offsets[-1] == len(neighbours) == lists.edges and (np.diff(offsets) >= 0).all()):
        raise Wrong("offsets are none")
    return lists


def from_lists(drawn):
    offsets = np.sort(array(drawn, "<i8", (ROWS + 1,), True)) * 2
    offsets[0] = drawn.choice([0, 0, 0, 1, -1])
    neighbours = array(drawn, drawn.choice(["<i8", "<i4"]), (max(0, int(offsets[-1]) + drawn.choice([0, 0, 0, 1, -1])),))
    if drawn.random() < 0.2 and len(neighbours):
        neighbours = neighbours.copy()
        neighbours[0] = drawn.choice([-1, ROWS, 2**31 - 1])
    given = [lent(drawn, one) if drawn.random() < 0.2 else one for one in (offsets, neighbours)]
    columns = drawn.choice(NUMBERS) if drawn.random() < 0.1 else ROWS
    lists = headwater.Topology.from_lists(*given, columns, drawn.choice(["csc", "csr"]), is_sorted=drawn.random() < 0.2)
    np.asarray(lists.edge_ids())
    return lists


def graph(drawn):
    lists = drawn.choice([from_coo, from_lists])(drawn)
    names = [("n", drawn.choice([ROWS, ROWS, ROWS, 3, -1, 2**63])), ("m", 2)][: drawn.choice([1, 1, 2])]
    return headwater.Graph(names, [(drawn.choice([0, 0, 0, 1, 7, -1]), drawn.choice(["to", ""]), 0, lists)])


def sample(drawn):
    edges = array(drawn, "<i8", (2, 40), True)
    made = headwater.Graph([("n", ROWS)], [(0, "to", 0, headwater.Topology.from_coo(edges[0], edges[1], ROWS, ROWS))])
    fanouts = [[drawn.choice([1, 2, 5, -1, 0, -2, 2**31, 2**63 - 1, 3.0]) for _ in range(drawn.choice([1, 1, 2, 0]))]]
    options = {name: True for name in ("replace", "disjoint", "weighted", "last") if drawn.random() < 0.15}
    sampler = headwater.Sampler(made, fanouts, **options)
    seeds = [(drawn.choice([0, 0, 0, 1, -1]), ids(drawn), drawn.choice([None, None, None, ids(drawn)]))]
    numbers = tuple(drawn.choice([0, 1, 2**63, 2**64 - 1, -1, 2**64]) if drawn.random() < 0.2 else 3 for _ in range(3))
    found = (sampler.sample if drawn.random() < 0.8 else sampler.sample_induced)(seeds, numbers)
    nodes, drawn_edges = np.asarray(found.nodes(0)), np.asarray(found.edges(0))
    real = set(map(tuple, edges.T.tolist()))
    if not all((nodes[one], nodes[other]) in real for one, other in drawn_edges.T):
        raise Wrong("an edge was drawn that the graph does not have")
    for accessor in (found.nodes, found.edges, found.nodes_per_hop, found.edges_per_hop, found.trees, found.edge_ids):
        accessor(drawn.choice([0, 0, 1, 99, -1, 2**64]))


def export(drawn):
    """Our own arrays, lent to somebody who wishes for anything."""
    found = headwater.take_rows(np.arange(ROWS * 2, dtype="<f4").reshape(ROWS, 2), np.arange(3))
    wishes = {
        "stream": drawn.choice([None, 0, 1, -1, 2**64, "x"]),
        "max_version": drawn.choice([None, (1, 0), (0, 8), (9, 9), (), (1,), 3, (-1, 0), (2**40, 0)]),
        "dl_device": drawn.choice([None, (1, 0), (2, 0), (1,), (2**40, 0), "cpu"]),
        "copy": drawn.choice([None, True, False, 3]),
        "other": 1,
    }
    capsules = [found.__dlpack__(**{name: wishes[name] for name in wishes if drawn.random() < 0.3}) for _ in range(2)]
    del capsules
    same(np.asarray(found), np.from_dlpack(found))


def scores(drawn):
    lists = headwater.Topology.from_coo(*array(drawn, "<i8", (2, 40), True), ROWS, ROWS)
    made = headwater.Graph([("n", ROWS)], [(0, "to", 0, lists)])
    kinds = ["out-degree", "in-degree", "pagerank", "weighted-pagerank", "expected", "presampled", "none", 3]
    wished = {"train": drawn.choice([None, ids(drawn)]), "batch": drawn.choice(NUMBERS), "fanouts": drawn.choice([None, [3], [[2]], "x"])}
    headwater.scores(made, drawn.choice(kinds), **{name: wished[name] for name in wished if drawn.random() < 0.5})


CALLS = [take_rows, take_rows, take_rows_plainly, from_coo, from_lists, graph, sample, sample, export, scores]


def loader(drawn):
    """A PyG loader with arguments of any kind: batches of edges that are there, or an exception."""
    import torch
    from headwater.pyg import LinkNeighborLoader, NeighborLoader
    from torch_geometric.data import Data

    edges = torch.from_numpy(array(drawn, "<i8", (2, 40), True))
    weight = torch.tensor([drawn.choice([1.0, 0.0, 2.5]) for _ in range(40)])
    if drawn.random() < 0.1:
        weight[3] = drawn.choice([-1.0, float("nan"), float("inf")])
    data = Data(x=torch.arange(ROWS * 2.0).view(ROWS, 2), edge_index=edges, w=weight, time=torch.arange(ROWS))
    choices = {
        "num_neighbors": [[2, 2], [2], [-1], [], [0], [-3], 3, None, [2**40], [1.5], "x"],
        "batch_size": [1, 2, 4, 100, 0, -1, 2**40, 1.5, "x"],
        "shuffle": [True, False, 3],
        "seed": [0, 7, -1, 2**64, None, "x"],
        "num_workers": [0, 1, 2, -1, 1.5],
        "replace": [True, False],
        "disjoint": [True, False],
        "subgraph_type": ["directional", "bidirectional", "induced", "x", None],
        "weight_attr": ["w", "none", 3],
        "drop_last": [True, False],
        "prefetch_factor": [1, 0, -1, 2**20],
        "persistent_workers": [True, False],
    }
    wished = {name: drawn.choice(choices[name]) for name in choices if drawn.random() < 0.3}
    wished = {"num_neighbors": [2, 2], "batch_size": 4, **wished}
    if drawn.random() < 0.7:
        inputs = [None, torch.arange(4), torch.tensor([ROWS]), torch.tensor([-1]), torch.ones(ROWS, dtype=torch.bool), 3, "x"]
        made = NeighborLoader(data, input_nodes=drawn.choice(inputs), **wished)
    else:
        inputs = [edges, edges[:, :5], torch.full((2, 2), ROWS), torch.zeros(3, 2, dtype=torch.long), None, "x"]
        more = {"neg_sampling_ratio": drawn.choice([1.0, 0.0, -1.0, 1e30])} if drawn.random() < 0.3 else {}
        made = LinkNeighborLoader(data, edge_label_index=drawn.choice(inputs), **wished, **more)
    real = set(map(tuple, edges.T.tolist()))
    if wished.get("subgraph_type") == "bidirectional":
        real |= {(target, source) for source, target in real}
    for batch in made:
        for edge in batch.n_id[batch.edge_index].T.tolist():
            if tuple(edge) not in real:
                raise Wrong(f"edge {edge} is in a batch and not in the graph")
        same(batch.x.numpy(), data.x[batch.n_id].numpy())
        made.load_state_dict({**made.state_dict(), **({"batch": drawn.choice([0, -1, 2**70])} if drawn.random() < 0.2 else {})})
        break


def same(found, want):
    if found.dtype != want.dtype or found.shape != want.shape or found.tobytes() != np.ascontiguousarray(want).tobytes():
        raise Wrong(f"{found!r:.200} found, {want!r:.200} wanted")


def run(seed, number, calls):
    """One case. Whether it came to an end without an exception."""
    drawn = random.Random(f"{seed}/{number}")
    call = drawn.choice(calls)
    try:
        call(drawn)
    except Wrong as why:
        return call, why
    except Exception as why:  # noqa: BLE001
        # A panic of the core can be caught too, and is a fault all the same.
        is_panic = type(why).__name__ == "PanicException" or "panicked" in str(why)
        return call, why if is_panic or isinstance(why, BROKEN) or call is take_rows_plainly else False
    except BaseException as why:  # noqa: BLE001
        return call, why
    return call, True


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("seed", 1), ("first", 0), ("cases", 500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--loaders", action="store_true")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    faulthandler.enable()
    # A call that hangs is as bad as one that crashes.
    calls, ends, given, raised = CALLS + [loader] * 6 if asked.loaders else CALLS, time.monotonic() + asked.seconds, 0, 0
    if asked.loaders:
        import headwater.pyg  # noqa: F401
    for number in range(asked.first, asked.first + asked.cases):
        if time.monotonic() > ends:
            break
        print(f"case {number}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(60, exit=True)
        call, came = run(asked.seed, number, calls)
        if isinstance(came, BaseException):
            print(f"case {number} of seed {asked.seed}, {call.__name__}: {type(came).__name__}: {came}")
            return 1
        given, raised = given + came, raised + (not came)
    print(f"{given + raised} calls: {given} gave a result, {raised} raised")
    return 0


if __name__ == "__main__":
    sys.exit(main())
