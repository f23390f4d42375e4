"""TTL: files wholly past it are deleted by commit, a bounded number at a time.

Only the rows go here; the bytes follow when the history window and all readers have let go of them
(`load.upkeep.reaper`). What the time is, the engine's clock says (`metadata.clock`): while the
machine's clock cannot be believed, files expire by the time that passes and by no wrong one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from common import crash
from common.threads import PeriodicThread
from receiver.load.deciding.expiry import Expiry
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.state.tables.file_tables.file_index import GroupKey

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Ttl"]

log = logging.getLogger(__name__)

_BATCH = 200
"""Files of one commit; each has a guard, and one for each storage group that it lies in."""


class Ttl:
    """Looks for expired files now and then, in a thread of its own."""

    def __init__(self, engine: Engine, *, unit: str, every: float) -> None:
        """Prepare; nothing is deleted before `run_once`.

        Args:
            engine: its clock says what is past.
            unit: of the data's timestamps.
            every: seconds between two looks.
        """
        self._engine = engine
        self._unit = unit
        self._every = every
        self._thread = PeriodicThread(
            "ttl", self._look, log, "expired files have to wait", retry=every
        )
        self.deleted = 0
        """Files that expired since this process runs."""

    def start(self) -> None:
        """Start the thread; the first look comes at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the commit that is being made."""
        self._thread.close()

    def moment(self) -> float:
        """The time by which files expire now."""
        return self._engine.clock.cautious()

    def expiry(self, state: State, moment: float) -> Expiry:
        """What is past at a moment, for who turns files away."""
        return Expiry(state.schema, moment, self._unit)

    def run_once(self) -> int:
        """Look at all files once; returns how many were deleted."""
        moment = self.moment()
        with self._engine.reading() as state:
            expiry = self.expiry(state, moment)
            directories = state.file_table.directories()
            # Those in quarantine are no part of any group, and would be wanted again for ever.
            found = [] if expiry.newest is None else _past(state.file_table.quarantined(), expiry)
        if expiry.newest is None:
            return 0
        deleted = self._delete(found, expiry)
        for each in directories:
            with self._engine.reading() as state:
                found = _past(state.file_table.group(GroupKey.of(each)), expiry)
            deleted += self._delete(found, expiry)
            if self._thread.stopping.is_set():
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

    def _look(self) -> float:
        self.run_once()
        return self._every


def _past(rows: list[FileRow], expiry: Expiry) -> list[FileRow]:
    return [row for row in rows if expiry.is_past_row(row)]
