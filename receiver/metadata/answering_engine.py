"""The half of an engine that answers: its committed state, as of now and of any time kept.

It knows how to read the files of an engine that another process may be writing. What commits is
`receiver.metadata.engine`.
"""

from __future__ import annotations

import datetime
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from common.durable import Closing, Tree
from common.errors import DamagedError, NotFoundError
from receiver.metadata.clock.judged_clock import JudgedClock, LoggedClock
from receiver.metadata.clock.machine_clock import MachineClock
from receiver.metadata.log.recovering import Opened, recover
from receiver.metadata.log.segments import Places, commits_since
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.timestamps import from_seconds
from receiver.metadata.state.history_window import HistoryWindow, Horizon
from receiver.metadata.state.lock import Reading
from receiver.metadata.state.tables.clock_corrections import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.model import records
    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.state import State

__all__ = ["AnsweringEngine"]

_LOOKS = 5
"""Times that a reader beside a running server begins anew when files vanish under it."""


class AnsweringEngine(Closing):
    """What an engine answers; see the module.

    Attributes:
        options: as it was opened with.
        clock: the time that timestamps go by; for who compares with them.
    """

    def __init__(
        self, what: str, opened: Opened, options: EngineOptions, machine: MachineClock
    ) -> None:
        replay = opened.replay
        self.options = options
        self.clock = _judged(Path(what), replay.state, options, machine)
        self._what = what
        self._state = replay.state
        self._state.max_memory = options.max_memory
        self._reading = Reading(replay.state)
        self._window = HistoryWindow(replay.commits, replay.lsn, opened.oldest)
        self._base = opened.base
        self._tlog = opened.tlog
        self._tags_end = replay.tags_end
        self._log_end = (opened.last.first_lsn, opened.last.good)
        self._advanced = threading.Condition()
        self._newest = replay.state.newest
        self._places = Places()
        self._resources = ExitStack()
        self._resources.callback(opened.tlog.close)

    @classmethod
    def read_only(cls, directory: Path, *, options: EngineOptions | None = None) -> Self:
        """The engine as its files have it now, for reading beside a server that may be running.

        A commit that is being written just now may be seen before its caller is told.

        Args:
            directory: the schema directory.
            options: how far back questions may go, as a server with them has it; without, all that
                the files hold can be asked about.

        Raises:
            NotFoundError: there is no engine in this directory.
            DamagedError: as `open`.
            NewerLogError: a newer version of tsferry wrote a file.
        """
        try:
            tree = Tree(directory)
        except FileNotFoundError as error:
            raise NotFoundError(f"{directory}: there is no such directory") from error
        with tree:
            opened, options_now = _look(tree), options or EngineOptions()
            engine = cls(str(tree.path), opened, options_now, MachineClock.of(time.time))
        if options is not None:
            horizon = Horizon(options, engine._state.clock, clock=engine.clock.cautious)
            engine._window.move(horizon.now(engine._window))
        return engine

    # -- reading -----------------------------------------------------------------------------

    @property
    def uuid(self) -> str:
        """Identity of this engine, 32 hex digits; another engine has another."""
        return self._state.uuid

    @property
    def newest_commit(self) -> int:
        """Timestamp of the newest commit."""
        return self._newest

    def reading(self) -> Reading:
        """`with engine.reading() as state`: committed state, which stands still meanwhile.

        Never waits for the disk. Keep it short, commits wait for its end; rows that were taken out
        stay valid. A commit from inside is refused (it would wait for itself).
        """
        return self._reading

    def tags_of(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        """Tags and attributes of a series, by their place in the tlog (`SeriesRow.tags_at`).

        Reads the disk; no lock is needed.

        Raises:
            DamagedError: the tlog is damaged there.
        """
        return self._tlog.read(offset)

    # -- the past ----------------------------------------------------------------------------

    def answering(self, query: object, at: object) -> Self:
        """What answers a question: the engine does, whatever it is about."""
        del query, at
        return self

    @property
    def times(self) -> TrueTimes:
        """The moments that timestamps stand for; they differ where a clock was wrong."""
        return self._state.clock.times

    @property
    def window(self) -> HistoryWindow:
        """The commits that can be asked about; for reading alone."""
        return self._window

    @property
    def oldest_answerable(self) -> int:
        """The oldest timestamp that can be asked about; see `HistoryWindow`.

        It only grows while the engine is open. After a start it may be lower than it was before.
        """
        return self._window.oldest

    def check_answerable(self, ts: int) -> None:
        """See that a time can be asked about; inside `reading` that holds to its end.

        Raises:
            HistoryGoneError: it is before the kept history; `extra["oldest"]`.
        """
        self._window.check(ts, self.times)

    def at(self, when: int | datetime.datetime | None = None) -> int:
        """The timestamp that a question is about: a commit's, a moment's, or the newest.

        A time to come is the newest commit: what is answered now does not change later.

        Raises:
            HistoryGoneError: it is before the kept history; `extra["oldest"]`.
        """
        newest = self._newest
        ts = self.timestamp_at(when)
        if ts is None:
            return newest
        self._window.check(ts, self.times)
        return min(ts, newest)

    def timestamp_at(self, when: int | datetime.datetime | None) -> int | None:
        """The timestamp of a moment; one that is given, or none, stays as it is."""
        if isinstance(when, datetime.datetime):
            return self.times.first(from_seconds(when.timestamp()))
        return when

    def log_since(self, ts: int) -> Iterator[records.Commit]:
        """The commits after a time, as the log has them, up to the newest one of this moment.

        Raises:
            HistoryGoneError: the log does not reach back that far.
            DamagedError: a segment that a checkpoint stands for is damaged.
        """
        with self._reading:
            self._window.check(ts, self.times)
            lsn, newest = self._window.lsn_after(ts), self._newest
            oldest = self._window.oldest
        return commits_since(Path(self._what), lsn, newest, oldest, self._places)

    def timestamp_of(self, lsn: int) -> int | None:
        """Timestamp of a commit; None if it is none yet, or is before the kept history."""
        with self._reading:
            at = lsn - self._window.lsn - 1
            commits = self._window.commits
            return commits[at] if -len(commits) <= at < 0 else None

    def wait_behind(self, ts: int, seconds: float) -> bool:
        """Wait for a commit after a time; whether there is one.

        Args:
            ts: the time.
            seconds: at most.
        """
        with self._advanced:
            return self._advanced.wait_for(lambda: self._newest > ts, seconds)

    def close(self) -> None:
        """Finish what is being committed, refuse what comes later, give the lock back."""
        self._resources.close()


def _judged(
    directory: Path, state: State, options: EngineOptions, machine: MachineClock
) -> JudgedClock:
    row = state.clock.row
    logged = LoggedClock(
        newest=state.newest,
        times=state.clock.times,
        corrected=row.changed,
        boot=row.boot,
        offset=row.offset,
        is_judged=row.judged_since < NEVER,
    )
    return JudgedClock(
        machine,
        directory,
        logged,
        jump=options.clock_jump,
        times=lambda: state.clock.times,
        senders_known=lambda: len(state.senders),
    )


def _look(tree: Tree) -> Opened:
    for left in reversed(range(_LOOKS)):
        try:
            return recover(tree)
        except FileNotFoundError:  # a checkpoint has just replaced it
            if not left:
                raise
        except DamagedError:
            # The server may have cut back a failed write while we read: look once more.
            if left < _LOOKS - 1:
                raise
    raise AssertionError
