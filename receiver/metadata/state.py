"""What the engine knows, in memory: tables that commits are applied to, and questions about them.

`State.apply` takes a commit as true: it was checked (`receiver.metadata.rules`) and is on the disk.
The same log always gives the same state. The engine guards every use; see `Engine.reading`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from receiver.metadata import records
from receiver.metadata.ranges import DeviceTable
from receiver.metadata.rows import (
    FileRow,
    FileState,
    OwnerRow,
    QuarantineRow,
    SenderRow,
    TaskRow,
    TokenRow,
    encode_outcomes,
)
from receiver.metadata.sortedkeys import SortedKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FileRow",
    "FileState",
    "GroupKey",
    "OwnerChange",
    "OwnerRow",
    "QuarantineRow",
    "SenderRow",
    "State",
    "TaskRow",
    "TokenRow",
    "Totals",
]

KEPT_TASKS = 256
"""Tasks of a sender whose outcome is kept; a sender asks for its last one, or the one before."""
KEPT_OUTCOMES = 100_000
"""Outcomes kept for one sender: beyond them the oldest tasks go, the newest never."""
_NO_TIME = -(1 << 63)


class GroupKey(NamedTuple):
    """What a list of files in time order is kept for."""

    kind: str
    sg: str
    vsg: str
    partition: str

    @classmethod
    def of(cls, path: str) -> GroupKey:
        """The group of a checked path."""
        return cls._make(path.split("/", 4)[:4])


class OwnerChange(NamedTuple):
    """A device that got an owner, another owner, or none."""

    ts: int
    device: str
    sender: str | None
    reason: str


class Totals(NamedTuple):
    """Visible files."""

    files: int
    size: int


class State:
    """The tables as of the commit `newest`.

    Attributes:
        uuid: of the engine.
        newest: timestamp of the last commit, 0 before the first.
        senders: by uuid.
        tokens: by id; a revoked one is gone.
        owners: by device.
        files: by physical path, those too that are deleted and not yet forgotten.
        quarantine: by (sender, path, digest).
        ownership_changed: timestamp of the last commit that changed `owners`.
        on_owner: called with each change of ownership as it is applied.
    """

    def __init__(self) -> None:
        self.uuid = ""
        self.newest = 0
        self.senders: dict[str, SenderRow] = {}
        self.tokens: dict[str, TokenRow] = {}
        self.owners: dict[str, OwnerRow] = {}
        self.files: dict[str, FileRow] = {}
        self.quarantine: dict[tuple[str, str, str], QuarantineRow] = {}
        self.ownership_changed = 0
        self.on_owner: Callable[[OwnerChange], None] | None = None
        self._groups: dict[GroupKey, list[tuple[int, int, str]]] = {}
        self._devices = DeviceTable()
        self._tasks: dict[str, OrderedDict[str, TaskRow]] = {}
        self._kept_outcomes: dict[str, int] = {}
        self._token_of_hash: dict[str, str] = {}
        self._directories: dict[str, str] = {}
        self._at_path: dict[tuple[str, str], str] = {}
        self._inventories: dict[str, SortedKeys] = {}
        self._catalogue = SortedKeys()
        self._totals: dict[str, list[int]] = {}
        self._deleted: dict[str, None] = {}
        self._wanted: dict[str, dict[str, None]] = {}
        self._quarantine_at: dict[tuple[str, str], set[str]] = {}

    # -- questions ---------------------------------------------------------------------------

    def token_by_hash(self, digest: str) -> TokenRow | None:
        """The token with this SHA-256, whether expired or not."""
        found = self._token_of_hash.get(digest)
        return None if found is None else self.tokens[found]

    def sender_of_directory(self, directory: str) -> SenderRow | None:
        """Whose folder beneath `sync-receiver/` this is."""
        found = self._directories.get(directory)
        return None if found is None else self.senders[found]

    def held(self, sender: str, path: str) -> FileRow | None:
        """The file that takes this path of a sender: live, or in quarantine after its load."""
        found = self._at_path.get((sender, path))
        return None if found is None else self.files[found]

    def live(self, sender: str, path: str) -> FileRow | None:
        """The live file at this path of a sender."""
        found = self.held(sender, path)
        return found if found is not None and found.state is FileState.LIVE else None

    def inventory(self, sender: str, after: str | None, limit: int) -> list[FileRow]:
        """A page of the files that take a path of the sender, by path, from behind `after`."""
        keys = self._inventories.get(sender)
        if keys is None:
            return []
        return [self.files[self._at_path[sender, path]] for path in keys.page(after, limit)]

    def catalogue(self, after: str | None, limit: int) -> list[FileRow]:
        """A page of all visible files, retired ones too, by physical path, from behind `after`."""
        return [self.files[each] for each in self._catalogue.page(after, limit)]

    def wanted(self, sender: str) -> list[FileRow]:
        """Files that the sender once sent and should send again: loaded, then found bad."""
        return [self.files[each] for each in self._wanted.get(sender, ())]

    def deleted(self) -> list[FileRow]:
        """Deleted files whose bytes may still be on the disk, the longest deleted first."""
        return [self.files[each] for each in self._deleted]

    def groups(self) -> list[GroupKey]:
        """Groups that have a visible file."""
        return list(self._groups)

    def group(self, key: GroupKey) -> list[FileRow]:
        """The visible files of a group, in order of (first, last, physical)."""
        return [self.files[physical] for _, _, physical in self._groups.get(key, ())]

    def partition(self, sg: str, vsg: str, partition: int | str) -> list[FileRow]:
        """The visible files of a partition, sequence then unsequence, whoever sent them."""
        return [
            row
            for kind in ("sequence", "unsequence")
            for row in self.group(GroupKey(kind, sg, vsg, str(partition)))
        ]

    def task(self, sender: str, task: str) -> TaskRow | None:
        """A task that is done, if it is among the last ones of its sender."""
        tasks = self._tasks.get(sender)
        return None if tasks is None else tasks.get(task)

    def has_task(self, sender: str, task: str) -> bool:
        """Whether the task is done, as far as is remembered."""
        return self.task(sender, task) is not None

    def quarantined(self, sender: str, path: str) -> list[QuarantineRow]:
        """The quarantine entries of a path."""
        digests = self._quarantine_at.get((sender, path), ())
        return [self.quarantine[sender, path, digest] for digest in sorted(digests)]

    def totals(self, sender: str | None = None) -> Totals:
        """Number and bytes of the visible files of a sender, or of all."""
        if sender is not None:
            return Totals._make(self._totals.get(sender, (0, 0)))
        every = self._totals.values()
        return Totals(sum(files for files, _ in every), sum(size for _, size in every))

    def changed(self, table: str, key: Any) -> int:
        """The commit that a row is from, 0 if there is none; `Guard` says what a key is."""
        row = _ROWS[table](self, key)
        return 0 if row is None else row.changed

    # -- commits -----------------------------------------------------------------------------

    def apply(self, commit: records.Commit) -> None:
        """Make a commit true."""
        for op in commit.ops:
            _APPLY[type(op)](self, op, commit.ts)
        self.newest = commit.ts

    def _made(self, op: records.EngineMade, ts: int) -> None:
        self.uuid = op.uuid

    def _sender_seen(self, op: records.SenderSeen, ts: int) -> None:
        known = self.senders.get(op.uuid)
        if known is None:
            row = SenderRow(
                uuid=op.uuid,
                label=op.label,
                directory=op.directory,
                first_seen=ts,
                created=ts,
                changed=ts,
            )
        else:
            row = msgspec.structs.replace(known, label=op.label, changed=ts)
        self.senders[op.uuid] = row
        self._directories[op.directory] = op.uuid

    def _epoch_set(self, op: records.EpochSet, ts: int) -> None:
        self.senders[op.sender] = msgspec.structs.replace(
            self.senders[op.sender],
            epoch=op.current,
            previous=op.previous,
            epoch_task=op.task,
            confirmed=op.confirmed,
            changed=ts,
        )

    def _token_put(self, op: records.TokenPut, ts: int) -> None:
        self.tokens[op.id] = TokenRow(
            id=op.id,
            role=op.role,
            hash=op.hash,
            sender=op.sender,
            scope=tuple(op.scope),
            note=op.note,
            expires=op.expires,
            created=ts,
            changed=ts,
        )
        self._token_of_hash[op.hash] = op.id

    def _token_revoke(self, op: records.TokenRevoke, ts: int) -> None:
        del self._token_of_hash[self.tokens.pop(op.id).hash]

    # -- owners --

    def _owner_set(self, op: records.OwnerSet, ts: int) -> None:
        device = self._devices.name(op.device)
        known = self.owners.get(device)
        if op.sender is None:
            del self.owners[device]
        else:
            created = ts if known is None else known.created
            self.owners[device] = OwnerRow(sender=op.sender, created=created, changed=ts)
        self._owner_changed(OwnerChange(ts, device, op.sender, op.reason))

    def _claim(self, sender: str, devices: Sequence[records.DeviceRange], ts: int) -> None:
        owners = self.owners
        row: OwnerRow | None = None
        for each in devices:
            if each.name not in owners:
                device = self._devices.name(each.name)
                row = row or OwnerRow(sender=sender, created=ts, changed=ts)
                owners[device] = row
                self._owner_changed(OwnerChange(ts, device, sender, "first load"))

    def _owner_changed(self, change: OwnerChange) -> None:
        self.ownership_changed = change.ts
        if self.on_owner is not None:
            self.on_owner(change)

    # -- files --

    def _file_loaded(self, op: records.FileLoaded, ts: int) -> None:
        devices = self._devices.pack(op.devices, op.first, op.last)
        row = FileRow(
            sender=intern(op.sender),
            path=op.path,
            physical=op.physical,
            size=op.size,
            md5=op.md5,
            tail=op.tail,
            version=op.version,
            devices=devices,
            first=op.first,
            last=op.last,
            series=op.series,
            points=op.points,
            task=intern(op.task),
            resource=op.resource,
            manifest=op.manifest,
            data_dir=intern(op.data_dir),
            state=FileState.LIVE,
            created=ts,
            changed=ts,
        )
        self.files[op.physical] = row
        self._at_path[op.sender, op.path] = op.physical
        self._inventory(op.sender).add(op.path)
        self._show(row)
        self._claim(op.sender, op.devices, ts)

    def _file_deleted(self, op: records.FileDeleted, ts: int) -> None:
        row = self.files[op.physical]
        self._hide(row)
        self._free_path(row)
        self.files[op.physical] = msgspec.structs.replace(
            row,
            state=FileState.DELETED,
            reason=op.reason,
            devices=row.devices.without_ranges(),
            deleted=ts,
            changed=ts,
        )
        self._deleted[op.physical] = None

    def _file_retired(self, op: records.FileRetired, ts: int) -> None:
        row = self.files[op.physical]
        self._free_path(row)
        state = FileState.RETIRED if row.visible else row.state
        self.files[op.physical] = msgspec.structs.replace(
            row, state=state, retired=True, changed=ts
        )

    def _file_returned(self, op: records.FileReturned, ts: int) -> None:
        row = self.files[op.physical]
        self._at_path[row.sender, row.path] = op.physical
        self._inventory(row.sender).add(row.path)
        self.files[op.physical] = msgspec.structs.replace(
            row, state=FileState.LIVE, retired=False, changed=ts
        )

    def _file_quarantined(self, op: records.FileQuarantined, ts: int) -> None:
        row = self.files[op.physical]
        self._hide(row)
        self.files[op.physical] = msgspec.structs.replace(
            row, state=FileState.QUARANTINED, reason=op.reason, changed=ts
        )
        if not row.retired:
            self._wanted.setdefault(row.sender, {})[op.physical] = None

    def _file_restored(self, op: records.FileRestored, ts: int) -> None:
        row = self.files[op.physical]
        state = FileState.RETIRED if row.retired else FileState.LIVE
        restored = msgspec.structs.replace(row, state=state, reason=None, changed=ts)
        self.files[op.physical] = restored
        self._unwant(row)
        self._show(restored)

    def _file_forgotten(self, op: records.FileForgotten, ts: int) -> None:
        del self.files[op.physical]
        del self._deleted[op.physical]

    def _show(self, row: FileRow) -> None:
        self._catalogue.add(row.physical)
        key = GroupKey.of(row.physical)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = []
        insort(group, _order(row))
        self._count(row, 1)

    def _hide(self, row: FileRow) -> None:
        if not row.visible:
            return
        self._catalogue.remove(row.physical)
        key = GroupKey.of(row.physical)
        group = self._groups[key]
        del group[bisect_left(group, _order(row))]
        if not group:
            del self._groups[key]
        self._count(row, -1)

    def _count(self, row: FileRow, sign: int) -> None:
        totals = self._totals.setdefault(row.sender, [0, 0])
        totals[0] += sign
        totals[1] += sign * row.size

    def _free_path(self, row: FileRow) -> None:
        self._unwant(row)
        if row.held:
            del self._at_path[row.sender, row.path]
            self._inventory(row.sender).remove(row.path)

    def _unwant(self, row: FileRow) -> None:
        self._wanted.get(row.sender, {}).pop(row.physical, None)

    def _inventory(self, sender: str) -> SortedKeys:
        keys = self._inventories.get(sender)
        if keys is None:
            keys = self._inventories[sender] = SortedKeys()
        return keys

    # -- tasks and quarantine --

    def _task_done(self, op: records.TaskDone, ts: int) -> None:
        self.senders[op.sender] = msgspec.structs.replace(
            self.senders[op.sender], last_task=op.task, last_commit=ts, changed=ts
        )
        tasks = self._tasks.setdefault(op.sender, OrderedDict())
        tasks[op.task] = TaskRow(
            sender=op.sender,
            task=op.task,
            count=len(op.outcomes),
            encoded=encode_outcomes(op.outcomes),
            created=ts,
            changed=ts,
        )
        kept = self._kept_outcomes.get(op.sender, 0) + len(op.outcomes)
        while len(tasks) > 1 and (len(tasks) > KEPT_TASKS or kept > KEPT_OUTCOMES):
            kept -= tasks.popitem(last=False)[1].count
        self._kept_outcomes[op.sender] = kept

    def _quarantine_put(self, op: records.QuarantinePut, ts: int) -> None:
        key = (op.sender, op.path, op.digest)
        known = self.quarantine.get(key)
        self.quarantine[key] = QuarantineRow(
            sender=op.sender,
            path=op.path,
            digest=op.digest,
            size=op.size,
            hold=op.hold,
            reason=op.reason,
            kept=op.kept,
            device=op.device,
            created=ts if known is None else known.created,
            changed=ts,
        )
        self._quarantine_at.setdefault((op.sender, op.path), set()).add(op.digest)

    def _quarantine_drop(self, op: records.QuarantineDrop, ts: int) -> None:
        del self.quarantine[op.sender, op.path, op.digest]
        digests = self._quarantine_at[op.sender, op.path]
        digests.remove(op.digest)
        if not digests:
            del self._quarantine_at[op.sender, op.path]


def _order(row: FileRow) -> tuple[int, int, str]:
    first = _NO_TIME if row.first is None else row.first
    last = _NO_TIME if row.last is None else row.last
    return first, last, row.physical


_APPLY: dict[type, Callable[[State, Any, int], None]] = {
    records.EngineMade: State._made,
    records.SenderSeen: State._sender_seen,
    records.EpochSet: State._epoch_set,
    records.TokenPut: State._token_put,
    records.TokenRevoke: State._token_revoke,
    records.OwnerSet: State._owner_set,
    records.FileLoaded: State._file_loaded,
    records.FileDeleted: State._file_deleted,
    records.FileRetired: State._file_retired,
    records.FileReturned: State._file_returned,
    records.FileQuarantined: State._file_quarantined,
    records.FileRestored: State._file_restored,
    records.FileForgotten: State._file_forgotten,
    records.TaskDone: State._task_done,
    records.QuarantinePut: State._quarantine_put,
    records.QuarantineDrop: State._quarantine_drop,
}

_ROWS: dict[str, Callable[[State, Any], Any]] = {
    "owner": lambda state, key: state.owners.get(key),
    "file": lambda state, key: state.files.get(key),
    "path": lambda state, key: state.held(*key),
    "sender": lambda state, key: state.senders.get(key),
    "token": lambda state, key: state.tokens.get(key),
    "quarantine": lambda state, key: state.quarantine.get(key),
    "task": lambda state, key: state.task(*key),
}
