"""How schedules of a GPU's kernels are chosen: what `tune` takes, that results are those of the CPU, and what is kept on disk."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from headwater import LayerGraph  # noqa: E402
from layers import EDGES, NODES, close, sage  # noqa: E402

WIDTH, RELATIONS = 64, 3
GIVEN = "lanes=4,ahead=2,chunks=3"
WRONG = [
    ("fast", ValueError, 'tune: it is "fast"; expected fixed, model, measure, or parts of schedules such as lanes=8'),
    ("", ValueError, 'tune: it is ""; expected fixed'),
    ("lanes=5", ValueError, "tune: lanes is 5; expected a power of two from 4 to 32"),
    ("ahead=16", ValueError, "tune: ahead is 16; expected a power of two from 1 to 8"),
    ("chunks=0", ValueError, "tune: chunks is 0; expected 1 to 65536"),
    ("nodes=100", ValueError, r"tune: nodes is 100; expected one of \[384, 192, 96, 48\]"),
    ("lanes=few", ValueError, 'tune: lanes is "few"; expected a number'),
    ("rows=4", ValueError, 'tune: no schedule has "rows"; there are lanes, ahead, chunks and nodes'),
    ("lanes=8,lanes=4", ValueError, "tune: lanes is given twice"),
    (8, TypeError, "tune"),
    (False, TypeError, "tune"),
    (["measure"], TypeError, "tune"),
]


@pytest.mark.parametrize(("tune", "kind", "words"), WRONG)
def test_what_is_no_way_to_tune_is_refused(tune, kind, words):
    with pytest.raises(kind, match=words):
        headwater.compile("rgat", tune=tune)
    with pytest.raises(kind, match=words):
        sage.module(d_in=2, d_out=2, tune=tune)
    with pytest.raises(kind, match=words):

        @headwater.compile(tune=tune)
        def summed(g, x: node[d]):
            for n in g.dst_nodes():
                n["out"] = sum(e.src.x for e in n.incoming_edges())

    # A method, which has no text before it is called on an object.
    with pytest.raises(kind, match=words):

        @headwater.compile(tune=tune)
        def scaled(self, g, x: node[d]):
            for n in g.dst_nodes():
                n["out"] = self.scale * sum(e.src.x for e in n.incoming_edges())


def test_methods_refuse_optimisations_that_are_none_where_they_are_compiled():
    with pytest.raises(ValueError, match='without: there is no optimisation "dust"'):

        @headwater.compile(without=["dust"])
        def scaled(self, g, x: node[d]):
            for n in g.dst_nodes():
                n["out"] = self.scale * sum(e.src.x for e in n.incoming_edges())


def test_none_is_no_way_to_tune_but_of_modules_of_a_layer():
    with pytest.raises(TypeError, match="tune"):
        headwater.compile("rgat", tune=None)
    layer = headwater.compile("sage", tune="model")
    assert layer.module(d_in=2, d_out=2, tune=None).layer.tune == "model"


def test_modules_of_others_are_compiled_as_is_asked():
    pyg = pytest.importorskip("torch_geometric.nn")
    conv, edges, x = pyg.SAGEConv(3, 2), torch.randint(0, NODES, (2, EDGES)), torch.randn(NODES, 3)
    made = headwater.compile(conv, fallback=False, tune=GIVEN, without=["fuse"])
    for own in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        torch.testing.assert_close(own(x, edges), conv(x, edges))
        plans = [found.plan for known in own.__class__.forward.__closure__[0].cell_contents._plans.values() for found in known]
        assert {(plan._layer.tune, plan._layer.without) for plan in plans if plan is not None} == {(GIVEN, ("fuse",))}
    with pytest.raises(ValueError, match="tune"):
        headwater.compile(conv, tune="faster")
    with pytest.raises(ValueError, match='without: there is no optimisation "dust"'):
        headwater.compile(conv, without=["dust"])


def test_it_is_shown_kept_and_without_effect_on_a_cpu():
    sizes = {"d_in": 3, "d_out": 2, "seed": 1}
    plain, tuned = sage.module(**sizes), sage.module(**sizes, tune=GIVEN)
    assert f"tune='{GIVEN}'" in repr(tuned) and "tune" not in repr(plain)
    assert "tune" not in repr(sage.module(**sizes, tune="fixed"))
    edges, x = torch.randint(0, NODES, (2, EDGES)), torch.randn(NODES, 3)
    for own in (tuned, copy.deepcopy(tuned), pickle.loads(pickle.dumps(tuned))):
        assert own.layer.tune == GIVEN and torch.equal(own(edges, x), plain(edges, x))
    layer = headwater.compile("rgat", tune="model", without=["fuse"])
    again = pickle.loads(pickle.dumps(layer))
    assert (again.tune, again.without) == ("model", ("fuse",))
    # Each is kept where the other changes.
    assert layer.module(d_in=4, d_out=4, heads=1, without=[]).layer.tune == "model"
    assert layer.module(d_in=4, d_out=4, heads=1, tune=GIVEN).layer.without == ("fuse",)


# On a GPU ############################################################################################################


def given():
    """A graph of three relations, and what RGAT takes: the same in every process."""
    draws = torch.Generator().manual_seed(5)
    edges = torch.randint(0, NODES, (2, EDGES), generator=draws)
    graph = edges, torch.randint(0, RELATIONS, (EDGES,), generator=draws)
    return graph, torch.randn(NODES, WIDTH, generator=draws)


def run(device, **options):
    """The output of RGAT and all gradients."""
    graph, x = given()
    model = headwater.compile("rgat", **options).module(d_in=WIDTH, d_out=WIDTH, heads=1, num_edge_types=RELATIONS, seed=1)
    model, x = model.to(device), x.to(device).requires_grad_()
    out = model(graph, x)
    # Means of squares: gradients are of the size of outputs.
    (WIDTH * out.square().mean()).backward()
    return [own.detach().cpu() for own in (out, x.grad, *(own.grad for own in model.parameters()))]


@pytest.fixture
def place(gpu):
    torch.manual_seed(7)
    return headwater.gpu.place_of(gpu)


def on_cpu(monkeypatch, work):
    with monkeypatch.context() as patch:
        patch.setattr(headwater.gpu, "holding", lambda tensors: None)
        return work()


def test_every_way_gives_the_results_of_the_cpu(place, monkeypatch):
    wanted = on_cpu(monkeypatch, lambda: run("cpu"))
    for tune in ("fixed", "model", "measure", GIVEN):
        found = run(place.device, tune=tune)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            close(one, other, 1e-4)
    # The same schedule gives the same bits.
    assert all(torch.equal(*pair) for pair in zip(found, run(place.device, tune=GIVEN)))


def test_a_graph_that_lies_there_comes_to_the_host_where_kernels_are_timed_alone(place):
    edges = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(3))
    own = [torch.randn(*shape).to(place.device) for shape in ((NODES, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH,))]
    wanted = sage(LayerGraph(edges.to(place.device), NODES), *own)
    for tune, comes_to_the_host in (("measure", True), ("model", False), (GIVEN, False)):
        layer = headwater.compile(sage._made_of[0], tune=tune)
        graph = LayerGraph(edges.to(place.device), NODES)
        close(layer(graph, *own).cpu(), wanted.cpu(), 1e-4)
        assert (graph._relations is not None) == comes_to_the_host


def in_process(folder, out):
    """Runs RGAT in a process of its own, which keeps what it measures in a folder."""
    tests = str(Path(__file__).parent)
    # The emulator's memory is measured by copies of a quarter of it.
    environment = {**os.environ, "HEADWATER_CACHE": str(folder), "HWEMU_DEVICE_BYTES": str(1 << 26)}
    environment["PYTHONPATH"] = os.pathsep.join([tests, *filter(None, [environment.get("PYTHONPATH")])])
    program = f"import test_tune; test_tune.run_and_save({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    return torch.load(out)


def run_and_save(out):
    import conftest

    device = "cuda"
    if not torch.cuda.is_available():
        conftest.stand_in(pytest.MonkeyPatch(), conftest.emulated())
        device = "cpu"
    torch.save(run(device, tune="measure"), out)


def files(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def schedules(folder):
    """Names of files with schedules that are whole: a checksum, then a line a kernel."""
    found = set()
    for path in folder.iterdir():
        checksum, body = path.read_bytes()[:32], path.read_bytes()[32:]
        if hashlib.sha256(body).digest() == checksum and re.fullmatch(rb"((lanes=|chunks=)[a-z0-9,=]+|-|\n)+", body):
            found.add(path.name)
    return found


def test_schedules_are_kept_for_other_processes(place, tmp_path, monkeypatch):
    folder, out = tmp_path / "cache", tmp_path / "out.pt"
    wanted = on_cpu(monkeypatch, lambda: run("cpu"))
    first = in_process(folder, out)
    kept, before = schedules(folder), files(folder)
    # Of both directions.
    assert len(kept) == 2
    second = in_process(folder, out)
    assert files(folder) == before
    assert all(torch.equal(*pair) for pair in zip(first, second))
    for path in folder.iterdir():
        path.write_bytes(b"\0" * (path.stat().st_size // 2))
    assert schedules(folder) == set()
    third = in_process(folder, out)
    assert schedules(folder) == kept
    for found in (first, third):
        for one, other in zip(found, wanted):
            close(one, other, 1e-4)
