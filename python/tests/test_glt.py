"""GraphLearn's surface on Headwater: layouts, samplers, negatives and features."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import headwater.glt as glt  # noqa: E402
from headwater.glt.data import DeviceGroup, Feature, Graph, Topology  # noqa: E402
from headwater.glt.data import UnifiedTensor, sort_by_in_degree  # noqa: E402
from headwater.glt.sampler import (  # noqa: E402
    EdgeSamplerInput,
    NegativeSampling,
    NeighborSampler,
    NodeSamplerInput,
    RandomNegativeSampler,
)
from headwater.glt.utils import reverse_edge_type  # noqa: E402

# Where there is a GPU these choose it.
pytestmark = pytest.mark.gpu

CPU = torch.device("cpu")
BUYS, LIKES = ("user", "buys", "item"), ("item", "likes", "item")

#   0 → 2, 1;  1 → 3;  3 → 0, 0;  nothing leaves 2. Columns come in no order.
ROW, COL = torch.tensor([3, 0, 1, 0, 3]), torch.tensor([0, 2, 3, 1, 0])
IDS, WEIGHTS = torch.tensor([50, 51, 52, 53, 54]), torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])
CSR = ([0, 2, 3, 3, 5], [1, 2, 3, 0, 0], [53, 51, 52, 50, 54], [3.0, 1.0, 2.0, 0.0, 4.0])
CSC = ([0, 2, 3, 4, 5], [3, 3, 0, 0, 1], [50, 54, 53, 51, 52], [0.0, 4.0, 3.0, 1.0, 2.0])


def lists(topology):
    return tuple(own.tolist() for own in (topology.indptr, topology.indices, topology.edge_ids, topology.edge_weights))


def random_edges(nodes=60, edges=900, seed=0):
    return torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(seed))


def graph_of(edges, edge_dir="out", **carried):
    return Graph(Topology(edges, layout="CSR" if edge_dir == "out" else "CSC", **carried), "CPU")


def shop(edge_dir="out", count=40):
    """Users buy the two items after their number; items like the two after the next."""
    nodes = torch.arange(count).repeat_interleave(2)
    step = torch.tensor([0, 1]).repeat(count)
    edges = {
        BUYS: torch.stack([nodes, (nodes + step + 1) % count]),
        LIKES: torch.stack([nodes, (nodes + step + 2) % count]),
    }
    return edges, {kind: graph_of(own, edge_dir) for kind, own in edges.items()}


# Topologies ###########################################################################################################


@pytest.mark.parametrize("kept", ["CSR", "CSC"])
@pytest.mark.parametrize(
    ("came", "given"),
    [
        ("COO", ((ROW, COL), IDS, WEIGHTS)),
        ("coo", (torch.stack([ROW, COL]).int(), IDS, WEIGHTS.double())),
        ("COO", (np.stack([ROW, COL]), IDS.numpy(), WEIGHTS.numpy())),
        ("CSR", ((CSR[0], CSR[1]), torch.tensor(CSR[2]), torch.tensor(CSR[3]))),
        ("CSC", ((CSC[1], CSC[0]), torch.tensor(CSC[2]), torch.tensor(CSC[3]))),
    ],
)
def test_every_layout_gives_the_same_lists(came, given, kept):
    topology = Topology(*given, input_layout=came, layout=kept)
    assert lists(topology) == (CSR if kept == "CSR" else CSC)
    offsets, cols, ids, weights = topology.to_csr()
    assert (offsets.tolist(), cols.tolist(), ids.tolist(), weights.tolist()) == CSR
    rows, offsets, ids, weights = topology.to_csc()
    assert (offsets.tolist(), rows.tolist(), ids.tolist(), weights.tolist()) == CSC
    row, col, ids, weights = topology.to_coo()
    assert sorted(zip(row.tolist(), col.tolist(), ids.tolist(), weights.tolist())) == sorted(
        zip(ROW.tolist(), COL.tolist(), IDS.tolist(), WEIGHTS.tolist())
    )
    assert (topology.row_count, topology.edge_count) == (4, 5)
    assert topology.degrees.tolist() == np.diff((CSR if kept == "CSR" else CSC)[0]).tolist()
    assert topology["edge_ids"] is topology.edge_ids and topology["nothing"] is None


def test_graphs_count_what_lists_name_and_empty_ones_are_graphs():
    graph = graph_of([[0, 0], [7, 2]])
    assert (graph.row_count, graph.col_count, graph.edge_count) == (1, 8, 2)
    empty = graph_of(torch.empty(2, 0, dtype=torch.long))
    assert (empty.row_count, empty.col_count, empty.edge_count) == (0, 0, 0)
    out = NeighborSampler(empty, [2], num_nodes=3).sample_from_nodes(torch.tensor([2]))
    assert out.node.tolist() == [2] and out.row.dtype == torch.long and out.num_sampled_edges == [0]
    assert [own.tolist() for own in graph.export_topology()] == [[0, 2], [2, 7], [1, 0]]


def test_lists_go_on_being_walked_when_they_are_shared():
    graph = graph_of(random_edges())
    sampler = NeighborSampler(graph, [5, 5], with_edge=True)
    draw = lambda: sampler.sample_from_nodes(torch.arange(9), numbers=(1, 2, 3)).edge.tolist()  # noqa: E731
    before = draw()
    graph.topo.share_memory_()
    assert graph.topo.indices.is_shared() and draw() == before


# Samplers #############################################################################################################


@pytest.mark.parametrize("edge_dir", ["out", "in"])
def test_every_neighbour_is_found_in_order(edge_dir):
    sampler = NeighborSampler(graph_of((ROW, COL), edge_dir, edge_ids=IDS), [-1, 5], with_edge=True, edge_dir=edge_dir)
    out = sampler.sample_from_nodes(torch.tensor([3, 0, 3]))
    node, edge = out.node, dict(zip(IDS.tolist(), zip(ROW.tolist(), COL.tolist())))
    expected = {"out": ([3, 0, 1, 2], [50, 54, 53, 51, 52]), "in": ([3, 0, 1], [52, 50, 54, 53])}[edge_dir]
    assert (node.tolist(), out.edge.tolist()) == expected
    # Edges point to whoever asked: turned around where they were followed from their sources.
    ends = list(zip(node[out.row].tolist(), node[out.col].tolist()))
    assert ends == [edge[own][:: -1 if edge_dir == "out" else 1] for own in out.edge.tolist()]
    assert out.batch.tolist() == [3, 0] and sum(out.num_sampled_nodes) == node.numel()
    assert len(out.num_sampled_nodes) == 3 and sum(out.num_sampled_edges) == out.edge.numel()


def test_neighbours_are_drawn_once_and_by_number():
    edges = random_edges()
    make = lambda seed: NeighborSampler(graph_of(edges), [4, 3], with_edge=True, seed=seed)  # noqa: E731
    out = make(1).sample_from_nodes(torch.arange(20))
    assert out.edge.unique().numel() == out.edge.numel() and out.node.unique().numel() == out.node.numel()
    counts = torch.bincount(out.col[: out.num_sampled_edges[0]], minlength=20)
    assert counts.tolist() == torch.bincount(edges[0], minlength=60)[:20].clamp(max=4).tolist()
    sampler, twin, other = make(1), make(1), make(2)
    drawn = [[own.sample_from_nodes(torch.arange(20)).edge.tolist() for _ in range(2)] for own in (sampler, twin, other)]
    assert drawn[0] == drawn[1] and drawn[0] != drawn[2] and drawn[0][0] != drawn[0][1]


def test_one_hop_is_told_by_seed():
    out = NeighborSampler(graph_of((ROW, COL)), with_edge=True).sample_one_hop(torch.tensor([3, 2, 0, 3]), 5)
    assert (out.nbr.tolist(), out.nbr_num.tolist()) == ([0, 0, 1, 2, 0, 0], [2, 0, 2, 2])
    assert out.edge.tolist() == [0, 4, 3, 1, 0, 4]
    star = graph_of(torch.stack([torch.zeros(40, dtype=torch.long), torch.arange(40)]))
    assert NeighborSampler(star, seed=1).sample_one_hop(torch.zeros(50, dtype=torch.long), 1).nbr.unique().numel() > 10
    _, graphs = shop()
    out = NeighborSampler(graphs, [1]).sample_one_hop(torch.tensor([7, 7]), -1, BUYS)
    assert (out.nbr.tolist(), out.nbr_num.tolist(), out.edge) == ([8, 9, 8, 9], [2, 2], None)


def test_weights_say_how_often_edges_are_drawn():
    edges = torch.tensor([[0, 0, 0], [1, 2, 3]])
    sampler = NeighborSampler(graph_of(edges, edge_weights=torch.tensor([0.0, 1.0, 3.0])), [1], with_weight=True, seed=3)
    counts = torch.zeros(4)
    for _ in range(2000):
        counts[sampler.sample_from_nodes(torch.tensor([0])).node[1]] += 1
    # Three standard deviations of a share of 3/4.
    assert counts[1] == 0 and abs(float(counts[3]) / 2000 - 0.75) < 3 * (0.75 * 0.25 / 2000) ** 0.5


@pytest.mark.parametrize("edge_dir", ["out", "in"])
def test_types_are_turned_around_where_edges_are(edge_dir):
    edges, graphs = shop(edge_dir)
    sampler = NeighborSampler(graphs, {BUYS: [2, 0], LIKES: [0, 2]}, with_edge=True, edge_dir=edge_dir)
    start = "user" if edge_dir == "out" else "item"
    out = sampler.sample_from_nodes(NodeSamplerInput(torch.tensor([1, 9]), start))
    for kind in out.row:
        asked = reverse_edge_type(kind) if edge_dir == "out" else kind
        ends = torch.stack([out.node[kind[0]][out.row[kind]], out.node[kind[2]][out.col[kind]]])
        ends = ends.flip(0) if edge_dir == "out" else ends
        assert torch.equal(ends, edges[asked][:, out.edge[kind]]) and ends.size(1) > 0
    told = {kind: own.tolist() for kind, own in out.num_sampled_edges.items()}
    if edge_dir == "out":
        # Items are 2, 3, 10 and 11; those that they like are 4, 5, 6 and 12, 13, 14.
        assert told == {("item", "rev_buys", "user"): [4], LIKES: [0, 8]}
        assert {kind: own.tolist() for kind, own in out.num_sampled_nodes.items()} == {"user": [2], "item": [0, 4, 6]}
    else:
        # The second hop begins at users, who like nothing.
        assert told == {BUYS: [4]} and set(out.node) == {"user", "item"}
    assert set(out.get_edge_index()) == set(out.edge_types)


def test_pyg_v1_hops_and_subgraphs():
    sampler = NeighborSampler(graph_of((ROW, COL)), [-1, -1], with_edge=True)
    size, nodes, (second, first) = sampler.sample_pyg_v1(torch.tensor([1, 1]))
    assert (size, nodes.tolist()) == (1, [1, 3, 0]) and (first.size, second.size) == ((2, 1), (3, 2))
    assert first.edge_index.tolist() == [[1], [0]] and second.e_id.tolist() == [2, 0, 4]
    out = NeighborSampler(graph_of((ROW, COL)), with_edge=True).subgraph(torch.tensor([3, 0, 3]))
    assert (out.node.tolist(), out.metadata.tolist(), out.edge.tolist()) == ([0, 3], [1, 0, 1], [0, 4])
    assert (out.row.tolist(), out.col.tolist()) == ([0, 0], [1, 1])
    out = sampler.subgraph(torch.tensor([1]))
    assert (out.node.tolist(), out.metadata.tolist(), out.edge.tolist()) == ([0, 1, 3], [1], [3, 2, 0, 4])


def test_chances_are_those_of_many_samples():
    edges = random_edges(30, 200).unique(dim=1)
    sampler = NeighborSampler(graph_of(edges), [2], seed=5, num_nodes=30)
    seeds, counts, times = torch.tensor([4, 11, 20]), torch.zeros(30), 3000
    for _ in range(times):
        counts[sampler.sample_from_nodes(seeds).node] += 1
    found = sampler.sample_prob(seeds, 30)
    # Four standard deviations, for thirty nodes.
    assert ((counts / times - found).abs() <= 4 * (found * (1 - found) / times).sqrt() + 1e-6).all()
    assert found[seeds].tolist() == [1, 1, 1] and found.max() <= 1
    _, graphs = shop()
    seeds = NodeSamplerInput(torch.tensor([1]), "user")
    by_type = NeighborSampler(graphs, [-1, -1]).sample_prob(seeds, {"user": 40, "item": 41})
    assert by_type["item"].nonzero().view(-1).tolist() == [2, 3, 4, 5, 6] and by_type["user"].sum() == 1


# Negatives ############################################################################################################


@pytest.mark.parametrize("edge_dir", ["out", "in"])
@pytest.mark.parametrize("density", [0.1, 0.97])
def test_negatives_are_never_edges(edge_dir, density):
    generator = torch.Generator().manual_seed(1)
    is_edge = torch.rand(20, 20, generator=generator) < density
    is_edge[:, 7], is_edge[3, 7], is_edge[19, 0], is_edge[0, 19] = True, False, True, True
    is_edge[is_edge.all(dim=1), 5] = False
    edges = is_edge.nonzero().t()
    sampler = NeighborSampler(graph_of(edges, edge_dir), [2], edge_dir=edge_dir, seed=1)
    row, col = edges[:, :40]
    out = sampler.sample_from_edges(EdgeSamplerInput(row, col, neg_sampling=NegativeSampling("binary", 2)))
    source, target = out.node[out.metadata["edge_label_index"]]
    assert torch.equal(source[:40], row) and torch.equal(target[:40], col) and source.numel() == 120
    assert not is_edge[source[40:], target[40:]].any() and out.metadata["edge_label"].tolist() == [1] * 40 + [0] * 80
    out = sampler.sample_from_edges(EdgeSamplerInput(row, col, neg_sampling=NegativeSampling("triplet", 3)))
    wrong = out.node[out.metadata["dst_neg_index"]]
    assert wrong.shape == (40, 3) and not is_edge[row.view(-1, 1), wrong].any()
    assert torch.equal(out.node[out.metadata["src_index"]], row)
    assert torch.equal(out.node[out.metadata["dst_pos_index"]], col)
    pairs = RandomNegativeSampler(graph_of(edges, edge_dir), "CPU", edge_dir, seed=0)
    assert not is_edge[tuple(pairs.sample(30))].any() and pairs.sample(30, 1, padding=True).shape == (2, 30)


def test_negatives_are_even_and_by_weight():
    graph = graph_of(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
    drawn = RandomNegativeSampler(graph, "CPU", seed=2).sample(12000, trials_num=50)
    counts = torch.bincount(drawn[0] * 4 + drawn[1], minlength=16)
    assert (counts > 0).sum() == 12 and (counts[counts > 0] - 1000).abs().max() < 4 * 1000**0.5
    weight = torch.tensor([0.0, 0.0, 1.0, 0.0])
    wished = NegativeSampling("triplet", 2, weight)
    inputs = EdgeSamplerInput(torch.tensor([0, 3]), torch.tensor([1, 0]), neg_sampling=wished)
    out = NeighborSampler(graph, [0]).sample_from_edges(inputs)
    assert out.node[out.metadata["dst_neg_index"]].tolist() == [[2, 2], [2, 2]]


def test_links_between_types():
    edges, graphs = shop()
    inputs = EdgeSamplerInput(*edges[BUYS][:, [3, 8]], torch.tensor([5, 7]), BUYS, NegativeSampling("binary"))
    out = NeighborSampler(graphs, [2], with_edge=True).sample_from_edges(inputs)
    source, target = out.metadata["edge_label_index"]
    bought, items = out.node["user"][source], out.node["item"][target]
    assert torch.equal(torch.stack([bought, items])[:, :2], edges[BUYS][:, [3, 8]])
    gap = (items - bought)[2:] % 40
    assert not ((gap == 1) | (gap == 2)).any() and out.metadata["edge_label"].tolist() == [5, 7, 0, 0]
    rows = out.node["item"][out.row["item", "rev_buys", "user"]]
    asked = out.node["user"][out.col["item", "rev_buys", "user"]]
    assert torch.equal(torch.stack([asked, rows]), edges[BUYS][:, out.edge["item", "rev_buys", "user"]])
    seeds = {kind: own.numel() for kind, own in out.batch.items()}
    assert seeds == {kind: int(own[0]) for kind, own in out.num_sampled_nodes.items()}


# Features #############################################################################################################

DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16, torch.bfloat16]
DTYPES += [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_every_type(dtype):
    rows = (torch.arange(24).view(8, 3) % 5).to(dtype)
    ids = torch.tensor([7, 0, 3, 3])
    table = UnifiedTensor(-1, dtype)
    table.init_from([rows[:5], rows[5:]], [-1, -1])
    assert (table.shape, table.numel, table.size(1), table.stride(0), table.stride(1)) == ([8, 3], 24, 3, 3, 1)
    for found in (Feature(rows, with_gpu=False, dtype=dtype)[ids], table[ids]):
        assert found.dtype == dtype and torch.equal(found.to(torch.complex128), rows[ids].to(torch.complex128))


@pytest.mark.parametrize("split", [0.0, 0.5, 1.0])
def test_rows_are_found_by_id_wherever_they_lie(split):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = torch.arange(20.0).view(10, 2)
        topology = Topology(torch.tensor([[0, 1, 1, 1, 4, 4], [1, 0, 2, 3, 0, 1]]))
        hot, places = sort_by_in_degree(rows, split, topology)
        assert sorted(places.tolist()) == list(range(10)) and torch.equal(hot[places], rows)
        if split == 0:
            assert hot[:3, 0].tolist() == [2, 8, 0] and places[5:].tolist() == [5, 6, 7, 8, 9]
        feature = Feature(hot, places, split, [DeviceGroup(0, [0])], 0)
        ids = torch.tensor([9, 1, 4])
        assert torch.equal(feature[ids].cpu(), rows[ids]) and torch.equal(feature.cpu_get(ids), rows[ids])
        assert list(feature.shape) == [10, 2] and feature.size(0) == 10
    assert sort_by_in_degree(rows, 0.5, None) == (rows, None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_defaults_are_the_cpus():
    program = """
