"""What a GPU draws and gathers: the same as the CPU, wherever rows lie."""

import ctypes
import multiprocessing
import os
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import headwater  # noqa: E402
from conftest import IS_HELD  # noqa: E402
from headwater import gpu as torch_gpu  # noqa: E402
from headwater.pyg import FeatureStore, GraphStore, LinkNeighborLoader, NeighborLoader, NeighborSampler  # noqa: E402
from headwater.pyg.tables import Tables, budget_bytes, hot_counts  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.sampler import NegativeSampling  # noqa: E402
from torch_geometric.testing import MyFeatureStore  # noqa: E402


def random(high, shape, seed=12):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def data():
    return Data(
        x=torch.randn(60, 12),
        y=torch.arange(60),
        mask=random(2, (60,)).bool(),
        edge_index=random(60, (2, 500)),
        edge_attr=torch.arange(500),
        weight=torch.rand(500),
        time=random(50, (60,)),
        whole=torch.arange(7),
    )


@pytest.fixture
def hetero():
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.randn(100, 5), torch.randn(50, 3)
    data["paper", "cites", "paper"].edge_index = random(100, (2, 500))
    writes = torch.stack([random(50, (400,)), random(100, (400,), 13)])
    data["author", "writes", "paper"].edge_index = writes
    data["paper", "of", "author"].edge_index = writes.flip(0)
    data["paper", "of", "author"].edge_attr = torch.arange(400)
    return data


def assert_same(one, other):
    """Everything that one batch has, the other has; tensors to the bit."""
    one, other = one.to_dict(), other.to_dict()

    def walk(path, a, b):
        if isinstance(a, dict):
            assert a.keys() == b.keys(), path
            for key in a:
                walk(f"{path}.{key}", a[key], b[key])
        elif isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and torch.equal(a, b.cpu()), path
        else:
            assert a == b, path

    walk("batch", one, other)


def compare(loader, source, gpu, arguments, features=None, **wished):
    on_cpu = loader(source, **arguments, seed=5)
    on_gpu = loader(source, **arguments, seed=5, device=gpu, features=features, **wished)
    assert len(on_cpu) == len(on_gpu)
    batches = list(zip(on_cpu, on_gpu))
    assert batches
    for one, other in batches:
        assert_same(one, other)
        for store in other.stores:
            device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
            assert all(value.device == device for value in store.values() if isinstance(value, torch.Tensor))
    return on_gpu


@pytest.mark.parametrize("features, budget", [(None, None), ("tiered", 0.3), ("zero-copy", None), ("all-gpu", None)])
def test_batches_are_those_of_the_cpu(gpu, data, features, budget):
    arguments = dict(num_neighbors=[5, 3], batch_size=20, shuffle=True, num_workers=3)
    compare(NeighborLoader, data, gpu, arguments, features, budget=budget)


@pytest.mark.parametrize(
    "wished",
    [
        dict(replace=True),
        dict(disjoint=True),
        dict(subgraph_type="induced"),
        dict(subgraph_type="bidirectional"),
        dict(weight_attr="weight"),
        dict(time_attr="time", temporal_strategy="last"),
        dict(filter_per_worker=False),
        dict(transform_sampler_output=lambda out: out),
    ],
    ids=lambda wished: " ".join(wished),
)
def test_ways_of_drawing_are_those_of_the_cpu(gpu, data, wished):
    compare(NeighborLoader, data, gpu, dict(num_neighbors=[4, -1], batch_size=64, **wished))


def test_types_are_those_of_the_cpu(gpu, hetero):
    arguments = dict(num_neighbors=[4, 3], input_nodes=("paper", torch.arange(40)), batch_size=20)
    for features, budget in ((None, None), ("tiered", "1KB"), ("zero-copy", None)):
        compare(NeighborLoader, hetero, gpu, arguments, features, budget=budget)


