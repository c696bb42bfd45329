"""Every keyword of the package changes something that can be seen, or is refused by its name.

No keyword is listed here. The tests walk what the package shows, change one keyword after the other to other values of its
kind, and compare what comes out with what came out without it. A keyword that is taken and changes nothing fails, and so
does a refusal that does not name it. Whatever has keywords needs a call that succeeds (`BASES`, or `ON_GPU` where it needs a
GPU); a callable without one fails.
"""

from __future__ import annotations

import copy
import enum
import functools
import importlib
import inspect
import os
import pkgutil
import re
import shutil
import threading
import time
import types
import warnings

import numpy
import pytest

import headwater

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("headwater.pyg")
glt = pytest.importorskip("headwater.glt")
data_of = pytest.importorskip("torch_geometric.data")
pytest.importorskip("transformers")

from headwater import _headwater  # noqa: E402
from headwater.offload.hugging_face import OffloadCallback  # noqa: E402
from headwater.offload.report import Report  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch_geometric.loader import LinkLoader, NodeLoader  # noqa: E402
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput  # noqa: E402

NODES, EDGES = 40, 160
CPU = torch.device("cpu")
BUYS = ("user", "buys", "item")

# What is walked ######################################################################################################


def modules():
    """Those that the package shows, and those that they show."""
    left, found = [headwater, *(getattr(headwater, name) for name in dir(headwater) if name in headwater._PACKAGES)], []
    while left:
        module = left.pop()
        found.append(module)
        shown = (getattr(module, name) for name in module.__all__)
        left += [own for own in shown if isinstance(own, types.ModuleType) and own not in found]
    return found


def classes():
    """All of the package's own, by name: what a callable hands out need not be shown."""
    found = {}
    for about in pkgutil.walk_packages(headwater.__path__, "headwater."):
        for name, own in vars(importlib.import_module(about.name)).items():
            if inspect.isclass(own) and own.__module__ == about.name:
                found[name] = own
    return found


def walked():
    """Everything of the package's own that can be called, by its name: what is shown, and what that says it returns."""
    left = [(module, name, getattr(module, name)) for module in modules() for name in module.__all__]
    known, done = classes(), set()
    while left:
        module, name, shown = left.pop(0)
        is_kind = inspect.isclass(shown)
        if not (is_kind or inspect.isroutine(shown)) or not _is_ours(shown) or (is_kind and issubclass(shown, enum.Enum)):
            continue
        if is_kind and shown in done:
            continue
        label = f"{module.__name__}.{name}".removeprefix("headwater.")
        found = [(label, shown)]
        if is_kind:
            done.add(shown)
            own = dict.fromkeys(key for owner in shown.__mro__ if _is_ours(owner) for key in vars(owner))
            below = [key for key in own if (not key.startswith("_") or key == "__call__") and callable(getattr(shown, key))]
            below = [key for key in below if not _is_an_event(shown, key)]
            found += [(f"{label}.{key}", getattr(shown, key)) for key in below]
        yield from found
        for _, called in found:
            told = getattr(called, "__annotations__", {}).get("return")
            named = [known[word] for word in re.findall(r"\w+", told if isinstance(told, str) else "") if word in known]
            left += [(inspect.getmodule(kind), kind.__name__, kind) for kind in named if kind not in done]


def _is_ours(owner):
    return (getattr(owner, "__module__", None) or "headwater").split(".")[0] in ("headwater", "_headwater")


def _is_an_event(kind, key):
    """Whether the Trainer of transformers calls it, with whatever that has."""
    return key.startswith("on_") and any(owner.__module__.startswith("transformers.") for owner in kind.__mro__)


def keywords(called):
    """Those that have a default, by name."""
    try:
        parameters = inspect.signature(called).parameters.values()
    except ValueError:
        # The constructor is torch's, or Python's own of exceptions.
        assert inspect.isclass(called) and issubclass(called, (torch.Tensor, Exception)), called
        return {}
    return {own.name: own.default for own in parameters if own.default is not own.empty}


def takes_any(called):
    try:
        return any(own.kind is own.VAR_KEYWORD for own in inspect.signature(called).parameters.values())
    except ValueError:
        return False


def is_abstract(called):
    """Whether only users implement it."""
    return getattr(called, "__isabstractmethod__", False)


LABELS = {
    label: called
    for label, called in walked()
    if (keywords(called) or takes_any(called)) and not is_abstract(called)
}


def known_fields(place):
    """Every field of a run, with what the base has."""
    return {name: value for name, value in place.run.config.items() if name not in ("dataset", "out")}


def of_loader(*kinds):
    """What goes on to loaders of PyG's and torch's."""
    return lambda place: {name: value for kind in (DataLoader, *kinds) for name, value in keywords(kind.__init__).items()}


# Who gets what a `**` takes.
REST = {
    "Trainer": known_fields,
    "Trainer.resume": known_fields,
    "Trainer.predict": lambda place: keywords(headwater.Run.predict),
    "offload_callback": lambda place: keywords(headwater.Offload),
    "offload.hugging_face.OffloadCallback": lambda place: keywords(headwater.Offload),
    "generate": lambda place: {**keywords(_headwater.generate_planted), "nodes": 30},
    "generate of rmat": lambda place: {**keywords(_headwater.generate_rmat), "nodes_log2": 5},
    "generate of a shape": lambda place: {**keywords(_headwater.generate_like), "scale": 0.01},
    "pyg.NeighborLoader": of_loader(NodeLoader),
    "pyg.LinkNeighborLoader": of_loader(LinkLoader),
    **{
        f"glt.loader.{name}": of_loader()
        for name in ("LinkLoader", "LinkNeighborLoader", "NeighborLoader", "NodeLoader", "SubGraphLoader")
    },
    **{
        f"glt.sampler.{name}.cast": lambda place, name=name: keywords(getattr(glt.sampler, name))
        for name in ("EdgeSamplerInput", "HeteroSamplerOutput", "NegativeSampling", "NodeSamplerInput", "SamplerOutput")
    },
    **{
        f"compile.Layer.{name}": lambda place: dict(place.layer._options)
        for name in ("__call__", "explain", "module")
    },
}  # fmt: skip

# Whose effect no program sees, and why. They are called all the same, and refuse what they do not know.
UNSEEN = {
    ("Trainer", "threads"): "what is learnt does not depend on them",
    ("Trainer.resume", "threads"): "what is learnt does not depend on them",
    ("Trainer", "sampler"): "the same is drawn, whoever draws",
    ("Trainer.resume", "sampler"): "the same is drawn, whoever draws",
    ("ingest", "format"): "it is found out where it is not said, and another than it is, is refused",
    ("pyg.NeighborLoader", "device"): "batches are the same, and an emulated GPU has no memory of its own",
    ("pyg.LinkNeighborLoader", "device"): "batches are the same, and an emulated GPU has no memory of its own",
    ("pyg.NeighborSampler", "device"): "samples are the same, and an emulated GPU has no memory of its own",
    ("UnifiedTensor.mem_advise", "device"): "the driver is told, which shows in speed alone",
    ("UnifiedTensor.memAdvise", "device"): "the driver is told, which shows in speed alone",
    **{
        (label, keyword): why
        for label in ("Offload", "offload_callback", "offload.hugging_face.OffloadCallback")
        for keyword, why in {
            "allow_buffered": "only file systems without direct I/O ask for it",
            "allow_network": "only file systems of other machines ask for it",
            "policy": "on a CPU all leaves, and a plan is refused",
        }.items()
    },
    ("Offload.hint", "microbatch"): "what comes back early is the same",
    ("compile", "tune"): "a CPU has no schedules, and on a GPU they show in last bits alone",
    ("compile.Layer", "tune"): "a CPU has no schedules, and on a GPU they show in last bits alone",
    ("compile.Layer.module", "tune"): "a CPU has no schedules, and on a GPU they show in last bits alone",
}