import torch, warnings
from headwater.glt.data import *
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    graph = Graph(Topology(torch.tensor([[0], [1]])))
    graph.lazy_init()
    assert Feature(torch.ones(3, 2))[torch.tensor([1])].device.type == "cpu"
    assert Feature(torch.ones(3, 2), split_ratio=0.5, device=0)[torch.tensor([1])].sum() == 2
own = [one for one in said if "no GPU" in str(one.message)]
assert len(own) == 1, said
cuda = Graph(Topology(torch.tensor([[0], [1]])), "cuda", 0)
try:
    cuda.lazy_init()
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=120)
    assert "'CUDA', but torch finds no GPU" in done.stdout, done.stderr


def test_what_the_cpu_does_for_a_gpu_is_said_once(monkeypatch):
    from headwater.glt import _places
    from headwater.glt.sampler.links import Negatives

    # Tensors without memory stand in for those of a GPU.
    meta = torch.device("meta")
    monkeypatch.setattr(_places, "is_on_gpu", lambda device: device == meta)
    monkeypatch.setattr(_places, "resolve", lambda device: CPU if device == CPU else meta)
    monkeypatch.setattr(_places, "_said", set())
    rows, graph = torch.arange(20.0).view(10, 2), graph_of(random_edges())

    def from_host():
        table = UnifiedTensor(0)
        table.init_from([rows], [-1])
        assert table[torch.tensor([1])].device == meta

    def from_several():
        table = Feature(rows, split_ratio=1.0, device_group_list=[DeviceGroup(0, [0, 1])])._split(0)
        assert table.shape == [10, 2]

    def negatives():
        assert RandomNegativeSampler(graph, "CUDA").sample(3).device == meta

    def of_links():
        walk = NeighborSampler(graph, [2], device=CPU)._walk
        walk.device = meta
        Negatives(walk, "out").of(None)

    words = {
        from_host: "rows of a UnifiedTensor in host memory are gathered by the CPU",
        from_several: "features of several GPUs are gathered part by part",
        negatives: "negatives are drawn by the CPU",
    }
    for use, expected in words.items():
        with pytest.warns(RuntimeWarning, match=expected):
            use()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for use in (*words, of_links):
            use()
        # On the CPU everything is where its name tells.
        _places._said.clear()
        RandomNegativeSampler(graph, "CPU").sample(3)
        UnifiedTensor(-1).init_from([rows], [-1])
    with pytest.warns(RuntimeWarning, match="negatives are drawn by the CPU"):
        of_links()


