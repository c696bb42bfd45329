"""Offload for the `Trainer` of `transformers`, and those made from it."""

from __future__ import annotations

import logging
import weakref
from typing import Any, Optional

from transformers import TrainerCallback

from .context import Offload
from .passes import ForwardPasses
from .report import Report

_log = logging.getLogger(__name__)


class OffloadCallback(TrainerCallback):
    """Training forward passes of a Trainer's model, each in `Offload(**settings)`. See `headwater.offload_callback`."""

    def __init__(self, **settings: Any) -> None:
        # Settings that cannot be used are told of now, and not when training begins.
        self.off = Offload(**settings)
        self._passes: Optional[ForwardPasses] = None

    def report(self) -> Report:
        """What was moved so far, what was kept, and why."""
        return self.off.report()

    def remove(self) -> None:
        """Takes the hooks off the model, and leaves a context that Ctrl-C has left open. Training that ends, or begins again, does that;
        training that raises does not."""
        if self._passes is not None:
            self._passes.leave()
            self._passes.remove()
            self._passes = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        # A Trainer that failed, or tries again with smaller batches, has said nothing in between.
        self.remove()
        _refuse_other_offloaders(args)
        self.off.look_for_modules()
        self._passes = ForwardPasses(model, self.off)
        weakref.finalize(self, self._passes.remove)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._passes is not None:
            self._passes.leave()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.remove()
        report = self.report()
        numbers = {name: value for name, value in report.as_dict().items() if type(value) in (int, float)}
        state.log_history.append({**{f"offload_{name}": value for name, value in numbers.items()}, "step": state.global_step})
        _log.info("%s", report)
        for words in report.warnings:
            _log.warning("%s", words)


def _refuse_other_offloaders(args: Any) -> None:
    """Hooks of the innermost context alone see a tensor, so that two of them would each move a part."""
    if getattr(args, "activation_offloading", False):
        raise ValueError("activation_offloading is True, which moves activations as well: leave it out, or headwater.offload_callback")
    for name in ("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"):
        options = getattr(args, name, None)
        if isinstance(options, dict) and options.get("offload"):
            raise ValueError(f"{name} has offload=True, which moves what is checkpointed as well: leave it out, or headwater.offload_callback")
