"""How far back questions reach: the window of commits, and where it begins.

    oldest answerable   moves up with the clock, less `history`; or with the commits, less
                        `history_commits`, if that reaches further back

Questions at or above it are answered exactly; below it they get an error of their own. It never
moves down while the engine is open, and what it left behind is collected later, in small steps. A
start takes it from the newest checkpoint, or higher, from the clock. That may be lower than it was
before, where the clock was set back meanwhile. What is answered then is exact too: checkpoint and
log hold all of it.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.timestamps import COUNTER_BITS, from_seconds

if TYPE_CHECKING:
    from receiver.metadata.model.engine_options import EngineOptions
    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.tables.clock_corrections import ClockCorrections

__all__ = ["HistoryWindow", "Horizon"]


class HistoryWindow:
    """The commits that can be asked about; the engine's lock guards it, but for reading numbers.

    Attributes:
        lsn: of the newest commit.
        oldest: the oldest time that is answered.
        commits: timestamps of the commits since then, and of the newest one.
        needed: gives the oldest time that somebody still works at, None for none: the window does
            not move beyond it. It is asked with the engine's lock held, and waits for nothing.
    """

    def __init__(self, commits: array[int], lsn: int, oldest: int) -> None:
        self.commits = commits
        self.lsn = lsn
        self.oldest = oldest
        self.needed: Callable[[], int | None] = _nobody

    def add(self, ts: int) -> None:
        """A commit was made."""
        self.commits.append(ts)
        self.lsn += 1

    def check(self, ts: int, times: TrueTimes) -> None:
        """See that a time can be asked about.

        Args:
            ts: of it.
            times: which moments timestamps stand for.

        Raises:
            HistoryGoneError: it is before the window; `extra["oldest"]`.
        """
        oldest = self.oldest
        if ts < oldest:
            raise HistoryGoneError(
                f"{ts} is before the kept history, which begins at {oldest} "
                f"({time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(times.seconds(oldest)))}); ask "
                "for that or later, or keep a longer history",
                extra={"oldest": oldest},
            )

    def lsn_after(self, ts: int) -> int:
        """LSN of the first commit after a time within the window; that of the next, if none is."""
        return self.lsn + 1 - (len(self.commits) - bisect_right(self.commits, ts))

    def move(self, oldest: int) -> None:
        """Let the window begin later; moving it down does nothing."""
        needed = self.needed()
        if needed is not None:
            oldest = min(oldest, needed)
        if oldest > self.oldest:
            self.oldest = oldest
            del self.commits[: min(bisect_left(self.commits, oldest), len(self.commits) - 1)]


def _nobody() -> None:
    """Nobody works at a time."""


class Horizon:
    """Where the window should begin now: `history` before the time, as timestamps have it.

    Timestamps of a clock that nobody judged (logs of 0.1.0) may be wrong by any time: a pause
    between two of them that is longer than the history itself may be a clock that was set, so no
    more than `clock_jump` of it counts. Such a log may keep its history longer, never shorter.
    """

    def __init__(
        self, options: EngineOptions, corrections: ClockCorrections, *, clock: Callable[[], float]
    ) -> None:
        """Make it.

        Args:
            options: `history`, `history_commits`, `clock_jump`.
            corrections: of the clock that gave the timestamps.
            clock: the time by which something may be let go of, seconds since the epoch.
        """
        self._options = options
        self._corrections = corrections
        self._clock = clock

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
        times = self._corrections.times
        now = self._clock()
        since = max(0.0, now - times.seconds(commits[-1]))
        left = round((self._options.history - since) * 1000)
        if left <= 0:
            return commits[-1]
        if self._corrections.row.judged_since <= commits[0]:
            begin = times.first(from_seconds(now - self._options.history))
            return begin if begin > commits[0] else 0
        stamps = np.array(commits, np.uint64).astype(np.int64)
        moments = times.moments(stamps) >> COUNTER_BITS
        pauses = np.diff(moments)
        unjudged = stamps[1:] <= min(self._corrections.row.judged_since, stamps[-1])
        is_set = unjudged & (pauses > round(self._options.history * 1000))
        most = np.minimum(pauses, round(self._options.clock_jump * 1000))
        ages = np.cumsum(np.where(is_set, most, pauses)[::-1])
        # The pause in which the window begins, counted from the newest.
        pause = int(np.searchsorted(ages, left))
        if pause == len(ages):
            return 0
        rest = left - (int(ages[pause - 1]) if pause else 0)
        return times.first((int(moments[-1 - pause]) - rest) << COUNTER_BITS)
