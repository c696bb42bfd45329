"""GraphLearn's datasets and loaders on Headwater: batches, other processes, and what is refused."""

import pickle
import threading
from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from headwater.glt.data import Dataset, DeviceGroup, Feature, Graph, Topology  # noqa: E402
from headwater.glt.data import UnifiedTensor, sort_by_in_degree  # noqa: E402
from headwater.glt.loader import LinkNeighborLoader, NeighborLoader  # noqa: E402
from headwater.glt.loader.subgraph_loader import SubGraphLoader  # noqa: E402
from headwater.glt.sampler import NegativeSampling, NeighborSampler  # noqa: E402
from headwater.glt.utils import id2idx  # noqa: E402
from test_glt import BUYS, COL, CPU, LIKES, ROW, graph_of, random_edges, shop  # noqa: E402

# Where there is a GPU these choose it.
pytestmark = pytest.mark.gpu


def dataset_of(edges, edge_dir="out", nodes=60, **graph):
    data = Dataset(edge_dir=edge_dir)
    data.init_graph(edges, graph_mode="CPU", **graph)
    data.init_node_features(torch.arange(nodes * 2.0).view(nodes, 2), with_gpu=False)
    data.init_edge_features(torch.arange(edges.size(1)).view(-1, 1) * 1.0, with_gpu=False)
    data.init_node_labels(torch.arange(nodes).view(-1, 1))
    return data


# Datasets and loaders #################################################################################################


def test_batches_have_their_fields_and_rows():
    edges = random_edges()
    data = dataset_of(edges, nodes=62)
    loader = NeighborLoader(data, [4, 3], torch.arange(50), batch_size=16, with_edge=True, shuffle=True, seed=3, device=CPU)
    epochs = [list(loader), list(loader)]
    assert [len(loader), len(loader._seed_loader), len(epochs[0])] == [4, 4, 4] and repr(loader) == "NeighborLoader()"
    for batches in epochs:
        assert sorted(torch.cat([batch.batch for batch in batches]).tolist()) == list(range(50))
        for batch in batches:
            assert batch.node[: batch.batch_size].tolist() == batch.batch.tolist() and batch.num_nodes == batch.node.numel()
            assert torch.equal(batch.x[:, 0], batch.node * 2.0) and torch.equal(batch.y, batch.node)
            assert torch.equal(batch.edge_attr.view(-1), batch.edge * 1.0)
            assert torch.equal(batch.node[batch.edge_index].flip(0), edges[:, batch.edge])
            assert sum(batch.num_sampled_nodes) == batch.num_nodes and sum(batch.num_sampled_edges) == batch.num_edges
    assert epochs[0][0].batch.tolist() != epochs[1][0].batch.tolist()
    again = NeighborLoader(data, [4, 3], torch.arange(50), None, 16, True, False, True, device=CPU, seed=3, num_workers=3)
    assert [batch.edge.tolist() for batch in again] == [batch.edge.tolist() for batch in epochs[0]]
    assert len(list(NeighborLoader(data, [2], torch.arange(50), batch_size=16, drop_last=True, device=CPU))) == 3


def test_seeds_may_be_masks_types_or_all():
    data = dataset_of(random_edges(), nodes=62)
    mask = torch.zeros(62, dtype=torch.bool)
    mask[[5, 61]] = True
    assert next(iter(NeighborLoader(data, [1], mask, batch_size=9, device=CPU))).batch.tolist() == [5, 61]
    assert sum(batch.batch_size for batch in NeighborLoader(data, [1], None, batch_size=9, device=CPU)) == 62
    bare = Dataset()
    bare.init_graph({kind: own for kind, own in shop()[0].items()}, graph_mode="CPU")
    for batch in NeighborLoader(bare, [1], "user", batch_size=20, device=CPU):
        assert batch["user"].batch_size == 20 and batch["item"].num_nodes > 0 and "x" not in batch["item"]
    # Without features, labels or edge ids.
    plain = Dataset(graph_of(random_edges()))
    batch = next(iter(NeighborLoader(plain, [3], torch.arange(4), batch_size=4, device=CPU)))
    assert batch.x is None and batch.y is None and "edge" not in batch and batch.num_nodes == batch.node.numel()


