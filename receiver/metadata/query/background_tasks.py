"""Background tasks as they stand, or stood: from today's rows, which have their own past."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.query.row_source import Look, Row, RowSource, TakenRows, as_they_are
from receiver.metadata.state.tables.background_work import row_at

if TYPE_CHECKING:
    from receiver.metadata.query.questions import ShowTasks
    from receiver.metadata.query.row_source import LabelsAt
    from receiver.metadata.state.work_rows import WorkRow

__all__ = ["SHOW_TASKS", "place_text"]


def place_text(place: records.WorkPlace) -> str:
    """A place of a scope as people read it."""
    return " ".join(each for each in (place.group, place.partition, place.file) if each)


def _take(look: Look, _: ShowTasks, position: int | None, count: int) -> TakenRows:
    with look as (state, at):
        ids = nsmallest(count, (each for each in state.work_table.rows if each > (position or 0)))
        rows = [state.work_table.rows[each] for each in ids]
        if at is None:
            return TakenRows(rows, ids[-1] if ids else position, len(ids) == count)
    if position is None:
        _check_there(look)
    stood = (_stood(look, row) for row in rows)
    there = [row for row in stood if row is not None]
    return TakenRows(there, ids[-1] if ids else position, len(ids) == count)


def _stood(look: Look, row: WorkRow) -> WorkRow | None:
    try:
        return row_at(row, look.ts)
    except LookupError:
        raise _gone(look, row.id) from None


def _check_there(look: Look) -> None:
    """See that what was open at a time is still in the table, whatever became of it."""
    for commit in look.engine.log_since(look.ts):
        for op in commit.ops:
            if isinstance(op, records.WorkTaken | records.WorkEnded) and op.id <= look.ts:
                with look as (state, _):
                    is_there = op.id in state.work_table.rows
                if not is_there:
                    raise _gone(look, op.id)


def _gone(look: Look, ident: int) -> HistoryGoneError:
    return HistoryGoneError(
        f"how task {ident} stood at {look.ts} is not known any more; ask for a later time",
        extra={"oldest": look.engine.oldest_answerable},
    )


def _show(row: WorkRow, _: LabelsAt) -> Row:
    return (
        row.id,
        row.kind,
        str(row.state),
        ", ".join(map(place_text, row.scope)),
        row.priority,
        row.attempt,
        row.executor,
        row.created,
        row.changed,
        row.reason,
    )


SHOW_TASKS: Final = RowSource(
    ("task", "kind", "state", "scope", "priority", "attempt", "executor", "created", "changed",
     "reason"),
    _take,
    as_they_are,
    _show,
)  # fmt: skip
