"""The calls of an executor to the receiver whose background tasks it does."""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from common import __version__, wire
from common.digests import xxh3_64
from common.errors import ProtocolError
from receiver.operator.views.background_views import TaskEndRequest, TaskTaken, TaskTakeRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


__all__ = ["AskedQuestion", "AsksServer", "WorkerCalls", "executor_name"]


class HasAnswered(Protocol):
    """What a server answered."""

    @property
    def status(self) -> int:
        """Of HTTP."""

    @property
    def headers(self) -> Mapping[str, str]:
        """As they came."""

    @property
    def body(self) -> bytes:
        """All of it."""


class AsksServer(Protocol):
    """Makes calls to a server; see `ReaderCalls.ask`."""

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None],
        headers: Mapping[str, str],
        body: bytes,
    ) -> HasAnswered:
        """An answer."""
        ...


_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"


class AskedQuestion(NamedTuple):
    """What is to be answered.

    Attributes:
        tag: goes with the answer.
        content: as the kind of the task has it.
    """

    tag: str
    content: bytes


def executor_name() -> str:
    """A name for an executor of this process: no other one has it, and people see where it is."""
    return f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(3)}"


class WorkerCalls:
    """Makes them, under one name; any thread may call.

    All raise `UnreachableError` where nobody answers, and else as the receiver refused.
    """

    def __init__(self, calls: AsksServer, executor: str) -> None:
        """Ask nothing yet.

        Args:
            calls: to the receiver, with a worker's token or an operator's.
            executor: the name of this one.
        """
        self._calls = calls
        self._executor = executor

    def take(self, kinds: Sequence[str], task: str = "") -> TaskTaken | None:
        """Take a task, or what is to be done next; None if nothing waits.

        Raises:
            ConflictError: the task does not wait.
            OtherVersionError: the receiver is of another version.
        """
        request = TaskTakeRequest(
            executor=self._executor, kinds=list(kinds), version=__version__, task=task
        )
        answer = self._say("POST", "/v1/tasks/take", {}, wire.encode(request), _JSON)
        if answer.status == 204:
            return None
        return wire.decode(answer.body, TaskTaken, "answer to /v1/tasks/take")

    def renew(self, task: TaskTaken) -> None:
        """Say that it is still being done."""
        self._say("POST", f"/v1/tasks/{task.task}/renew", self._mine(task))

    def question(self, task: TaskTaken) -> AskedQuestion | None:
        """What is to be answered next; None: the task is done."""
        path = f"/v1/tasks/{task.task}/question"
        answer = self._say("GET", path, self._mine(task))
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
        self._say("POST", f"/v1/tasks/{task.task}/answer", query, content, _BYTES)

    def put(self, task: TaskTaken, tag: str, number: int, offset: int, content: bytes) -> None:
        """Send a block of a file that goes with an answer.

        Raises:
            AskedAnewError: another question stands now.
            ConflictError: somebody else has the task.
        """
        query = {**self._mine(task), "tag": tag, "offset": offset, "xxh3": xxh3_64(content)}
        self._say("PUT", f"/v1/tasks/{task.task}/outputs/{number}", query, content, _BYTES)

    def end(self, task: TaskTaken, end: Literal["failed", "pending"], reason: str) -> None:
        """Say that it failed, or give it back."""
        body = wire.encode(TaskEndRequest(end=end, reason=reason))
        self._say("POST", f"/v1/tasks/{task.task}/end", self._mine(task), body, _JSON)

    def _say(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None],
        body: bytes = b"",
        media: str = "",
    ) -> HasAnswered:
        headers = {"Content-Type": media} if body else {}
        return self._calls.ask(method, path, query, headers, body)

    def _mine(self, task: TaskTaken) -> dict[str, str | int | None]:
        return {"executor": self._executor, "attempt": task.attempt}
