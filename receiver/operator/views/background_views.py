"""What operators and executors are told of background tasks, and what they say.

Ids are numbers above what JSON is sure of, so they are text.
"""

from __future__ import annotations

from typing import Literal

from common.wire import Struct
from common.wire.base import CommitTs

__all__ = [
    "BackgroundTaskView",
    "BackgroundTasksPage",
    "BackgroundTotals",
    "CancelRequest",
    "FailureView",
    "TaskAddRequest",
    "TaskEndRequest",
    "TaskNamed",
    "TaskTakeRequest",
    "TaskTaken",
]


class BackgroundTaskView(Struct, frozen=True, kw_only=True):
    """A background task.

    Attributes:
        task: its id.
        kind: what is to be done.
        state: `pending`, `running`, `done`, `failed` or `cancelled`.
        scope: what it has for itself: a storage group, a partition or a file each.
        priority: the highest is taken first.
        attempt: how often it was taken.
        executor: who took it last.
        created: commit.
        created_at: when that was.
        changed: commit of its last change.
        changed_at: when that was.
        reason: why it waits again, failed or was cancelled; or what came of it.
        overdue: whether it runs and nobody was heard of for a lease.
    """

    task: str
    kind: str
    state: str
    scope: list[str]
    priority: int
    attempt: int
    executor: str
    created: CommitTs
    created_at: float
    changed: CommitTs
    changed_at: float
    reason: str = ""
    overdue: bool = False


class BackgroundTasksPage(Struct, frozen=True, kw_only=True):
    """`GET /v1/tasks`, in the order in which they were added."""

    tasks: list[BackgroundTaskView]
    """Those of this page."""
    next: str | None = None


class TaskAddRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/tasks`.

    Attributes:
        kind: what is to be done.
        group: the storage group.
        partition: of it; empty for all.
        priority: from -128 to 127.
    """

    kind: str
    group: str
    partition: str = ""
    priority: int = 0


class TaskNamed(Struct, frozen=True, kw_only=True):
    """Which task it was."""

    task: str


class CancelRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/tasks/<task>/cancel`: why."""

    reason: str = ""


class FailureView(Struct, frozen=True, kw_only=True):
    """A task that has failed, in short."""

    task: str
    kind: str
    scope: list[str]
    reason: str


class BackgroundTotals(Struct, frozen=True, kw_only=True):
    """Background tasks in numbers.

    Attributes:
        waiting: that nobody has taken.
        oldest_waiting_at: since when the oldest of them waits; None for none.
        running: that somebody does.
        oldest_running_at: since when the one that takes longest is being done; None for none.
        overdue: of those, how many nobody was heard of for a lease.
        failed: that no other task of the kind and scope has come after.
        failures: the last of them.
    """

    waiting: int = 0
    oldest_waiting_at: float | None = None
    running: int = 0
    oldest_running_at: float | None = None
    overdue: int = 0
    failed: int = 0
    failures: tuple[FailureView, ...] = ()


class TaskTakeRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/tasks/take`.

    Attributes:
        executor: a name by which the table knows who does it.
        kinds: that it can do.
        version: of tsferry that it has: the receiver's own, or it is given none.
        task: this one, whether or not it is the time for it, for an operator; empty for what is
            to be done next.
    """

    executor: str
    kinds: list[str]
    version: str
    task: str = ""


class TaskTaken(Struct, frozen=True, kw_only=True):
    """A task that was taken.

    Attributes:
        task: its id.
        attempt: goes with every further call about it.
        kind: what is to be done.
        lease: seconds for which nothing need be heard.
    """

    task: str
    attempt: int
    kind: str
    lease: float


class TaskEndRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/tasks/<task>/end`.

    Attributes:
        end: `failed`, or `pending` to give it back.
        reason: why.
    """

    end: Literal["failed", "pending"]
    reason: str
