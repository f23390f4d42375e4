"""What an engine does by itself: checkpoints, letting go of old history, corrections of the clock.

A checkpoint is taken when one is due; what is learnt of the clock is committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from common import crash
from common.threads import PeriodicThread
from receiver.metadata.clock.correcting import correction
from receiver.metadata.model import records

if TYPE_CHECKING:
    from receiver.metadata.checkpointing import Snapshots
    from receiver.metadata.clock.judged_clock import ClockStep, JudgedClock
    from receiver.metadata.commit.committer import Committer
    from receiver.metadata.model.engine_options import EngineOptions
    from receiver.metadata.state.history_window import HistoryWindow, Horizon
    from receiver.metadata.state.lock import Reading
    from receiver.metadata.state.tables.clock_corrections import ClockCorrections

__all__ = ["Setting", "Upkeep"]

_BUDGET = 2000
"""Pieces of history that are collected while commits wait: about a millisecond."""
_LOG_SHARE = 16
"""Of a large checkpoint the log may become so many'th before the next one, which writes all of it
anew: 10,000,000 files cost 20 s of the processor each time."""
_COLLECT_EVERY = 60.0
_AFTER_FAILURE = 60.0
"""Seconds until what failed is tried again."""
_log = logging.getLogger(__name__)


class Setting:
    """Commits what is learnt of the clock, and keeps the record of what is believed."""

    def __init__(
        self, clock: JudgedClock, boot_id: str, corrections: ClockCorrections, window: HistoryWindow
    ) -> None:
        self._clock = clock
        self._boot_id = boot_id
        self._corrections = corrections
        self._window = window
        self._settling = threading.Lock()  # a correction that is committed twice counts twice

    def settle(self, committer: Committer) -> None:
        """Commit what is pending; raises as a commit does, and is tried again then."""
        with self._settling:
            while (step := self._clock.pending()) is not None:
                ts = committer.commit_with(partial(self._correction, step), ())
                crash.point("clock.corrected")
                self._clock.settled(step, ts)
        self._clock.look()

    def _correction(self, step: ClockStep, ts: int) -> list[records.Op]:
        # Built between two commits: nothing changes what it is made of meanwhile.
        times, commits = self._corrections.times, self._window.commits
        now = self._clock.time_of(step)
        return [correction(step, times, commits, now=now, ts=ts, boot_id=self._boot_id)]

    def note(self) -> None:
        """Note what is believed for the next start."""
        self._clock.look(renew=True)


class Upkeep:
    """A thread that looks after an engine; `step` is what it does."""

    def __init__(
        self,
        options: EngineOptions,
        reading: Reading,
        window: HistoryWindow,
        horizon: Horizon,
        committer: Committer,
        snapshots: Snapshots,
        setting: Setting | None,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._options = options
        self._reading = reading
        self._window = window
        self._horizon = horizon
        self._committer = committer
        self._snapshots = snapshots
        self._setting = setting
        self._monotonic = monotonic
        self._thread = PeriodicThread(
            "metadata-upkeep",
            self._look_after,
            _log,
            "looking after the metadata engine failed; it is tried again",
            retry=_AFTER_FAILURE,
        )
        self._last_lsn = window.lsn
        self._rests_since = monotonic()
        self._next_collection = monotonic()
        self._not_before = 0.0
        # What the window left behind before the start may be there still.
        self._is_collected = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def committed(self) -> None:
        """Tell of new commits; cheap."""
        if self._has_grown() and not self._thread.is_woken:
            self._thread.wake()

    def wake(self) -> None:
        """The clock has something to commit."""
        self._thread.wake()

    def close(self) -> None:
        """End the thread; a checkpoint that is being written is given up."""
        self._thread.close()
        if self._setting is not None:
            self._setting.note()

    def _look_after(self) -> float:
        try:
            return self.step()
        except Exception:
            self._not_before = self._monotonic() + _AFTER_FAILURE  # whoever wakes it
            raise

    def step(self) -> float:
        """Do what is due; returns the seconds until something may be due next."""
        now = self._monotonic()
        if now < self._not_before:
            return self._not_before - now
        if self._setting is not None:
            self._setting.settle(self._committer)
        if now >= self._next_collection:
            self.collect()
            every = min(_COLLECT_EVERY, max(1.0, self._options.history / 10))
            self._next_collection = self._monotonic() + every
        if self._is_due():
            self._snapshots.take(self._thread.stopping.is_set)
        next_look = self._next_collection
        if self._snapshots.entries:
            next_look = min(next_look, self._rest_ends())
        return max(0.05, next_look - self._monotonic())

    def _is_due(self) -> bool:
        """Whether enough is new, or anything, for long enough."""
        if self._window.lsn != self._last_lsn:
            self._last_lsn = self._window.lsn
            self._rests_since = self._monotonic()
        entries = self._snapshots.entries
        if self._has_grown():
            return True
        return entries > 0 and self._monotonic() >= self._rest_ends()

    def _has_grown(self) -> bool:
        """Whether the log is long: many commits, or large ones; the next start has to read it."""
        options, snapshots = self._options, self._snapshots
        if snapshots.entries >= options.checkpoint_entries:
            return True
        most = max(options.checkpoint_bytes, snapshots.newest_bytes // _LOG_SHARE)
        return snapshots.entries > 0 and snapshots.log_bytes >= most

    def _rest_ends(self) -> float:
        return self._rests_since + self._options.checkpoint_rest

    def collect(self) -> None:
        """Move the window to where it should begin now, and drop what is before it."""
        if self._setting is not None and self._committer.failed is None:
            self._setting.settle(self._committer)
        with self._reading:
            oldest = self._horizon.now(self._window)
        if self._committer.failed is not None:
            return
        if oldest > self._window.oldest:
            self._committer.between_batches(lambda: self._move(oldest))
        elif self._is_collected:
            return
        self._is_collected = False
        stopping = self._thread.stopping
        while not stopping.is_set() and self._committer.between_batches(self._collect_some):
            pass
        self._is_collected = not stopping.is_set()
        self._snapshots.let_go()

    def _move(self, oldest: int) -> None:
        with self._reading.writing():
            self._window.move(oldest)

    def _collect_some(self) -> int:
        try:
            with self._reading.writing() as state:
                at = self._window.oldest
                return state.schema.collector.collect(at, _BUDGET) + state.keys.collect(at, _BUDGET)
        except Exception as error:
            # Half of it may be done: nobody sees that state, and nothing is built on it.
            self._committer.stop(f"collecting history failed: {error!r}")
            raise