@pytest.mark.parametrize("negative", [None, "binary", NegativeSampling("triplet", 2)], ids=str)
def test_links_are_those_of_the_cpu(gpu, data, hetero, negative):
    arguments = dict(num_neighbors=[4, 3], batch_size=100, neg_sampling=negative)
    compare(LinkNeighborLoader, data, gpu, dict(edge_label_index=data.edge_index[:, :150], **arguments), "tiered")
    kind = ("author", "writes", "paper")
    compare(LinkNeighborLoader, hetero, gpu, dict(edge_label_index=(kind, hetero[kind].edge_index[:, :90]), **arguments))


@pytest.mark.parametrize("kind", [FeatureStore, MyFeatureStore])
def test_stores_are_read_by_the_gpu(gpu, hetero, kind):
    features, graph = kind(), GraphStore()
    for name in ("paper", "author"):
        features.put_tensor(hetero[name].x, group_name=name, attr_name="x", index=None)
    for name in hetero.edge_types:
        sizes = tuple(hetero[end].num_nodes for end in (name[0], name[-1]))
        graph.put_edge_index(hetero[name].edge_index, edge_type=name, layout="coo", size=sizes)
    arguments = dict(num_neighbors=[4, 3], input_nodes=("paper", torch.arange(40)), batch_size=20)
    compare(NeighborLoader, (features, graph), gpu, arguments, "tiered", budget=0.5)


def test_rows_that_are_put_anew_are_seen(gpu, hetero):
    features, graph = FeatureStore(), GraphStore()
    features.put_tensor(hetero["paper"].x, group_name="paper", attr_name="x", index=None)
    cites = ("paper", "cites", "paper")
    graph.put_edge_index(hetero[cites].edge_index, edge_type=cites, layout="coo", size=(100, 100))
    loader = NeighborLoader((features, graph), [3], input_nodes="paper", batch_size=50, device=gpu, features="all-gpu")
    next(iter(loader))
    features.put_tensor(torch.full((2, 5), 9.0), group_name="paper", attr_name="x", index=torch.tensor([4, 7]))
    batch = next(iter(loader))
    found = batch["paper"].x[torch.isin(batch["paper"].n_id.cpu(), torch.tensor([4, 7]))]
    assert found.shape == (2, 5) and found.eq(9).all() and len(loader.tables._tables) == 1


def test_hot_rows_are_those_that_are_read_most(gpu):
    # Everybody's neighbour is one of the last ten nodes.
    edges = torch.stack([190 + random(10, (4000,)), random(200, (4000,), 7)])
    data = Data(x=torch.randn(200, 4), edge_index=edges)
    loader = NeighborLoader(data, [8, 8], batch_size=20, device=gpu, features="tiered", budget=10 / 200)
    for _ in loader:
        pass
    served = loader.tables.served
    assert served["gpu_rows"] > 0.3 * served["host_rows"] > 0
    again = NeighborLoader(data, [8, 8], batch_size=50, device=gpu, features="tiered", budget=10 / 200)
    assert again.tables is loader.tables


def test_loaders_are_sent_and_dropped_and_resumed(gpu, data):
    arguments = dict(num_neighbors=[3], batch_size=20, shuffle=True, seed=3, device=gpu, features="tiered", budget=0.2)
    loader = NeighborLoader(data, **arguments)
    sent = pickle.loads(pickle.dumps(loader))
    for one, other in zip(loader, sent):
        assert_same(one.cpu(), other)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = list(batches)
    resumed = NeighborLoader(data, **arguments)
    resumed.load_state_dict(state)
    for one, other in zip(rest, list(resumed), strict=True):
        assert_same(one.cpu(), other)
    half = iter(loader)
    next(half)
    del half, loader


def test_features_that_learn_have_gradients(gpu, data):
    data.x.requires_grad_()
    batch = next(iter(NeighborLoader(data, [3], batch_size=20, device=gpu)))
    batch.x.sum().backward()
    assert torch.equal(data.x.grad[:, 0], torch.bincount(batch.n_id.cpu(), minlength=60).float())


