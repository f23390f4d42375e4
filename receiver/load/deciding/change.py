"""What a task changes: decided from committed state and verified files, then done in one commit.

Nothing here touches the disk or the engine, so every rule about conflicts, replacements, held and
covered deletions is in one place and is tested as a function.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common.names import FilePath
from common.wire import Propagate, Result
from receiver.load.deciding.coverage import judge_gone
from receiver.load.deciding.retired import Retired
from receiver.load.schema.registering import SeriesRefusal
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.records import FileOutcome
from receiver.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from receiver.load.deciding.expiry import Expiry
    from receiver.load.folder.current_task import Planned, TaskRecord
    from receiver.load.folder.staged import Verified
    from receiver.load.schema.registering import Registering
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Candidate", "Change", "Load", "decide_change", "physical_name"]

_GOOD = frozenset({Result.LOADED, Result.ALREADY, Result.EXPIRED})
"""Outcomes of additions that nothing has to wait for."""
_TAG_DIGITS = 16


@dataclass(frozen=True)
class Candidate:
    """A verified file as the receiver has read it.

    Attributes:
        path: at the sender.
        staged: the record of its verification.
        resource: that of its resource, if it has one.
        version: of the TsFile format.
        devices: with their ranges, in the file's order.
        registers: its series, as the schema names them.
        first: earliest time, None without points.
        last: latest time.
        series: how many.
        points: how many.
        manifest: what the sender says of it.
    """

    path: FilePath
    staged: Verified
    resource: Verified | None
    version: int
    devices: Sequence[records.DeviceRange]
    registers: Sequence[records.LoadedDevice]
    first: int | None
    last: int | None
    series: int
    points: int
    manifest: records.ManifestMeta | None

    @property
    def ranges(self) -> Iterator[tuple[str, int, int]]:
        """(device, first, last) of the devices with points."""
        for each in self.devices:
            if each.first is not None and each.last is not None:
                yield each.name, each.first, each.last


@dataclass(frozen=True)
class Load:
    """A file that is to be loaded, under its physical name."""

    candidate: Candidate
    physical: FilePath


@dataclass
class Change:
    """All that a task does.

    Attributes:
        ops: of the one commit; TaskDone is the last.
        guards: on everything that was looked at.
        outcomes: by path, in the order of the manifest, then of the deletions.
        loads: files to be moved to their final names before the commit.
        kept_gone: bytes of quarantined files that nothing refers to after the commit.
    """

    ops: list[records.Op] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    outcomes: dict[str, FileOutcome] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)
    kept_gone: list[str] = field(default_factory=list)


def physical_name(sender: str, task: str, path: FilePath) -> FilePath:
    """The name of a file of a task: always the same, so that recovery finds what was moved."""
    text = f"{sender}\n{task}\n{path.tsfile}".encode()
    return path.physical(hashlib.sha256(text).hexdigest()[:_TAG_DIGITS])


def decide_change(
    state: State,
    record: TaskRecord,
    planned: Mapping[str, Planned],
    candidates: Mapping[str, Candidate],
    failed: Mapping[str, FileOutcome],
    *,
    registering: Registering,
    expiry: Expiry | None = None,
    data_dir: str = "",
) -> Change:
    """Decide what a task does to committed state.

    Args:
        state: committed.
        record: the task, with its manifest.
        planned: what was planned in it, by path.
        candidates: the verified files of its manifest, by path.
        failed: the outcomes of those of its manifest that cannot be loaded.
        registering: of a draft of this state, new for each decision.
        expiry: which files are past their TTL, None while nothing expires.
        data_dir: the data directory that new files go to.
    """
    return _Decision(
        state, record, planned, candidates, failed, registering, expiry, data_dir
    ).make()


class _Decision:
    def __init__(
        self,
        state: State,
        record: TaskRecord,
        planned: Mapping[str, Planned],
        candidates: Mapping[str, Candidate],
        failed: Mapping[str, FileOutcome],
        registering: Registering,
        expiry: Expiry | None,
        data_dir: str,
    ) -> None:
        self.state = state
        self.record = record
        self.planned = planned
        self.candidates = candidates
        self.failed = failed
        self.registering = registering
        self.expiry = expiry
        self.data_dir = data_dir
        self.scope = Scope(record.scope)
        self.manifest = {entry.path: entry for entry in record.manifest or ()}
        self.deleted = set(record.deleted)
        self.change = Change()
        self._owners_guarded: set[str] = set()
        self._held_groups: dict[tuple[str, str, int], str] = {}
        self._retired = Retired(state, record.sender)

    def make(self) -> Change:
        change = self.change
        sender, task = self.record.sender, self.record.task
        change.guards.append(Guard("task", (sender, task), 0))
        for text in self.manifest:
            change.outcomes[text] = self._addition(FilePath.parse(text))
        self._find_held_groups()
        self._deletions()
        self._quarantine()
        outcomes = tuple(change.outcomes.values())
        change.ops.append(records.TaskDone(sender=sender, task=task, outcomes=outcomes))
        return change

    # -- additions -------------------------------------------------------------------------

    def _addition(self, path: FilePath) -> FileOutcome:
        held = self._held(path)
        candidate = self.candidates.get(path.text)
        if self._came_before(path, held, candidate):
            return FileOutcome(path.text, Result.ALREADY)
        if candidate is None:
            return self._absent(path)
        return self._refusal(path, candidate, held) or self._load(path, candidate, held)

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

        A retired file is its sender's again: it can be deleted, and be wanted again.
        """
        entry = self.manifest[path.text]
        found = candidate.staged if candidate is not None else entry

        def is_same(row: FileRow) -> bool:
            return (row.size, row.md5) == (found.size, found.md5)

        if held is not None and held.visible:
            return is_same(held)
        retired = self._retired.find(path, is_same)
        if retired is None:
            return False
        if held is not None:
            self._delete(held, "replaced")
        self.change.guards.append(Guard("file", retired.physical, retired.changed))
        self.change.ops.append(records.FileReturned(retired.physical))
        return True

    def _refusal(
        self, path: FilePath, candidate: Candidate, held: FileRow | None
    ) -> FileOutcome | None:
        planned = self.planned.get(path.text)
        replaces = path.text in self.deleted or (planned is not None and planned.replaces)
        if held is not None and held.visible and not replaces:
            return FileOutcome(path.text, Result.CONFLICT, reason="same path, other content")
        if self.expiry is not None and self.expiry.is_past(candidate.ranges):
            reason = "all its points are past the TTL of their storage groups"
            return FileOutcome(path.text, Result.EXPIRED, reason=reason)
        names = [each.name for each in candidate.devices]
        outside = self.scope.first_outside(names)
        if outside is not None:
            reason = "outside of the token's scope"
            return FileOutcome(path.text, Result.REFUSED, device=outside, reason=reason)
        for name in names:
            owner = self.state.owners.get(name)
            if owner is not None and owner.sender != self.record.sender:
                return FileOutcome(
                    path.text,
                    Result.CONFLICT,
                    device=name,
                    reason="the device belongs to another sender",
                    owner=owner.sender,
                )
        return None

    def _load(self, path: FilePath, candidate: Candidate, held: FileRow | None) -> FileOutcome:
        physical = physical_name(self.record.sender, self.record.task, path)
        loaded = self._file_loaded(candidate, physical)
        before = [] if held is None else [records.FileDeleted(held.physical, "replaced")]
        registers = self.registering.take(
            physical.text, path.sg, candidate.registers, before=[*before, loaded]
        )
        if isinstance(registers, SeriesRefusal):
            result = Result.QUARANTINED if registers.hold else Result.MISSING
            return FileOutcome(
                path.text, result, registers.device, registers.reason, hold=registers.hold
            )
        self._guard_owners(candidate)
        self.change.loads.append(Load(candidate, physical))
        self.change.ops += [*before, loaded, *registers]
        return FileOutcome(path.text, Result.LOADED)

    def _file_loaded(self, candidate: Candidate, physical: FilePath) -> records.FileLoaded:
        resource = candidate.resource
        return records.FileLoaded(
            sender=self.record.sender,
            path=candidate.path.text,
            physical=physical.text,
            size=candidate.staged.size,
            md5=candidate.staged.md5,
            tail=candidate.staged.tail,
            version=candidate.version,
            devices=candidate.devices,
            first=candidate.first,
            last=candidate.last,
            series=candidate.series,
            points=candidate.points,
            task=self.record.task,
            resource=None
            if resource is None
            else records.ResourceMeta(resource.size, resource.md5),
            manifest=candidate.manifest,
            data_dir=self.data_dir,
        )

    def _guard_owners(self, candidate: Candidate) -> None:
        for each in candidate.devices:
            if each.name not in self._owners_guarded:
                self._owners_guarded.add(each.name)
                seen = self.state.changed("owner", each.name)
                self.change.guards.append(Guard("owner", each.name, seen))

    def _held(self, path: FilePath) -> FileRow | None:
        row = self.state.file_table.held(self.record.sender, path.text)
        seen = 0 if row is None else row.changed
        self.change.guards.append(Guard("path", (self.record.sender, path.text), seen))
        return row

    # -- deletions -------------------------------------------------------------------------

    def _find_held_groups(self) -> None:
        """Partitions with an addition that did not come to be: their deletions wait."""
        for outcome in self.change.outcomes.values():
            if outcome.result not in _GOOD:
                self._held_groups.setdefault(FilePath.parse(outcome.path).group, outcome.path)
        for planned in self.planned.values():
            if planned.path in self.change.outcomes or planned.refused is Result.EXPIRED:
                continue
            path = FilePath.parse(planned.path)
            if not self._is_here(path, planned):
                self._held_groups.setdefault(path.group, planned.path)

    def _is_here(self, path: FilePath, planned: Planned) -> bool:
        """Whether a planned file that is not in the manifest was loaded before."""

        def is_same(row: FileRow) -> bool:
            return (row.size, row.tail) == (planned.size, planned.tail)

        row = self.state.file_table.live(self.record.sender, planned.path)
        if row is not None:
            return is_same(row)
        return self._retired.find(path, is_same) is not None

    def _deletions(self) -> None:
        gone: list[FileRow] = []
        for text in self.record.deleted:
            if text in self.change.outcomes:
                continue
            path = FilePath.parse(text)
            row = self._held(path)
            outcome = self._deletion(path, row)
            if outcome is not None:
                self.change.outcomes[text] = outcome
            elif row is not None:
                gone.append(row)
        verdict = judge_gone(gone, self._staying(gone), self._loaded_ops())
        for row in verdict.covered:
            self.change.outcomes[row.path] = self._delete(row, "superseded")
        for row in verdict.needed:
            self.change.outcomes[row.path] = self._retire(row)

    def _deletion(self, path: FilePath, row: FileRow | None) -> FileOutcome | None:
        """What becomes of a path that is gone; None where other files decide."""
        if row is None:
            return FileOutcome(path.text, Result.DELETED)
        if path.text in self.planned:
            return FileOutcome(path.text, Result.HELD, reason="its new content was not received")
        if self.record.propagate is Propagate.NEVER:
            return self._retire(row)
        waits_for = self._held_groups.get(path.group)
        if waits_for is not None:
            reason = f"waits for {waits_for}, an addition of the same partition"
            return FileOutcome(path.text, Result.HELD, reason=reason)
        if self.record.propagate is Propagate.ALL:
            return self._delete(row, "gone")
        return None

    def _staying(self, gone: list[FileRow]) -> list[FileRow]:
        """The other visible files of this sender in the partitions of files that are gone."""
        leaving = {row.physical for row in gone}
        leaving |= {op.physical for op in self.change.ops if isinstance(op, records.FileDeleted)}
        return [
            row
            for group in {row.parsed.group for row in gone}
            for row in self.state.file_table.partition(*group)
            if row.sender == self.record.sender and row.physical not in leaving
        ]

    def _loaded_ops(self) -> list[records.FileLoaded]:
        return [op for op in self.change.ops if isinstance(op, records.FileLoaded)]

    def _delete(self, row: FileRow, reason: records.DeletionReason) -> FileOutcome:
        self.change.ops.append(records.FileDeleted(row.physical, reason))
        return FileOutcome(row.path, Result.DELETED)

    def _retire(self, row: FileRow) -> FileOutcome:
        self.change.ops.append(records.FileRetired(row.physical))
        return FileOutcome(row.path, Result.RETIRED)

    # -- quarantine ------------------------------------------------------------------------

    def _quarantine(self) -> None:
        """Enter what was refused; clear what is loaded, gone, or has other content by now."""
        for path, outcome in list(self.change.outcomes.items()):
            entry = self._entry(path, outcome)
            if entry is not None:
                self._put(entry)
            elif outcome.result in (*_GOOD, Result.DELETED, Result.RETIRED):
                self._clear(path, keep=None)
        for planned in self.planned.values():
            if planned.path in self.change.outcomes or planned.refused is not Result.CONFLICT:
                continue
            self._put(
                records.QuarantinePut(
                    sender=self.record.sender,
                    path=planned.path,
                    digest=planned.tail,
                    size=planned.size,
                    hold=False,
                    reason=planned.reason or "conflict",
                    device=planned.device,
                )
            )

    def _entry(self, path: str, outcome: FileOutcome) -> records.QuarantinePut | None:
        candidate = self.candidates.get(path)
        if outcome.result not in (Result.CONFLICT, Result.REFUSED, Result.QUARANTINED):
            return None
        planned = self.planned.get(path)
        if candidate is None and planned is None:
            return None
        found: Verified | Planned | None = candidate.staged if candidate else planned
        assert found is not None
        return records.QuarantinePut(
            sender=self.record.sender,
            path=path,
            digest=found.tail,
            size=found.size,
            hold=outcome.hold,
            reason=outcome.reason or str(outcome.result),
            device=outcome.device,
        )

    def _put(self, entry: records.QuarantinePut) -> None:
        known = self.state.quarantine.get((entry.sender, entry.path, entry.digest))
        if known is not None and known.hold:
            return  # the operator's word stands
        self._clear(entry.path, keep=entry.digest)
        if known is None or (known.reason, known.device) != (entry.reason, entry.device):
            self.change.ops.append(entry)

    def _clear(self, path: str, *, keep: str | None) -> None:
        for row in self.state.quarantine_table.at_path(self.record.sender, path):
            if row.digest != keep:
                key = (row.sender, row.path, row.digest)
                self.change.guards.append(Guard("quarantine", key, row.changed))
                self.change.ops.append(records.QuarantineDrop(*key))
                if row.kept is not None:
                    self.change.kept_gone.append(row.kept)
