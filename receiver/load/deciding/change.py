"""What a task changes: decided from committed state and verified files, then done in one commit.

Nothing here changes the disk or the engine, so every rule about conflicts, replacements and ends is
in one place and is tested as a function.

Nothing is deleted here because something else seems to hold it: what is gone at the edge is retired
and stays visible in its rank, and only a proof takes it out of sight. Products of compactions and
the ends of their partition are committed together or not at all.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from common.names import FilePath
from common.wire import EndMeaning, Propagate, Result
from receiver.config import DeletesConfig
from receiver.load.deciding.candidates import Candidate, Change, Load, physical_name
from receiver.load.deciding.carried_deletions import carried
from receiver.load.deciding.centre_loads import content_of_anyone
from receiver.load.deciding.delete_guard import DeleteGuard, ProductSpans
from receiver.load.deciding.inherited_deletions import (
    inherited,
    notes_of,
    predecessors,
)
from receiver.load.deciding.known_content import known_content, somebody_elses
from receiver.load.deciding.known_deletions import KeptRecords, KnownDeletions
from receiver.load.deciding.origins import ended_origin, has_ended, is_deleted, origin_of
from receiver.load.deciding.outlived_deletions import OutlivedDeletions
from receiver.load.deciding.predecessors_files import files_that_go_with
from receiver.load.deciding.refused_files import RefusedFiles
from receiver.load.deciding.taken_paths import TakenPaths, last_transfer
from receiver.load.deciding.uncovered_files import uncovered_by
from receiver.load.schema.registering import SeriesRefusal
from receiver.metadata.commit.becoming_final import between_final
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.ranks import name_rank
from receiver.metadata.model.records import FileOutcome
from receiver.metadata.query.given_back import GivenBack
from receiver.metadata.state.table_rows import FileState
from receiver.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from common.wire import DeletionsPart
    from receiver.load.deciding.expiry import Expiry
    from receiver.load.folder.current_task import Planned, TaskRecord
    from receiver.load.folder.staged import Verified
    from receiver.load.schema.registering import Registering
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["decide_change"]

_GOOD = frozenset({Result.LOADED, Result.ALREADY, Result.EXPIRED})
"""Outcomes of additions that nothing has to wait for."""
_Group = tuple[str, str, int]


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
    limits = deletes or DeletesConfig()
    holds: dict[_Group, FileOutcome] = {}
    while True:
        decision = _Decision(
            state,
            record,
            planned,
            candidates,
            failed,
            resources or {},
            registering(),
            stands,
            expiry,
            data_dir,
            holds,
            limits,
            deletions,
        )
        change = decision.make(between)
        if decision.holds.keys() <= holds.keys():
            break
        holds = decision.holds | holds
    loads = {each.candidate.path.text: each.physical.text for each in change.loads}
    known = KnownDeletions(
        state, record.sender, loads, decision.paths.held, decision.carried, anew=decision.anew
    )
    if record.adopted:  # what an old server deleted is of its own file, not of one that came since
        loaded = {each.candidate.path.text for each in change.loads}
        deletions = [part for part in deletions if part.path in loaded]
    untold = dict.fromkeys(part.path for part in deletions if not known.take(part))
    guard, done = decision.guard, change.ops.pop()
    assert isinstance(done, records.TaskDone)
    done = msgspec.structs.replace(done, untold=tuple(untold))
    deleted = [op.physical for op in change.ops if isinstance(op, records.FileDeleted)]
    taking_over = _TakingOver(state, record.sender, change.loads)
    noted, kept = known.noted(), list(known.kept())
    notes, kept = guard.judge_records(noted, deleted, kept, taking_over.of_task(noted, kept))
    change.ops += [*notes, *(each.op for each in kept)]
    taken_over = taking_over.of_task([*taking_over.of_loads(), *notes], kept)
    change.ops += taken_over
    revived = {op.physical for op in change.ops if isinstance(op, records.FileRevived)}
    for row in uncovered_by(state, [*notes, *taken_over], kept):
        if row.physical not in revived and row.physical not in deleted:
            change.ops.append(records.FileRevived(row.physical))
            change.guards.append(Guard("file", row.physical, row.changed))
    guard.finish()
    change.ops += [*guard.ops, done]
    change.guards += guard.guards
    return change


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


class _Decision:
    def __init__(
        self,
        state: State,
        record: TaskRecord,
        planned: Mapping[str, Planned],
        candidates: Mapping[str, Candidate],
        failed: Mapping[str, FileOutcome],
        resources: Mapping[str, Verified],
        registering: Registering,
        stands: Callable[[FileRow], bool],
        expiry: Expiry | None,
        data_dir: str,
        known_holds: Mapping[_Group, FileOutcome],
        limits: DeletesConfig,
        deletions: Sequence[DeletionsPart],
    ) -> None:
        self.state = state
        self.record = record
        self.planned = planned
        self.candidates = candidates
        self.failed = failed
        self.resources = resources
        self.registering = registering
        self.stands = stands
        self.expiry = expiry
        self.data_dir = data_dir
        self.known_holds = known_holds
        self.holds: dict[_Group, FileOutcome] = {}
        self.scope = Scope(record.scope)
        self.manifest = {entry.path: entry for entry in record.manifest or ()}
        self.deleted = set(record.deleted)
        self.ends = {end.path: end for end in record.below}
        self.everywhere: dict[str, FileRow] = {}
        self.change = Change()
        self.anew = record.anew and state.senders[record.sender].restored > 0
        looks = dict.fromkeys(record.deleted, record.look - 1) if self.anew else record.looks
        copies = [each for path, each in candidates.items() if self.manifest[path].last_look]
        self.paths = TakenPaths(state, record.sender, looks, record.look, copies)
        token = None if record.token is None else state.tokens.get(record.token)
        self.guard = DeleteGuard(
            state,
            record.sender,
            record.look,
            limits,
            may_delete=token is None or token.allow_deletes,
            scope=self.scope,
        )
        self.mandate = record.centre
        self._owners_guarded: set[str] = set()
        self._rows_guarded: set[str] = set()
        self.mirrors = False
        self.carried: dict[str, str] = {}
        self.deleted_beside = self._find_deleted({part.path for part in deletions})
        self.outlived = OutlivedDeletions(state, record.sender, deletions)

    def make(self, between: Callable[[], None]) -> Change:
        change = self.change
        sender, task = self.record.sender, self.record.task
        change.guards.append(Guard("task", (sender, task), 0))
        self.mirrors = self._take_mode() and not self.anew
        for text in self.manifest:
            candidate = self.candidates.get(text)
            path = FilePath.parse(text) if candidate is None else candidate.path
            change.outcomes[text] = self._addition(path, candidate)
            between()
        self._find_holds()
        self._judge_ends()
        self._ends()
        self._delete_ended()
        RefusedFiles(self.state, sender, self.planned, self.candidates, change).enter()
        if self.anew:
            change.ops.append(records.ListBegun(sender, self.record.look))
        if self.record.adopted:
            change.ops.append(records.FilesAdopted(sender, task, self.record.adopted))
        outcomes = tuple(change.outcomes.values())
        change.ops.append(records.TaskDone(sender=sender, task=task, outcomes=outcomes))
        return change

    def _take_mode(self) -> bool:
        """Commit what the sender's word may take away; whether it may delete in this task.

        In the round that changes to a mirror, what is gone is only retired.
        """
        # An upload without a task, and what the centre loads itself, say nothing of what is gone.
        if self.record.single or self.record.centre is not None or self.record.adopted:
            return False
        row = self.state.senders[self.record.sender]
        wanted, look = self.record.propagate, self.record.look
        if row.propagate is not wanted:
            is_new = row.propagate is None and row.last_task is None
            self.change.ops.append(records.SenderMode(row.uuid, wanted, 0 if is_new else look))
            return wanted is Propagate.ALL and is_new
        return wanted is Propagate.ALL and (look == 0 or row.mode_look != look)

    def _mirrors_from(self, last: int) -> bool:
        """Whether the end of what a look was the last to have is a delete.

        What was gone before its sender became a mirror is retired, in whatever round it is told.
        """
        since = self.state.senders[self.record.sender].mode_look
        return self.mirrors and not 0 < last < since

    # -- additions -------------------------------------------------------------------------

    def _addition(self, path: FilePath, candidate: Candidate | None) -> FileOutcome:
        held = self._held(path)
        if candidate is not None and self.record.centre is not None:
            row = content_of_anyone(self.state, candidate, self.stands)
            if row is not None:
                self.change.guards.append(Guard("file", row.physical, row.changed))
                reason = f"as {row.physical}"
                return FileOutcome(path.text, Result.ALREADY, reason=reason, owner=row.sender)
        if self._came_before(path, held, candidate):
            return FileOutcome(path.text, Result.ALREADY)
        if candidate is None:
            return self._absent(path)
        return (
            self._refusal(path, candidate, held)
            or self._held_back(path, held)
            or self._load(path, candidate, held)
        )

    def _absent(self, path: FilePath) -> FileOutcome:
        """The outcome of a file whose bytes are not here, or not good."""
        planned = self.planned.get(path.text)
        if planned is not None and planned.refused is not None:
            return FileOutcome(path.text, planned.refused, planned.device, planned.reason)
        missing = FileOutcome(path.text, Result.MISSING, reason="not received")
        return self.failed.get(path.text, missing)

    def _came_before(
        self, path: FilePath, held: FileRow | None, candidate: Candidate | None
    ) -> bool:
        """Whether the content is loaded; without the bytes, as far as the manifest tells.

        It may be under another name, or retired: it is its sender's under this name from now on.
        """
        last = self.manifest[path.text].last_look
        if held is not None and self.paths.is_renewed(held):  # it came for another path of it
            is_same = self._is_same(path, held, candidate)
            if is_same and last:
                self._emit(self.paths.free(path.text, last))
            return is_same
        row = self._known(path, held, candidate)
        if row is None:
            return False
        if row.physical not in self._rows_guarded:
            self._rows_guarded.add(row.physical)
            self.change.guards.append(Guard("file", row.physical, row.changed))
            if not row.held:  # what is another's by now does not come back
                self._guard_owners(row.devices)
        origin = origin_of(self.manifest[path.text].origin)
        if has_ended(origin):
            if self.paths.held(path.text) == row:
                self._emit(self.paths.free(path.text))
            goes_on = path.text not in row.paths or self.paths.has_path(row)
        elif last:
            self._note_link(path, row, last)
            goes_on = True
        else:
            if self.paths.held(path.text) != row:
                self._emit([*self.paths.free(path.text), *self.paths.give(row, path.text)])
            self._note_resource(path, row, candidate)
            goes_on = False
        if origin is not None and not goes_on and origin != row.origin:
            self._emit([records.OriginNoted(row.physical, origin)])
        return True

    def _note_resource(self, path: FilePath, row: FileRow, candidate: Candidate | None) -> None:
        """See to the resource of a content that is here, where it came once more."""
        came = candidate.resource if candidate else self.resources.get(path.text)
        if came is not None and row.resource != (
            resource := records.ResourceMeta(came.size, came.md5)
        ):
            self._emit([records.ResourceNoted(row.physical, resource)])

    def _note_link(self, path: FilePath, row: FileRow, last: int) -> None:
        """See to a name that is gone, of a content that is here, and that came from a link.

        The end of a name that is listed waits like any other. One that is not is no name of it; but
        if it has ended, the link tells that it was there again, until the look that had it last.
        """
        is_free = self.paths.held(path.text) is None and not self.paths.has_path(row)
        if is_free and not self.mirrors and name_rank(path) == name_rank(row.parsed):
            self._emit(self.paths.give(row, path.text))
            self._emit(self.paths.free(path.text, last))

    def _known(
        self, path: FilePath, held: FileRow | None, candidate: Candidate | None
    ) -> FileRow | None:
        def is_same(row: FileRow) -> bool:
            covered = self.scope.first_outside(row.devices) is None
            return covered and self._is_same(path, row, candidate)

        if held is not None and held.visible and not self._replaces(path):
            return held if is_same(held) and self.stands(held) else None
        planned = self.planned.get(path.text)
        tail = candidate.staged.tail if candidate else planned.tail if planned else None
        if tail is None:
            return held if held is not None and held.visible and is_same(held) else None
        sender = self.record.sender
        told = self.manifest[path.text].origin
        origin = "" if told is None else told.sender
        return known_content(
            self.state,
            sender,
            path.text,
            tail,
            is_same,
            self.stands,
            origin,
            lambda row: self._is_deleted_from(row, path.text),
        )

    def _find_deleted(self, paths: Iterable[str]) -> dict[str, set[str]]:
        """Files of which deletions are told, with the paths that they are told beside.

        Args:
            paths: of all deletions of the task; a file may be known by another one as yet.
        """
        found: dict[str, set[str]] = {}
        for path in paths:
            row = self._row_of(path)
            known = [row] if row is not None else self._rows_like(path)
            for each in known:
                found.setdefault(each.physical, set()).add(path)
        return found

    def _rows_like(self, path: str) -> list[FileRow]:
        """The files of the sender that have the content of one that the task tells."""
        candidate, planned = self.candidates.get(path), self.planned.get(path)
        tail = candidate.staged.tail if candidate else planned.tail if planned else None
        if tail is None or path not in self.manifest:
            return []
        return [
            row
            for row in self.state.file_table.of_tail(tail)
            if row.sender == self.record.sender
            and self._is_same(FilePath.parse(path), row, candidate)
        ]

    def _is_deleted_from(self, row: FileRow, path: str) -> bool:
        """Whether something is told as deleted of a file that is not what it has under a path.

        It is, if it is told beside that path alone, and the file has no other one behind the task.
        """
        beside = self.deleted_beside.get(row.physical)
        if beside is None:
            return path not in row.paths and self.outlived.by(path, row)
        return beside != {path} or (row.held and not {*row.paths} <= self.deleted | {path})

    def _row_of(self, path: str) -> FileRow | None:
        """The file that is, or was forwarded, under a path, as it is committed."""
        table, sender = self.state.file_table, self.record.sender
        return table.held(sender, path) or table.forwarded(sender, path)

    def _is_same(self, path: FilePath, row: FileRow, candidate: Candidate | None) -> bool:
        found = self.manifest[path.text] if candidate is None else candidate.staged
        return (row.size, row.md5) == (found.size, found.md5)

    def _replaces(self, path: FilePath) -> bool:
        planned = self.planned.get(path.text)
        return path.text in self.deleted or (planned is not None and planned.replaces)

    def _refusal(
        self, path: FilePath, candidate: Candidate, held: FileRow | None
    ) -> FileOutcome | None:
        taken = held is not None and held.visible and not _same_content(held, candidate)
        if taken and not self._replaces(path):
            return FileOutcome(path.text, Result.CONFLICT, reason="same path, other content")
        if self.expiry is not None and self.expiry.is_past(candidate.ranges):
            reason = "all its points are past the TTL of their storage groups"
            return FileOutcome(path.text, Result.EXPIRED, reason=reason)
        names = [each.name for each in candidate.facts.devices]
        outside = self.scope.first_outside(names)
        if outside is not None:
            reason = "outside of the token's scope"
            return FileOutcome(path.text, Result.REFUSED, device=outside, reason=reason)
        for name in names:
            owner = self.state.owners.get(name)
            if owner is not None and not self._takes(owner.sender):
                way_out = self._way_out(owner.sender, candidate)
                return FileOutcome(
                    path.text,
                    Result.CONFLICT,
                    device=name,
                    reason=_owned(way_out),
                    owner=owner.sender,
                )
        return None

    def _takes(self, owner: str) -> bool:
        """Whether devices of an owner may be in files of this task."""
        if self.mandate is not None:
            return self.mandate.takes(owner, self.record.sender)
        return owner == self.record.sender

    def _way_out(self, owner: str, candidate: Candidate) -> str | None:
        """What somebody can do whose file has a device of another one."""
        if self.mandate is not None and self.record.token is not None:
            return None  # whoever has a writer's token is not told whose devices there are
        if self.mandate is not None:
            return _say_whose(self.state, owner)
        return somebody_elses(
            self.state,
            owner,
            candidate.staged.tail,
            lambda row: _same_content(row, candidate),
        )

    def _held_back(self, path: FilePath, held: FileRow | None) -> FileOutcome | None:
        """The outcome of what goes together with the ends of its partition, if these wait."""
        hold = self.known_holds.get(path.group)
        if hold is None or not self._goes_with_ends(path, held):
            return None
        return hold if hold.path == path.text else _waits_for(path.text, hold)

    def _goes_with_ends(self, path: FilePath, held: FileRow | None) -> bool:
        """Products of compactions, and what takes the place of other content."""
        return path.is_product or (held is not None and held.visible)

    def _load(self, path: FilePath, candidate: Candidate, held: FileRow | None) -> FileOutcome:
        physical = physical_name(self.record.sender, self.record.task, path)
        again = held if held is not None and _same_content(held, candidate) else None
        loaded = self._file_loaded(candidate, physical, again)
        too_late = self._between(path, loaded)
        if too_late is not None:
            return too_late
        before: list[records.Op] = []
        if again is not None:  # it is bad, or not on the disk: this takes its place, and its looks
            before.append(records.FileDeleted(again.physical, "replaced"))
        elif held is not None:
            before += self.paths.free(path.text)
        registers = self.registering.take(
            physical.text, path.sg, candidate.facts.registers, before=[*before, loaded]
        )
        if isinstance(registers, SeriesRefusal):
            if again is None and held is not None:
                self.paths.give_back(held, path.text)
            result = Result.QUARANTINED if registers.hold else Result.MISSING
            return FileOutcome(
                path.text, result, registers.device, registers.reason, hold=registers.hold
            )
        self._guard_owners(each.name for each in candidate.facts.devices)
        self.change.loads.append(Load(candidate, physical))
        self.change.ops += [*before, loaded, *registers]
        if again is not None:
            self._emit(self.paths.renew(again, physical.text))
            self.change.ops += carried(self.state.deletion_table, again, physical.text)
            self.carried[path.text] = again.physical
        self.change.ops += self._end_of_copy(path.text, loaded)
        return FileOutcome(path.text, Result.LOADED)

    def _between(self, path: FilePath, loaded: records.FileLoaded) -> FileOutcome | None:
        """The outcome of a file that comes too late: files that it stands between are one now."""
        final = between_final(self.state, loaded)
        if final is None:
            return None
        reason = (
            f"it comes too late: files that it stands between were merged for good, as {final}; "
            "`load --as` of it puts it above them"
        )
        return FileOutcome(path.text, Result.QUARANTINED, reason=reason, hold=True)

    def _file_loaded(
        self, candidate: Candidate, physical: FilePath, again: FileRow | None
    ) -> records.FileLoaded:
        resource = candidate.resource
        entry = self.manifest[candidate.path.text]
        first, closed = entry.first_look, entry.closed_look
        mandate = self.mandate
        if first and not (mandate is not None and mandate.is_below):
            # What a device's new owner lists stands above all that the old one listed.
            devices = (each.name for each in candidate.facts.devices)
            closed = closed or first  # what was deleted since is deleted of it all the same
            first = max(first, last_transfer(self.state.owners, devices) + 1)
        if again is not None:
            first, closed = again.rank.first, again.rank.closed
        return records.FileLoaded(
            sender=self.record.sender,
            path=candidate.path.text if again is None else self.paths.first_of(again),
            physical=physical.text,
            size=candidate.staged.size,
            md5=candidate.staged.md5,
            tail=candidate.staged.tail,
            version=candidate.facts.version,
            devices=candidate.facts.devices,
            first=candidate.facts.first,
            last=candidate.facts.last,
            series=candidate.facts.series,
            points=candidate.facts.points,
            task=self.record.task,
            resource=None
            if resource is None
            else records.ResourceMeta(resource.size, resource.md5),
            manifest=candidate.manifest,
            data_dir=self.data_dir,
            first_look=first,
            closed_look=closed,
            origin=origin_of(entry.origin),
            owner="" if mandate is None else mandate.owner,
            others=() if mandate is None else self._further_owners(candidate, mandate.owner),
        )

    def _further_owners(self, candidate: Candidate, owner: str) -> list[str]:
        """Those of devices of a file of a load at the centre, beside one and the centre itself."""
        rows = (self.state.owners.get(each.name) for each in candidate.facts.devices)
        found = {row.sender for row in rows if row is not None}
        return sorted(found - {owner, self.record.sender})

    def _end_of_copy(self, path: str, loaded: records.FileLoaded) -> Iterator[records.Op]:
        """What the sender has no more, and sent from a link: it ends with the commit it comes by.

        Until a later round told its end it would count as together with what took its place.
        """
        last = self.manifest[path].last_look
        if not last and not has_ended(loaded.origin):
            return
        # A look that did not get to all of a directory counts for none of it, and yet has files.
        last = last and max(last, loaded.first_look)
        row = self.paths.held(path)
        if row is not None and self.paths.is_renewed(row):  # it may have other names, that stand
            yield from self.paths.free(path, last or max(row.first_look, self.record.look))
            return
        yield records.FileRetired(loaded.physical, last or max(loaded.first_look, self.record.look))
        if last and self._mirrors_from(last):
            yield records.FileDeleted(loaded.physical, "gone")

    def _guard_owners(self, devices: Iterable[str]) -> None:
        for name in devices:
            if name not in self._owners_guarded:
                self._owners_guarded.add(name)
                seen = self.state.changed("owner", name)
                self.change.guards.append(Guard("owner", name, seen))

    def _held(self, path: FilePath) -> FileRow | None:
        row = self.state.file_table.held(self.record.sender, path.text)
        seen = 0 if row is None else row.changed
        self.change.guards.append(Guard("path", (self.record.sender, path.text), seen))
        return self.paths.held(path.text)

    def _emit(self, ops: list[records.Op]) -> None:
        self.registering.play(ops)
        self.change.ops += ops

    # -- ends ------------------------------------------------------------------------------

    def _find_holds(self) -> None:
        """Partitions of which something did not come to be that their ends go together with.

        In a list that begins anew what ended is below all else, so nothing waits for anything.
        """
        if self.anew:
            return
        for outcome in list(self.change.outcomes.values()):
            if outcome.result not in (*_GOOD, Result.HELD):
                self._hold(FilePath.parse(outcome.path), outcome)
        for planned in self.planned.values():
            if planned.path in self.change.outcomes or planned.refused is Result.EXPIRED:
                continue
            path = FilePath.parse(planned.path)
            if not self._is_here(planned):
                self._hold(path, FileOutcome(path.text, Result.MISSING, reason="not received"))

    def _hold(self, path: FilePath, outcome: FileOutcome) -> None:
        held = self.state.file_table.held(self.record.sender, path.text)
        if self.record.propagate is Propagate.ALL or self._goes_with_ends(path, held):
            self.holds.setdefault(path.group, outcome)

    def _is_here(self, planned: Planned) -> bool:
        """Whether a planned file that is not in the manifest was loaded before."""

        def is_same(row: FileRow) -> bool:
            return row.size == planned.size and planned.md5 in (None, row.md5)

        row = self.state.file_table.held(self.record.sender, planned.path)
        return row is not None and row.visible and row.tail == planned.tail and is_same(row)

    def _judge_ends(self) -> None:
        """See which deletes, of a mirror or told from below, the guard holds."""
        ends = [row for row in self.paths.ended() if self._goes(row)]  # other content is there
        told: dict[str, FileRow] = {}
        for text in self.record.deleted:
            row = None if text in self.change.outcomes else self.paths.held(text)
            if row is None:
                row = self._ended_before(text)
            if row is not None and self._why_held(FilePath.parse(text), row) is None:
                told[text] = row
        going = {
            row.physical: row
            for row in told.values()
            if self.paths.ends_with(row, told) and self._goes(row)
        }
        if not ends and not going:
            return
        loads = [each.candidate for each in self.change.loads]
        self.guard.judge_ends(
            [*ends, *going.values()],
            [
                ProductSpans(each.path.group, each.facts.points, list(each.ranges))
                for each in loads
                if each.path.is_product
            ],
            [each.path.sg for each in loads],
        )

    def _ends(self) -> None:
        for text in self.record.deleted:
            if text not in self.change.outcomes:
                path = FilePath.parse(text)
                self.change.outcomes[text] = self._end(path, self._held(path))

    def _end(self, path: FilePath, row: FileRow | None) -> FileOutcome:
        """What becomes of a path that is gone."""
        before = self._ended_before(path.text) if row is None else None
        row = row or before
        if row is None:
            return FileOutcome(path.text, Result.DELETED)
        held = self._why_held(path, row)
        if held is not None:
            return held
        if row.physical in self.guard.held:
            reason = self.guard.held[row.physical]
            return FileOutcome(path.text, Result.HELD, reason=reason, hold=True)
        if before is not None:
            self.change.guards.append(Guard("file", row.physical, row.changed))
            if path.text in self.given_back and row.physical not in self.everywhere:
                self._emit(self._told_at_last(path.text, row))
            self.everywhere[row.physical] = row
            return FileOutcome(path.text, Result.RETIRED)
        self._emit(self.paths.free(path.text))
        goes_on = self.paths.has_path(row)
        end = self.ends.get(path.text)
        origin = None if end is None or goes_on else ended_origin(row, end)
        if origin is not None and origin != row.origin:
            self._emit([records.OriginNoted(row.physical, origin)])
        return FileOutcome(path.text, Result.DELETED if goes_on else Result.RETIRED)

    def _told_at_last(self, path: str, row: FileRow) -> list[records.Op]:
        """The end of a file that had ended here with a transfer, as its sender tells it."""
        last = self.paths.last_look(path) or row.last_look
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
        back = self.given_back.get(path)
        if back is not None and not self.paths.has_path(back):
            return back
        end = self.ends.get(path)
        if end is None or end.meaning is not EndMeaning.EVERYWHERE:
            return None
        row = self.state.file_table.forwarded(self.record.sender, path)
        if row is None or not row.retired or row.state is FileState.DELETED:
            return None
        return row

    @cached_property
    def given_back(self) -> dict[str, FileRow]:
        """By path, the files that ended with a transfer and are the sender's again."""
        rows = GivenBack().of(self.state, self.record.sender)
        return {path: row for row in rows for path in row.paths}

    def _goes(self, row: FileRow) -> bool:
        """Whether a file that ends is deleted by it, as far as its sender's word goes."""
        return all(is_deleted(path, self.ends, self._mode_of(path)) for path in row.paths)

    def _mode_of(self, path: str) -> Propagate:
        mirrors = self._mirrors_from(self.paths.last_look(path))
        return Propagate.ALL if mirrors else Propagate.REPLACED

    def _why_held(self, path: FilePath, row: FileRow) -> FileOutcome | None:
        """The outcome of an end that waits for something else, None for one that does not."""
        if path.text in self.planned:
            return FileOutcome(path.text, Result.HELD, reason="its new content was not received")
        outside = self.scope.first_outside(row.devices)
        if outside is not None:
            reason = "outside of the token's scope"
            return FileOutcome(path.text, Result.HELD, device=outside, reason=reason)
        hold = self.holds.get(path.group) or self.known_holds.get(path.group)
        return None if hold is None else _waits_for(path.text, hold)

    def _delete_ended(self) -> None:
        """The mirror follows: what ended in this task, and has no other name, is deleted."""
        stays = self.guard.held.keys() | self.guard.kept
        ended = [*self.paths.ended(), *self.everywhere.values()]
        staying = {row.physical for row in ended if row.physical in stays or not self._goes(row)}
        kept = {text for row in ended if row.physical in staying for text in row.paths}
        going = [row for row in ended if row.physical not in staying]
        self._emit([records.FileDeleted(row.physical, self._reason(row)) for row in going])
        self._delete_predecessors(going)
        for text in self.record.deleted:
            if self.change.outcomes[text].result is Result.RETIRED and text not in kept:
                self.change.outcomes[text] = FileOutcome(text, Result.DELETED)

    def _delete_predecessors(self, going: Sequence[FileRow]) -> None:
        """What a mirror deletes is deleted of those whom its sender took over from."""
        for row in files_that_go_with(self.state, going):
            self.change.guards.append(Guard("file", row.physical, row.changed))
            self._guard_owners(row.devices)
            self._emit([records.FileDeleted(row.physical, "gone")])

    def _reason(self, row: FileRow) -> records.DeletionReason:
        ends = (self.ends.get(path) for path in row.paths)
        everywhere = any(end and end.meaning is EndMeaning.EVERYWHERE for end in ends)
        return "everywhere" if everywhere else "gone"


def _same_content(row: FileRow, candidate: Candidate) -> bool:
    return (row.size, row.md5) == (candidate.staged.size, candidate.staged.md5)


def _say_whose(state: State, owner: str) -> str:
    """The way out for a load at the centre."""
    row = state.senders.get(owner)
    label = f" ({row.label})" if row is not None and row.label else ""
    return f"if this is data of {owner}{label}: --as {owner}"


def _owned(way_out: str | None) -> str:
    reason = "the device belongs to another sender"
    return reason if way_out is None else f"{reason}; {way_out}"


def _waits_for(path: str, hold: FileOutcome) -> FileOutcome:
    why = f": {hold.reason}" if hold.reason else ""
    reason = f"waits for {hold.path}, of the same partition, which is {hold.result}{why}"
    return FileOutcome(path, Result.HELD, reason=reason)
