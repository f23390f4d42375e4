"""Things to be done a little later, by one thread that is there while something is due."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from common.durable import Closing

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DueLater"]

T = TypeVar("T")


class DueLater(Closing, Generic[T]):
    """What was put is handed on when it is due; any thread may put."""

    def __init__(
        self,
        do: Callable[[T], object],
        name: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing.

        Args:
            do: is handed each thing; is soon done, and never raises.
            name: of the thread.
            monotonic: seconds.
        """
        self._do = do
        self._name = name
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, T]] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, seconds: float, what: T) -> None:
        """Hand something on in so many seconds; nothing comes of it where it is closed before."""
        with self._changed:
            if self._closed:
                return
            heapq.heappush(self._due, (self._monotonic() + seconds, next(self._numbers), what))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """How many things are to come."""
        with self._changed:
            return len(self._due)

    def close(self) -> None:
        """Hand nothing on any more."""
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._thread = None
                    return
                left = self._due[0][0] - self._monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                _, _, what = heapq.heappop(self._due)
            self._do(what)
