"""The newest (timestamp, revision) pairs of a store, in a ring, found by bisection."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

__all__ = ["DEFAULT_SIZE", "Ring", "RingHit"]

DEFAULT_SIZE = 1024


class RingHit(NamedTuple):
    """A pair of the ring.

    Attributes:
        ts: the greatest timestamp at or below the one that was asked for.
        revision: that belongs to it.
        next_revision: of the pair behind it, 0 if it is the newest.
    """

    ts: int
    revision: int
    next_revision: int


class Ring:
    """Pairs with growing timestamps and growing revisions; beyond `size` the oldest goes.

    The places [0, begin) and [begin, size) of a full ring are each in order, and all of the first
    is newer than all of the second: one comparison says which of them to bisect.
    """

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        """An empty ring.

        Args:
            size: most pairs that it holds, at least 1.
        """
        if size < 1:
            raise ValueError(f"a ring of {size} pairs; expected at least 1")
        self._size = size
        self._times = array("q")
        self._revisions = array("q")
        self._begin = 0
        """Place of the oldest pair; 0 until the ring is full."""

    def __len__(self) -> int:
        return len(self._times)

    @property
    def oldest(self) -> int | None:
        """The smallest timestamp, None in an empty ring."""
        return self._times[self._begin] if self._times else None

    @property
    def newest(self) -> int | None:
        """The greatest timestamp, None in an empty ring."""
        return self._times[self._begin - 1] if self._times else None

    @property
    def oldest_revision(self) -> int:
        """The revision of the smallest timestamp, 0 in an empty ring."""
        return self._revisions[self._begin] if self._times else 0

    def push(self, ts: int, revision: int) -> None:
        """Add the newest pair.

        Raises:
            ValueError: timestamp or revision is not greater than the newest one.
        """
        if self._times and (
            ts <= self._times[self._begin - 1] or revision <= self._revisions[self._begin - 1]
        ):
            raise ValueError(f"({ts}, {revision}) does not follow the newest pair of the ring")
        if len(self._times) < self._size:
            self._times.append(ts)
            self._revisions.append(revision)
            return
        self._times[self._begin] = ts
        self._revisions[self._begin] = revision
        self._begin = (self._begin + 1) % self._size

    def find(self, ts: int) -> RingHit | None:
        """The pair that holds at `ts`; None if that is older than all of the ring."""
        times, begin = self._times, self._begin
        if begin and ts >= times[0]:
            place = bisect_right(times, ts, 0, begin) - 1
        else:
            place = bisect_right(times, ts, begin) - 1
            if place < begin:
                return None
        after = (place + 1) % len(times)
        return RingHit(
            times[place],
            self._revisions[place],
            0 if after == begin else self._revisions[after],
        )

    def clear(self) -> None:
        """Forget all pairs."""
        del self._times[:], self._revisions[:]
        self._begin = 0
