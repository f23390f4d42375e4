"""A time of the past that somebody reads page by page is looked for once, not for each page."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from receiver.metadata.query.past_files import files_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.query.past_files import PastFiles
    from receiver.metadata.query.row_source import Answering

__all__ = ["KeptPast"]

_KEPT_S: Final = 20.0
"""Behind the last question: what is kept holds a table of files that a checkpoint may replace."""


class _Kept(NamedTuple):
    since: int
    past: PastFiles


class KeptPast:
    """Answers as `files_at` does; the last answer stays for a while, whoever asks."""

    def __init__(self, engine: Answering, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing.

        Args:
            engine: that knows the files.
            clock: in seconds.
        """
        self._engine = engine
        self._clock = clock
        self._kept: _Kept | None = None
        self._until = 0.0
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def files_at(self, at: int, since: int = 0) -> PastFiles:
        """See `past_files.files_at`.

        Raises:
            HistoryGoneError: see there.
        """
        with self._engine.reading() as state:
            commit = min(at, state.newest)
            self._engine.check_answerable(commit)
        kept = self._kept
        if kept is None or (kept.past.commit, kept.since) != (commit, since):
            kept = _Kept(since, files_at(self._engine, commit, since=since))
        with self._lock:
            self._kept, self._until = kept, self._clock() + _KEPT_S
            if self._timer is None:
                self._wait(_KEPT_S)
        return kept.past

    def forget(self) -> None:
        """Let go of what nobody has asked for lately."""
        with self._lock:
            self._timer = None
            left = self._until - self._clock()
            if left > 0:
                self._wait(left)
            else:
                self._kept = None

    def _wait(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self.forget)
        self._timer.daemon = True
        self._timer.start()
