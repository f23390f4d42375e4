"""What can be done on any machine: by each kind of work, how a question becomes an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from receiver.executor.task_asked import TaskAsked

__all__ = ["WORK_KINDS", "Answerer"]

Answerer = Callable[["TaskAsked"], bytes]
"""Makes the answer of a question (`receiver.background.remote_work`), reading the receiver's files.

Whatever it raises is the reason for which the task fails; of `Transient`, for which it is given
back.
"""


def _prove(task: TaskAsked) -> bytes:
    from receiver.executor.proving_elsewhere import answer_proofs  # decoders take a second

    return answer_proofs(task)


def _merge(task: TaskAsked) -> bytes:
    from receiver.executor.merging_elsewhere import answer_merge

    return answer_merge(task)


WORK_KINDS: Final[Mapping[str, Answerer]] = {"merge": _merge, "prove": _prove}
