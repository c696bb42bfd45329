"""Datasets in folders and in memory, scores and plans."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import headwater
import numpy as np
import pytest
from headwater import Dataset, Graph, Topology


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return headwater.generate("planted", tmp_path_factory.mktemp("data") / "planted", nodes=200, classes=4, features=8)


def ring(nodes=6):
    """Every node is reached from the two before it."""
    target = np.repeat(np.arange(nodes), 2)
    return np.stack([(target - np.tile([1, 2], nodes)) % nodes, target])


def typed(**more):
    edges = {
        ("author", "writes", "paper"): np.array([[0, 1, 1], [2, 0, 1]]),
        ("paper", "cites", "paper"): np.array([[0, 2], [1, 1]]),
    }
    return Dataset.from_arrays(edges, num_nodes={"author": 2, "paper": 3}, **more)


def test_arrays_of_a_folder_are_those_of_its_files(planted):
    folder = Path(planted.path)
    manifest = json.loads((folder / "headwater.json").read_text())
    assert planted.node_types == {"node": 200} and planted.relations == {("node", "to", "node"): planted.edges}
    for what in ["features", "labels", "train", "valid", "test"]:
        stored = np.load(folder / f"node.{what}.npy")
        found = np.asarray(planted.array(what))
        assert found.shape == stored.shape and (found == stored).all(), what
    relation = manifest["relations"][0]
    assert (np.asarray(planted.array("offsets")) == np.load(folder / relation["offsets"])).all()
    assert (np.asarray(planted.array("neighbours")) == np.load(folder / relation["neighbours"])).all()
    assert planted.classes() == 4 and planted.bytes == sum(file["bytes"] for file in manifest["files"].values())
    again = Dataset.open(folder)
    again.verify()
    assert repr(again) == repr(planted) and "planted communities" in again.origin
    assert np.asarray(pickle.loads(pickle.dumps(again)).labels()).tolist() == np.asarray(again.labels()).tolist()


def test_edges_are_the_lists_in_pairs(planted):
    source, target = np.asarray(planted.edge_index())
    offsets = np.asarray(planted.array("offsets"))
    assert (source == np.asarray(planted.array("neighbours"))).all() and source.dtype == np.int64
    assert (target == np.repeat(np.arange(200), np.diff(offsets))).all()
    assert planted.graph().edges == planted.topology().edges == len(source)


def test_writing_to_an_array_changes_neither_the_file_nor_the_dataset(planted):
    stored = np.load(Path(planted.path) / "node.features.npy")
    features = np.from_dlpack(planted.features())
    seen = np.asarray(planted.features())
    assert features.ctypes.data == seen.ctypes.data
    seen[:] = 7.0
    assert (features == 7.0).all()
    assert (np.load(Path(planted.path) / "node.features.npy") == stored).all()
    again = Dataset.open(planted.path)
    assert (np.asarray(again.features()) == stored).all()
    again.verify()
    again.save(Path(planted.path).parent / "unchanged")
    assert (np.load(Path(planted.path).parent / "unchanged" / "node.features.npy") == stored).all()
    planted._arrays.clear()


def test_arrays_are_found_wherever_the_process_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = headwater.generate("planted", "here", nodes=20, classes=2, features=2)
    monkeypatch.chdir("/")
    assert len(made.labels()) == 20 and made.path == str(tmp_path / "here")


def test_an_array_outlives_its_dataset(tmp_path):
    labels = np.asarray(headwater.generate("planted", tmp_path / "d", nodes=50, classes=2, features=2).labels())
    assert set(labels.tolist()) <= {0, 1} and len(labels) == 50


@pytest.mark.parametrize(
    ("kind", "options", "nodes", "types"),
    [
        ("rmat", {"nodes_log2": 6, "edges_per_node": 4, "features": 2, "classes": 3}, 64, 1),
        ("products", {"scale": 0.0001}, 245, 1),
        ("mag", {"scale": 0.0001}, None, 4),
    ],
)
def test_graphs_are_made_up_as_the_command_line_makes_them(tmp_path, kind, options, nodes, types):
    made = headwater.generate(kind, tmp_path / "a", **options)
    again = headwater.generate(kind, tmp_path / "b", **options)
    other = headwater.generate(kind, tmp_path / "c", **options, seed=2)
    assert len(made.node_types) == types and nodes in (None, made.nodes)
    first = next(iter(made.relations))
    lists = [np.asarray(own.array("neighbours", first)) for own in (made, again, other)]
    assert (lists[0] == lists[1]).all() and not np.array_equal(lists[0], lists[2])
    assert set(headwater.shapes()) >= {"products", "mag"}


def test_edge_lists_are_taken_in(tmp_path):
    source = tmp_path / "edges.tsv"
    source.write_text("when\tfrom\tto\n3\tann\tbob\n1\teve\tbob\n")
    made = headwater.ingest(source, tmp_path / "people", source_column="from", target_column=2, time_column="when")
    assert made.nodes == 3 and [made.original_id(node) for node in range(3)] == ["ann", "bob", "eve"]
    # Lists are in the order of time.
    assert np.asarray(made.array("times", ("node", "to", "node"))).tolist() == [1, 3]
    assert np.asarray(made.edge_index()).tolist() == [[2, 0], [1, 1]]
    (tmp_path / "writes.csv").write_text("0,0\n1,1\n")
    edges = {("author", "writes", "paper"): tmp_path / "writes.csv"}
    typed = headwater.ingest(None, tmp_path / "typed", edges=edges, nodes={"author": 2, "paper": 5}, reverse=True)
    assert typed.node_types == {"author": 2, "paper": 5}
    assert set(typed.relations) == {("author", "writes", "paper"), ("paper", "rev_writes", "author")}


def test_arrays_are_read_where_they_lie_and_saved(tmp_path):
    edges, features = np.ascontiguousarray(ring()[:, ::-1]), np.arange(12, dtype=np.float32).reshape(6, 2)
    labels = np.array([0, 1, 0, 1, 0, 1], dtype=np.int32)
    mask = np.array([True, False, True, False, False, False])
    made = Dataset.from_arrays(
        edges, features=features, labels=labels, classes=2, train=mask, valid=np.array([1, 3]),
        weights=np.arange(12.0), edge_features=np.arange(24).reshape(12, 2), name="ring",
    )  # fmt: skip
    assert np.asarray(made.features()).ctypes.data == features.ctypes.data
    assert np.asarray(made.labels()).ctypes.data == labels.ctypes.data
    assert made.path is None and "in memory" in repr(made)
    saved = made.save(tmp_path / "ring")
    assert saved.path == str(tmp_path / "ring") and saved.name == "ring"
    saved.verify()
    for dataset in (made, saved):
        assert (np.asarray(dataset.features()) == features).all()
        assert np.asarray(dataset.labels()).tolist() == labels.tolist() and dataset.classes() == 2
        assert np.asarray(dataset.split("train")).tolist() == [0, 2]
        assert np.asarray(dataset.split("valid")).tolist() == [1, 3] and dataset.split("test") is None
        ids = np.asarray(dataset.array("edge_ids"))
        assert (np.asarray(dataset.edge_index()) == edges[:, ids]).all()
        assert (np.asarray(dataset.array("weights")) == np.arange(12.0)[ids]).all()
        assert np.asarray(dataset.features(("node", "to", "node"))).tolist() == np.arange(24).reshape(12, 2).tolist()
    with pytest.raises(TypeError, match="save it first"):
        pickle.dumps(made)
    # Edges that are in order have their positions for ids.
    in_order = Dataset.from_arrays(ring(), features=features)
    assert in_order.array("edge_ids") is None and (np.asarray(in_order.edge_index()) == ring()).all()


def test_several_types_have_dictionaries(tmp_path):
    weights = {("paper", "cites", "paper"): np.ones(2)}
    made = typed(features={"paper": np.eye(3)}, train={"paper": np.array([2])}, weights=weights)
    assert made.node_types == {"author": 2, "paper": 3} and made.features("author") is None
    for dataset in (made, made.save(tmp_path / "typed")):
        assert np.asarray(dataset.edge_index(("author", "writes", "paper"))).tolist() == [[1, 1, 0], [0, 1, 2]]
        assert np.asarray(dataset.array("weights", ("paper", "cites", "paper"))).tolist() == [1.0, 1.0]
        assert dataset.array("weights", ("author", "writes", "paper")) is None
    with pytest.raises(ValueError, match="several node types"):
        made.features()


class Sparse(SimpleNamespace):
    """What of SciPy's matrices is looked at."""

    def tocoo(self):
        rows = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        ends = (rows, self.indices) if self.format == "csr" else (self.indices, rows)
        return SimpleNamespace(row=ends[0], col=ends[1], format="coo")


