"""What each edge had loaded in the last day, by hour: read from the log, a little at a time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.model.timestamps import from_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.engine import Engine
    from receiver.metadata.model.records import Commit

__all__ = ["RATE_HOURS", "LoadRates"]

RATE_HOURS: Final = 24
_HOUR: Final = 3600
_PATIENCE: Final = 0.05
"""Seconds that one look may read on."""


class LoadRates:
    """Bytes that were loaded, by edge and hour; any thread may call.

    Nothing is read until somebody asks; then each asker reads on for some milliseconds, from where
    the last one stopped, until all commits are in.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing.

        Args:
            engine: whose commits are read.
            clock: seconds since the epoch.
            monotonic: seconds, for how long a look takes.
        """
        self._engine = engine
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._seen: int | None = None
        self._hours: dict[str, dict[int, int]] = {}
        self._swept = 0

    def follow(self, patience: float = _PATIENCE) -> bool:
        """Take in what was loaded since the last time; whether nothing is left to be read.

        Args:
            patience: seconds after which the rest is left for the next look.
        """
        if not self._lock.acquire(blocking=False):
            return False  # somebody reads on just now
        try:
            return self._read_on(patience)
        finally:
            self._lock.release()

    def of(self, sender: str) -> tuple[int, ...]:
        """Bytes loaded of a sender in each of the last hours, this one last."""
        now = int(self._clock()) // _HOUR
        hours = dict(self._hours.get(sender, {}))
        return tuple(hours.get(each, 0) for each in range(now - RATE_HOURS + 1, now + 1))

    def _read_on(self, patience: float) -> bool:
        engine, end = self._engine, self._monotonic() + patience
        if self._seen is None:
            begin = engine.times.first(from_seconds(self._clock() - RATE_HOURS * _HOUR))
            self._seen = max(begin, engine.oldest_answerable)
        try:
            for commit in engine.log_since(self._seen):
                self._take(commit)
                self._seen = commit.ts
                if self._monotonic() > end:
                    return False
        except HistoryGoneError:  # it went on for longer than the history is kept
            self._seen = engine.oldest_answerable
            return False
        self._sweep()
        return True

    def _take(self, commit: Commit) -> None:
        hour = int(self._engine.times.seconds(commit.ts)) // _HOUR
        for op in commit.ops:
            if isinstance(op, records.FileLoaded) and not is_merged(op.physical):
                hours = self._hours.setdefault(op.sender, {})
                hours[hour] = hours.get(hour, 0) + op.size

    def _sweep(self) -> None:
        """Let go of hours that nobody asks for, once in an hour."""
        oldest = int(self._clock()) // _HOUR - RATE_HOURS
        if oldest == self._swept:
            return
        self._swept = oldest
        for sender, hours in list(self._hours.items()):
            left = {hour: size for hour, size in hours.items() if hour > oldest}
            if left:
                self._hours[sender] = left
            else:
                del self._hours[sender]
