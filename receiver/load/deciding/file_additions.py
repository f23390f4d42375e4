"""The files of a task's manifest: loaded, refused, held back, or there already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.names import FilePath
from common.wire import Result
from receiver.load.deciding.known_files.candidates import Candidate, Load, physical_name
from receiver.load.deciding.known_files.centre_loads import content_of_anyone
from receiver.load.deciding.known_files.known_content import somebody_elses
from receiver.load.deciding.known_files.loaded_before import LoadedBefore
from receiver.load.deciding.known_files.origins import has_ended, origin_of
from receiver.load.deciding.known_files.taken_paths import last_transfer
from receiver.load.deciding.task_decision import same_content, waits_for
from receiver.load.deciding.told_deletions.carried_deletions import carried
from receiver.load.deciding.told_deletions.operators_deletions import (
    DELETED_HERE,
    deleted_by_operator,
)
from receiver.load.schema.registering import SeriesRefusal
from receiver.metadata.commit.guards import Guard
from receiver.metadata.commit.replaced.becoming_final import between_final
from receiver.metadata.model import records
from receiver.metadata.model.records import FileOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.load.deciding.task_decision import TaskDecision
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["FileAdditions"]


class FileAdditions:
    """What becomes of each file that a task brings.

    Attributes:
        carried: by path, the file whose place one took that came again: its deletions go along.
    """

    def __init__(self, task: TaskDecision) -> None:
        self._task = task
        self._state = task.state
        self._record = task.record
        self._change = task.change
        self._paths = task.paths
        self._manifest = task.manifest
        self._planned = task.planned
        self._before = LoadedBefore(task)
        self.carried: dict[str, str] = {}

    def decide(self, between: Callable[[], None]) -> None:
        """Decide all, in the order of the manifest.

        Args:
            between: called between two files, where nothing is under way.
        """
        task = self._task
        for text in task.manifest:
            candidate = task.candidates.get(text)
            path = FilePath.parse(text) if candidate is None else candidate.path
            task.change.outcomes[text] = self._addition(path, candidate)
            between()

    def _addition(self, path: FilePath, candidate: Candidate | None) -> FileOutcome:
        held = self._task.held(path)
        if candidate is not None and self._record.centre is not None:
            rows = content_of_anyone(self._state, candidate, self._task.given.stands)
            if rows:
                guards = (Guard("file", row.physical, row.changed) for row in rows)
                self._change.guards += guards
                reason = f"as {rows[0].physical}"
                return FileOutcome(path.text, Result.ALREADY, reason=reason, owner=rows[0].sender)
        if self._before.take(path, held, candidate):
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
        planned = self._planned.get(path.text)
        if planned is not None and planned.refused is not None:
            return FileOutcome(path.text, planned.refused, planned.device, planned.reason)
        missing = FileOutcome(path.text, Result.MISSING, reason="not received")
        return self._task.given.failed.get(path.text, missing)

    def _refusal(
        self, path: FilePath, candidate: Candidate, held: FileRow | None
    ) -> FileOutcome | None:
        if (gone := self._of_dropped_table(path)) is not None:
            return gone
        taken = held is not None and held.visible and not same_content(held, candidate)
        if taken and not self._task.replaces(path):
            return FileOutcome(path.text, Result.CONFLICT, reason="same path, other content")
        expiry = self._task.given.expiry
        if expiry is not None and expiry.is_past(candidate.ranges):
            reason = "all its points are past the TTL of their storage groups"
            return FileOutcome(path.text, Result.EXPIRED, reason=reason)
        if self._is_deleted(path, candidate):
            return FileOutcome(path.text, Result.EXPIRED, reason=DELETED_HERE, hold=True)
        names = [each.name for each in candidate.facts.devices]
        outside = self._task.scope.first_outside(names)
        if outside is not None:
            reason = "outside of the token's scope"
            return FileOutcome(path.text, Result.REFUSED, device=outside, reason=reason)
        for name in names:
            owner = self._state.owners.get(name)
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

    def _of_dropped_table(self, path: FilePath) -> FileOutcome | None:
        """The outcome of a file that was under way while the table was dropped that it was for.

        It was as good as in it, and comes to be in none that has the name since by itself.
        """
        planned = self._planned.get(path.text)
        by_plan = 0 if planned is None else planned.commit
        since = by_plan or self._record.since
        if not since or self._task.last_drop(path.sg) <= since:
            return None
        reason = f"storage group {path.sg} was deleted while it was under way; "
        if not by_plan:  # nobody keeps it on a list
            reason += "brought once more, it comes to the one that has the name since"
            return FileOutcome(path.text, Result.REFUSED, reason=reason)
        reason += "`quarantine retry` at its sender sends it to the one that has the name since"
        return FileOutcome(path.text, Result.QUARANTINED, reason=reason, hold=True)

    def _is_deleted(self, path: FilePath, candidate: Candidate) -> bool:
        """Whether an operator deleted this content, and nobody has said since that it is to come.

        What the centre loads itself, or takes from the directories of another one, an operator
        says.
        """
        record, staged = self._record, candidate.staged
        if record.centre is not None or record.adopted:
            return False
        deleted = deleted_by_operator(
            self._state,
            record.sender,
            path.text,
            tail=staged.tail,
            size=staged.size,
            md5=staged.md5,
        )
        planned = self._planned.get(path.text)
        if planned is None or not planned.retry:
            return deleted > 0
        return deleted > record.since > 0

    def _takes(self, owner: str) -> bool:
        """Whether devices of an owner may be in files of this task."""
        if self._task.mandate is not None:
            return self._task.mandate.takes(owner, self._record.sender)
        return owner == self._record.sender

    def _way_out(self, owner: str, candidate: Candidate) -> str | None:
        """What somebody can do whose file has a device of another one."""
        if self._task.mandate is not None and self._record.token is not None:
            return None  # whoever has a writer's token is not told whose devices there are
        if self._task.mandate is not None:
            return _say_whose(self._state, owner)
        return somebody_elses(
            self._state,
            owner,
            candidate.staged.tail,
            lambda row: same_content(row, candidate),
        )

    def _held_back(self, path: FilePath, held: FileRow | None) -> FileOutcome | None:
        """The outcome of what goes together with the ends of its partition, if these wait."""
        hold = self._task.known_holds.get(path.group)
        if hold is None or not self._task.goes_with_ends(path, held):
            return None
        return hold if hold.path == path.text else waits_for(path.text, hold)

    def _load(self, path: FilePath, candidate: Candidate, held: FileRow | None) -> FileOutcome:
        physical = physical_name(self._record.sender, self._record.task, path)
        again = held if held is not None and same_content(held, candidate) else None
        loaded = self._file_loaded(candidate, physical, again)
        too_late = self._between(path, loaded)
        if too_late is not None:
            return too_late
        before: list[records.Op] = []
        if again is not None:  # it is bad, or not on the disk: this takes its place, and its looks
            before.append(records.FileDeleted(again.physical, "replaced"))
        elif held is not None:
            before += self._paths.free(path.text)
        registers = self._task.registering.take(
            physical.text, path.sg, candidate.facts.registers, before=[*before, loaded]
        )
        if isinstance(registers, SeriesRefusal):
            if again is None and held is not None:
                self._paths.give_back(held, path.text)
            result = Result.QUARANTINED if registers.hold else Result.MISSING
            return FileOutcome(
                path.text, result, registers.device, registers.reason, hold=registers.hold
            )
        self._task.guard_owners(each.name for each in candidate.facts.devices)
        self._change.loads.append(Load(candidate, physical))
        self._change.ops += [*before, loaded, *registers]
        if again is not None:
            self._task.emit(self._paths.renew(again, physical.text))
            self._change.ops += carried(self._state.deletion_table, again, physical.text)
            self.carried[path.text] = again.physical
        self._change.ops += self._end_of_copy(path.text, loaded)
        return FileOutcome(path.text, Result.LOADED)

    def _between(self, path: FilePath, loaded: records.FileLoaded) -> FileOutcome | None:
        """The outcome of a file that comes too late: files that it stands between are one now."""
        final = between_final(self._state, loaded)
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
        entry = self._manifest[candidate.path.text]
        first, closed = entry.first_look, entry.closed_look
        mandate = self._task.mandate
        if first and not (mandate is not None and mandate.is_below):
            # What a device's new owner lists stands above all that the old one listed.
            devices = (each.name for each in candidate.facts.devices)
            closed = closed or first  # what was deleted since is deleted of it all the same
            first = max(first, last_transfer(self._state.owners, devices) + 1)
        if again is not None:
            first, closed = again.rank.first, again.rank.closed
        return records.FileLoaded(
            sender=self._record.sender,
            path=candidate.path.text if again is None else self._paths.first_of(again),
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
            task=self._record.task,
            resource=None
            if resource is None
            else records.ResourceMeta(resource.size, resource.md5),
            manifest=candidate.manifest,
            data_dir=self._task.given.data_dir,
            first_look=first,
            closed_look=closed,
            origin=origin_of(entry.origin),
            owner="" if mandate is None else mandate.owner,
            others=() if mandate is None else self._further_owners(candidate, mandate.owner),
        )

    def _further_owners(self, candidate: Candidate, owner: str) -> list[str]:
        """Those of devices of a file of a load at the centre, beside one and the centre itself."""
        rows = (self._state.owners.get(each.name) for each in candidate.facts.devices)
        found = {row.sender for row in rows if row is not None}
        return sorted(found - {owner, self._record.sender})

    def _end_of_copy(self, path: str, loaded: records.FileLoaded) -> Iterator[records.Op]:
        """What the sender has no more, and sent from a link: it ends with the commit it comes by.

        Until a later round told its end it would count as together with what took its place.
        """
        last = self._manifest[path].last_look
        if not last and not has_ended(loaded.origin):
            return
        # A look that did not get to all of a directory counts for none of it, and yet has files.
        last = last and max(last, loaded.first_look)
        row = self._paths.held(path)
        look = self._record.look
        if row is not None and self._paths.is_renewed(row):  # it may have other names, that stand
            yield from self._paths.free(path, last or max(row.first_look, look))
            return
        yield records.FileRetired(loaded.physical, last or max(loaded.first_look, look))
        if last and self._task.mirrors_from(last):
            yield records.FileDeleted(loaded.physical, "gone")


def _say_whose(state: State, owner: str) -> str:
    """The way out for a load at the centre."""
    row = state.senders.get(owner)
    label = f" ({row.label})" if row is not None and row.label else ""
    return f"if this is data of {owner}{label}: --as {owner}"


def _owned(way_out: str | None) -> str:
    reason = "the device belongs to another sender"
    return reason if way_out is None else f"{reason}; {way_out}"
