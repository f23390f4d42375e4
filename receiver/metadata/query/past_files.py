"""Which files were there at a time: the catalogue as it was, from today's rows and the log since.

A row knows when it was made and when it was deleted, but not when it went into quarantine and out
of it. The log does: what happened to a file first after the time tells how it stood then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.query.past_standing import PastStanding
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from receiver.metadata.model.records import Commit, Op
    from receiver.metadata.query.row_source import Answering
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["PastFiles", "files_at"]


class PastFiles(NamedTuple):
    """The files at a commit, in order of their physical paths.

    Attributes:
        commit: the time that was asked about, or the newest commit if that is earlier.
        visible: what readers saw. A row is as it is now, but for what ranks are made of: names,
            looks and whether it was retired are as they were. Of a file that was deleted since,
            the devices have no ranges any more.
        quarantined: files that had been loaded and were in quarantine.
        ended: by physical path, the commit that took a visible one out of sight since.
    """

    commit: int
    visible: list[FileRow]
    quarantined: list[FileRow]
    ended: Mapping[str, int]


def files_at(engine: Answering, at: int, *, since: int = 0) -> PastFiles:
    """The files at a time.

    A file that was in quarantine from before the kept history on, and was deleted after `at`, is
    counted as visible: nothing is left that could tell.

    Args:
        engine: that knows them.
        at: a commit timestamp; one to come means the newest commit.
        since: only files that were loaded after this commit.

    Raises:
        HistoryGoneError: `at` is before the kept history, or a file has left the disk since.
    """
    with engine.reading() as state:
        newest = state.newest
        commit = min(at, newest)
        engine.check_answerable(commit)
        rows = [row for row in state.files.values() if since < row.created <= commit]
        changed = [row for row in rows if row.changed > commit]
        known = set(state.files) if commit < newest else set()
    then: dict[str, FileState] = {}
    ended: dict[str, int] = {}
    standing = PastStanding(engine, commit)
    if commit < newest:
        told = _first_since(engine, commit, newest, standing)
        for physical, (op, ts) in told.items():
            _check_there(op, physical, known, commit, engine.oldest_answerable)
            if isinstance(op, _Ending):
                ended[physical] = ts
        first = {physical: op for physical, (op, _) in told.items()}
        doubtful = {row.physical for row in changed if _is_deletion(first.get(row.physical))}
        held = _hidden_before(engine, commit, doubtful) if doubtful else {}
        then = {row.physical: _state(first.get(row.physical), row, held) for row in changed}
    visible, quarantined = [], []
    for physical, row in sorted((row.physical, row) for row in rows):  # no two have the same
        state_then = then.get(physical, row.state)
        if state_then is FileState.QUARANTINED:
            quarantined.append(standing.of(row))
        elif state_then in (FileState.LIVE, FileState.RETIRED):
            visible.append(standing.of(row))
    return PastFiles(commit, visible, quarantined, ended)


_Ending = records.FileDeleted | records.FileQuarantined | records.FileSuperseded
_Telling = (
    records.FileDeleted,
    records.FileQuarantined,
    records.FileRestored,
    records.FileSuperseded,
    records.FileRevived,
    records.FileUndeleted,
)


def _is_deletion(op: Op | None) -> bool:
    return isinstance(op, records.FileDeleted)


def _first_since(
    engine: Answering, at: int, newest: int, standing: PastStanding
) -> dict[str, tuple[Op, int]]:
    """The first thing that happened to each file after a time, of what shows or hides it, and when.

    What changes how it ranks `standing` takes in.
    """
    found: dict[str, tuple[Op, int]] = {}
    for commit in engine.log_since(at):
        if commit.ts > newest:
            break
        standing.follow(commit)
        for op in commit.ops:
            if isinstance(op, _Telling):
                found.setdefault(op.physical, (op, commit.ts))
    return found


def _hidden_before(engine: Answering, at: int, wanted: set[str]) -> dict[str, FileState]:
    """Which of some files were hidden within the kept history, and how they stood at `at`."""
    hidden: dict[str, FileState] = {}
    for commit in engine.log_since(engine.oldest_answerable):
        if commit.ts > at:
            break
        _follow(commit, wanted, hidden)
    return hidden


def _follow(commit: Commit, wanted: set[str], hidden: dict[str, FileState]) -> None:
    for op in commit.ops:
        if isinstance(op, records.FileQuarantined) and op.physical in wanted:
            hidden[op.physical] = FileState.QUARANTINED
        elif isinstance(op, records.FileSuperseded) and op.physical in wanted:
            hidden[op.physical] = FileState.SUPERSEDED
        elif isinstance(op, records.FileRestored | records.FileRevived):
            hidden.pop(op.physical, None)


def _state(op: Op | None, row: FileRow, hidden: Mapping[str, FileState]) -> FileState:
    if op is None:
        return row.state  # what changed since neither shows nor hides it
    if isinstance(op, records.FileRestored):
        return FileState.QUARANTINED
    if isinstance(op, records.FileRevived):
        return FileState.SUPERSEDED
    if isinstance(op, records.FileUndeleted):
        return FileState.DELETED
    return hidden.get(row.physical, FileState.LIVE)


def _check_there(op: Op, physical: str, known: set[str], at: int, oldest: int) -> None:
    if isinstance(op, records.FileDeleted | records.FileSuperseded) and physical not in known:
        raise HistoryGoneError(
            f"files that were there at {at} have left the disk since, {physical} among them; ask "
            "for a later time",
            extra={"oldest": oldest},
        )
