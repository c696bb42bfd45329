"""The stores of PyG users, with our loaders and with PyG's."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import headwater.pyg  # noqa: E402
from headwater.pyg import FeatureStore, GraphStore, NeighborLoader  # noqa: E402
from torch_geometric.data import HeteroData  # noqa: E402

CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")


@pytest.fixture
def stores():
    generator = torch.Generator().manual_seed(1)
    features, graph = FeatureStore(), GraphStore()
    for kind, nodes in (("paper", 80), ("author", 30)):
        features.put_tensor(torch.arange(nodes).view(-1, 1), group_name=kind, attr_name="x", index=None)
    for kind, size in ((CITES, (80, 80)), (WRITES, (30, 80))):
        edges = torch.stack([torch.randint(high, (300,), generator=generator) for high in size])
        graph.put_edge_index(edges, edge_type=kind, layout="coo", size=size)
        features.put_tensor(torch.arange(300), group_name=kind, attr_name="edge_attr", index=None)
        # Only every other edge may be taken.
        features.put_tensor((torch.arange(300) % 2).float(), group_name=kind, attr_name="weight", index=None)
    return features, graph


def edges_of(graph, kind):
    return torch.stack(list(graph.get_edge_index(edge_type=kind, layout="coo")))


def test_features_and_weights_of_edges_are_honoured(stores):
    loader = NeighborLoader(stores, [-1, 3], input_nodes="paper", batch_size=20, weight_attr="weight")
    seen = 0
    for batch in loader:
        assert torch.equal(batch["paper"].x.view(-1), batch["paper"].n_id)
        for kind in (CITES, WRITES):
            own = batch[kind]
            ends = torch.stack([batch[kind[0]].n_id[own.edge_index[0]], batch[kind[2]].n_id[own.edge_index[1]]])
            assert torch.equal(ends, edges_of(stores[1], kind)[:, own.e_id])
            assert torch.equal(own.edge_attr, own.e_id) and (own.e_id % 2 == 1).all()
            seen += own.e_id.numel()
    assert seen > 0
    with pytest.raises(NotImplementedError, match="mass"):
        NeighborLoader(stores, [2], input_nodes="paper", weight_attr="mass")


def test_pygs_own_loader_reads_them(stores):
    from torch_geometric.loader import NeighborLoader as Theirs

    assert headwater.pyg.install()
    for batch in Theirs(stores, [4, 4], input_nodes="paper", batch_size=20):
        assert torch.equal(batch["paper"].x.view(-1), batch["paper"].n_id)
        ends = batch[CITES].edge_index
        assert torch.equal(batch["paper"].n_id[ends], edges_of(stores[1], CITES)[:, batch[CITES].e_id])


def test_a_graph_of_one_type_has_features_of_edges_too():
    features, graph = FeatureStore(), GraphStore()
    edges = torch.stack([torch.arange(50), (torch.arange(50) + 1) % 50])
    graph.put_edge_index(edges, edge_type=None, layout="coo", size=(50, 50))
    features.put_tensor(torch.arange(50).float(), group_name=None, attr_name="x", index=None)
    features.put_tensor(torch.arange(50) * 2, group_name=("node", "to", "node"), attr_name="edge_attr", index=None)
    for batch in NeighborLoader((features, graph), [1, 1], input_nodes=torch.arange(50), batch_size=10):
        assert torch.equal(batch.x.long(), batch.n_id) and torch.equal(batch.edge_attr, 2 * batch.e_id)
        assert torch.equal(batch.n_id[batch.edge_index], edges[:, batch.e_id])


def test_rows_may_have_ids_of_their_own():
    features = FeatureStore()
    ids = torch.tensor([7, 3, 11])
    features.put_tensor(torch.tensor([[70.0], [30.0], [110.0]]), group_name="n", attr_name="x", index=ids)
    assert features.get_tensor("n", "x", index=torch.tensor([11, 7])).view(-1).tolist() == [110, 70]
    assert features.get_tensor_size(group_name="n", attr_name="x") == (3, 1)
    with pytest.raises(IndexError, match="4"):
        features.get_tensor("n", "x", index=torch.tensor([3, 4]))
    assert features.remove_tensor(group_name="n", attr_name="x", index=None)
    with pytest.raises(KeyError):
        features.get_tensor("n", "x", index=None)


INDICES = {
    "none": None,
    "slice": slice(1, 4),
    "open slice": slice(2, None),
    "stepped slice": slice(0, 5, 2),
    "number": 3,
    "last": -1,
    "numbers": torch.tensor([4, 0, 4]),
    "list": [1, 2],
    "mask": torch.tensor([True, False, True, False, False]),
    "list of a mask": [False, True, False, False, True],
    "scalar": torch.tensor(2),
}


@pytest.mark.parametrize("name", INDICES)
def test_indices_mean_what_they_mean_in_pyg(name):
    index, rows = INDICES[name], torch.arange(10.0).view(5, 2)
    theirs, ours = HeteroData(), FeatureStore()
    for store in (theirs, ours):
        store.put_tensor(rows.clone(), group_name="n", attr_name="x", index=None)
    arguments = {"group_name": "n", "attr_name": "x", "index": index}
    assert torch.equal(ours.get_tensor(**arguments), theirs.get_tensor(**arguments))
    new = 100 + theirs.get_tensor(**arguments)
    for store in (theirs, ours):
        store.put_tensor(new, **arguments)
    whole = {**arguments, "index": None}
    assert torch.equal(ours.get_tensor(**whole), theirs.get_tensor(**whole))
    assert not torch.equal(ours.get_tensor(**whole), rows)


@pytest.mark.parametrize(
    ("index", "ids"),
    [
        (slice(3, 6), [3, 4, 5]),
        (slice(3, None), [3, 4, 5]),
        (torch.tensor([False, True, False, True, True]), [1, 3, 4]),
        (torch.tensor([7, 2, 9]), [7, 2, 9]),
    ],
    ids=["slice", "open slice", "mask", "ids"],
)
def test_rows_of_a_new_tensor_are_under_the_ids_of_its_index(index, ids):
    features, rows = FeatureStore(), torch.arange(6.0).view(3, 2)
    features.put_tensor(rows, group_name="n", attr_name="x", index=index)
    assert torch.equal(features.get_tensor("n", "x", index=torch.tensor(ids[::-1])), rows.flip(0))
    assert torch.equal(features.get_tensor("n", "x", index=ids[1]), rows[1])
    if isinstance(index, slice):
        assert torch.equal(features.get_tensor("n", "x", index=slice(3, 6)), rows)
    with pytest.raises(IndexError, match="is 0, which has no row"):
        features.get_tensor("n", "x", index=0)
    features.put_tensor(torch.tensor([[8.0, 9.0]]), group_name="n", attr_name="x", index=torch.tensor(ids[2:]))
    assert features.get_tensor("n", "x", index=ids[2]).tolist() == [8, 9]


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (torch.tensor([0.5]), "elements of torch.float32"),
        (torch.tensor([True, False]), "2 elements for 5 rows"),
        (torch.tensor([5]), "is 5"),
    ],
    ids=["float", "mask", "far"],
)
def test_indices_that_are_none_are_index_errors(index, words):
    features = FeatureStore()
    features.put_tensor(torch.arange(5), group_name="n", attr_name="x", index=None)
    with pytest.raises(IndexError, match=words):
        features.get_tensor("n", "x", index=index)
