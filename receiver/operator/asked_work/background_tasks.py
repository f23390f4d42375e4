"""Background tasks for operators: listed, added, cancelled, tried again; and how they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from common.errors import NotFoundError, UsageError
from common.text_numbers import whole_number
from receiver.compaction.merge_progress import MERGE
from receiver.metadata.commit.tablet_making import table_nodes
from receiver.metadata.model import records
from receiver.metadata.query.background_tasks import place_text
from receiver.metadata.state.work_rows import WorkState
from receiver.operator.directories import RunningReceiver
from receiver.operator.views.background_views import (
    BackgroundTasksPage,
    BackgroundTaskView,
    BackgroundTotals,
    FailureView,
)
from receiver.superseding.proof_work import PROVE
from receiver.transfer.said_lists.listing import page_limit

if TYPE_CHECKING:
    from collections.abc import Collection

    from receiver.background.work_queue import WorkQueue
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.tables.background_work import WorkTable
    from receiver.metadata.state.work_rows import WorkRow
    from receiver.operator.directories import ReceiverDirectories
    from receiver.operator.views.background_views import TaskAddRequest

__all__ = [
    "ADDED_BY_HAND",
    "TASK_STATES",
    "add_task",
    "background_concerns",
    "background_totals",
    "cancel_load",
    "cancel_task",
    "list_tasks",
    "retry_task",
    "task_number",
    "task_row",
]

ADDED_BY_HAND: Final = (MERGE, PROVE)
"""Kinds that need nothing to be said but where."""
TASK_STATES: Final = tuple(map(str, WorkState))
_FAILURES: Final = 5
_PARTITION: Final = re.compile("0|-?[1-9][0-9]{0,18}")
"""As a scope has its number: another text of it would be another place."""
_LONG: Final = 86400.0
"""Seconds of waiting, and of one attempt, that an operator hears of."""
_LONGEST_REASON: Final = 400


def list_tasks(
    there: ReceiverDirectories,
    *,
    state: str | None = None,
    kind: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> BackgroundTasksPage:
    """A page of tasks, in the order in which they were added.

    Args:
        there: what to look at; only a server that runs knows whose lease is over.
        state: only those that stand so.
        kind: only of this kind.
        after: the cursor of the page before.
        limit: tasks of the page; as many as the configuration allows, if left out.

    Raises:
        UsageError: there is no such state.
    """
    if state is not None and state not in TASK_STATES:
        raise UsageError(f"state: expected one of {', '.join(TASK_STATES)}")
    limit = page_limit(limit, there.config.limits.max_page_items)
    behind = 0 if after is None else task_number(after)
    overdue = _overdue(there)
    with there.engine.reading() as found:
        rows = [
            row
            for row in found.work_table.rows.values()
            if row.id > behind and state in (None, str(row.state)) and kind in (None, row.kind)
        ]
        times = found.clock.times
    rows.sort(key=_id)
    return BackgroundTasksPage(
        tasks=[_view(row, times, overdue) for row in rows[:limit]],
        next=str(rows[limit - 1].id) if len(rows) > limit else None,
    )


def add_task(engine: Engine, queue: WorkQueue, request: TaskAddRequest) -> int:
    """Add a task; returns its id.

    Raises:
        UsageError: tasks of this kind are not added by hand, or a partition has no such number.
        NotFoundError: there is no such storage group, or no file of the partition.
        ConflictError: an open task has a part of its scope.
        RefusedCommitError: it is none.
    """
    if request.kind not in ADDED_BY_HAND:
        raise UsageError(f"kind {request.kind[:40]!a}: expected {', '.join(ADDED_BY_HAND)}")
    _see_place(engine, request.group, request.partition)
    place = records.WorkPlace(request.group, request.partition)
    return queue.add(request.kind, b"", [place], priority=request.priority)


def _see_place(engine: Engine, group: str, partition: str) -> None:
    """See that a scope is one: a task of another would be done at once, and say nothing of it."""
    if partition and not _PARTITION.fullmatch(partition):
        raise UsageError(f"partition {partition[:40]!a}: expected its number, as in `tablets`")
    with engine.reading() as state:
        nodes = table_nodes(group)
        is_set = nodes is not None and state.schema.groups.of(nodes) == nodes
        is_known = is_set or state.loaded_tables.named(group) is not None
        numbers = state.file_table.by_partition.partitions(group) if partition else []
    if not is_known:
        raise NotFoundError(f"there is no storage group {group[:200]!a}; `tables` has their names")
    if partition and int(partition) not in numbers:
        raise NotFoundError(f"there are no files of partition {partition} of {group[:200]!a}")


def cancel_task(engine: Engine, queue: WorkQueue, task: str, reason: str) -> None:
    """Have nobody do a task; whoever does it now commits no more of it.

    Raises:
        NotFoundError: there is no such task.
        ConflictError: it has ended, or has just changed.
    """
    queue.cancel(task_row(engine, task), reason[:_LONGEST_REASON] or "by an operator")


def cancel_load(there: RunningReceiver, task: str, reason: str) -> None:
    """Have nothing more be done of a load at the centre; raises as `CentreLoads.cancel`."""
    there.centre.cancel(task, reason[:_LONGEST_REASON] or "by an operator")


def retry_task(engine: Engine, queue: WorkQueue, task: str) -> None:
    """Have a task wait again that failed or was cancelled.

    Raises:
        NotFoundError: there is no such task; or what it is for is there no more, so that it would
            be done at once.
        ConflictError: it does not stand so, or an open task has a part of its scope.
    """
    row = task_row(engine, task)
    if row.state in (WorkState.FAILED, WorkState.CANCELLED):
        for place in row.scope:
            _see_place(engine, place.group, place.partition)
    queue.retry(row)


def task_row(engine: Engine, task: str) -> WorkRow:
    """A task by its id.

    Raises:
        NotFoundError: there is no such task.
    """
    with engine.reading() as state:
        row = state.work_table.rows.get(task_number(task))
    if row is None:
        raise NotFoundError(f"there is no background task {task[:40]!a}, or it ended long ago")
    return row


def background_totals(there: ReceiverDirectories) -> BackgroundTotals:
    """Background tasks in numbers."""
    overdue = len(_overdue(there))
    with there.engine.reading() as state:
        opened = list(state.work_table.open())
        failed = _not_made_good(state.work_table)
        times = state.clock.times
    waiting = [row.changed for row in opened if row.state is WorkState.PENDING]
    running = [row.changed for row in opened if row.state is not WorkState.PENDING]
    return BackgroundTotals(
        waiting=len(waiting),
        oldest_waiting_at=times.seconds(min(waiting)) if waiting else None,
        running=len(running),
        oldest_running_at=times.seconds(min(running)) if running else None,
        overdue=overdue,
        failed=len(failed),
        failures=tuple(
            FailureView(task=str(row.id), kind=row.kind, scope=_scope(row), reason=row.reason)
            for row in failed[: -_FAILURES - 1 : -1]
        ),
    )


def background_concerns(totals: BackgroundTotals, now: float) -> list[str]:
    """What of the background tasks does not come through, in numbers.

    Args:
        totals: of them.
        now: seconds since the epoch.
    """
    found = []
    if totals.failed:
        found.append(f"Background tasks have failed: {totals.failed}.")
    oldest = totals.oldest_waiting_at
    if oldest is not None and now - oldest > _LONG:
        hours = (now - oldest) / 3600
        found.append(f"Nobody has taken a background task for {hours:.0f} hours.")
    begun = totals.oldest_running_at
    if begun is not None and now - begun > _LONG:
        hours = (now - begun) / 3600
        found.append(f"A background task has been running for {hours:.0f} hours.")
    return found


def _not_made_good(table: WorkTable) -> list[WorkRow]:
    """What has failed, and was not tried in another task since; the latest last."""
    last = {(row.kind, row.scope): row.id for row in sorted(table.rows.values(), key=_id)}
    return [row for row in table.failed() if last[row.kind, row.scope] == row.id]


def _id(row: WorkRow) -> int:
    return row.id


def _overdue(there: ReceiverDirectories) -> set[int]:
    if not isinstance(there, RunningReceiver):
        return set()
    return {row.id for row in there.work.overdue()}


def _view(row: WorkRow, times: TrueTimes, overdue: Collection[int]) -> BackgroundTaskView:
    return BackgroundTaskView(
        task=str(row.id),
        kind=row.kind,
        state=str(row.state),
        scope=_scope(row),
        priority=row.priority,
        attempt=row.attempt,
        executor=row.executor,
        created=row.created,
        created_at=times.seconds(row.created),
        changed=row.changed,
        changed_at=times.seconds(row.changed),
        reason=row.reason,
        overdue=row.id in overdue,
    )


def _scope(row: WorkRow) -> list[str]:
    return [place_text(each) for each in row.scope]


def task_number(text: str) -> int:
    """A background task's id as the tables have it.

    Raises:
        NotFoundError: it is no number from 1 on.
    """
    number = whole_number(text)
    if not number:
        raise NotFoundError(f"{text[:40]!a} is the id of no background task: that is a number")
    return number