def test_sparse_matrices_are_read_in_place():
    offsets, indices = np.array([0, 1, 3]), np.array([2, 0, 1])
    square = np.array([0, 1, 3, 3])
    for layout, expected in [("csc", [[2, 0, 1], [0, 1, 1]]), ("csr", [[0, 1, 1], [2, 0, 1]])]:
        made = Dataset.from_arrays(Sparse(format=layout, shape=(3, 3), indptr=square, indices=indices))
        assert np.asarray(made.array("neighbours")).ctypes.data == indices.ctypes.data
        assert np.asarray(made.edge_index()).tolist() == expected
    cites, writes = ("paper", "cites", "paper"), ("author", "writes", "paper")
    mixed = Dataset.from_arrays(
        {
            cites: Sparse(format="csc", shape=(3, 3), indptr=square, indices=indices),
            writes: Sparse(format="csr", shape=(2, 3), indptr=offsets, indices=indices),
        }
    )
    assert mixed.node_types == {"paper": 3, "author": 2}
    assert sorted(np.asarray(mixed.edge_index(writes)).T.tolist()) == [[0, 2], [1, 0], [1, 1]]


def test_matrices_of_scipy():
    sparse = pytest.importorskip("scipy.sparse")
    source, target = ring()
    matrix = sparse.coo_array((np.arange(12.0), (source, target)), shape=(6, 6))
    for given in (matrix, matrix.tocsr(), matrix.tocsc()):
        made = Dataset.from_arrays(given, weights=given.data)
        edges = np.asarray(made.edge_index())
        weights = np.asarray(made.array("weights"))
        assert sorted(zip(*edges, weights)) == sorted(zip(source, target, np.arange(12.0)))


