"""Records of the log about background work: what is to be done, who does it, what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from receiver.metadata.model.records.record_parts import Record

WorkEnd = Literal["pending", "done", "failed", "cancelled", "again"]


class WorkPlace(Record, frozen=True):
    """What a task of background work has for itself while it waits or runs.

    A place without `partition` is the whole storage group, one without `file` the whole partition,
    so that of two places that overlap one begins with the other.
    """

    group: str
    partition: str = ""
    file: str = ""


class WorkAdded(Record, frozen=True, tag=80):
    """Something to be done; `id` is the timestamp of the commit. Nothing else has its scope.

    `spec` is for who does it; of what waits, the highest `priority` is taken first.
    """

    id: int
    kind: str
    spec: bytes
    scope: Sequence[WorkPlace]
    priority: int = 0


class WorkTaken(Record, frozen=True, tag=81):
    """An executor does it now, for the `attempt`th time; that number guards its result."""

    id: int
    attempt: int
    executor: str


class WorkEnded(Record, frozen=True, tag=82):
    """What became of an attempt; `pending`: it waits again, and others may take it.

    `cancelled` is said of what waits too; `again`, only of what failed or was cancelled, has it
    wait again.
    """

    id: int
    attempt: int
    end: WorkEnd
    reason: str = ""
