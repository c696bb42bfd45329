"""Where the code of users runs, in which order, and what loaders say of themselves: as PyG's and torch's loaders do."""

import gc
import pickle
import threading
import time
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import headwater.pyg  # noqa: E402
from headwater.pyg import LinkNeighborLoader, NeighborLoader, NeighborSampler  # noqa: E402
from headwater.pyg.install import _hetero_neighbor_sample  # noqa: E402
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.testing import MyFeatureStore, MyGraphStore  # noqa: E402
from torch_geometric.transforms import ToSparseTensor  # noqa: E402


@pytest.fixture
def data():
    edges = torch.randint(0, 100, (2, 800), generator=torch.Generator().manual_seed(12))
    return Data(x=torch.arange(100.0).view(-1, 1), edge_index=edges, edge_attr=torch.arange(800))


@pytest.fixture
def hetero():
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.arange(100.0), torch.arange(50.0)
    writes = torch.stack([torch.arange(400) % 50, torch.arange(400) % 100])
    data["author", "writes", "paper"].edge_index = writes
    data["paper", "of", "author"].edge_index = writes.flip(0)
    return data


def loaders(data):
    """Both loaders with ten inputs a batch."""
    yield lambda **wished: NeighborLoader(data, [3, 2], input_nodes=torch.arange(60), **{"batch_size": 10, **wished})
    edges = data.edge_index[:, :60]
    yield lambda **wished: LinkNeighborLoader(data, [3], edge_label_index=edges, **{"batch_size": 10, **wished})


# Where the code of users runs #########################################################################################


def test_without_workers_a_transform_runs_here_and_one_batch_at_a_time(data):
    for make in loaders(data):
        ran = []

        def noted(batch):
            modes = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled())
            ran.append((threading.get_ident(), modes, int(batch.input_id[0])))
            return batch

        batches = iter(make(transform=noted))
        next(batches)
        assert len(ran) == 1
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            next(batches)
        with torch.inference_mode():
            next(batches)
        list(batches)
        assert {thread for thread, _, _ in ran} == {threading.get_ident()}
        expected = [(True, False, False), (False, True, False), (False, False, True), *[(True, False, False)] * 3]
        assert [modes for _, modes, _ in ran] == expected
        assert [first for _, _, first in ran] == [0, 10, 20, 30, 40, 50]


def test_drawing_and_gathering_are_ahead_of_a_transform(data, monkeypatch):
    gathered, take_rows = [], headwater.pyg.join.take_rows

    def noted(table, ids):
        gathered.append(threading.get_ident())
        return take_rows(table, ids)

    monkeypatch.setattr(headwater.pyg.join, "take_rows", noted)
    for make in loaders(data):
        gathered.clear()
        list(make(transform=lambda batch: batch))
        assert len(gathered) == 12 and threading.get_ident() not in gathered


@pytest.mark.parametrize("workers", [0, 1])
def test_random_transforms_repeat(data, workers):
    def shaken(batch):
        time.sleep(0.001 * int(torch.randint(3, ())))
        batch.shake = torch.rand(())
        return batch

    def epoch():
        torch.manual_seed(3)
        return [float(batch.shake) for batch in loader]

    loader = NeighborLoader(data, [3], batch_size=10, transform=shaken, seed=1, num_workers=workers)
    first = epoch()
    assert all(epoch() == first for _ in range(3))


def test_what_is_made_of_a_sample_runs_here_too(data):
    for make in loaders(data):
        order = []

        def sampled(out):
            order.append(("sample", threading.get_ident()))
            return out

        def joined(batch):
            order.append(("batch", threading.get_ident()))
            return batch

        plain, noted = make(seed=5), make(seed=5, transform=joined, transform_sampler_output=sampled)
        for one, other in zip(plain, noted, strict=True):
            assert torch.equal(one.n_id, other.n_id) and torch.equal(one.x, other.x)
        assert order == [("sample", threading.get_ident()), ("batch", threading.get_ident())] * 6


