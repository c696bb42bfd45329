"""Whether hooks cost more time than a plan may.

Where a GPU waits for the host, steps become longer by what hooks take, whatever leaves. No plan sees that, so a few forward passes are
done with hooks, a few without, and times between the beginnings of passes compared. Meanwhile nothing leaves: hooks that are too slow
by themselves move no byte. If they are not, a few more are done as the plan says, which has to be worth its time as well.
"""

from __future__ import annotations

from typing import Any, Optional

from ..gpu import Place

# Forward passes of each kind that are compared, and after how many others they are again.
_PASSES = 4
_AGAIN = 1024
# What times may differ by without a reason.
_NOISE = 0.01
# Marks at the beginning of passes: of the last that keeps everything, of the first behind those without hooks, and of the first behind
# those by plan. The first pass of each kind follows one of another, and does not count.
_KEPT = _PASSES
_BARE = 2 * _PASSES + 2
_PLANNED = _BARE + _PASSES


class Trial:
    """Forward passes of one context, in turn with hooks and without, until it is known which should be."""

    def __init__(self, slack: float) -> None:
        self._slack = slack
        self._marks: list[Any] = []
        self._count, self._bare_ms = 0, 0.0
        # What was found out: whether steps are too long with hooks.
        self.is_too_slow = False
        # Whether all should stay meanwhile that has memory, whatever the plan says: before hooks were compared, and where they are too slow
        # but to look, now and then, whether steps are still the same.
        self.keeps = True

    @property
    def is_comparing(self) -> bool:
        """Whether all stays that has room, since it is not known yet what hooks cost."""
        return self.keeps and not self.is_too_slow

    def next_is_bare(self, place: Place, may_keep: bool) -> bool:
        """Called as each pass begins that a plan exists for. `may_keep`: there is memory for a step in which nothing leaves."""
        if not may_keep:
            self._count, self._marks, self.is_too_slow, self.keeps = 0, [], False, False
            return False
        self._count += 1
        if self._count % _AGAIN == 0:
            self._marks = []
        return self._next_of_a_kind(place) if len(self._marks) <= _PLANNED else self.is_too_slow

    def _next_of_a_kind(self, place: Place) -> bool:
        mark = place.timed_mark()
        if mark is None:
            self.keeps = False
            return False
        self._marks.append(mark)
        begun = len(self._marks)
        if begun < _BARE:
            self.keeps = True
            return begun > _KEPT
        if begun == _BARE:
            kept, bare = self._least(place, 0, _KEPT), self._least(place, _KEPT, _BARE - 1)
            if kept is None or bare is None:
                # The GPU has not come that far: one more without hooks.
                self._marks.pop()
                return True
            self._bare_ms = bare
            return self._decide(kept)
        if begun <= _PLANNED:
            self.keeps = False
            return False
        planned = self._least(place, _BARE - 1, _PLANNED)
        if planned is None:
            self._marks.pop()
            return False
        return self._decide(planned)

    def _least(self, place: Place, first: int, end: int) -> Optional[float]:
        """The shortest pass of a kind; none while the GPU has not come that far."""
        times = [place.ms_between(self._marks[at], self._marks[at + 1]) for at in range(first + 1, end)]
        return None if None in times else min(times)

    def _decide(self, ms: float) -> bool:
        self.is_too_slow = self.keeps = ms > self._bare_ms * (1 + self._slack + _NOISE)
        if self.is_too_slow:
            # Nothing is left to be found out.
            self._marks += self._marks[-1:] * (_PLANNED + 1 - len(self._marks))
        return self.is_too_slow