def test_memory_that_must_not_be_written_is_not_lent_to_writers():
    features = np.ones((6, 2), dtype=np.float32)
    features.flags.writeable = False
    made = Dataset.from_arrays(ring(), features=features)
    assert not np.asarray(made.features()).flags.writeable
    assert np.asarray(made.features()).ctypes.data == features.ctypes.data
    with pytest.raises(BufferError, match="copy"):
        np.from_dlpack(made.features())
    indices = np.array([2, 0, 1])
    indices.flags.writeable = False
    lists = Dataset.from_arrays(Topology.from_lists(np.array([0, 1, 3, 3]), indices, 3), num_nodes=3)
    assert not np.asarray(lists.array("neighbours")).flags.writeable
    assert np.asarray(Dataset.from_arrays(ring(), num_nodes=6).array("neighbours")).flags.writeable
    pytest.importorskip("torch_geometric")
    copied = made.to_pyg().x
    copied += 1
    assert (features == 1).all() and (copied == 2).all()


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: Dataset.open("/nowhere/at/all"), FileNotFoundError, "headwater.json"),
        (lambda: headwater.ingest("/nowhere/edges.csv", "/tmp/never"), FileNotFoundError, "edges.csv"),
        (lambda: headwater.generate("planted", "/proc/nowhere/x", nodes=10), OSError, "/proc"),
        (lambda: headwater.generate("planned", "/tmp/never"), ValueError, "planned.*planted"),
        (lambda: headwater.generate("planted", "/tmp/never", node=10), TypeError, "node"),
        (lambda: headwater.generate("planted", "/tmp/never", homophily=2.0), ValueError, "homophily is 2"),
        (lambda: headwater.ingest("x", "/tmp/never", ids="odd"), ValueError, "ids is"),
        (lambda: Dataset.from_arrays(ring()), ValueError, "num_nodes"),
        (lambda: Dataset.from_arrays(ring(), num_nodes=5), IndexError, "is 5"),
        (lambda: Dataset.from_arrays(ring(), features=np.ones((6, 2)), labels=np.ones(5)), ValueError, "labels"),
        (lambda: Dataset.from_arrays(ring(), num_nodes=6, train=np.array([1, 6])), IndexError, r"train\[1\] is 6"),
        (lambda: Dataset.from_arrays(ring(), num_nodes=6, train=np.array([-1])), IndexError, r"train\[0\] is -1"),
        (lambda: Dataset.from_arrays(ring(), num_nodes=6, train=np.ones(7, bool)), IndexError, "is 6"),
        (lambda: Dataset.from_arrays(ring(), num_nodes=6, edge_features=np.ones((11, 2))), ValueError, "features"),
        (lambda: Dataset.from_arrays(ring(), num_nodes=6, features=np.ones((6, 1), complex)), ValueError, "complex"),
        (lambda: Dataset.from_arrays(ring(), num_nodes=6, features=[1, 2]), TypeError, "features"),
        (lambda: typed(features={"pager": np.eye(3)}), ValueError, "pager"),
        (lambda: typed(features=np.eye(3)), ValueError, "features should be a dictionary"),
        (lambda: Dataset.from_arrays({"cites": ring()}, num_nodes={}), ValueError, "cites"),
        (lambda: Dataset.from_arrays(ring(), num_nodes=6).array("colour"), ValueError, "colour"),
        (lambda: Dataset.from_arrays(ring(), num_nodes=6).features("paper"), ValueError, "paper"),
        (lambda: Dataset.from_arrays(ring(), num_nodes=6).split("tests"), ValueError, "tests"),
    ],
)
def test_wrong_arguments_are_pythons_errors(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


def test_a_folder_that_is_there_is_not_written_over(planted):
    with pytest.raises(FileExistsError, match="planted"):
        planted.save(planted.path)
    with pytest.raises(FileExistsError):
        headwater.generate("planted", planted.path, nodes=10)


def test_damage_is_found(tmp_path):
    made = headwater.generate("planted", tmp_path / "d", nodes=50, classes=2, features=2)
    file = tmp_path / "d" / "node.labels.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01\x02"[:1])
    with pytest.raises(ValueError, match="node.labels.npy"):
        Dataset.open(made.path).verify()
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(ValueError, match="node.labels.npy"):
        Dataset.open(made.path)


