"""So many bytes a second and no more: what a merge may take of a disk, and of a line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from common.config import DayWindow, Timetable
from common.network.bandwidth import Bandwidth

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.tsfile.byte_source import ByteSource

__all__ = ["MergePace", "PacedSource"]

_SLICE: Final = 0.5
"""Seconds of a pause, after which it is asked whether anybody still wants the merge."""


class MergePace:
    """One budget for all that a merge reads and writes; threads share it."""

    def __init__(
        self,
        rate: int,
        stopped: Callable[[], bool] = lambda: False,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Begin with nothing taken.

        Args:
            rate: bytes a second; 0 for no limit.
            stopped: whether nobody wants the merge any more.
            clock: seconds.
            sleep: waits for so many.
        """
        limit = Timetable((DayWindow(rate),) if rate else ())
        self._budget = Bandwidth(limit, sleep=self._rest, clock=clock)
        self._stopped, self._wait = stopped, sleep

    def take(self, size: int) -> None:
        """Wait until so many bytes may be read or written.

        Raises:
            StoppedError: nobody wants them any more.
        """
        self._budget.take(size)

    def _rest(self, seconds: float) -> bool:
        while seconds > 0:
            if self._stopped():
                return True
            self._wait(min(seconds, _SLICE))
            seconds -= _SLICE
        return False


class PacedSource:
    """A source whose bytes are taken from a budget.

    Attributes:
        size: bytes of it.
    """

    def __init__(self, source: ByteSource, pace: MergePace) -> None:
        self._source, self._pace = source, pace
        self.size = source.size

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`."""
        self._pace.take(max(0, min(length, self.size - offset)))  # a damaged index may ask for more
        return self._source.read(offset, length)