def test_signs_that_torch_has_yet_to_write_are_kept(gpu, data):
    rows = torch.randn(60, 3)
    data.negated, data.conjugated = torch._neg_view(rows), torch.complex(rows, rows).conj()
    data.small = torch.arange(60).to(torch.float8_e4m3fn)
    batch = next(iter(NeighborLoader(data, [3], batch_size=20, device=gpu)))
    ids = batch.n_id.cpu()
    assert torch.equal(batch.negated.cpu(), -rows[ids])
    assert torch.equal(batch.conjugated.cpu().resolve_conj(), torch.complex(rows, -rows)[ids])
    assert batch.small.dtype == data.small.dtype and torch.equal(batch.small.cpu().float(), data.small.float()[ids])


def test_streams_are_given_back_and_used_again(gpu, data):
    if not torch.cuda.is_available():
        pytest.skip("the emulator has one stream")

    idle = torch_gpu._idle.setdefault(torch.cuda.current_device(), [])
    before = len(idle)
    for _ in range(5):
        both = [iter(NeighborLoader(data, [3], batch_size=10, device=gpu, num_workers=threads)) for threads in (0, 4)]
        for batches in both:
            next(batches)
        for batches in both:
            batches.close()
    assert 1 <= len(idle) <= max(before, 3 + 4)


def test_an_error_in_a_transform_is_the_users(gpu, data):
    def fails(batch):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        next(iter(NeighborLoader(data, [3], batch_size=20, device=gpu, transform=fails)))


@pytest.mark.parametrize(
    "wished, words",
    [
        (dict(device="cuda", features="everywhere"), "'everywhere'; it should be one of 'auto'"),
        (dict(device="cuda", features="all-gpu", budget=10), "budget is for features='tiered'"),
        (dict(device="cuda", features="tiered", budget="many"), "budget is 'many'"),
        (dict(device="cuda", features="tiered", budget=-1), "budget is -1"),
        (dict(device="meta"), "it should be 'cpu' or 'cuda'"),
        (dict(features="tiered"), "give device='cuda' too"),
        (dict(budget=3), "give device='cuda' too"),
    ],
)
def test_what_cannot_be_honoured_is_refused_at_once(gpu, data, wished, words):
    with pytest.raises(ValueError, match=words):
        NeighborLoader(data, [3], batch_size=20, **wished)


def test_a_sampler_of_the_cpu_is_refused(gpu, data):
    with pytest.raises(ValueError, match="draws on the CPU"):
        NeighborLoader(data, [3], neighbor_sampler=NeighborSampler(data, [3]), device=gpu)
    own = NeighborSampler(data, [3], device=gpu, seed=1)
    assert next(iter(NeighborLoader(data, [3], neighbor_sampler=own, device=gpu))).num_nodes > 0


def test_no_gpu_is_said(data):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="leave `device` out to use the CPU"):
        NeighborLoader(data, [3], device="cuda")


# Tables ###############################################################################################################


def on(gpu, tensor):
    """A tensor where a GPU has it. The emulator's has it in memory of its own where it holds work back."""
    if torch.cuda.is_available():
        return tensor.to(gpu)
    return torch_gpu.Place(None).bring(tensor) if IS_HELD else tensor


@pytest.mark.parametrize("hot", [0, 3, 40])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64, torch.uint8], ids=str
)
def test_rows_come_out_as_they_are(gpu, dtype, hot):
    place = torch_gpu.place_of(gpu)
    for shape in ((40,), (40, 3), (40, 5, 2), (40, 129)):
        rows = random(100, shape).to(dtype)
        reads = random(50, (40,), 3)
        table = headwater.Table(rows, 0, hot, reads=reads)
        assert (table.shape, table.hot_rows) == (shape, hot)
        for ids in (random(40, (77,)), torch.arange(40).int(), torch.empty(0, dtype=torch.long)):
            assert torch.equal(torch_gpu.gather(table, on(gpu, ids), dtype, place).cpu(), rows[ids])


