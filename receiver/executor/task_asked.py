"""A question of a task, with what an executor has for answering it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.console.step_progress import ToldProgress, untold

if TYPE_CHECKING:
    from receiver.executor.executor_files import ExecutorFiles

__all__ = ["TaskAsked"]


@dataclass(frozen=True, slots=True)
class TaskAsked:
    """What is to be answered.

    Attributes:
        question: as the kind of the task has it (`receiver.background.remote_work`).
        files: of the receiver.
        memory: bytes that a process beside this one may take.
        is_lost: whether the task is somebody else's by now, or the executor is to stop.
        put: sends a block of a file that goes with the answer: its number, the offset, the bytes.
        told: hears how far it is.
    """

    question: bytes
    files: ExecutorFiles
    memory: int
    is_lost: Callable[[], bool]
    put: Callable[[int, int, bytes], None]
    told: ToldProgress = untold
