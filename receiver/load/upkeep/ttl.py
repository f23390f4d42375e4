"""TTL: files wholly past it are deleted by commit, a bounded number at a time.

Only the rows go here; the bytes follow when the history window and all readers have let go of them
(`load.upkeep.reaper`). A clock that cannot be believed (`load.upkeep.clock_watch`) suspends all of
it: nothing is deleted, and nothing is turned away as expired.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from common import crash
from common.errors import TsferryError
from receiver.load.deciding.expiry import Expiry
from receiver.load.upkeep.clock_watch import ClockWatch
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.model.timestamps import to_seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Ttl", "steady"]

log = logging.getLogger(__name__)

_BATCH = 200
"""Files of one commit; each has a guard, and one for each storage group that it lies in."""


def steady() -> float:
    """Seconds since the machine was started, those that it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Ttl:
    """Looks for expired files now and then, in a thread of its own."""

    def __init__(
        self,
        engine: Engine,
        directory: Path,
        *,
        unit: str,
        every: float,
        jump: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = steady,
    ) -> None:
        """Prepare; nothing is written or deleted before `run_once`.

        Args:
            engine: as it was just opened: its newest commit is what the clock is compared with.
            directory: of the schema.
            unit: of the data's timestamps.
            every: seconds between two looks.
            jump: a step of the clock, in seconds, that is taken for a fault.
            clock: seconds since the epoch.
            monotonic: seconds that nobody sets.
        """
        self._engine = engine
        self._unit = unit
        self._every = every
        self._clock = clock
        self._watch = ClockWatch(
            directory,
            newest_commit=to_seconds(engine.newest_commit),
            jump=jump,
            clock=clock,
            monotonic=monotonic,
        )
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.deleted = 0
        """Files that expired since this process runs."""

    def start(self) -> None:
        """Start the thread; the first look comes at once."""
        self._thread = threading.Thread(target=self._run, name="ttl", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the commit that is being made."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    @property
    def suspended(self) -> str | None:
        """Why nothing expires, None while files do."""
        return self._watch.doubt

    def resume(self) -> str | None:
        """An operator says that the clock is right; why nothing expired, None if files did."""
        with self._lock:
            suspended = self.suspended
            self._watch.confirm()
        return suspended

    def moment(self) -> float | None:
        """The time by which files expire now, None while the clock is not believed.

        May write to the disk, so it comes before `Engine.reading`, and `expiry` inside of it.
        """
        with self._engine.reading() as state:
            in_use = any(group.ttl is not None for group in state.schema.groups.rows())
        with self._lock:
            return self._clock() if self._watch.judge(in_use=in_use) is None else None

    def expiry(self, state: State, moment: float | None) -> Expiry | None:
        """What is past at a moment, for who turns files away."""
        return None if moment is None else Expiry(state.schema, moment, self._unit)

    def run_once(self) -> int:
        """Look at all files once; returns how many were deleted."""
        moment = self.moment()
        if moment is None:
            return 0
        with self._engine.reading() as state:
            expiry = Expiry(state.schema, moment, self._unit)
            groups = state.file_table.groups()
            # Those in quarantine are no part of any group, and would be wanted again for ever.
            found = [] if expiry.newest is None else _past(state.file_table.quarantined(), expiry)
        if expiry.newest is None:
            return 0
        deleted = self._delete(found, expiry)
        for group in groups:
            with self._engine.reading() as state:
                found = _past(state.file_table.group(group), expiry)
            deleted += self._delete(found, expiry)
            if self._stop.is_set():
                break
        return deleted

    def _delete(self, found: list[FileRow], expiry: Expiry) -> int:
        deleted = 0
        for low in range(0, len(found), _BATCH):
            batch = found[low : low + _BATCH]
            guards = {guard: None for row in batch for guard in expiry.guard_row(row)}
            guards |= {Guard("file", row.physical, row.changed): None for row in batch}
            ops = [records.FileDeleted(row.physical, "expired") for row in batch]
            crash.point("ttl.found")
            try:
                self._engine.commit(ops, list(guards))
            except GuardFailed as error:
                log.info("files have changed while they expired: %s", error)
                continue  # looked at again next time
            crash.point("ttl.deleted")
            deleted += len(batch)
            self.deleted += len(batch)
            log.info("files have expired", extra={"files": len(batch)})
        return deleted

    def _run(self) -> None:
        while True:
            try:
                self.run_once()
            except (TsferryError, OSError) as error:
                log.warning("expired files have to wait", extra={"error": str(error)})
            except Exception:
                log.exception("looking for expired files failed")
            if self._stop.wait(self._every):
                return


def _past(rows: list[FileRow], expiry: Expiry) -> list[FileRow]:
    return [row for row in rows if expiry.is_past_row(row)]