@pytest.mark.parametrize("edge_dir", ["out", "in"])
def test_batches_by_type(edge_dir):
    edges, _ = shop()
    data = Dataset(edge_dir=edge_dir)
    data.init_graph(edges, graph_mode="CPU")
    rows = {"user": torch.arange(40.0).view(-1, 1), "item": torch.arange(100.0, 140).view(-1, 1)}
    data.init_node_features(rows, with_gpu=False, split_ratio={"user": 0.5})
    data.init_edge_features({BUYS: torch.arange(80.0), LIKES: torch.arange(80.0) + 500}, with_gpu=False)
    data.init_node_labels({"item": torch.arange(40)})
    loader = NeighborLoader(data, [2, 1], ("item", torch.arange(10)), batch_size=5, with_edge=True, device=CPU)
    assert len(loader) == 2 and data.get_node_types() == ["user", "item"] and data.get_edge_types() == [BUYS, LIKES]
    reached = LIKES if edge_dir == "out" else BUYS
    for batch in loader:
        assert batch["item"].batch_size == 5 and torch.equal(batch["item"].y, batch["item"].node)
        assert torch.equal(batch["item"].x.view(-1), batch["item"].node + 100.0) and batch[reached].edge.numel() > 0
        assert torch.equal(batch[LIKES].edge_attr, batch[LIKES].edge + 500.0)
        assert {own.numel() for own in batch.num_sampled_edges.values()} == {2}
        assert {own.numel() for own in batch.num_sampled_nodes.values()} == {3}
        if edge_dir == "out":
            assert set(batch.edge_types) == {("item", "rev_buys", "user"), LIKES} and batch.node_types == ["item"]
            assert batch["item", "rev_buys", "user"].edge_index.shape == (2, 0)
        else:
            assert torch.equal(batch[BUYS].edge_attr, batch[BUYS].edge * 1.0)
    # Features of edges are under the type that was given, whichever way the edges point.
    start, told = ("user", ("item", "rev_buys", "user")) if edge_dir == "out" else ("item", BUYS)
    batch = next(iter(NeighborLoader(data, [2], (start, torch.arange(9)), batch_size=9, with_edge=True, device=CPU)))
    assert torch.equal(batch[told].edge_attr, batch[told].edge * 1.0) and batch[told].edge.numel() >= 18


@pytest.mark.parametrize("edge_dir", ["out", "in"])
@pytest.mark.parametrize("negatives", [None, "binary", "triplet"])
def test_links_in_batches(edge_dir, negatives):
    edges = random_edges()
    wished = None if negatives is None else NegativeSampling(negatives, 2)
    label = None if negatives == "triplet" else torch.arange(900) % 3
    loader = LinkNeighborLoader(
        dataset_of(edges, edge_dir), [3, 2], edge_label=label, neg_sampling=wished, batch_size=30, device=CPU, seed=1
    )
    assert len(loader) == 30 and repr(loader) == "LinkNeighborLoader()"
    known = set(map(tuple, edges.t().tolist()))
    for number, batch in enumerate(loader):
        first, last = number * 30, number * 30 + 30
        if negatives == "triplet":
            ends = torch.stack([batch.node[batch.src_index], batch.node[batch.dst_pos_index]])
            wrong = torch.stack([ends[0].repeat_interleave(2), batch.node[batch.dst_neg_index].view(-1)])
        else:
            # Links point as edges of the batch do.
            both = batch.node[batch.edge_label_index.flip(0) if edge_dir == "out" else batch.edge_label_index]
            ends, wrong = both[:, :30], both[:, 30:]
            expected = label[first:last] + (0 if wished is None else 1)
            assert batch.edge_label.tolist() == expected.tolist() + [0] * wrong.size(1)
        assert torch.equal(ends, edges[:, first:last]) and wrong.size(1) == (0 if wished is None else 60)
        assert known.isdisjoint(map(tuple, wrong.t().tolist()))
        assert torch.equal(batch.x[:, 0], batch.node * 2.0)


