"""What was refused or found bad: shown to an operator, looked at again, given up.

There are two kinds of entries: files refused at or before their load, and loaded ones found bad.
The first are kept under (sender, path, digest of the tail); of the second the digest is the
physical path. One that a verification put on hold is of the second kind: the entry beside it,
which holds its content, is shown, lifted and dropped together with it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from common.digests import md5_of_fd
from common.errors import ConflictError, NotFoundError, TsferryError
from common.names import FilePath
from common.tsfile import Corrupt, read_tail
from receiver.datadirs.disks import AwayError
from receiver.load.folder.content_checks import hash_staged
from receiver.load.placing import tree_of
from receiver.load.schema.registering import SeriesRefusal, read_series
from receiver.load.upkeep.registrar import registration
from receiver.load.upkeep.verdicts import hold_of
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.paths import IllegalPathError
from receiver.metadata.state.placed_files import placed_nodes
from receiver.metadata.state.table_rows import FileState
from receiver.operator.views.file_views import QuarantineView

if TYPE_CHECKING:
    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.table_rows import FileRow, QuarantineRow
    from receiver.operator.directories import RunningReceiver

__all__ = ["drop_quarantined", "list_quarantine", "retry_quarantined"]


def list_quarantine(engine: Engine, sender: str | None = None) -> list[QuarantineView]:
    """Every entry, of one sender if told so."""
    with engine.reading() as state:
        bad = [
            (row, hold_of(state, row))
            for row in state.file_table.quarantined()
            if sender in (None, row.sender)
        ]
        holds = {_key(hold) for _, hold in bad if hold is not None}
        refused = [
            row
            for key, row in state.quarantine.items()
            if sender in (None, row.sender) and key not in holds
        ]
    views = [_refused(row, engine.times) for row in refused]
    views += [_bad(row, engine.times, held=hold is not None) for row, hold in bad]
    return sorted(views, key=lambda each: (each.sender, each.path, each.digest))


def retry_quarantined(there: RunningReceiver, sender: str, path: str, digest: str) -> str:
    """Look at a file again, or let the next round try; says in words what came of it.

    Raises:
        NotFoundError: there is no such entry.
        NotATsFileError: the bytes are still bad.
        ConflictError: the file still contradicts the schema.
    """
    with there.engine.reading() as state:
        row = state.quarantine.get((sender, path, digest))
        file = state.files.get(digest)
        hold = None if file is None else hold_of(state, file)
    if row is not None:
        return _retry_refused(there, row)
    if file is not None and (file.sender, file.path) == (sender, path):
        _mend(there, file)
        with there.disks.pinned([file]):
            return _retry_loaded(there, file, hold)
    raise _not_in_quarantine(path, digest)


def _mend(there: RunningReceiver, row: FileRow) -> None:
    """Have a file here whole, where a storage node gives it by now."""
    with there.engine.reading() as state:
        at_nodes = row.state is FileState.QUARANTINED and placed_nodes(state, row.physical)
    if at_nodes:
        with suppress(TsferryError, OSError):  # what lies here is looked at then
            there.copies.back.mend(row)


def _retry_refused(there: RunningReceiver, row: QuarantineRow) -> str:
    """Look at kept bytes again; without them, or if they are good now, clear the entry."""
    drop, guard = _lift(row)
    folder = there.load.folders.find(row.sender)
    tree = _holding(there, row)
    if row.kept is None or folder is None or tree is None or tree is not folder.tree:
        there.engine.commit([drop], [guard])
        return "the next round of the sender tries again"
    path = FilePath.parse(row.path)
    hash_staged(tree, row.kept, path, at=there.clock())  # raises what is still wrong with it
    with folder.lock:
        tree.make_dirs(folder.at(f"data/{path.directory}"))
        tree.rename(row.kept, folder.staged_at(path))
        folder.staged.put([hash_staged(tree, folder.staged_at(path), path, at=there.clock())])
    there.engine.commit([drop], [guard])
    return "the bytes are good; the next round of the sender loads them"


def _holding(there: RunningReceiver, row: QuarantineRow) -> Tree | None:
    """The data directory that has the bytes kept of an entry; None if none has.

    Raises:
        AwayError: the one that may have them is away.
    """
    kept = row.kept
    if kept is None:
        return None
    tree = next((each for each in there.disks.standing() if each.exists(kept)), None)
    if tree is None:
        there.disks.check_all()
    return tree


def _retry_loaded(there: RunningReceiver, row: FileRow, hold: QuarantineRow | None) -> str:
    """Make a file visible again whose bytes are those that were loaded.

    What a verification has read in them is not read again: that it is visible all the same is
    the operator's word. Of any other bytes the hold is lifted too: what came was not these.
    """
    if row.state is not FileState.QUARANTINED:
        raise _not_in_quarantine(row.path, row.physical)
    tree = tree_of(there.trees, row)
    if tree is None:
        for away in there.disks.away():
            raise AwayError(f"its bytes cannot be looked at: {away}")
        return _ask_again(there, "the bytes are gone", hold)
    fd = tree.open_read(row.physical)
    try:
        tail = read_tail(fd, structure=True)
        good = tail.complete and tail.size == row.size and md5_of_fd(fd) == row.md5
        registers = read_series(fd, tail, row.parsed.sg) if good and not row.registered else ()
    except (Corrupt, IllegalPathError):
        good = False
    finally:
        os.close(fd)
    if not good:
        return _ask_again(there, "the bytes are still bad", hold)
    ops: list[records.Op] = [records.FileRestored(row.physical)]
    guards = [Guard("file", row.physical, row.changed)]
    if not row.registered:
        schema = registration(there.engine, row, registers)
        if isinstance(schema, SeriesRefusal):
            raise ConflictError(schema.reason, extra={"path": row.path})
        ops += schema
    if hold is None:
        there.engine.commit(ops, guards)
        return "the bytes are good; the file is visible again"
    drop, guard = _lift(hold)
    there.engine.commit([*ops, drop], [*guards, guard])
    return (
        "the bytes are as they were sent; the file is visible again, though a verification "
        f"found it bad: {hold.reason}"
    )


def _ask_again(there: RunningReceiver, why: str, hold: QuarantineRow | None) -> str:
    if hold is None:
        return f"{why}; the sender is asked for the file in its next round"
    drop, guard = _lift(hold)
    there.engine.commit([drop], [guard])
    return f"{why}; it is on hold no more: with a retry at the sender it comes again"


def drop_quarantined(there: RunningReceiver, sender: str, path: str, digest: str) -> None:
    """Forget an entry and the bytes kept for it; a loaded file is deleted.

    Raises:
        NotFoundError: there is no such entry.
    """
    key = (sender, path, digest)
    with there.engine.reading() as state:
        row = state.quarantine.get(key)
        file = state.files.get(digest)
        hold = None if file is None else hold_of(state, file)
    if row is not None:
        op, guard = _lift(row)
        there.engine.commit([op], [guard])
        if row.kept is not None:
            for tree in there.disks.standing():
                tree.unlink(row.kept)
        return
    if (
        file is None
        or (file.sender, file.path) != (sender, path)
        or file.state is not FileState.QUARANTINED
    ):
        raise _not_in_quarantine(path, digest)
    ops: list[records.Op] = [records.FileDeleted(file.physical, "operator")]
    guards = [Guard("file", file.physical, file.changed)]
    if hold is not None:
        op, guard = _lift(hold)
        ops.append(op)
        guards.append(guard)
    there.engine.commit(ops, guards)


def _key(row: QuarantineRow) -> tuple[str, str, str]:
    return row.sender, row.path, row.digest


def _lift(row: QuarantineRow) -> tuple[records.QuarantineDrop, Guard]:
    """The end of an entry that is as it was seen."""
    return records.QuarantineDrop(*_key(row)), Guard("quarantine", _key(row), row.changed)


def _refused(row: QuarantineRow, times: TrueTimes) -> QuarantineView:
    return QuarantineView(
        sender=row.sender,
        path=row.path,
        digest=row.digest,
        size=row.size,
        hold=row.hold,
        reason=row.reason,
        device=row.device,
        kept=row.kept is not None,
        since=row.created,
        since_at=times.seconds(row.created),
    )


def _bad(row: FileRow, times: TrueTimes, *, held: bool) -> QuarantineView:
    return QuarantineView(
        sender=row.sender,
        path=row.path,
        digest=row.physical,
        size=row.size,
        hold=held,
        reason=str(row.reason),
        kept=True,
        loaded=True,
        since=row.changed,
        since_at=times.seconds(row.changed),
    )


def _not_in_quarantine(path: str, digest: str) -> NotFoundError:
    return NotFoundError(f"{path[:200]!a} is not in quarantine under {digest[:200]!a}")
