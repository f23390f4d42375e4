"""Takes background tasks, one after another, and does them.

Nothing of a task is true before the receiver has committed it, and it does so only while the task
is this attempt's: whoever sleeps through its lease is refused whatever it says, and begins anew
with another task.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from common.errors import ConflictError, Transient, TsferryError
from receiver.executor.work_kinds import WORK_KINDS
from receiver.lease_keeping import renewing
from receiver.remote_work import AskedAnewError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from receiver.executor.work_kinds import Answerer
    from receiver.executor.worker_calls import WorkerCalls
    from receiver.operator.background_views import TaskTaken
    from receiver.storage.reading.receiver_reads import ReceiverReads

__all__ = ["Executor"]

log = logging.getLogger(__name__)

_PAUSE: Final = 2.0
"""Seconds after which what failed for a moment is tried again."""
_LONGEST_PAUSE: Final = 60.0
"""Of tasks that are given back one after another: each costs the receiver two commits."""


class Executor:
    """Does the tasks of a receiver; for one thread."""

    def __init__(
        self,
        calls: WorkerCalls,
        reads: ReceiverReads,
        *,
        wait: Callable[[float], object],
        kinds: Mapping[str, Answerer] = WORK_KINDS,
    ) -> None:
        """Begin with nothing taken.

        Args:
            calls: to the receiver.
            reads: of its files.
            wait: waits for so many seconds.
            kinds: what it can do.
        """
        self._calls = calls
        self._reads = reads
        self._wait = wait
        self._kinds = kinds
        self._pause = _PAUSE

    def run_once(self, kinds: Sequence[str]) -> bool:
        """Do one task, if one waits; returns whether there was one.

        Raises:
            TsferryError: the receiver gives none to this one.
        """
        task = self._calls.take(kinds)
        if task is None:
            return False
        log.info("a task is begun", extra={"task": task.task, "kind": task.kind})
        try:
            with renewing(lambda: self._calls.renew(task), task.lease / 3) as lost:
                self._do(task, lost)
            self._pause = _PAUSE
        except ConflictError as error:
            log.warning("the task is no more ours", extra={"why": error.message})
        except Transient as error:
            self._end(task, error.message, failed=False)
            self._wait(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        except Exception as error:
            log.exception("a task failed")
            self._end(task, f"{type(error).__name__}: {error}", failed=True)
        except BaseException:
            self._end(task, "its executor was stopped", failed=False)
            raise
        return True

    def _do(self, task: TaskTaken, lost: threading.Event) -> None:
        """Answer all that is asked, as long as nobody else has the task."""
        answered = 0
        while not lost.is_set():
            question = self._calls.question(task)
            if question is None:
                log.info("a task is done", extra={"task": task.task, "answers": answered})
                return
            content = self._kinds[task.kind](question.content, self._reads)
            if not lost.is_set():
                self._answer(task, question.tag, content)
                answered += 1

    def _answer(self, task: TaskTaken, tag: str, content: bytes) -> None:
        """Answer; what was answered before its reply was lost is not asked any more."""
        while True:
            try:
                self._calls.answer(task, tag, content)
            except AskedAnewError:
                return
            except Transient as error:
                log.info("an answer is said again", extra={"why": error.message})
                self._wait(_PAUSE)
            else:
                return

    def _end(self, task: TaskTaken, reason: str, *, failed: bool) -> None:
        with suppress(TsferryError):  # when its lease is over others have it
            self._calls.end(task, "failed" if failed else "pending", reason)
