"""The log of the engine as hooks are told of it: from a place on, a piece at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from common.hooks.hook_delivery import LogPiece
from common.hooks.queue_lines import LogPlace
from receiver.hooks.commit_events import COMMITTED_KINDS, KnownNames, commit_events
from receiver.metadata.model.errors import HistoryGoneError

if TYPE_CHECKING:
    from common.hooks.hook_event import EventKind, HookEvent, HookSource
    from receiver.metadata.engine import Engine

__all__ = ["CommitLog"]

_log = logging.getLogger(__name__)

_EVENTS: Final = 200
"""Events of a piece, about; commits are told whole."""
_COMMITS: Final = 5000
"""Commits that a piece looks at."""


class CommitLog:
    """What the commits of an engine have to tell; any thread may ask.

    Args:
        engine: it.
        who: tells.
    """

    def __init__(self, engine: Engine, who: HookSource) -> None:
        self._engine = engine
        self._who = who
        self._names = KnownNames(self._label, self._file, self._seconds)

    def after(self, place: LogPlace | None, wants: Callable[[EventKind], bool]) -> LogPiece:
        """A piece of what is behind a place; see `EventLog.after`.

        Raises:
            DamagedError: a segment is damaged.
        """
        engine = self._engine
        newest = engine.newest_commit
        if place is None:
            return LogPiece((), self._place(newest))
        if place.log != engine.uuid or place.ts > newest:
            _log.warning(
                "hooks: the log is not the one that was told of, or older: it goes on from now"
            )
            return LogPiece((), self._place(newest))
        if place.ts == newest:
            return LogPiece((), place)
        if not any(map(wants, COMMITTED_KINDS)):  # nothing of the log is read for what stands
            return LogPiece((), self._place(newest))
        try:
            return self._read(place, wants)
        except HistoryGoneError:
            with engine.reading():
                oldest = engine.oldest_answerable
                lsn = engine.window.lsn_after(oldest) - 1
            return LogPiece((), LogPlace(engine.uuid, oldest, lsn), max(0, lsn - place.lsn))

    def _read(self, place: LogPlace, wants: Callable[[EventKind], bool]) -> LogPiece:
        found: list[tuple[LogPlace, list[HookEvent]]] = []
        lsn, events, reached = place.lsn, 0, place
        for commit in self._engine.log_since(place.ts):
            lsn += 1
            reached = LogPlace(place.log, commit.ts, lsn)
            told = commit_events(commit, self._who, self._names)
            told = [each for each in told if wants(each.kind)]
            if told:
                found.append((reached, told))
                events += len(told)
            if events >= _EVENTS or lsn - place.lsn >= _COMMITS:
                break
        return LogPiece(found, reached)

    def _place(self, ts: int) -> LogPlace:
        with self._engine.reading():
            return LogPlace(self._engine.uuid, ts, self._engine.window.lsn_after(ts) - 1)

    def _label(self, sender: str) -> str:
        with self._engine.reading() as state:
            row = state.senders.get(sender)
        return "" if row is None else row.label

    def _file(self, physical: str) -> tuple[str, str] | None:
        with self._engine.reading() as state:
            row = state.files.get(physical)
        return None if row is None else (row.sender, row.path)

    def _seconds(self, ts: int) -> float:
        return self._engine.times.seconds(ts)