def test_samplers_stores_and_loaders_of_users_run_here(data):
    ran = []

    class Sampler(NeighborSampler):
        def sample_from_nodes(self, inputs, **wished):
            ran.append(threading.get_ident())
            return super().sample_from_nodes(inputs, **wished)

    class Loader(NeighborLoader):
        def filter_fn(self, out):
            ran.append(threading.get_ident())
            return super().filter_fn(out)

    class Collating(NeighborLoader):
        def collate_fn(self, index):
            ran.append(threading.get_ident())
            return super().collate_fn(index)

    class Store(MyFeatureStore):
        def _get_tensor(self, attr):
            ran.append(threading.get_ident())
            return super()._get_tensor(attr)

    features, graph = Store(), MyGraphStore()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    graph.put_edge_index(data.edge_index, edge_type=None, layout="coo", size=(100, 100))
    wished = {"num_neighbors": [3], "input_nodes": torch.arange(60), "batch_size": 10}
    for loader in (
        NeighborLoader(data, neighbor_sampler=Sampler(data, [3]), **wished),
        Loader(data, **wished),
        Collating(data, **wished),
        NeighborLoader((features, graph), **wished),
    ):
        ran.clear()
        batches = iter(loader)
        batch = next(batches)
        assert ran and torch.equal(batch.x.view(-1).long(), batch.n_id)
        once = len(ran)
        list(batches)
        assert len(ran) == 6 * once and set(ran) == {threading.get_ident()}


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_are_as_many_threads_and_work_under_the_modes_of_the_caller(data, workers):
    for make in loaders(data):
        began, ran = [], []

        def noted(batch):
            ran.append((threading.get_ident(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
            time.sleep(0.002)
            return batch

        wished = {"transform": noted, "worker_init_fn": began.append, "num_workers": workers}
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            list(make(**wished))
        threads = {thread for thread, _, _ in ran}
        assert len(threads) <= workers and threading.get_ident() not in threads
        assert {tuple(modes) for _, *modes in ran} == {(False, True)}
        assert 1 <= len(began) <= workers and set(began) <= set(range(workers))
        # Threads that stay are begun once.
        began.clear()
        loader = make(**wished, persistent_workers=True)
        for _ in range(3):
            list(loader)
        assert len(began) <= workers
        del loader


def test_worker_init_fn_is_for_workers(data):
    for make in loaders(data):
        began = []
        list(make(worker_init_fn=began.append))
        assert began == []

    def fails(number):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        next(iter(NeighborLoader(data, [2], worker_init_fn=fails, num_workers=2)))


def test_fan_outs_and_masks_are_whole(data):
    with pytest.raises(ValueError, match="num_neighbors has 1.5"):
        NeighborLoader(data, [1.5])
    with pytest.raises(IndexError, match="input_nodes has 10 elements, but there are 100 nodes"):
        NeighborLoader(data, [2], input_nodes=torch.ones(10, dtype=torch.bool))
    half = torch.arange(100) % 2 == 0
    assert NeighborLoader(data, [2], input_nodes=half).input_data.node.numel() == 50


def test_threads_that_stay_end_with_their_loader(data):
    before = set(threading.enumerate())
    loader = NeighborLoader(data, [2], batch_size=10, num_workers=2, persistent_workers=True)
    assert len(list(loader)) == 10 and len(list(pickle.loads(pickle.dumps(loader)))) == 10
    half = iter(loader)
    next(half)
    del half
    assert set(threading.enumerate()) - before
    del loader
    gc.collect()
    assert not set(threading.enumerate()) - before


def test_a_timeout_is_said_in_time(data):
    def slow(batch):
        time.sleep(0.7)
        return batch

    loader = NeighborLoader(data, [2], batch_size=50, transform=slow, num_workers=1, timeout=0.1)
    begun = time.perf_counter()
    with pytest.raises(RuntimeError, match="timed out after 0.1 seconds"):
        next(iter(loader))
    assert time.perf_counter() - begun < 0.6

    def fails(batch):
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        next(iter(NeighborLoader(data, [2], transform=fails, num_workers=1, timeout=30)))


def test_features_that_learn_follow_the_modes_of_the_caller(data):
    data.x.requires_grad_()
    loader = NeighborLoader(data, [2], batch_size=10)
    assert all(batch.x.requires_grad for batch in loader)
    with torch.no_grad():
        assert not any(batch.x.requires_grad for batch in loader)


# Order, and where a loader is #########################################################################################


def test_batch_samplers_of_torch(data):
    for make in loaders(data):
        for order in (SequentialSampler(range(60)), RandomSampler(range(60))):
            loader = make(batch_size=1, batch_sampler=BatchSampler(order, 7, drop_last=True))
            batches = list(loader)
            assert len(batches) == len(loader) == 8 and all(batch.input_id.numel() == 7 for batch in batches)


def test_a_loader_that_was_told_where_it_is_says_the_same(data):
    for make in loaders(data):
        first = make(shuffle=True, seed=3)
        batches = iter(first)
        for _ in range(4):
            next(batches)
        state = first.state_dict()
        again = make(shuffle=True, seed=9)
        again.load_state_dict(state)
        assert again.state_dict() == state == first.state_dict()
        assert torch.equal(next(iter(again)).n_id, next(batches).n_id)
        assert again.state_dict()["batch"] == 5


def test_iterators_at_the_same_time_are_each_somewhere(data):
    loader = NeighborLoader(data, [2], batch_size=10, seed=1)
    first = iter(loader)
    next(first), next(first)
    second = iter(loader)
    next(second)
    next(first)
    # The loader is where the iterator is that was begun last.
    assert loader.state_dict() == {"seed": 1, "epoch": 1, "batch": 1, "batches": 10}
    assert len(list(first)) == 7 and len(list(second)) == 9


@pytest.mark.parametrize(
    "order",
    [
        {"sampler": RandomSampler(range(60))},
        {"sampler": SubsetRandomSampler(range(30))},
        {"batch_sampler": BatchSampler(RandomSampler(range(60)), 7, False), "batch_size": 1},
        {"generator": torch.Generator(), "shuffle": True},
    ],
    ids=lambda order: next(iter(order)),
)
def test_an_order_that_is_another_each_time_cannot_be_gone_on_with(data, order):
    for make in loaders(data):
        loader = make(**order)
        next(iter(loader))
        with pytest.raises(ValueError, match="cannot tell where it is"):
            loader.state_dict()
        with pytest.raises(ValueError, match="cannot tell where it is"):
            loader.load_state_dict({"seed": 1, "epoch": 0, "batch": 1})


def test_an_order_that_is_the_same_each_time_can(data):
    make = next(loaders(data))
    for order in ({"sampler": SequentialSampler(range(60))}, {"sampler": make(shuffle=True).sampler}):
        loader = make(**order, seed=4)
        batches = iter(loader)
        next(batches)
        again = make(**order, seed=4)
        again.load_state_dict(loader.state_dict())
        assert torch.equal(next(iter(again)).n_id, next(batches).n_id)
    # One that shuffles goes on shuffling.
    first, second = (torch.cat([batch.input_id for batch in loader]) for _ in range(2))
    assert not torch.equal(first, second) and torch.equal(first.sort().values, torch.arange(60))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"seed": 1, "epoch": 0, "batch": 2, "batches": 7}, "of 7 batches; this one has 6"),
        ({"seed": 1, "epoch": 0, "batch": 9}, "batch 9 of epoch 0"),
        ({"seed": -1, "epoch": 0, "batch": 0}, "seed is -1"),
    ],
)
def test_a_state_of_another_loader_is_refused(data, state, words):
    with pytest.raises(ValueError, match=words):
        next(loaders(data))().load_state_dict(state)


