"""Files that were loaded before there was a schema: their series are entered behind the scenes.

At start, one file after another is read and committed with what it holds, as its load would have
done. A file is entered by its own commit, so this may be cut off anywhere and goes on where it was.
A file that contradicts the schema is quarantined with the reason; one whose bytes are gone or bad
is left for `fsck` to tell of. Readers see all files meanwhile, as they did before.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from common import crash
from common.errors import TsferryError
from common.names import FilePath
from common.threads import join_begun
from common.tsfile import Corrupt, read_tail
from receiver.load.schema.registering import Registering, SeriesRefusal, read_series
from receiver.metadata.commit.draft import Draft
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError, SchemaConflictError
from receiver.metadata.model.paths import IllegalPathError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Registrar", "registration"]

log = logging.getLogger(__name__)

_ATTEMPTS = 20


class Registrar:
    """Enters what is not registered yet, in a thread of its own that ends when it is done."""

    def __init__(self, engine: Engine, disks: Disks) -> None:
        self._engine = engine
        self._disks = disks
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if there is anything to do."""
        if self.waiting():
            self._thread = threading.Thread(target=self._run, name="registrar", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop after the file that is being entered; the next start goes on."""
        self._stop.set()
        join_begun(self._thread)
        self._thread = None

    def waiting(self) -> list[FileRow]:
        """The files that are not in the schema yet, in the order in which they were loaded."""
        with self._engine.reading() as state:
            rows = [row for row in state.files.of(registered=False) if row.visible]
        return sorted(rows, key=lambda row: (row.created, row.physical))

    def run_once(self) -> int:
        """Enter all that waits; returns how many files are registered now."""
        rows = self.waiting()
        if rows:
            log.info("files of an earlier version are registered", extra={"files": len(rows)})
        done = 0
        for row in rows:
            if self._stop.is_set():
                break
            try:
                done += self._register(row)
            except (TsferryError, OSError) as error:
                log.warning(
                    "a file cannot be registered now, the next start tries again",
                    extra={"file": row.physical, "error": str(error)},
                )
        return done

    def _run(self) -> None:
        try:
            self.run_once()
        except Exception:
            log.exception("registering files failed")

    def _register(self, row: FileRow) -> bool:
        with self._disks.pinned([row]):
            registers = self._read(row)
        if registers is None:
            return False
        guard = Guard("file", row.physical, row.changed)
        for attempt in range(_ATTEMPTS):
            found = registration(self._engine, row, registers, trusting=attempt == 0)
            if isinstance(found, SeriesRefusal) and not found.hold:
                raise TsferryError(found.reason)
            ops = self._quarantine(row, found.reason) if isinstance(found, SeriesRefusal) else found
            crash.point("registrar.read")
            try:
                self._engine.commit(ops, [guard])
            except GuardFailed:
                return False  # deleted, or replaced: whoever did it knows better
            except (RefusedCommitError, SchemaConflictError):
                continue  # or it was overtaken: what is there now decides
            crash.point("registrar.committed")
            return not isinstance(found, SeriesRefusal)
        return False

    def _quarantine(self, row: FileRow, reason: str) -> list[records.Op]:
        log.warning(
            "a loaded file contradicts the schema", extra={"file": row.physical, "why": reason}
        )
        return [records.FileQuarantined(row.physical, reason)]

    def _read(self, row: FileRow) -> Sequence[records.LoadedDevice] | None:
        """The series of a file; None if its bytes are not there, or not what was loaded."""
        tree = next((each for each in self._disks.trees if each.exists(row.physical)), None)
        if tree is None:
            log.warning("a loaded file is not on the disk", extra={"file": row.physical})
            return None
        fd = tree.open_read(row.physical)
        try:
            tail = read_tail(fd)
            if tail.complete and tail.size == row.size:
                return read_series(fd, tail, FilePath.parse(row.path).sg)
            reason = tail.reason
        except (Corrupt, IllegalPathError) as error:
            reason = str(error)
        finally:
            os.close(fd)
        log.warning("a loaded file is bad", extra={"file": row.physical, "why": reason})
        return None


def registration(
    engine: Engine,
    row: FileRow,
    registers: Sequence[records.LoadedDevice],
    *,
    trusting: bool = False,
) -> list[records.Op] | SeriesRefusal:
    """The operations that register a file that is loaded already; or why it cannot be.

    Args:
        engine: the metadata engine.
        row: the file.
        registers: its series.
        trusting: leave it to the commit to find what contradicts.
    """
    with engine.reading() as state:
        level = engine.options.storage_group_level
        registering = Registering(Draft(state), level=level, trusting=trusting)
        return registering.take(row.physical, FilePath.parse(row.path).sg, registers)
