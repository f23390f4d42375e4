"""Records of the log about background work: what is to be done, who does it, what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from common.wire.base import CommitTs
from receiver.metadata.model.records.record_parts import Record

WorkEnd = Literal["pending", "done", "failed", "cancelled", "again"]


class WorkPlace(Record, frozen=True):
    """What a task of background work has for itself while it waits or runs.

    A place without `partition` is the whole storage group, one without `file` the whole partition,
    so that of two places that overlap one begins with the other.

    Attributes:
        group: the storage group.
        partition: number of the time partition; empty for all.
        file: physical name; empty for all of the partition.
    """

    group: str
    partition: str = ""
    file: str = ""


class WorkAdded(Record, frozen=True, tag=80):
    """Something to be done; nothing else has its scope.

    Attributes:
        id: timestamp of the commit.
        spec: for who does it; its form is its kind's.
        scope: what it has for itself.
        priority: of what waits, the highest is taken first.
    """

    id: CommitTs
    kind: str
    spec: bytes
    scope: Sequence[WorkPlace]
    priority: int = 0


class WorkTaken(Record, frozen=True, tag=81):
    """An executor does it now.

    Attributes:
        attempt: how often it was taken by now; the number guards its result.
        executor: who does it.
    """

    id: CommitTs
    attempt: int
    executor: str


class WorkEnded(Record, frozen=True, tag=82):
    """What became of an attempt.

    Attributes:
        attempt: its number.
        end: `pending`: it waits again, and others may take it; `cancelled` is said of what waits
            too; `again`, only of what failed or was cancelled, has it wait again.
    """

    id: CommitTs
    attempt: int
    end: WorkEnd
    reason: str = ""