def test_subgraphs_and_first_loaders_batches():
    edges = random_edges()
    data = dataset_of(edges)
    for batch in SubGraphLoader(data, torch.tensor([5, 9, 5, 7]), [3], batch_size=3, with_edge=True, device=CPU):
        assert torch.equal(batch.node[batch.mapping], batch.batch) and batch.batch_size == batch.mapping.numel()
        inside = torch.isin(edges, batch.node).all(dim=0).nonzero().view(-1)
        assert sorted(batch.edge.tolist()) == inside.tolist() and torch.equal(batch.x[:, 0], batch.node * 2.0)
        assert torch.equal(batch.node[batch.edge_index].flip(0), edges[:, batch.edge])
    sizes = [size for size, _, _ in NeighborLoader(data, [3, 2], torch.arange(10), batch_size=4, as_pyg_v1=True, device=CPU)]
    assert sizes == [4, 4, 2]


def test_datasets_are_split_sorted_and_looked_up():
    data = Dataset()
    data.init_graph(torch.tensor([[0, 1, 2], [3, 3, 0]]), graph_mode="CPU", directed=True)
    data.init_node_features(torch.arange(4.0), sort_func=sort_by_in_degree, with_gpu=False)
    # Rows are asked for along edges: 3 twice, and 0 once.
    assert data.node_features.feature_tensor.tolist() == [3, 0, 1, 2]
    assert data.get_node_feature()[torch.tensor([2, 3])].tolist() == [2, 3]
    data.init_node_labels(torch.tensor([[4], [6]]), id2idx=id2idx([1, 3]))
    assert data.get_node_label()[torch.tensor([3, 1])].tolist() == [6, 4]
    data.init_node_labels(torch.arange(10))
    data.random_node_split(0.2, 3)
    parts = [own.tolist() for own in (data.train_idx, data.val_idx, data.test_idx)]
    assert [len(own) for own in parts] == [5, 2, 3] and sorted(sum(parts, [])) == list(range(10))
    data.init_node_split((torch.tensor([1]), torch.tensor([2]), torch.tensor([[3]])))
    assert data["test_idx"].tolist() == [3] and data["nothing"] is None


def test_a_sampler_of_users_runs_where_they_are():
    ran = []

    class Own(NeighborSampler):
        def sample_from_nodes(self, inputs, **wished):
            ran.append(threading.get_ident())
            return super().sample_from_nodes(inputs, **wished)

    data = dataset_of(random_edges())
    own = Own(data.graph, [3], device=CPU)
    batches = iter(NeighborLoader(data, [3], torch.arange(60), neighbor_sampler=own, batch_size=10, device=CPU))
    next(batches)
    assert len(ran) == 1
    list(batches)
    assert ran == [threading.get_ident()] * 6
    loader = NeighborLoader(data, [3], torch.arange(60), neighbor_sampler=own, batch_size=10, device=CPU, num_workers=1)
    ran.clear()
    assert len(list(loader)) == 6 and len(set(ran)) == 1 and threading.get_ident() not in ran


def test_a_given_sampler_does_what_the_loader_is_asked_for():
    data = dataset_of(random_edges())
    own = NeighborSampler(data.graph, [3, 2], device=CPU)
    given = {"neighbor_sampler": own, "batch_size": 10, "device": CPU}
    assert NeighborLoader(data, None, torch.arange(60), **given).node_sampler is own
    assert NeighborLoader(data, (3, 2), torch.arange(60), **given).node_sampler is own
    with pytest.raises(ValueError, match="with_edge: the neighbor_sampler"):
        NeighborLoader(data, [3, 2], torch.arange(60), with_edge=True, **given)
    with pytest.raises(ValueError, match=r"num_neighbors is \[4, 2\], and the neighbor_sampler that is given draws"):
        NeighborLoader(data, [4, 2], torch.arange(60), **given)
    with pytest.raises(ValueError, match="with_weight: the neighbor_sampler"):
        LinkNeighborLoader(data, [3, 2], edge_label_index=torch.zeros(2, 5, dtype=torch.long), with_weight=True, **given)
    with pytest.raises(ValueError, match="with_edge: the neighbor_sampler"):
        SubGraphLoader(data, torch.arange(60), with_edge=True, **given)


