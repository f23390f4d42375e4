"""What the last tasks came to, and which of them goes on: where the receiver has it open still."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from common import crash, wire
from common.errors import NotFoundError
from common.formats.linelog import Phase, SyncState
from common.names import FilePath
from common.wire import History, TaskState
from sender.kept.receiver_state import ReceiverState
from sender.plan.task_plan import TaskPlan
from sender.round.compared_lists.list_remaking import note_held
from sender.round.recovery import RecoveryReport, lacked_by, recover
from sender.round.round_words.round_report import RoundReport
from sender.round.waiting import wait_until_loaded
from sender.send.remote import Remote
from sender.send.sent_bytes.progress import Meter

__all__ = ["LeftOpenTask", "Resuming"]

_log = logging.getLogger(__name__)


@dataclass
class LeftOpenTask:
    """A task that the receiver has open; it goes on under its id if its deletions are the same.

    The receiver has these recorded and does not take them back. If the plan has others by now, a
    new id takes the place of the task; what was verified there stays usable.
    """

    task: str | None = None
    deleted: frozenset[FilePath] = frozenset()

    def take(self, plan: TaskPlan) -> str | None:
        """The id, once, if it fits."""
        if self.task is None or frozenset(plan.deleted_paths) != self.deleted:
            return None
        task, self.task = self.task, None
        return task


class Resuming:
    """The recovery at the beginning of a round, with what its report and its meter hear of it."""

    def __init__(
        self,
        remote: Remote,
        kept: ReceiverState,
        check: wire.CheckAnswer,
        report: RoundReport,
        meter: Meter,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._remote = remote
        self._kept = kept
        self._check = check
        self._report = report
        self._meter = meter
        self._clock = clock

    def run(self) -> tuple[LeftOpenTask, RecoveryReport]:
        """Fold in what is committed; returns what goes on under its id, and what was found."""
        kept, check = self._kept, self._check
        left = kept.logs.left_over()
        states: dict[str, TaskState] = {}

        def outcome_of(task: str) -> wire.TaskAnswer | None:
            answer = self._outcome(task)
            if answer is not None:
                states[task] = answer.state
                if answer.state is TaskState.DONE:
                    note_held(self._report, kept.memory, answer.held_records)
                if check.history is History.CONTINUES:
                    kept.note(answer)
            return answer

        recovered = recover(
            kept.ledger, kept.logs, kept.snapshot, kept.dirs, outcome_of, lacked_by(check)
        )
        crash.point("round.recovered")
        for task, committed in recovered.tasks.items():
            if committed:
                self._report.tasks.append(task)
        self._report.sent += len(recovered.added)
        for each in recovered.added:
            self._meter.happened("loaded", file=each.text, already=False)
        self._report.deleted += len(recovered.removed)
        with kept.changing_troubles() as troubles:
            troubles.clear(recovered.added)
        if recovered.tasks:
            _log.info("%s: recovered", self._remote.name, extra={"tasks": dict(recovered.tasks)})
        return _left_open(list(left.values()), states), recovered

    def _outcome(self, task: str) -> wire.TaskAnswer | None:
        try:
            answer = self._remote.patiently(lambda: self._remote.client.task(task))
            if answer.state is TaskState.LOADING:
                self._meter.step("load")
                answer = wait_until_loaded(self._remote, task, clock=self._clock)
        except NotFoundError:
            return None
        return answer


def _left_open(logs: Sequence[SyncState], states: Mapping[str, TaskState]) -> LeftOpenTask:
    """What goes on of what the sender's logs were left with.

    Args:
        logs: as they were left.
        states: of the tasks in them, as the receiver says; it may not know one.
    """
    resumable = LeftOpenTask()
    for task in {state.task for state in logs if state.task is not None}:
        of_task = [state for state in logs if state.task == task]
        if states.get(task) is TaskState.OPEN and any(
            state.phase.value >= Phase.SENDING.value for state in of_task
        ):
            resumable = LeftOpenTask(
                task, frozenset(path for state in of_task for path in state.deleted)
            )
    return resumable
