"""Work that executors on other machines do: they are asked questions, and what they answer is done.

What a question is, and what its answer makes true, is said by the kind of the work. One attempt is
asked one question after another; nothing of that is kept but in memory, so after a restart the
question is made anew, of what is not committed yet.
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from common.errors import ConflictError, Transient, UsageError
from receiver.metadata.state.table_rows import WorkState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import WorkRow
    from receiver.work_queue import WorkQueue

__all__ = ["AskedAnewError", "RemoteAttempt", "RemoteWork", "WorkQuestion"]


class AskedAnewError(Transient):
    """The answer is not to the question that stands now: ask for that."""

    slug = "asked-anew"
    http_status = 409


class RemoteAttempt(Protocol):
    """One attempt at some work by an executor elsewhere."""

    def question(self) -> bytes | None:
        """What is to be answered next, the same until it is; None: all is done."""

    def answer(self, content: bytes) -> None:
        """Make an answer true, if the work is still this attempt's.

        Raises:
            ConflictError: it is not.
            ProtocolError: it is no answer to the question.
        """


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


class RemoteWork:
    """What executors elsewhere say and are told; any thread may call."""

    def __init__(
        self,
        engine: Engine,
        queue: WorkQueue,
        kinds: Mapping[str, Callable[[WorkRow], RemoteAttempt]],
    ) -> None:
        """Begin.

        Args:
            engine: that has the work.
            queue: of it.
            kinds: what can be done elsewhere, and how an attempt at it begins.
        """
        self._engine = engine
        self._queue = queue
        self._kinds = kinds
        self._lock = threading.Lock()
        self._asked: dict[int, _Asked] = {}

    @property
    def lease(self) -> float:
        """Seconds for which an executor need not be heard of."""
        return self._queue.lease

    def take(self, executor: str, kinds: Collection[str]) -> WorkRow | None:
        """Take what is to be done next; None if nothing waits.

        Args:
            executor: who takes it; by the same name it renews, answers and ends.
            kinds: that it can do.

        Raises:
            UsageError: one of them is not done elsewhere.
        """
        unknown = [each for each in kinds if each not in self._kinds]
        if unknown or not kinds:
            raise UsageError(
                f"kinds: expected {', '.join(sorted(self._kinds))}, not {', '.join(unknown)[:100]}"
            )
        self._forget()
        return self._queue.take(executor, kinds)

    def renew(self, task: int, attempt: int, executor: str) -> None:
        """Say that it is still being done; raises `ConflictError` as `WorkQueue.renew`."""
        self._queue.renew(self._own(task, attempt, executor))

    def question(self, task: int, attempt: int, executor: str) -> WorkQuestion | None:
        """What is to be answered next; None: all was, and the work is done.

        Raises:
            ConflictError: it is not this attempt's any more.
        """
        asked = self._begun(self._own(task, attempt, executor))
        with asked.lock:
            content = asked.attempt.question()
            if content is not None:
                return WorkQuestion(asked.tag, content)
            self._queue.end(asked.row, "done")
        self._forget()
        return None

    def answer(self, task: int, attempt: int, executor: str, tag: str, content: bytes) -> None:
        """Make an answer true.

        Raises:
            AskedAnewError: it is to another question than the one that stands now.
            ConflictError: the work is not this attempt's any more.
            ProtocolError: it is no answer to the question.
        """
        asked = self._begun(self._own(task, attempt, executor))
        with asked.lock:
            if tag != asked.tag:
                raise AskedAnewError("the question is another one now: ask for it")
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
        self._queue.end(self._own(task, attempt, executor), end, reason=reason)
        self._forget()

    def _own(self, task: int, attempt: int, executor: str) -> WorkRow:
        with self._engine.reading() as state:
            row = state.work_table.rows.get(task)
        standing = None if row is None else (row.state, row.attempt, row.executor)
        if row is None or standing != (WorkState.RUNNING, attempt, executor):
            raise ConflictError(
                f"task {task} is no more that of attempt {attempt} by {executor}",
                extra={"work": task, "attempt": attempt},
            )
        return row

    def _begun(self, row: WorkRow) -> _Asked:
        with self._lock:
            asked = self._asked.get(row.id)
            if asked is None or asked.row.attempt != row.attempt:
                asked = self._asked[row.id] = _Asked(row, self._kinds[row.kind](row))
            return asked

    def _forget(self) -> None:
        """Let go of the questions of attempts that are over."""
        with self._engine.reading() as state:
            running = {(row.id, row.attempt) for row in state.work_table.running()}
        with self._lock:
            self._asked = {
                each: asked
                for each, asked in self._asked.items()
                if (each, asked.row.attempt) in running
            }