def test_bad_ids_are_index_errors(gpu):
    place = torch_gpu.place_of(gpu)
    table = headwater.Table(torch.randn(10, 4), 0, 5)
    for bad in (10, -1):
        with pytest.raises(IndexError, match=str(bad)):
            torch_gpu.gather(table, on(gpu, torch.tensor([1, bad, 3])), torch.float32, place)
            headwater.synchronize(0, place.stream())
    good = torch_gpu.gather(table, on(gpu, torch.tensor([1])), torch.float32, place)
    assert good.shape == (1, 4)
    headwater.synchronize(0, place.stream())


def test_bad_tensors_are_named(gpu):
    table = headwater.Table(torch.randn(10, 4), 0, 5)
    ids, out = on(gpu, torch.tensor([1, 2])), on(gpu, torch.empty(2, 4))
    with pytest.raises(ValueError, match="ids has elements of F32"):
        table.gather_into(on(gpu, torch.ones(2)), out, 0)
    with pytest.raises(ValueError, match=r"out is \[2, 3\] of F32; it should be \[2, 4\]"):
        table.gather_into(ids, on(gpu, torch.empty(2, 3)), 0)
    with pytest.raises(ValueError, match="out is not contiguous"):
        table.gather_into(ids, on(gpu, torch.empty(4, 2)).t(), 0)
    with pytest.raises(ValueError, match="rows is not contiguous"):
        headwater.Table(torch.randn(4, 10).t(), 0)
    with pytest.raises(TypeError, match="rows is a"):
        headwater.Table([1, 2], 0)
    with pytest.raises(RuntimeError, match="there is no GPU 77"):
        headwater.Table(torch.randn(4, 2), 77)
    if torch.cuda.is_available():
        with pytest.raises(ValueError, match="ids lies with the CPU; it should lie with cuda:0"):
            table.gather_into(ids.cpu(), out, 0)
        with pytest.raises(ValueError, match="rows lies on a device"):
            headwater.Table(out, 0)


def test_rows_outlive_whoever_made_them(gpu):
    place = torch_gpu.place_of(gpu)
    table = headwater.Table(torch.full((1000, 64), 3.0), 0, 10)
    torch.randn(1000, 64)
    assert torch_gpu.gather(table, on(gpu, torch.arange(1000)), torch.float32, place).eq(3).all()


@pytest.mark.parametrize("wrong", [12345, -1, 1 << 64, 3.5, "0", None, object()], ids=lambda wrong: type(wrong).__name__)
def test_what_is_no_stream_is_refused_before_the_driver_sees_it(gpu, wrong):
    table = headwater.Table(torch.randn(10, 4), 0, 5)
    ids, out = on(gpu, torch.tensor([1, 2])), on(gpu, torch.empty(2, 4))
    for call in (lambda: headwater.synchronize(0, wrong), lambda: table.gather_into(ids, out, wrong)):
        with pytest.raises(ValueError, match="stream is .*; it should be 0 for the default stream, or an object"):
            call()


class Theirs:
    """A stream of another library, which it destroys when it likes."""

    def __init__(self):
        self.driver = ctypes.CDLL(os.environ.get("HEADWATER_LIBCUDA", "libcuda.so.1"))
        self.handle = ctypes.c_void_p()
        context = ctypes.c_void_p()
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self.driver.cuCtxSetCurrent(context) == 0
        assert self.driver.cuStreamCreateWithPriority(ctypes.byref(self.handle), 1, 0) == 0

    def __cuda_stream__(self):
        return 0, self.handle.value

    def destroy(self):
        assert self.driver.cuStreamSynchronize(self.handle) == 0
        assert self.driver.cuStreamDestroy_v2(self.handle) == 0


