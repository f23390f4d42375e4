"""Waiting for a task without taking the server's threads away from everybody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["LongPolls"]

T = TypeVar("T")

MAX_WAIT = 30.0
_SLICE = 1.0
"""How long a wait may go on after the server was told to stop."""


class LongPolls:
    """So many calls may wait at once; a further one has its answer at once, and asks again."""

    def __init__(
        self,
        places: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Nobody waits yet.

        Args:
            places: of waits.
            clock: seconds.
            is_over: whether nothing is to be waited for any more, as another one does the work.
        """
        self._is_over = is_over
        self._places = threading.Semaphore(max(1, places))
        self._clock = clock
        self._closing = threading.Event()

    def close(self) -> None:
        """Let nobody wait any more."""
        self._closing.set()

    def wait(self, seconds: float, ask: Callable[[float], T], done: Callable[[T], bool]) -> T:
        """Ask until it is done, for `seconds` at most.

        Args:
            seconds: cut to 30.
            ask: answers, having waited for at most the seconds that it is given.
            done: whether an answer is worth the end of the waiting.
        """
        seconds = min(seconds, MAX_WAIT)
        if seconds <= 0 or not self._places.acquire(blocking=False):
            return ask(0.0)
        try:
            until = self._clock() + seconds
            while True:
                left = until - self._clock()
                if self._closing.is_set() or self._is_over() or left <= 0:
                    return ask(0.0)
                answer = ask(min(left, _SLICE))
                if done(answer):
                    return answer
        finally:
            self._places.release()
