"""Who adds background work, who does it, and the leases of those who do.

    work = WorkQueue(engine)
    work.add("merge", b"", [WorkPlace("root.sg", "2954")])
    row = work.take("this machine", ["merge"])
    with work.held(row):                     # renews now and then
        work.commit(row, ops=part)           # of a result that comes in pieces
        work.end(row, "done", ops=result)    # all of it in one commit, or ConflictError

Leases are soft: they are kept here, by the monotonic clock, and a restart gives all that runs one
fresh lease. Only attempts are durable, and only they guard
(`receiver.metadata.commit.judging.work_rules`): an executor that comes back when its lease is over
finds that its result is refused.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from common.errors import ConflictError
from receiver.background.lease_keeping import renewing
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.state.work_rows import WorkState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.work_rows import WorkRow

__all__ = ["WorkQueue"]

_LEASE: Final = 60.0
"""Seconds for which an executor need not be heard of."""
_MOST_ATTEMPTS: Final = 5
_UNHEARD: Final = "was not heard of for"
"""Stands in the reason of an attempt that nobody ended, and in none that an executor gives."""


@dataclass(slots=True)
class _Lease:
    attempt: int
    until: float


class WorkQueue:
    """The background work of an engine; may be used from several threads.

    Attributes:
        lease: seconds for which an executor need not be heard of.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        lease: float = _LEASE,
        most_attempts: int = _MOST_ATTEMPTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin; what runs gets a fresh lease.

        Args:
            engine: where the work stands.
            lease: seconds for which an executor need not be heard of.
            most_attempts: after so many that nobody ended, work has failed.
            clock: monotonic, in seconds.
        """
        self.lease = lease
        self._engine = engine
        self._most_attempts = most_attempts
        self._clock = clock
        self._leases: dict[int, _Lease] = {}
        self._lock = threading.Lock()
        self.expire()

    def add(
        self, kind: str, spec: bytes, scope: Sequence[records.WorkPlace], *, priority: int = 0
    ) -> int:
        """Add work; returns its id.

        Args:
            kind: who can do it knows it by this.
            spec: for who does it.
            scope: what it has for itself until it has ended.
            priority: from -128 to 127; the highest is taken first.

        Raises:
            ConflictError: open work has a part of its scope; `extra` names it.
            RefusedCommitError: it is no work.
        """
        return self._engine.commit_with(
            lambda ts: [records.WorkAdded(ts, kind, spec, tuple(scope), priority)]
        )

    def take(self, executor: str, kinds: Collection[str]) -> WorkRow | None:
        """Take what is to be done next, for one lease; None if nothing waits."""
        self.expire()
        while True:
            with self._engine.reading() as state:
                row = state.work_table.first_waiting(kinds)
            if row is None:
                return None
            attempt = row.attempt + 1
            try:
                self._engine.commit([records.WorkTaken(row.id, attempt, executor)])
            except ConflictError:
                continue  # somebody else came first; so it ends, for each time another is done
            taken = self._running(row.id, attempt)
            if taken is not None:
                self._grant(row.id, attempt)
                return taken

    def take_one(self, executor: str, kinds: Collection[str], ident: int) -> WorkRow:
        """Take some work, for one lease, whatever waits before it.

        Raises:
            ConflictError: it does not wait, or is of another kind.
        """
        self.expire()
        with self._engine.reading() as state:
            row = state.work_table.rows.get(ident)
        if row is None or row.kind not in kinds:
            raise ConflictError(f"there is no work {ident} of kind {' or '.join(kinds)}")
        attempt = row.attempt + 1
        self._engine.commit([records.WorkTaken(ident, attempt, executor)])
        taken = self._running(ident, attempt)
        if taken is None:  # cancelled within the moment
            raise _not_its_own(row)
        self._grant(ident, attempt)
        return taken

    def renew(self, row: WorkRow) -> None:
        """Say that it is still being done.

        Raises:
            ConflictError: it is not this attempt's any more.
        """
        self.expire()
        if self._running(row.id, row.attempt) is None:
            raise _not_its_own(row)
        self._grant(row.id, row.attempt)

    @contextmanager
    def held(self, row: WorkRow) -> Iterator[threading.Event]:
        """Renew until the end; what is given is set once it is not this attempt's any more."""
        with renewing(lambda: self.renew(row), self.lease / 3) as lost:
            yield lost

    def commit(self, row: WorkRow, ops: Sequence[records.Op], guards: Sequence[Guard] = ()) -> int:
        """Commit a piece of a result, and go on; returns the commit.

        Args:
            row: as taken.
            ops: the piece.
            guards: of what it was made of.

        Raises:
            ConflictError: it is not this attempt's any more; nothing is true of `ops`.
            TsferryError: `ops` are refused, see `Engine.commit`.
        """
        self._lapse(row)
        mine = Guard("work", str(row.id), row.changed)
        try:
            return self._engine.commit(ops, [mine, *guards])
        except GuardFailed as failed:
            if failed.extra.get("table") != "work":
                raise
            raise _not_its_own(row) from failed

    def end(
        self,
        row: WorkRow,
        end: Literal["done", "failed", "pending"],
        *,
        reason: str = "",
        ops: Sequence[records.Op] = (),
        guards: Sequence[Guard] = (),
    ) -> int:
        """Say what became of an attempt, with what it makes true, in one commit.

        Args:
            row: as taken.
            end: `pending` gives it back, for others to take.
            reason: why.
            ops: its result.
            guards: of what that was made of.

        Returns:
            the commit.

        Raises:
            ConflictError: it is not this attempt's any more; nothing is true of `ops`.
            TsferryError: `ops` are refused, see `Engine.commit`.
        """
        self._lapse(row)
        ended = records.WorkEnded(row.id, row.attempt, end, reason)
        return self._engine.commit([*ops, ended], guards)

    def came_true(self, row: WorkRow) -> bool:
        """Whether an attempt has ended as done, also where its `end` was not answered for.

        Raises:
            ReadOnlyError, UnreachableError: that shows at the next start, or when the remote log
                answers.
        """
        self._engine.settle()
        with self._engine.reading() as state:
            now = state.work_table.rows.get(row.id)
        return now is not None and now.attempt == row.attempt and now.state is WorkState.DONE

    def give_back(self, executor: str) -> int:
        """Have others do what an executor runs that is no more; returns how much that was."""
        with self._engine.reading() as state:
            left = [row for row in state.work_table.running() if row.executor == executor]
        for row in left:
            self.end(row, "pending", reason=f"{executor} was started again")
        return len(left)

    def overdue(self) -> list[WorkRow]:
        """What runs, and nobody was heard of for a lease."""
        with self._engine.reading() as state:
            running = state.work_table.running()
        return [row for row in running if self._is_over(row)]

    def cancel(self, row: WorkRow, reason: str) -> int:
        """Have nobody do it; who does it now commits nothing. Returns the commit.

        What has failed is counted as failed no more by it.

        Raises:
            ConflictError: it has ended, or was taken since the caller saw the row.
        """
        return self._engine.commit([records.WorkEnded(row.id, row.attempt, "cancelled", reason)])

    def retry(self, row: WorkRow) -> int:
        """Have what failed or was cancelled wait again; returns the commit.

        Raises:
            ConflictError: it does not stand so, or open work has a part of its scope.
        """
        return self._engine.commit([records.WorkEnded(row.id, row.attempt, "again")])

    def expire(self) -> int:
        """Have others do what nobody was heard of for a lease; returns of how much that was so."""
        with self._engine.reading() as state:
            running = state.work_table.running()
        return sum(map(self._lapse, running))

    def _lapse(self, row: WorkRow) -> bool:
        """End the attempt if its lease is over."""
        if row.state is not WorkState.RUNNING or not self._is_over(row):
            return False
        again = _unheard(row) + 1 < self._most_attempts
        reason = f"{row.executor} {_UNHEARD} {self.lease:g} s (attempt {row.attempt})"
        end: records.WorkEnd = "pending" if again else "failed"
        try:
            self._engine.commit([records.WorkEnded(row.id, row.attempt, end, reason)])
        except ConflictError:
            return False  # it ended meanwhile
        return True

    def _is_over(self, row: WorkRow) -> bool:
        now = self._clock()
        with self._lock:
            held = self._leases.get(row.id)
            if held is None or held.attempt < row.attempt:  # of before a restart
                held = self._leases[row.id] = _Lease(row.attempt, now + self.lease)
            return held.attempt == row.attempt and now >= held.until

    def _grant(self, ident: int, attempt: int) -> None:
        now = self._clock()
        with self._engine.reading() as state:
            open_ids = {each.id for each in state.work_table.running()}
        with self._lock:
            self._leases = {key: each for key, each in self._leases.items() if key in open_ids}
            self._leases[ident] = _Lease(attempt, now + self.lease)

    def _running(self, ident: int, attempt: int) -> WorkRow | None:
        with self._engine.reading() as state:
            row = state.work_table.rows.get(ident)
        if row is None or row.state is not WorkState.RUNNING or row.attempt != attempt:
            return None
        return row


def _unheard(row: WorkRow) -> int:
    """Attempts that nobody ended, since it was added or tried again; not those given back."""
    count = 0
    for stood in reversed(row.stood):
        if stood.state in {WorkState.FAILED, WorkState.CANCELLED}:
            break
        count += stood.state is WorkState.PENDING and f" {_UNHEARD} " in stood.reason
    return count


def _not_its_own(row: WorkRow) -> ConflictError:
    return ConflictError(
        f"work {row.id} is no more that of attempt {row.attempt}",
        extra={"work": row.id, "attempt": row.attempt},
    )
