"""A command waits for a work of the server, shows how far it is, and has what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from common.console.progress_bar import WorkProgress
from common.console.progress_line import show_step
from common.console.step_progress import StepProgress
from common.wire import Struct
from receiver.operator.client import OperatorClient, segment
from receiver.operator.views.step_now import StepNow

__all__ = ["awaited"]

_WAIT: Final = 1
"""Seconds that the server waits with an answer: a bar moves so often."""


class _Answer(Protocol):
    @property
    def done(self) -> bool: ...
    @property
    def progress(self) -> StepNow | None: ...


A = TypeVar("A", bound=_Answer)


def awaited(
    server: OperatorClient,
    path: str,
    task: str,
    request: Struct | None,
    kind: type[A],
    progress: WorkProgress,
    heard: Callable[[A], None] = lambda _: None,
) -> A:
    """Begin a work, and wait for its end.

    Args:
        server: that does it.
        path: of the call that begins it; below it the task's answer is.
        task: id of the work.
        request: that begins it; None: it was begun before.
        kind: of the answer.
        progress: shows how far it is, and has no row of it in the end.
        heard: hears each answer that is not the last one, before it is shown.

    Raises:
        TsferryError: as the server refused it.
    """
    wait = {"wait": _WAIT}
    try:
        below = f"{path}/{segment(task)}"
        if request is None:
            answer = server.ask("GET", below, kind, query=wait)
        else:
            answer = server.ask("POST", path, kind, query=wait, body=request)
        while not answer.done:
            heard(answer)
            if answer.progress is not None:
                show_step(progress, _moment(answer.progress))
            answer = server.ask("GET", below, kind, query=wait)
        return answer
    finally:
        progress.clear()


def _moment(now: StepNow) -> StepProgress:
    return StepProgress(now.step, now.done, now.total, now.bytes, now.total_bytes)
