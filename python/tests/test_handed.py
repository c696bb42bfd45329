"""Which tensors a batch has, and what streams are told of them. Streams themselves are in `test_gpu.py`."""

import collections
import dataclasses
import functools
import gc
import types
import weakref

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import numpy as np  # noqa: E402
from headwater.pyg.handed import Handed, tensors_in  # noqa: E402
from headwater.pyg.tables import Tables  # noqa: E402
from torch_geometric import EdgeIndex, Index  # noqa: E402
from torch_geometric.data import Batch, Data, HeteroData  # noqa: E402


def reachable(value):
    """Tensors with memory that the garbage collector reaches: another way than the one that is tested."""
    found, seen, left = [], {}, [value]
    while left:
        one = left.pop()
        is_part = not isinstance(one, (type, types.ModuleType, weakref.ref))
        if id(one) not in seen and is_part:
            seen[id(one)] = one
            if isinstance(one, torch.Tensor) and not isinstance(one, (EdgeIndex, Index)):
                found.append(one)
            left.extend(gc.get_referents(one))
    return found


@dataclasses.dataclass
class Pair:
    one: object
    other: object = None


class Slotted:
    __slots__ = ("__hidden", "one")

    def __init__(self, one, hidden):
        self.one, self.__hidden = one, hidden


class Matrix:
    """As torch-sparse has it."""

    def __init__(self, row, col, value):
        self.storage = types.SimpleNamespace(_row=row, _col=col, _value=value, _rowptr=None)


def made():
    """Values by name, each with a function that makes it of tensors, and how many it takes."""
    named = collections.namedtuple("named", "a b")

    def hetero(a, b):
        data = HeteroData()
        data["n"].x, data["n", "to", "n"]._orig_edge_index = a, b
        return data

    def with_attribute(a, b):
        a.hung = {"on": b}
        return a

    def with_gradient(a, b):
        a = a.requires_grad_()
        a.grad = b[:4]
        return a

    def in_a_ring(a, b):
        ring = [a]
        ring.append((ring, b))
        return ring

    def cached(a, b):
        index = EdgeIndex(torch.tensor([[0, 1, 1], [1, 0, 2]]), sort_order="row")
        index.get_csr(), index.get_csc()
        return [index, Index(torch.tensor([0, 1])), a, b]

    return {
        "plain": lambda a, b: Data(x=a, y=b),
        "hidden": lambda a, b: Data(x=a, _orig_edge_index=b),
        "types": hetero,
        "tuple": lambda a, b: (Data(x=a), b),
        "list in a store": lambda a, b: Data(xs=[a, [b]], count=3, name="n", none=None),
        "dict in a store": lambda a, b: Data(xs={"a": a, 3: {"b": b}}),
        "nested data": lambda a, b: Data(inner=Data(x=a), others=[Data(x=b)]),
        "joined data": lambda a, b: Batch.from_data_list([Data(x=a), Data(x=b)]),
        "matrix": lambda a, b: Data(adj_t=Matrix(a, b, None)),
        "dataclass": lambda a, b: Pair(Pair(a), [Pair(None, b)]),
        "named tuple": lambda a, b: named(a, named(b, 1)),
        "slots": lambda a, b: Slotted(a, b),
        "deque": lambda a, b: collections.deque([a, {1: b}]),
        "ordered": lambda a, b: collections.OrderedDict(a=a, b=collections.ChainMap({}, {"b": b})),
        "objects in numpy": lambda a, b: np.array([a, None, [b]], dtype=object),
        "read only": lambda a, b: types.MappingProxyType({"a": a, "b": b}),
        "function": lambda a, b: (lambda: a, functools.partial(print, b)),
        "sparse": lambda a, b: [torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_csc(), a, b],
        "parameter": lambda a, b: [torch.nn.Parameter(a), b],
        "subclass": cached,
        "attribute": with_attribute,
        "gradient": with_gradient,
        "ring": in_a_ring,
    }


@pytest.mark.parametrize("name", made())
def test_every_tensor_of_a_value_is_found(name):
    a, b = torch.arange(4.0), torch.arange(5.0)
    value = made()[name](a, b)
    found = {own.data_ptr() for own in tensors_in(value)}
    expected = {a.data_ptr(), b.data_ptr()} if name != "joined data" else {value.x.data_ptr(), value.ptr.data_ptr()}
    assert expected <= found
    # Functions reach all that their modules have.
    others = reachable(value) if name != "function" else []
    assert {own.data_ptr() for own in others if own.layout == torch.strided} <= found
    # Whatever is found has memory of its own, which a stream can be told of.
    assert all(own.layout == torch.strided and type(own) in (torch.Tensor, torch.nn.Parameter) for own in tensors_in(value))


def test_sparse_tensors_are_told_by_their_parts():
    for matrix, parts in (
        (torch.eye(3).to_sparse(), ("_indices", "_values")),
        (torch.eye(3).to_sparse_csr(), ("crow_indices", "col_indices", "values")),
        (torch.eye(3).to_sparse_csc(), ("ccol_indices", "row_indices", "values")),
    ):
        found = {own.data_ptr() for own in tensors_in(matrix)}
        assert found == {getattr(matrix, part)().data_ptr() for part in parts}


class Streams:
    """A GPU that writes down what its streams are told. `now` is the current one."""

    device = torch.device("cpu")

    def __init__(self):
        self.now, self.waits, self.records, self.brought = "main", [], [], 0

    def mark(self):
        return f"event of {self.now}"

    def meet(self, mark, tensors):
        self.waits.append((self.now, mark))
        self.records.extend((self.now, own.data_ptr()) for own in tensors)

    def bring(self, value):
        self.brought += 1
        return value.clone()


def test_what_is_taken_is_waited_for_and_recorded():
    streams, value = Streams(), (torch.arange(3), {"x": torch.arange(4)})
    streams.now = "lane"
    handed = Handed(streams, value)
    for other in ("main", "another"):
        streams.now = other
        assert handed.taken() is value
        assert streams.waits[-1] == (other, "event of lane")
        assert {(other, own.data_ptr()) for own in reachable(value)} <= set(streams.records)


@pytest.mark.parametrize("value", [torch.arange(5), [torch.arange(5), {"a": torch.ones(2)}]], ids=["tensor", "list"])
def test_what_belongs_to_the_whole_graph_is_handed_between_streams(value):
    streams = Streams()
    tables = Tables(streams)
    streams.now = "one"
    first = tables.whole(value)
    streams.now = "two"
    second = tables.whole(value)
    assert first is second and streams.brought == len(reachable(value))
    assert ("two", "event of one") in streams.waits
    assert {("two", own.data_ptr()) for own in reachable(second)} <= set(streams.records)
    # What was changed is brought again.
    reachable(value)[0].add_(1)
    assert torch.equal(reachable(tables.whole(value))[0], reachable(value)[0])
    assert tables.whole("name") == "name" and tables.whole(3) == 3


def test_long_lists_without_tensors_are_gone_through_once():
    streams, asked = Streams(), []

    class Names(list):
        def __iter__(self):
            asked.append(len(self))
            return super().__iter__()

    names, tables = Names(["a", "b"]), Tables(streams)
    for _ in range(3):
        assert tables.whole(names) is names
        Handed(streams, Data(names=names, x=torch.arange(2)), tables.without_tensors).taken()
    assert asked == [2]
    # One that has become longer is looked at again.
    names.append(torch.arange(7))
    Handed(streams, Data(names=names), tables.without_tensors).taken()
    assert ("main", names[2].data_ptr()) in streams.records
