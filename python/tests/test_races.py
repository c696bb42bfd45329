"""Races between streams, found by the emulator that holds their work back. The old faults are put back here, and each is found."""

import gc

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from conftest import IS_HELD  # noqa: E402
from headwater import unified  # noqa: E402
from headwater.pyg import NeighborLoader, handed  # noqa: E402
from headwater.pyg.tables import Tables  # noqa: E402
from test_gpu import ids_of, random, shapes_of_batches  # noqa: E402
from torch_geometric.data import Data  # noqa: E402

pytestmark = [pytest.mark.streams, pytest.mark.skipif(not IS_HELD, reason="needs the emulator with HWEMU_ORDER")]

SHAPES = shapes_of_batches()


def read_and_drop(gpu, shape, workers):
    """Batches whose rows are read on the caller's stream, and dropped before anybody waits."""
    data = Data(x=torch.randn(400, 16), edge_index=random(400, (2, 3000)))
    transform, rows = SHAPES[shape]
    loader = NeighborLoader(data, [4, 4], batch_size=40, device=gpu, transform=transform, num_workers=workers, seed=1)
    copies = []
    for batch in loader:
        copies.append((ids_of(batch).clone(), rows(batch).clone()))
        del batch
    gc.collect()
    assert all(torch.equal(found.view(-1), data.x[ids].view(-1)) for ids, found in copies)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_batch_may_be_dropped_while_it_is_read(gpu, shape, workers):
    read_and_drop(gpu, shape, workers)


def direct_tensors(value, without=None):
    """What was recorded once: dense tensors that are values of a batch's stores."""
    stores = getattr(value, "stores", [])
    return [own for store in stores for own in store.values() if isinstance(own, torch.Tensor) and own.layout == torch.strided]


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "plain"])
def test_tensors_that_are_not_recorded_are_found(gpu, shape, monkeypatch):
    import held

    monkeypatch.setattr(handed, "tensors_in", direct_tensors)
    with held.caught("free", "torch's clone"):
        read_and_drop(gpu, shape, 2)


def read_by_two(gpu):
    import held

    tables, value = Tables(held.Held(None)), torch.arange(1000)
    with held.at(held.new_stream()):
        tables.whole(value)
    with held.at(held.new_stream()):
        return torch.equal(tables.whole(value).clone(), value)


def test_what_belongs_to_the_whole_graph_is_there_for_every_stream(gpu):
    assert read_by_two(gpu)


def test_tensors_that_are_handed_on_without_an_event_are_found(gpu, monkeypatch):
    import held

    monkeypatch.setattr(handed.Handed, "taken", lambda self: self._value)
    with held.caught("torch's clone", "8000 bytes of device memory"):
        assert not read_by_two(gpu)


@pytest.fixture
def ids(gpu, monkeypatch):
    """Numbers of rows on the GPU, so that rows stay there."""
    import held
    from headwater import _unified

    kind = _unified._kind
    monkeypatch.setattr(_unified, "_kind", lambda own: kind(own) if held.memory_of(own) is None else "cuda:0")
    return held.Held(None).bring(torch.tensor([5, 0, 7]))


def write_behind_a_read(ids):
    own = unified(torch.ones(9 << 10, 1024))
    rows = own[ids]
    own.host.zero_()
    return rows.sum().item()


def test_the_cpu_writes_behind_queued_reads(ids):
    assert write_behind_a_read(ids) == 3 * 1024


def test_writes_that_wait_for_no_read_are_found(ids, monkeypatch):
    import held
    from headwater import _unified_memory

    monkeypatch.setattr(_unified_memory.Memory, "wait", lambda self: None)
    with held.caught("the host writes", "registered host memory", "kernel"):
        assert write_behind_a_read(ids) == 0
