"""The whole state as sections of a checkpoint, and back.

Rows never change, so freezing the tables of rows is copying their dictionaries; that, and copying
the columns of the tree, is all that happens while commits wait. Rows are turned into bytes later,
a few thousand at a time, so that the interpreter's lock is never held for long either.

    meta            msgpack: `_Meta`
    commits         timestamps of the commits that the history reaches back to, uint64
    senders, ...    msgpack lists of rows, cut into sections `<table>.<number>`
    owners          `owner-rows`: the different rows; `owner-devices`: names; `owner-index`: uint32,
                    the row of each; `owner-moves`: (transfers, the devices that these are of)
    device-names    names of devices of files and owners, in the order of their ids
    packed-notes.*  `PackedNotes.sections` of each table, by its number; `let-go` has the others
    packed-files.*  `PackedFiles.sections`: files that are as most are
    files           rows of the others; their devices as (place of the ids in `file-devices`, base,
                    type of the offsets as `array` has it, offsets)
    file-devices    the different arrays of ids, uint32
    schema.*        `Schema.freeze`
    keys.*          `KeyTable.freeze`

A row that has devices and is no file has them as (ids, base, type of the offsets, offsets).
"""

from __future__ import annotations

import mmap
from array import array
from itertools import islice
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from common.errors import DamagedError
from receiver.metadata.schema import Schema
from receiver.metadata.state.deletion_rows import DeleteWindowRow, DeletionsRow, HeldDeletesRow
from receiver.metadata.state.key_versions import KeyTable
from receiver.metadata.state.packed_files import PackedFiles, array_of
from receiver.metadata.state.packed_notes import PackedNotes
from receiver.metadata.state.ranges import Devices
from receiver.metadata.state.state import State
from receiver.metadata.state.table_rows import (
    AdoptionRow,
    ClockRow,
    FileRow,
    LetGoRow,
    LostRow,
    OwnerRow,
    QuarantineRow,
    SchemaPositionRow,
    SenderRow,
    TaskRow,
    TokenRow,
    TxnRow,
)
from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow
from receiver.metadata.state.tables.place_tables.cache_slots import CacheSlotsRow
from receiver.metadata.state.tables.place_tables.doubted import DoubtedCopyRow
from receiver.metadata.state.tables.place_tables.master_lives import MasterLifeRow
from receiver.metadata.state.tables.place_tables.placements import PlacementRow
from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow
from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow, TabletRow
from receiver.metadata.state.tables.sender_tables.owners import OwnerMove
from receiver.metadata.state.tables.sender_tables.released import ReleasedRow
from receiver.metadata.state.uploaded_rows import UploadedRow, UploadTimeRow
from receiver.metadata.state.work_rows import WorkRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from receiver.metadata.state.packed_notes import FrozenNotes
    from receiver.metadata.state.packing import Packed
    from receiver.metadata.state.tables.file_tables.files import FrozenFiles

__all__ = ["FrozenState", "Thawed", "freeze", "thaw"]

_CHUNK = 2048
"""Rows of a section."""
_SHARED = ("sender", "task", "data_dir")
_ROW_TABLES: tuple[tuple[str, str, type], ...] = (
    ("senders", "sender_table", SenderRow),
    ("tokens", "token_table", TokenRow),
    ("tasks", "task_table", TaskRow),
    ("quarantine", "quarantine_table", QuarantineRow),
    ("positions", "position_table", SchemaPositionRow),
    ("deletions", "deletion_table", DeletionsRow),
    ("delete-windows", "delete_windows", DeleteWindowRow),
    ("held-deletes", "held_deletes", HeldDeletesRow),
    ("lost", "lost_table", LostRow),
    ("uploaded", "uploaded_table", UploadedRow),
    ("upload-times", "upload_times", UploadTimeRow),
    ("txns", "txn_table", TxnRow),
    ("work", "work_table", WorkRow),
    ("compacted", "compacted_table", CompactedRow),
    ("tables", "loaded_tables", LoadedTableRow),
    ("tablets", "tablet_table", TabletRow),
    ("nodes", "node_table", StorageNodeRow),
    ("placements", "placement_table", PlacementRow),
    ("cache-slots", "cache_slots", CacheSlotsRow),
    ("released", "released_table", ReleasedRow),
    ("doubted", "doubted_table", DoubtedCopyRow),
    ("master-lives", "master_lives", MasterLifeRow),
    ("adoptions", "adoption_table", AdoptionRow),
    ("let-go", "let_go", LetGoRow),
)