def work(rank, data, loader, answers):
    # What arrives is the same memory.
    assert data.node_features.feature_tensor.is_shared() and data.graph.topo.indices.is_shared()
    data.node_features.feature_tensor[0, 0] = 77
    loader.load_state_dict({"seed": 1, "epoch": 0, "batch": 0})
    answers[0] = sum(int(batch.edge.sum()) for batch in loader)


def test_datasets_and_loaders_are_sent_to_other_processes():
    data = dataset_of(random_edges())
    answers = torch.zeros(1, dtype=torch.long).share_memory_()
    loader = NeighborLoader(data, [4], torch.arange(20), batch_size=5, with_edge=True, seed=1, device=CPU)
    expected = sum(int(batch.edge.sum()) for batch in loader)
    torch.multiprocessing.spawn(work, (data, loader, answers), nprocs=1)
    assert int(answers[0]) == expected and data.node_features[torch.tensor([0])][0, 0] == 77
    copied = pickle.loads(pickle.dumps(data))
    assert torch.equal(copied.graph.topo.indices, data.graph.topo.indices)
    assert torch.equal(copied.node_features.cpu_get(torch.tensor([3])), data.node_features.cpu_get(torch.tensor([3])))
    remade = Dataset.from_ipc_handle(data.share_ipc())
    assert remade.graph is data.graph and remade.edge_dir == "out" and remade.node_labels.is_shared()


# What is refused ######################################################################################################


def refused_data():
    seeds = torch.tensor([1, 9])
    groups = [DeviceGroup(0, [0]), DeviceGroup(1, [1, 2])]
    cpu = partial(Feature, with_gpu=False)
    parts = UnifiedTensor(-1)
    parts.init_from([torch.ones(2, 2), torch.ones(2, 2)], [-1, -1])
    return {
        "an id below zero": (lambda: Topology([[0, -1], [1, 1]]), IndexError, "-1"),
        "a layout": (lambda: Topology((ROW, COL), layout="COO"), ValueError, "COO"),
        "an input layout": (lambda: Topology((ROW, COL), input_layout="ELL"), ValueError, "ELL"),
        "lengths": (lambda: Topology((ROW, COL[:2])), ValueError, "5 rows for 2"),
        "weights": (lambda: Topology((ROW, COL), edge_weights=torch.ones(2)), ValueError, "edge_weights has 2"),
        "lists that fall": (lambda: Topology(([0, 2, 1, 5], COL), input_layout="CSR"), ValueError, "fall"),
        "ids with fractions": (lambda: Topology(torch.rand(2, 4)), ValueError, "whole"),
        "a mode": (lambda: Graph(Topology((ROW, COL)), "DISK"), ValueError, "DISK"),
        "a row that is not there": (lambda: cpu(torch.ones(4, 2), torch.tensor([0, 9]))[seeds[:1]], IndexError, "9"),
        "an id without a row": (lambda: cpu(torch.ones(2), id2idx([0, 5]))[seeds[:1]], IndexError, "is 1, which has no row"),
        "a row of several parts": (lambda: parts[torch.tensor([0, 4])], IndexError, "is 4, but"),
        "a part of another type": (lambda: parts.append_cpu_tensor(torch.ones(2, 2).half()), ValueError, "float16"),
        "a split": (lambda: Feature(torch.ones(3), split_ratio=1.5), ValueError, "1.5"),
        "groups": (lambda: cpu(torch.ones(3), device_group_list=groups), ValueError, "groups"),
    }


