"""What a task changes: decided from committed state and verified files, then done in one commit.

Nothing here changes the disk or the engine, so every rule about conflicts, replacements and ends is
in one place and is tested as a function.

Nothing is deleted here because something else seems to hold it: what is gone at the edge is retired
and stays visible in its rank, and only a proof takes it out of sight. Products of compactions and
the ends of their partition are committed together or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.config import DeletesConfig
from receiver.load.deciding.file_additions import FileAdditions
from receiver.load.deciding.file_ends import FileEnds
from receiver.load.deciding.known_files.candidates import Candidate, Change, Load
from receiver.load.deciding.known_files.refused_files import RefusedFiles
from receiver.load.deciding.task_decision import PlaceOfEnds, TaskDecision, TaskInput
from receiver.load.deciding.told_deletions.inherited_deletions import (
    inherited,
    notes_of,
    predecessors,
)
from receiver.load.deciding.told_deletions.known_deletions import KeptRecords, KnownDeletions
from receiver.load.deciding.told_deletions.uncovered_files import uncovered_by
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.records import FileOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from common.wire import DeletionsPart
    from receiver.load.deciding.expiry import Expiry
    from receiver.load.folder.current_task import Planned, TaskRecord
    from receiver.load.folder.staged import Verified
    from receiver.load.schema.registering import Registering
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["decide_change"]


def decide_change(
    state: State,
    record: TaskRecord,
    planned: Mapping[str, Planned],
    candidates: Mapping[str, Candidate],
    failed: Mapping[str, FileOutcome],
    deletions: Sequence[DeletionsPart] = (),
    *,
    resources: Mapping[str, Verified] | None = None,
    registering: Callable[[], Registering],
    stands: Callable[[FileRow], bool],
    expiry: Expiry | None = None,
    data_dir: str = "",
    deletes: DeletesConfig | None = None,
    between: Callable[[], None] = lambda: None,
) -> Change:
    """Decide what a task does to committed state.

    Args:
        state: committed.
        record: the task, with its manifest.
        planned: what was planned in it, by path.
        candidates: the verified files of its manifest, by path.
        failed: the outcomes of those of its manifest that cannot be loaded.
        deletions: what it tells of deletion files, in order.
        resources: those that came without their TsFiles, by the paths of these.
        registering: makes one of a new draft of this state.
        stands: whether the bytes of a loaded file are on the disk.
        expiry: which files are past their TTL, None while nothing expires.
        data_dir: the data directory that new files go to.
        deletes: how much a sender may delete.
        between: called between two files, where nothing is under way.
    """
    given = TaskInput(
        state=state,
        record=record,
        planned=planned,
        candidates=candidates,
        failed=failed,
        deletions=deletions,
        resources=resources or {},
        stands=stands,
        expiry=expiry,
        data_dir=data_dir,
        limits=deletes or DeletesConfig(),
    )
    task, carried = _decide_files(given, registering, between)
    _add_whole_task(task)
    untold = _decide_deletions(task, carried)
    done = records.TaskDone(
        sender=record.sender,
        task=record.task,
        outcomes=tuple(task.change.outcomes.values()),
        untold=untold,
    )
    task.guard.finish()
    task.change.ops += [*task.guard.ops, done]
    task.change.guards += task.guard.guards
    return task.change


def _decide_files(
    given: TaskInput, registering: Callable[[], Registering], between: Callable[[], None]
) -> tuple[TaskDecision, dict[str, str]]:
    """Decide what becomes of files and ends, until nothing more has to wait for anything else.

    Returns:
        The decision, and by path the file whose place one took that came again.
    """
    holds: dict[PlaceOfEnds, FileOutcome] = {}
    while True:
        task = TaskDecision(given, registering(), holds)
        additions, ends = FileAdditions(task), FileEnds(task)
        additions.decide(between)
        ends.decide()
        if ends.holds.keys() <= holds.keys():
            return task, additions.carried
        holds = ends.holds | holds


def _add_whole_task(task: TaskDecision) -> None:
    """Add what belongs to no single file of the task."""
    record, change = task.record, task.change
    RefusedFiles(task.state, record.sender, task.planned, task.candidates, change).enter()
    if task.anew:
        change.ops.append(records.ListBegun(record.sender, record.look))
    if record.adopted:
        change.ops.append(records.FilesAdopted(record.sender, record.task, record.adopted))


def _decide_deletions(task: TaskDecision, carried: Mapping[str, str]) -> tuple[str, ...]:
    """Add what the task tells of deletion files, and what shows again by it.

    Returns:
        The paths of files that it could not be told of.
    """
    state, record, change = task.state, task.record, task.change
    loads = {each.candidate.path.text: each.physical.text for each in change.loads}
    known = KnownDeletions(state, record.sender, loads, task.paths.held, carried, anew=task.anew)
    told = task.given.deletions
    if record.adopted:  # what an old server deleted is of its own file, not of one that came since
        told = [part for part in told if part.path in loads]
    untold = dict.fromkeys(part.path for part in told if not known.take(part))
    deleted = [op.physical for op in change.ops if isinstance(op, records.FileDeleted)]
    taking_over = _TakingOver(state, record.sender, change.loads)
    noted, kept = known.noted(), list(known.kept())
    notes, kept = task.guard.judge_records(noted, deleted, kept, taking_over.of_task(noted, kept))
    change.ops += [*notes, *(each.op for each in kept)]
    taken_over = taking_over.of_task([*taking_over.of_loads(), *notes], kept)
    change.ops += taken_over
    revived = {op.physical for op in change.ops if isinstance(op, records.FileRevived)}
    for row in uncovered_by(state, [*notes, *taken_over], kept):
        if row.physical not in revived and row.physical not in deleted:
            change.ops.append(records.FileRevived(row.physical))
            change.guards.append(Guard("file", row.physical, row.changed))
    return tuple(untold)


class _TakingOver:
    """What is noted for those whom a sender took over from."""

    def __init__(self, state: State, heir: str, loads: Sequence[Load]) -> None:
        self._state = state
        self._heir = heir
        self._loads = loads

    def of_loads(self) -> Iterator[records.DeletionsNoted]:
        """What was noted of files before they were loaded."""
        table = self._state.deletion_table
        for each in self._loads:
            rows = table.unloaded(self._heir, each.candidate.path.text)
            yield from notes_of(rows, each.physical.text)

    def of_task(
        self, notes: Sequence[records.DeletionsNoted], kept: Sequence[KeptRecords]
    ) -> list[records.DeletionsNoted | records.KeptRecordsApplied]:
        """What the heir notes, and lets be applied, as of its predecessors."""
        if not (notes or kept):
            return []
        contents = {
            each.physical.text: (each.candidate.staged.tail, each.candidate.staged.md5)
            for each in self._loads
        }
        return [
            op
            for predecessor in predecessors(self._state, self._heir)
            for op in inherited(self._state, predecessor, notes, contents, kept)
        ]
