"""Every keyword of the package changes something that can be seen, or is refused.

No keyword is listed here. The tests walk what the package shows, change one keyword after the other to another value of its
kind, and compare what comes out with what came out without it. A keyword that is taken and changes nothing fails. Callables
need a call that succeeds (`BASES`).
"""

import enum
import inspect
import os
import shutil

import numpy
import pytest

import headwater

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("headwater.pyg")
data_of = pytest.importorskip("torch_geometric.data")

NODES, EDGES = 40, 160
MODULES = (headwater, pyg)


# What is walked ######################################################################################################


def walked():
    """Everything that can be called and has keywords, by its name."""
    for module in MODULES:
        for name in module.__all__:
            shown = getattr(module, name)
            if not callable(shown) or (inspect.isclass(shown) and issubclass(shown, enum.Enum)):
                continue
            label = f"{module.__name__}.{name}".removeprefix("headwater.")
            yield label, shown
            if inspect.isclass(shown):
                for below in dict.fromkeys(key for owner in shown.__mro__ if _is_ours(owner) for key in vars(owner)):
                    if not below.startswith("_") and callable(getattr(shown, below)):
                        yield f"{label}.{below}", getattr(shown, below)


def _is_ours(owner):
    return owner.__module__.split(".")[0] in ("headwater", "_headwater")


def keywords(called):
    """Those that have a default."""
    try:
        parameters = inspect.signature(called).parameters.values()
    except ValueError:
        return []
    return [own for own in parameters if own.default is not own.empty]


def takes_any(called):
    try:
        return any(own.kind is own.VAR_KEYWORD for own in inspect.signature(called).parameters.values())
    except ValueError:
        return False


# What is seen ########################################################################################################


def seen(value, depth=0):
    """Something comparable that follows from what a value holds, and not from where it lies."""
    if isinstance(value, torch.Tensor) or type(value) is headwater.Array:
        array = value.detach() if isinstance(value, torch.Tensor) else numpy.asarray(value)
        return str(array.dtype), tuple(array.shape), array.tolist()
    if isinstance(value, numpy.ndarray):
        return str(value.dtype), value.shape, value.tolist()
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, dict):
        return {repr(key): seen(own, depth + 1) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [seen(own, depth + 1) for own in value]
    if hasattr(value, "to_dict") and isinstance(value, (data_of.Data, data_of.HeteroData)):
        return seen(value.to_dict(), depth + 1)
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
    int: lambda now: [now + 1, now + 6, now * 2, 0],
    float: lambda now: [now / 2, now + 0.25],
    str: lambda now: ["nonsense"],
    tuple: lambda now: [(2, 2), (2,), [2], [print]],
}


def anything():
    """A value of every kind that a keyword without a default may be."""
    order = torch.arange(EDGES - 1, -1, -1)
    numbers = torch.arange(NODES - 1, -1, -1)
    ends = torch.stack([numbers, numbers.roll(3)])
    yield from (1, 2, 0.5, "time", "weight", "nonsense", True, False, numbers[:7], numbers, order, order.float() + 1)
    yield from (numbers.float().unsqueeze(1), numbers % 3, order.float().unsqueeze(1), order % 2, ends, numbers % 2 == 0)
    yield from (lambda value: None, {"node": numbers[:5]}, {"device": 1.0, "peer": 2.0, "host": 3.0, "disk": 4.0})
    yield from (headwater.Dataset, "node", ("node", "to", "node"), NODES + 3, [1, 2, 3], os.sep)


def others(keyword):
    for kind, values in KINDS.items():
        if type(keyword.default) is kind:
            return [value for value in values(keyword.default) if value != keyword.default]
    return list(anything())


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
        self.dataset = headwater.generate(
            "planted", folder / "data", nodes=NODES, edges_per_node=4, classes=3, features=4
        )
        self.data = data_of.Data(
            x=torch.rand(NODES, 4), edge_index=self.edges, y=torch.arange(NODES) % 3,
            time=torch.arange(NODES), weight=torch.rand(EDGES),
        )  # fmt: skip
        self.topology = headwater.Topology.from_coo(self.edges[0], self.edges[1], NODES, NODES)
        weighted = headwater.Topology.from_coo(
            self.edges[0], self.edges[1], NODES, NODES, weights=torch.rand(EDGES), times=torch.arange(EDGES)
        )
        self.graph = headwater.Graph([("node", NODES)], [(0, "to", 0, self.topology)])
        self.weighted = headwater.Graph([("node", NODES)], [(0, "to", 0, weighted)])
        self.run = headwater.Trainer(self.dataset, **self.small(), output=folder / "run").fit(progress=False)
        with open(folder / "graph.csv", "w") as file:
            file.write("from,to,weight,when\n")
            file.writelines(f"{edge % 20},{(edge * 7 + 1) % 20},{edge % 3},{edge}\n" for edge in range(60))

    def small(self):
        return {"device": "cpu", "hidden": 4, "epochs": 3, "fanout": [2, 2], "batch": 8, "rate": 0.5}

    def new(self, name="new"):
        self.count += 1
        return self.folder / f"{name}-{self.count}"


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
    return [topology.offsets(), topology.neighbours(), topology.edge_ids(), draws]


