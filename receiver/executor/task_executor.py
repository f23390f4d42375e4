"""Takes background tasks, one after another, and does them.

Nothing of a task is true before the receiver has committed it, and it does so only while the task
is this attempt's: whoever sleeps through its lease is refused whatever it says, and begins anew
with another task.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Protocol

from common.console.step_progress import ToldProgress, untold
from common.errors import ConflictError, NoSpaceError, Transient, TsferryError
from receiver.background.lease_keeping import renewing
from receiver.background.remote_work import AskedAnewError
from receiver.executor.executor_files import ExecutorFiles
from receiver.executor.task_asked import TaskAsked
from receiver.executor.work_kinds import WORK_KINDS
from receiver.executor.worker_calls import WorkerCalls, executor_name
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.storage.reading.receiver_reads import ReceiverReads
from receiver.storage.reading.stored_place import ReceiverAddress

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from common.network.client_certificate import ClientCertificate
    from receiver.executor.work_kinds import Answerer
    from receiver.executor.worker_calls import AskedQuestion
    from receiver.operator.views.background_views import TaskTaken

__all__ = ["Executor", "ExecutorCalls", "executor_of"]

log = logging.getLogger(__name__)

_PAUSE: Final = 2.0
"""Seconds after which what failed for a moment is tried again."""
_LONGEST_PAUSE: Final = 60.0
"""Of tasks that are given back one after another: each costs the receiver two commits."""
_MOST_COUNTED: Final = 16


class ExecutorCalls(Protocol):
    """What an executor says to a receiver; see `WorkerCalls`."""

    def take(self, kinds: Sequence[str], task: str = "") -> TaskTaken | None:
        """Take a task, or what is to be done next."""
        ...

    def renew(self, task: TaskTaken) -> None:
        """Say that it is still being done."""
        ...

    def question(self, task: TaskTaken) -> AskedQuestion | None:
        """What is to be answered next; None: the task has ended."""
        ...

    def put(self, task: TaskTaken, tag: str, number: int, offset: int, content: bytes) -> None:
        """Send a block of a file that goes with an answer."""
        ...

    def answer(self, task: TaskTaken, tag: str, content: bytes) -> None:
        """Answer a question."""
        ...

    def end(self, task: TaskTaken, end: Literal["failed", "pending"], reason: str) -> None:
        """Say that it failed, or give it back."""
        ...


class Executor:
    """Does the tasks of a receiver; for one thread.

    Attributes:
        given_back: how many of the last tasks could not be done now, one after another.
    """

    def __init__(
        self,
        calls: ExecutorCalls,
        files: ExecutorFiles,
        *,
        wait: Callable[[float], object],
        kinds: Mapping[str, Answerer] = WORK_KINDS,
        memory: int = 1 << 30,
        told: ToldProgress = untold,
    ) -> None:
        """Begin with nothing taken.

        Args:
            calls: to the receiver.
            files: of it.
            wait: waits for so many seconds.
            kinds: what it can do.
            memory: bytes that a process beside this one may take.
            told: hears how far a task is.
        """
        self._calls = calls
        self._files = files
        self._wait = wait
        self._kinds = kinds
        self._memory = memory
        self._told = told
        self.given_back = 0

    def run_once(self, kinds: Sequence[str], task: str = "") -> TaskTaken | None:
        """Do one task, if one waits; returns which.

        Args:
            kinds: that are taken.
            task: this one; what is to be done next, if left out.

        Raises:
            TsferryError: the receiver gives none to this one.
        """
        taken = self._calls.take(kinds, task)
        if taken is not None:
            self._run(taken)
        return taken

    def _run(self, task: TaskTaken) -> None:
        log.info("a task is begun", extra={"task": task.task, "kind": task.kind})
        try:
            with renewing(lambda: self._calls.renew(task), task.lease / 3) as lost:
                self._do(task, lost)
            self.given_back = 0
        except ConflictError as error:
            log.warning("the task is no more ours", extra={"why": error.message})
        except Transient as error:
            self._end(task, error.message, failed=False)
            self._wait(min(_PAUSE * 2**self.given_back, _LONGEST_PAUSE))
            self.given_back = min(self.given_back + 1, _MOST_COUNTED)
        except Exception as error:
            log.exception("a task failed")
            self._end(task, f"{type(error).__name__}: {error}", failed=True)
        except BaseException:
            self._end(task, "its executor was stopped", failed=False)
            raise

    def _do(self, task: TaskTaken, lost: threading.Event) -> None:
        """Answer all that is asked, as long as nobody else has the task."""
        answered = 0
        while not lost.is_set():
            question = self._calls.question(task)
            if question is None:
                log.info("a task is over", extra={"task": task.task, "answers": answered})
                return
            asked = TaskAsked(
                question.content,
                self._files,
                self._memory,
                lost.is_set,
                partial(self._put, task, question.tag, lost),
                self._told,
            )
            try:
                content = self._kinds[task.kind](asked)
            except AskedAnewError:  # the receiver was started again
                continue
            if not lost.is_set():
                self._answer(task, question.tag, content)
                answered += 1

    def _put(
        self,
        task: TaskTaken,
        tag: str,
        lost: threading.Event,
        number: int,
        offset: int,
        content: bytes,
    ) -> None:
        """Send a block, as often as it takes."""
        while not lost.is_set():
            try:
                self._calls.put(task, tag, number, offset, content)
            except (AskedAnewError, NoSpaceError):
                raise
            except Transient as error:
                log.info("a block is sent again", extra={"why": error.message})
                self._wait(error.retry_after or _PAUSE)
            else:
                return
        raise ConflictError(f"task {task.task} is somebody else's by now")

    def _answer(self, task: TaskTaken, tag: str, content: bytes) -> None:
        """Answer; what was answered before its reply was lost is not asked any more."""
        while True:
            try:
                self._calls.answer(task, tag, content)
            except AskedAnewError:
                return
            except Transient as error:
                log.info("an answer is said again", extra={"why": error.message})
                self._wait(error.retry_after or _PAUSE)
            else:
                return

    def _end(self, task: TaskTaken, reason: str, *, failed: bool) -> None:
        with suppress(TsferryError):  # when its lease is over others have it
            self._calls.end(task, "failed" if failed else "pending", reason)


def executor_of(
    url: str,
    token: str | None,
    ca_cert: str | None,
    data_dirs: Sequence[Path],
    memory: int,
    *,
    store: bool = False,
    certificate: ClientCertificate | None = None,
) -> Executor:
    """An executor for the receiver at a URL.

    Args:
        url: of the receiver.
        token: of a worker.
        ca_cert: PEM file that the receiver is checked against.
        data_dirs: of the receiver, that this machine sees.
        memory: bytes that a process beside this one may take.
        store: whether files are read from the receiver's object store, where that has them.
        certificate: that the receiver is shown, in the place of a token.

    Raises:
        UsageError: the token would travel where others can read it.
    """
    calls = ReaderCalls(url, token=token, ca_cert=ca_cert, certificate=certificate, what="--from")
    address = ReceiverAddress(url, ca_cert)
    reads = ReceiverReads(address, token, certificate=certificate)
    files = ExecutorFiles(reads, data_dirs)
    if store:
        from receiver.executor.stored_inputs import StoredInputs  # libraries of stores

        stored = StoredInputs(calls, reads, address)
        files = ExecutorFiles(stored, data_dirs, expect=stored.expect)
    return Executor(WorkerCalls(calls, executor_name()), files, wait=time.sleep, memory=memory)