def asked_of(place, label):
    """All keywords of a callable, those behind a `**` too."""
    called = LABELS.get(label)
    rest = REST[label](place) if label in REST else {}
    return {**rest, **(keywords(called) if called is not None else {})}


# What is seen ########################################################################################################

_calls = []


def noted(*given, **named):
    """Something to call: it is seen that it was called."""
    _calls.append(len(given))
    return given[0] if given else None


def upended(rows, split_ratio, topo):
    """Rows in another order, and where they went: what `sort_func` of GraphLearn does."""
    return rows.flip(0), torch.arange(rows.size(0) - 1, -1, -1)


def seen(value, depth=0):
    """Something comparable that follows from what a value holds, and not from where it lies."""
    if isinstance(value, torch.Tensor) or type(value) is headwater.Array:
        array = value.detach().cpu() if isinstance(value, torch.Tensor) else numpy.asarray(value)
        return str(array.dtype), tuple(array.shape), array.tolist()
    if isinstance(value, numpy.ndarray):
        return str(value.dtype), value.shape, value.tolist()
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, (torch.dtype, torch.device, enum.Enum)):
        return repr(value)
    if isinstance(value, dict):
        return {repr(key): seen(own, depth + 1) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [seen(own, depth + 1) for own in value]
    if hasattr(value, "to_dict") and isinstance(value, (data_of.Data, data_of.HeteroData)):
        return [type(value).__name__, seen(value.to_dict(), depth + 1)]
    if isinstance(value, headwater.Dataset):
        return of_dataset(value)
    return seen(vars(value), depth + 1) if depth < 4 and hasattr(value, "__dict__") else type(value).__name__


def of_dataset(dataset):
    arrays = {}
    for kind in dataset.node_types:
        arrays[kind] = [dataset.features(kind), dataset.labels(kind), dataset.classes(kind)]
        arrays[kind] += [dataset.split(split, kind) for split in ("train", "valid", "test")]
        arrays[kind] += [dataset.array("times", kind), dataset.original_id(0, kind)]
    for relation in dataset.relations:
        arrays[relation] = [dataset.edge_index(relation), dataset.features(relation), dataset.labels(relation)]
        arrays[relation] += [dataset.array(what, relation) for what in ("weights", "times")]
    return seen([dataset.name, dataset.node_types, dict(dataset.relations), arrays, dataset._raw.layout])


# Other values ########################################################################################################

KINDS = {
    bool: lambda now: [not now],
    int: lambda now: [now + 1, now + 6, now * 2, 0, now + 0.001],
    float: lambda now: [now / 2, now + 0.25],
    str: lambda now: ["nonsense"],
    tuple: lambda now: [(2, 2), (2,), [2], [noted], [tripled]],
    list: lambda now: [[own + 1 for own in now], now[:1]],
    torch.dtype: lambda now: [torch.float64],
    torch.device: lambda now: ["nonsense"],
}


class OtherTensorAttr(data_of.TensorAttr):
    """One of the user's."""


class OtherEdgeAttr(data_of.EdgeAttr):
    """One of the user's."""


class OtherData(data_of.Data):
    """One of the user's."""


def anything(place):
    """A value of every kind that a keyword without a default may be."""
    order = torch.arange(EDGES - 1, -1, -1)
    numbers = torch.arange(NODES - 1, -1, -1)
    ends = torch.stack([numbers, numbers.roll(3)])
    yield from (1, 2, 0.5, "time", "weight", "nonsense", True, False, numbers[:7], numbers, order, order.float() + 1)
    yield from (numbers.float().unsqueeze(1), numbers % 3, order.float().unsqueeze(1), order % 2, ends, numbers % 2 == 0)
    yield from (noted, upended, {"node": numbers[:5]}, {"device": 1.0, "peer": 2.0, "host": 3.0, "disk": 4.0})
    yield from ("item", {"user": torch.arange(4)}, {("item", "rev_buys", "user"): torch.arange(4)})
    yield from ("node", ("node", "to", "node"), NODES + 3, [1, 2, 3], os.sep, (1, 2, 3), (numbers[:2],) * 3, (90, 90))
    yield from (OtherTensorAttr, OtherEdgeAttr, OtherData, torch.float64, [[0, 1], [2]], torch.Generator().manual_seed(9))
    yield from ("binary", NegativeSampling("binary"), ("binary", 2), {"node": 1.0}, place.edges, BUYS)
    yield from ((place.edges, torch.arange(EDGES) % 3), torch.arange(30) + 3)
    yield from (place.other, place.other.path, place.folder / "graph.csv", "from", "weight", "when", ",")
    yield from (place.other_sampler, place.glt_sampler, place.glt_graph, place.glt_feature, place.glt_groups)
    yield from ([glt.data.DeviceGroup(0, [0])], place.optimizer, {BUYS: os.fspath(place.folder / "graph.csv")})


def others(place, default):
    for kind, values in KINDS.items():
        if type(default) is kind:
            return [value for value in values(default) if type(value) is not kind or value != default]
    return list(anything(place))


def words_of(why):
    """What a refusal says that a value may be."""
    said = re.split(r"should be|should name|one of|there is|there are|expected|known", why, maxsplit=1)
    return list(dict.fromkeys(re.findall(r"[A-Za-z][\w.-]*[\w]", said[-1]))) if len(said) > 1 else []


# How each is called ##################################################################################################


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """What takes any text for a folder writes it here."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("options"))


class Place:
    """A graph in every form that callables take, made once."""

    def __init__(self, folder):
        torch.manual_seed(1)
        self.folder, self.count = folder, 0
        self.edges = torch.randint(0, NODES, (2, EDGES))
        planted = {"nodes": NODES, "edges_per_node": 4, "classes": 3, "features": 4}
        self.dataset = headwater.generate("planted", folder / "data", **planted)
        self.other = headwater.generate("planted", folder / "other", **planted, seed=7)
        self.data = data_of.Data(
            x=torch.rand(NODES, 4), edge_index=self.edges, y=torch.arange(NODES) % 3,
            time=torch.arange(NODES), stamp=torch.arange(NODES, 0, -1), weight=torch.rand(EDGES),
        )  # fmt: skip
        self.topology = headwater.Topology.from_coo(self.edges[0], self.edges[1], NODES, NODES)
        weighted = headwater.Topology.from_coo(
            self.edges[0], self.edges[1], NODES, NODES, weights=torch.rand(EDGES), times=torch.arange(EDGES)
        )
        self.graph = headwater.Graph([("node", NODES)], [(0, "to", 0, self.topology)])
        self.weighted = headwater.Graph([("node", NODES)], [(0, "to", 0, weighted)])
        self.run = headwater.Trainer(self.dataset, **self.small(), output=folder / "run").fit(progress=False)
        self.trainer = headwater.Trainer.resume(copied(self), epochs=4)
        with open(folder / "graph.csv", "w") as file:
            file.write("from,to,weight,when\n")
            file.writelines(f"{edge % 20},{(edge * 7 + 1) % 20},{edge % 3},{edge}\n" for edge in range(60))
        (folder / "named.csv").write_text("by,of,from,to\nann,pen,user,item\nbob,book,user,item\n")
        columns = {"source_column": "by", "target_column": "of", "source_type_column": "from", "target_type_column": "to"}
        self.named = headwater.ingest(folder / "named.csv", folder / "named", **columns)
        self.typed = typed_dataset()
        self.layer = headwater.compile(with_option)
        self.other_sampler = pyg.NeighborSampler(self.data, [1], seed=9)
        self.glt_graph = glt.data.Graph(glt.data.Topology(self.edges, edge_weights=torch.rand(EDGES)), "CPU")
        self.glt_feature = glt.data.Feature(torch.rand(NODES, 2), with_gpu=False)
        self.glt_sampler = glt.sampler.NeighborSampler(self.glt_graph, [1], CPU, seed=9)
        self.glt_data = glt_dataset(self)
        self.glt_groups = [glt.data.DeviceGroup(0, [0])]
        self.model = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def small(self):
        return {"device": "cpu", "hidden": 4, "epochs": 3, "fanout": [2, 2], "batch": 8, "rate": 0.5}

    def new(self, name="new"):
        self.count += 1
        return self.folder / f"{name}-{self.count}"


LIKES = ("user", "likes", "item")


def typed_dataset():
    edges = {
        BUYS: numpy.array([[0, 1, 2, 2], [0, 1, 2, 0]]),
        LIKES: numpy.array([[3, 1], [2, 0]]),
    }
    generator = numpy.random.default_rng(2)
    rows = {kind: generator.random((count, 2), numpy.float32) for kind, count in (("user", 4), ("item", 3))}
    labels = {"user": numpy.arange(4) % 2, "item": numpy.arange(3)}
    classes, train = {"user": 2, "item": 3}, {"user": numpy.array([0, 2]), "item": numpy.array([1])}
    return headwater.Dataset.from_arrays(edges, features=rows, labels=labels, classes=classes, train=train)


# Layers, whose text is read. Both functions are called the same.


def twice(x):
    return x + x


doubled = twice


def twice(x):  # noqa: F811
    return x + x + x


tripled = twice


def with_function(g, x: node[d]):  # noqa: F821
    for n in g.dst_nodes():
        n["out"] = sum(twice(e.src.x) for e in n.incoming_edges())


def with_option(g, x: node[d], p: float = 0.5, slope: float = 0.2, bias: bool = False):  # noqa: F821
    for n in g.dst_nodes():
        n["out"] = dropout(leaky_relu(sum(e.src.x for e in n.incoming_edges()), slope), p)  # noqa: F821
        if bias:
            n["out"] += n.x


BY_TYPE = """
def by_type(g, x: node[d], W: matrix[etype, d, d], V: matrix[ntype, d, d], E: vector[node, d]):
    for e in g.edges():
        e["m"] = linear(e.src.x + e.src.E, W[e.etype])
    for n in g.dst_nodes():
        n["out"] = sum(e["m"] for e in n.incoming_edges()) + linear(n.x, V[n.ntype])
"""


def attempt(make):
    """What comes out, or why nothing does."""
    try:
        return seen(make())
    except Exception as why:
        return f"{type(why).__name__}: {why}"


def sample(place, **more):
    drawn = headwater.Sampler(place.weighted, [[3], [3]], **more).sample([(0, torch.arange(6), None)], (1, 0, 0))
    return [drawn.nodes(0), drawn.trees(0), drawn.edges(0), drawn.edge_ids(0), drawn.edges_per_hop(0)]


def lists(topology):
    graph = headwater.Graph([("node", NODES)], [(0, "to", 0, topology)])
    draws = []
    for more in ({}, {"weighted": True}, {"last": True}):
        try:
            drawn = headwater.Sampler(graph, [[2]], **more).sample(
                [(0, torch.arange(NODES), torch.full((NODES,), EDGES // 2))], (1, 0, 0)
            )
            draws.append([drawn.edges(0), drawn.edge_ids(0)])
        except Exception as why:
            draws.append(str(why))
    edges = headwater.Dataset.from_arrays(topology, num_nodes=NODES).edge_index()
    return [topology.offsets(), topology.neighbours(), topology.edge_ids(), edges, draws]


def from_lists(place, **more):
    offsets, neighbours = (torch.from_dlpack(own) for own in (place.topology.offsets(), place.topology.neighbours()))
    return lists(headwater.Topology.from_lists(offsets, neighbours, NODES, **{"times": torch.arange(EDGES, 0, -1), **more}))


def trained(place, trainer):
    run = trainer.fit(progress=False)
    history = [{key: value for key, value in epoch.items() if "seconds" not in key} for epoch in run.history]
    files = [os.path.basename(path) for path in run.checkpoints]
    served = run.summary.get("features"), run.summary.get("feature_hit_rate")
    kept = run.path if not run.path.startswith(str(place.folder)) else ""
    return [history, files, served, numpy.asarray(run.predict(form="logits")), kept, run.best_epoch, trainer._raw.note]


def begun(place, **more):
    return trained(place, headwater.Trainer(place.dataset, **{**place.small(), "output": place.new("run"), **more}))


def resumed(place, **more):
    return trained(place, headwater.Trainer.resume(copied(place), **{"epochs": 4, **more}))


def flipped(place):
    """A dataset with another number among its features than its checksum is of."""
    folder = place.new("flipped")
    # Smaller files are compared with their checksums whenever they are opened.
    headwater.generate("planted", folder, nodes=NODES, features=512, classes=3)
    with open(folder / "node.features.npy", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 0x80]))
    return folder


def copied(place):
    folder = place.new("copy")
    shutil.copytree(place.run.path, folder)
    return folder


def shown(place, more):
    """What a run calls and shows."""
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        headwater.Trainer(place.dataset, **place.small(), output=place.new("run")).fit(**more)
    return bool(said.getvalue())


def told(run):
    """What a run in a folder says of itself."""
    return [run.summary, run.is_stopped, run.predict(form="logits"), run.history, run.config]


def ingested(place, **more):
    source = None if "edges" in more and "source" not in more else place.folder / "graph.csv"
    return headwater.ingest(source, place.new(), **{"name": "graph", **more})


def unpacked(place, **more):
    file = place.folder / "arrays.npz"
    if not file.exists():
        rows = {"x_indptr": numpy.arange(21), "x_indices": numpy.arange(20) % 4, "x_values": numpy.ones(20), "x_shape": [20, 4]}
        ends = numpy.stack([numpy.arange(20), (numpy.arange(20) * 3) % 20])
        numpy.savez(file, edge_index=ends, y=(numpy.arange(20) % 3).astype("f8"), **rows)
    return headwater.ingest(file, place.new(), **{"name": "graph", **more})


def slashed(place, **more):
    """Text that can be read in two ways."""
    file = place.folder / "slashed.csv"
    file.write_text("a/1,b/2\nc/1,a/2\nb/2,c/1\n")
    return headwater.ingest(file, place.new(), **{"name": "graph", **more})


def compiled(place, layer=None, **more):
    torch.manual_seed(3)
    made = headwater.compile(with_option if layer is None else layer, **more)
    return made(place.edges, torch.arange(NODES * 2.0).view(-1, 2))


def with_uses(place, **more):
    made = headwater.compile(with_function, **{"uses": [doubled], **more})
    return made(place.edges, torch.arange(NODES * 2.0).view(-1, 2))


def named_layer(place, **more):
    kind = type(place.layer)
    good = kind(*place.layer._made_of[:1], **more)
    try:
        kind("def f(g, x: node[d]):\n    for n in g.nodes()\n        pass\n", **more)
    except SyntaxError as why:
        return [good.__name__, why.filename]


def called_layer(place, **more):
    torch.manual_seed(3)
    return place.layer(place.edges, torch.linspace(-1, 1, NODES * 2).view(-1, 2), **more)


def explained(place, graph=None, **more):
    arrays = [] if graph is None else [torch.ones(NODES, 4)]
    return place.layer.explain(graph, *arrays, **more)


def module_of(place, **more):
    made = headwater.compile(BY_TYPE).module(**{"d": 2, "num_nodes": NODES, "seed": 5, **more})
    return dict(made.named_parameters())


def module_with_option(place, **more):
    torch.manual_seed(3)
    return place.layer.module(**{"d": 2, **more})(place.edges, torch.linspace(-1, 1, NODES * 2).view(-1, 2))


def reset(place, **more):
    made = headwater.compile(BY_TYPE).module(d=2, num_nodes=NODES, seed=5)
    torch.manual_seed(3)
    made.reset_parameters(**more)
    return dict(made.named_parameters())


def forwarded(place, **more):
    made = headwater.compile(BY_TYPE).module(d=2, num_nodes=NODES, seed=5)
    return made((place.edges, torch.zeros(EDGES, dtype=torch.long)), **{"x": torch.ones(NODES, 2), **more})


def layer_graph(place, **more):
    ends = torch.stack([place.edges[0], place.edges[1] % 2])
    graph = headwater.LayerGraph(ends, NODES, **{"num_written": NODES, **more})
    arranged = graph.on_host("as they are")
    x = torch.arange(NODES * 2.0).view(-1, 2)
    kinds = ("ntype", "etype", "node.src", "node.dst")
    rows = [arranged.native.rows(kind) for kind in kinds]
    return [rows, attempt(lambda: place.layer(graph, x, training=False)[: graph.targets[0]])]


def unified(place, **more):
    tensor = torch.arange(6.0).view(3, 2).share_memory_()
    made = headwater.unified(tensor, **more)
    tensor[0, 0] = 9
    return [made.affinity, made.host.clone()]


def offloaded(place, make=headwater.Offload, **more):
    """What leaves, in how much room. Nothing is written: how much of it would be depends on how fast the disk is."""
    folder = place.new()
    os.makedirs(folder)
    given = {"disk": folder, "device": "cpu", "host": 1 << 20, "slot": 4096, "smallest": 0, "allow_buffered": True, **more}
    made = make(**given)
    off = getattr(made, "off", made)
    weight = torch.ones(64, 64, requires_grad=True)
    with off:
        loss = (weight * 2).exp().tanh().sum()
    loss.backward()
    report = off.report()
    opened = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    lengths = [os.stat(path).st_size for path in opened if os.path.exists(path) and os.readlink(path).startswith(str(folder))]
    return [report.blocks, sorted(report.kept), report.host, report.endurance, lengths]


def hinted(place, **more):
    folder = place.new()
    os.makedirs(folder)
    off = headwater.Offload(disk=folder, device="cpu", host=1 << 20, slot=4096, smallest=0, allow_buffered=True)
    off.hint(**{"next": "forward", **more})
    with off:
        loss = (torch.ones(64, 64, requires_grad=True) * 2).exp().sum()
    loss.backward()
    return sorted(map(str, next(iter(off._sites.values()))._microbatches))


def checkpointed(place, **more):
    return headwater.checkpoint(lambda x: x * 2, torch.ones(3, requires_grad=True), **more).detach()


def unified_device(place, **more):
    there = headwater.device(**more)
    headwater.enable_unified_device()
    try:
        return torch.ones(3, device=there).affinity
    finally:
        headwater.disable_unified_device()


# Loaders. Whose threads the user's code runs in, and how far ahead batches are asked for, is seen too.


class Watch:
    """Code of the user's in a loader."""

    def __init__(self, naps=False):
        self.epochs, self.naps = [], naps

    def __call__(self, value):
        if self.naps and not self.epochs[-1]:
            time.sleep(0.02)
        self.epochs[-1].add(threading.current_thread())
        return value

    def facts(self):
        first, second = ({own for own in epoch if own is not threading.main_thread()} for epoch in self.epochs)
        return [bool(first), bool(first & second)]


class Asked:
    """Batches of positions that say how many of them were asked for."""

    def __init__(self):
        self.count = 0

    def __iter__(self):
        for first in range(0, 30, 2):
            self.count += 1
            yield [first, first + 1]

    def __len__(self):
        return 15


def batches(loader, watch=None):
    """An epoch of a loader, or two and what threads did in them."""
    found = []
    for _ in range(1 if watch is None else 2):
        if watch is not None:
            watch.epochs.append(set())
        try:
            found.append(list(loader))
        except RuntimeError as why:
            if "timed out" not in str(why):
                raise
            return "late"
    return [found, [] if watch is None else watch.facts()]


def asked_for(make):
    """How many batches a loader has asked for when it gives the first."""
    wished = Asked()
    epoch = iter(make(wished))
    next(epoch)
    count = wished.count
    epoch.close()
    return count


def pyg_loaders(kind, **base):
    """The ways in which a loader of PyG's is called."""

    def plain(place, **more):
        return batches(kind(place.data, [3, 2], **{**base, "shuffle": True, "seed": 5, **more}))

    def in_time(place, **more):
        times = {"input_time": torch.full((30,), 20)} if "input_nodes" in base else {"edge_label_time": torch.full((EDGES,), 20)}
        return batches(kind(place.data, [3, 2], **{**base, **times, "time_attr": "stamp", "seed": 5, **more}))

    def by_workers(place, **more):
        watch = Watch(naps="timeout" in more)
        return batches(kind(place.data, [3], **{**base, "num_workers": 2, "transform": watch, "seed": 5, **more}), watch)

    def ahead(place, **more):
        left = {name: own for name, own in base.items() if name != "batch_size"}
        return asked_for(lambda wished: kind(place.data, [3], **{**left, "num_workers": 2, "batch_sampler": wished, **more}))

    def of_stores(place, **more):
        return batches(kind(stores(place), [3], **{**base, "seed": 5, **more}))

    return (plain, in_time, by_workers, ahead, *([of_stores] if "input_nodes" in base else []))


def stores(place):
    features, graph = pyg.FeatureStore(), pyg.GraphStore()
    features.put_tensor(place.data.x, group_name=None, attr_name="x", index=None)
    graph.put_edge_index(place.edges, edge_type=None, layout="coo", size=(NODES, NODES))
    return features, graph


def glt_dataset(place, edge_dir="out"):
    data = glt.data.Dataset(edge_dir=edge_dir)
    data.init_graph(place.edges, edge_weights=torch.rand(EDGES, generator=torch.Generator().manual_seed(4)), graph_mode="CPU")
    data.init_node_features(place.data.x, with_gpu=False)
    data.init_edge_features(torch.arange(EDGES * 1.0).view(-1, 1), with_gpu=False)
    data.init_node_labels(place.data.y)
    return data


def glt_typed():
    data = glt.data.Dataset()
    edges = {BUYS: torch.tensor([[0, 1, 2, 2], [0, 1, 2, 0]]), LIKES: torch.tensor([[3, 1], [2, 0]])}
    data.init_graph(edges, graph_mode="CPU")
    data.init_node_features({"user": torch.rand(4, 2), "item": torch.rand(3, 2)}, with_gpu=False)
    data.init_edge_features({BUYS: torch.rand(4, 2), LIKES: torch.rand(2, 2)}, with_gpu=False)
    data.init_node_labels({"user": torch.arange(4), "item": torch.arange(3)})
    return data


class WatchedSampler(glt.sampler.NeighborSampler):
    """A sampler of the user's."""

    def _sample(self, *given):
        return self.watch(super()._sample(*given))

    def subgraph(self, *given, **named):
        return self.watch(super().subgraph(*given, **named))


def glt_loaders(make, size=7):
    """The ways in which a loader of GraphLearn's is called: `make` is given the dataset and a sampler."""

    def plain(place, **more):
        data = place.glt_data
        sampler = glt.sampler.NeighborSampler(data.graph, [3, 2], CPU, seed=5, num_nodes=NODES)
        return batches(make(data, sampler, False, **{"batch_size": size, "shuffle": True, "device": CPU, "seed": 5, **more}))

    def by_workers(place, **more):
        data = place.glt_data
        sampler = WatchedSampler(data.graph, [3, 2], CPU, seed=5, num_nodes=NODES)
        watch = sampler.watch = Watch(naps="timeout" in more)
        wished = {"batch_size": size, "num_workers": 2, "device": CPU, "seed": 5, **more}
        return batches(make(data, sampler, True, **wished), watch)

    def ahead(place, **more):
        data = place.glt_data
        sampler = glt.sampler.NeighborSampler(data.graph, [3, 2], CPU, seed=5, num_nodes=NODES)
        wished = {"num_workers": 2, "device": CPU, **more}
        return asked_for(lambda asked: make(data, sampler, False, batch_sampler=asked, **wished))

    return plain, by_workers, ahead


def node_loader(data, sampler, is_given, **more):
    return glt.loader.NodeLoader(data, sampler, torch.arange(30), **more)


def link_loader(data, sampler, is_given, **more):
    return glt.loader.LinkLoader(data, sampler, **more)


def neighbor_loader(data, sampler, is_given, **more):
    more = {"neighbor_sampler": sampler, **more} if is_given else more
    return glt.loader.NeighborLoader(data, [3, 2], torch.arange(30), **more)


def link_neighbor_loader(data, sampler, is_given, **more):
    more = {"neighbor_sampler": sampler, **more} if is_given else more
    return glt.loader.LinkNeighborLoader(data, [3, 2], **more)


def subgraph_loader(data, sampler, is_given, **more):
    more = {"neighbor_sampler": sampler, **more} if is_given else more
    return glt.loader.SubGraphLoader(data, torch.arange(30), **{"num_neighbors": [3, 2], **more})


def of_glt(data):
    """All that a dataset of GraphLearn's says."""
    graph = None if data.graph is None else [data.graph.topo.to_coo(), data.graph.mode, data.graph.place]
    rows = [None if own is None else [own[torch.arange(3)], own[torch.arange(3)].device, own.share_ipc()] for own in (data.node_features, data.edge_features)]
    return [data.edge_dir, graph, rows, data.node_labels, data.train_idx, data.val_idx, data.test_idx]


def init_graph(place, **more):
    data = glt.data.Dataset()
    data.init_graph(**{"edge_index": place.edges, "graph_mode": "CPU", **more})
    # The order of rows follows from the direction.
    data.init_node_features(place.data.x, sort_func=glt.data.sort_by_in_degree, with_gpu=False)
    return [of_glt(data), data.node_features.id2index]


def init_rows(name):
    def init(place, **more):
        data = glt.data.Dataset()
        data.init_graph(place.edges, graph_mode="CPU")
        given = {"init_node_features": "node_feature_data", "init_edge_features": "edge_feature_data"}[name]
        getattr(data, name)(**{given: torch.arange(EDGES * 2).view(-1, 2), "with_gpu": False, **more})
        return of_glt(data)

    return init


def init_labels(place, **more):
    data = glt.data.Dataset()
    data.init_node_labels(**{"node_label_data": torch.arange(NODES), **more})
    labels = data.node_labels
    return labels[torch.arange(3)]


def of_feature(place, **more):
    feature = glt.data.Feature(torch.arange(NODES * 2).view(-1, 2), **{"with_gpu": False, **more})
    rows = feature[torch.arange(3)]
    return [rows, rows.device, feature.share_ipc()]


def glt_table(place, **more):
    table = glt.data.UnifiedTensor(-1, **more)
    table.init_from([torch.arange(6).view(3, 2).to(table.dtype)], [-1])
    return table[torch.tensor([2, 0])]


def glt_drawn(place, **more):
    graph = place.glt_data.graph
    sampler = glt.sampler.NeighborSampler(graph, **{"num_neighbors": [3, 2], "device": CPU, "seed": 5, **more})
    wished = glt.sampler.EdgeSamplerInput(torch.arange(3), torch.arange(3), neg_sampling="binary")
    beyond = attempt(lambda: sampler.sample_from_nodes(torch.tensor([NODES + 1])))
    ready = len(sampler._negatives._pairs)
    return [sampler.sample_from_nodes(torch.arange(6)), sampler.sample_from_edges(wished), beyond, ready]


def glt_sampler_of(place):
    return glt.sampler.NeighborSampler(place.glt_data.graph, [3, 2], CPU, seed=5)


def negatives(place, **more):
    return glt.sampler.RandomNegativeSampler(place.glt_graph, **{"mode": "CPU", "seed": 5, **more}).sample(30)


def few_negatives(place, **more):
    """Nearly all pairs are edges."""
    ends = torch.cartesian_prod(torch.arange(6), torch.arange(6))[:-3].t()
    graph = glt.data.Graph(glt.data.Topology(ends), "CPU")
    return glt.sampler.RandomNegativeSampler(graph, "CPU", seed=5).sample(40, **more)


def output_of(kind):
    return lambda place, **more: kind(torch.arange(3), torch.arange(2), torch.arange(2), **more)


def hetero_output(place, **more):
    out = glt.sampler.HeteroSamplerOutput({"user": torch.arange(3), "item": torch.arange(2)}, {}, {}, **more)
    return [out, out.get_edge_index()]


def to_data(place, **more):
    out = glt_sampler_of(place).sample_from_edges(glt.sampler.EdgeSamplerInput(torch.arange(3), torch.arange(3) + 1))
    return glt.loader.to_data(out, **more)


def to_hetero_data(place, **more):
    data = glt_typed()
    sampler = glt.sampler.NeighborSampler(data.graph, [2], CPU, seed=5, with_edge=True)
    out = sampler.sample_from_edges(glt.sampler.EdgeSamplerInput(torch.arange(2), torch.arange(2), input_type=BUYS))
    return glt.loader.to_hetero_data(out, **more)


def saved(place, **more):
    folder = place.new("ckpt")
    glt.utils.save_ckpt(1, folder, place.model, **more)
    return torch.load(folder / "model_seq_1.ckpt", weights_only=True)


def loaded(place, **more):
    folder = place.new("ckpt")
    fast = torch.optim.Adam(place.model.parameters(), lr=0.25)
    glt.utils.save_ckpt(1, folder, place.model, fast, 3)
    epoch = glt.utils.load_ckpt(1, folder, place.model, **more)
    rates = [own.param_groups[0].pop("lr") for own in more.values()]
    for own in more.values():
        own.param_groups[0]["lr"] = 0.001
    return [epoch, rates]


def drawn_by_pyg(place, **more):
    sampler = pyg.NeighborSampler(place.data, [3, 2], **{"seed": 5, **more})
    return sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(6)))


