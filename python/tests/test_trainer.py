"""Runs from Python: that they learn, repeat, stop, go on and say what they did."""

import os
import shutil
import signal
import subprocess
import sys
import time
import types

import headwater
import numpy as np
import pytest
from headwater import Run, Trainer

NETWORK = {"model": "sage", "hidden": 16, "rate": 0.02, "dropout": 0.1}
SMALL = {**NETWORK, "fanout": [4, 4], "batch": 64, "seed": 3, "device": "cpu"}
CURVE = ["epoch", "loss", "valid", "valid_loss", "test", "rate"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "planted"
    return headwater.generate("planted", path, nodes=400, classes=4, features=8, separation=0.6)


def curve(run):
    return [[epoch[what] for what in CURVE] for epoch in run.history]


def fit(dataset, output, **more):
    return Trainer(dataset, output=output, **{**SMALL, "epochs": 3, **more}).fit(progress=False)


def test_a_run_learns_and_repeats_to_the_bit(dataset, tmp_path):
    run = fit(dataset, tmp_path / "a", epochs=5)
    assert run.test_accuracy > 0.5 and run.history[-1]["loss"] < run.history[0]["loss"]
    best = run.history[run.best_epoch - 1]
    assert [best[what] for what in ("epoch", "valid", "test")] == [run.best_epoch, run.valid, run.test]
    assert run.metric == "accuracy" and (run.valid_accuracy, run.test_accuracy) == (run.valid, run.test)
    assert run.checkpoint.startswith(str(tmp_path / "a")) and not run.is_stopped
    assert curve(fit(dataset, tmp_path / "b", epochs=5, threads=1)) == curve(run)
    assert curve(fit(dataset, tmp_path / "c", epochs=5, seed=4)) != curve(run)
    again = Run(tmp_path / "a")
    assert again.history == run.history and again.summary == run.summary and again.config["hidden"] == 16
    assert repr(again) == repr(run) and "sage, 5 epochs" in repr(run)


def test_a_dataset_in_memory_trains_as_its_folder_does(dataset, tmp_path):
    held = headwater.Dataset.from_arrays(
        dataset.topology(), features=dataset.features(), labels=dataset.labels(), classes=4,
        **{split: dataset.split(split) for split in ("train", "valid", "test")},
    )  # fmt: skip
    run = fit(held, tmp_path / "held")
    assert curve(run) == curve(fit(dataset, tmp_path / "folder"))
    assert len(run.predict()) == 400
    with pytest.raises(ValueError, match="in memory"):
        Run(tmp_path / "held").predict()
    with pytest.raises(ValueError, match="in memory"):
        Trainer.resume(tmp_path / "held")
    assert Trainer.resume(tmp_path / "held", held, epochs=4).fit(progress=False).history[:3] == run.history
    with pytest.raises(ValueError, match="features is disk.*memory"):
        fit(held, tmp_path / "disk", features="disk")
    assert curve(fit(dataset, tmp_path / "disk", features="disk")) == curve(run)


def test_callbacks_stop_and_the_run_goes_on_exactly(dataset, tmp_path):
    whole = fit(dataset, tmp_path / "whole", epochs=4)
    told = []
    trainer = Trainer(dataset, output=tmp_path / "stopped", **SMALL, epochs=4)
    stopped = trainer.fit(callbacks=[told.append, lambda report: report["epoch"] < 2], progress=False)
    assert stopped.is_stopped and [report["epoch"] for report in told] == [1, 2]
    assert told == stopped.history and trainer.epoch == 2 and "epoch 2 of 4" in repr(trainer)
    # The same trainer, and another one that only has the folder.
    assert curve(trainer.fit([lambda report: report["epoch"] != 3], progress=False)) == curve(whole)[:3]
    resumed = Trainer.resume(tmp_path / "stopped")
    assert resumed.epoch == 3
    final = resumed.fit(progress=False)
    assert curve(final) == curve(whole) and not final.is_stopped
    assert (np.asarray(final.predict(form="logits")) == np.asarray(whole.predict(form="logits"))).all()


def test_what_a_callback_raises_ends_the_run_and_comes_out(dataset, tmp_path):
    def fail(report):
        if report["epoch"] == 2:
            raise KeyError("mine")

    trainer = Trainer(dataset, output=tmp_path / "run", **SMALL, epochs=4)
    with pytest.raises(KeyError, match="mine"):
        trainer.fit(callbacks=[fail], progress=False)
    assert len(Run(tmp_path / "run").checkpoints) > 0
    assert curve(trainer.fit(progress=False)) == curve(fit(dataset, tmp_path / "whole", epochs=4))


def test_callbacks_are_called_where_fit_was_and_others_run_meanwhile(dataset, tmp_path):
    import threading

    ticks, is_over, seen = [0], threading.Event(), []

    def tick():
        while not is_over.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    trainer = Trainer(dataset, output=tmp_path / "run", **SMALL, epochs=2)
    trainer.fit([lambda _: seen.append(threading.current_thread())], progress=False)
    is_over.set()
    thread.join()
    assert seen == [threading.current_thread()] * 2 and ticks[0] > 1


ASKING = """
import headwater
dataset = headwater.Dataset.open({dataset!r})
trainer = headwater.Trainer(dataset, output={run!r}, epochs=2, hidden=4, fanout=[2, 2], device="cpu")
asked = []
trainer.fit([lambda report: asked.append(len(headwater.scores(dataset)["node"]))], progress=False)
print(asked)
"""


def test_callbacks_may_ask_headwater_where_there_is_one_core(dataset, tmp_path):
    program = ASKING.format(dataset=dataset.path, run=str(tmp_path / "run"))
    environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout.strip() == "[400, 400]", done.stderr


def test_what_the_core_warns_of_is_heard(dataset, tmp_path, caplog):
    # A checkpoint that cannot be written does not end a run. What came of it is then not there, which is an error.
    trainer = Trainer(dataset, output=tmp_path / "run", **SMALL, epochs=2)
    (tmp_path / "run" / "checkpoints").write_text("in the way")
    with caplog.at_level("WARNING", logger="headwater"), pytest.raises(OSError, match="results of the run.*checkpoints"):
        trainer.fit(progress=False)
    assert any("no checkpoint was written" in record.message for record in caplog.records)
    assert len(Run(tmp_path / "run").history) == 2
    (tmp_path / "run" / "checkpoints").unlink()
    assert len(trainer.fit(progress=False).predict([0, 1])) == 2


LONG = """
import headwater, signal, sys
# Whoever runs tests in the background may have told their processes not to hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)
from headwater import Trainer
trainer = Trainer({dataset!r}, output={run!r}, model="sage", fanout=[4, 4], batch=16, hidden=16, rate=0.02, dropout=0.1,
                  seed=3, device="cpu", epochs=100000, evaluate_every=0, checkpoint_every=2)
def tell(report):
    if report["epoch"] == 4:
        print("begun", flush=True)
try:
    trainer.fit([tell], progress=False)
except KeyboardInterrupt:
    print("heard", trainer.epoch >= 4, flush=True)
"""


def start(dataset, run):
    program = LONG.format(dataset=str(dataset.path), run=str(run))
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "begun"
    return process


def test_ctrl_c_stops_a_run_that_has_then_saved(dataset, tmp_path):
    process = start(dataset, tmp_path / "run")
    # Meanwhile the folder is nobody else's.
    with pytest.raises(RuntimeError, match=f"in use by process {process.pid} on "):
        Trainer.resume(tmp_path / "run")
    begun = time.perf_counter()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0].strip() == "heard True"
    assert time.perf_counter() - begun < 30
    assert Run(tmp_path / "run").is_stopped and Run(tmp_path / "run").summary["ending"] == "stopped"
    at = Trainer.resume(tmp_path / "run").epoch
    assert at >= 4 and len(Trainer.resume(tmp_path / "run", epochs=at + 2).fit(progress=False).history) == at + 2


