"""The loaders of PyG users, against what PyG promises of a batch."""

import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import headwater.pyg  # noqa: E402
from headwater.pyg import LinkNeighborLoader, NeighborLoader, NeighborSampler  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.sampler import NegativeSampling  # noqa: E402


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(12)
    edges = torch.randint(0, 200, (2, 3000), generator=generator)
    return Data(
        x=torch.arange(200).view(-1, 1).float(),
        y=torch.arange(200),
        edge_index=edges,
        edge_attr=torch.arange(3000),
    )


@pytest.fixture
def hetero():
    generator = torch.Generator().manual_seed(12)
    data = HeteroData()
    data["paper"].x = torch.arange(100).float()
    data["author"].x = torch.arange(50).float()
    data["paper", "cites", "paper"].edge_index = torch.randint(0, 100, (2, 500), generator=generator)
    writes = torch.stack([torch.randint(0, high, (400,), generator=generator) for high in (50, 100)])
    data["author", "writes", "paper"].edge_index = writes
    data["paper", "of", "author"].edge_index = writes.flip(0)
    data["paper", "of", "author"].edge_attr = torch.arange(400)
    return data


def same(one, other):
    return all(torch.equal(one[key], other[key]) for key in ("x", "n_id", "e_id", "edge_index"))


def test_every_field_is_there_and_belongs_to_the_graph(data):
    loader = NeighborLoader(data, [5, 3], batch_size=30, seed=1)
    assert (len(loader), str(loader)) == (7, "NeighborLoader()")
    for number, batch in enumerate(loader):
        assert batch.batch_size == (30 if number < 6 else 20)
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
        assert torch.equal(batch.x.view(-1).long(), batch.n_id) and torch.equal(batch.y, batch.n_id)
        assert torch.equal(data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
        assert torch.equal(batch.edge_attr, batch.e_id)
        assert sum(batch.num_sampled_nodes) == batch.num_nodes and len(batch.num_sampled_nodes) == 3
        assert sum(batch.num_sampled_edges) == batch.num_edges and len(batch.num_sampled_edges) == 2
        assert (batch.edge_index[1].bincount() <= 5).all()
    assert number == 6


def test_types_have_their_own_fields(hetero):
    loader = NeighborLoader(hetero, [4, 4], input_nodes=("paper", torch.arange(40)), batch_size=20, seed=1)
    for batch in loader:
        assert batch["paper"].batch_size == 20
        for kind in hetero.node_types:
            assert torch.equal(batch[kind].x.long(), batch[kind].n_id)
        for kind in hetero.edge_types:
            ends = (batch[kind[0]].n_id[batch[kind].edge_index[0]], batch[kind[2]].n_id[batch[kind].edge_index[1]])
            assert torch.equal(torch.stack(ends), hetero[kind].edge_index[:, batch[kind].e_id])
        assert torch.equal(batch["paper", "of", "author"].edge_attr, batch["paper", "of", "author"].e_id)


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_threads_and_epochs_do_not_change_what_a_seed_gives(data, workers):
    make = lambda workers: NeighborLoader(data, [5, 3], batch_size=30, shuffle=True, seed=3, num_workers=workers)  # noqa: E731
    plain, threaded = make(0), make(workers)
    for _ in range(2):
        epoch = list(plain)
        assert all(same(*pair) for pair in zip(epoch, threaded, strict=True))
    assert not torch.equal(epoch[0].n_id, next(iter(plain)).n_id)


def test_torch_s_seed_fixes_everything(data):
    def epoch():
        torch.manual_seed(5)
        return list(NeighborLoader(data, [5, 3], batch_size=30, shuffle=True))

    assert all(same(*pair) for pair in zip(epoch(), epoch(), strict=True))


@pytest.mark.parametrize("done", [0, 3, 7])
def test_a_loader_goes_on_where_another_was(data, done):
    make = lambda: NeighborLoader(data, [5, 3], batch_size=30, shuffle=True, seed=4)  # noqa: E731
    straight = make()
    first, second = list(straight), list(straight)
    stopped = make()
    batches = iter(stopped)
    assert all(same(next(batches), expected) for expected in first[:done])
    batches.close()
    again = make()
    again.load_state_dict(pickle.loads(pickle.dumps(stopped.state_dict())))
    # After the last batch of an epoch comes the next epoch.
    for expected in (first[done:], second) if done < 7 else (second,):
        assert all(same(*pair) for pair in zip(again, expected, strict=True))


def test_links_have_labels_and_negatives(data):
    loader = LinkNeighborLoader(data, [3], edge_label_index=data.edge_index[:, :100], neg_sampling_ratio=1.0, batch_size=50)
    for batch in loader:
        assert batch.edge_label_index.shape == (2, 100) and batch.edge_label.sum() == 50
        positive = batch.n_id[batch.edge_label_index[:, :50]]
        assert torch.equal(positive, data.edge_index[:, batch.input_id])
    triplet = NegativeSampling("triplet", amount=2)
    batch = next(iter(LinkNeighborLoader(data, [3], data.edge_index, neg_sampling=triplet, batch_size=10)))
    assert batch.src_index.shape == (10,) and batch.dst_neg_index.shape == (10, 2)


def test_negatives_depend_on_the_seed_alone(data):
    def epoch(workers, mode="binary"):
        negatives = NegativeSampling(mode, amount=2, dst_weight=torch.arange(200.0))
        loader = LinkNeighborLoader(
            data, [3], neg_sampling=negatives, batch_size=40, shuffle=True, seed=6, num_workers=workers
        )
        return list(loader)

    for mode, key in (("binary", "edge_label_index"), ("triplet", "dst_neg_index")):
        alone = epoch(0, mode)
        torch.manual_seed(99)
        for one, other in zip(alone, epoch(4, mode), strict=True):
            assert same(one, other) and torch.equal(one[key], other[key])
    # What has no weight is never drawn.
    assert all((batch.n_id[batch.dst_neg_index] != 0).all() for batch in alone)


@pytest.mark.parametrize("kind", ["induced", "bidirectional"])
def test_subgraphs_of_other_kinds(data, kind):
    batch = next(iter(NeighborLoader(data, [4, 4], subgraph_type=kind, batch_size=5)))
    pairs = set(map(tuple, batch.n_id[batch.edge_index].t().tolist()))
    edges = set(map(tuple, data.edge_index.t().tolist()))
    if kind == "induced":
        nodes = set(batch.n_id.tolist())
        assert pairs == {edge for edge in edges if set(edge) <= nodes}
    else:
        assert pairs == {edge[::-1] for edge in pairs}


def test_times_are_not_looked_past(data):
    data.time = torch.arange(200)
    loader = NeighborLoader(data, [-1, -1], input_nodes=torch.arange(100, 120), time_attr="time", batch_size=4)
    for batch in loader:
        assert (batch.time <= batch.input_id[batch.batch] + 100).all()


def test_loaders_and_samplers_are_sent(data):
    loader = NeighborLoader(data, [5, 3], batch_size=30, seed=9)
    arrived = pickle.loads(pickle.dumps(loader))
    assert all(same(*pair) for pair in zip(loader, arrived, strict=True))
    assert isinstance(arrived.node_sampler, NeighborSampler)


def draw_in_another_process(loader, queue):
    queue.put([batch.n_id.tolist() for batch in loader])


def test_spawned_processes_draw_the_same(data):
    context = torch.multiprocessing.get_context("spawn")
    loader = NeighborLoader(data, [5, 3], batch_size=50, shuffle=True, seed=9)
    queue = context.SimpleQueue()
    processes = [context.Process(target=draw_in_another_process, args=(loader, queue)) for _ in range(2)]
    [process.start() for process in processes]
    found = [queue.get() for _ in processes]
    [process.join(60) for process in processes]
    assert found == [[batch.n_id.tolist() for batch in loader]] * 2


def test_loaders_are_made_anew_out_of_their_attributes(data):
    """As Lightning does, to put a sampler of its own in."""
    from torch.utils.data import RandomSampler, SequentialSampler

    loader = NeighborLoader(data, [5, 3], disjoint=True, batch_size=50, shuffle=True, seed=9)
    assert isinstance(loader.sampler, RandomSampler)
    names = ("data", "num_neighbors", "input_nodes", "time_attr", "neighbor_sampler", "seed", "dataset", "batch_size")
    arguments = {name: getattr(loader, name) for name in names}
    again = NeighborLoader(**arguments, sampler=SequentialSampler(loader.dataset), shuffle=False)
    plain = NeighborLoader(data, [5, 3], disjoint=True, batch_size=50, seed=9)
    assert all(same(*pair) for pair in zip(again, plain, strict=True))


def test_an_error_in_a_transform_is_the_users_and_leaves_no_thread(data):
    import threading

    def broken(batch):
        raise RuntimeError("mine")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="mine"):
        next(iter(NeighborLoader(data, [2], transform=broken)))
    batches = iter(NeighborLoader(data, [2], batch_size=10, num_workers=3))
    next(batches)
    del batches
    assert threading.active_count() == before


