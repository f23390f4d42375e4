"""The rules that a commit must keep, checked before anything of it is logged.

`examine` plays the operations of one commit on a draft over committed state, so that what stands
earlier in the commit counts for what follows (a replacement is a deletion, then a load). It gives
back the keys that the commit looked at and those that it changes; the committer lets a commit wait
that looks at what an earlier one of the same batch changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from common.digests import is_md5
from common.errors import ConflictError, NameRefusedError
from common.names import FilePath, is_sender_uuid, is_task_id
from receiver.metadata.commit.schema_rules import SchemaRules
from receiver.metadata.commit.touched import Key, Touched
from receiver.metadata.model import records
from receiver.metadata.model.errors import MemoryLimitError, RefusedCommitError
from receiver.metadata.model.snapshot_kv import check_keys, check_prefixes
from receiver.metadata.state.rows import FileState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.state.state import State

__all__ = ["examine"]

T = TypeVar("T")

_HEX64 = re.compile(r"[0-9a-f]{64}\Z")
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class _File:
    """What the rules need to know of a file."""

    sender: str
    path: str
    state: FileState
    retired: bool

    @property
    def held(self) -> bool:
        return self.state is not FileState.DELETED and not self.retired


def examine(state: State, ops: Sequence[records.Op], *, pending: int = 0) -> Touched:
    """Check the operations of a commit, in their order.

    Args:
        state: committed state; `max_memory` of it is the limit for what the schema may take.
        ops: of the commit.
        pending: bytes that earlier commits of the same batch let the schema grow by.

    Raises:
        ConflictError: a file holds a device of another owner (`extra`: device, path), or a series
            of another type (`SchemaConflictError`).
        MemoryLimitError: the schema would take more memory than it may.
        RefusedCommitError: another rule is broken; the message names the operation or the object.
        IllegalPathError: a path is none.
    """
    if not ops:
        raise RefusedCommitError("there is nothing to commit")
    if len(ops) == 1 and type(ops[0]) is records.SeriesCreated:
        # Most commits of many threads: the other tables have no part in it.
        touched = Touched()
        SchemaRules(state.schema, touched, keeps=False).series_created(ops[0])
    else:
        touched = _examine(state, ops)
    if state.max_memory is not None:
        _check_memory(state, state.max_memory, ops, touched, pending)
    return touched


def _examine(state: State, ops: Sequence[records.Op]) -> Touched:
    draft = _Draft(state)
    rules, last = _RULES, len(ops) - 1
    for number, op in enumerate(ops):
        rule = rules.get(type(op))
        if rule is None:
            raise RefusedCommitError(f"{type(op).__name__} is not for callers to commit")
        draft.schema.keeps = number != last
        rule(draft, op)
    return draft.touched


def _check_memory(
    state: State, limit: int, ops: Sequence[records.Op], touched: Touched, pending: int
) -> None:
    schema = state.schema
    touched.cost = sum(schema.cost_of(op) for op in ops if type(op) in _GROWING)
    used = schema.memory() + pending
    if touched.cost > 0 and used + touched.cost > limit:
        raise MemoryLimitError(
            f"{_grown(ops)} would take {touched.cost} bytes more; the schema takes {used} of the "
            f"{limit} that it may (max_memory). Delete series, or raise the limit",
            extra={"limit": limit, "used": used, "needed": touched.cost},
        )


def _grown(ops: Sequence[records.Op]) -> str:
    for op in ops:
        if isinstance(op, records.SeriesCreated):
            return f"{len(op.names)} series of {op.device}"
        if isinstance(op, records.SeriesLoaded):
            return f"the series of {op.physical}"
    for op in ops:
        if isinstance(op, records.StorageGroupSet):
            return f"the storage group {op.path}"
    return "the commit"


class _Draft:
    """Committed state with the changes of one commit over it."""

    __slots__ = ("_changes", "_state", "schema", "touched")

    def __init__(self, state: State) -> None:
        self._state = state
        self._changes: dict[Key, Any] = {}
        self.touched = Touched()
        self.schema = SchemaRules(state.schema, self.touched)

    def _get(self, key: Key, committed: Callable[[], T]) -> T:
        if key in self._changes:
            found: T = self._changes[key]
            return found
        self.touched.read.add(key)
        return committed()

    def _put(self, key: Key, value: object) -> None:
        self._changes[key] = value
        self.touched.written.add(key)

    # -- tables --

    def knows_sender(self, uuid: str) -> bool:
        return self._get(("sender", uuid), lambda: uuid in self._state.senders)

    def need_sender(self, uuid: str, op: records.Op) -> None:
        if not self.knows_sender(uuid):
            raise _refusal(op, f"sender {uuid} is not known")

    def directory(self, name: str) -> str | None:
        def committed() -> str | None:
            row = self._state.sender_of_directory(name)
            return None if row is None else row.uuid

        return self._get(("directory", name), committed)

    def owner(self, device: str) -> str | None:
        def committed() -> str | None:
            row = self._state.owners.get(device)
            return None if row is None else row.sender

        return self._get(("owner", device), committed)

    def need_file(self, physical: str, op: records.Op, *states: FileState) -> _File:
        found = self.file(physical)
        if found is None:
            raise _refusal(op, f"there is no file {physical}")
        if found.state not in states:
            raise _refusal(op, f"{physical} is {found.state}")
        return found

    def file(self, physical: str) -> _File | None:
        def committed() -> _File | None:
            row = self._state.files.get(physical)
            return None if row is None else _File(row.sender, row.path, row.state, row.retired)

        return self._get(("file", physical), committed)

    def put_file(self, physical: str, file: _File) -> None:
        self._put(("file", physical), file)
        self._put(("path", file.sender, file.path), physical if file.held else None)

    def held(self, sender: str, path: str) -> str | None:
        def committed() -> str | None:
            row = self._state.held(sender, path)
            return None if row is None else row.physical

        return self._get(("path", sender, path), committed)

    def token_hash(self, ident: str) -> str | None:
        def committed() -> str | None:
            row = self._state.tokens.get(ident)
            return None if row is None else row.hash

        return self._get(("token", ident), committed)

    def token_of_hash(self, digest: str) -> str | None:
        def committed() -> str | None:
            row = self._state.token_by_hash(digest)
            return None if row is None else row.id

        return self._get(("hash", digest), committed)

    def is_done(self, sender: str, task: str) -> bool:
        return self._get(("task", sender, task), lambda: self._state.has_task(sender, task))

    def is_quarantined(self, key: tuple[str, str, str]) -> bool:
        return self._get(("quarantine", *key), lambda: key in self._state.quarantine)

    # -- rules --

    def sender_seen(self, op: records.SenderSeen) -> None:
        if not is_sender_uuid(op.uuid):
            raise _refusal(op, f"{op.uuid!a} is no sender uuid")
        there = self.directory(op.directory)
        if there not in (None, op.uuid):
            raise _refusal(op, f"the directory {op.directory!a} is that of sender {there}")
        if self.knows_sender(op.uuid) and there is None:
            raise _refusal(op, f"sender {op.uuid} has another directory than {op.directory!a}")
        self._put(("sender", op.uuid), True)
        self._put(("directory", op.directory), op.uuid)

    def epoch_set(self, op: records.EpochSet) -> None:
        self.need_sender(op.sender, op)
        self._put(("sender", op.sender), True)

    def token_put(self, op: records.TokenPut) -> None:
        if op.role not in ("sender", "reader", "operator"):
            raise _refusal(op, f"{op.role!a} is no role")
        if (op.role == "sender") is not (op.sender is not None):
            raise _refusal(op, "a sender's token, and no other, is bound to a sender")
        if op.sender is not None and not is_sender_uuid(op.sender):
            raise _refusal(op, f"{op.sender!a} is no sender uuid")
        if op.expires is not None and not math.isfinite(op.expires):
            raise _refusal(op, f"{op.expires} is no time to expire at")
        if not _HEX64.match(op.hash):
            raise _refusal(op, "the hash is not 64 hex digits")
        if not op.id or self.token_hash(op.id) is not None:
            raise _refusal(op, f"a token {op.id!a} is there already")
        if self.token_of_hash(op.hash) is not None:
            raise _refusal(op, "another token has the same hash")
        self._put(("token", op.id), op.hash)
        self._put(("hash", op.hash), op.id)

    def token_revoke(self, op: records.TokenRevoke) -> None:
        digest = self.token_hash(op.id)
        if digest is None:
            raise _refusal(op, f"there is no token {op.id!a}")
        self._put(("token", op.id), None)
        self._put(("hash", digest), None)

    def owner_set(self, op: records.OwnerSet) -> None:
        if not op.device:
            raise _refusal(op, "the device has no name")
        if op.sender is not None:
            self.need_sender(op.sender, op)
        elif self.owner(op.device) is None:
            raise _refusal(op, f"nobody owns {op.device!a}")
        self._put(("owner", op.device), op.sender)

    def file_loaded(self, op: records.FileLoaded) -> None:
        self.need_sender(op.sender, op)
        _check_names(op)
        _check_content(op)
        if self.file(op.physical) is not None:
            raise _refusal(op, f"the name {op.physical} is taken")
        there = self.held(op.sender, op.path)
        if there is not None:
            raise _refusal(op, f"{op.path} is loaded already, as {there}")
        for device in op.devices:
            owner = self.owner(device.name)
            if owner is None:
                self._put(("owner", device.name), op.sender)
            elif owner != op.sender:
                raise ConflictError(
                    f"{op.path}: the device {device.name} belongs to another sender",
                    extra={"device": device.name, "path": op.path, "owner": owner},
                )
        self.put_file(op.physical, _File(op.sender, op.path, FileState.LIVE, retired=False))

    def file_deleted(self, op: records.FileDeleted) -> None:
        file = self.need_file(op.physical, op, *_THERE)
        if file.held:
            self._put(("path", file.sender, file.path), None)
        gone = _File(file.sender, file.path, FileState.DELETED, file.retired)
        self._put(("file", op.physical), gone)

    def file_retired(self, op: records.FileRetired) -> None:
        file = self.need_file(op.physical, op, FileState.LIVE, FileState.QUARANTINED)
        if file.retired:
            raise _refusal(op, f"{op.physical} is retired already")
        state = FileState.RETIRED if file.state is FileState.LIVE else file.state
        self.put_file(op.physical, _File(file.sender, file.path, state, retired=True))

    def file_returned(self, op: records.FileReturned) -> None:
        file = self.need_file(op.physical, op, FileState.RETIRED)
        there = self.held(file.sender, file.path)
        if there is not None:
            raise _refusal(op, f"{file.path} is loaded already, as {there}")
        self.put_file(op.physical, _File(file.sender, file.path, FileState.LIVE, retired=False))

    def file_quarantined(self, op: records.FileQuarantined) -> None:
        file = self.need_file(op.physical, op, FileState.LIVE, FileState.RETIRED)
        changed = _File(file.sender, file.path, FileState.QUARANTINED, file.retired)
        self._put(("file", op.physical), changed)

    def file_verified(self, op: records.FileVerified) -> None:
        if not op.physicals or len(set(op.physicals)) != len(op.physicals):
            raise _refusal(op, "there is no file, or one twice")
        for physical in op.physicals:
            file = self.need_file(physical, op, FileState.LIVE, FileState.RETIRED)
            self._put(("file", physical), file)

    def file_restored(self, op: records.FileRestored) -> None:
        file = self.need_file(op.physical, op, FileState.QUARANTINED)
        state = FileState.RETIRED if file.retired else FileState.LIVE
        self._put(("file", op.physical), _File(file.sender, file.path, state, file.retired))

    def file_forgotten(self, op: records.FileForgotten) -> None:
        self.need_file(op.physical, op, FileState.DELETED)
        self._put(("file", op.physical), None)

    def task_done(self, op: records.TaskDone) -> None:
        self.need_sender(op.sender, op)
        if not is_task_id(op.task):
            raise _refusal(op, f"{op.task!a} is no task id")
        if self.is_done(op.sender, op.task):
            raise _refusal(op, f"task {op.task} is done already")
        self._put(("task", op.sender, op.task), True)
        self._put(("sender", op.sender), True)

    def quarantine_put(self, op: records.QuarantinePut) -> None:
        self.need_sender(op.sender, op)
        _parse(op, op.path)
        self._put(("quarantine", op.sender, op.path, op.digest), True)

    def quarantine_drop(self, op: records.QuarantineDrop) -> None:
        if not self.is_quarantined((op.sender, op.path, op.digest)):
            raise _refusal(op, f"{op.path!a} of {op.sender} is not in quarantine with this digest")
        self._put(("quarantine", op.sender, op.path, op.digest), False)

    def series_loaded(self, op: records.SeriesLoaded) -> None:
        file = self.need_file(op.physical, op, *_THERE)
        self.schema.series_loaded(op, file.path, file.sender)

    def schema_synced(self, op: records.SchemaSynced) -> None:
        self.need_sender(op.sender, op)
        if not op.identity or min(op.offset, op.applied, op.unapplied) < 0:
            raise _refusal(op, f"{op.identity!a} {op.offset} is no position in a schema log")
        if max(op.offset, op.applied, op.unapplied) not in _INT64:
            raise _refusal(op, f"the position {op.offset} is out of range")
        self._put(("schema_position", op.sender), True)

    def keys_written(self, op: records.KeysWritten) -> None:
        check_prefixes(op.removals)
        check_keys(op.saves)
        if not op.removals and not op.saves:
            raise _refusal(op, "there is nothing to write")
        self.touched.written.update([("key", key) for key in op.saves])
        # Which keys a prefix removes is not known here, and a guard may be on any of them.
        self.touched.exclusive |= bool(op.removals)


def _check_names(op: records.FileLoaded) -> None:
    path, physical = _parse(op, op.path), _parse(op, op.physical)
    if path.directory != physical.directory:
        raise _refusal(op, f"{op.physical} is not in the directory of {op.path}")


def _check_content(op: records.FileLoaded) -> None:
    numbers = (op.size, op.series, op.points)
    if any(not 0 <= each < _INT64.stop for each in numbers):
        raise _refusal(op, f"{op.path} has a size or count out of range")
    if not is_md5(op.md5):
        raise _refusal(op, f"{op.path}: {op.md5!a} is no MD5")
    if not _is_range(op.first, op.last):
        raise _refusal(op, f"{op.path}: {op.first} to {op.last} is no range of time")
    names = {each.name for each in op.devices}
    if len(names) != len(op.devices) or "" in names:
        raise _refusal(op, f"{op.path} has a device twice, or one without a name")
    for each in op.devices:
        inside = _is_range(each.first, each.last) and (
            each.first is None or _within(each.first, each.last, op.first, op.last)
        )
        if not inside:
            raise _refusal(
                op,
                f"{op.path}: device {each.name} has {each.first} to {each.last}, "
                f"the file {op.first} to {op.last}",
            )


def _is_range(first: int | None, last: int | None) -> bool:
    if first is None or last is None:
        return first is last
    return first <= last and first in _INT64 and last in _INT64


def _within(first: int, last: int | None, begin: int | None, end: int | None) -> bool:
    assert last is not None
    return begin is not None and end is not None and begin <= first and last <= end


def _parse(op: records.Op, path: str) -> FilePath:
    try:
        parsed = FilePath.parse(path)
    except NameRefusedError as error:
        raise _refusal(op, error.message) from error
    if parsed.is_resource:
        raise _refusal(op, f"{path} is a resource, not a TsFile")
    return parsed


def _refusal(op: records.Op, why: str) -> RefusedCommitError:
    return RefusedCommitError(f"{type(op).__name__}: {why}")


_THERE = (FileState.LIVE, FileState.RETIRED, FileState.QUARANTINED)
_RULES: dict[type, Callable[[_Draft, Any], None]] = {
    records.SenderSeen: _Draft.sender_seen,
    records.EpochSet: _Draft.epoch_set,
    records.TokenPut: _Draft.token_put,
    records.TokenRevoke: _Draft.token_revoke,
    records.OwnerSet: _Draft.owner_set,
    records.FileLoaded: _Draft.file_loaded,
    records.FileDeleted: _Draft.file_deleted,
    records.FileRetired: _Draft.file_retired,
    records.FileReturned: _Draft.file_returned,
    records.FileQuarantined: _Draft.file_quarantined,
    records.FileRestored: _Draft.file_restored,
    records.FileVerified: _Draft.file_verified,
    records.FileForgotten: _Draft.file_forgotten,
    records.TaskDone: _Draft.task_done,
    records.QuarantinePut: _Draft.quarantine_put,
    records.QuarantineDrop: _Draft.quarantine_drop,
    records.StorageGroupSet: lambda draft, op: draft.schema.storage_group_set(op),
    records.StorageGroupDeleted: lambda draft, op: draft.schema.storage_group_deleted(op),
    records.TtlSet: lambda draft, op: draft.schema.ttl_set(op),
    records.SeriesCreated: lambda draft, op: draft.schema.series_created(op),
    records.SeriesDeleted: lambda draft, op: draft.schema.series_deleted(op),
    records.AliasSet: lambda draft, op: draft.schema.alias_set(op),
    records.TagsSet: lambda draft, op: draft.schema.tags_set(op),
    records.SeriesLoaded: _Draft.series_loaded,
    records.SchemaSynced: _Draft.schema_synced,
    records.KeysWritten: _Draft.keys_written,
}
_GROWING = (records.StorageGroupSet, records.SeriesCreated, records.SeriesLoaded)
