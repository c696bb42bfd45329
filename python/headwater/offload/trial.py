"""Whether hooks cost more time than a plan may.

Where a GPU waits for the host, steps become longer by what hooks take, whatever leaves. No plan sees that, so a few forward passes
are done without them, and times between the beginnings of passes compared.
"""

from __future__ import annotations

from typing import Any

from ..gpu import Place

# Forward passes of either kind that are compared, and after how many others they are again.
_PASSES = 4
_AGAIN = 1024
# What times may differ by without a reason.
_NOISE = 0.01


class Trial:
    """Forward passes of one context, in turn with hooks and without, until it is known which should be."""

    def __init__(self, slack: float) -> None:
        self._slack = slack
        self._marks: list[Any] = []
        self._count = 0
        # What was found out: whether steps are too long with hooks.
        self.is_too_slow = False

    def next_is_bare(self, place: Place, may_keep: bool) -> bool:
        """Called as each pass begins that a plan exists for. `may_keep`: there is memory for a step in which nothing leaves."""
        if not may_keep:
            self._count, self._marks, self.is_too_slow = 0, [], False
            return False
        self._count += 1
        at = self._count % _AGAIN
        if at == 0:
            self._marks = []
        if len(self._marks) <= 2 * _PASSES + 1:
            mark = place.timed_mark()
            if mark is None:
                return False
            self._marks.append(mark)
            if len(self._marks) <= 2 * _PASSES + 1:
                # The first pass of each kind follows one of the other.
                return len(self._marks) > _PASSES
            self._decide(place)
        return self.is_too_slow

    def _decide(self, place: Place) -> None:
        times = [place.ms_between(one, other) for one, other in zip(self._marks, self._marks[1:])]
        if None in times:
            # The GPU has not come that far.
            self._marks.pop()
            return
        hooked, bare = min(times[1:_PASSES], default=0.0), min(times[_PASSES + 1 :], default=0.0)
        self.is_too_slow = hooked > bare * (1 + self._slack + _NOISE)
