"""A limit in time around work on one file.

It is an alarm of the operating system, so it ends a read that hangs (where that can be interrupted)
as well as a loop in Python; a kernel that runs ends first, which takes milliseconds.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TimeIsUp", "time_limit"]


class TimeIsUp(BaseException):
    """Raised wherever the work is when its time is up; no `except Exception` may swallow it."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `TimeIsUp` within the block after so many seconds; None for no limit.

    Signals reach the main thread alone, which is where Spark's workers work; in another thread
    there is no limit.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_: int, __: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