def test_a_stream_of_others_may_go_after_the_call(gpu):
    rows = torch.randn(100, 4)
    for _ in range(3):
        theirs, table = Theirs(), headwater.Table(rows, 0, 5)
        ids, out = on(gpu, torch.arange(100)), on(gpu, torch.empty(100, 4))
        torch.cuda.is_available() and torch.cuda.synchronize()
        table.gather_into(ids, out, theirs)
        theirs.destroy()
        assert torch.equal(out.cpu(), rows)
        # Memory that the stream worked on goes now, and asks nobody about the stream.
        del table
        headwater.synchronize(0, 0)
    with pytest.raises(IndexError, match="100"):
        theirs, table = Theirs(), headwater.Table(rows, 0, 5)
        table.gather_into(on(gpu, torch.tensor([100])), on(gpu, torch.empty(1, 4)), theirs)
        headwater.synchronize(0, theirs)


def _in_a_fork(answers):
    try:
        headwater.gpu_memory(0)
        answers.put("no error")
    except RuntimeError as why:
        answers.put(str(why))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nobody forks here")
def test_a_fork_is_told(gpu):
    headwater.gpu_memory(0)
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    child = fork.Process(target=_in_a_fork, args=(answers,))
    child.start()
    assert "start processes with the 'spawn' method" in answers.get(timeout=30)
    child.join(30)


# What is decided from numbers #########################################################################################


def test_budgets():
    for budget, wanted in [(None, 50), (0.25, 25), (1.0, 100), (1, 1), ("3 B", 3), ("1.5KiB", 1536), ("2kb", 2000)]:
        assert budget_bytes(budget, 100, 100) == wanted
    assert budget_bytes(None, 100, 1000) == 100


def test_a_budget_goes_to_the_rows_that_are_worth_most():
    reads = {"a": torch.tensor([9, 1, 8]), "b": torch.tensor([5, 30])}
    assert hot_counts(reads, {"a": 1, "b": 10}, 12) == {"a": 2, "b": 1}
    assert hot_counts(reads, {"a": 1, "b": 10}, 0) == {"a": 0, "b": 0}
    assert hot_counts({"a": reads["a"]}, {"a": 4}, 9) == {"a": 2}


# Streams ##############################################################################################################


def shapes_of_batches():
    """Functions that put the rows of a batch somewhere else in what a loader yields, with one that finds them again."""

    def in_a_list(batch):
        batch.xs = [batch.x]
        del batch.x
        return batch

    def in_a_matrix(batch):
        count = batch.x.size(0) * batch.x.size(1)
        begins = torch.tensor([0, count], device=batch.x.device)
        columns = torch.arange(count, device=batch.x.device)
        batch.matrix = torch.sparse_csr_tensor(begins, columns, batch.x.view(-1), size=(1, count))
        del batch.x
        return batch

    return {
        "plain": (None, lambda batch: batch.x),
        "list": (in_a_list, lambda batch: batch.xs[0]),
        "tuple": (lambda batch: (batch.n_id, batch.x), lambda batch: batch[1]),
        "dict": (lambda batch: {"n_id": batch.n_id, "x": batch.x}, lambda batch: batch["x"]),
        "matrix": (in_a_matrix, lambda batch: batch.matrix.values()),
    }


