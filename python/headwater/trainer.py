"""Training by Headwater itself: models, samplers, features and optimisers of the core, on the CPU or a GPU.

A run lives in a folder: its configuration, its journal, its checkpoints. Whatever stops it, `Trainer.resume` goes on as
if nothing had happened. What it warns of, `logging` hears under the name `headwater`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any, Optional, Union

from ._headwater import RawTrainer, run_dataset
from .dataset import Dataset, Path
from .progress import Progress
from .run import Run

Callback = Callable[[dict[str, Any]], Any]


class Trainer:
    """A run that has not ended. Fields are those of the command line, with its defaults for the model.

    Among them are `model` (`sage`, `gcn`, `gat`, `gin`, `rgcn`, `rgat`, `hgt`, `mlp`, or the path of a layer text),
    `fanout`, `batch`, `hidden`, `epochs`, `rate`, `dropout`, `device` (`auto`, `cpu`, `cuda`), `features` (`auto`,
    `memory`, `disk`, `tiered`, and on a GPU `zero-copy`, `all-gpu` and others), `scores` (what says which rows of a
    tiered table are hot, as in `headwater.scores`), `without` (optimisations that layers are compiled without, as in
    `headwater.compile`), `offload` (what may become of activations on a GPU whose steps see the whole graph: `["host"]`,
    `["host", "disk"]`, `["recompute"]` or `["auto"]`), `tune` (how schedules of kernels are chosen there: `fixed`, `model`,
    `measure`) and `seed`. `output` is the run's folder, a new one below `runs`
    where none is named. What is decided where nothing is said, such as whether rows of features are divided by their
    sums, is in `config` and is told to `logging`.

    >>> import headwater, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> dataset = headwater.generate("planted", folder.name + "/data", nodes=300, classes=3, features=8)
    >>> output = folder.name + "/run"
    >>> trainer = Trainer(dataset, model="sage", fanout=[5, 5], hidden=16, epochs=2, device="cpu", output=output)
    >>> run = trainer.fit(progress=False)
    >>> [epoch["epoch"] for epoch in run.history]
    [1, 2]
    >>> len(run.predict([0, 1, 2]))
    3
    >>> folder.cleanup()
    """

    def __init__(self, dataset: Union[Dataset, Path], *, output: Optional[Path] = None, **fields: Any) -> None:
        dataset = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
        self._begin(dataset, output, fields, False)

    @classmethod
    def resume(cls, output: Path, dataset: Union[Dataset, Path, None] = None, **changes: Any) -> Trainer:
        """The run in a folder, where its newest checkpoint says. `fit` then goes on with it.

        `changes` may be about how long it goes on (`epochs`, `patience`), where it computes and what it keeps; they stay
        with the run. What would make another run of it is refused. A run whose dataset was in memory is given it
        again; any other than the one it began with is refused.
        """
        folder = os.fspath(output)
        if not os.path.exists(os.path.join(folder, "config.toml")):
            raise FileNotFoundError(f"{folder} is no run that can be gone on with")
        dataset = run_dataset(folder) if dataset is None else dataset
        if dataset is None:
            raise ValueError("the dataset of the run was in memory; it must be given")
        opened = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
        trainer = cls.__new__(cls)
        trainer._begin(opened, folder, changes, True)
        return trainer

    def _begin(self, dataset: Dataset, output: Optional[Path], fields: dict[str, Any], is_resumed: bool) -> None:
        for field in ("dataset", "out"):
            if field in fields:
                raise TypeError(f"{field} is no keyword here; the dataset comes first, and output is the folder")
        self.dataset = dataset
        folder = None if output is None else os.path.abspath(os.fspath(output))
        self._raw = RawTrainer.open(dataset._raw, folder, _stem(dataset, fields.get("model")), fields, is_resumed)
        self.path = os.fspath(self._raw.path)
        remarks = [] if self._raw.note is None else [self._raw.note]
        for remark in [*remarks, *self._raw.remarks]:
            logging.getLogger("headwater").info("%s", remark)

    @property
    def config(self) -> dict[str, Any]:
        """Every field of the run."""
        return self._raw.config

    @property
    def device(self) -> str:
        """Where it computes."""
        return self.config["device"]

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return self._raw.epoch

    def fit(self, callbacks: Iterable[Callback] = (), progress: bool = True) -> Run:
        """Trains until all epochs are done or nothing gets better any more, or goes on where it was stopped.

        Every callback is called after every epoch with a dictionary: `epoch` (from 1), `loss`, `valid`, `test`,
        `valid_loss`, `rate` and seconds; what was not measured is None. One that returns False stops the run, one that raises does too, and what it raised comes out
        here. So does Ctrl-C. A run that was stopped has saved where it stands.
        """
        callbacks = list(callbacks)
        with Progress(self.config["epochs"], self.epoch, progress) as bar:

            def on_epoch(report: dict[str, Any]) -> bool:
                bar.epoch(report)
                # All of them are told, whatever one says.
                return all([callback(report) is not False for callback in callbacks])

            summary, is_done = self._raw.run(on_epoch, bar.batch if progress else None)
        return Run(self.path, dataset=self.dataset, summary=summary, is_stopped=not is_done)

    def predict(self, nodes: Any = None, **options: Any) -> Any:
        """What the network says of nodes, as far as it was saved; see `Run.predict`."""
        return Run(self.path, dataset=self.dataset).predict(nodes, **options)

    def __repr__(self) -> str:
        config = self.config
        done = f"epoch {self.epoch} of {config['epochs']}"
        return f"Trainer({config['model']}, {done}, {config['device']}, {self.path!r})"


def _stem(dataset: Dataset, model: Any) -> str:
    """What a run's folder below runs/ is called where nobody says, as the command line names it."""
    name = dataset.name if dataset.path is None else os.path.basename(os.path.abspath(dataset.path))
    return f"{name}-{model or 'sage'}".replace("/", "-").replace("\\", "-")
