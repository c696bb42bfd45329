"""The programs of `examples/`, at the sizes that they have where nothing is said."""

import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("one_thread")

FOLDER = Path(__file__).parents[2] / "examples"
RUNS = {
    "offload_bert": "",
    "offload_gpt2": "--checkpoint",
    "offload_t5": "--layers 1",
    "offload_graph": "--model gcn",
    "offload_trainer": "--accumulate 2",
}
NEEDS = {"offload_graph": ["torch_geometric"], "offload_trainer": ["transformers", "accelerate"]}


@pytest.fixture(autouse=True)
def beside_the_examples(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    sys.modules.pop("running", None)


def main_of(name):
    for module in NEEDS.get(name, ["transformers"]):
        pytest.importorskip(module)
    return runpy.run_path(str(FOLDER / f"{name}.py"))["main"]


def test_all_of_them_are_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == {*RUNS, "running"}


@pytest.mark.parametrize("name", RUNS)
def test_gradients_are_those_without_offload(name, capsys):
    main = main_of(name)
    main(["--device", "cpu", "--steps", "1", "--check", *RUNS[name].split()])
    said = capsys.readouterr().out
    assert "to the bit" in said and "left the device" in said and "0 B in 0 blocks" not in said


@pytest.mark.parametrize("name", RUNS)
def test_help_has_an_example(name, capsys, monkeypatch):
    main = main_of(name)
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    said = capsys.readouterr().out
    assert left.value.code == 0 and f"python examples/{name}.py --check" in said and "GPU memory" in said


def test_a_difference_ends_the_program():
    torch = pytest.importorskip("torch")
    compare = runpy.run_path(str(FOLDER / "running.py"))["compare"]
    compare([torch.ones(2)], [torch.ones(2)])
    for moved, kept in (([torch.ones(2)], [torch.zeros(2)]), ([], [])):
        with pytest.raises(SystemExit, match="gradients differ"):
            compare(moved, kept)
