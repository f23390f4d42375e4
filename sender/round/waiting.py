"""Waiting for a load: asked for with the task's id, never raced by sending anything again."""

from __future__ import annotations

import time
from collections.abc import Callable

from common import wire
from common.errors import BusyError, StoppedError, Transient, UnreachableError
from common.wire import TaskState
from sender.send.remote import Remote

__all__ = ["wait_until_loaded"]

_AT_LEAST = 0.5
"""Seconds between two questions, for receivers that do not wait with their answer."""


def wait_until_loaded(
    remote: Remote, task: str, *, clock: Callable[[], float] = time.monotonic
) -> wire.TaskAnswer:
    """Ask for the outcome of a task until it is there.

    A load may take its time; a receiver that does not answer gets the tries of any other call. If
    it was restarted, it goes on loading by itself, and the next round learns what came of it.

    Raises:
        BusyError: not loaded within `load_timeout`.
        StoppedError: told to stop.
        TsferryError: the receiver knows no such task, or refuses.
    """
    transfer = remote.config.transfer
    deadline = clock() + transfer.load_timeout
    failures = 0
    while True:
        if remote.stop.is_set():
            raise StoppedError("told to stop while the receiver loads")
        asked = clock()
        try:
            answer = remote.client.task(task, transfer.load_poll)
        except Transient as error:
            failures += 1
            if failures > transfer.max_retries or clock() > deadline:
                raise
            pause = remote.tries.backoff.pause(failures, error.retry_after)
            remote.tries.tell(task, error, pause)
        else:
            failures = 0
            if answer.state is TaskState.DONE:
                return answer
            if answer.state is TaskState.OPEN:
                raise UnreachableError(
                    f"{remote.name}: lost the end of task {task}; it comes again"
                )
            pause = max(0.0, _AT_LEAST - (clock() - asked))
        if clock() > deadline:
            raise BusyError(
                f"{remote.name}: task {task} is not loaded after {transfer.load_timeout:g} s; the "
                "next round asks for it again"
            )
        if remote.stop.wait(pause):
            raise StoppedError("told to stop while the receiver loads")
