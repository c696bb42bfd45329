"""Arrays that cross between libraries: read as NumPy reads them, whatever their layout, or refused with a reason."""

import gc
import os
import signal
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

import headwater

ROWS = 7


def packed(values):
    """A field of records without padding, whose step is no multiple of the element."""
    records = np.zeros(values.shape, [("value", values.dtype), ("other", "<i4" if values.itemsize != 4 else "<i2")])
    records["value"] = values
    records["other"] = 77
    return records["value"]


def misaligned(values):
    memory = np.zeros(values.nbytes + 1, np.uint8)[1:]
    memory[:] = np.frombuffer(values.tobytes(), np.uint8)
    return memory.view(values.dtype).reshape(values.shape)


def read_only(values):
    twin = values.copy()
    twin.flags.writeable = False
    return twin


LAYOUTS = {
    "contiguous": lambda values: values.copy(),
    "read-only": read_only,
    "packed records": packed,
    "padded records": lambda values: np.stack([values, values + 1], axis=-1)[..., 0],
    "every other": lambda values: np.repeat(values, 2, axis=0)[::2],
    "backwards": lambda values: values[::-1].copy()[::-1],
    "misaligned": misaligned,
    "swapped bytes": lambda values: values.astype(values.dtype.newbyteorder(">")),
    "columns first": lambda values: np.asfortranarray(values),
    "one row again and again": lambda values: np.broadcast_to(values[:1], values.shape),
    "empty": lambda values: values[:0],
    "empty and apart": lambda values: np.repeat(values, 2, axis=0)[::2][:0],
    "one of many": lambda values: np.repeat(values, 3, axis=0)[2:3],
}
# These are read as they are; of all others a refusal is as good as the right answer.
PLAIN = ("contiguous", "read-only", "empty", "one of many")