# What is refused, and when ############################################################################################


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"seed": 2**64}, ValueError, "seed is 18446744073709551616"),
        ({"seed": 1.5}, TypeError, "float"),
        ({"num_neighbors": [2**40]}, ValueError, "a count up to 4294967295"),
        ({"batch_size": None}, ValueError, "batch_size is None"),
        ({"prefetch_factor": -1}, ValueError, "prefetch_factor is -1"),
        ({"persistent_workers": True}, ValueError, "num_workers is 0"),
        ({"timeout": 1}, ValueError, "num_workers is 0"),
        ({"timeout": -1, "num_workers": 1}, ValueError, "timeout"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused_at_once(data, arguments, kind, words):
    for loader in (NeighborLoader, LinkNeighborLoader):
        with pytest.raises(kind, match=words):
            loader(data, **{"num_neighbors": [2], **arguments})
    if "seed" in arguments:
        with pytest.raises(kind, match=words):
            NeighborSampler(data, [2], **arguments)


def test_what_would_change_the_whole_process_is_refused(data):
    loader = NeighborLoader(data, [2], num_workers=2)
    for enable in (loader.enable_cpu_affinity, loader.enable_multithreading):
        with pytest.raises(NotImplementedError, match="threads of this process"), enable():
            pass


def test_memory_that_cannot_be_pinned_is_said(data):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(UserWarning, match="pin_memory is set, but torch finds no GPU"):
        loader = NeighborLoader(data, [2], pin_memory=True, batch_size=50, transform=lambda batch: (batch.x,))
    assert len(list(loader)) == 2


def test_times_without_the_times_of_seeds_are_refused(data, hetero):
    data.when = torch.arange(800)
    hetero["paper"].time = torch.arange(100)
    refused = "have no times.* give them as `input_time`"
    with pytest.raises(ValueError, match=refused):
        NeighborLoader(data, [2], time_attr="when")
    with pytest.raises(ValueError, match=refused):
        NeighborLoader(hetero, [2], input_nodes="author", time_attr="time")
    with pytest.raises(ValueError, match=refused):
        NeighborSampler(data, [2], time_attr="when").sample_from_nodes(
            headwater.pyg.loader.NodeLoader(data, NeighborSampler(data, [2]), torch.arange(3)).input_data
        )
    # With them, nothing is seen of the future.
    loader = NeighborLoader(data, [-1], time_attr="when", input_time=torch.arange(100) * 8, batch_size=10)
    for batch in loader:
        assert (batch.when <= 8 * batch.input_id[batch.batch[batch.edge_index[1]]]).all()
    loader = NeighborLoader(hetero, [-1], input_nodes="author", time_attr="time", input_time=torch.full((50,), 20))
    assert all((batch["paper"].x <= 20).all() for batch in loader)
    # PyG's own loaders come in by another door.
    lists = (torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([0]))
    named = [{"n__to__n": lists[0]}, {"n__to__n": lists[1]}, {"n": lists[2]}, {"n__to__n": [1]}]
    with pytest.raises(ValueError, match="would see the future"):
        _hetero_neighbor_sample(["n"], [("n", "to", "n")], *named, None, {"n__to__n": torch.tensor([5])})


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"input_nodes": torch.tensor([3, 100])}, IndexError, r"input_nodes\[1\] is 100, but there are 100 nodes"),
        ({"input_nodes": torch.tensor([-1])}, IndexError, r"input_nodes\[0\] is -1"),
        ({"time_attr": "time", "input_time": torch.rand(100)}, ValueError, "input_time has 100 elements of torch.float32"),
        ({"time_attr": "time", "input_time": torch.arange(7)}, ValueError, "for each of 100 inputs"),
        ({"edge_label_index": torch.tensor([[3, 4], [5, 100]])}, IndexError, r"edge_label_index\[1\]\[1\] is 100"),
        ({"time_attr": "time", "edge_label_time": torch.rand(800)}, ValueError, "edge_label_time has 800 elements"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else "",
)
def test_inputs_are_looked_at_before_batches_are_made(data, arguments, kind, words):
    data.time = torch.arange(100)
    loader = LinkNeighborLoader if any(name.startswith("edge") for name in arguments) else NeighborLoader
    with pytest.raises(kind, match=words):
        loader(data, [2], **arguments)