def test_threads_that_ask_together_have_a_whole_sampler(data):
    from concurrent.futures import ThreadPoolExecutor

    sampler = NeighborSampler(data, [5], seed=1)

    def settle(number):
        sampler.num_neighbors = [number % 3 + 1]
        return sampler._native()

    with ThreadPoolExecutor(8) as pool:
        assert all(own is not None for own in pool.map(settle, range(400)))


def test_two_loaders_at_once(data):
    one, two = (NeighborLoader(data, [5], batch_size=20, seed=2) for _ in range(2))
    assert all(same(*pair) for pair in zip(one, two, strict=True))


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"num_neighbors": [-3]}, ValueError, "-3"),
        ({"input_time": torch.arange(3)}, ValueError, "time_attr"),
        ({"time_attr": "when"}, ValueError, "when"),
        ({"temporal_strategy": "first"}, ValueError, "first"),
        ({"num_workers": -1}, ValueError, "num_workers"),
        ({"multiprocessing_context": "spawn"}, ValueError, "multiprocessing_context"),
        ({"disjoint": True, "subgraph_type": "induced"}, ValueError, "induced"),
    ],
)
def test_what_cannot_be_honoured_is_refused_at_once(data, arguments, kind, words):
    with pytest.raises(kind, match=words):
        NeighborLoader(data, **{"num_neighbors": [2], **arguments})


def test_edges_to_nowhere_are_index_errors(data):
    data.edge_index[0, 17] = 200
    with pytest.raises(IndexError, match=r"\[17\] is 200"):
        NeighborLoader(data, [2])


def test_pygs_own_loader_runs_on_headwater(data, hetero):
    from torch_geometric.loader import NeighborLoader as Theirs

    assert headwater.pyg.install() and headwater.pyg.install()
    for workers, context in ((0, None), (2, "fork"), (1, "spawn")):
        loader = Theirs(data, [5, 3], batch_size=50, num_workers=workers, multiprocessing_context=context)
        batches = list(loader)
        assert len(batches) == 4
        for batch in batches:
            assert torch.equal(data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
    for batch in Theirs(hetero, [4, 4], input_nodes="paper", batch_size=20, disjoint=True):
        for kind in hetero.edge_types:
            ends = (batch[kind[0]].n_id[batch[kind].edge_index[0]], batch[kind[2]].n_id[batch[kind].edge_index[1]])
            assert torch.equal(torch.stack(ends), hetero[kind].edge_index[:, batch[kind].e_id])