class Dlpack:
    """An array that speaks DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **wishes):
        wishes["stream"] = None
        return self.array.__dlpack__(**wishes)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


PROTOCOLS = {"interface": lambda array: array, "dlpack": Dlpack}


def taken(ids):
    return np.asarray(headwater.take_rows(np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3), ids))


def ends(ids):
    lists = headwater.Topology.from_coo(ids, ids, ROWS, ROWS)
    return np.asarray(lists.neighbours())


def sampled(ids):
    none = np.zeros(0, np.int64)
    graph = headwater.Graph([("node", ROWS)], [(0, "to", 0, headwater.Topology.from_coo(none, none, ROWS, ROWS))])
    sample = headwater.Sampler(graph, [[1]]).sample([(0, ids, None)], (0, 0, 0))
    return np.asarray(sample.nodes(0))


ENTRIES = {"take_rows": taken, "from_coo": ends, "sample": sampled}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_ids_are_read_as_numpy_reads_them_or_refused(entry, layout, protocol):
    for dtype in (np.int64, np.int32, np.uint32, np.uint64):
        values = LAYOUTS[layout](np.array([3, 2, 6, 0, 5, 1, 4], dtype))
        want = ENTRIES[entry](np.array(values.tolist(), np.int64))
        try:
            found = ENTRIES[entry](PROTOCOLS[protocol](values))
        except (ValueError, BufferError) as why:
            is_refused_by_numpy = protocol == "dlpack" and isinstance(why, BufferError)
            assert layout not in PLAIN or is_refused_by_numpy, why
        else:
            assert np.array_equal(found, want)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_read_as_numpy_reads_them_or_refused(layout):
    for dtype in (np.float32, np.float64, np.int16, np.uint8, np.complex128):
        table = LAYOUTS[layout](np.arange(ROWS * 3).reshape(ROWS, 3).astype(dtype))
        ids = np.arange(len(table))[::-1].copy()
        try:
            found = np.asarray(headwater.take_rows(table, ids))
        except ValueError:
            assert layout not in PLAIN
        else:
            assert np.array_equal(found, table[ids])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tables_are_read_as_numpy_reads_them_or_refused(gpu, layout):
    torch = pytest.importorskip("torch")
    rows = LAYOUTS[layout](np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 4))
    try:
        table = headwater.Table(rows)
    except ValueError:
        assert layout not in PLAIN or len(rows) == 0
        return
    ids = torch.arange(len(rows), device=gpu if torch.cuda.is_available() else "cpu")
    found = headwater.gpu.gather(table, ids, torch.float32, headwater.gpu.current())
    headwater.synchronize(0, headwater.gpu.current().stream())
    assert np.array_equal(found.cpu().numpy(), np.ascontiguousarray(rows))


@pytest.mark.parametrize(
    "interface, words",
    [
        ({"shape": (4,), "data": (0, False)}, "no memory"),
        ({"shape": (4,), "data": (4096, False), "strides": (8, 8)}, "1 dimensions and 2 strides"),
        ({"shape": (4,), "data": (4097, False)}, "no multiple of 8"),
    ],
)
def test_lenders_that_lend_nothing_are_refused(interface, words):
    lender = type("Lender", (), {"__array_interface__": {"version": 3, "typestr": "<i8", **interface}})()
    with pytest.raises(ValueError, match=words):
        headwater.take_rows(np.zeros((4, 1), np.float32), lender)


def test_unsigned_ids_are_not_negative():
    table = np.zeros((2, 1), np.float32)
    with pytest.raises(IndexError, match=r"ids\[0\] is 2147483653,"):
        headwater.take_rows(table, np.array([2**31 + 5], np.uint32))
    with pytest.raises(IndexError, match=r"ids\[0\] is 9223372036854775813,"):
        headwater.take_rows(table, np.array([2**63 + 5], np.uint64))
    with pytest.raises((ValueError, IndexError), match="2147483653"):
        sampled(np.array([2**31 + 5], np.uint32))


def test_a_copy_is_a_copy():
    torch = pytest.importorskip("torch")
    array = headwater.take_rows(np.arange(4, dtype=np.float32).reshape(2, 2), np.array([1, 0]))
    shared, apart = torch.from_dlpack(array), torch.from_dlpack(array, copy=True)
    shared.zero_()
    assert apart.tolist() == [[2, 3], [0, 1]] and np.asarray(array).sum() == 0
    for wishes, words in [({"dl_device": (2, 0)}, "dl_device is"), ({"max_memory": 1}, "max_memory")]:
        with pytest.raises((BufferError, TypeError), match=words):
            array.__dlpack__(**wishes)


def test_a_copy_of_what_must_not_be_written_is_given():
    torch = pytest.importorskip("torch")
    x = read_only(np.arange(6, dtype=np.float32).reshape(3, 2))
    graph = headwater.Graph([("node", 3)], [(0, "to", 0, headwater.Topology.from_coo(*np.zeros((2, 0), np.int64), 3, 3))])
    from headwater._headwater import RawDataset

    kept = RawDataset.in_memory("x", graph, [(x, None, None, None, [None] * 3)], [(None, None)]).of_nodes(0, "features")
    with pytest.raises(BufferError, match="must not be written"):
        torch.from_dlpack(kept)
    assert torch.from_dlpack(kept, copy=True).tolist() == x.tolist()


# Memory that torch moves ##############################################################################################


def moves():
    pytest.importorskip("torch.multiprocessing")
    return {
        "share_memory_": lambda own: own.share_memory_(),
        "sent": lambda own: ForkingPickler.dumps(own),
        "resize_": lambda own: own.untyped_storage().resize_(0),
    }


@pytest.mark.parametrize("move", ["share_memory_", "sent", "resize_"])
@pytest.mark.parametrize("holder", ["sampler", "graph", "dataset"])
def test_memory_that_torch_moves_is_noticed(holder, move):
    torch = pytest.importorskip("torch")
    offsets, neighbours, x = torch.arange(ROWS + 1), torch.arange(ROWS), torch.ones(ROWS, 2)
    graph = headwater.Graph([("n", ROWS)], [(0, "to", 0, headwater.Topology.from_lists(offsets, neighbours, ROWS))])
    sampler, seeds = headwater.Sampler(graph, [[1]]), [(0, np.arange(2), None)]
    from headwater._headwater import RawDataset

    dataset = RawDataset.in_memory("x", graph, [(x, None, None, None, [None] * 3)], [(None, None)])
    use = {
        "sampler": lambda: sampler.sample(seeds, (0, 0, 0)),
        "graph": lambda: headwater.Sampler(graph, [[1]]),
        "dataset": lambda: dataset.of_nodes(0, "features"),
    }[holder]
    use()
    moves()[move](x if holder == "dataset" else neighbours)
    name = "features" if holder == "dataset" else "neighbours"
    with pytest.raises(RuntimeError, match=f"torch has moved the memory of {name}"):
        use()


def test_memory_that_is_shared_before_stays(gpu):
    torch = pytest.importorskip("torch")
    rows = torch.arange(12.0).view(6, 2).share_memory_()
    table = headwater.Table(rows)
    rows.share_memory_()
    ForkingPickler.dumps(rows)
    place = headwater.gpu.current()
    ids = torch.tensor([5, 0], device=gpu if torch.cuda.is_available() else "cpu")
    assert headwater.gpu.gather(table, ids, torch.float32, place).tolist() == [[10, 11], [0, 1]]


@pytest.mark.parametrize("move", ["share_memory_", "sent", "resize_"])
def test_tables_notice_that_torch_moved_their_rows(gpu, move):
    torch = pytest.importorskip("torch")
    rows = torch.arange(12.0).view(6, 2)
    table, place = headwater.Table(rows), headwater.gpu.current()
    ids = torch.tensor([5, 0], device=gpu if torch.cuda.is_available() else "cpu")
    headwater.gpu.gather(table, ids, torch.float32, place)
    moves()[move](rows)
    for use in (lambda: headwater.gpu.gather(table, ids, torch.float32, place), lambda: table.retier(np.arange(6))):
        with pytest.raises(RuntimeError, match="torch has moved the memory of rows"):
            use()
    # Whoever comes to lie at the same address is registered anew.
    gc.collect()
    again = torch.arange(12.0).view(6, 2) + 1
    assert headwater.gpu.gather(headwater.Table(again), ids, torch.float32, place).tolist() == [[11, 12], [1, 2]]


def test_forked_processes_gather_and_show_tables(gpu):
    """Whatever locks and threads the parent has, its children have none of them."""
    table = headwater.Table(np.ones((1000, 40), np.float32))
    rows, ids = np.ones((1000, 40), np.float32), np.arange(1000)
    headwater.take_rows(rows, ids)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        fine = "0 of them" in repr(table) and np.asarray(headwater.take_rows(rows, ids)).sum() == 40_000
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
