"""How a task begins: what was before it is settled, and an epoch keeps clones of the sender out.

In this order: what is committed is finished, what has no end is dropped, the task is on the disk,
then the epoch of its start is committed. Cut off anywhere, the same start can be made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import crash
from common.errors import BusyError, GoneError, ProtocolError
from common.names import is_task_id
from common.wire import TaskAnswer, TaskState
from receiver.load.folder.current_task import TaskRecord, start_task
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.transfer import epochs
from receiver.transfer.begun.look_numbers import latest_look
from receiver.transfer.intake import Intake, check_sender

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.wire import (
        StartRequest,
    )
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import SenderRow
    from receiver.principal import Principal
    from receiver.transfer.acknowledging import Acknowledging
    from receiver.transfer.begun.task_answers import TaskAnswers

__all__ = ["TaskStarts"]

_LOAD_PAUSE = 2.0


class TaskStarts:
    """Starts and resumes tasks; safe from any thread, by the lock of the sender's folder."""

    def __init__(
        self,
        engine: Engine,
        load: LoadService,
        intake: Intake,
        answers: TaskAnswers,
        acknowledging: Acknowledging,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._load = load
        self._intake = intake
        self._answers = answers
        self._acknowledging = acknowledging
        self._clock = clock

    def start(self, who: Principal, sender: str, task: str, request: StartRequest) -> TaskAnswer:
        """Start a task, or resume it; of one that is done, its outcome.

        Raises:
            BusyError: an earlier task of this sender is being loaded, or too few storage nodes are
                there to have what it brings.
            CloneError: two machines speak under this uuid.
            GoneError: the request is meant for another engine; check first.
            ProtocolError: it tells of a look that cannot have been.
        """
        if not is_task_id(task):
            raise ProtocolError(f"{task[:60]!a} is no task id (32 lower-case hex digits)")
        if request.engine != self._engine.uuid:
            raise GoneError(
                f"this receiver is engine {self._engine.uuid}, not {request.engine[:40]!a}; "
                "check first, and plan afresh"
            )
        check_sender(who, sender)
        if request.look and request.look >= latest_look(self._engine):
            raise ProtocolError(f"look {request.look} cannot have been: it is ahead of the time")
        early = self._early(sender, task, request.epoch)
        if early is not None:
            return early
        self._acknowledging.must_take()
        folder = self._intake.folder(who, sender)
        with folder.lock, self._load.noting_obstacles(folder.uuid, folder.root):
            early = self._early(sender, task, request.epoch)
            if early is not None:
                return early
            step = self._step(sender, task, request.epoch)
            self._make_way(folder, task)
            if folder.task is None:
                self._begin(who, folder, task, request)
            else:
                folder.task.judge_by(who.scope, who.token_id, request.propagate, request.look)
            if step.fresh:
                self._set_epoch(sender, step, task)
            crash.point("tasks.started")
            staged = folder.schema.staged()
            return TaskAnswer(
                task=task, state=TaskState.OPEN, epoch=step.current, schema_staged=staged
            )

    def _early(self, sender: str, task: str, given: str | None) -> TaskAnswer | None:
        """The answer for a task that is done or loading; no lock, as a load holds the folder's.

        The epoch is told only to one who may have it: a copy of the machine learns nothing.

        Raises:
            BusyError: another task of this sender is being loaded.
        """
        with self._engine.reading() as state:
            row = state.senders.get(sender)
            done = state.task_table.get(sender, task)
        started = row is not None and row.epoch_task == task and given in (row.epoch, row.previous)
        epoch = row.epoch if row is not None and started else None
        if done is not None:
            return self._answers.outcome(done, epoch)
        if (untold := self._acknowledging.untold(sender)) is not None:
            raise BusyError(
                f"task {untold} is loaded, and not in the object store yet", retry_after=_LOAD_PAUSE
            )
        folder = self._load.folders.find(sender)
        current = folder.task if folder is not None else None
        if current is None or not current.loading or self._answers.is_done(sender, current.id):
            return None
        if current.id == task:
            return TaskAnswer(task=task, state=TaskState.LOADING, epoch=epoch)
        why = f" ({current.trouble})" if current.trouble else ""
        raise BusyError(f"task {current.id} is being loaded{why}", retry_after=_LOAD_PAUSE)

    def _step(self, sender: str, task: str, given: str | None) -> epochs.Step:
        with self._engine.reading() as state:
            row = state.senders.get(sender)
        return epochs.start(row, given, task)

    def _make_way(self, folder: SenderFolder, task: str) -> None:
        """Recovery before a task: finish what is committed, drop what has no end."""
        current = folder.task
        if current is None:
            return
        if current.loading:
            self._load.settle(folder)
        elif current.id != task or current.half_ended:
            # Of one whose end found no space, the sender may bring other files by now.
            folder.forget_task()
            crash.point("tasks.dropped")

    def _begin(
        self, who: Principal, folder: SenderFolder, task: str, request: StartRequest
    ) -> None:
        record = TaskRecord(
            task=task,
            sender=folder.uuid,
            propagate=request.propagate,
            scope=list(who.scope),
            token=who.token_id,
            look=request.look,
            anew=request.anew and request.look > 0 and self._is_restored(folder.uuid),
            started=self._clock(),
        )
        start_task(folder, record)
        self._load.space.forget_shortage(folder.uuid)  # its plan will tell

    def _is_restored(self, sender: str) -> bool:
        """Whether an operator said so, and its list has not begun anew since."""
        with self._engine.reading() as state:
            row = state.senders.get(sender)
        return row is not None and row.restored > 0

    def _set_epoch(self, sender: str, step: epochs.Step, task: str) -> None:
        """Commit the epochs; the folder's lock keeps other starts away."""
        made = records.EpochSet(sender, step.current, step.previous, task, confirmed=False)
        self._engine.commit([made])

    def confirm(self, row: SenderRow) -> None:
        """The new epoch has arrived: the one before is good for nothing any more."""
        while not row.confirmed:
            used = records.EpochSet(
                row.uuid, row.epoch, row.previous, row.epoch_task, confirmed=True
            )
            try:
                self._engine.commit([used], [Guard("sender", row.uuid, row.changed)])
            except GuardFailed:
                epoch = row.epoch
                with self._engine.reading() as state:
                    row = state.senders[row.uuid]
                epochs.must_be_current(row, epoch)
            else:
                return