class _Part(Protocol):
    def sections(self) -> Iterator[tuple[str, Any]]: ...


class _Meta(msgspec.Struct, frozen=True, kw_only=True):
    uuid: str
    newest: int
    oldest: int
    lsn: int
    tags_end: int
    segment: int
    ownership_changed: int
    deleted: list[str]
    wanted: list[str]
    token_roles: tuple[str, ...] = ()
    """Of all tokens that were ever made; the checkpoints of 0.1.0 do not tell."""
    clock: ClockRow | None = None
    """None in the checkpoints of 0.1.0, whose logs followed any clock."""
    forgotten_txns: int = 0
    listed: dict[str, tuple[int, str]] | None = None
    """`ListedSums.sums`; None in checkpoints of version 1, which have no packed files either."""
    nodes_reach: int = 0


class FrozenState:
    """The state as of one commit, free of any lock.

    Attributes:
        lsn: of the last commit in it.
        files: of all of it, those that may be packed.
        packed: what became of them, once `sections` has given them.
    """

    def __init__(self, meta: _Meta, rows: dict[str, list[Any]], **parts: Any) -> None:
        self.lsn = meta.lsn
        self._meta = meta
        self._rows = rows
        self._owners: dict[str, OwnerRow] = parts["owners"]
        self._moves: dict[str, tuple[OwnerMove, ...]] = parts["moves"]
        self.files: FrozenFiles = parts["files"]
        self._notes: FrozenNotes = parts["notes"]
        self.packed: Packed | None = None
        self._commits: bytes = parts["commits"]
        self._devices: list[str] = parts["devices"]
        self._schema: _Part = parts["schema"]
        self._keys: _Part = parts["keys"]

    def sections(self) -> Iterator[tuple[str, bytes | memoryview]]:
        """(name, content) of each section."""
        yield "meta", msgspec.msgpack.encode(self._meta)
        yield "commits", self._commits
        yield from _chunked("device-names", self._devices)
        for table, rows in self._rows.items():
            yield from _chunked(table, rows, msgspec.msgpack.Encoder(enc_hook=_in_pieces))
        yield from _owner_sections(self._owners)
        yield from _move_sections(self._moves)
        self.packed = self.files.rows.pack()
        for name, content in self.packed.files.sections():
            yield f"packed-files.{name}", content
        yield from _file_sections(self.packed.others)
        for name, content in self._notes.sections():
            yield f"packed-notes.{name}", content
        for name, content in self._schema.sections():
            yield f"schema.{name}", content
        for name, content in self._keys.sections():
            yield f"keys.{name}", content


class Thawed(NamedTuple):
    """What a checkpoint held.

    Attributes:
        state: as of the commit `lsn`.
        lsn: of the last commit in it.
        commits: timestamps of the commits that the history reaches back to.
        tags_end: where the tlog ended.
        segment: first LSN of the segment that was being written; it, or a later one, is there.
        oldest: the oldest time that can be asked about.
    """

    state: State
    lsn: int
    commits: array[int]
    tags_end: int
    segment: int
    oldest: int


