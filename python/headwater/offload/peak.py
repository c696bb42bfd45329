"""The peak of activations: what steps have allocated above what was allocated when they began."""

from __future__ import annotations

import json
from typing import Any, Optional

# Steps of which hooks ask for memory in one: to ask takes as long as a few operations.
_EVERY = 16


class StepPeaks:
    """The most bytes that torch's allocator had in a step, above those that it had when the step began: what plans call the peak of activations.

    Torch counts the most that it ever had. Where a step raises that, its peak is known to the byte. Where an earlier one had more, it is
    the most that there was whenever a tensor was saved or needed, which leaves out what comes and goes between two of those moments. Nobody
    resets torch's count, which is the user's."""

    def __init__(self) -> None:
        # The most of all steps, and of those by the last plan; none before one was measured.
        self.most: Optional[int] = None
        self.planned_most: Optional[int] = None
        self._plan: Any = None
        self._planned_steps = 0
        # Of this step: what was allocated when it began, the most since, and torch's count of the most when it was looked at last.
        self._base: Optional[int] = None
        self._highest = self._mark = 0
        self._is_asked = False
        self._is_known = False
        self._steps_left = 0

    @property
    def has_begun(self) -> bool:
        return self._base is not None

    @property
    def wants_more(self) -> bool:
        """Whether hooks should ask what is allocated in this step."""
        return self._steps_left <= 0

    def is_of(self, plan: Any) -> bool:
        """Whether `planned_most` is of steps by this plan."""
        return plan == self._plan

    def begin(self, allocated: int, mark: int) -> None:
        """A step begins with so many bytes, and torch's count of the most at `mark`. One that has not saved anything begins anew."""
        self._base = self._highest = allocated
        self._mark, self._is_known, self._is_asked = mark, False, False

    def look(self, allocated: int, mark: int, *, by_hook: bool = False) -> None:
        """What is allocated now; `by_hook` where that is asked whenever a tensor is saved or needed. A count that was raised, or reset, since
        the last look is of what was allocated since."""
        if mark != self._mark:
            self._highest, self._mark, self._is_known = max(self._highest, mark), mark, True
        self._highest = max(self._highest, allocated)
        self._is_asked |= by_hook and self.wants_more

    def end(self, allocated: int, mark: int, steps: str) -> None:
        """The step is over; `steps` is what its site says of steps, as JSON."""
        base = self._base
        if base is None:
            return
        self.look(allocated, mark)
        self._base = None
        is_planned = self._is_by_plan(json.loads(steps))
        if self._is_asked or self._is_known:
            peak = self._highest - base
            self.most = max(self.most or 0, peak)
            if is_planned:
                self.planned_most = max(self.planned_most or 0, peak)
        self._steps_left -= 1
        if self._is_asked and (is_planned or self._plan is None):
            self._steps_left = _EVERY - 1

    def _is_by_plan(self, found: dict[str, Any]) -> bool:
        """Whether the step that is over kept to a plan. Of another plan than the last one, nothing was measured."""
        if found["expected"] != self._plan:
            self._plan, self._planned_steps, self.planned_most, self._steps_left = found["expected"], 0, None, 0
        before, self._planned_steps = self._planned_steps, found["planned_steps"]
        return self._planned_steps > before
