"""Which files were there at a time: the catalogue as it was, from today's rows and the log since.

A row knows when it was made and when it was deleted, but not when it went into quarantine and out
of it. The log does: what happened to a file first after the time tells how it stood then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.query.past_rows import PastRows, RowsBetween
from receiver.metadata.query.past_standing import PastStanding
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from receiver.metadata.model.records import Commit, Op
    from receiver.metadata.query.row_source import Answering
    from receiver.metadata.state.file_rows import FrozenFileRows
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
    visible: PastRows
    quarantined: list[FileRow]
    ended: Mapping[str, int]


def files_at(
    engine: Answering, at: int, *, since: int = 0, within: Callable[[str], bool] | None = None
) -> PastFiles:
    """The files at a time. Commits wait for as long as a reference to each young row is taken.

    A file that was in quarantine from before the kept history on, and was deleted after `at`, is
    counted as visible: nothing is left that could tell.

    Args:
        engine: that knows them.
        at: a commit timestamp; one to come means the newest commit.
        since: only files that were loaded after this commit.
        within: only those in these directories, such as ``sequence/root.wind/0/0``; None for all.

    Raises:
        HistoryGoneError: `at` is before the kept history, or a file has left the disk since.
    """
    with engine.reading() as state:
        newest = state.newest
        commit = min(at, newest)
        engine.check_answerable(commit)
        frozen = state.file_table.rows.freeze()
    rows = RowsBetween(frozen, since=since, until=commit, within=within)
    standing = PastStanding(engine, commit)
    told: dict[str, tuple[Op, int]] = {}
    if commit < newest:
        told = _first_since(engine, commit, newest, standing)
        _check_there(told, frozen, commit, engine.oldest_answerable)
        numbers = map(frozen.number, told.keys() | standing.moved)
        rows.take_out([number for number in numbers if number is not None])
        rows.take_out(rows.seen_first(standing.begun))
    ended = {physical: ts for physical, (op, ts) in told.items() if isinstance(op, _Ending)}
    then = _states(engine, commit, {each: op for each, (op, _) in told.items()}, rows.others)
    visible, quarantined = [], []
    for physical, row in sorted((row.physical, row) for row in rows.others):  # no two are the same
        state_then = then.get(physical, row.state)
        if state_then is FileState.QUARANTINED:
            quarantined.append(standing.of(row))
        elif state_then in (FileState.LIVE, FileState.RETIRED):
            visible.append(standing.of(row))
    return PastFiles(commit, rows.in_order(visible), quarantined, ended)


_Leaving = records.FileDeleted | records.FileSuperseded
_Ending = _Leaving | records.FileQuarantined
_Showing = records.FileRestored | records.FileRevived | records.FileUndeleted
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
        elif isinstance(op, _Showing):
            hidden.pop(op.physical, None)


def _states(
    engine: Answering, at: int, first: Mapping[str, Op], rows: Iterable[FileRow]
) -> dict[str, FileState]:
    """How those of some files stood that something was told of since."""
    doubtful = {row.physical for row in rows if _is_deletion(first.get(row.physical))}
    hidden = _hidden_before(engine, at, doubtful) if doubtful else {}
    return {each: _state(op, hidden.get(each, FileState.LIVE)) for each, op in first.items()}


def _state(op: Op, before: FileState) -> FileState:
    """How a file stood before an operation; `before` is what holds where that does not tell."""
    if isinstance(op, records.FileRestored):
        return FileState.QUARANTINED
    if isinstance(op, records.FileRevived):
        return FileState.SUPERSEDED
    if isinstance(op, records.FileUndeleted):
        return FileState.DELETED
    return before


def _check_there(
    told: Mapping[str, tuple[Op, int]], rows: FrozenFileRows, at: int, oldest: int
) -> None:
    gone = [physical for physical, (op, _) in told.items() if isinstance(op, _Ending)]
    young = {row.physical for row in rows.young} if gone else frozenset()
    for physical in gone:
        if physical not in young and rows.number(physical) is None:
            raise HistoryGoneError(
                f"files that were there at {at} have left the disk since, {physical} among them; "
                "ask for a later time",
                extra={"oldest": oldest},
            )