def ends_of_pyg():
    return EdgeSamplerInput(None, torch.arange(4), torch.arange(4) + 3)


def of_graph(graph):
    return None if graph is None else graph.topo.to_coo()


BASES = {
    "Dataset.open": lambda place, **more: attempt(lambda: headwater.Dataset.open(flipped(place), **more)),
    "open": lambda place, **more: attempt(lambda: headwater.open(flipped(place), **more)),
    "Dataset.from_arrays": lambda place, **more: headwater.Dataset.from_arrays(place.edges, **{"num_nodes": NODES, **more}),
    "Dataset.topology": lambda place, **more: place.typed.topology(**{"relation": LIKES, **more}).neighbours(),
    "Dataset.features": lambda place, **more: place.typed.features(**{"of": "user", **more}),
    "Dataset.labels": lambda place, **more: place.typed.labels(**{"of": "user", **more}),
    "Dataset.classes": lambda place, **more: place.typed.classes(**{"node_type": "user", **more}),
    "Dataset.split": lambda place, **more: place.typed.split("train", **{"node_type": "user", **more}),
    "Dataset.edge_index": lambda place, **more: place.typed.edge_index(**{"relation": LIKES, **more}),
    "Dataset.array": lambda place, **more: place.typed.array("features", **{"of": "user", **more}),
    "Dataset.original_id": lambda place, **more: place.named.original_id(0, **{"node_type": "user", **more}),
    "Run": lambda place, **more: told(headwater.Run(place.run.path, **more)),
    "Run.predict": lambda place, **more: place.run.predict(**{"form": "logits", **more}),
    "Sampler": sample,
    "Topology.from_coo": lambda place, **more: lists(
        headwater.Topology.from_coo(place.edges[0], place.edges[1], NODES, NODES, **more)
    ),
    "Topology.from_lists": from_lists,
    "Trainer": (begun, functools.partial(begun, epochs=9, keep=9)),
    "Trainer.resume": (resumed, functools.partial(resumed, epochs=9)),
    "Trainer.fit": lambda place, **more: shown(place, more),
    "Trainer.predict": lambda place, **more: place.trainer.predict(**{"form": "logits", **more}),
    "compile": (compiled, with_uses),
    "compile.Layer": named_layer,
    "compile.Layer.__call__": called_layer,
    "compile.Layer.explain": explained,
    "compile.Layer.module": (module_of, module_with_option),
    "module.LayerModule.reset_parameters": reset,
    "module.LayerModule.forward": forwarded,
    "LayerGraph": layer_graph,
    "Offload": offloaded,
    "offload_callback": lambda place, **more: offloaded(place, headwater.offload_callback, **more),
    "offload.hugging_face.OffloadCallback": lambda place, **more: offloaded(place, OffloadCallback, **more),
    "Offload.hint": hinted,
    "checkpoint": checkpointed,
    "offload.report.Report": lambda place, **more: Report(**more).as_dict(),
    "unified": unified,
    "device": unified_device,
    "from_pyg": lambda place, **more: headwater.from_pyg(place.data, **more),
    "generate": lambda place, **more: headwater.generate("planted", place.new(), **{"nodes": 30, **more}),
    "generate of rmat": lambda place, **more: headwater.generate("rmat", place.new(), **{"nodes_log2": 5, **more}),
    "generate of a shape": lambda place, **more: headwater.generate("aifb", place.new(), **{"scale": 0.01, **more}),
    "ingest": (ingested, unpacked, slashed),
    "plan": lambda place, **more: headwater.plan(numpy.arange(9) + 1, 100, gpu_bytes=300, host_bytes=300, **more),
    "scores": (
        lambda place, **more: headwater.scores(
            place.dataset, **{"kind": "presampled", "batch": 3, "fanout": (2, 2), **more}
        ),
        lambda place, **more: headwater.scores(place.dataset, **more),
    ),
    "pyg.FeatureStore": lambda place, **more: type(stored(pyg.FeatureStore(**more)).get_all_tensor_attrs()[0]).__name__,
    "pyg.GraphStore": lambda place, **more: type(pyg.GraphStore(**more)._edge_attr_cls.cast("a", "coo")).__name__,
    "pyg.NeighborLoader": pyg_loaders(pyg.NeighborLoader, input_nodes=torch.arange(30), batch_size=7),
    "pyg.LinkNeighborLoader": pyg_loaders(pyg.LinkNeighborLoader, batch_size=50),
    "pyg.NeighborLoader.collate_fn": lambda place, **more: pyg.NeighborLoader(place.data, [2], seed=5).collate_fn(list(range(9)), **more),
    "pyg.LinkNeighborLoader.collate_fn": lambda place, **more: pyg.LinkNeighborLoader(place.data, [2], seed=5).collate_fn(
        list(range(9)), **more
    ),
    **{
        f"pyg.{kind.__name__}.{name}": lambda place, kind=kind, name=name, **more: getattr(kind(place.data, [3]), name)(**more)
        for kind in (pyg.NeighborLoader, pyg.LinkNeighborLoader)
        for name in ("enable_cpu_affinity", "enable_multithreading")
    },
    "pyg.NeighborSampler": (drawn_by_pyg, functools.partial(drawn_by_pyg, time_attr="stamp")),
    "pyg.NeighborSampler.sample_from_nodes": lambda place, **more: pyg.NeighborSampler(
        place.data, [3], seed=5
    ).sample_from_nodes(NodeSamplerInput(None, torch.arange(6)), **more),
    "pyg.NeighborSampler.sample_from_edges": lambda place, **more: pyg.NeighborSampler(
        place.data, [3], seed=5
    ).sample_from_edges(ends_of_pyg(), **more),
    "glt.data.Dataset": lambda place, **more: of_glt(glt.data.Dataset(**more)),
    "glt.data.Dataset.init_graph": init_graph,
    "glt.data.Dataset.init_node_features": init_rows("init_node_features"),
    "glt.data.Dataset.init_edge_features": init_rows("init_edge_features"),
    "glt.data.Dataset.init_node_labels": init_labels,
    "glt.data.Dataset.init_node_split": lambda place, **more: split_of(glt.data.Dataset(), more),
    "glt.data.Dataset.get_graph": lambda place, **more: of_graph(glt_typed().get_graph(**{"etype": LIKES, **more})),
    "glt.data.Dataset.get_node_feature": lambda place, **more: shape_of(
        glt_typed().get_node_feature(**{"ntype": "user", **more})
    ),
    "glt.data.Dataset.get_edge_feature": lambda place, **more: shape_of(
        glt_typed().get_edge_feature(**{"etype": LIKES, **more})
    ),
    "glt.data.Dataset.get_node_label": lambda place, **more: shape_of(
        glt_typed().get_node_label(**{"ntype": "user", **more})
    ),
    "glt.data.Feature": of_feature,
    "glt.data.Graph": lambda place, **more: glt.data.Graph(place.glt_graph.topo, **{"mode": "CPU", **more}).share_ipc()[1],
    "glt.data.Topology": lambda place, **more: glt.data.Topology(place.edges, **more)._lists(),
    "glt.data.UnifiedTensor": glt_table,
    "glt.loader.LinkLoader": glt_loaders(link_loader, 50),
    "glt.loader.LinkNeighborLoader": glt_loaders(link_neighbor_loader, 50),
    "glt.loader.NeighborLoader": glt_loaders(neighbor_loader),
    "glt.loader.NodeLoader": glt_loaders(node_loader),
    "glt.loader.SubGraphLoader": glt_loaders(subgraph_loader),
    "glt.loader.to_data": to_data,
    "glt.loader.to_hetero_data": to_hetero_data,
    "glt.sampler.EdgeIndex.to": lambda place, **more: glt.sampler.EdgeIndex(place.edges, None, (1, 2)).to("cpu", **more),
    "glt.sampler.EdgeSamplerInput": lambda place, **more: glt.sampler.EdgeSamplerInput(
        torch.arange(3), torch.arange(3), **more
    ),
    "glt.sampler.EdgeSamplerInput.cast": lambda place, **more: glt.sampler.EdgeSamplerInput.cast(
        torch.arange(3), torch.arange(3), **more
    ),
    "glt.sampler.HeteroSamplerOutput": hetero_output,
    "glt.sampler.HeteroSamplerOutput.cast": output_of(glt.sampler.HeteroSamplerOutput.cast),
    "glt.sampler.NegativeSampling": lambda place, **more: glt.sampler.NegativeSampling("binary", **more),
    "glt.sampler.NegativeSampling.cast": lambda place, **more: glt.sampler.NegativeSampling.cast(mode="binary", **more),
    "glt.sampler.NeighborOutput.cast": output_of(glt.sampler.NeighborOutput.cast),
    "glt.sampler.NeighborSampler": glt_drawn,
    "glt.sampler.NeighborSampler.sample_one_hop": lambda place, **more: glt.sampler.NeighborSampler(
        glt_typed().graph, [2], CPU, seed=5
    ).sample_one_hop(torch.arange(3), 2, **{"etype": LIKES, **more}),
    "glt.sampler.NeighborSampler.sample_from_nodes": lambda place, **more: glt_sampler_of(place).sample_from_nodes(
        torch.arange(6), **more
    ),
    "glt.sampler.NeighborSampler.sample_pyg_v1": lambda place, **more: glt_sampler_of(place).sample_pyg_v1(
        torch.arange(6), **more
    ),
    "glt.sampler.NeighborSampler.subgraph": lambda place, **more: glt_sampler_of(place).subgraph(torch.arange(6), **more),
    "glt.sampler.NeighborSampler.sample_from_edges": lambda place, **more: glt_sampler_of(place).sample_from_edges(
        glt.sampler.EdgeSamplerInput(torch.arange(3), torch.arange(3)), **more
    ),
    "glt.sampler.NodeSamplerInput": lambda place, **more: glt.sampler.NodeSamplerInput(torch.arange(3), **more),
    "glt.sampler.NodeSamplerInput.cast": lambda place, **more: glt.sampler.NodeSamplerInput.cast(torch.arange(3), **more),
    "glt.sampler.RandomNegativeSampler": negatives,
    "glt.sampler.RandomNegativeSampler.sample": few_negatives,
    "glt.sampler.SamplerOutput": output_of(glt.sampler.SamplerOutput),
    "glt.sampler.SamplerOutput.cast": output_of(glt.sampler.SamplerOutput.cast),
    "glt.utils.CastMixin.cast": lambda place, **more: glt.utils.CastMixin.cast(**more),
    "glt.utils.apply_to_all_tensor": lambda place, **more: glt.utils.apply_to_all_tensor(place.edges, torch.sum, **more),
    "glt.utils.convert_to_tensor": lambda place, **more: glt.utils.convert_to_tensor(numpy.arange(3), **more),
    "glt.utils.coo_to_csc": lambda place, **more: glt.utils.coo_to_csc(*place.edges, **more),
    "glt.utils.coo_to_csr": lambda place, **more: glt.utils.coo_to_csr(*place.edges, **more),
    "glt.utils.get_available_device": lambda place, **more: glt.utils.get_available_device(**{"device": "cpu", **more}),
    "glt.utils.load_ckpt": loaded,
    "glt.utils.save_ckpt": saved,
}  # fmt: skip


