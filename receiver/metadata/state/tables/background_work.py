"""Background work: what waits, what runs, and the last that ended."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

import msgspec

from receiver.metadata.model import records
from receiver.metadata.state.table_rows import OPEN_WORK, WorkRow, WorkState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from receiver.metadata.state.tables import Appliers

__all__ = ["KEPT_WORK", "WorkTable", "parts_of"]

KEPT_WORK: Final = 10_000
"""Ended rows that are kept; however many there ever were, the table takes no more memory."""


class WorkTable:
    """The work that is open, and the last that ended.

    Attributes:
        rows: by id; those that ended in the order in which they did.
    """

    def __init__(self) -> None:
        self.rows: dict[int, WorkRow] = {}
        self._ended: dict[int, None] = {}
        self._waiting: dict[str, list[tuple[int, int]]] = {}
        self._holders: dict[records.WorkPlace, int] = {}
        self._below: dict[records.WorkPlace, dict[int, int]] = {}

    def running(self) -> list[WorkRow]:
        """What is being done."""
        return [row for row in self._open() if row.state is WorkState.RUNNING]

    def first_waiting(self, kinds: Collection[str]) -> WorkRow | None:
        """Of some kinds, what is to be done next: the highest priority, of these the oldest."""
        heads = [waiting[0] for kind in kinds if (waiting := self._waiting.get(kind))]
        return self.rows[min(heads)[1]] if heads else None

    def overlapping(self, place: records.WorkPlace) -> set[int]:
        """Ids of open work that has a place which overlaps this one."""
        above = {self._holders[part] for part in parts_of(place) if part in self._holders}
        return above | set(self._below.get(place, ()))

    def restore(self, row: WorkRow) -> None:
        """Put a row in, in place of the one of its id."""
        before = self.rows.pop(row.id, None)
        if before is not None and before.state in OPEN_WORK:
            self._drop(before)
        self._ended.pop(row.id, None)
        self.rows[row.id] = row
        if row.state in OPEN_WORK:
            self._hold(row)
            return
        self._ended[row.id] = None
        while len(self._ended) > KEPT_WORK:
            gone = next(iter(self._ended))
            del self._ended[gone], self.rows[gone]

    def _open(self) -> Iterator[WorkRow]:
        return (self.rows[each] for each in dict.fromkeys(self._holders.values()))

    def _hold(self, row: WorkRow) -> None:
        for place in row.scope:
            self._holders[place] = row.id
            for part in parts_of(place):
                below = self._below.setdefault(part, {})
                below[row.id] = below.get(row.id, 0) + 1
        if row.state is WorkState.PENDING:
            insort(self._waiting.setdefault(row.kind, []), (-row.priority, row.id))

    def _drop(self, row: WorkRow) -> None:
        for place in row.scope:
            del self._holders[place]
            for part in parts_of(place):
                below = self._below[part]
                below[row.id] -= 1
                if not below[row.id]:
                    del below[row.id]
                if not below:
                    del self._below[part]
        if row.state is WorkState.PENDING:
            waiting = self._waiting[row.kind]
            del waiting[bisect_left(waiting, (-row.priority, row.id))]
            if not waiting:
                del self._waiting[row.kind]

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.WorkAdded: self._added,
            records.WorkTaken: self._taken,
            records.WorkEnded: self._work_ended,
        }

    def _added(self, op: records.WorkAdded, ts: int) -> None:
        self.restore(
            WorkRow(
                id=op.id,
                kind=op.kind,
                spec=op.spec,
                scope=tuple(op.scope),
                priority=op.priority,
                created=ts,
                changed=ts,
            )
        )

    def _taken(self, op: records.WorkTaken, ts: int) -> None:
        self.restore(
            msgspec.structs.replace(
                self.rows[op.id],
                state=WorkState.RUNNING,
                attempt=op.attempt,
                executor=op.executor,
                reason="",
                changed=ts,
            )
        )

    def _work_ended(self, op: records.WorkEnded, ts: int) -> None:
        state = WorkState.PENDING if op.end == "again" else WorkState(op.end)
        self.restore(
            msgspec.structs.replace(self.rows[op.id], state=state, reason=op.reason, changed=ts)
        )


def parts_of(place: records.WorkPlace) -> set[records.WorkPlace]:
    """A place and those that it lies in."""
    group, partition, _ = msgspec.structs.astuple(place)
    return {records.WorkPlace(group), records.WorkPlace(group, partition), place}
