"""How far a run is: a bar of tqdm where that is installed, else one line that is written over."""

from __future__ import annotations

import sys
from typing import Any, Optional


class Progress:
    """Shows epochs and batches on standard error while it is entered; nothing where `is_shown` is false."""

    def __init__(self, epochs: int, done: int, is_shown: bool) -> None:
        self.epochs = epochs
        self.done = done
        self.is_shown = is_shown
        self.bar: Optional[Any] = None

    def __enter__(self) -> Progress:
        if self.is_shown:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return self
            self.bar = tqdm(total=self.epochs, initial=self.done, unit="epoch", leave=True)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()
        elif self.is_shown and sys.stderr.isatty():
            sys.stderr.write("\n")

    def batch(self, done: int, of: int, loss: float) -> None:
        """Some batches of an epoch are done."""
        self._show({"batch": f"{done}/{of}", "loss": f"{loss:.4f}"}, is_over=False)

    def epoch(self, report: dict[str, Any]) -> None:
        """An epoch is done."""
        self.done = report["epoch"]
        shown = {"loss": f"{report['loss']:.4f}"}
        shown.update({what: f"{report[what]:.4f}" for what in ("valid", "test") if report[what] is not None})
        if self.bar is not None:
            self.bar.update(self.done - self.bar.n)
        self._show(shown, is_over=True)

    def _show(self, parts: dict[str, str], is_over: bool) -> None:
        if not self.is_shown:
            return
        if self.bar is not None:
            self.bar.set_postfix(parts)
            return
        line = f"epoch {self.done}/{self.epochs}  " + "  ".join(f"{name} {value}" for name, value in parts.items())
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{line:<78}")
        elif is_over:
            # A log gets a line an epoch.
            sys.stderr.write(line + "\n")
        sys.stderr.flush()
