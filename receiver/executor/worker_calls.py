"""The calls of an executor to the receiver whose background tasks it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from common import wire
from common.errors import ProtocolError
from receiver.operator.background_views import TaskEndRequest, TaskTaken, TaskTakeRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.storage.reading.reader_calls import ReaderCalls

__all__ = ["AskedQuestion", "WorkerCalls"]


class AskedQuestion(NamedTuple):
    """What is to be answered.

    Attributes:
        tag: goes with the answer.
        content: as the kind of the task has it.
    """

    tag: str
    content: bytes


class WorkerCalls:
    """Makes them, under one name; any thread may call.

    All raise `UnreachableError` where nobody answers, and else as the receiver refused.
    """

    def __init__(self, calls: ReaderCalls, executor: str) -> None:
        """Ask nothing yet.

        Args:
            calls: to the receiver, with a worker's token.
            executor: the name of this one.
        """
        self._calls = calls
        self._executor = executor

    def take(self, kinds: Sequence[str]) -> TaskTaken | None:
        """Take what is to be done next; None if nothing waits."""
        request = TaskTakeRequest(executor=self._executor, kinds=list(kinds))
        answer = self._calls.post("/v1/tasks/take", {}, wire.encode(request))
        if answer.status == 204:
            return None
        return wire.decode(answer.body, TaskTaken, "answer to /v1/tasks/take")

    def renew(self, task: TaskTaken) -> None:
        """Say that it is still being done."""
        self._calls.post(f"/v1/tasks/{task.task}/renew", self._mine(task), b"")

    def question(self, task: TaskTaken) -> AskedQuestion | None:
        """What is to be answered next; None: the task is done."""
        path = f"/v1/tasks/{task.task}/question"
        answer = self._calls.ask("GET", path, self._mine(task))
        if answer.status == 204:
            return None
        tag = answer.headers.get("Tsferry-Question")
        if not tag:
            raise ProtocolError(f"{path}: a question without its tag")
        return AskedQuestion(tag, answer.body)

    def answer(self, task: TaskTaken, tag: str, content: bytes) -> None:
        """Answer a question.

        Raises:
            AskedAnewError: another one stands now.
            ConflictError: somebody else has the task.
        """
        query = {**self._mine(task), "tag": tag}
        self._calls.post(
            f"/v1/tasks/{task.task}/answer", query, content, "application/octet-stream"
        )

    def end(self, task: TaskTaken, end: Literal["failed", "pending"], reason: str) -> None:
        """Say that it failed, or give it back."""
        body = wire.encode(TaskEndRequest(end=end, reason=reason))
        self._calls.post(f"/v1/tasks/{task.task}/end", self._mine(task), body)

    def _mine(self, task: TaskTaken) -> dict[str, str | int | None]:
        return {"executor": self._executor, "attempt": task.attempt}