def test_weights_keep_their_kind():
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)
    topology = Topology((ROW, COL), edge_weights=weights)
    assert topology.edge_weights.dtype == torch.float64
    assert torch.equal(topology.edge_weights.sort().values, weights)
    sampler = NeighborSampler(Graph(topology, "CPU"), [1], device=CPU, with_weight=True)
    assert sampler.sample_from_nodes(NodeSamplerInput(torch.tensor([0, 3]))).row.numel() == 2
    small = Topology((ROW, COL), edge_weights=weights * 1e-60)
    with pytest.raises(ValueError, match="divide all by the largest"):
        NeighborSampler(Graph(small, "CPU"), [1], device=CPU, with_weight=True).sample_from_nodes(
            NodeSamplerInput(torch.tensor([0]))
        )


def test_names_are_graphlearns():
    assert reverse_edge_type(("a", "rev", "b")) == ("b", "rev_rev", "a")
    assert reverse_edge_type(("a", "to", "a")) == ("a", "to", "a")
    out = {"a": [1]}
    glt.utils.merge_dict({"a": 2, "b": 3}, out)
    assert out == {"a": [1, 2], "b": [3]}
    counts = {}
    glt.utils.count_dict({"a": [7, 7]}, counts, 3)
    assert counts == {"a": [0, 0, 2]} and glt.as_str(BUYS) == "user__buys__item"
    assert glt.utils.parse_size("2MB") == 2**21 and not hasattr(glt, "distributed")
