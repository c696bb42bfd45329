"""Arrays, graphs and samples without torch."""

import gc
import threading

import headwater
import numpy as np
import pytest
from headwater import Graph, Sampler, Topology


def ring(nodes=6):
    """Every node is reached from the two before it."""
    target = np.repeat(np.arange(nodes), 2)
    source = (target - np.tile([1, 2], nodes)) % nodes
    return source, target


def graph_of(source, target, nodes, **carried):
    return Graph([("node", nodes)], [(0, "to", 0, Topology.from_coo(source, target, nodes, nodes, **carried))])


def test_the_package_has_a_version_and_needs_no_torch():
    assert headwater.__version__.count(".") == 2


def test_lists_hold_the_edges_of_their_targets():
    topology = Topology.from_coo(np.array([0, 2, 1]), np.array([1, 1, 2]), 3, 3)
    assert np.asarray(topology.offsets()).tolist() == [0, 0, 2, 3]
    assert np.asarray(topology.neighbours()).tolist() == [0, 2, 1]
    by_source = Topology.from_coo(np.array([0, 2, 1]), np.array([1, 1, 2]), 3, 3, "csr")
    assert np.asarray(by_source.offsets()).tolist() == [0, 1, 2, 3]
    assert np.asarray(by_source.edge_ids()).tolist() == [0, 2, 1]
    assert (topology.rows, topology.edges) == (3, 3)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_every_neighbour_is_found_and_named(dtype):
    source, target = ring()
    sampler = Sampler(graph_of(source.astype(dtype), target.astype(dtype), 6), [[-1], [-1]])
    sample = sampler.sample([(0, np.array([3], dtype=dtype), None)], (1, 0, 0))
    nodes = np.asarray(sample.nodes(0))
    row, col = np.asarray(sample.edges(0))
    ids = np.asarray(sample.edge_ids(0))
    assert nodes.tolist() == [3, 2, 1, 0, 5]
    assert sample.nodes_per_hop(0) == [1, 2, 2]
    assert sample.edges_per_hop(0) == [2, 4]
    assert (nodes[row] == source[ids]).all() and (nodes[col] == target[ids]).all()
    assert {row.dtype, nodes.dtype, ids.dtype} == {np.dtype(np.int64)}


