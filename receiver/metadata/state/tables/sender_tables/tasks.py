"""Tasks that are done, and files that could not be loaded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from receiver.metadata.model import records
from receiver.metadata.state.table_rows import QuarantineRow, TaskRow, encode_outcomes

if TYPE_CHECKING:
    from receiver.metadata.state.tables import Appliers

__all__ = ["KEPT_OUTCOMES", "KEPT_TASKS", "QuarantineTable", "TaskTable"]

KEPT_TASKS = 256
"""Tasks of a sender whose outcome is kept; a sender asks for its last one, or the one before."""
KEPT_OUTCOMES = 100_000
"""Outcomes kept for one sender: beyond them the oldest tasks go, the newest never."""


class TaskTable:
    """The last tasks of each sender."""

    def __init__(self) -> None:
        self._tasks: dict[str, OrderedDict[str, TaskRow]] = {}
        self._kept_outcomes: dict[str, int] = {}

    def get(self, sender: str, task: str) -> TaskRow | None:
        """A task that is done, if it is among the last ones of its sender."""
        tasks = self._tasks.get(sender)
        return None if tasks is None else tasks.get(task)

    def newest(self, sender: str, most: int) -> list[TaskRow]:
        """The last tasks of a sender, in the order in which they were done."""
        tasks = self._tasks.get(sender)
        return [] if tasks is None else list(islice(reversed(tasks.values()), most))[::-1]

    def has(self, sender: str, task: str) -> bool:
        """Whether the task is done, as far as is remembered."""
        return self.get(sender, task) is not None

    def __iter__(self) -> Iterator[TaskRow]:
        """All that are remembered; those of one sender in the order in which they were done."""
        for tasks in self._tasks.values():
            yield from tasks.values()

    def restore(self, row: TaskRow) -> None:
        """Put a row in as it was; those of one sender come as `__iter__` gave them."""
        tasks = self._tasks.setdefault(row.sender, OrderedDict())
        tasks[row.task] = row
        kept = self._kept_outcomes.get(row.sender, 0) + row.count
        while len(tasks) > 1 and (len(tasks) > KEPT_TASKS or kept > KEPT_OUTCOMES):
            kept -= tasks.popitem(last=False)[1].count
        self._kept_outcomes[row.sender] = kept

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.TaskDone: self._task_done,
        }

    def _task_done(self, op: records.TaskDone, ts: int) -> None:
        self.restore(
            TaskRow(
                sender=op.sender,
                task=op.task,
                count=len(op.outcomes),
                encoded=encode_outcomes(op.outcomes),
                untold=tuple(op.untold),
                created=ts,
                changed=ts,
            )
        )


class QuarantineTable:
    """Files that could not be loaded.

    Attributes:
        rows: by (sender, path, digest).
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], QuarantineRow] = {}
        self._at_path: dict[tuple[str, str], set[str]] = {}

    def at_path(self, sender: str, path: str) -> list[QuarantineRow]:
        """The entries of a path."""
        digests = self._at_path.get((sender, path), ())
        return [self.rows[sender, path, digest] for digest in sorted(digests)]

    def restore(self, row: QuarantineRow) -> None:
        """Put a row in as it was."""
        self.rows[row.sender, row.path, row.digest] = row
        self._at_path.setdefault((row.sender, row.path), set()).add(row.digest)

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.QuarantinePut: self._quarantine_put,
            records.QuarantineDrop: self._quarantine_drop,
        }

    def _quarantine_put(self, op: records.QuarantinePut, ts: int) -> None:
        known = self.rows.get((op.sender, op.path, op.digest))
        self.restore(
            QuarantineRow(
                sender=op.sender,
                path=op.path,
                digest=op.digest,
                size=op.size,
                hold=op.hold,
                reason=op.reason,
                kept=op.kept,
                device=op.device,
                created=ts if known is None else known.created,
                changed=ts,
            )
        )

    def _quarantine_drop(self, op: records.QuarantineDrop, ts: int) -> None:
        del self.rows[op.sender, op.path, op.digest]
        digests = self._at_path[op.sender, op.path]
        digests.remove(op.digest)
        if not digests:
            del self._at_path[op.sender, op.path]