def refused_samplers():
    graph, seeds = graph_of((ROW, COL)), torch.tensor([1, 9])
    _, typed = shop()
    full, triplet = graph_of(torch.ones(3, 3).nonzero().t()), NegativeSampling("triplet")
    return {
        "a seed": (lambda: NeighborSampler(graph, [1]).sample_from_nodes(seeds), IndexError, "9"),
        "a strategy": (lambda: NeighborSampler(graph, [1], strategy="topk"), ValueError, "topk"),
        "a direction": (lambda: NeighborSampler(graph, [1], edge_dir="in"), ValueError, "CSC"),
        "no weights": (lambda: NeighborSampler(graph, [1], with_weight=True), ValueError, "edge_weights"),
        "a fan-out": (lambda: NeighborSampler(graph, [-2]), ValueError, "-2"),
        "a large fan-out": (lambda: NeighborSampler(graph, [2**40]), ValueError, "4294967295"),
        "a seed of numbers": (lambda: NeighborSampler(graph, [1], seed=-1), ValueError, "seed is -1"),
        "fan-outs of one type": (lambda: NeighborSampler(typed, {BUYS: [1]}), ValueError, "likes"),
        "fan-outs of two lengths": (lambda: NeighborSampler(typed, {BUYS: [1], LIKES: [1, 2]}), ValueError, "numbers"),
        "no fan-outs": (lambda: NeighborSampler(graph).sample_from_nodes(seeds[:1]), ValueError, "num_neighbors"),
        "no type": (lambda: NeighborSampler(typed, [1]).sample_from_nodes(seeds), ValueError, "user"),
        "a type too many": (lambda: NeighborSampler(graph, [1]).sample_from_nodes((seeds, "u")), ValueError, "one type"),
        "half an edge for triplets": (lambda: NegativeSampling("triplet", 0.5), ValueError, "whole"),
        "no negatives": (lambda: NegativeSampling("binary", 0), ValueError, "positive"),
        "no negatives to be had": (
            lambda: NeighborSampler(full, [1]).sample_from_edges((seeds[:1], seeds[:1], None, None, "binary")),
            ValueError,
            "nearly all pairs are edges",
        ),
        "a full node": (
            lambda: NeighborSampler(full, [1]).sample_from_edges((seeds[:1], seeds[:1], None, None, triplet)),
            ValueError,
            "node 1 has an edge to every node",
        ),
        "a device": (lambda: NeighborSampler(Graph(Topology((ROW, COL))), [1], device="meta"), ValueError, "meta"),
    }


def refused_loaders():
    data, hetero = dataset_of(random_edges()), Dataset(shop()[1])
    seeds, triplet = torch.tensor([1, 9]), NegativeSampling("triplet")
    return {
        "a row": (lambda: data.node_features[torch.tensor([3, 60])], IndexError, "60"),
        "labels of triplets": (
            lambda: LinkNeighborLoader(data, [1], edge_label=torch.ones(900), neg_sampling=triplet, device=CPU),
            ValueError,
            "triplets",
        ),
        "labels of other edges": (
            lambda: LinkNeighborLoader(data, [1], edge_label=torch.ones(9), device=CPU),
            ValueError,
            "9 elements",
        ),
        "processes": (
            lambda: NeighborLoader(data, [1], seeds, device=CPU, multiprocessing_context="spawn"),
            ValueError,
            "threads",
        ),
        "an argument": (lambda: NeighborLoader(data, [1], seeds, device=CPU, colour="red"), TypeError, "colour"),
        "a seed in a batch": (lambda: list(NeighborLoader(data, [1], torch.tensor([60]), device=CPU)), IndexError, "60"),
        "a seed of numbers in a loader": (lambda: NeighborLoader(data, [1], seeds, device=CPU, seed=-1), ValueError, "seed is -1"),
        "a time for nobody": (lambda: NeighborLoader(data, [1], seeds, device=CPU, timeout=3), ValueError, "num_workers is 0"),
        "seeds without a type": (lambda: NeighborLoader(hetero, [1], seeds, device=CPU), ValueError, "user"),
        "links without a type": (lambda: LinkNeighborLoader(hetero, [1], device=CPU), ValueError, "buys"),
        "subgraphs of types": (lambda: SubGraphLoader(hetero, ("user", seeds), device=CPU), ValueError, "one type"),
        "sorting by a list": (
            lambda: data.init_node_features(torch.ones(60), id2idx=torch.arange(60), sort_func=sort_by_in_degree),
            ValueError,
            "id2idx",
        ),
        "a dataset's direction": (lambda: Dataset(edge_dir="both"), ValueError, "both"),
    }


REFUSED = {**refused_data(), **refused_samplers(), **refused_loaders()}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_done_is_refused(what):
    make, kind, words = REFUSED[what]
    with pytest.raises(kind, match=words):
        make()