def test_pyg_and_back():
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric").data.Data(
        x=torch.randn(6, 3, requires_grad=True), y=torch.arange(6) % 2, edge_index=torch.from_numpy(ring()),
        edge_attr=torch.arange(12.0).view(12, 1), edge_weight=torch.rand(12), time=torch.arange(6),
        train_mask=torch.arange(6) < 3, val_mask=torch.arange(6) == 3, test_mask=torch.arange(6) > 3,
    )  # fmt: skip
    dataset = headwater.from_pyg(data)
    again = dataset.to_pyg()
    assert again.x.data_ptr() == data.x.data_ptr() and again.y.data_ptr() == data.y.data_ptr()
    assert again.num_nodes == 6 and set(again.keys()) == set(data.keys())
    for key in data.keys():
        assert torch.equal(again[key], data[key].detach()), key
    assert np.asarray(dataset.split("train")).tolist() == [0, 1, 2]


def test_typed_pyg_and_back(tmp_path):
    torch = pytest.importorskip("torch")
    HeteroData = pytest.importorskip("torch_geometric").data.HeteroData
    data = HeteroData()
    data["paper"].x, data["paper"].y = torch.randn(3, 4), torch.tensor([0, 1, 0])
    data["paper"].train_mask = torch.tensor([True, False, True])
    data["author"].num_nodes = 2
    data["author", "writes", "paper"].edge_index = torch.tensor([[1, 0, 1], [2, 0, 1]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 2], [1, 1]])
    data["paper", "cites", "paper"].edge_time = torch.tensor([9, 4])
    made = headwater.from_pyg(data)
    assert made.to_pyg()["paper"].x.data_ptr() == data["paper"].x.data_ptr()
    for dataset in (made, made.save(tmp_path / "typed")):
        again = dataset.to_pyg()
        assert isinstance(again, HeteroData) and again.num_nodes == 5
        for kind in [("author", "writes", "paper"), ("paper", "cites", "paper")]:
            assert torch.equal(again[kind].edge_index, data[kind].edge_index)
        assert torch.equal(again["paper", "cites", "paper"].edge_time, torch.tensor([9, 4]))
        assert torch.equal(again["paper"].train_mask, data["paper"].train_mask)
    with pytest.raises(TypeError, match="dict"):
        headwater.from_pyg({})


