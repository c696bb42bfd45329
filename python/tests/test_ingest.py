"""Sources of every kind against what they plainly mean, and what is said of those that mean something else."""

import gzip
import io
import logging
import os
import random

import headwater
import numpy as np
import pytest
from headwater import Dataset

EDGES = np.array([[0, 1, 2], [1, 2, 3]])


def ingested(folder, **arrays):
    np.savez(folder / "graph.npz", **arrays)
    return headwater.ingest(folder / "graph.npz", folder / "out")


@pytest.mark.parametrize(
    "text, keywords, words",
    [
        ("0,1\n1,x\n2,3\n", {}, 'line 2: column 1: "x" is not an id: a whole number from 0 on; most ids are numbers'),
        ("0,1\n-1,2\n2,3\n", {}, 'line 2: column 0: "-1" is not'),
        ("ann,\nbob,ann\n", {}, "is not an id: some text in UTF-8"),
        ("0,1\n", {"nodes": {"paper": 3}}, "node types are: node"),
        ("0,1\n", {"labels": "values"}, "a kind of labels"),
        ("0,1\n", {"labels": "some"}, "labels is"),
        ("src,dst\n", {}, "there is no edge"),
    ],
)
def test_edge_lists_that_are_refused(tmp_path, text, keywords, words):
    (tmp_path / "edges.csv").write_text(text)
    with pytest.raises(ValueError) as raised:
        headwater.ingest(tmp_path / "edges.csv", tmp_path / "out", **keywords)
    assert words in str(raised.value)
    assert os.listdir(tmp_path) == ["edges.csv"]


@pytest.mark.parametrize(
    "text, edges, words",
    [
        ("user,item\nann,book\nbob,pen\n", 2, "line 1 is taken for the names of columns (user, item)"),
        ("0,1,5\n1,2,6\n", 2, "nothing is taken from column 2"),
        ("0,1\nann,bob\nbob,eve\n", 3, "ids are names, also those that are numbers"),
    ],
)
def test_what_is_guessed_is_told(tmp_path, caplog, text, edges, words):
    (tmp_path / "edges.csv").write_text(text)
    with caplog.at_level(logging.WARNING):
        assert headwater.ingest(tmp_path / "edges.csv", tmp_path / "out").edges == edges
    assert words in caplog.text


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="no regular file"):
        headwater.ingest(tmp_path / "pipe", tmp_path / "out")