def test_a_run_that_was_killed_goes_on_as_if_it_had_not(dataset, tmp_path):
    process = start(dataset, tmp_path / "run")
    process.kill()
    process.communicate(timeout=60)
    resumed = Trainer.resume(tmp_path / "run")
    at = resumed.epoch
    assert at >= 4
    more = {"batch": 16, "evaluate_every": 0, "checkpoint_every": 2}
    # Neither is evaluated before its last epoch.
    run = Trainer.resume(tmp_path / "run", epochs=at + 2).fit(progress=False)
    whole = fit(dataset, tmp_path / "whole", epochs=at + 2, **more)
    assert curve(run) == curve(whole)


def test_a_run_that_goes_on_stays_the_run_it_was(dataset, tmp_path):
    run = tmp_path / "run"
    first = Trainer(dataset, output=run, **SMALL, epochs=2)
    first.fit(progress=False)
    with pytest.raises(ValueError, match="rate cannot change in a run: it is 0.02, not 0.5; what can change is epochs,"):
        Trainer.resume(run, rate=0.5)
    with pytest.raises(ValueError, match="epochs is 1; expected at least 2"):
        Trainer.resume(run, epochs=1)
    changed = Trainer.resume(run, epochs=3, keep=4, hidden=16)
    assert Run(run).config["epochs"] == 3 and Run(run).config["keep"] == 4
    # The first one knows an older run.
    with pytest.raises(RuntimeError, match="opened by this process since"):
        first.fit(progress=False)
    assert len(changed.fit(progress=False).history) == 3
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(FileNotFoundError, match="no checkpoint, though 3 epochs"):
        Trainer.resume(run)
    assert len(Run(run).history) == 3