def stored(store):
    store.put_tensor(torch.ones(3, 2), group_name="a", attr_name="x", index=None)
    return store


def split_of(data, more):
    data.init_node_split(**more)
    return [data.train_idx, data.val_idx, data.test_idx]


def shape_of(held):
    return None if held is None else list(held.shape)


# On a GPU ############################################################################################################


def stream_of(place=None):
    return headwater.gpu.Place(torch.device("cuda", 0)).stream()


def drawn_on_gpu(place, **more):
    there = headwater.gpu.Place(torch.device("cuda", 0))
    drawer = headwater.gpu.Drawer(headwater.DeviceGraph(place.weighted), [[3], [3]], there, **more)
    drawn = drawer.sample([(0, torch.arange(6), None)], (1, 0, 0))
    return [drawn.nodes(0), drawn.trees(0), drawn.edges(0), drawn.edge_ids(0), drawn.edges_per_hop(0)]


def table(place, **more):
    there = headwater.gpu.Place(torch.device("cuda", 0))
    made = headwater.Table(torch.arange(NODES * 4.0).view(-1, 4), **{"hot_rows": 5, **more})
    ids = there.bring(torch.arange(7))
    rows = headwater.gpu.gather(made, ids, torch.float32, there)
    return [rows, made.hot_rows, made.device, made.served(there.stream())]