def freeze(
    state: State,
    memory: bytearray | mmap.mmap | None = None,
    *,
    lsn: int,
    commits: array[int],
    tags_end: int,
    segment: int,
    oldest: int,
) -> FrozenState:
    """Copy what a checkpoint needs; the caller holds the lock, and this is quick.

    Args:
        state: of the engine.
        memory: for the copy of the schema (`schema.room`), got without the lock.
        lsn: of the last commit in it.
        commits: as `Thawed` has them, and all that follows.
        tags_end: see there.
        segment: see there.
        oldest: see there.
    """
    files = state.file_table.freeze()
    notes = state.let_go.freeze()
    meta = _Meta(
        uuid=state.uuid,
        newest=state.newest,
        oldest=oldest,
        lsn=lsn,
        tags_end=tags_end,
        segment=segment,
        ownership_changed=state.owner_table.changed,
        deleted=files.deleted,
        wanted=files.wanted,
        listed=files.listed,
        token_roles=tuple(sorted(state.token_table.roles)),
        forgotten_txns=state.txn_table.forgotten,
        clock=state.clock.row,
        nodes_reach=state.node_table.reach,
    )
    rows: dict[str, list[Any]] = {
        "senders": list(state.senders.values()),
        "tokens": list(state.tokens.values()),
        "tasks": list(state.task_table),
        "quarantine": list(state.quarantine.values()),
        "positions": list(state.schema_positions.values()),
        "deletions": list(state.deletion_table),
        "delete-windows": list(state.delete_windows.rows.values()),
        "held-deletes": list(state.held_deletes.rows.values()),
        "lost": list(state.lost_table.rows.values()),
        "uploaded": list(state.uploaded_table.rows.values()),
        "upload-times": list(state.upload_times.rows.values()),
        "txns": list(state.txn_table.rows.values()),
        "work": list(state.work_table.rows.values()),
        "compacted": list(state.compacted_table.rows.values()),
        "tables": list(state.loaded_tables.rows.values()),
        "tablets": list(state.tablet_table.rows.values()),
        "nodes": list(state.node_table.versions()),
        "placements": list(state.placement_table.rows.values()),
        "cache-slots": list(state.cache_slots.versions()),
        "released": list(state.released_table.rows.values()),
        "doubted": list(state.doubted_table.rows.values()),
        "master-lives": list(state.master_lives.rows.values()),
        "adoptions": list(state.adoption_table.rows.values()),
        "let-go": notes.rows,
    }
    return FrozenState(
        meta,
        rows,
        owners=dict(state.owners),
        moves=dict(state.owner_table.moves),
        files=files,
        notes=notes,
        commits=commits.tobytes(),
        devices=state.devices.names(),
        schema=state.schema.freeze(memory),
        keys=state.keys.freeze(),
    )


def thaw(sections: Mapping[str, memoryview]) -> Thawed:
    """The state that sections stand for; it holds nothing of their memory.

    Raises:
        DamagedError: sections are missing, or do not fit each other.
    """
    try:
        return _thaw(sections)
    except (msgspec.MsgspecError, LookupError, ValueError, TypeError) as error:
        raise DamagedError(f"the sections do not fit each other: {error!r}") from error


def _thaw(sections: Mapping[str, memoryview]) -> Thawed:
    meta = msgspec.msgpack.decode(sections["meta"], type=_Meta)
    state = State(Schema.thaw(_part("schema", sections)), KeyTable.thaw(_part("keys", sections)))
    state.devices.restore(_rows("device-names", sections, str))

    def put_together(_kind: type, value: tuple[bytes, int, str, bytes]) -> Devices:
        ids, base, typecode, offsets = value
        return state.devices.restored(array_of("I", ids), base, array_of(typecode, offsets))

    _thaw_notes(state, sections)
    for table, attribute, kind in _ROW_TABLES:
        restore = getattr(state, attribute).restore
        for row in _rows(table, sections, kind, dec_hook=put_together):
            restore(row)
    _thaw_owners(state, sections)
    _thaw_files(state, sections)
    state.file_table.restore_orders(meta.deleted, meta.wanted)
    if meta.listed is not None:
        state.file_table.listed.restore(meta.listed)
    state.compacted_table.finals.restore_dropped()
    state.owner_table.restore_order()
    state.owner_table.changed = meta.ownership_changed
    state.token_table.roles.update(meta.token_roles)
    state.txn_table.forgotten = meta.forgotten_txns
    state.placement_table.begin_at(meta.newest)
    state.node_table.reach = max(state.node_table.reach, meta.nodes_reach)
    if meta.clock is not None:
        state.clock.restore(meta.clock)
    state.uuid, state.newest = meta.uuid, meta.newest
    commits = array("Q")
    commits.frombytes(sections["commits"])
    return Thawed(state, meta.lsn, commits, meta.tags_end, meta.segment, meta.oldest)


def _thaw_notes(state: State, sections: Mapping[str, memoryview]) -> None:
    packed = _part("packed-notes", sections)
    tables = len({name.partition(".")[0] for name in packed})
    state.let_go.thaw([PackedNotes.thawed(_part(str(each), packed)) for each in range(tables)])


def _part(prefix: str, sections: Mapping[str, memoryview]) -> dict[str, memoryview]:
    begin = f"{prefix}."
    return {
        name.removeprefix(begin): content
        for name, content in sections.items()
        if name.startswith(begin)
    }