def test_a_run_finds_its_dataset_again_and_takes_no_other(tmp_path, monkeypatch):
    def make(path, seed):
        return headwater.generate("planted", path, nodes=60, classes=2, features=4, seed=seed)

    monkeypatch.chdir(tmp_path)
    make("here/data", 1)
    fit(headwater.Dataset.open("here/data"), "here/run", epochs=1)
    os.rename("here", "there")
    make("here/data", 2)
    monkeypatch.chdir("/")
    there = tmp_path / "there"
    assert len(Trainer.resume(there / "run", epochs=2).fit(progress=False).history) == 2
    shutil.rmtree(there / "data")
    for ask in (Trainer.resume, lambda run: Run(run).predict()):
        with pytest.raises(FileNotFoundError, match="data"):
            ask(there / "run")
    make(there / "data", 2)
    for ask in (Trainer.resume, lambda run: Run(run).predict()):
        with pytest.raises(ValueError, match="not the dataset of the run"):
            ask(there / "run")


def test_threads_are_as_many_as_a_machine_bears(dataset, tmp_path, caplog):
    begun = time.perf_counter()
    with caplog.at_level("WARNING", logger="headwater"):
        fit(dataset, tmp_path / "run", epochs=1, threads=4096)
    assert time.perf_counter() - begun < 20
    assert any("4096 threads were asked for" in record.message for record in caplog.records)


def test_predictions_are_those_of_the_labels_that_were_learnt(dataset, tmp_path):
    trainer = Trainer(dataset, output=tmp_path / "run", **SMALL, epochs=5)
    run = trainer.fit(progress=False)
    labels, test = np.asarray(dataset.labels()), np.asarray(dataset.split("test"))
    said = np.asarray(trainer.predict(test))
    assert (said == labels[test]).mean() == pytest.approx(run.test_accuracy)
    odds = np.asarray(run.predict(range(10), form="probabilities"))
    assert odds.shape == (10, 4) and np.allclose(odds.sum(1), 1, atol=1e-5)
    assert np.asarray(run.predict([3, 3])).shape == (2,) and (odds.argmax(1) == np.asarray(run.predict())[:10]).all()
    with pytest.raises(IndexError, match="400"):
        run.predict([400])
    with pytest.raises(ValueError, match="form"):
        run.predict([0], form="odds")


def test_the_best_epoch_is_what_is_asked(dataset, tmp_path):
    # Never due for a checkpoint, and a rate that spoils what was learnt.
    more = {"full_graph": True, "epochs": 25, "rate": 2.0, "checkpoint_every": 1000}
    whole = {field: value for field, value in SMALL.items() if field not in ("fanout", "batch")}
    run = Trainer(dataset, output=tmp_path / "run", **{**whole, **more}).fit(progress=False)
    assert run.best_epoch < 25 and run.valid == max(epoch["valid"] for epoch in run.history)
    labels, test = np.asarray(dataset.labels()), np.asarray(dataset.split("test"))
    assert (np.asarray(run.predict(test)) == labels[test]).mean() == pytest.approx(run.test)
    last = np.asarray(run.predict(test, checkpoint="last"))
    assert (last == labels[test]).mean() == pytest.approx(run.history[-1]["test"])


def test_without_validation_nodes_nothing_is_made_up(dataset, tmp_path, caplog):
    held = headwater.Dataset.from_arrays(
        dataset.topology(), features=dataset.features(), labels=dataset.labels(), classes=4,
        train=dataset.split("train"), test=dataset.split("test"),
    )  # fmt: skip
    with caplog.at_level("INFO", logger="headwater"):
        run = fit(held, tmp_path / "run")
    assert any("no validation nodes" in record.message for record in caplog.records)
    assert run.best_epoch is None and run.valid is None and run.test == run.history[-1]["test"]
    assert all(epoch["valid"] is None and epoch["valid_loss"] is None for epoch in run.history)
    with pytest.raises(ValueError, match="patience is 3.*no validation nodes"):
        fit(held, tmp_path / "patient", patience=3)


