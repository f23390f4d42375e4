"""Whether what a task brings may still be written: judged at its commit, not only when it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.wire import Result
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.wire import DeletionsPart
    from receiver.load.folder.current_task import TaskRecord
    from receiver.metadata.state.state import State

__all__ = ["mandate_guards", "nothing_taken", "why_withdrawn"]


def why_withdrawn(
    state: State, record: TaskRecord, now: float, *, tokens_required: bool
) -> str | None:
    """Why nothing of a task may be written any more, None if it may.

    Args:
        state: committed.
        record: the task.
        now: seconds since the epoch.
        tokens_required: whether each sender needs a token, even while there never was one.
    """
    if record.token is None:
        if record.centre is not None or record.adopted:  # an operator of the centre said it
            return None
        if tokens_required or records.SENDER in state.token_table.roles:
            return "it came without a token, and by now one is needed"
        return None
    row = state.tokens.get(record.token)
    if row is None:
        return f"the token {record.token} that it came with was revoked"
    if row.expires is not None and row.expires <= now:
        return f"the token {record.token} that it came with has expired"
    return None


def mandate_guards(state: State, record: TaskRecord) -> list[Guard]:
    """On the token that a decision rests on."""
    row = None if record.token is None else state.tokens.get(record.token)
    return [] if row is None else [Guard("token", row.id, row.changed)]


def nothing_taken(
    record: TaskRecord, reason: str, deletions: Iterable[DeletionsPart]
) -> records.TaskDone:
    """The end of a task of which nothing is written.

    What was received of it stays for a next task, which comes with a mandate of its own; what it
    told of deletion files is to be told again. Of an upload, or a load at the centre, that nobody
    comes back for, nothing stays.
    """
    is_over = record.single or record.centre is not None
    result = Result.REFUSED if is_over else Result.MISSING
    outcomes = [
        records.FileOutcome(each.path, result, reason=reason) for each in record.manifest or ()
    ]
    named = {each.path for each in outcomes}
    outcomes += [
        records.FileOutcome(path, Result.HELD, reason=reason)
        for path in record.deleted
        if path not in named
    ]
    untold = tuple(dict.fromkeys(each.path for each in deletions))
    return records.TaskDone(
        sender=record.sender, task=record.task, outcomes=tuple(outcomes), untold=untold
    )
