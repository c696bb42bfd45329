"""A program that goes through epochs of a loader and notes every batch, as a training loop that can be killed would.

Runs in the Python that has the package. It has imported everything once and is forked for each loop: a loop takes a second,
and torch takes five to import. Tells on standard output who was forked, and how it ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402

from headwater.pyg import LinkNeighborLoader, NeighborLoader  # noqa: E402

EPOCHS = 3
# Batches between two states that are kept.
EVERY = 4


def plain(workers: int) -> Any:
    return NeighborLoader(_data(), [5, 5], batch_size=48, shuffle=True, seed=7, num_workers=workers)


def weighted(workers: int) -> Any:
    kept = {"num_workers": workers, "persistent_workers": workers > 0}
    return NeighborLoader(
        _data(), [4, 4], batch_size=64, shuffle=True, drop_last=True, seed=8, weight_attr="edge_weight", disjoint=True, **kept
    )


def links(workers: int) -> Any:
    data = _data()
    inputs = {"edge_label_index": data.edge_index[:, :4000], "neg_sampling_ratio": 1.0}
    return LinkNeighborLoader(data, [4, 3], batch_size=100, shuffle=True, seed=9, num_workers=workers, **inputs)


def typed(workers: int) -> Any:
    data, drawn = HeteroData(), torch.Generator().manual_seed(4)
    for name, nodes in (("paper", 2000), ("author", 900)):
        data[name].x = torch.randn(nodes, 12, generator=drawn)
    ends = torch.stack([torch.randint(900, (9000,), generator=drawn), torch.randint(2000, (9000,), generator=drawn)])
    data["author", "writes", "paper"].edge_index = ends
    data["paper", "of", "author"].edge_index = ends.flip(0)
    wished = {"input_nodes": "paper", "transform": lambda batch: batch}
    return NeighborLoader(data, [4, 4], batch_size=40, shuffle=True, seed=10, num_workers=workers, **wished)


RECIPES: dict[str, Callable[[int], Any]] = {"plain": plain, "weighted": weighted, "links": links, "typed": typed}


def loop(recipe: str, workers: int, folder: Path) -> None:
    """Goes on where the last one kept where it was, or begins."""
    loader, known, state = RECIPES[recipe](workers), 0, folder / "state.json"
    if state.exists():
        kept = json.loads(state.read_text())
        loader.load_state_dict(kept["loader"])
        known = kept["known_bytes"]
    with open(folder / "batches", "ab") as notes:
        notes.truncate(known)
        while loader.state_dict()["epoch"] < EPOCHS:
            for number, batch in enumerate(loader):
                notes.write(f"{_digest(batch)}\n".encode())
                notes.flush()
                if number % EVERY == EVERY - 1:
                    _keep(state, {"loader": loader.state_dict(), "known_bytes": notes.tell()})
            _keep(state, {"loader": loader.state_dict(), "known_bytes": notes.tell()})
    (folder / "done").touch()


def serve() -> None:
    """Loops, one a line of standard input."""
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(_forked(asked))
        print(json.dumps({"process": child}), flush=True)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


def _forked(asked: dict[str, Any]) -> int:
    try:
        torch.set_num_threads(1)
        loop(asked["recipe"], asked["workers"], Path(asked["folder"]))
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        return 1
    return 0


def _data() -> Data:
    drawn = torch.Generator().manual_seed(3)
    edges = torch.randint(3000, (2, 24000), generator=drawn)
    weight = torch.rand(24000, generator=drawn)
    return Data(x=torch.randn(3000, 16, generator=drawn), y=torch.arange(3000), edge_index=edges, edge_weight=weight)


def _keep(path: Path, what: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(what))
    os.replace(partial, path)


def _digest(batch: Any) -> str:
    """Every tensor of a batch, with its name, type and shape."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(_tensors(batch.to_dict(), "")):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _tensors(inner, f"{name}/{key}")
    elif isinstance(value, (list, tuple)):
        for at, inner in enumerate(value):
            yield from _tensors(inner, f"{name}/{at}")
    elif value is not None:
        yield name, torch.tensor([float(part) for part in str(value).encode()])


if __name__ == "__main__":
    serve()
