"""How far back questions reach: the window of commits, and where it begins.

    oldest answerable   moves up with the clock, less `history`; or with the commits, less
                        `history_commits`, if that reaches further back

Questions at or above it are answered exactly; below it they get an error of their own. It never
moves down while the engine is open, and what it left behind is collected later, in small steps. A
start takes it from the newest checkpoint, or higher, from the clock. That may be lower than it was
before, where the clock was set back meanwhile, or a long pause since the last commit was seen by
the process before alone. What is answered then is exact too: checkpoint and log hold all of it.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.timestamps import COUNTER_BITS, to_seconds

if TYPE_CHECKING:
    from receiver.metadata.model.engine_options import EngineOptions

__all__ = ["HistoryWindow", "Horizon"]


class HistoryWindow:
    """The commits that can be asked about; the engine's lock guards it, but for reading numbers.

    Attributes:
        lsn: of the newest commit.
        oldest: the oldest time that is answered.
        commits: timestamps of the commits since then, and of the newest one.
    """

    def __init__(self, commits: array[int], lsn: int, oldest: int) -> None:
        self.commits = commits
        self.lsn = lsn
        self.oldest = oldest

    def add(self, ts: int) -> None:
        """A commit was made."""
        self.commits.append(ts)
        self.lsn += 1

    def check(self, ts: int) -> None:
        """See that a time can be asked about.

        Raises:
            HistoryGoneError: it is before the window; `extra["oldest"]`.
        """
        oldest = self.oldest
        if ts < oldest:
            raise HistoryGoneError(
                f"{ts} is before the kept history, which begins at {oldest} "
                f"({time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(to_seconds(oldest)))}); ask "
                "for that or later, or keep a longer history",
                extra={"oldest": oldest},
            )

    def lsn_after(self, ts: int) -> int:
        """LSN of the first commit after a time within the window; that of the next, if none is."""
        return self.lsn + 1 - (len(self.commits) - bisect_right(self.commits, ts))

    def move(self, oldest: int) -> None:
        """Let the window begin later; moving it down does nothing."""
        if oldest > self.oldest:
            self.oldest = oldest
            del self.commits[: min(bisect_left(self.commits, oldest), len(self.commits) - 1)]


class Horizon:
    """Where the window should begin now.

    Time is what passed between commits, of each pause no more than `clock_jump`: a clock that is
    set far ahead, here or before a restart, lets history age by that much and not by years. What
    passed since the newest commit is believed as far as the monotonic clock has seen it too. So
    where commits are rarer than `clock_jump`, history is kept longer, never shorter.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._options = options
        self._clock = clock
        self._monotonic = monotonic
        self._last = (0, monotonic())

    def now(self, window: HistoryWindow) -> int:
        """What `HistoryWindow.move` should be given; the caller holds the engine's lock."""
        commits = window.commits
        if not commits:
            return window.oldest
        found = min(self._by_time(commits), commits[-1])
        kept = self._options.history_commits
        if kept:
            found = min(found, commits[max(0, len(commits) - kept)])
        return max(found, window.oldest)

    def _by_time(self, commits: array[int]) -> int:
        left = round((self._options.history - self._since(commits[-1])) * 1000)
        if left <= 0:
            return commits[-1]
        stamps = np.array(commits, np.uint64) >> np.uint64(COUNTER_BITS)
        most = np.uint64(round(self._options.clock_jump * 1000))
        ages = np.cumsum(np.minimum(np.diff(stamps), most)[::-1])
        # The pause in which the window begins, counted from the newest.
        pause = int(np.searchsorted(ages, left))
        if pause == len(ages):
            return 0
        rest = left - (int(ages[pause - 1]) if pause else 0)
        return (int(stamps[-1 - pause]) - rest) << COUNTER_BITS

    def _since(self, newest: int) -> float:
        """Seconds since the newest commit, as far as they can be believed."""
        now = self._monotonic()
        if self._last[0] != newest:
            self._last = (newest, now)
        believed = max(self._options.clock_jump, now - self._last[1])
        return max(0.0, min(self._clock() - to_seconds(newest), believed))