def test_folders_of_edges_of_bf16_come_back_in_torch(tmp_path):
    torch = pytest.importorskip("torch")
    features = torch.randn(6, 2).bfloat16()
    saved = Dataset.from_arrays(ring(), features=features).save(tmp_path / "half")
    found = torch.from_dlpack(saved.features())
    assert found.dtype == torch.bfloat16 and torch.equal(found, features)
    found += 1
    assert torch.equal(torch.from_dlpack(Dataset.open(saved.path).features()), features)


# Scores and plans.


def reverse_pagerank(source, target, start, iterations):
    """A node hands its score on to those that point at it, in equal parts."""
    nodes, scores = len(start), start.copy()
    degree = np.bincount(target, minlength=nodes)
    for _ in range(iterations):
        pulled = np.zeros(nodes)
        np.add.at(pulled, source, scores[target] / degree[target])
        scores = 0.15 / nodes + 0.85 * pulled
    return scores


def test_scores_are_those_of_plain_loops():
    source, target = np.random.default_rng(3).integers(0, 40, (2, 300))
    train = np.arange(10)
    dataset = Dataset.from_arrays((source, target), num_nodes=40, train=train)
    of = lambda kind, **more: np.asarray(headwater.scores(dataset, kind, **more)["node"])  # noqa: E731
    assert (of("out-degree") == np.bincount(source, minlength=40)).all()
    assert (of("in-degree") == np.bincount(target, minlength=40)).all()
    even = np.full(40, 1 / 40)
    assert np.allclose(of("pagerank"), reverse_pagerank(source, target, even, 100), atol=1e-5)
    weighted = np.where(np.arange(40) < 10, 4 / 40, 1 / 40)
    assert np.allclose(of("weighted-pagerank"), reverse_pagerank(source, target, weighted, 5), atol=1e-9)
    everything = of("presampled", fanout=[-1], batch=10, batches=3)
    reached = np.zeros(40, int)
    reached[source[np.isin(target, train)]] = reached[train] = 3
    assert (everything == reached).all()
    # A node that every batch begins with or takes is read once a batch.
    expected = of("expected", fanout=[-1], batch=10)
    assert np.allclose(expected[:10], 1.0, atol=1e-5) and (expected[reached == 0] == 0).all()
    assert (expected[(reached > 0) & (np.arange(40) >= 10)] > 0.5).all()