def test_weights_that_float32_does_not_hold_are_refused(data):
    for value in (1e-50, 1e-42, 1e300):
        data.weight = torch.ones(800, dtype=torch.float64)
        data.weight[7] = value
        with pytest.raises(ValueError, match=r"weights\[7\] is .*divide all by the largest"):
            NeighborLoader(data, [2], weight_attr="weight")
    data.weight = torch.rand(800, dtype=torch.float64)
    data.weight[7] = 0
    for batch in NeighborLoader(data, [2], weight_attr="weight", batch_size=50):
        assert batch.weight.dtype == torch.float64 and torch.equal(batch.weight, data.weight[batch.e_id])
        assert batch.edge_index.size(1) > 0 and 7 not in batch.e_id


def test_weights_that_datasets_round_are_said(data):
    data.edge_weight = torch.full((800,), 0.25, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        headwater.from_pyg(data)
    data.edge_weight[3] = 0.1
    with pytest.warns(UserWarning, match="rounded"):
        headwater.from_pyg(data)


# What is read #########################################################################################################


@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_matrices_of_torch(data, weighted):
    data.edge_attr = torch.arange(1.0, 801.0)
    turned = ToSparseTensor(attr="edge_attr" if weighted else None, layout=torch.sparse_csr)(data.clone())
    dense = torch.zeros(100, 100).index_put_((data.edge_index[1], data.edge_index[0]), data.edge_attr, accumulate=True)
    for x in (True, False):
        if not x:
            turned.num_nodes = 100
            del turned.x
        for batch in NeighborLoader(turned, [3, 2], batch_size=20):
            matrix, nodes = batch.adj_t, batch.n_id
            assert matrix.layout == torch.sparse_csr and matrix.shape == (nodes.numel(), nodes.numel())
            assert matrix.values().numel() == sum(batch.num_sampled_edges)
            found = matrix.to_dense()
            expected = dense[nodes][:, nodes]
            assert (found[expected == 0] == 0).all()
            if weighted:
                assert (found <= expected).all()
    for layout in (torch.sparse_coo, torch.sparse_csc):
        turned.adj_t = dense.to_sparse(layout=layout)
        with pytest.raises(ValueError, match=f"adj_t is a tensor of the layout {layout}"):
            NeighborLoader(turned, [3])


def test_signs_that_torch_has_yet_to_write_are_kept(data):
    rows = torch.randn(100, 3)
    data.negated = torch._neg_view(rows)
    data.conjugated = torch.complex(rows, rows).conj()
    data.small = torch.arange(100).to(torch.float8_e4m3fn)
    data.half = torch.complex(rows, rows).to(torch.complex32)
    assert data.negated.is_neg() and data.conjugated.is_conj()
    batch = next(iter(NeighborLoader(data, [3], batch_size=20)))
    assert torch.equal(batch.negated, -rows[batch.n_id])
    assert torch.equal(batch.conjugated.resolve_conj(), torch.complex(rows, -rows)[batch.n_id])
    for name in ("small", "half"):
        assert batch[name].dtype == data[name].dtype
        assert torch.equal(batch[name].to(torch.complex64), data[name].to(torch.complex64)[batch.n_id])
    # Whoever calls the native functions has it resolved, too.
    ids = torch.arange(100)
    found = [torch.from_dlpack(headwater.take_rows(own, ids)) for own in (data.negated, data.conjugated)]
    assert torch.equal(found[0], -rows) and torch.equal(found[1], torch.complex(rows, -rows))


def test_a_seed_that_comes_twice_has_one_neighbourhood_unless_trees_are_disjoint(data):
    """A node draws once in a batch, so that every hop sees the same neighbours of it."""
    seeds = torch.tensor([5, 5, 9])

    def drawn(**wished):
        batch = next(iter(NeighborLoader(data, [2], input_nodes=seeds, batch_size=3, seed=1, **wished)))
        assert torch.equal(batch.n_id[:3], seeds)
        source, target = batch.edge_index
        return [set(batch.e_id[target == at].tolist()) for at in range(2)]

    one, other = drawn()
    assert one == other and len(one) == 2
    one, other = drawn(disjoint=True)
    assert one != other


# Edges that are in order ##############################################################################################


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_edges_that_are_sorted_are_not_sorted_again(data, direction):
    ends = data.edge_index[:, data.edge_index[1 if direction == "forward" else 0].argsort(stable=True)]
    in_order = Data(x=data.x, edge_index=ends)
    seeds = headwater.pyg.sampler.NodeSamplerInput(None, torch.arange(20))
    wished = {"num_neighbors": [3, 2], "sample_direction": direction, "seed": 4}
    found, told = (
        NeighborSampler(in_order, is_sorted=told, **wished).sample_from_nodes(seeds) for told in (False, True)
    )
    for name in ("node", "row", "col", "edge"):
        assert torch.equal(getattr(found, name), getattr(told, name))
    with pytest.raises(ValueError, match="is_sorted is True, but edge_index is not sorted"):
        NeighborSampler(data, is_sorted=True, **wished)
    beyond = Data(edge_index=torch.tensor([[0, 1], [1, 7]]), num_nodes=5)
    with pytest.raises(ValueError, match="there are 5 nodes"):
        NeighborSampler(beyond, [2], is_sorted=True)
    with pytest.raises(ValueError, match="share_memory is True"):
        NeighborSampler(data, [2], share_memory=True)