def ids_of(batch):
    return batch[0] if isinstance(batch, tuple) else batch["n_id"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shape", shapes_of_batches())
def test_every_tensor_of_a_batch_is_recorded_and_waited_for(gpu, data, monkeypatch, shape, workers):
    from test_handed import reachable

    marks, met, place = [], [], torch_gpu.Place
    own_mark, own_meet = place.mark, place.meet

    def mark(self):
        marks.append((threading.get_ident(), own_mark(self)))
        return marks[-1]

    def meet(self, mark, tensors):
        met.append((threading.get_ident(), mark, [tensor.data_ptr() for tensor in tensors]))
        own_meet(self, mark[1], tensors)

    monkeypatch.setattr(place, "mark", mark)
    monkeypatch.setattr(place, "meet", meet)
    data.pieces = [torch.arange(3), {"a": torch.arange(4)}]
    transform, rows = shapes_of_batches()[shape]
    loader = NeighborLoader(data, [4, 3], batch_size=20, device=gpu, transform=transform, num_workers=workers, seed=1)
    for batch in loader:
        here = threading.get_ident()
        known = {pointer for thread, _, pointers in met if thread == here for pointer in pointers}
        if workers > 0:
            # The last thing that this thread met is the batch, by a mark that another thread made behind it.
            thread, event, pointers = [own for own in met if own[0] == here][-1]
            whole = {own.data_ptr() for own in reachable(batch) if own.layout == torch.strided}
            assert event[0] != here and whole <= set(pointers)
        # Without workers, what a transform makes is of this thread's stream already.
        assert rows(batch).data_ptr() in known
        assert torch.equal(rows(batch).cpu().view(-1), data.x[ids_of(batch).cpu()].view(-1))
    # Threads begin behind what this one has queued.
    assert all(any(event[0] == here for at, event, _ in met if at == thread) for thread, _ in marks if thread != here)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shape", shapes_of_batches())
def test_memory_of_a_dropped_batch_is_not_overwritten_while_it_is_read(gpu, shape, workers):
    if not torch.cuda.is_available():
        pytest.skip("the emulator runs streams in order")
    data = Data(x=torch.randn(4000, 256), edge_index=random(4000, (2, 60000)))
    transform, rows = shapes_of_batches()[shape]
    loader = NeighborLoader(data, [8, 8], batch_size=100, device=gpu, transform=transform, num_workers=workers)
    copies = []
    for batch in loader:
        torch.cuda._sleep(10**7)
        copies.append((ids_of(batch).clone(), rows(batch).clone()))
        del batch
    torch.cuda.synchronize()
    for ids, copy in copies:
        assert torch.equal(copy.cpu().view(-1), data.x[ids.cpu()].view(-1))


def test_what_belongs_to_the_whole_graph_is_there_for_every_stream(gpu):
    if not torch.cuda.is_available():
        pytest.skip("the emulator runs streams in order")
    value = torch.arange(1 << 26).pin_memory()
    tables = Tables(torch_gpu.place_of(gpu))
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(one):
        torch.cuda._sleep(10**8)
        tables.whole(value)
    with torch.cuda.stream(other):
        found = tables.whole(value).clone()
    torch.cuda.synchronize()
    assert torch.equal(found.cpu(), value)


def test_threads_wait_for_features_that_are_being_computed(gpu):
    if not torch.cuda.is_available():
        pytest.skip("the emulator runs streams in order")
    data = Data(x=torch.zeros(4000, 256, device=gpu), edge_index=random(4000, (2, 60000)))
    loader = NeighborLoader(data, [8], batch_size=500, device=gpu)
    torch.cuda._sleep(10**8)
    data.x.add_(1)
    assert all([bool((batch.x == 1).all()) for batch in loader])


def test_what_is_brought_waits_for_nothing_and_changes_no_more(gpu):
    if not torch.cuda.is_available():
        pytest.skip("the emulator runs streams in order")
    place = torch_gpu.place_of(gpu)
    plain, pinned = torch.ones(100_000), torch.ones(100_000).pin_memory()
    torch.cuda._sleep(10**9)
    slept = torch.cuda.current_stream().record_event()
    found = place.bring(plain)
    plain.zero_()
    assert not slept.query()
    found_pinned = place.bring(pinned)
    pinned.zero_()
    assert found.min().item() == 1 and found_pinned.min().item() == 1


def test_pinned_features_and_edges_are_read_where_they_lie(gpu):
    if not torch.cuda.is_available():
        pytest.skip("torch pins nothing without a GPU")
    data = Data(x=torch.rand(4000, 256).pin_memory(), edge_index=random(4000, (2, 300_000)).pin_memory())
    for features in ("tiered", "zero-copy", "all-gpu"):
        for batch in NeighborLoader(data, [8], batch_size=500, device=gpu, features=features):
            assert torch.equal(batch.x.cpu(), data.x[batch.n_id.cpu()])