def test_a_sample_depends_on_its_numbers_alone():
    source, target = np.random.default_rng(0).integers(0, 100, (2, 5000))
    sampler = Sampler(graph_of(source, target, 100), [[5], [5]])
    seeds = [(0, np.arange(20), None)]
    draw = lambda batch: np.asarray(sampler.sample(seeds, (7, 0, batch)).edge_ids(0)).tolist()  # noqa: E731
    first = draw(0)
    assert draw(0) == first and draw(1) != first
    found = [None] * 8
    threads = [threading.Thread(target=lambda at=at: found.__setitem__(at, draw(at % 2))) for at in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [first, draw(1)] * 4


def test_disjoint_trees_weights_and_times():
    source, target = ring()
    trees = Sampler(graph_of(source, target, 6), [[-1]], disjoint=True).sample([(0, np.array([3, 4]), None)], (0, 0, 0))
    assert np.asarray(trees.trees(0)).tolist() == [0, 1, 0, 0, 1, 1]
    weights = np.where(source == 2, 1.0, 0.0)
    weighted = Sampler(graph_of(source, target, 6, weights=weights), [[-1]], weighted=True)
    assert np.asarray(weighted.sample([(0, np.array([3]), None)], (0, 0, 0)).nodes(0)).tolist() == [3, 2]
    timed = Sampler(graph_of(source, target, 6, node_times=np.arange(6)), [[-1]], disjoint=True)
    sample = timed.sample([(0, np.array([3]), np.array([1]))], (0, 0, 0))
    assert np.asarray(sample.nodes(0)).tolist() == [3, 1]


def test_induced_samples_have_every_edge_among_their_nodes():
    source, target = ring()
    sampler = Sampler(graph_of(source, target, 6), [[1]])
    sample = sampler.sample_induced([(0, np.array([3, 2, 1]), None)], (0, 0, 0))
    nodes = set(np.asarray(sample.nodes(0)).tolist())
    expected = [at for at in range(12) if source[at] in nodes and target[at] in nodes]
    assert sorted(np.asarray(sample.edge_ids(0)).tolist()) == expected


def test_memory_is_held_as_long_as_it_is_read():
    source, target = ring(1000)
    graph = graph_of(source, target, 1000)
    lists = Topology.from_lists(np.arange(0, 2001, 2), source.copy(), 1000)
    del source, target
    gc.collect()
    expected = Sampler(graph, [[-1]]).sample([(0, np.array([500]), None)], (0, 0, 0))
    borrowed = Sampler(Graph([("n", 1000)], [(0, "to", 0, lists)]), [[-1]])
    nodes = borrowed.sample([(0, np.array([500]), None)], (0, 0, 0)).nodes(0)
    assert np.asarray(nodes).tolist() == np.asarray(expected.nodes(0)).tolist() == [500, 499, 498]
    # What was sampled outlives its sample, whichever protocol sees it.
    seen = [np.asarray(expected.nodes(0)), np.from_dlpack(expected.nodes(0))]
    del expected, nodes
    gc.collect()
    assert [own.tolist() for own in seen] == [[500, 499, 498]] * 2


def test_read_only_and_empty_arrays_are_read():
    source, target = ring()
    source.flags.writeable = False
    assert graph_of(source, target, 6).edges == 12
    empty = np.zeros(0, dtype=np.int64)
    graph = graph_of(empty, empty, 3)
    sample = Sampler(graph, [[2]]).sample([(0, np.array([1]), None)], (0, 0, 0))
    assert np.asarray(sample.nodes(0)).tolist() == [1] and sample.edges(0).shape == (2, 0)
    assert repr(graph).startswith("Graph(nodes {node: 3}, edges {") and repr(graph).endswith(": 0})")


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: Topology.from_coo(np.array([0, 7]), np.array([1, 1]), 3, 3), IndexError, "7"),
        (lambda: Topology.from_coo(np.array([0, -1]), np.array([1, 1]), 3, 3), IndexError, "-1"),
        (lambda: Topology.from_coo(np.array([0.5]), np.array([1]), 3, 3), ValueError, "F64"),
        (lambda: Topology.from_coo(np.array([0, 1]), np.array([1]), 3, 3), ValueError, "2"),
        (lambda: Topology.from_coo(np.arange(6)[::2], np.arange(3), 9, 9), ValueError, "contiguous"),
        (lambda: Topology.from_coo(np.zeros((2, 2), int), np.arange(2), 9, 9), ValueError, "dimensions"),
        (lambda: Topology.from_coo([0, 1], np.arange(2), 9, 9), TypeError, "list"),
        (lambda: Topology.from_coo(np.arange(2), np.arange(2), 9, 9, "coo"), ValueError, "csc"),
        (lambda: Topology.from_coo(np.arange(2), np.arange(2), 9, 9, weights=-np.ones(2)), ValueError, "-1"),
        (lambda: Topology.from_lists(np.array([0, 2, 1, 2]), np.arange(2), 9), ValueError, "fall"),
        (lambda: Sampler(graph_of(*ring(), 6), [[-2]]), ValueError, "-2"),
        (lambda: Sampler(graph_of(*ring(), 6), [[2]], weighted=True), ValueError, "weights"),
        (lambda: Sampler(graph_of(*ring(), 6), [[2]]).sample([(0, np.array([6]), None)], (0, 0, 0)), IndexError, "6"),
        (lambda: Sampler(graph_of(*ring(), 6), [[2]]).sample([(1, np.array([0]), None)], (0, 0, 0)), ValueError, "type"),
        (lambda: Graph([("a", 1), ("a", 1)], []), ValueError, "twice"),
    ],
)
def test_wrong_arguments_are_pythons_errors(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


@pytest.mark.parametrize("on", ["caller", "threads", "run"])
def test_a_panic_is_a_runtime_error(on):
    with pytest.raises(RuntimeError, match=f"asked for on {on}"):
        headwater._headwater._panic(on)
    # Threads go on.
    assert np.asarray(headwater.take_rows(np.arange(6).reshape(3, 2), np.array([1]))).tolist() == [[2, 3]]
