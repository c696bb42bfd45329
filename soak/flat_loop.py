"""Loaders and trainers that go on until somebody ends them, and tell once a round what they have: flat_loop.py WHAT FOLDER.

Runs in the Python that has the package. What is made, used and dropped in a round is all there is, so nothing may grow.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torch_geometric.data import Data  # noqa: E402

import headwater  # noqa: E402
from headwater.pyg import LinkNeighborLoader, NeighborLoader  # noqa: E402

from .flat import LIVE  # noqa: E402


def loaders(folder: Path, device: Any = None) -> Callable[[], None]:
    """An epoch of a loader that stays, one of a loader that is made anew, and steps of a small network on their batches."""
    drawn = torch.Generator().manual_seed(5)
    edges = torch.randint(4000, (2, 40_000), generator=drawn)
    data = Data(x=torch.randn(4000, 32, generator=drawn), y=torch.arange(4000) % 7, edge_index=edges)
    wished = {"batch_size": 100, "shuffle": True, "device": device}
    stays = NeighborLoader(data, [5, 5], seed=1, num_workers=2, persistent_workers=True, **wished)
    network = torch.nn.Linear(32, 7)
    steps = torch.optim.Adam(network.parameters())

    def round_() -> None:
        anew = NeighborLoader(data, [4, 4], seed=2, disjoint=True, **wished)
        links = LinkNeighborLoader(data, [3], edge_label_index=edges[:, :2000], neg_sampling_ratio=1.0, seed=3, **wished)
        for loader in (stays, anew):
            for batch in loader:
                steps.zero_grad()
                torch.nn.functional.cross_entropy(network(batch.x), batch.y).backward()
                steps.step()
        # One that is left in the middle leaves nothing behind.
        for _ in zip(links, range(5)):
            pass

    return round_


def emulated_loaders(folder: Path) -> Callable[[], None]:
    """The same with batches that an emulated GPU draws and gathers."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python/tests"))
    import conftest
    import headwater.gpu

    place = conftest.emulated()
    headwater.gpu.Place, headwater.gpu.current = place, lambda: place(None)
    headwater.gpu.holding, headwater.gpu.lies_there = lambda tensors: place(None), lambda tensor: True
    inner = loaders(folder, "cuda")

    def round_() -> None:
        inner()
        # It notes what was marked, for tests.
        place.log.clear()

    return round_


def trainer(folder: Path, device: str = "cpu") -> Callable[[], None]:
    """A run of some epochs, again and again in a new folder."""
    data = folder / "data"
    if not data.exists():
        headwater.generate("planted", str(data), nodes=600, classes=4, features=16)
    dataset = headwater.open(str(data))

    def round_() -> None:
        run = folder / "run"
        wished = {"fanout": [3, 3], "batch": 128, "hidden": 16, "epochs": 2, "device": device, "threads": 1}
        headwater.Trainer(dataset, model="sage", full_graph=False, output=str(run), **wished).fit(progress=False)
        _removed(run)

    return round_


def emulated_trainer(folder: Path) -> Callable[[], None]:
    return trainer(folder, "cuda")


WHAT = {"loaders": loaders, "emulated-loaders": emulated_loaders, "trainer": trainer, "emulated-trainer": emulated_trainer}


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    round_, rounds = WHAT[what](folder), 0
    live = _live() if what.startswith("emulated") else None
    while True:
        begun = time.monotonic()
        round_()
        # Loaders of PyG refer to themselves, so what they have goes when Python looks for such things.
        gc.collect()
        rounds += 1
        told = {} if live is None else {name: live(name.encode()) for name in LIVE}
        print(json.dumps({"rounds": rounds, **told}), flush=True)
        # Half of the time is the machine's own.
        time.sleep(min(2.0, time.monotonic() - begun))


def _live() -> Callable[[bytes], int]:
    live = ctypes.CDLL(os.environ["HEADWATER_LIBCUDA"]).hwemu_live
    live.restype, live.argtypes = ctypes.c_ulonglong, [ctypes.c_char_p]
    return live


def _removed(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


if __name__ == "__main__":
    main()