def test_scores_of_types_and_of_graphs_without_training_nodes():
    found = headwater.scores(typed(), "out-degree")
    assert {name: np.asarray(own).tolist() for name, own in found.items()} == {"author": [1, 2], "paper": [1, 0, 1]}
    graph = Graph([("node", 6)], [(0, "to", 0, Topology.from_coo(*ring(), 6, 6))])
    assert np.allclose(np.asarray(headwater.scores(graph, "pagerank")["node"]), 1 / 6)
    weighted = headwater.scores(graph, "weighted-pagerank", train=np.array([0]))["node"]
    start = np.array([1.0, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6])
    assert np.allclose(np.asarray(weighted), reverse_pagerank(*ring(), start, 5), atol=1e-9)
    half = np.asarray(headwater.scores(graph, "weighted-pagerank", train=np.array([0]), damping=0.5)["node"])
    once = np.asarray(headwater.scores(graph, "weighted-pagerank", train=np.array([0]), iterations=1)["node"])
    assert not np.allclose(half, weighted) and not np.allclose(once, weighted)
    for kind, wished in (("expected", {"damping": 0.5}), ("pagerank", {"iterations": 0}), ("pagerank", {"fanout": [2]})):
        with pytest.raises(ValueError, match=next(iter(wished))):
            headwater.scores(graph, kind, **wished)
    with pytest.raises(ValueError, match="no training nodes"):
        headwater.scores(graph, "expected")
    with pytest.raises(ValueError, match="pagerank"):
        headwater.scores(graph, "page-rank")
    with pytest.raises(IndexError, match="6"):
        headwater.scores(graph, "expected", train=np.array([6]))
    with pytest.raises(ValueError, match="nodes"):
        headwater.scores(graph, "expected", train={"nodes": np.array([0])})


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_a_plan_places_the_most_read_rows_first(dtype):
    reads = np.array([1, 50, 3, 30, 16], dtype=dtype)
    links = {"device": 10, "peer": 1, "host": 1, "disk": 0.5}
    found = headwater.plan(reads, 8, gpu_bytes=16, host_bytes=8, links=links)
    table = found.tables["node"]
    assert (table.replicated_end, table.interleaved_end, table.host_end) == (2, 2, 3)
    assert np.allclose([tier.hit_rate for tier in found.tiers], [0.8, 0.0, 0.16, 0.04])
    assert np.allclose([tier.bytes_per_epoch for tier in found.tiers], [640, 0, 128, 32])
    assert found.seconds_per_epoch == pytest.approx(128e-9) and "replicated" in repr(found)
    as_given = headwater.plan(reads, 8, gpu_bytes=16, host_bytes=8, in_order=True)
    assert as_given.tiers[0].hit_rate == pytest.approx(0.51)


def test_tables_share_memories():
    found = headwater.plan({"a": np.array([9, 1]), "b": np.array([5, 4])}, {"a": 4, "b": 4}, gpu_bytes=12, host_bytes=4)
    assert {name: own.replicated_end for name, own in found.tables.items()} == {"a": 1, "b": 2}
    grouped = headwater.plan(np.arange(100), 4, gpu_bytes=40, host_bytes=400, gpus=4, reads_per_epoch=1e6)
    assert grouped.tiers[1].rows > 0 and sum(tier.rows for tier in grouped.tiers) == 100


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: headwater.plan(np.arange(9), 4, gpu_bytes=4, host_bytes=4, disk=False), MemoryError, "7 rows"),
        (lambda: headwater.plan(np.array([-1]), 4, gpu_bytes=4, host_bytes=4), ValueError, "-1"),
        (lambda: headwater.plan(np.array([np.nan]), 4, gpu_bytes=4, host_bytes=4), ValueError, "NaN"),
        (lambda: headwater.plan({"a": np.arange(2)}, {"b": 4}, gpu_bytes=4, host_bytes=4), ValueError, "b"),
        (lambda: headwater.plan(np.arange(2), 4, gpu_bytes=4, host_bytes=4, links={"gpu": 1}), ValueError, "device"),
        (lambda: headwater.plan(np.arange(2), 4, gpu_bytes=4, host_bytes=4, gpus=0), ValueError, "gpus"),
    ],
)
def test_wrong_plans_are_pythons_errors(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


def test_all_of_it_works_without_torch(tmp_path):
    program = f"""
import sys
sys.modules['torch'] = None
import headwater, numpy
dataset = headwater.generate("planted", {str(tmp_path / "d")!r}, nodes=60, classes=2, features=4)
trainer = headwater.Trainer(dataset, epochs=1, hidden=4, device="cpu", output={str(tmp_path / "r")!r})
print(len(trainer.fit(progress=False).history), len(headwater.scores(dataset)["node"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "1 60", done.stderr
