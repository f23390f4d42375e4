"""What is gone at the edge: retired, held, or, where its sender is a mirror, deleted.

Products of compactions and the ends of their partition are committed together or not at all.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from common.names import FilePath
from common.wire import EndMeaning, Propagate, Result
from receiver.load.deciding.known_files.origins import ended_origin, is_deleted
from receiver.load.deciding.known_files.predecessors_files import files_that_go_with
from receiver.load.deciding.task_decision import waits_for
from receiver.load.deciding.told_deletions.delete_guard import ProductSpans
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.records import FileOutcome
from receiver.metadata.query.given_back import GivenBack
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.load.deciding.task_decision import PlaceOfEnds, TaskDecision
    from receiver.load.folder.current_task import Planned
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["FileEnds"]

_GOOD = frozenset({Result.LOADED, Result.ALREADY, Result.EXPIRED})
"""Outcomes of additions that nothing has to wait for."""


class FileEnds:
    """What becomes of each path that a task tells as gone.

    Attributes:
        holds: by partition, what did not come to be that its ends go together with.
    """

    def __init__(self, task: TaskDecision) -> None:
        self._task = task
        self._state = task.state
        self._record = task.record
        self._change = task.change
        self._paths = task.paths
        self._planned = task.planned
        self._told = {end.path: end for end in task.record.below}
        self._everywhere: dict[str, FileRow] = {}
        self.holds: dict[PlaceOfEnds, FileOutcome] = {}

    def decide(self) -> None:
        """Decide all, when it is known what becomes of the files that came."""
        self._find_holds()
        self._judge_ends()
        self._ends()
        self._delete_ended()

    def _find_holds(self) -> None:
        """Partitions of which something did not come to be that their ends go together with.

        In a list that begins anew what ended is below all else, so nothing waits for anything.
        """
        if self._task.anew:
            return
        for outcome in list(self._change.outcomes.values()):
            if outcome.result not in (*_GOOD, Result.HELD):
                self._hold(FilePath.parse(outcome.path), outcome)
        for planned in self._planned.values():
            if planned.path in self._change.outcomes or planned.refused is Result.EXPIRED:
                continue
            path = FilePath.parse(planned.path)
            if not self._is_here(planned):
                self._hold(path, FileOutcome(path.text, Result.MISSING, reason="not received"))

    def _hold(self, path: FilePath, outcome: FileOutcome) -> None:
        held = self._state.file_table.held(self._record.sender, path.text)
        if self._record.propagate is Propagate.ALL or self._task.goes_with_ends(path, held):
            self.holds.setdefault(path.group, outcome)

    def _is_here(self, planned: Planned) -> bool:
        """Whether a planned file that is not in the manifest was loaded before."""

        def is_same(row: FileRow) -> bool:
            return row.size == planned.size and planned.md5 in (None, row.md5)

        row = self._state.file_table.held(self._record.sender, planned.path)
        return row is not None and row.visible and row.tail == planned.tail and is_same(row)

    def _judge_ends(self) -> None:
        """See which deletes, of a mirror or told from below, the guard holds."""
        ends = [row for row in self._paths.ended() if self._goes(row)]  # other content is there
        told: dict[str, FileRow] = {}
        for text in self._record.deleted:
            row = None if text in self._change.outcomes else self._paths.held(text)
            if row is None:
                row = self._ended_before(text)
            if row is not None and self._why_held(FilePath.parse(text), row) is None:
                told[text] = row
        going = {
            row.physical: row
            for row in told.values()
            if self._paths.ends_with(row, told) and self._goes(row)
        }
        if not ends and not going:
            return
        loads = [each.candidate for each in self._change.loads]
        self._task.guard.judge_ends(
            [*ends, *going.values()],
            [
                ProductSpans(each.path.group, each.facts.points, list(each.ranges))
                for each in loads
                if each.path.is_product
            ],
            [each.path.sg for each in loads],
        )

    def _ends(self) -> None:
        for text in self._record.deleted:
            if text not in self._change.outcomes:
                path = FilePath.parse(text)
                self._change.outcomes[text] = self._end(path, self._task.held(path))

    def _end(self, path: FilePath, row: FileRow | None) -> FileOutcome:
        """What becomes of a path that is gone."""
        before = self._ended_before(path.text) if row is None else None
        row = row or before
        if row is None:
            return FileOutcome(path.text, Result.DELETED)
        held = self._why_held(path, row)
        if held is not None:
            return held
        if row.physical in self._task.guard.held:
            reason = self._task.guard.held[row.physical]
            return FileOutcome(path.text, Result.HELD, reason=reason, hold=True)
        if before is not None:
            self._change.guards.append(Guard("file", row.physical, row.changed))
            if path.text in self._given_back and row.physical not in self._everywhere:
                self._task.emit(self._told_at_last(path.text, row))
            self._everywhere[row.physical] = row
            return FileOutcome(path.text, Result.RETIRED)
        self._task.emit(self._paths.free(path.text))
        goes_on = self._paths.has_path(row)
        end = self._told.get(path.text)
        origin = None if end is None or goes_on else ended_origin(row, end)
        if origin is not None and origin != row.origin:
            self._task.emit([records.OriginNoted(row.physical, origin)])
        return FileOutcome(path.text, Result.DELETED if goes_on else Result.RETIRED)

    def _told_at_last(self, path: str, row: FileRow) -> list[records.Op]:
        """The end of a file that had ended here with a transfer, as its sender tells it."""
        last = self._paths.last_look(path) or row.last_look
        return [
            *([records.FileRevived(row.physical)] if row.state is FileState.SUPERSEDED else ()),
            records.FileReturned(row.physical, path),
            records.FileRetired(row.physical, max(last, row.first_look)),
        ]

    def _ended_before(self, path: str) -> FileRow | None:
        """A file that had ended here, of which its sender has something to say now.

        An operator below deleted it everywhere since; or it ended with a transfer of its devices,
        and one of them came back.
        """
        back = self._given_back.get(path)
        if back is not None and not self._paths.has_path(back):
            return back
        end = self._told.get(path)
        if end is None or end.meaning is not EndMeaning.EVERYWHERE:
            return None
        row = self._state.file_table.forwarded(self._record.sender, path)
        if row is None or not row.retired or row.state is FileState.DELETED:
            return None
        return row

    @cached_property
    def _given_back(self) -> dict[str, FileRow]:
        """By path, the files that ended with a transfer and are the sender's again."""
        rows = GivenBack().of(self._state, self._record.sender)
        return {path: row for row in rows for path in row.paths}

    def _goes(self, row: FileRow) -> bool:
        """Whether a file that ends is deleted by it, as far as its sender's word goes."""
        return all(is_deleted(path, self._told, self._mode_of(path)) for path in row.paths)

    def _mode_of(self, path: str) -> Propagate:
        mirrors = self._task.mirrors_from(self._paths.last_look(path))
        return Propagate.ALL if mirrors else Propagate.REPLACED

    def _why_held(self, path: FilePath, row: FileRow) -> FileOutcome | None:
        """The outcome of an end that waits for something else, None for one that does not."""
        if path.text in self._planned:
            return FileOutcome(path.text, Result.HELD, reason="its new content was not received")
        outside = self._task.scope.first_outside(row.devices)
        if outside is not None:
            reason = "outside of the token's scope"
            return FileOutcome(path.text, Result.HELD, device=outside, reason=reason)
        hold = self.holds.get(path.group) or self._task.known_holds.get(path.group)
        return None if hold is None else waits_for(path.text, hold)

    def _delete_ended(self) -> None:
        """The mirror follows: what ended in this task, and has no other name, is deleted."""
        stays = self._task.guard.held.keys() | self._task.guard.kept
        ended = [*self._paths.ended(), *self._everywhere.values()]
        staying = {row.physical for row in ended if row.physical in stays or not self._goes(row)}
        kept = {text for row in ended if row.physical in staying for text in row.paths}
        going = [row for row in ended if row.physical not in staying]
        self._task.emit([records.FileDeleted(row.physical, self._reason(row)) for row in going])
        self._delete_predecessors(going)
        for text in self._record.deleted:
            if self._change.outcomes[text].result is Result.RETIRED and text not in kept:
                self._change.outcomes[text] = FileOutcome(text, Result.DELETED)

    def _delete_predecessors(self, going: Sequence[FileRow]) -> None:
        """What a mirror deletes is deleted of those whom its sender took over from."""
        for row in files_that_go_with(self._state, going):
            self._change.guards.append(Guard("file", row.physical, row.changed))
            self._task.guard_owners(row.devices)
            self._task.emit([records.FileDeleted(row.physical, "gone")])

    def _reason(self, row: FileRow) -> records.DeletionReason:
        ends = (self._told.get(path) for path in row.paths)
        everywhere = any(end and end.meaning is EndMeaning.EVERYWHERE for end in ends)
        return "everywhere" if everywhere else "gone"
