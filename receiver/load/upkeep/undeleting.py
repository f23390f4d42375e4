"""Deleted files whose bytes still stand, made visible again.

A file that was deleted keeps its row and its bytes for the history window. Brought back it is a
retired one, in the rank that it had: it gives what nothing above it gives, and a proof may leave it
out again. What was loaded at the centre is what it was: it was on no list. Its bytes are read whole
first, since nothing was known of them while it was deleted; its series are made again where they
went meanwhile, as with their storage group.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from common import crash
from common.digests import md5_of_fd
from common.errors import Transient, TsferryError, UnsafePathError
from common.tsfile import Corrupt, read_tail
from receiver.datadirs.disks import whole_in
from receiver.load.placing import tree_of
from receiver.load.schema.registering import SeriesRefusal, read_series
from receiver.load.upkeep.registrar import registration
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import is_centre
from receiver.metadata.model.errors import RefusedCommitError, SchemaConflictError
from receiver.metadata.model.paths import IllegalPathError
from receiver.metadata.model.ranks import NOW
from receiver.metadata.state.placed_files import parts_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from common.durable import Tree
    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Undeleted", "bring_back_unproved", "undelete"]

log = logging.getLogger(__name__)


class Undeleted(NamedTuple):
    """What became of files that were to be brought back.

    Attributes:
        back: their physical paths.
        failed: (physical path, why not) of the others.
        waiting: those of the failed whose bytes can be had at another time.
    """

    back: list[str]
    failed: list[tuple[str, str]]
    waiting: list[str]


def undelete(engine: Engine, disks: Disks, rows: Iterable[FileRow]) -> Undeleted:
    """Bring deleted files back as retired ones, each in a commit of its own.

    Args:
        engine: of the receiver.
        disks: its data directories.
        rows: the deleted files.
    """
    done = Undeleted([], [], [])
    for row in rows:
        with ExitStack() as held:
            _bring_back(engine, disks, row, done, held)
    return done


def bring_back_unproved(engine: Engine, disks: Disks) -> Undeleted:
    """Bring back what an earlier version deleted because compacted files spanned its times.

    It was never retired, as what a proof leaves out is: that is how it is known. Points of it may
    be nowhere else.
    """
    trees = disks.standing()
    with engine.reading() as state:
        rows = [
            row
            for row in state.file_table.deleted()
            if row.reason == "superseded"
            and not row.retired
            and whole_in(trees, row, parts_elsewhere(state, row))
        ]
    done = undelete(engine, disks, rows)
    if rows:
        log.warning(
            "files that were deleted without a proof are visible again, as retired ones",
            extra={"back": len(done.back), "failed": len(done.failed)},
        )
    return done


def _bring_back(
    engine: Engine, disks: Disks, row: FileRow, done: Undeleted, held: ExitStack
) -> None:
    try:
        held.enter_context(disks.pinned([row]))
        held.enter_context(disks.leaving)
        found = _read(disks.standing(), row)
    except TsferryError as error:
        found = f"its bytes cannot be had now: {error}"
        if isinstance(error, Transient):
            done.waiting.append(row.physical)
    if isinstance(found, str):
        done.failed.append((row.physical, found))
        return
    ranges, registers = found
    schema = registration(engine, row, registers, trusting=True)
    if isinstance(schema, SeriesRefusal):
        done.failed.append((row.physical, schema.reason))
        return
    crash.point("undeleting.read")
    try:
        back: list[records.Op] = [records.FileUndeleted(row.physical, ranges)]
        if is_centre(row.sender) and (not row.retired or row.last_look == NOW):
            back.append(records.FileReturned(row.physical))  # no list has it that it was gone from
        engine.commit([*back, *schema])
    except (RefusedCommitError, SchemaConflictError) as error:
        # Its bytes left the disk, it is back already, or a series has another type by now.
        done.failed.append((row.physical, error.message))
    else:
        done.back.append(row.physical)


def _read(
    trees: Sequence[Tree], row: FileRow
) -> tuple[list[records.DeviceRange], Sequence[records.LoadedDevice]] | str:
    """Devices and series of a file whose bytes are those that were loaded; or why it has none."""
    tree = tree_of(trees, row)
    if tree is None:
        return "its bytes are not on the disk any more"
    try:
        fd = tree.open_read(row.physical)
    except (OSError, UnsafePathError) as error:
        return f"it cannot be read: {error}"
    try:
        if os.fstat(fd).st_size != row.size or md5_of_fd(fd) != row.md5:
            return "its bytes are not those that were loaded"
        tail = read_tail(fd, structure=True)
        registers = read_series(fd, tail, row.parsed.sg)
    except (OSError, Corrupt, IllegalPathError) as error:
        return f"it cannot be read: {error}"
    finally:
        os.close(fd)
    sg = row.parsed.sg
    ranges = [records.DeviceRange(each.name_in(sg), each.start, each.end) for each in tail.devices]
    return ranges, registers