# -- tables of rows ------------------------------------------------------------------------------


def _chunked(
    table: str, rows: Iterable[Any], encoder: msgspec.msgpack.Encoder | None = None
) -> Iterator[tuple[str, bytes]]:
    encoder = encoder or msgspec.msgpack.Encoder()
    several, number = iter(rows), 0
    while chunk := list(islice(several, _CHUNK)):
        yield f"{table}.{number}", encoder.encode(chunk)
        number += 1


def _rows(
    table: str,
    sections: Mapping[str, memoryview],
    kind: Any,
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> Iterator[Any]:
    decoder = msgspec.msgpack.Decoder(list[kind], dec_hook=dec_hook)
    for number in range(len(_part(table, sections))):
        yield from decoder.decode(sections[f"{table}.{number}"])


def _in_pieces(value: object) -> object:
    if not isinstance(value, Devices):
        raise NotImplementedError(f"{type(value).__name__} in a row")
    ids, base, offsets = value.parts()
    return ids.tobytes(), base, offsets.typecode, offsets.tobytes()


# -- owners: few rows, many devices --------------------------------------------------------------


def _owner_sections(owners: dict[str, OwnerRow]) -> Iterator[tuple[str, bytes]]:
    different: dict[int, int] = {}
    rows: list[OwnerRow] = []
    index = array("I")
    for row in owners.values():
        place = different.get(id(row))
        if place is None:
            place = different[id(row)] = len(rows)
            rows.append(row)
        index.append(place)
    yield from _chunked("owner-rows", rows)
    yield from _chunked("owner-devices", owners)
    yield "owner-index", index.tobytes()


def _thaw_owners(state: State, sections: Mapping[str, memoryview]) -> None:
    rows = list(_rows("owner-rows", sections, OwnerRow))
    index = array("I")
    index.frombytes(sections["owner-index"])
    restore = state.owner_table.restore
    for device, place in zip(_rows("owner-devices", sections, str), index, strict=True):
        restore(device, rows[place])
    moves = list(_rows("owner-moves", sections, tuple[tuple[OwnerMove, ...], list[str]]))
    for several, devices in moves:
        state.owner_table.restore_moves(several, devices)
    if not _part("owner-moves", sections):  # a checkpoint of a version that did not keep them
        state.owner_table.restore_moves_by_rows()


def _move_sections(moves: dict[str, tuple[OwnerMove, ...]]) -> Iterator[tuple[str, bytes]]:
    devices: dict[tuple[OwnerMove, ...], list[str]] = {}
    for device, several in moves.items():
        devices.setdefault(several, []).append(device)
    if not devices:  # what is missing was never kept, and is taken from the owners
        yield "owner-moves.0", msgspec.msgpack.encode([])
    yield from _chunked("owner-moves", devices.items())


# -- files: their devices are arrays that files share --------------------------------------------


def _file_sections(files: list[FileRow]) -> Iterator[tuple[str, bytes]]:
    places: dict[int, int] = {}
    different: list[array[int]] = []

    def take_apart(value: object) -> object:
        if not isinstance(value, Devices):
            raise NotImplementedError(f"{type(value).__name__} in a row")
        ids, base, offsets = value.parts()
        place = places.get(id(ids))
        if place is None:
            place = places[id(ids)] = len(different)
            different.append(ids)
        return place, base, offsets.typecode, offsets.tobytes()

    yield from _chunked("files", files, msgspec.msgpack.Encoder(enc_hook=take_apart))
    yield from _chunked("file-devices", map(array.tobytes, different))


def _thaw_files(state: State, sections: Mapping[str, memoryview]) -> None:
    packed = _part("packed-files", sections)
    if packed:
        state.file_table.thaw(PackedFiles.thawed(packed, state.devices))
    different = [array_of("I", each) for each in _rows("file-devices", sections, bytes)]

    def put_together(_kind: type, value: tuple[int, int, str, bytes]) -> Devices:
        place, base, typecode, offsets = value
        return state.devices.restored(different[place], base, array_of(typecode, offsets))

    for row in _rows("files", sections, FileRow, dec_hook=put_together):
        for name in _SHARED:  # one copy of what many rows have alike, as when they were applied
            msgspec.structs.force_setattr(row, name, intern(getattr(row, name)))
        state.file_table.restore(row)