def advised(name):
    def advise(place, **more):
        own = headwater.unified(torch.arange(6.0), managed=True)
        getattr(own, name)("SetPreferredLocation", **more)
        return own.host.clone()

    return advise


def unified_on_gpu(place, **more):
    tensor = torch.arange(6.0).view(3, 2).share_memory_()
    made = headwater.unified(tensor, **more)
    tensor[0, 0] = 9
    return [made.affinity, type(made._held().owner()).__name__, made.host.clone()]


ON_GPU = {
    "DeviceGraph": lambda place, **more: (lambda made: [made.storage, made.device])(
        headwater.DeviceGraph(place.graph, **more)
    ),
    "DeviceSampler": drawn_on_gpu,
    "Table": table,
    "UnifiedTensor.mem_advise": advised("mem_advise"),
    "UnifiedTensor.memAdvise": advised("memAdvise"),
    "unified": unified_on_gpu,
}
# Those that ask torch itself, which the emulator has no GPU for: on a machine with one.
OF_TORCH = {
    "glt.data.Graph": lambda place, **more: repr(glt.data.Graph(place.glt_graph.topo, **more).place),
    "glt.data.Dataset.init_graph": lambda place, **more: init_graph(place, **{"graph_mode": "ZERO_COPY", **more}),
    "glt.data.Dataset.init_node_features": lambda place, **more: init_rows("init_node_features")(
        place, **{"with_gpu": True, **more}
    ),
    "glt.data.Dataset.init_edge_features": lambda place, **more: init_rows("init_edge_features")(
        place, **{"with_gpu": True, **more}
    ),
    "glt.sampler.NeighborSampler": lambda place, **more: repr(
        glt.sampler.NeighborSampler(glt.data.Graph(place.glt_graph.topo), [2], **more).device
    ),
    "glt.data.Feature": lambda place, **more: of_feature(place, **{"with_gpu": True, **more}),
}

