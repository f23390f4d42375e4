"""What the engine knows, in memory: tables that commits are applied to, and questions about them.

`State.apply` takes a commit as true: it was checked (`receiver.metadata.commit.judging.rules`) and
is on the disk. The same log always gives the same state. The engine guards every use; see
`Engine.reading`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_pattern, parse_stored
from receiver.metadata.model.tag_layout import layout
from receiver.metadata.schema import Schema
from receiver.metadata.state.file_rows import FileRows
from receiver.metadata.state.key_versions import KeyTable
from receiver.metadata.state.ranges import DeviceTable
from receiver.metadata.state.table_rows import (
    OwnerRow,
    QuarantineRow,
    SchemaPositionRow,
    SenderRow,
    TokenRow,
)
from receiver.metadata.state.tables.background_work import WorkTable
from receiver.metadata.state.tables.clock_corrections import ClockCorrections
from receiver.metadata.state.tables.file_tables.adopted_tasks import AdoptionTable
from receiver.metadata.state.tables.file_tables.compactions import CompactedTable
from receiver.metadata.state.tables.file_tables.deletion_notes import DeletionTable
from receiver.metadata.state.tables.file_tables.files import FileTable
from receiver.metadata.state.tables.file_tables.uploaded import UploadedTable, UploadTimes
from receiver.metadata.state.tables.place_tables.cache_slots import CacheSlotsTable
from receiver.metadata.state.tables.place_tables.doubted import DoubtedTable
from receiver.metadata.state.tables.place_tables.master_lives import MasterLives
from receiver.metadata.state.tables.place_tables.placements import PlacementTable
from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeTable
from receiver.metadata.state.tables.place_tables.tablets import LoadedTables, TabletTable
from receiver.metadata.state.tables.sender_tables.held_deletes import DeleteWindows, HeldDeletes
from receiver.metadata.state.tables.sender_tables.let_go import LetGoTable
from receiver.metadata.state.tables.sender_tables.lost import LostTable
from receiver.metadata.state.tables.sender_tables.owners import OwnerTable
from receiver.metadata.state.tables.sender_tables.released import ReleasedTable
from receiver.metadata.state.tables.sender_tables.senders import (
    SchemaPositions,
    SenderTable,
    TokenTable,
)
from receiver.metadata.state.tables.sender_tables.tasks import QuarantineTable, TaskTable
from receiver.metadata.state.tables.series import SchemaTable
from receiver.metadata.state.tables.txns import TxnTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.model.paths import Nodes

__all__ = ["State"]


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
        clock: what was learnt of the clock: which moments timestamps stand for.
        max_memory: bytes that the schema may take before the rules refuse more; None for no limit.
        file_table, lost_table, let_go, deletion_table, delete_windows, held_deletes,
        uploaded_table, upload_times, owner_table, sender_table, token_table, task_table,
        quarantine_table, txn_table, work_table, compacted_table, loaded_tables, tablet_table,
        node_table, placement_table, cache_slots, released_table, doubted_table, master_lives,
        position_table, adoption_table: the tables
            themselves, for what else is asked of them, and for checkpoints.
    """

    def __init__(self, schema: Schema | None = None, keys: KeyTable | None = None) -> None:
        """Make an empty state, or one with the tree and the keys of a checkpoint."""
        self.uuid = ""
        self.newest = 0
        self.max_memory: int | None = None
        self.schema = Schema() if schema is None else schema
        self.keys = KeyTable() if keys is None else keys
        self.devices = DeviceTable()
        self.clock = ClockCorrections()
        self.file_table = FileTable(self.devices)
        self.lost_table = LostTable(self.file_table.rows)
        self.let_go = LetGoTable()
        self.deletion_table = DeletionTable(self.file_table.rows, self.file_table.listed)
        self.delete_windows = DeleteWindows()
        self.held_deletes = HeldDeletes()
        self.uploaded_table = UploadedTable(self.file_table.rows)
        self.upload_times = UploadTimes()
        self.owner_table = OwnerTable(self.devices)
        self.sender_table = SenderTable(self.file_table.rows, self.owner_table.rows)
        self.token_table = TokenTable()
        self.task_table = TaskTable()
        self.quarantine_table = QuarantineTable()
        self.txn_table = TxnTable()
        self.work_table = WorkTable()
        self.compacted_table = CompactedTable(self.file_table.rows, self.devices)
        self.loaded_tables = LoadedTables()
        self.tablet_table = TabletTable()
        self.node_table = StorageNodeTable()
        self.placement_table = PlacementTable(self.loaded_tables, self.tablet_table)
        self.cache_slots = CacheSlotsTable()
        self.released_table = ReleasedTable(self.file_table.rows)
        self.doubted_table = DoubtedTable()
        self.master_lives = MasterLives()
        self.position_table = SchemaPositions()
        self.adoption_table = AdoptionTable()
        self.files: FileRows = self.file_table.rows
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
            self.clock,
            self.sender_table,
            self.token_table,
            self.lost_table,  # before the files: what it stands for is still there as it was
            self.file_table,
            self.let_go,
            self.deletion_table,
            self.delete_windows,
            self.held_deletes,
            self.uploaded_table,
            self.upload_times,
            self.owner_table,
            self.task_table,
            self.quarantine_table,
            self.txn_table,
            self.work_table,
            self.compacted_table,
            self.released_table,
            self.doubted_table,
            self.master_lives,
            self.placement_table,  # before the tablets: it is told of tables that go with them
            self.tablet_table,
            self.loaded_tables,
            self.node_table,
            self.cache_slots,
            self.position_table,
            self.adoption_table,
            self._schema_table,
        ):
            for kind, function in table.operations().items():
                found.setdefault(kind, []).append(function)
        return {kind: tuple(functions) for kind, functions in found.items()}

    # -- questions ---------------------------------------------------------------------------

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
            offsets: of `tag_layout.layout` for it, where the caller has them.
        """
        ts = commit.ts
        if offsets is None and commit.tags_at >= 0:
            placed = layout(commit.ops, commit.tags_at)
            offsets = None if placed is None else placed.offsets
        ops = commit.ops
        if len(ops) == 1:
            self._apply_placed(ops[0], ts, offsets[0] if offsets else None)
        elif len(ops) == 2 and type(ops[1]) is records.TxnCommitted:
            self._apply_placed(ops[0], ts, offsets[0] if offsets else None)
            self.txn_table.committed(ops[1], ts)
        else:
            self._apply_all(ops, ts, offsets or [None] * len(ops))
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
    "moves": lambda state, _: state.owner_table.moved,
    "file": lambda state, key: _row(state.files.get(key)),
    "path": lambda state, key: _row(state.file_table.held(*key)),
    "sender": lambda state, key: _row(state.senders.get(key)),
    "token": lambda state, key: _row(state.tokens.get(key)),
    "quarantine": lambda state, key: _row(state.quarantine.get(key)),
    "task": lambda state, key: _row(state.task_table.get(*key)),
    "schema_position": lambda state, key: _row(state.schema_positions.get(key)),
    "series": lambda state, key: state.schema.series.changed(parse_stored(key)),
    "storage_group": lambda state, key: state.schema.groups.changed(parse_stored(key)),
    "table_drop": lambda state, key: state.loaded_tables.last_drop(key),
    "delete_window": lambda state, key: _row(state.delete_windows.rows.get(key)),
    "held_deletes": lambda state, key: _row(state.held_deletes.rows.get(key)),
    "lost": lambda state, key: _row(state.lost_table.rows.get(key)),
    "node": lambda state, key: _row(state.node_table.rows.get(key)),
    "key": lambda state, key: state.keys.changed(key),
    "keys": lambda state, prefix: state.keys.changed_below(prefix),
    "txn": lambda state, key: _row(state.txn_table.rows.get(key)),
    "work": lambda state, key: _row(state.work_table.rows.get(int(key))),
    "state": lambda state, _: state.newest,
}
