"""The rules of background work: scopes apart from each other, and results of the last attempt only.

They hold whoever commits, so an executor that slept while its lease ended, and what it made in the
same commit, is refused however late it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import ConflictError
from receiver.metadata.commit.judging.record_checks import SIGNED_64, refusal_of
from receiver.metadata.model import records
from receiver.metadata.state.tables.background_work import parts_of
from receiver.metadata.state.work_rows import OPEN_WORK, WorkState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from receiver.metadata.state.work_rows import WorkRow

__all__ = ["check_added", "check_ended", "check_taken", "overlap", "work_conflict"]

_MOST_PLACES = 10_000
"""Of one scope: more files than a merge takes."""
_FROM: dict[str, Collection[WorkState]] = {
    "done": (WorkState.RUNNING,),
    "failed": (WorkState.RUNNING,),
    "pending": (WorkState.RUNNING,),
    "again": (WorkState.FAILED, WorkState.CANCELLED),
    "cancelled": (*OPEN_WORK, WorkState.FAILED),
}


def check_added(op: records.WorkAdded) -> None:
    """Refuse what no work is, by itself."""
    if not 0 < op.id < SIGNED_64.stop or not op.kind:
        raise refusal_of(op, f"{op.id} of kind {op.kind!a} is no work")
    if op.priority not in range(-128, 128):
        raise refusal_of(op, f"{op.priority} is no priority from -128 to 127")
    if not 0 < len(op.scope) <= _MOST_PLACES:
        raise refusal_of(op, f"a scope of {len(op.scope)} places is none of 1 to {_MOST_PLACES}")
    for place in op.scope:
        if not place.group or (place.file and not place.partition):
            raise refusal_of(op, f"{place} is no place")
    scope = set(op.scope)
    if len(scope) != len(op.scope) or any(
        not scope.isdisjoint(parts_of(each) - {each}) for each in scope
    ):
        raise refusal_of(op, "places of its scope overlap each other")


def check_taken(op: records.WorkTaken, row: WorkRow | None) -> WorkRow:
    """Refuse work that is not there, does not wait, or was tried since the caller looked."""
    if not op.executor:
        raise refusal_of(op, "nobody takes it")
    if row is None or row.state is not WorkState.PENDING or op.attempt != row.attempt + 1:
        raise _stands_otherwise(op.id, op.attempt, row)
    return row


def check_ended(op: records.WorkEnded, row: WorkRow | None) -> WorkRow:
    """Refuse a result that is not of the last attempt, or of work that has ended otherwise."""
    if row is None or op.attempt != row.attempt or row.state not in _FROM[op.end]:
        raise _stands_otherwise(op.id, op.attempt, row)
    return row


def overlap(one: Sequence[records.WorkPlace], other: Sequence[records.WorkPlace]) -> bool:
    """Whether a place of one scope lies in, or around, a place of another."""
    mine, theirs = set(one), set(other)
    return any(not parts_of(each).isdisjoint(theirs) for each in mine) or any(
        not parts_of(each).isdisjoint(mine) for each in theirs
    )


def work_conflict(row: WorkRow, other: WorkRow) -> ConflictError:
    """The error that refuses work whose scope is taken."""
    return ConflictError(
        f"{row.kind} needs what {other.kind} {other.id}, which is {other.state}, has for itself",
        extra={"work": other.id, "state": str(other.state)},
    )


def _stands_otherwise(ident: int, attempt: int, row: WorkRow | None) -> ConflictError:
    now = "is not there" if row is None else f"is {row.state}, attempt {row.attempt}"
    return ConflictError(
        f"work {ident} {now}; what attempt {attempt} says of it counts no more",
        extra={"work": ident, "attempt": attempt},
    )