# The tests ###########################################################################################################


def seen_of(call, place, more):
    """What a call gives, calls and warns of."""
    _calls.clear()
    glt._places._said.clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = seen(call(place, **more))
    # Torch's own advice is not ours.
    ours = sorted({str(one.message) for one in said if "deprecated" not in str(one.message) or "headwater" in one.filename})
    return [found, bool(_calls), ours]


def calls_of(bases, label):
    found = bases.get(label, ())
    return found if isinstance(found, tuple) else (found,)


def names(keyword, why):
    """Whether a refusal says of what it is."""
    return re.search(rf"(?<![A-Za-z]){re.escape(keyword)}(?![A-Za-z])", why) is not None


class Outcomes:
    """What becomes of the keywords of a callable."""

    def __init__(self, place, label, calls):
        self.place, self.label = place, label
        self.calls = calls
        self._base = functools.cache(self._seen_twice)
        self._base(calls[0])

    def _seen_twice(self, call):
        seen_of(call, self.place, {})
        first = seen_of(call, self.place, {})
        assert first == seen_of(call, self.place, {}), f"{self.label}: two calls that are alike should give the same"
        return first

    def of(self, keyword, default):
        """Changed, refused, idle, or refused without a name: whatever is best over all calls and values."""
        found, reasons = set(), []
        kept = others(self.place, default)
        # Values of what nobody sees are not tried in every way.
        for call in self.calls[:1] if (self.label, keyword) in UNSEEN else self.calls:
            without = self._base(call)
            # What is not of the right kind is not tried again, nor is all of what is refused.
            left, kept = kept[:8] if found == {"refused"} else kept, []
            while left:
                value = left.pop(0)
                try:
                    after = seen_of(call, self.place, {keyword: copy.copy(value)})
                except Exception as why:
                    found.add("refused" if names(keyword, str(why)) else "unnamed")
                    reasons.append(" ".join(f"{value!r:.40}: {type(why).__name__}: {why}".split()))
                    if isinstance(value, str) and value == "nonsense" and names(keyword, str(why)):
                        left += [word for word in words_of(str(why)) if word != value]
                    if not isinstance(why, (TypeError, AttributeError)):
                        kept.append(value)
                    continue
                if after != without:
                    return "changed", reasons
                if type(value) is not type(default) or value != default:
                    kept.append(value)
                    found.add("idle")
        return next(kind for kind in ("idle", "refused", "unnamed") if kind in found), reasons


