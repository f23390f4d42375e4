"""Work that executors on other machines do: they are asked questions, and what they answer is done.

What a question is, which files go with its answer, and what that makes true is said by the kind of
the work. One attempt is asked one question after another; nothing of that is kept but in memory, so
after a restart the question is made anew, of what is not committed yet. What an attempt has sent
goes when it is over, however that came.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from common import __version__
from common.errors import (
    EXIT_UNREACHABLE,
    BusyError,
    ConflictError,
    Permanent,
    Transient,
    UsageError,
)
from receiver.metadata.state.work_rows import WorkState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from receiver.background.work_queue import WorkQueue
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.work_rows import WorkRow

__all__ = [
    "AskedAnewError",
    "OtherVersionError",
    "RemoteAttempt",
    "RemoteKind",
    "RemoteWork",
    "WorkQuestion",
]

_PATIENCE: Final = 20.0
"""Seconds for which a call waits for another about the same attempt."""


class AskedAnewError(Transient):
    """The answer is not to the question that stands now: ask for that."""

    slug = "asked-anew"
    http_status = 409


class OtherVersionError(Permanent):
    """The executor is of another version: what it makes of a question would not be what we mean."""

    slug = "other-version"
    exit_code = EXIT_UNREACHABLE
    http_status = 409


class RemoteAttempt(Protocol):
    """One attempt at some work by an executor elsewhere; its calls come one at a time."""

    def question(self) -> bytes | None:
        """What is to be answered next, the same until it is; None: the work has ended by this."""

    def put(self, number: int, offset: int, content: memoryview, xxh3: str) -> None:
        """Take a block of a file that goes with the answer.

        Raises:
            ProtocolError: none does.
        """

    def answer(self, content: bytes) -> None:
        """Make an answer true, if the work is still this attempt's.

        Raises:
            BusyError: it takes longer; the same answer once more goes on.
            ConflictError: the work is another's by now.
            ProtocolError: it is no answer to the question.
        """

    def end(self, end: Literal["failed", "pending"], reason: str) -> None:
        """Say that it failed, or give it back; raises `ConflictError` as `WorkQueue.end`."""

    def drop(self) -> None:
        """Leave nothing on the disk of what came; the work is another's, or has ended."""


class RemoteKind(NamedTuple):
    """A kind of work that is done elsewhere.

    Attributes:
        begin: an attempt at some work.
        is_open: whether any of it is to be begun now.
    """

    begin: Callable[[WorkRow], RemoteAttempt]
    is_open: Callable[[], bool] = lambda: True


class WorkQuestion(NamedTuple):
    """A question, and the tag that its answer brings back."""

    tag: str
    content: bytes