def test_scores_and_what_is_left_open_are_fields(dataset, tmp_path):
    tiered = {"features": "tiered", "hot_share": 0.2, "epochs": 1}
    runs = [
        fit(dataset, tmp_path / kind, scores=kind, **tiered)
        for kind in ("out-degree", "in-degree", "pagerank", "weighted-pagerank", "expected", "presampled")
    ]
    assert [run.config["scores"] for run in runs] == headwater._headwater.score_kinds()
    assert len({str(curve(run)) for run in runs}) == 1, "where rows lie changes nothing that is learnt"
    assert len({run.summary["feature_hit_rate"] for run in runs}) > 1
    with pytest.raises(ValueError, match="scores.*presampled"):
        fit(dataset, tmp_path / "none", scores="degree", **tiered)
    with pytest.raises(ValueError, match="score_damping is 0.5.*PageRank"):
        fit(dataset, tmp_path / "none", score_damping=0.5, **tiered)
    with pytest.raises(ValueError, match="loss is nll.*cross_entropy"):
        fit(dataset, tmp_path / "none", loss="nll")
    trainer = Trainer(dataset, output=tmp_path / "gcn", model="gcn", device="cpu", epochs=1)
    assert trainer.config["normalise_features"] is False, "features have both signs"


def test_layers_are_compiled_without_what_is_named(dataset, tmp_path):
    run, plain = (fit(dataset, tmp_path / name, without=names) for name, names in (("some", []), ("none", headwater.OPTIMISATIONS)))
    assert run.config["without"] == [] and plain.config["without"] == list(headwater.OPTIMISATIONS)
    assert [epoch["loss"] for epoch in plain.history] == pytest.approx([epoch["loss"] for epoch in run.history], rel=1e-3)
    assert "without" in (tmp_path / "none" / "config.toml").read_text()
    with pytest.raises(ValueError, match="without cannot change"):
        Trainer.resume(tmp_path / "none", dataset, epochs=4, without=["fuse"])
    # Whoever says nothing leaves nothing out.
    assert fit(dataset, tmp_path / "said").config["without"] is None


def test_several_types_are_trained_on(tmp_path):
    dataset = headwater.generate("mag", tmp_path / "mag", scale=0.0002)
    run = fit(dataset, tmp_path / "run", model="rgcn", epochs=1, full_graph=False, fanout=[3], hidden=8)
    assert len(run.history) == 1 and run.config["layers"] == 1


def test_progress_is_shown_where_it_is_wanted(dataset, tmp_path, capsys, monkeypatch):
    Trainer(dataset, output=tmp_path / "quiet", **SMALL, epochs=1).fit(progress=False)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    Trainer(dataset, output=tmp_path / "plain", **SMALL, epochs=2).fit()
    shown = capsys.readouterr()
    assert shown.out == "" and "epoch 2/2  loss" in shown.err and len(shown.err.splitlines()) == 2
    bars = []

    class Bar(types.SimpleNamespace):
        def __init__(self, **given):
            super().__init__(given=given, n=given["initial"], postfix={}, is_closed=False)
            bars.append(self)

        def update(self, by):
            self.n += by

        def set_postfix(self, parts):
            self.postfix = parts

        def close(self):
            self.is_closed = True

    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
    Trainer(dataset, output=tmp_path / "bar", **SMALL, epochs=2).fit()
    assert bars[0].given["total"] == bars[0].n == 2 and bars[0].is_closed and "valid" in bars[0].postfix


def test_pictures(dataset, tmp_path, monkeypatch):
    import xml.etree.ElementTree as xml

    run = fit(dataset, tmp_path / "run")
    assert xml.fromstring(run.svg()).tag.endswith("svg") and run.svg().count("<polyline") == 4
    assert "<svg" in run._repr_html_()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        run.plot()


def test_figures_of_matplotlib(dataset, tmp_path):
    figure = pytest.importorskip("matplotlib.figure")
    run = fit(dataset, tmp_path / "run")
    made = run.plot()
    assert isinstance(made, figure.Figure) and [len(axes.lines) for axes in made.axes] == [2, 2]