def judged(place, label, calls, is_deferred):
    """Counts of what became of keywords. Those that only a GPU shows may be left to the test that has one."""
    asked = asked_of(place, label)
    counts = {"changed": 0, "refused": 0, "gpu": 0}
    try:
        outcomes = Outcomes(place, label, calls)
    except NotImplementedError:
        # The callable itself is refused, whatever it is given.
        return {**counts, "refused": len(asked)}
    wrong = []
    for keyword, default in asked.items():
        found, reasons = outcomes.of(keyword, default)
        if found in ("changed", "refused"):
            counts[found] += 1
        # A flag has no value that could be refused.
        elif (label, keyword) in UNSEEN and (isinstance(default, bool) or any(names(keyword, why) for why in reasons)):
            counts["refused"] += 1
        elif is_deferred:
            counts["gpu"] += 1
        else:
            wrong.append(f"{keyword} ({found}{''.join(f'; {why:.160}' for why in reasons[-2:]) if found == 'unnamed' else ''})")
    if wrong:
        pytest.fail(f"keywords of {label} that do nothing, or whose refusals do not name them: {', '.join(wrong)}", False)
    return counts


# By label, for the last test.
_counted = {}


def test_every_callable_has_a_base_call():
    known = {*BASES, *ON_GPU, *OF_TORCH}
    assert sorted(set(LABELS) - known) == [], "callables with keywords that no call is known for"
    assert sorted(own for own in known - set(LABELS) if " of " not in own) == [], "calls of callables that are not there"
    # Whoever takes any keyword hands it on to somebody, or to a function or a batch of the user's.
    assert sorted(own for own in REST if own not in BASES) == []


