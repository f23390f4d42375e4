"""The rules that a commit must keep, operation by operation; those of the schema: `schema_rules`.

What stands earlier in the commit counts for what follows (a replacement is a deletion, then a
load): `draft` plays the operations on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec.structs import replace as replace_row

from common.digests import is_md5
from common.errors import ConflictError
from common.names import is_sender_uuid, is_task_id
from receiver.metadata.commit.becoming_final import between_final
from receiver.metadata.commit.cache_rules import check_cache_slots
from receiver.metadata.commit.compaction_rules import (
    check_compacted,
    check_dissolved,
    check_final,
    check_forgotten,
)
from receiver.metadata.commit.node_rules import (
    check_drained,
    check_moved,
    check_registered,
    check_word,
)
from receiver.metadata.commit.pace import paced
from receiver.metadata.commit.placement_rules import check_placed, check_released, check_running
from receiver.metadata.commit.record_checks import (
    SIGNED_64,
    check_content,
    check_devices,
    check_names,
    check_origin,
    check_token,
    is_range,
    parse_path,
    refusal_of,
)
from receiver.metadata.commit.schema_draft import Savepoint, truncate
from receiver.metadata.commit.schema_rules import SchemaRules
from receiver.metadata.commit.tablet_making import table_nodes
from receiver.metadata.commit.tablet_rules import (
    check_table_dropped,
    check_table_forgotten,
    check_table_known,
    check_table_made,
    check_tablet_made,
)
from receiver.metadata.commit.touched import Touched, TouchedKey
from receiver.metadata.commit.work_rules import (
    check_added,
    check_ended,
    check_taken,
    overlap,
    work_conflict,
)
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError, TableExistsError
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.model.paths import format_path
from receiver.metadata.model.snapshot_kv import check_keys, check_prefixes
from receiver.metadata.state.table_rows import (
    OPEN_WORK,
    FileState,
    UploadedRow,
    WorkRow,
    WorkState,
)
from receiver.metadata.state.tables.background_work import parts_of
from receiver.metadata.state.tables.retired import partition_of

if TYPE_CHECKING:
    from receiver.metadata.commit.pace import Pace
    from receiver.metadata.state.state import State
    from receiver.metadata.state.tables.compactions import CompactedRow
    from receiver.metadata.state.tables.storage_nodes import StorageNodeRow

__all__ = ["Rules", "check_txn"]

T = TypeVar("T")

_HEX32 = re.compile(r"[0-9a-f]{32}\Z")
_LONGEST_SILENCE = 1e10


@dataclass(frozen=True, slots=True)
class _File:
    """What the rules need to know of a file."""

    sender: str
    path: str
    state: FileState
    retired: bool
    names: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return self.state is not FileState.DELETED and not self.retired


class Rules:
    """The rules, over committed state with the changes of one commit.

    Attributes:
        schema: those of storage groups and series.
        touched: keys that the commit looked at and changes.
    """

    __slots__ = ("_changes", "_compacts", "_final", "_pace", "_state", "schema", "touched")

    def __init__(self, state: State, *, notes: bool, pace: Pace | None = None) -> None:
        self._state = state
        self._pace = pace
        self._changes: dict[TouchedKey, Any] = {}
        self._compacts = False
        self._final: frozenset[str] = frozenset()
        self.touched = Touched()
        counts = state.max_memory is not None
        self.schema = SchemaRules(state.schema, self.touched, notes=notes, counts=counts, pace=pace)

    def play(self, op: records.Op) -> None:
        """See that an operation may follow those before it, and remember what it changes.

        Raises:
            ConflictError: a file holds a device of another owner (`extra`: device, path), or a
                series of another type (`SchemaConflictError`).
            RefusedCommitError: another rule is broken; the message names the operation or the
                object.
            IllegalPathError: a path is none.
        """
        rule = _RULES.get(type(op))
        if rule is None:
            raise RefusedCommitError(f"{type(op).__name__} is not for callers to commit")
        if self._compacts and not isinstance(op, _BESIDE_COMPACTIONS):
            raise refusal_of(op, "it stands in a commit with a compaction")
        if self._final and not self._is_of_final(op):
            raise refusal_of(op, "it stands in a commit that makes a compaction final")
        rule(self, op)

    def _get(self, key: TouchedKey, committed: Callable[[], T]) -> T:
        if key in self._changes:
            found: T = self._changes[key]
            return found
        self.touched.read.add(key)
        return committed()

    def _put(self, key: TouchedKey, value: object) -> None:
        self.schema.draft.put(self._changes, key, value)
        self.touched.written.add(key)

    # -- on trial --

    def savepoint(self) -> tuple[int, int, Savepoint]:
        """What `roll_back` needs to give back all that is played from now on."""
        return len(self._changes), self.schema.cost, self.schema.draft.savepoint()

    def roll_back(self, savepoint: tuple[int, int, Savepoint]) -> None:
        """Give back what was changed since."""
        size, self.schema.cost, schema = savepoint
        self.schema.draft.roll_back(schema)
        truncate(self._changes, size)

    # -- tables --

    def _knows_sender(self, uuid: str) -> bool:
        return self._get(("sender", uuid), lambda: uuid in self._state.senders)

    def _need_sender(self, uuid: str, op: records.Op) -> None:
        if not self._knows_sender(uuid):
            raise refusal_of(op, f"sender {uuid} is not known")

    def _directory(self, name: str) -> str | None:
        def committed() -> str | None:
            row = self._state.sender_table.of_directory(name)
            return None if row is None else row.uuid

        return self._get(("directory", name), committed)

    def _owner(self, device: str) -> str | None:
        def committed() -> str | None:
            row = self._state.owners.get(device)
            return None if row is None else row.sender

        return self._get(("owner", device), committed)

    def _need_file(self, physical: str, op: records.Op, *states: FileState) -> _File:
        found = self._file(physical)
        if found is None:
            raise refusal_of(op, f"there is no file {physical}")
        if found.state not in states:
            raise refusal_of(op, f"{physical} is {found.state}")
        return found

    def _file(self, physical: str) -> _File | None:
        def committed() -> _File | None:
            row = self._state.files.get(physical)
            if row is None:
                return None
            return _File(row.sender, row.path, row.state, row.retired, row.names)

        return self._get(("file", physical), committed)

    def _put_file(self, physical: str, file: _File) -> None:
        self._put(("file", physical), file)
        for path in (file.path, *file.names):
            self._put(("path", file.sender, path), physical if file.held else None)

    def _held(self, sender: str, path: str) -> str | None:
        def committed() -> str | None:
            row = self._state.file_table.held(sender, path)
            return None if row is None else row.physical

        return self._get(("path", sender, path), committed)

    def _token_hash(self, ident: str) -> str | None:
        def committed() -> str | None:
            row = self._state.tokens.get(ident)
            return None if row is None else row.hash

        return self._get(("token", ident), committed)

    def _token_of_hash(self, digest: str) -> str | None:
        def committed() -> str | None:
            row = self._state.token_table.by_hash(digest)
            return None if row is None else row.id

        return self._get(("hash", digest), committed)

    def _token_of_certificate(self, name: str) -> str | None:
        def committed() -> str | None:
            row = self._state.token_table.by_certificate(name)
            return None if row is None else row.id

        return self._get(("certificate", name), committed)

    def _certificate_of_token(self, ident: str) -> str | None:
        def committed() -> str | None:
            row = self._state.tokens.get(ident)
            return None if row is None else row.certificate

        return self._get(("token_certificate", ident), committed)

    def _is_done(self, sender: str, task: str) -> bool:
        return self._get(("task", sender, task), lambda: self._state.task_table.has(sender, task))

    def _is_quarantined(self, key: tuple[str, str, str]) -> bool:
        return self._get(("quarantine", *key), lambda: key in self._state.quarantine)

    def _shake(self, physical: str) -> None:
        """What rests on a file matters: a commit that adds to it has to be true before this one."""
        self.touched.read.add(("resting", physical))

    # -- rules --

    def _sender_seen(self, op: records.SenderSeen) -> None:
        if not is_sender_uuid(op.uuid):
            raise refusal_of(op, f"{op.uuid!a} is no sender uuid")
        there = self._directory(op.directory)
        if there not in (None, op.uuid):
            raise refusal_of(op, f"the directory {op.directory!a} is that of sender {there}")
        if self._knows_sender(op.uuid) and there is None:
            raise refusal_of(op, f"sender {op.uuid} has another directory than {op.directory!a}")
        self._put(("sender", op.uuid), True)
        self._put(("directory", op.directory), op.uuid)

    def _epoch_set(self, op: records.EpochSet) -> None:
        self._need_sender(op.sender, op)
        self._put(("sender", op.sender), True)

    def _sender_mode(self, op: records.SenderMode) -> None:
        self._need_sender(op.sender, op)
        if op.look not in SIGNED_64 or op.look < 0:
            raise refusal_of(op, f"{op.look} is no look")
        self._put(("sender", op.sender), True)

    def _lateness_set(self, op: records.LatenessSet) -> None:
        self._need_sender(op.sender, op)
        if op.late_after is not None and not 0 <= op.late_after < _LONGEST_SILENCE:
            raise refusal_of(op, f"{op.late_after} is no number of seconds")
        self._put(("sender", op.sender), True)

    def _files_adopted(self, op: records.FilesAdopted) -> None:
        self._need_sender(op.sender, op)
        if not is_task_id(op.task) or self._is_done(op.sender, op.task):
            raise refusal_of(op, f"{op.task[:60]!a} is no task that is still to be done")
        if self._is_adopted(op.sender, op.task):
            raise refusal_of(op, f"task {op.task} is told of twice")
        self._put(("adopted", op.sender, op.task), True)

    def _is_adopted(self, sender: str, task: str) -> bool:
        rows = self._state.adoption_table.rows
        return bool(self._get(("adopted", sender, task), lambda: (sender, task) in rows))

    def _token_put(self, op: records.TokenPut) -> None:
        check_token(op)
        if not op.id or self._token_hash(op.id) is not None:
            raise refusal_of(op, f"a token {op.id!a} is there already")
        if self._token_of_hash(op.hash) is not None:
            raise refusal_of(op, "another token has the same hash")
        self._put(("token", op.id), op.hash)
        self._put(("hash", op.hash), op.id)
        if op.certificate is None:
            return
        bound = self._token_of_certificate(op.certificate)
        if bound is not None:
            raise refusal_of(op, f"the certificate {op.certificate} is bound already, as {bound}")
        self._put(("certificate", op.certificate), op.id)
        self._put(("token_certificate", op.id), op.certificate)

    def _token_revoke(self, op: records.TokenRevoke) -> None:
        digest = self._token_hash(op.id)
        if digest is None:
            raise refusal_of(op, f"there is no token {op.id!a}")
        self._put(("token", op.id), None)
        self._put(("hash", digest), None)
        name = self._certificate_of_token(op.id)
        if name is not None:
            self._put(("certificate", name), None)
            self._put(("token_certificate", op.id), None)

    def _owner_set(self, op: records.OwnerSet) -> None:
        if not op.device:
            raise refusal_of(op, "the device has no name")
        if op.sender is not None:
            self._need_sender(op.sender, op)
        elif self._owner(op.device) is None:
            raise refusal_of(op, f"nobody owns {op.device!a}")
        self._put(("owner", op.device), op.sender)

    def _file_loaded(self, op: records.FileLoaded) -> None:
        self._need_sender(op.sender, op)
        check_names(op)
        check_content(op)
        if op.origin is not None:
            check_origin(op, op.origin)
        if self._file(op.physical) is not None:
            raise refusal_of(op, f"the name {op.physical} is taken")
        there = self._held(op.sender, op.path)
        if there is not None:
            raise refusal_of(op, f"{op.path} is loaded already, as {there}")
        self._check_merged(op)
        for device in paced(op.devices, self._pace):
            owner = self._owner(device.name)
            if owner is None:
                self._put(("owner", device.name), op.owner or op.sender)
            elif owner not in (op.sender, op.owner, *op.others):
                raise ConflictError(
                    f"{op.path}: the device {device.name} belongs to another sender",
                    extra={"device": device.name, "path": op.path, "owner": owner},
                )
        self._put_file(op.physical, _File(op.sender, op.path, FileState.LIVE, retired=False))
        for key in self._state.lost_table.found_by(op):
            self._put(("lost", *key), False)
        for row in self._state.deletion_table.unloaded(op.sender, op.path):
            self._put(("deletions", op.sender, op.physical, row.form), len(row.content))

    def _is_of_final(self, op: records.Op) -> bool:
        if isinstance(op, records.FileSuperseded):
            return self._final.issuperset(op.rests)
        return (
            isinstance(op, records.FileLoaded | records.FileRetired) and op.physical in self._final
        )

    def _check_merged(self, op: records.FileLoaded) -> None:
        """Refuse what would come between files that are merged for good, and merged files."""
        if is_merged(op.physical):
            if op.physical not in self._final:
                raise refusal_of(op, f"{op.physical} is called as merged files are")
            return  # it was judged with all that it is made of
        final = between_final(self._state, op)
        if final is not None:
            raise ConflictError(
                f"{op.path} stands between files that were merged for good, as {final}",
                extra={"path": op.path, "file": final},
            )

    def _file_deleted(self, op: records.FileDeleted) -> None:
        self._shake(op.physical)
        file = self._need_file(op.physical, op, *_THERE, FileState.SUPERSEDED)
        gone = replace(file, state=FileState.DELETED)
        if file.held:
            self._put_file(op.physical, gone)
        else:
            self._put(("file", op.physical), gone)

    def _file_retired(self, op: records.FileRetired) -> None:
        self._shake(op.physical)
        file = self._need_file(op.physical, op, FileState.LIVE, FileState.QUARANTINED)
        if file.retired:
            raise refusal_of(op, f"{op.physical} is retired already")
        state = FileState.RETIRED if file.state is FileState.LIVE else file.state
        ended = _File(file.sender, file.path, state, retired=True, names=file.names)
        self._put_file(op.physical, ended)

    def _file_returned(self, op: records.FileReturned) -> None:
        self._shake(op.physical)
        file = self._need_file(op.physical, op, FileState.RETIRED)
        path = op.path or file.path
        parse_path(op, path)
        there = self._held(file.sender, path)
        if there is not None:
            raise refusal_of(op, f"{path} is loaded already, as {there}")
        self._put_file(op.physical, _File(file.sender, path, FileState.LIVE, retired=False))

    def _file_quarantined(self, op: records.FileQuarantined) -> None:
        self._shake(op.physical)
        file = self._need_file(op.physical, op, FileState.LIVE, FileState.RETIRED)
        self._put(("file", op.physical), replace(file, state=FileState.QUARANTINED))

    def _file_named(self, op: records.FileNamed) -> None:
        parse_path(op, op.path)
        file = self._need_file(op.physical, op, FileState.LIVE, FileState.QUARANTINED)
        if file.retired:
            raise refusal_of(op, f"{op.physical} is retired")
        there = self._held(file.sender, op.path)
        if there is not None:
            raise refusal_of(op, f"{op.path} is loaded already, as {there}")
        self._put(("path", file.sender, op.path), op.physical)
        path, *names = op.among((file.path, *file.names))
        self._put(("file", op.physical), replace(file, path=path, names=tuple(names)))

    def _file_unnamed(self, op: records.FileUnnamed) -> None:
        self._shake(op.physical)
        file = self._need_file(op.physical, op, FileState.LIVE, FileState.QUARANTINED)
        left = [each for each in (file.path, *file.names) if each != op.path]
        if file.retired or len(left) != len(file.names):
            raise refusal_of(op, f"{op.path} is no name of {op.physical}")
        if not left:
            raise refusal_of(op, f"{op.path} is the only name of {op.physical}")
        self._put(("path", file.sender, op.path), None)
        self._put(("file", op.physical), replace(file, path=left[0], names=tuple(left[1:])))

    def _origin_noted(self, op: records.OriginNoted) -> None:
        self._shake(op.physical)
        file = self._need_file(op.physical, op, *_THERE, FileState.SUPERSEDED)
        check_origin(op, op.origin)
        self._put(("file", op.physical), file)

    def _resource_noted(self, op: records.ResourceNoted) -> None:
        file = self._need_file(op.physical, op, *_THERE, FileState.SUPERSEDED)
        self._put(("file", op.physical), file)

    def _file_superseded(self, op: records.FileSuperseded) -> None:
        file = self._need_file(op.physical, op, FileState.RETIRED)
        if len(set(op.rests)) != len(op.rests) or op.physical in op.rests:
            raise refusal_of(op, f"{op.physical} rests on a file twice, or on itself")
        for physical in op.rests:
            self._need_file(physical, op, FileState.LIVE, FileState.RETIRED)
            self.touched.written.add(("resting", physical))
        self._put(("file", op.physical), replace(file, state=FileState.SUPERSEDED))

    def _file_revived(self, op: records.FileRevived) -> None:
        file = self._need_file(op.physical, op, FileState.SUPERSEDED)
        row = self._state.files.get(op.physical)
        rests = () if row is None else row.rests
        if rests and all(is_merged(each) and self._is_visible(each) for each in rests):
            raise refusal_of(op, f"{op.physical} is merged for good, in {rests[0]}")
        self._put(("file", op.physical), replace(file, state=FileState.RETIRED))

    def _is_visible(self, physical: str) -> bool:
        file = self._file(physical)
        return file is not None and file.state in (FileState.LIVE, FileState.RETIRED)

    def _file_undeleted(self, op: records.FileUndeleted) -> None:
        file = self._need_file(op.physical, op, FileState.DELETED)
        if (row := self._state.files.get(op.physical)) is not None:
            check_devices(op, op.physical, op.devices, (row.first, row.last))
        self._put(("file", op.physical), replace(file, state=FileState.RETIRED, retired=True))

    def _deletions_noted(self, op: records.DeletionsNoted) -> None:
        if op.form not in _FORMS or op.floor not in SIGNED_64 or op.floor < 0:
            raise refusal_of(op, f"{op.form!a} with the look {op.floor} is no deletion file")
        key, known = self._deletion_file(op)
        if op.base not in (0, known):
            raise refusal_of(op, f"{op.path}: {known} bytes of deletions are known, not {op.base}")
        self._put(key, op.base + len(op.content))

    def _kept_records_applied(self, op: records.KeptRecordsApplied) -> None:
        key, known = self._deletion_file(op)
        if not op.ends or not 0 < min(op.ends) <= max(op.ends) <= known:
            raise refusal_of(op, f"{op.path}: {known} bytes of deletions are known")
        self._put(key, known)

    def _deletion_file(
        self, op: records.DeletionsNoted | records.KeptRecordsApplied
    ) -> tuple[TouchedKey, int]:
        """What stands for a deletion file, and how many bytes of it are known."""
        self._need_sender(op.sender, op)
        parse_path(op, op.path)
        if op.physical is not None:
            file = self._file(op.physical)
            if file is None or file.sender != op.sender or op.heir:
                raise refusal_of(op, f"{op.physical} is no file of {op.heir or op.sender}")
        begun = bool(self._changes.get(("list_begun", op.sender)))
        table = "deletions anew" if begun else "deletions"
        name = op.path if op.physical is None else op.physical
        key = (table, op.sender, name, op.form, *([op.heir] if op.heir else []))
        return key, self._get(key, lambda: 0 if begun else self._known_deletions(op))

    def _deletes_counted(self, op: records.DeletesCounted) -> None:
        self._need_sender(op.sender, op)
        if not op.group or op.count < 0 or op.count not in SIGNED_64:
            raise refusal_of(op, f"{op.count} deletes in {op.group!a} are none")
        if op.listed is not None and (op.listed < 0 or op.listed not in SIGNED_64):
            raise refusal_of(op, f"{op.listed} is no number of files")
        key = ("delete_window", op.sender, op.group)
        known = self._get(key, lambda: (op.sender, op.group) in self._state.delete_windows.rows)
        if not known and op.listed is None:
            raise refusal_of(op, f"no window of {op.sender} in {op.group!a} has begun")
        self._put(key, True)

    def _deletes_held(self, op: records.DeletesHeld) -> None:
        self._need_sender(op.sender, op)
        if not _HEX32.match(op.digest) or not op.group or not op.files:
            raise refusal_of(op, f"{op.digest!a} is no list of deletes in {op.group!a}")
        if len(set(op.files)) != len(op.files) or op.look < 0 or op.look not in SIGNED_64:
            raise refusal_of(op, "a file stands on it twice, or it is of no look")
        if op.replaces:
            self._need_held_deletes(op.replaces, op)
            self._put(("held_deletes", op.replaces), False)
        if self._is_held_list(op.digest):
            raise refusal_of(op, f"the list {op.digest} is held already")
        self._put(("held_deletes", op.digest), True)

    def _deletes_settled(self, op: records.DeletesSettled) -> None:
        self._need_held_deletes(op.digest, op)
        if op.look < 0 or op.look not in SIGNED_64:
            raise refusal_of(op, f"{op.look} is no look")
        self._put(("held_deletes", op.digest), op.verdict != "done")

    def _file_lost(self, op: records.FileLost) -> None:
        self._need_sender(op.sender, op)
        parse_path(op, op.path)
        if not is_md5(op.md5) or not 0 <= op.size < SIGNED_64.stop:
            raise refusal_of(op, f"{op.path}: {op.size} bytes with {op.md5!a} are no content")
        if not is_range(op.first, op.last):
            raise refusal_of(op, f"{op.path}: {op.first} to {op.last} is no range of time")
        if self._is_lost((op.sender, op.path, op.md5)):
            raise refusal_of(op, f"{op.path} of {op.sender} is lost already")
        self._put(("lost", op.sender, op.path, op.md5), True)

    def _loss_acknowledged(self, op: records.LossAcknowledged) -> None:
        key = (op.sender, op.path, op.md5)
        if op.physical:
            file = self._need_file(op.physical, op, FileState.QUARANTINED)
            row = self._state.files[op.physical]
            if not file.retired or (row.sender, row.path, row.md5) != key:
                raise refusal_of(op, f"{op.physical} is not lost, or is another file")
        elif not self._is_lost(key):
            raise refusal_of(op, f"{op.path!a} of {op.sender} is not lost")
        self._put(("lost", *key), True)

    def _is_lost(self, key: tuple[str, str, str]) -> bool:
        return self._get(("lost", *key), lambda: key in self._state.lost_table.rows)

    def _list_begun(self, op: records.ListBegun) -> None:
        self._need_sender(op.sender, op)
        if op.look not in SIGNED_64 or op.look <= 0:
            raise refusal_of(op, f"{op.look} is no look")
        self._put(("sender", op.sender), True)
        self._put(("list_begun", op.sender), True)
        self.touched.sweep()  # each file of the sender changes

    def _need_held_deletes(self, digest: str, op: records.Op) -> None:
        if not self._is_held_list(digest):
            raise refusal_of(op, f"no list of deletes {digest!a} is held")

    def _is_held_list(self, digest: str) -> bool:
        held = self._state.held_deletes.rows
        return bool(self._get(("held_deletes", digest), lambda: digest in held))

    def _known_deletions(self, op: records.DeletionsNoted | records.KeptRecordsApplied) -> int:
        table = self._state.deletion_table
        if op.physical is None:
            rows = table.unloaded(op.sender, op.path, op.heir)
        else:
            rows = table.of_file(op.physical)
        return next((len(row.content) for row in rows if row.form == op.form), 0)

    def _file_verified(self, op: records.FileVerified) -> None:
        if not op.physicals or len(set(op.physicals)) != len(op.physicals):
            raise refusal_of(op, "there is no file, or one twice")
        for physical in op.physicals:
            file = self._need_file(physical, op, FileState.LIVE, FileState.RETIRED)
            self._put(("file", physical), file)

    def _file_restored(self, op: records.FileRestored) -> None:
        file = self._need_file(op.physical, op, FileState.QUARANTINED)
        state = FileState.RETIRED if file.retired else FileState.LIVE
        self._put(("file", op.physical), replace(file, state=state))

    def _file_forgotten(self, op: records.FileForgotten) -> None:
        self._need_file(op.physical, op, FileState.DELETED)
        self._put(("file", op.physical), None)

    def _file_uploaded(self, op: records.FileUploaded) -> None:
        self._need_file(op.physical, op, *FileState)
        row = self._state.files.get(op.physical)  # none if this very commit loads it
        if row is not None and op.size != row.size:
            raise refusal_of(op, f"{op.physical} has another size than {op.size} bytes")
        if op.incarnation < 1:
            raise refusal_of(op, f"{op.physical} has no owner in the store")
        there = self._uploaded(op.physical)
        if there is not None:
            known, told = (there.incarnation, there.again), (op.incarnation, op.again)
            if told < known or (told != known and not op.again):
                text = f"{op.physical} is in the store already, of incarnation {there.incarnation}"
                raise refusal_of(op, text)
            if (*told, op.resource, op.digests) == (*known, there.resource, there.digests):
                raise refusal_of(op, f"{op.physical} is in the store already, with that resource")
        self._put(("uploaded", op.physical), op)

    def _object_removed(self, op: records.ObjectRemoved) -> None:
        row = self._state.uploaded_table.rows.get(op.physical)
        if row is None or not row.ended or self._uploaded(op.physical) is None:
            raise refusal_of(op, f"{op.physical} is not in the store, or not forgotten")
        self._put(("uploaded", op.physical), None)

    def _uploaded(self, physical: str) -> UploadedRow | records.FileUploaded | None:
        found = self._get(
            ("uploaded", physical), lambda: self._state.uploaded_table.rows.get(physical)
        )
        assert found is None or isinstance(found, UploadedRow | records.FileUploaded)
        return found

    def _task_done(self, op: records.TaskDone) -> None:
        self._need_sender(op.sender, op)
        if not is_task_id(op.task):
            raise refusal_of(op, f"{op.task!a} is no task id")
        if self._is_done(op.sender, op.task):
            raise refusal_of(op, f"task {op.task} is done already")
        self._put(("task", op.sender, op.task), True)
        self._put(("sender", op.sender), True)

    def _quarantine_put(self, op: records.QuarantinePut) -> None:
        self._need_sender(op.sender, op)
        parse_path(op, op.path)
        self._put(("quarantine", op.sender, op.path, op.digest), True)

    def _quarantine_drop(self, op: records.QuarantineDrop) -> None:
        if not self._is_quarantined((op.sender, op.path, op.digest)):
            raise refusal_of(
                op, f"{op.path!a} of {op.sender} is not in quarantine with this digest"
            )
        self._put(("quarantine", op.sender, op.path, op.digest), False)

    def _series_loaded(self, op: records.SeriesLoaded) -> None:
        file = self._need_file(op.physical, op, *_THERE)
        self.schema.series_loaded(op, file.path, file.sender)

    def _schema_synced(self, op: records.SchemaSynced) -> None:
        self._need_sender(op.sender, op)
        if not op.identity or min(op.offset, op.applied, op.unapplied) < 0:
            raise refusal_of(op, f"{op.identity!a} {op.offset} is no position in a schema log")
        if max(op.offset, op.applied, op.unapplied) not in SIGNED_64:
            raise refusal_of(op, f"the position {op.offset} is out of range")
        self._put(("schema_position", op.sender), True)

    def _keys_written(self, op: records.KeysWritten) -> None:
        check_prefixes(op.removals)
        check_keys(op.saves)
        if not op.removals and not op.saves:
            raise refusal_of(op, "there is nothing to write")
        self.touched.written.update([("key", key) for key in op.saves])
        # Which keys a prefix removes is not known here, and a guard may be on any of them.
        if op.removals:
            self.touched.sweep()

    def _txn_committed(self, op: records.TxnCommitted) -> None:
        check_txn(self._state, op)
        if ("txn", op.id) in self._changes:
            raise refusal_of(op, "it stands twice")
        self._put(("txn", op.id), True)

    def _work(self, ident: int) -> WorkRow | None:
        return self._get(("work", ident), lambda: self._state.work_table.rows.get(ident))

    def _work_added(self, op: records.WorkAdded) -> None:
        check_added(op)
        if self._work(op.id) is not None:
            raise refusal_of(op, f"work {op.id} is there already")
        row = WorkRow(
            id=op.id,
            kind=op.kind,
            spec=op.spec,
            scope=tuple(op.scope),
            priority=op.priority,
            created=op.id,
            changed=op.id,
        )
        self._open_work(row)

    def _work_taken(self, op: records.WorkTaken) -> None:
        row = check_taken(op, self._work(op.id))
        self._put(("work", op.id), replace_row(row, state=WorkState.RUNNING, attempt=op.attempt))

    def _work_ended(self, op: records.WorkEnded) -> None:
        row = check_ended(op, self._work(op.id))
        if op.end == "again":
            self._open_work(replace_row(row, state=WorkState.PENDING))
        else:
            self._put(("work", op.id), replace_row(row, state=WorkState(op.end)))

    def _open_work(self, row: WorkRow) -> None:
        """Open work, if nothing that is open has a part of its scope, here or as committed."""
        holders = {each for at in row.scope for each in self._state.work_table.overlapping(at)}
        for place in row.scope:
            parts = parts_of(place)
            for part in parts:
                holders.update(self._opened("work_at", part))
            holders.update(self._opened("work_below", place))
        for each in sorted(holders):
            other = self._work(each)
            if other and other.state in OPEN_WORK and overlap(row.scope, other.scope):
                raise work_conflict(row, other)
        for place in row.scope:
            self._note_opened("work_at", place, row.id)
            for part in parts_of(place):
                self._note_opened("work_below", part, row.id)
        self._put(("work", row.id), row)

    def _opened(self, kind: str, place: records.WorkPlace) -> Iterator[int]:
        """Work that this commit has opened at a place, or in it; some may have ended since."""
        chain: _Opened = self._get((kind, place), lambda: None)
        while chain is not None:
            ident, chain = chain
            yield ident

    def _note_opened(self, kind: str, place: records.WorkPlace, ident: int) -> None:
        # A chain, not a list: each of ten thousand in one group would copy those before it.
        self._put((kind, place), (ident, self._get((kind, place), lambda: None)))

    def _compaction(self, ident: int) -> CompactedRow | None:
        return self._get(("compacted", ident), lambda: self._state.compacted_table.rows.get(ident))

    def _files_compacted(self, op: records.FilesCompacted) -> None:
        self.touched.sweep()  # it is about all that may come to its partition
        if any(key[0] not in _BESIDE_KEYS for key in self._changes):
            raise refusal_of(op, "it stands in a commit with other changes")
        self._compacts = True
        check_compacted(self._state, op)
        for ident in {
            row.id for each in op.inputs if (row := self._state.compacted_table.of_input(each))
        }:
            if (row := self._compaction(ident)) is not None and not row.dissolved:
                raise refusal_of(op, f"compaction {ident} stands for inputs of it")
        self._put(("compacted", op.id), None)

    def _compaction_dissolved(self, op: records.CompactionDissolved) -> None:
        row = self._compaction(op.id)
        check_dissolved(op, row)
        assert row is not None
        self._put(("compacted", op.id), replace_row(row, dissolved=SIGNED_64.stop))

    def _compaction_final(self, op: records.CompactionFinal) -> None:
        self.touched.sweep()  # it is about all that may come to its partition
        if self._changes:
            raise refusal_of(op, "it stands in a commit with other changes")
        check_final(self._state, op)
        row = self._compaction(op.id)
        assert row is not None
        self._final = frozenset(each.physical for each in row.outputs)
        self._put(("compacted", op.id), replace_row(row, dissolved=row.created))

    def _compaction_forgotten(self, op: records.CompactionForgotten) -> None:
        check_forgotten(op, self._compaction(op.id), self._state.files)
        self._put(("compacted", op.id), None)

    def _table(self, name: str) -> str | None:
        """The id of the table that has a name."""

        def committed() -> str | None:
            row = self._state.loaded_tables.named(name)
            return None if row is None else row.id

        return self._get(("table", name), committed)

    def _table_name(self, ident: str) -> str | None:
        """The name of a table that is there."""

        def committed() -> str | None:
            row = self._state.loaded_tables.rows.get(ident)
            return None if row is None or row.dropped else row.name

        return self._get(("table_id", ident), committed)

    def _table_made(self, op: records.TableMade) -> None:
        check_table_made(self._state, op)
        if self._table(op.name) is not None or self._table_name(op.id) is not None:
            raise TableExistsError(f"there is a table {op.name}", extra={"path": op.name})
        self._put(("table", op.name), op.id)
        self._put(("table_id", op.id), op.name)
        # It is told the TTL of its group, and who sets that tells the tables that are there: both
        # looked at what is committed.
        nodes = table_nodes(op.name) or ()
        groups = (format_path(nodes[:end]) for end in range(2, len(nodes) + 1))
        self.touched.shared.update([("storage_group", each) for each in groups])

    def _table_dropped(self, op: records.TableDropped) -> None:
        name = self._table_name(op.id)
        check_table_dropped(op, name)
        self.touched.sweep()
        self._put(("table", name), None)
        self._put(("table_id", op.id), None)

    def _table_told(self, op: records.TableReplicasSet | records.TableTtlSet) -> None:
        name = self._table_name(op.id)
        check_table_known(op, name)
        self._put(("table_id", op.id), name)

    def _table_forgotten(self, op: records.TableForgotten) -> None:
        check_table_forgotten(self._state, op)
        self._put(("table_id", op.id), None)

    def _tablet_made(self, op: records.TabletMade) -> None:
        check_tablet_made(self._state, op)
        if self._table_name(op.table) is None:
            raise refusal_of(op, f"there is no table {op.table!a}")
        none: tuple[records.TabletMade, ...] = ()
        made = self._get(("tablets", op.table), lambda: none)
        for other in made:
            if other.id == op.id or (op.begin < other.end and other.begin < op.end):
                raise refusal_of(op, f"tablet {other.id} has partitions of it")
        self._put(("tablets", op.table), (*made, op))

    def _node(self, uuid: str) -> StorageNodeRow | None:
        return self._get(("node", uuid), lambda: self._state.node_table.rows.get(uuid))

    def _node_registered(self, op: records.NodeRegistered) -> None:
        self._put(("node", op.uuid), check_registered(op, self._node(op.uuid)))

    def _node_told(self, op: records.NodeDraining | records.NodeLost) -> None:
        self._put(("node", op.uuid), check_word(op, self._node(op.uuid)))

    def _file_moved(self, op: records.FileMoved) -> None:
        check_drained(op, self._node(op.node))
        merged = self._state.compacted_table.of_output(op.physical)
        if merged is not None:
            row = self._compaction(merged.id)
            made = self._state.compacted_table.output(op.physical)
            if row is None or made is None:
                raise refusal_of(op, f"there is no file {op.physical}")
            check_moved(op, made.size, made.md5, None)
            self._put(("compacted", merged.id), row)
            return
        file = self._need_file(op.physical, op, *FileState)
        loaded = self._state.files.get(op.physical)
        if loaded is None or ("file", op.physical) in self._changes:
            raise refusal_of(op, f"{op.physical} is changed by this very commit")
        check_moved(op, loaded.size, loaded.md5, loaded.resource)
        self._put(("file", op.physical), file)

    def _node_forgotten(self, op: records.NodeForgotten) -> None:
        if self._node(op.uuid) is None:
            raise refusal_of(op, f"there is no node {op.uuid!a}")
        self._put(("node", op.uuid), None)

    def _placement(self, tablet: str) -> int:
        """The generation that a tablet is placed by, 0 for none."""

        def committed() -> int:
            row = self._state.placement_table.rows.get(tablet)
            return 0 if row is None else row.generation

        return self._get(("placement", tablet), committed)

    def _tablet_placed(self, op: records.TabletPlaced) -> None:
        row = self._state.tablet_table.rows.get(op.tablet)
        if row is None or self._table_name(row.table) is None:
            raise refusal_of(op, f"there is no tablet {op.tablet!a}")
        check_placed(op, self._placement(op.tablet))
        for each in op.nodes:
            if self._node(each) is None:
                raise refusal_of(op, f"there is no node {each!a}")
        self._put(("placement", op.tablet), op.generation)

    def _tablet_running(self, op: records.TabletRunning) -> None:
        check_running(op, self._placement(op.tablet))
        self._put(("placement", op.tablet), op.generation)

    def _cache_slots_set(self, op: records.CacheSlotsSet) -> None:
        def committed() -> int:
            row = self._state.cache_slots.row
            return 0 if row is None else row.version

        check_cache_slots(op, self._get(("cache_slots",), committed))
        for each in op.nodes:
            if self._node(each) is None:
                raise refusal_of(op, f"there is no node {each!a}")
        self._put(("cache_slots",), op.version)

    def _file_released(self, op: records.FileReleased) -> None:
        self._need_file(op.physical, op, *_THERE)
        key = partition_of(op.physical)
        table = self._state.loaded_tables.named(key.sg)
        tablet = self._state.tablet_table.rows.get(op.tablet)
        placed = self._state.placement_table.rows.get(op.tablet)
        if table is None or tablet is None or placed is None or tablet.table != table.id:
            raise refusal_of(op, f"there is no placed tablet {op.tablet!a} of {key.sg}")
        if not tablet.begin <= int(key.partition) < tablet.end:
            raise refusal_of(op, f"{op.physical} is not in the tablet {op.tablet}")
        check_released(op, self._placement(op.tablet), placed.nodes)
        self._put(("released", op.physical), op)

    def _clock_corrected(self, op: records.ClockCorrected) -> None:
        for before, after in pairwise(op.pieces):
            if not before.ts < after.ts or not before.moment <= after.moment:
                raise refusal_of(op, f"{after} does not follow {before}")
        if any(each.pace not in range(3) or each.moment < 0 for each in op.pieces):
            raise refusal_of(op, "a piece goes at a pace that is none")
        self._put(("clock",), True)


def check_txn(state: State, op: records.TxnCommitted) -> None:
    """See that a transaction is one that was not committed yet.

    Raises:
        RefusedCommitError: it was, or its id is none.
    """
    if not 0 < op.id < 1 << 63:
        raise refusal_of(op, f"{op.id} is no id of a transaction")
    if op.id in state.txn_table.rows:
        raise refusal_of(op, f"transaction {op.id} was committed already")


_Opened: TypeAlias = "tuple[int, _Opened] | None"
_FORMS = ("mods", "mods2")
_BESIDE_KEYS = ("compacted", "work", "work_at", "work_below")
_BESIDE_COMPACTIONS = (
    records.FilesCompacted,
    records.CompactionDissolved,
    records.CompactionForgotten,
    records.WorkAdded,
    records.WorkTaken,
    records.WorkEnded,
)
"""What has no part in what is judged of a compaction by the committed state."""
_THERE = (FileState.LIVE, FileState.RETIRED, FileState.QUARANTINED)
_RULES: dict[type, Callable[[Rules, Any], None]] = {
    records.SenderSeen: Rules._sender_seen,
    records.EpochSet: Rules._epoch_set,
    records.SenderMode: Rules._sender_mode,
    records.TokenPut: Rules._token_put,
    records.TokenRevoke: Rules._token_revoke,
    records.OwnerSet: Rules._owner_set,
    records.FileLoaded: Rules._file_loaded,
    records.FileDeleted: Rules._file_deleted,
    records.FileRetired: Rules._file_retired,
    records.FileReturned: Rules._file_returned,
    records.FileQuarantined: Rules._file_quarantined,
    records.FileRestored: Rules._file_restored,
    records.FileNamed: Rules._file_named,
    records.FileUnnamed: Rules._file_unnamed,
    records.OriginNoted: Rules._origin_noted,
    records.ResourceNoted: Rules._resource_noted,
    records.FileSuperseded: Rules._file_superseded,
    records.FileRevived: Rules._file_revived,
    records.FileUndeleted: Rules._file_undeleted,
    records.DeletionsNoted: Rules._deletions_noted,
    records.KeptRecordsApplied: Rules._kept_records_applied,
    records.DeletesCounted: Rules._deletes_counted,
    records.DeletesHeld: Rules._deletes_held,
    records.DeletesSettled: Rules._deletes_settled,
    records.ListBegun: Rules._list_begun,
    records.LatenessSet: Rules._lateness_set,
    records.FilesAdopted: Rules._files_adopted,
    records.FileLost: Rules._file_lost,
    records.LossAcknowledged: Rules._loss_acknowledged,
    records.FileVerified: Rules._file_verified,
    records.FileForgotten: Rules._file_forgotten,
    records.FileUploaded: Rules._file_uploaded,
    records.ObjectRemoved: Rules._object_removed,
    records.TaskDone: Rules._task_done,
    records.QuarantinePut: Rules._quarantine_put,
    records.QuarantineDrop: Rules._quarantine_drop,
    records.StorageGroupSet: lambda rules, op: rules.schema.storage_group_set(op),
    records.StorageGroupDeleted: lambda rules, op: rules.schema.storage_group_deleted(op),
    records.TtlSet: lambda rules, op: rules.schema.ttl_set(op),
    records.UploadSet: lambda rules, op: rules.schema.upload_set(op),
    records.SeriesCreated: lambda rules, op: rules.schema.series_created(op),
    records.SeriesDeleted: lambda rules, op: rules.schema.series_deleted(op),
    records.AliasSet: lambda rules, op: rules.schema.alias_set(op),
    records.TagsSet: lambda rules, op: rules.schema.tags_set(op),
    records.SeriesLoaded: Rules._series_loaded,
    records.SchemaSynced: Rules._schema_synced,
    records.KeysWritten: Rules._keys_written,
    records.ClockCorrected: Rules._clock_corrected,
    records.TxnCommitted: Rules._txn_committed,
    records.WorkAdded: Rules._work_added,
    records.WorkTaken: Rules._work_taken,
    records.WorkEnded: Rules._work_ended,
    records.FilesCompacted: Rules._files_compacted,
    records.CompactionDissolved: Rules._compaction_dissolved,
    records.CompactionFinal: Rules._compaction_final,
    records.CompactionForgotten: Rules._compaction_forgotten,
    records.TableMade: Rules._table_made,
    records.TableDropped: Rules._table_dropped,
    records.TableForgotten: Rules._table_forgotten,
    records.TabletMade: Rules._tablet_made,
    records.TableReplicasSet: Rules._table_told,
    records.TableTtlSet: Rules._table_told,
    records.NodeRegistered: Rules._node_registered,
    records.NodeDraining: Rules._node_told,
    records.NodeLost: Rules._node_told,
    records.NodeForgotten: Rules._node_forgotten,
    records.TabletPlaced: Rules._tablet_placed,
    records.TabletRunning: Rules._tablet_running,
    records.CacheSlotsSet: Rules._cache_slots_set,
    records.FileReleased: Rules._file_released,
    records.FileMoved: Rules._file_moved,
}
