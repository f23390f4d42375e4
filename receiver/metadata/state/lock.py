"""A lock around the state: one commit at a time changes it, and readers see it between two."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from common.errors import ReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.metadata.state.state import State

__all__ = ["Reading"]

_GIVEN_S = 0.001
"""Those who wait need as long to wake up, and have what they want in less."""
_BEHIND = "the state in memory is not that of the log any more; restart the process"


class Reading:
    """Context manager for reading, as often nested as needed; one object serves all threads.

    One lock, not one for many readers: under the interpreter's own lock readers would not run at
    the same time anyway, and this one costs a tenth of a microsecond.
    """

    def __init__(self, state: State, sleep: Callable[[float], object] = time.sleep) -> None:
        """Begin with committed state.

        Args:
            state: committed.
            sleep: waits for some seconds.
        """
        self._state = state
        self._sleep = sleep
        self._lock = threading.RLock()
        self._nobody_stands = threading.Condition(self._lock)
        self._standing = 0
        """Readers who have given way and go on with what they saw."""
        self._holder = 0
        self._depth = 0
        self._half_applied = False
        self._is_torn = False

    def __enter__(self) -> State:
        try:
            self._lock.acquire()
            if not self._half_applied:
                self._holder = threading.get_ident()
                self._depth += 1  # behind the last call: no signal is heard any more
                return self._state
        except BaseException:  # a signal, and nobody calls `__exit__`
            self._give_up()
            raise
        self._lock.release()
        raise ReadOnlyError(_BEHIND)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._holder = 0
        self._lock.release()
        if self._is_torn and not self._depth:
            self._give_up()

    def _give_up(self) -> None:
        """An `__enter__` was cut off; inside of another it waits for the end of that one.

        Only there it is sure whether this one had the lock already.
        """
        while self._lock._is_owned():  # type: ignore[attr-defined]
            if self._depth:
                self._is_torn = True
                return
            self._holder, self._is_torn = 0, False
            self._lock.release()

    @property
    def broken(self) -> str | None:
        """Why nobody may read any more, None while all may: half a change is there."""
        return _BEHIND if self._half_applied else None

    def is_mine(self) -> bool:
        """Whether the calling thread is reading."""
        return self._holder == threading.get_ident()

    def give_way(self, *, stands: bool = True) -> None:
        """Let others read in the middle of a long reading.

        Not where a function is in the middle of something in it: between two of its steps.

        Args:
            stands: whether the state stands still all the same; else others may commit, too.

        Raises:
            ReadOnlyError: a commit has failed meanwhile in the middle of the state.
        """
        if self._depth != 1 or self._is_torn:  # what is around this one has not been asked
            return
        mine, back = threading.get_ident(), int(stands)
        heard: BaseException | None = None
        self._standing += back
        self._depth = self._holder = 0
        try:
            self._lock.release()
            self._sleep(_GIVEN_S)
        finally:
            while True:  # whatever signals come: who goes on without the lock, or stands for ever
                try:  # more, would stop all that commit
                    while not self._lock._is_owned():  # type: ignore[attr-defined]
                        self._lock.acquire()
                    self._depth, self._holder = 1, mine
                    self._standing, back = self._standing - back, 0
                    if not self._standing:
                        self._nobody_stands.notify_all()
                    break
                except BaseException as error:
                    heard = error
        if heard is not None:
            raise heard
        if self._half_applied:
            raise ReadOnlyError(_BEHIND)

    @contextmanager
    def writing(self) -> Iterator[State]:
        """For who leads the commits. A failure inside leaves half a change; nobody may see it."""
        with self._lock:
            self._nobody_stands.wait_for(lambda: not self._standing)
            if self._half_applied:
                raise ReadOnlyError(_BEHIND)
            self._half_applied = True
            yield self._state
            self._half_applied = False
