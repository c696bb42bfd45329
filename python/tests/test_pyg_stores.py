"""The stores of PyG users, with our loaders and with PyG's."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import headwater.pyg  # noqa: E402
from headwater.pyg import FeatureStore, GraphStore, NeighborLoader  # noqa: E402

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
