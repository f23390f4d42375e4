"""Threads that do one thing again and again, and waiting for the end of threads."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from common.errors import StoppedError, Transient, TsferryError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PeriodicThread", "join_begun"]


class PeriodicThread:
    """A thread that takes one step again and again, from `start` to `close`.

    A step that fails is told in the log and is taken again: a thread that ended would never be
    missed.

    Attributes:
        stopping: set by `close`; a step that takes long looks at it, or waits on it, and raises
            `StoppedError`.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        log: logging.Logger,
        failing: str,
        *,
        first: float | None = 0.0,
        retry: float = 60.0,
    ) -> None:
        """Prepare.

        Args:
            name: of the thread.
            step: returns the seconds until the next one; None where only `wake` brings it.
            log: hears of steps that failed: a warning of what may pass by itself, an error of
                what does not, and a fault of ours in full.
            failing: what it says then.
            first: as if a step before the first had returned it.
            retry: seconds from a step that failed to the next.
        """
        self.stopping = threading.Event()
        self._name = name
        self._step = step
        self._log = log
        self._failing = failing
        self._first = first
        self._retry = retry
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; once only."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Take the next step now, or at once behind the one that is under way."""
        self._woken.set()

    @property
    def is_woken(self) -> bool:
        """Whether the next step comes at once."""
        return self._woken.is_set()

    def close(self, timeout: float | None = None) -> None:
        """End behind the step that is under way; closing twice is harmless.

        Args:
            timeout: seconds to wait for that step at most.
        """
        self.stopping.set()
        self._woken.set()
        join_begun(self._thread, timeout)
        self._thread = None

    def _run(self) -> None:
        pause = self._first
        while True:
            self._woken.wait(pause)
            self._woken.clear()
            if self.stopping.is_set():
                return
            try:
                pause = self._step()
            except (TsferryError, OSError) as error:
                if self.stopping.is_set() and isinstance(error, StoppedError):
                    return
                passes = isinstance(error, Transient | OSError)
                level = logging.WARNING if passes else logging.ERROR
                self._log.log(level, self._failing, extra={"error": str(error)})
                pause = self._retry
            except Exception:
                self._log.exception(self._failing)
                pause = self._retry


def join_begun(thread: threading.Thread | None, timeout: float | None = None) -> None:
    """Wait for a thread's end, if it ever began.

    Whoever is interrupted between making a thread and its first step (Ctrl-C, in the first second
    of a server) closes what it has, and `join` raises of one that did not begin.

    Args:
        thread: the thread; None for none.
        timeout: seconds to wait at most.
    """
    if thread is not None and thread.ident is not None:
        thread.join(timeout)
