"""What a run left in its folder: how it went, what it reached, and the network to ask."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Optional, Union

from ._headwater import Array, run_checkpoints, run_config, run_dataset, run_history, run_predict
from .dataset import Dataset, Path, plain
from .picture import Chart, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Run:
    """A run in its folder, whoever trained it: `Trainer.fit`, or the command line."""

    def __init__(
        self,
        path: Path,
        *,
        dataset: Optional[Dataset] = None,
        summary: Optional[dict[str, Any]] = None,
        is_stopped: bool = False,
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        #: Every field of the run.
        self.config: dict[str, Any] = run_config(self.path)
        #: One dictionary an epoch, those from before it was resumed included.
        self.history: list[dict[str, Any]] = run_history(self.path)
        self._summary = _summary(self.path) if summary is None else summary
        #: Whether a callback, Ctrl-C or a signal stopped it before its end.
        self.is_stopped = is_stopped or self._summary.get("ending") == "stopped"
        self._dataset = dataset

    @property
    def metric(self) -> Optional[str]:
        """What is measured: `accuracy`, `f1_micro`, `f1_macro`, `roc_auc` or `r2`."""
        return self._summary.get("metric") or self.config.get("metric")

    @property
    def test(self) -> Optional[float]:
        """The metric of the test nodes in the best epoch, or in the last where none is the best; None before it ended."""
        return self._summary.get("test")

    @property
    def valid(self) -> Optional[float]:
        """The metric of the validation nodes in that epoch; None where they have none."""
        return self._summary.get("valid")

    @property
    def best_epoch(self) -> Optional[int]:
        """The epoch, from 1, that was best for the validation nodes by what `watch` says, and whose weights `predict` uses.

        None where no validation nodes said which is best: then the last one's are used.
        """
        return self._summary.get("best_epoch")

    @property
    def test_accuracy(self) -> Optional[float]:
        """`test` of a run that is measured by accuracy; None for other metrics."""
        return self.test if self.metric == "accuracy" else None

    @property
    def valid_accuracy(self) -> Optional[float]:
        """`valid` of a run that is measured by accuracy; None for other metrics."""
        return self.valid if self.metric == "accuracy" else None

    @property
    def summary(self) -> dict[str, Any]:
        """All that the run says of itself; empty before it ended."""
        return dict(self._summary)

    @property
    def checkpoints(self) -> list[str]:
        """The checkpoints that are kept, the newest last."""
        return [os.fspath(path) for path in run_checkpoints(self.path)]

    @property
    def checkpoint(self) -> Optional[str]:
        """The newest checkpoint."""
        found = self.checkpoints
        return found[-1] if found else None

    def predict(
        self,
        nodes: Any = None,
        *,
        dataset: Union[Dataset, Path, None] = None,
        form: str = "answers",
        checkpoint: str = "best",
    ) -> Array:
        """What the network says of nodes of the type that has labels, or of all of them.

        `form` is `answers` (classes, or whatever it was trained to say), `logits` or `probabilities`. `checkpoint` is
        `best`, the weights that `test` and `valid` are of, or `last`. Another dataset of the same types may be given.
        """
        nodes = list(nodes) if isinstance(nodes, (tuple, range)) else plain(nodes)
        return run_predict(self.path, self._asked(dataset)._raw, nodes, form, checkpoint)

    def _asked(self, dataset: Union[Dataset, Path, None]) -> Dataset:
        if dataset is not None:
            return dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
        if self._dataset is None:
            found = run_dataset(self.path)
            if found is None:
                raise ValueError("the dataset of the run was in memory; it must be given")
            self._dataset = Dataset.open(found)
        return self._dataset

    def plot(self) -> Figure:
        """Loss and metric over the epochs, as a figure of matplotlib. Without matplotlib there is `svg`."""
        try:
            from matplotlib.figure import Figure
        except ImportError as why:
            raise ImportError("plot needs matplotlib (pip install matplotlib); svg() draws without it") from why
        figure = Figure(figsize=(10, 4), layout="constrained")
        for axes, chart in zip(figure.subplots(1, 2), self._charts()):
            for name, points in chart.lines.items():
                axes.plot(*zip(*points), label=name, marker="." if len(points) < 50 else None)
            axes.set(title=chart.title, xlabel="epoch")
            axes.grid(alpha=0.3)
            if chart.lines:
                axes.legend()
        return figure

    def svg(self) -> str:
        """The same as the text of an SVG picture, which needs nothing."""
        return draw(self._charts())

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>{self.svg()}"

    def _charts(self) -> list[Chart]:
        metric = self.config.get("metric") or "metric"

        def lines(**fields: str) -> dict[str, list[tuple[float, float]]]:
            found = {
                name: [(epoch["epoch"], epoch[field]) for epoch in self.history if epoch[field] is not None]
                for name, field in fields.items()
            }
            return {name: points for name, points in found.items() if points}

        return [
            Chart("loss", lines(training="loss", validation="valid_loss")),
            Chart(metric, lines(validation="valid", test="test")),
        ]

    def __repr__(self) -> str:
        reached = "" if self.test is None else f", test {self.metric} {self.test:.4f}"
        stopped = ", stopped" if self.is_stopped else ""
        return f"Run({self.config['model']}, {len(self.history)} epochs{reached}{stopped}, {self.path!r})"


def _summary(path: str) -> dict[str, Any]:
    try:
        with open(os.path.join(path, "summary.json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}