def test_a_folder_is_found_where_none_is_named(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = [Trainer(dataset, **SMALL, epochs=1).path for _ in range(2)]
    assert found == [str(tmp_path / "runs" / name) for name in ("planted-sage-1", "planted-sage-2")]


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"hiden": 8}, TypeError, "hiden.*hidden"),
        ({"dataset": "x"}, TypeError, "dataset"),
        ({"hidden": "wide"}, ValueError, "hidden.*wide"),
        ({"hidden": 0}, ValueError, "hidden is 0"),
        ({"model": "saga"}, ValueError, "saga.*sage"),
        ({"fanout": [0]}, ValueError, "fanout"),
        ({"rate": float("nan")}, ValueError, "rate"),
        ({"device": "tpu"}, ValueError, "tpu"),
        ({"features": "zero-copy"}, ValueError, "zero-copy"),
        ({"producer": "process"}, ValueError, "producer is process; expected thread"),
        ({"producer": "process", "device": "auto"}, ValueError, "producer is process; expected thread"),
        ({"gather_sms": 4}, ValueError, "gather_sms is 4; expected 0"),
        ({"hot_share": 0.5}, ValueError, "hot_share is 0.5; expected .* where features is not tiered"),
        ({"device": "cuda", "features": "memory"}, ValueError, "features is memory; expected auto, dma"),
        ({"epochs": object()}, TypeError, "epochs"),
        ({"without": ["dust"]}, ValueError, "without is dust; expected optimisations among one_type, "),
        ({"without": "fuse"}, ValueError, "without: invalid type: string"),
    ],
)
def test_wrong_fields_are_named(dataset, tmp_path, fields, kind, words):
    with pytest.raises(kind, match=words):
        Trainer(dataset, output=tmp_path / "run", **{**SMALL, **fields})
    assert not (tmp_path / "run").exists()


def test_wrong_places_are_pythons_errors(dataset, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Trainer(tmp_path / "nowhere", output=tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Trainer.resume(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Run(tmp_path / "nowhere")
    with pytest.raises(OSError, match="/proc"):
        Trainer(dataset, output="/proc/nowhere/run", **SMALL)
    fit(dataset, tmp_path / "run", epochs=1)
    with pytest.raises(FileExistsError, match="resume"):
        Trainer(dataset, output=tmp_path / "run", **SMALL)
    with pytest.raises(ValueError, match="hidden cannot change"):
        Trainer.resume(tmp_path / "run", hidden=8)
    other = headwater.generate("planted", tmp_path / "other", nodes=400, classes=4, features=8, seed=9)
    with pytest.raises(ValueError, match="not the dataset of the run"):
        Trainer.resume(tmp_path / "run", other)
    bare = headwater.Dataset.from_arrays(dataset.topology(), num_nodes=400)
    with pytest.raises(ValueError, match="labels"):
        Trainer(bare, output=tmp_path / "bare", **SMALL)


@pytest.mark.gpu
def test_activations_may_leave_where_steps_see_the_whole_graph(dataset, gpu, tmp_path):
    whole = {"model": "sage", "full_graph": True, "device": "cuda", "layers": 3, "hidden": 8, "epochs": 1, "evaluate_every": 0}
    kept = Trainer(dataset, output=tmp_path / "kept", **whole).fit(progress=False)
    for to in ("host", "recompute"):
        run = Trainer(dataset, output=tmp_path / to, offload=[to], offload_slack=10.0, **whole).fit(progress=False)
        assert curve(run) == curve(kept), "gradients are the same to the bit"
        found = run.summary["offload"]
        assert len(found["layers"]) == 3 and found["peak_bytes"] <= found["kept_peak_bytes"]
        assert found["steps"] == 1 and found["expected_ms"] > 0
    assert "offload" not in kept.summary
    with pytest.raises(ValueError, match="activations"):
        Trainer(dataset, output=tmp_path / "least", offload=["auto"], offload_gpu_gb=1e-6, **whole)


def test_activations_that_could_not_leave_are_refused(dataset, tmp_path):
    for fields, why in (
        ({"offload": ["host"], "full_graph": True, "device": "cpu"}, "offload.*device is cpu"),
        ({"offload": ["host"]}, "offload.*full_graph is false"),
        ({"offload_host_gb": 1.0}, "offload_host_gb.*neither host nor disk"),
        ({"offload": ["hots"], "full_graph": True}, "offload.*hots"),
    ):
        with pytest.raises(ValueError, match=why):
            Trainer(dataset, output=tmp_path / "none", **fields)