def trained(place, trainer):
    run = trainer.fit(progress=False)
    history = [{key: value for key, value in epoch.items() if "seconds" not in key} for epoch in run.history]
    files = [os.path.basename(path) for path in run.checkpoints]
    served = run.summary.get("features"), run.summary.get("feature_hit_rate")
    kept = run.path if not run.path.startswith(str(place.folder)) else ""
    return [history, files, served, numpy.asarray(run.predict(form="logits")), kept, run.best_epoch]


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

    said, calls = io.StringIO(), []
    if "callbacks" in more and callable(next(iter(more["callbacks"]), None)):
        more = {**more, "callbacks": [lambda report: calls.append(report["epoch"])]}
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        headwater.Trainer(place.dataset, **place.small(), output=place.new("run")).fit(**more)
    return [bool(said.getvalue()), calls]


BASES = {
    "DeviceGraph": lambda place, **more: headwater.DeviceGraph(place.graph, **more).storage,
    "DeviceSampler": lambda place, **more: headwater.DeviceSampler(headwater.DeviceGraph(place.graph), [[3]], **more),
    "Table": lambda place, **more: headwater.Table(torch.rand(NODES, 4), **more),
    "pyg.NeighborLoader.collate_fn": lambda place, **more: pyg.NeighborLoader(place.data, [3], seed=5).collate_fn([1], **more),
    "pyg.LinkNeighborLoader.collate_fn": lambda place, **more: pyg.LinkNeighborLoader(place.data, [3], seed=5).collate_fn([1], **more),
    "Dataset.open": lambda place, **more: headwater.Dataset.open(flipped(place), **more),
    "Dataset.from_arrays": lambda place, **more: headwater.Dataset.from_arrays(place.edges, **{"num_nodes": NODES, **more}),
    "Dataset.features": lambda place, **more: place.dataset.features(**more),
    "Dataset.labels": lambda place, **more: place.dataset.labels(**more),
    "Dataset.array": lambda place, **more: place.dataset.array("features", **more),
    "Run": lambda place, **more: headwater.Run(place.run.path, **more),
    "Run.predict": lambda place, **more: place.run.predict(**more),
    "Sampler": sample,
    "Topology.from_coo": lambda place, **more: lists(
        headwater.Topology.from_coo(place.edges[0], place.edges[1], NODES, NODES, **more)
    ),
    "Trainer": lambda place, **more: trained(
        place, headwater.Trainer(place.dataset, **{**place.small(), "output": place.new("run"), **more})
    ),
    "Trainer.resume": lambda place, **more: trained(place, headwater.Trainer.resume(copied(place), **{"epochs": 4, **more})),
    "Trainer.fit": lambda place, **more: shown(place, more),
    "Trainer.predict": lambda place, **more: headwater.Trainer.resume(copied(place), epochs=4).predict(**more),
    "from_pyg": lambda place, **more: headwater.from_pyg(place.data, **more),
    "generate": lambda place, **more: headwater.generate("planted", place.new(), **{"nodes": 30, **more}),
    "plan": lambda place, **more: headwater.plan(numpy.arange(9) + 1, 100, gpu_bytes=300, host_bytes=300, **more),
    "scores": lambda place, **more: headwater.scores(place.dataset, **{"kind": "presampled", "batch": 3, "fanout": (2, 2), **more}),
}


def outcome(place, label, keyword, value, without):
    """What a value of a keyword does."""
    try:
        found = seen(BASES[label](place, **{keyword: value}))
    except Exception as why:
        return "refused", str(why)
    return ("same" if found == without else "changed"), ""


LABELS = {label: called for label, called in walked() if keywords(called) or takes_any(called)}


@pytest.mark.parametrize("label", sorted(set(LABELS) & set(BASES)))
def test_keywords_are_honoured_or_refused(place, label, record_property):
    try:
        without = seen(BASES[label](place))
    except Exception as why:
        if headwater.gpu_count() == 0 and any(word in str(why) for word in ("GPU", "CUDA", "driver")):
            pytest.skip(f"needs a GPU: {why}")
        raise
    if label != "Trainer.fit":
        assert without == seen(BASES[label](place)), "two calls that are alike should give the same"
    counts, idle = {"changed": 0, "refused": 0}, []
    for keyword in keywords(LABELS[label]):
        kinds = set()
        for value in others(keyword):
            kind, why = outcome(place, label, keyword.name, value, without)
            kinds.add(kind)
            if kind == "changed":
                break
        found = next((kind for kind in ("changed", "same", "refused") if kind in kinds), "same")
        if found == "same":
            idle.append(keyword.name)
        else:
            counts[found] += 1
    record_property("options", f"{label}: {counts}")
    print(f"{label}: {counts['changed']} changed, {counts['refused']} refused")
    assert idle == [], f"keywords of {label} that are taken and do nothing"


@pytest.mark.parametrize("label", sorted(label for label in set(LABELS) & set(BASES) if takes_any(LABELS[label])))
def test_keywords_that_nobody_knows_are_refused(place, label):
    with pytest.raises((TypeError, ValueError)):
        BASES[label](place, there_is_no_such_keyword=1)
