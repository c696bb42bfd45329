"""Processes that are forked while activations are on their way, as workers of a DataLoader are, and those that end meanwhile."""

import gc
import os
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")

import headwater  # noqa: E402
from conftest import IS_HELD  # noqa: E402
from offload_cases import ROWS, WIDTH, data, gradients, mlp, same  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")


def run(text, **settings):
    """Another Python, with the cases at hand and an offloader of its own."""
    head = f"""
        import os, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import headwater, torch
        from offload_cases import gradients, mlp, same
        torch.set_num_threads(1)
        off = headwater.Offload(host=32 << 10, slot=4096, smallest=0, device="cpu", allow_buffered=True, **{settings!r})
        weights, loss = mlp("cpu")
        with off:
            made = loss()
        print("saved", flush=True)
    """
    text = textwrap.dedent(head) + textwrap.dedent(text)
    return subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_forked_process_keeps_its_own_and_graphs_may_outlive_the_interpreter(tmp_path):
    child = run(
        """
        child = os.fork()
        if child == 0:
            fine = same(gradients(mlp, "cpu", off), gradients(mlp, "cpu"))
            os._exit(0 if fine and any("forked" in why for why in off._tally._report.kept) else 1)
        assert os.waitpid(child, 0)[1] == 0
        made.backward()
        assert same([weight.grad for weight in weights], gradients(mlp, "cpu")[1:])
        with off:
            made = loss()
        """,
        disk=str(tmp_path),
    )
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 0 and b"Error" not in errors, errors.decode()


class Rows(torch.utils.data.Dataset):
    """Rows that a worker makes with gradients of its own, in the context that it was forked in. It has a graph of the process that it was forked
    from, and lets it go."""

    def __init__(self, off, graph):
        self.off, self.graph = off, graph

    def __len__(self):
        return 8

    def __getitem__(self, at):
        if self.graph is not None:
            self.graph.clear()
            self.graph = None
            gc.collect()
        weight = data("cpu", ROWS, WIDTH, requires_grad=True)
        # Hooks of the process that was forked are open here.
        inherited = torch.autograd.grad((weight * 2).exp().sum(), weight)[0]
        with self.off:
            loss = (weight * 2).exp().sum()
        own = torch.autograd.grad(loss, weight)[0]
        return own[0] if torch.equal(own, inherited) else own[0] * float("nan")


@pytest.mark.parametrize("is_early", [False, True], ids=["between steps", "in a forward pass"])
def test_workers_of_a_data_loader(is_early, one_thread, tmp_path):
    """Workers are forked while blocks are written, again and again; what is on its way is not theirs."""
    off = headwater.Offload(host=32 << 10, slot=4096, smallest=0, disk=tmp_path, device="cpu", allow_buffered=True)
    expected = gradients(mlp, "cpu")
    row = 2 * (data("cpu", ROWS, WIDTH) * 2).exp()[0]
    for _ in range(2):
        weights, loss = mlp("cpu")
        if not is_early:
            with off:
                made = loss()
        graph = [] if is_early else [made * 1]
        loader = torch.utils.data.DataLoader(Rows(off, graph), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=30)
        if is_early:
            with off:
                made = loss()
                batches = list(loader)
        else:
            batches = list(loader)
        graph.clear()
        assert [len(batch) for batch in batches] == [2] * 4 and all(torch.allclose(own, row) for batch in batches for own in batch)
        made.backward()
        assert same([made.detach(), *(weight.grad for weight in weights)], expected)
        del made, loader, weights, loss
        gc.collect()
    assert off._sites[torch.device("cpu")].raw.held() == (0, 0)


@pytest.mark.streams
@pytest.mark.skipif(not IS_HELD, reason="needs the emulator with HWEMU_ORDER")
def test_an_interpreter_that_ends_with_copies_in_flight(tmp_path):
    """Copies to host memory and back, and writes to disk, of a GPU; the graph is a global, which goes last of all."""
    child = run_held(
        """
        stand_in(pytest.MonkeyPatch(), held.Held)
        off = headwater.Offload(slot=4096, smallest=0, policy="all", host=64 << 10, disk=sys.argv[1], allow_buffered=True)
        (weights, loss), graphs = mlp("cpu"), []
        for microbatch in range(3):
            off.hint(next="forward", microbatch=microbatch)
            with off:
                graphs.append(loss())
        off.hint(next="backward", microbatch=0)
        cycle = [graphs, off]
        cycle.append(cycle)
        print(off.report().blocks)
        """,
        tmp_path,
    )
    found, errors = child.communicate(timeout=60)
    assert child.returncode == 0 and b"Error" not in errors and b"race" not in errors, errors.decode()
    assert int(found) > 0 and os.listdir(tmp_path) == []


def run_held(text, folder):
    """Another Python on the emulator."""
    head = f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import headwater, held, pytest, torch
        from conftest import stand_in
        from offload_cases import mlp
    """
    text = textwrap.dedent(head) + textwrap.dedent(text)
    return subprocess.Popen([sys.executable, "-c", text, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
