"""What the engine knows, in memory: tables that commits are applied to, and questions about them.

`State.apply` takes a commit as true: it was checked (`receiver.metadata.commit.rules`) and is on
the disk. The same log always gives the same state. The engine guards every use; see
`Engine.reading`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_pattern, parse_stored
from receiver.metadata.model.tag_layout import layout
from receiver.metadata.schema import Schema
from receiver.metadata.state.key_versions import KeyTable
from receiver.metadata.state.ranges import DeviceTable
from receiver.metadata.state.rows import (
    FileRow,
    FileState,
    OwnerRow,
    QuarantineRow,
    SchemaPositionRow,
    SenderRow,
    TaskRow,
    TokenRow,
)
from receiver.metadata.state.tables.files import FileTable, GroupKey, Totals
from receiver.metadata.state.tables.owners import OwnerChange, OwnerTable
from receiver.metadata.state.tables.senders import SchemaPositions, SenderTable, TokenTable
from receiver.metadata.state.tables.series import SchemaTable
from receiver.metadata.state.tables.tasks import QuarantineTable, TaskTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.model.paths import Nodes

__all__ = [
    "FileRow",
    "FileState",
    "GroupKey",
    "OwnerChange",
    "OwnerRow",
    "QuarantineRow",
    "SchemaPositionRow",
    "SenderRow",
    "State",
    "TaskRow",
    "TokenRow",
    "Totals",
]


class State:
    """The tables as of the commit `newest`.

    Attributes:
        uuid: of the engine.
        newest: timestamp of the last commit, 0 before the first.
        schema: storage groups, devices and series, with their history.
        keys: of the key-value store, with their history.
        senders: by uuid.
        tokens: by id; a revoked one is gone.
        owners: by device.
        files: by physical path, those too that are deleted and not yet forgotten.
        quarantine: by (sender, path, digest).
        schema_positions: how far the schema log of a sender is applied, by its uuid.
        devices: names of devices that files and owners share.
        max_memory: bytes that the schema may take before the rules refuse more; None for no limit.
        file_table, owner_table, sender_table, token_table, task_table, quarantine_table,
        position_table: the tables themselves, for checkpoints.
    """

    def __init__(self, schema: Schema | None = None, keys: KeyTable | None = None) -> None:
        """Make an empty state, or one with the tree and the keys of a checkpoint."""
        self.uuid = ""
        self.newest = 0
        self.max_memory: int | None = None
        self.schema = Schema() if schema is None else schema
        self.keys = KeyTable() if keys is None else keys
        self.devices = DeviceTable()
        self.file_table = FileTable(self.devices)
        self.owner_table = OwnerTable(self.devices)
        self.sender_table = SenderTable()
        self.token_table = TokenTable()
        self.task_table = TaskTable()
        self.quarantine_table = QuarantineTable()
        self.position_table = SchemaPositions()
        self.files: dict[str, FileRow] = self.file_table.rows
        self.owners: dict[str, OwnerRow] = self.owner_table.rows
        self.senders: dict[str, SenderRow] = self.sender_table.rows
        self.tokens: dict[str, TokenRow] = self.token_table.rows
        self.quarantine: dict[tuple[str, str, str], QuarantineRow] = self.quarantine_table.rows
        self.schema_positions: dict[str, SchemaPositionRow] = self.position_table.rows
        self._schema_table = SchemaTable(self.schema)
        self._operations = self._collect_operations()

    def _collect_operations(self) -> dict[type, tuple[Callable[[Any, int], None], ...]]:
        found: dict[type, list[Callable[[Any, int], None]]] = {
            records.EngineMade: [self._engine_made],
            records.KeysWritten: [self.keys.apply],
        }
        for table in (
            self.sender_table,
            self.token_table,
            self.file_table,
            self.owner_table,
            self.task_table,
            self.quarantine_table,
            self.position_table,
            self._schema_table,
        ):
            for kind, function in table.operations().items():
                found.setdefault(kind, []).append(function)
        return {kind: tuple(functions) for kind, functions in found.items()}

    # -- questions ---------------------------------------------------------------------------

    @property
    def ownership_changed(self) -> int:
        """Timestamp of the last commit that changed `owners`."""
        return self.owner_table.changed

    @property
    def on_owner(self) -> Callable[[OwnerChange], None] | None:
        """Called with each change of ownership as it is applied."""
        return self.owner_table.on_change

    @on_owner.setter
    def on_owner(self, function: Callable[[OwnerChange], None] | None) -> None:
        self.owner_table.on_change = function

    def token_by_hash(self, digest: str) -> TokenRow | None:
        """The token with this SHA-256, whether expired or not."""
        return self.token_table.by_hash(digest)

    def sender_of_directory(self, directory: str) -> SenderRow | None:
        """Whose folder beneath `sync-receiver/` this is."""
        return self.sender_table.of_directory(directory)

    def held(self, sender: str, path: str) -> FileRow | None:
        """The file that takes this path of a sender: live, or in quarantine after its load."""
        return self.file_table.held(sender, path)

    def live(self, sender: str, path: str) -> FileRow | None:
        """The live file at this path of a sender."""
        return self.file_table.live(sender, path)

    def inventory(self, sender: str, after: str | None, limit: int) -> list[FileRow]:
        """A page of the files that take a path of the sender, by path, from behind `after`."""
        return self.file_table.inventory(sender, after, limit)

    def catalogue(self, after: str | None, limit: int) -> list[FileRow]:
        """A page of all visible files, retired ones too, by physical path, from behind `after`."""
        return self.file_table.catalogue(after, limit)

    def wanted(self, sender: str) -> list[FileRow]:
        """Files that the sender once sent and should send again: loaded, then found bad."""
        return self.file_table.wanted(sender)

    def deleted(self) -> list[FileRow]:
        """Deleted files whose bytes may still be on the disk, the longest deleted first."""
        return self.file_table.deleted()

    def groups(self) -> list[GroupKey]:
        """Groups that have a visible file."""
        return self.file_table.groups()

    def group(self, key: GroupKey) -> list[FileRow]:
        """The visible files of a group, in order of (first, last, physical)."""
        return self.file_table.group(key)

    def partition(self, sg: str, vsg: str, partition: int | str) -> list[FileRow]:
        """The visible files of a partition, sequence then unsequence, whoever sent them."""
        return self.file_table.partition(sg, vsg, partition)

    def totals(self, sender: str | None = None) -> Totals:
        """Number and bytes of the visible files of a sender, or of all."""
        return self.file_table.totals(sender)

    def verified(self, sender: str | None = None) -> int:
        """How many of the visible files of a sender, or of all, are verified."""
        return self.file_table.verified(sender)

    def task(self, sender: str, task: str) -> TaskRow | None:
        """A task that is done, if it is among the last ones of its sender."""
        return self.task_table.get(sender, task)

    def has_task(self, sender: str, task: str) -> bool:
        """Whether the task is done, as far as is remembered."""
        return self.task_table.get(sender, task) is not None

    def quarantined(self, sender: str, path: str) -> list[QuarantineRow]:
        """The quarantine entries of a path."""
        return self.quarantine_table.at_path(sender, path)

    def changed(self, table: str, key: Any) -> int:
        """The commit that a row is from, 0 if there is none; `Guard` says what a key is."""
        return _CHANGED[table](self, key)

    # -- commits -----------------------------------------------------------------------------

    def apply(
        self, commit: records.Commit, offsets: Sequence[Sequence[int] | None] | None = None
    ) -> None:
        """Make a commit true.

        Args:
            commit: checked, and on the disk.
            offsets: of `taglayout.layout` for it, where the caller has them.
        """
        ts = commit.ts
        if offsets is None and commit.tags_at >= 0:
            placed = layout(commit.ops, commit.tags_at)
            offsets = None if placed is None else placed.offsets
        if len(commit.ops) > 1:
            self._apply_all(commit.ops, ts, offsets or [None] * len(commit.ops))
        else:
            self._apply_placed(commit.ops[0], ts, offsets[0] if offsets else None)
        self.newest = ts

    def _apply_all(
        self,
        ops: Sequence[records.Op],
        ts: int,
        offsets: Sequence[Sequence[int] | None],
    ) -> None:
        """Operations in their order; deletions of single series that follow each other at once."""
        gone: list[Nodes] = []
        for op, places in zip(ops, offsets, strict=True):
            if type(op) is records.SeriesDeleted and (pattern := parse_pattern(op.pattern)).is_path:
                gone.append(pattern.prefix)
                continue
            if gone:
                self._schema_table.paths_deleted(gone, ts)
                gone = []
            self._apply_placed(op, ts, places)
        if gone:
            self._schema_table.paths_deleted(gone, ts)

    def _apply_placed(self, op: records.Op, ts: int, places: Sequence[int] | None) -> None:
        if places is not None and isinstance(op, records.SeriesCreated):
            self._schema_table.series_created(op, ts, places)
        elif places is not None and isinstance(op, records.TagsSet):
            self._schema_table.tags_set(op, ts, places[0])
        else:
            for function in self._operations[type(op)]:
                function(op, ts)

    def _engine_made(self, op: records.EngineMade, ts: int) -> None:
        self.uuid = op.uuid


def _row(row: Any) -> int:
    changed: int = 0 if row is None else row.changed
    return changed


_CHANGED: dict[str, Callable[[State, Any], int]] = {
    "owner": lambda state, key: _row(state.owners.get(key)),
    "file": lambda state, key: _row(state.files.get(key)),
    "path": lambda state, key: _row(state.held(*key)),
    "sender": lambda state, key: _row(state.senders.get(key)),
    "token": lambda state, key: _row(state.tokens.get(key)),
    "quarantine": lambda state, key: _row(state.quarantine.get(key)),
    "task": lambda state, key: _row(state.task(*key)),
    "schema_position": lambda state, key: _row(state.schema_positions.get(key)),
    "series": lambda state, key: state.schema.changed(parse_stored(key)),
    "storage_group": lambda state, key: state.schema.storage_group_changed(parse_stored(key)),
    "key": lambda state, key: state.keys.changed(key),
}