@pytest.mark.parametrize("dtype", ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
def test_features_of_any_type_can_be_trained_on(tmp_path, dtype):
    features = np.array([[1, 0], [0, 1], [1, 1], [0, 0]], dtype)
    labels, (train, valid) = np.array([0, 1, 0, 1]), (np.array([0, 1]), np.array([2, 3]))
    made = ingested(tmp_path, edge_index=EDGES, x=features, y=labels, train_idx=train, val_idx=valid)
    assert np.array_equal(np.asarray(made.features()), features.astype("f4"))
    short = {"model": "sage", "layers": 1, "fanout": [2], "epochs": 1, "device": "cpu"}
    headwater.Trainer(made, output=tmp_path / "run", **short).fit(progress=False)


def test_numbers_to_predict(tmp_path, caplog):
    made = ingested(tmp_path, edge_index=EDGES, x=np.eye(4), y=np.array([0.5, 1.25, -3.0, 2.0]))
    assert np.asarray(made.labels()).tolist() == [0.5, 1.25, -3.0, 2.0]
    np.savez(tmp_path / "whole.npz", edge_index=EDGES, y=np.array([1.0, 2.0, 3.0, 2.0]))
    values = headwater.ingest(tmp_path / "whole.npz", tmp_path / "values", labels="values")
    assert np.asarray(values.labels()).dtype == np.float32
    with caplog.at_level(logging.WARNING):
        classes = headwater.ingest(tmp_path / "whole.npz", tmp_path / "classes")
    assert np.asarray(classes.labels()).dtype == np.int64 and "taken for classes" in caplog.text


def test_splits_that_overlap_are_told(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        splits = {"train_idx": np.array([0, 1]), "val_idx": np.array([1, 2]), "test_idx": np.array([3, 3])}
        ingested(tmp_path, edge_index=EDGES, **splits)
    assert "train and valid share nodes: 1 of them, 1 first" in caplog.text
    assert "test names nodes more than once: 1 times, 3 first" in caplog.text


def test_statements_to_predict_are_there(tmp_path):
    head, rel, tail = np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([1, 2, 0])
    made = ingested(tmp_path, head=head, rel=rel, tail=tail, split=np.array([0, 1, 2]))
    assert made.edges == 1
    assert [np.asarray(made.links(split)).tolist() for split in ("train", "valid", "test")] == [
        [[0, 0, 1]], [[1, 0, 2]], [[2, 1, 0]]]  # fmt: skip
    with pytest.raises(ValueError, match="neither"):
        made.links("neither")


def test_damage_is_not_saved_as_good(tmp_path):
    made = headwater.generate("planted", tmp_path / "data", nodes=3000, features=16, classes=3)
    file = tmp_path / "data" / "node.features.npy"
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    for attempt in (
        lambda: Dataset.open(tmp_path / "data", verify=True),
        lambda: Dataset.open(tmp_path / "data").save(tmp_path / "copy"),
        lambda: made.verify(),
    ):
        with pytest.raises(ValueError, match="node.features.npy: the checksum is"):
            attempt()
    assert not (tmp_path / "copy").exists()
    small = tmp_path / "data" / "node.train.npy"
    content = bytearray(small.read_bytes())
    content[-2] ^= 1
    small.write_bytes(content)
    with pytest.raises(ValueError, match="node.train.npy: the checksum is"):
        Dataset.open(tmp_path / "data")


def plain_model(pairs):
    """Ids in ascending order, and edges by their places."""
    ids = sorted({end for pair in pairs for end in pair}, key=lambda end: end.encode() if isinstance(end, str) else end)
    at = {end: place for place, end in enumerate(ids)}
    return ids, sorted((at[source], at[target]) for source, target in pairs)


@pytest.mark.parametrize("seed", range(12))
def test_texts_of_any_form(tmp_path, seed):
    draw = random.Random(seed)
    is_named, delimiter, end = draw.random() < 0.5, draw.choice([",", "\t", ";", "|", " "]), draw.choice(["\n", "\r\n"])
    known = "ann bob eve joe kim ünal".split() if is_named else range(0, 99, 7)
    pairs = [(draw.choice(known), draw.choice(known)) for _ in range(draw.randrange(4, 30))]
    lines = [f"{source}{delimiter}{target}" for source, target in pairs]
    for _ in range(draw.randrange(3)):
        lines.insert(draw.randrange(len(lines)), draw.choice(["# nothing", "", "% x"]))
    if draw.random() < 0.5:
        lines.insert(0, f"source{delimiter}target")
    text = ("\ufeff" * (draw.random() < 0.3) + end.join(lines) + draw.choice(["", end])).encode()
    source = tmp_path / "edges"
    source.write_bytes(gzip.compress(text) if draw.random() < 0.5 else text)
    made = headwater.ingest(source, tmp_path / "out", reverse=False, layout=draw.choice(["csc", "csr"]))
    ids, edges = plain_model(pairs)
    assert sorted(map(tuple, np.asarray(made.edge_index()).T.tolist())) == edges
    originals = [made.original_id(node) for node in range(len(ids))]
    assert originals == [str(own) for own in ids] or (originals == [None] * len(ids) and ids == list(range(len(ids))))


@pytest.mark.parametrize("seed", range(12))
def test_archives_of_any_form(tmp_path, seed):
    draw = np.random.default_rng(seed)
    nodes, edges = int(draw.integers(1, 9)), int(draw.integers(0, 20))
    ends = draw.integers(0, nodes, (2, edges))
    dtype = draw.choice(["i8", "i4", "u4", "u2", "i2", "u1"])
    forms = {
        "index": {"edge_index": ends.astype(dtype)},
        "fortran": {"edge_index": np.asfortranarray(ends.astype(dtype))},
        "pairs": {"row": ends[0].astype(dtype), "col": ends[1].astype(dtype)},
    }
    order = np.argsort(ends[0], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(ends[0], minlength=nodes))])
    forms["csr"] = {"indptr": starts.astype(dtype), "indices": ends[1][order].astype(dtype)}
    form = draw.choice(sorted(forms))
    members = dict(forms[form], num_nodes=np.array(nodes), x=draw.integers(0, 9, (nodes, 2)).astype(dtype))
    members["y"] = draw.integers(-1, 3, nodes)
    mask = draw.random(nodes) < 0.5
    members.update({"train_mask": mask} if seed % 2 else {"train_idx": np.flatnonzero(mask)})
    packed = io.BytesIO()
    (np.savez_compressed if seed % 3 else np.savez)(packed, **members)
    (tmp_path / "graph.npz").write_bytes(packed.getvalue())
    made = headwater.ingest(tmp_path / "graph.npz", tmp_path / "out")
    found = sorted(map(tuple, np.asarray(made.edge_index()).T.tolist()))
    assert found == sorted(map(tuple, ends.T.tolist())), form
    assert np.array_equal(np.asarray(made.features()), members["x"].astype("f4"))
    assert np.array_equal(np.asarray(made.labels()), members["y"])
    assert np.array_equal(np.asarray(made.split("train")), np.flatnonzero(mask))
