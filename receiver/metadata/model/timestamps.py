"""Commit timestamps: milliseconds << 18 | counter, always growing, whatever the clock does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["COUNTER_BITS", "LATEST", "Allocator", "from_seconds", "hybrid", "to_seconds"]

Allocator = Callable[[int], int]
"""Gives a timestamp greater than its argument, the newest one before it."""

COUNTER_BITS = 18
_LATEST_MS = 1 << 44
LATEST = _LATEST_MS / 1000
"""The year 2527: a clock that claims to be beyond it cannot use up the 64 bits."""


def hybrid(clock: Callable[[], float] = time.time) -> Allocator:
    """An allocator that follows a clock; an engine's judges it (`receiver.metadata.clock`).

    A clock that goes back, or went far ahead before, leaves the counter to count on from the
    newest timestamp: order is kept, only the milliseconds in it are not the day's.

    Args:
        clock: seconds since the epoch.
    """

    def allocate(newest: int) -> int:
        ms = clock() * 1000
        # Once for each commit, so without a call; what is no time of ours fails both comparisons.
        ts = int(ms) << COUNTER_BITS if 0 < ms < _LATEST_MS else from_seconds(ms / 1000)
        return ts if ts > newest else newest + 1

    return allocate


def from_seconds(seconds: float) -> int:
    """The first timestamp of a moment, in seconds since the epoch."""
    if not math.isfinite(seconds) or seconds <= 0:
        return 0
    return int(min(seconds * 1000, _LATEST_MS)) << COUNTER_BITS


def to_seconds(ts: int) -> float:
    """The moment of a timestamp, in seconds since the epoch."""
    return (ts >> COUNTER_BITS) / 1000
