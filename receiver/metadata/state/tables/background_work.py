"""Background work: what waits, what runs, and the last that ended."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

import msgspec

from receiver.metadata.model import records
from receiver.metadata.state.work_rows import OPEN_WORK, WorkRow, WorkState, WorkStood

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from receiver.metadata.state.tables import Appliers

__all__ = ["KEPT_WORK", "WorkTable", "parts_of", "row_at"]

KEPT_WORK: Final = 10_000
"""Failed rows that are kept, and as many others that ended; the table takes no more memory."""
_MOST_STOOD: Final = 40
"""Changes of a row that are kept: of a dozen attempts."""


class WorkTable:
    """The work that is open, and the last that ended.

    Attributes:
        rows: by id; those that ended in the order in which they did.
    """

    def __init__(self) -> None:
        self.rows: dict[int, WorkRow] = {}
        self._ended: dict[int, None] = {}
        self._failed: dict[int, None] = {}
        self._cancelled: dict[int, None] = {}
        self._running: dict[int, None] = {}
        self._waiting: dict[str, list[tuple[int, int]]] = {}
        self._holders: dict[records.WorkPlace, int] = {}
        self._below: dict[records.WorkPlace, dict[int, int]] = {}

    def running(self) -> list[WorkRow]:
        """What is being done."""
        return [self.rows[each] for each in self._running]

    def failed(self) -> list[WorkRow]:
        """What has failed and still stands so, the latest last."""
        return [self.rows[each] for each in self._failed]

    def cancelled(self) -> list[WorkRow]:
        """What nobody was to do, of the last that ended."""
        return [self.rows[each] for each in self._cancelled]

    def waiting(self, kind: str) -> int:
        """How much of a kind waits."""
        return len(self._waiting.get(kind, ()))

    def open(self) -> Iterator[WorkRow]:
        """What waits or runs."""
        return (self.rows[each] for each in dict.fromkeys(self._holders.values()))

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
        self._failed.pop(row.id, None)
        self._cancelled.pop(row.id, None)
        self.rows[row.id] = row
        if row.state in OPEN_WORK:
            self._hold(row)
            return
        ended = self._failed if row.state is WorkState.FAILED else self._ended
        ended[row.id] = None
        if row.state is WorkState.CANCELLED:
            self._cancelled[row.id] = None
        while len(ended) > KEPT_WORK:
            gone = next(iter(ended))
            del ended[gone], self.rows[gone]
            self._cancelled.pop(gone, None)

    def _hold(self, row: WorkRow) -> None:
        for place in row.scope:
            self._holders[place] = row.id
            for part in parts_of(place):
                below = self._below.setdefault(part, {})
                below[row.id] = below.get(row.id, 0) + 1
        if row.state is WorkState.PENDING:
            insort(self._waiting.setdefault(row.kind, []), (-row.priority, row.id))
        else:
            self._running[row.id] = None

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
        if row.state is WorkState.RUNNING:
            del self._running[row.id]
            return
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
        row = self.rows[op.id]
        self.restore(
            msgspec.structs.replace(
                row,
                state=WorkState.RUNNING,
                attempt=op.attempt,
                executor=op.executor,
                reason="",
                changed=ts,
                stood=_stood(row),
            )
        )

    def _work_ended(self, op: records.WorkEnded, ts: int) -> None:
        row = self.rows[op.id]
        state = WorkState.PENDING if op.end == "again" else WorkState(op.end)
        self.restore(
            msgspec.structs.replace(
                row, state=state, reason=op.reason, changed=ts, stood=_stood(row)
            )
        )


def _stood(row: WorkRow) -> tuple[WorkStood, ...]:
    now = WorkStood(
        changed=row.changed,
        state=row.state,
        attempt=row.attempt,
        executor=row.executor,
        reason=row.reason,
    )
    return (*row.stood[1 - _MOST_STOOD :], now)


def row_at(row: WorkRow, ts: int) -> WorkRow | None:
    """A row as it was at a commit; None if it was not there.

    Raises:
        LookupError: it has changed so often since that nothing is left that could tell.
    """
    if row.created > ts:
        return None
    if row.changed <= ts:
        return row
    for stood in reversed(row.stood):
        if stood.changed <= ts:
            return msgspec.structs.replace(row, **msgspec.structs.asdict(stood), stood=())
    raise LookupError(row.id)


def parts_of(place: records.WorkPlace) -> set[records.WorkPlace]:
    """A place and those that it lies in."""
    group, partition, _ = msgspec.structs.astuple(place)
    return {records.WorkPlace(group), records.WorkPlace(group, partition), place}
