"""The rows of background work: where each task stands, and how it stood before."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from receiver.metadata.model.records import WorkPlace
from receiver.metadata.state.table_rows import CommittedRow

__all__ = ["OPEN_WORK", "WorkRow", "WorkState", "WorkStood"]


class WorkState(StrEnum):
    """Where a task of background work stands."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_WORK: Final = (WorkState.PENDING, WorkState.RUNNING)
"""As long as it is one of these, nothing else may have its scope."""


class WorkStood(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a task of background work stood from a commit on (`changed`), until its next change."""

    changed: int
    state: WorkState
    attempt: int
    executor: str
    reason: str


class WorkRow(CommittedRow, frozen=True, kw_only=True):
    """A task of background work; see `records.WorkAdded`.

    Attributes:
        attempt: how often it was taken.
        executor: who took it last.
        reason: why it waits again, failed or was cancelled.
        stood: how it stood before, the oldest first; of very many changes the last ones.
    """

    id: int
    kind: str
    spec: bytes
    scope: tuple[WorkPlace, ...]
    priority: int
    state: WorkState = WorkState.PENDING
    attempt: int = 0
    executor: str = ""
    reason: str = ""
    stood: tuple[WorkStood, ...] = ()