@pytest.mark.parametrize("label", sorted(BASES))
def test_keywords_are_honoured_or_refused(place, label):
    is_deferred = label in ON_GPU or label in OF_TORCH
    _counted[label] = counts = judged(place, label, calls_of(BASES, label), is_deferred)
    print(f"{label}: {counts['changed']} changed, {counts['refused']} refused, {counts['gpu']} on a GPU")


@pytest.mark.parametrize("label", sorted(label for label in BASES if label in LABELS and takes_any(LABELS[label])))
def test_keywords_that_nobody_knows_are_refused_or_used(place, label):
    call = calls_of(BASES, label)[0]
    without = seen_of(call, place, {})
    try:
        after = seen_of(call, place, {"there_is_no_such_keyword": 1})
    except (TypeError, ValueError) as why:
        assert "there_is_no_such_keyword" in str(why) or "takes no arguments" in str(why)
    else:
        assert after != without


@pytest.mark.parametrize("label", sorted(ON_GPU))
def test_keywords_are_honoured_or_refused_on_a_gpu(place, gpu, label):
    counts = judged(place, label, [*calls_of(ON_GPU, label), *calls_of(BASES, label)], False)
    print(f"{label}: {counts['changed']} changed, {counts['refused']} refused")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no GPU")
@pytest.mark.parametrize("label", sorted(OF_TORCH))
def test_keywords_are_honoured_or_refused_on_torchs_gpu(place, label):
    counts = judged(place, label, [*calls_of(OF_TORCH, label), *calls_of(BASES, label)], False)
    print(f"{label}: {counts['changed']} changed, {counts['refused']} refused")


def test_nothing_was_left_out():
    """Behind all others: how many keywords were tried."""
    if set(_counted) != set(BASES):
        pytest.skip("not all of them ran")
    total = {kind: sum(own[kind] for own in _counted.values()) for kind in ("changed", "refused", "gpu")}
    print(f"{len(_counted)} callables on the CPU, {len({*ON_GPU, *OF_TORCH} - set(BASES))} on a GPU alone; keywords: {total}")
    assert total["changed"] >= 300 and total["refused"] >= 100
