"""The package as a user meets it: without torch, in other processes, and in the words of README."""

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SAMPLES = """
import numpy as np
from headwater import Graph, Sampler, Topology

source, target = np.random.default_rng(0).integers(0, 1000, (2, 100_000))
graph = Graph([("node", 1000)], [(0, "to", 0, Topology.from_coo(source, target, 1000, 1000))])
sampler = Sampler(graph, [[20], [20]])

def draw():
    return np.asarray(sampler.sample([(0, np.arange(500), None)], (1, 2, 3)).edge_ids(0))
"""


def run(program, seconds=120, **more):
    environment = {**os.environ, **more}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=seconds, cwd="/", env=environment)


def test_it_is_imported_without_torch():
    done = run("import sys; sys.modules['torch'] = None; " + SAMPLES + "\nprint(len(draw()) > 0)")
    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr


def test_its_names_are_those_for_users():
    import headwater

    shown = [name for name in dir(headwater) if not name.startswith("__")]
    assert set(shown) == {*headwater.__all__, "glt", "pyg"} - {"__version__"}
    for name in ("Any", "picture", "progress", "run", "tiers", "trainer", "dataset"):
        assert name not in shown


def test_a_dataset_folder_is_opened(tmp_path):
    import headwater

    made = headwater.generate("planted", tmp_path / "d", nodes=60, classes=2, seed=1)
    assert repr(headwater.open(tmp_path / "d")) == repr(made)
    with pytest.raises(OSError, match="nowhere"):
        headwater.open(tmp_path / "nowhere")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_samples_too():
    program = SAMPLES + """
import os, warnings
warnings.simplefilter("ignore")
expected = draw()
child = os.fork()
if child == 0:
    os._exit(0 if (draw() == expected).all() else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (draw() == expected).all())
"""
    done = run(program)
    assert done.stdout.strip() == "0 True", done.stderr


def test_the_gil_is_free_while_work_is_done():
    program = SAMPLES + """
import threading, time
big = np.random.default_rng(0).integers(0, 200_000, (2, 4_000_000))
ticks, is_over = 0, False
def tick():
    global ticks
    while not is_over:
        ticks += 1
        time.sleep(0.001)
thread = threading.Thread(target=tick)
thread.start()
begun = time.perf_counter()
Topology.from_coo(big[0], big[1], 200_000, 200_000)
taken = time.perf_counter() - begun
is_over = True
thread.join()
print(ticks >= 3 or taken < 0.02)
"""
    done = run(program)
    assert done.stdout.strip() == "True", done.stderr


EXAMPLES = ["headwater", "headwater.tiers", "headwater.trainer"]
WITH_PYG = ["headwater._unified", "headwater._unified_device", "headwater.compile", "headwater.dataset"]
WITH_PYG += ["headwater.pyg.install", "headwater.pyg.stores"]
WITH_PYG += ["headwater.glt", "headwater.glt.typing"]
WITH_PYG += [f"headwater.glt.{name}" for name in ("data.topology", "data.feature", "data.unified_tensor")]
WITH_PYG += [f"headwater.glt.utils.{name}" for name in ("common", "tensor")]


@pytest.mark.parametrize("name", EXAMPLES + WITH_PYG)
def test_examples_of_docstrings_run(name):
    if name in WITH_PYG:
        pytest.importorskip("torch_geometric")
    known = {"torch": sys.modules.get("torch"), "headwater": importlib.import_module("headwater")}
    found = doctest.testmod(importlib.import_module(name), extraglobs=known)
    assert found.attempted > 0 and found.failed == 0


PAGES = ["README.md", "docs/compile-a-layer.md", "docs/offload.md", "docs/training.md", "docs/unified-tensors.md"]
PAGES += ["docs/offload-from-others.md"]
PAGES += [f"docs/from-{name}.md" for name in ("pyg", "glt", "dgl", "quiver")]


# PyG and the Trainer take seconds to import: once, and then each example has a process of its own. It ends without taking down
# an interpreter that has all of these, which takes two seconds.
WITH_TORCH = "torch_geometric, transformers.trainer"
EACH_IN_A_PROCESS = """
import os, runpy, sys, traceback
import {imported}
for file in {files}:
    child = os.fork()
    if child == 0:
        failed = 0
        try:
            runpy.run_path(file, run_name="__main__")
        except BaseException:
            failed = 1
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(failed)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(open(file).read())
"""


@pytest.mark.parametrize("imported", [WITH_TORCH, "runpy"], ids=["torch", "none"])
def test_examples_of_pages_run(imported, tmp_path):
    pytest.importorskip("torch_geometric")
    pytest.importorskip("transformers")
    files = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        assert blocks, page
        # What does without torch is shown to.
        if ("torch" in "".join(blocks)) != (imported == WITH_TORCH):
            continue
        for number, block in enumerate(blocks):
            # An example shows what comes out, and that it is good.
            assert "assert " in block or "pytest.raises" in block, block
            # In a file, as a user has it: layers are read from there.
            file = tmp_path / f"{page.replace('/', '_')}_{number}.py"
            file.write_text(block)
            files.append(str(file))
    assert files
    # One thread each: more would wait for CPUs that other tests have.
    done = run(EACH_IN_A_PROCESS.format(imported=imported, files=files), 300, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