class _Asked:
    """The questions of an attempt that is under way."""

    def __init__(self, row: WorkRow, attempt: RemoteAttempt) -> None:
        self.row = row
        self.attempt = attempt
        self.tag = secrets.token_hex(8)
        self.lock = threading.Lock()
        self.is_over = False

    def must_be(self, tag: str) -> None:
        """Refuse what is said of another question."""
        if tag != self.tag:
            raise AskedAnewError("the question is another one now: ask for it")

    def drop(self) -> bool:
        """Leave nothing of what came; False while a call about it is under way."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self.is_over = True
            self.attempt.drop()
        finally:
            self.lock.release()
        return True


class RemoteWork:
    """What executors elsewhere say and are told; any thread may call."""

    def __init__(self, engine: Engine, queue: WorkQueue, kinds: Mapping[str, RemoteKind]) -> None:
        """Begin.

        Args:
            engine: that has the work.
            queue: of it.
            kinds: what can be done elsewhere.
        """
        self._engine = engine
        self._queue = queue
        self._kinds = kinds
        self._lock = threading.Lock()
        self._asked: dict[int, _Asked] = {}
        self._over: list[_Asked] = []

    @property
    def lease(self) -> float:
        """Seconds for which an executor need not be heard of."""
        return self._queue.lease

    def take(
        self, executor: str, kinds: Collection[str], version: str, *, task: int | None = None
    ) -> WorkRow | None:
        """Take what is to be done next; None if nothing waits that is to be done now.

        Args:
            executor: who takes it; by the same name it renews, answers and ends.
            kinds: that it can do.
            version: of the executor.
            task: this one, whether or not it is the time for it.

        Raises:
            ConflictError: it does not wait.
            OtherVersionError: the executor is of another version.
            UsageError: one of the kinds is not done elsewhere.
        """
        unknown = [each for each in kinds if each not in self._kinds]
        if unknown or not kinds:
            raise UsageError(
                f"kinds: expected {', '.join(sorted(self._kinds))}, not {', '.join(unknown)[:100]}"
            )
        if version != __version__:
            raise OtherVersionError(
                f"the executor is tsferry {version[:40]}, the receiver {__version__}: "
                "tasks are done by the receiver's own version only"
            )
        self.sweep()
        if task is not None:
            return self._queue.take_one(executor, kinds, task)
        wanted = [each for each in kinds if self._kinds[each].is_open()]
        return self._queue.take(executor, wanted) if wanted else None

    def renew(self, task: int, attempt: int, executor: str) -> None:
        """Say that it is still being done; raises `ConflictError` as `WorkQueue.renew`."""
        self._queue.renew(self._own(task, attempt, executor))

    def question(self, task: int, attempt: int, executor: str) -> WorkQuestion | None:
        """What is to be answered next; None: the work has ended by this attempt.

        Raises:
            ConflictError: it is not this attempt's any more.
        """
        row = self._own(task, attempt, executor, or_in=(WorkState.DONE, WorkState.FAILED))
        if row.state is not WorkState.RUNNING:
            return None
        with self._alone(row) as asked:
            content = asked.attempt.question()
            if content is not None:
                return WorkQuestion(asked.tag, content)
        self.sweep()
        return None

    def put(
        self,
        task: int,
        attempt: int,
        executor: str,
        tag: str,
        number: int,
        offset: int,
        content: memoryview,
        xxh3: str,
    ) -> None:
        """Take a block of a file that goes with an answer; see `RemoteAttempt.put`.

        Raises:
            AskedAnewError: another question stands now: what came for this one is gone.
            ConflictError: the work is not this attempt's any more.
        """
        with self._alone(self._own(task, attempt, executor)) as asked:
            asked.must_be(tag)
            asked.attempt.put(number, offset, content, xxh3)

    def answer(self, task: int, attempt: int, executor: str, tag: str, content: bytes) -> None:
        """Make an answer true.

        Raises:
            AskedAnewError: it is to another question than the one that stands now.
            BusyError: it takes longer; the same answer once more goes on.
            ConflictError: the work is not this attempt's any more.
            ProtocolError: it is no answer to the question.
        """
        row = self._own(task, attempt, executor, or_in=(WorkState.DONE,))
        if row.state is not WorkState.RUNNING:
            raise AskedAnewError("it was answered: ask what comes next")
        with self._alone(row) as asked:
            asked.must_be(tag)
            asked.attempt.answer(content)
            asked.tag = secrets.token_hex(8)

    def end(
        self,
        task: int,
        attempt: int,
        executor: str,
        end: Literal["failed", "pending"],
        reason: str,
    ) -> None:
        """Say that it failed, or give it back; raises `ConflictError` as `WorkQueue.end`."""
        with self._alone(self._own(task, attempt, executor)) as asked:
            asked.attempt.end(end, reason)
        self.sweep()

    def sweep(self, now: float = 0.0) -> None:
        """Take away what executors have sent whose attempts are over, of which nobody hears more.

        Args:
            now: is not looked at: leases are judged by the queue.
        """
        del now
        self._queue.expire()
        with self._engine.reading() as state:
            running = {(row.id, row.attempt) for row in state.work_table.running()}
        with self._lock:
            over = self._over + [
                each
                for each in self._asked.values()
                if (each.row.id, each.row.attempt) not in running
            ]
            self._asked = {each.row.id: each for each in self._asked.values() if each not in over}
            self._over = []
        for each in over:
            if not each.drop():
                with self._lock:
                    self._over.append(each)  # a call about it comes to its end first

    def _own(
        self, task: int, attempt: int, executor: str, *, or_in: Collection[WorkState] = ()
    ) -> WorkRow:
        """The row of what this attempt does, or has brought into one of these states."""
        with self._engine.reading() as state:
            row = state.work_table.rows.get(task)
        standing = None if row is None else (row.attempt, row.executor)
        if (
            row is None
            or standing != (attempt, executor)
            or row.state not in (WorkState.RUNNING, *or_in)
        ):
            raise ConflictError(
                f"task {task} is no more that of attempt {attempt} by {executor}",
                extra={"work": task, "attempt": attempt},
            )
        return row

    @contextmanager
    def _alone(self, row: WorkRow) -> Iterator[_Asked]:
        """The questions of an attempt, for one call at a time.

        Raises:
            BusyError: another call about it is under way.
            ConflictError: the attempt is over.
        """
        asked = self._begun(row)
        if not asked.lock.acquire(timeout=_PATIENCE):
            raise BusyError("another call about this task is under way", retry_after=1.0)
        try:
            if asked.is_over:
                raise ConflictError(f"attempt {row.attempt} at task {row.id} is over")
            yield asked
        finally:
            asked.lock.release()

    def _begun(self, row: WorkRow) -> _Asked:
        with self._lock:
            asked = self._asked.get(row.id)
            if asked is None or asked.row.attempt != row.attempt:
                if asked is not None:
                    self._over.append(asked)
                attempt = self._kinds[row.kind].begin(row)
                asked = self._asked[row.id] = _Asked(row, attempt)
            return asked
