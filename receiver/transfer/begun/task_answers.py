"""Where a task is, and what became of it: asked by its id, as often as its sender likes.

Open, loading or done; what is done is told only once it may be (`receiver.transfer.acknowledging`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import NotFoundError
from common.wire import Outcome, TaskAnswer, TaskState
from receiver.load.deciding.told_deletions.delete_guard import held_records_of
from receiver.transfer.begun.schema_blocks import position_of

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import TaskRow
    from receiver.transfer.acknowledging import Acknowledging

__all__ = ["TaskAnswers"]


class TaskAnswers:
    """Answers for tasks; none takes the lock of a sender's folder, which a load holds for long."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        load: LoadService,
        acknowledging: Acknowledging,
    ) -> None:
        self._config = config
        self._engine = engine
        self._load = load
        self._acknowledging = acknowledging

    def waited_for(self, sender: str, task: str, wait: float) -> TaskAnswer:
        """Where a task is; waits for its outcome, for `wait` seconds at most.

        Raises:
            NotFoundError: no such task is open, loading or committed here.
        """
        here = self._here(sender, task)
        if here is not None and here.state is TaskState.LOADING and wait > 0:
            self._load.loader.wait(lambda: self._is_told(sender, task), wait)
            here = self._here(sender, task)
        if here is None:
            raise NotFoundError(f"task {task[:40]!a} is not known here")
        return here

    def known(self, sender: str, task: str) -> TaskAnswer | None:
        """The answer for a task that is loading or done."""
        here = self._here(sender, task)
        return here if here is None or here.state is not TaskState.OPEN else None

    def _here(self, sender: str, task: str) -> TaskAnswer | None:
        """The answer for a task that is open, loading or done; without a lock.

        A load commits first, then lets go of its folder's task. Who looks at the table first may
        find the task at neither place, so the folder comes first.
        """
        folder = self._load.folders.find(sender)
        current = folder.task if folder is not None else None
        with self._engine.reading() as state:
            done = state.task_table.get(sender, task)
        if done is not None:
            return self.outcome(done, None)
        if current is None or current.id != task:
            return None
        state_now = TaskState.LOADING if current.loading else TaskState.OPEN
        return TaskAnswer(task=task, state=state_now)

    def is_done(self, sender: str, task: str) -> bool:
        """Whether a task is committed."""
        with self._engine.reading() as state:
            return state.task_table.has(sender, task)

    def _is_told(self, sender: str, task: str) -> bool:
        with self._engine.reading() as state:
            row = state.task_table.get(sender, task)
        return row is not None and self._acknowledging.may_tell(row)

    def outcome(self, row: TaskRow, epoch: str | None) -> TaskAnswer:
        """What is told of one that is committed: it counts as loading until it may be told."""
        if not self._acknowledging.may_tell(row):
            return TaskAnswer(task=row.task, state=TaskState.LOADING, epoch=epoch)
        reveal = self._config.auth.reveal_owner
        with self._engine.reading() as state:
            position = position_of(state.schema_positions.get(row.sender))
            held = held_records_of(state, row.sender)
        return TaskAnswer(
            task=row.task,
            state=TaskState.DONE,
            epoch=epoch,
            commit=row.commit,
            outcomes=[
                Outcome(
                    path=each.path,
                    result=each.result,
                    device=each.device,
                    reason=each.reason,
                    owner=each.owner if reveal else None,
                    hold=each.hold,
                )
                for each in self._acknowledging.outcomes(row)
            ],
            schema_position=position,
            untold=list(row.untold),
            held_records=held,
        )
