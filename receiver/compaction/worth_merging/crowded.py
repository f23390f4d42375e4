"""Partitions in which readers met many files: merged before others, as far as they are due.

What a reader says is a hint and no more: it is looked at here whether there is anything to merge,
the hours that are configured hold, and the same partition is not heard of again for a while.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from receiver.metadata.state.tables.file_tables.file_index import GroupKey
from receiver.metadata.state.tables.file_tables.retired import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from receiver.metadata.engine import Engine

__all__ = ["CrowdedPartitions"]

_AGAIN: Final = 600.0
"""Seconds for which the same is not heard again."""


class CrowdedPartitions:
    """What was told lately; any thread may call."""

    def __init__(
        self,
        engine: Engine,
        met: Callable[[PartitionKey], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing told.

        Args:
            engine: that has the files.
            met: hears of a partition that is there.
            clock: seconds that nobody sets.
        """
        self._engine = engine
        self._met = met
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: dict[tuple[str, str], float] = {}

    def report(self, told: Iterable[tuple[str, str]]) -> None:
        """Hear of partitions: storage group and number; those that are not there are nothing."""
        now = self._clock()
        with self._lock:
            self._heard = {key: at for key, at in self._heard.items() if now - at < _AGAIN}
            fresh = set(told).difference(self._heard)
        if not fresh:
            return
        with self._engine.reading() as state:
            directories = state.file_table.directories()
        there = {
            PartitionKey(each.sg, each.vsg, each.partition)
            for each in map(GroupKey.of, directories)
            if (each.sg, each.partition) in fresh
        }
        with self._lock:
            self._heard |= dict.fromkeys(((key.sg, key.partition) for key in there), now)
        for key in sorted(there):
            self._met(key)
