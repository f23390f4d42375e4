"""The limit on the line: one budget for all that is on its way to one place."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from common.config import Timetable
from common.errors import StoppedError

__all__ = ["LARGEST_PIECE", "Bandwidth", "local_now"]

_BURST_S = 0.25
"""What an idle line may save up: a quarter of a second of its rate."""
_PIECE_S = 0.25
"""One piece takes about this long, so that a stop or a change of the rate is heard in time."""
LARGEST_PIECE = 1 << 20
"""Bytes; no piece is larger."""
_BLOCK_S = 5.0
"""A block that has to be sent again costs about this many seconds of the line, not more."""
_SMALLEST_BLOCK = 1 << 14
_TELLING = 1 << 17
"""Bytes of a body that say something of the line: fewer are one burst."""


def local_now() -> datetime.datetime:
    """The time of this machine, in its zone, by which timetables go."""
    return datetime.datetime.now(datetime.UTC).astimezone()


class Bandwidth:
    """A token bucket whose rate follows a timetable; threads share it.

    It keeps no progress of any file: a transfer that is resumed goes on under the same budget.

    Args:
        timetable: the rates by the hour.
        sleep: waits that many seconds; True if the process was told to stop (`Event.wait`).
        clock: seconds.
        local_time: the time of day that the timetable goes by.
    """

    def __init__(
        self,
        timetable: Timetable,
        *,
        sleep: Callable[[float], bool],
        clock: Callable[[], float] = time.monotonic,
        local_time: Callable[[], datetime.datetime] = local_now,
    ) -> None:
        self._timetable = timetable
        self._sleep = sleep
        self._clock = clock
        self._local_time = local_time
        self._lock = threading.Lock()
        self._paid_until = clock()
        self._bodies = 0
        self._measured: float | None = None

    def rate(self) -> int | None:
        """Bytes a second now; None for no limit."""
        return self._timetable.limit_at(self._local_time()) if self._timetable.windows else None

    def line_rate(self) -> float | None:
        """Bytes a second that the line takes of all together, or may take; None: nobody knows."""
        limit = self.rate()
        known = [each for each in (self._measured, limit) if each is not None]
        return min(known, default=None)

    @contextmanager
    def travelling(self, size: int) -> Iterator[Callable[[float], None]]:
        """While a body travels; hears how fast its connection carried it, bytes a second."""
        counts = size >= _TELLING

        def heard(rate: float) -> None:
            if counts and rate > 0:
                with self._lock:
                    # Those beside it share the line, each with its part.
                    line = rate * self._bodies
                    before = self._measured
                    self._measured = line if before is None else (before + line) / 2

        with self._lock:
            self._bodies += counts
        try:
            yield heard
        finally:
            with self._lock:
                self._bodies -= counts

    def piece(self) -> int:
        """Bytes to ask for in one `take`, at most."""
        rate = self.rate()
        return LARGEST_PIECE if rate is None else max(1, min(LARGEST_PIECE, int(rate * _PIECE_S)))

    def now(self) -> float:
        """Seconds, by the clock that paces."""
        return self._clock()

    def block(self, wanted: int) -> int:
        """Bytes to send in one request: `wanted`, less on a line that is kept slow."""
        rate = self.rate()
        if rate is None:
            return wanted
        return min(wanted, max(_SMALLEST_BLOCK, int(rate * _BLOCK_S)))

    def take(self, size: int) -> None:
        """Wait until `size` bytes may be sent.

        Raises:
            StoppedError: told to stop while waiting.
        """
        rate = self.rate()
        if rate is None:
            return
        with self._lock:
            now = self._clock()
            begin = max(self._paid_until, now - _BURST_S)
            self._paid_until = begin + size / rate
            pause = self._paid_until - now
        if pause > 0 and self._sleep(pause):
            raise StoppedError("told to stop while waiting for bandwidth")
