"""Which moment each timestamp stands for, where a clock was wrong when it was given.

Timestamps only grow, so one that was given by a wrong clock stays. What the engine learns of the
clock later is committed beside it (`records.ClockCorrected`), as pieces of a line:

    (ts, moment, pace)    from `ts` on, `moment` and what follows it, `pace` times as fast

A moment is written as the timestamp that it would have had. Before the first piece a timestamp is
its own moment. Timestamps that are ahead of the time go at half the pace (`pace` 2) until the time
has come up with them, so they come back to it by themselves and never stand still.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

from receiver.metadata.model.records import TimePiece
from receiver.metadata.model.timestamps import to_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["TrueTimes"]

_MOST = 600
"""Pieces that are kept; where a clock is set that often the oldest say nothing any more."""


class TrueTimes:
    """The moments of timestamps; never changes.

    Attributes:
        pieces: in their order; neither their timestamps nor their moments go back.
    """

    __slots__ = ("_begins", "_moments", "pieces")

    def __init__(self, pieces: Iterable[TimePiece] = ()) -> None:
        self.pieces = tuple(pieces)[-_MOST:]
        self._begins = [each.ts for each in self.pieces]
        self._moments = [each.moment for each in self.pieces]

    def moment(self, ts: int) -> int:
        """The moment of a timestamp."""
        if not self.pieces:
            return ts
        number = bisect_right(self._begins, ts) - 1
        if number < 0:
            return min(ts, self._moments[0])
        piece = self.pieces[number]
        return piece.moment + (ts - piece.ts) * piece.pace

    def seconds(self, ts: int) -> float:
        """The same in seconds since the epoch."""
        return to_seconds(self.moment(ts))

    def first(self, moment: int) -> int:
        """The first timestamp of a moment, or of the next that has one."""
        if not self.pieces:
            return moment
        number = bisect_left(self._moments, moment) - 1
        if number < 0:
            return min(moment, self._begins[0])
        piece = self.pieces[number]
        last = number + 1 == len(self.pieces)
        if not piece.pace:
            return piece.ts if last else self._begins[number + 1]
        ts = piece.ts - (piece.moment - moment) // piece.pace
        return ts if last else min(ts, self._begins[number + 1])

    def moments(self, stamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The moments of many timestamps."""
        if not self.pieces:
            return stamps
        begins, moments = np.array(self._begins, np.int64), np.array(self._moments, np.int64)
        paces = np.array([each.pace for each in self.pieces], np.int64)
        number = np.searchsorted(begins, stamps, side="right") - 1
        at = np.maximum(number, 0)
        found = moments[at] + (stamps - begins[at]) * paces[at]
        return np.where(number < 0, np.minimum(stamps, moments[0]), found)

    def corrected(self, since: int, *, by: int, now: int, newest: int, floor: int) -> TrueTimes:
        """The same with what was learnt of the clock at one moment.

        Args:
            since: the first timestamp that the clock gave wrongly.
            by: how much later than was believed the time was since then; less than 0 for earlier.
            now: what the time is.
            newest: the newest timestamp that was given before.
            floor: no moment since then is before this one; those before then are not after the
                first since then.
        """
        begin = newest + 1
        if now >= begin:  # timestamps are behind the time: the next one is of now
            right = [TimePiece(now, now, 1)]
        else:
            right = [TimePiece(begin, now, 2), TimePiece(2 * begin - now, 2 * begin - now, 1)]
        end = right[0].ts
        pieces = self._clamped(since, end, by=by, low=floor, high=now)
        most = (pieces or right)[0].moment
        before = self._clamped(0, since, by=0, low=0, high=most) if self.pieces else []
        return TrueTimes([*before, *pieces, *right])

    def _clamped(self, begin: int, end: int, *, by: int, low: int, high: int) -> list[TimePiece]:
        """The pieces of a range of timestamps, moved by something, and within two moments."""
        breaks = {begin, self.first(low - by), self.first(high - by)}
        breaks |= {*self._begins, *self._moments[:1]}
        found: list[TimePiece] = []
        for ts in sorted(each for each in breaks if begin <= each < end):
            raw, pace = self.moment(ts) + by, self._pace(ts)
            pace = pace if low <= raw < high else 0
            value = min(max(raw, low), high)
            last = found[-1] if found else TimePiece(-1, -1, -1)
            if pace != last.pace or value != last.moment + (ts - last.ts) * last.pace:
                found.append(TimePiece(ts, value, pace))
        return found

    def _pace(self, ts: int) -> int:
        number = bisect_right(self._begins, ts) - 1
        if number < 0:
            return 1 if not self.pieces or ts < self._moments[0] else 0
        return self.pieces[number].pace
