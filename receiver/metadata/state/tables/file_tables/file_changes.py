"""What commits do to files: they were validated, and nothing here refuses."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING

import msgspec

from receiver.metadata.model import records
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.table_rows import FileRow, FileState

if TYPE_CHECKING:
    from receiver.metadata.state.tables import Appliers
    from receiver.metadata.state.tables.file_tables.file_index import FileIndex

__all__ = ["FileChanges"]


class FileChanges:
    """Applies operations to an index of files; `ts` is the timestamp of their commit."""

    def __init__(self, index: FileIndex) -> None:
        self._index = index

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.FileLoaded: self._file_loaded,
            records.FileDeleted: self._file_deleted,
            records.FileRetired: self._file_retired,
            records.FileReturned: self._file_returned,
            records.FileQuarantined: self._file_quarantined,
            records.FileRestored: self._file_restored,
            records.FileNamed: self._file_named,
            records.FileUnnamed: self._file_unnamed,
            records.OriginNoted: self._origin_noted,
            records.ResourceNoted: self._resource_noted,
            records.FileSuperseded: self._file_superseded,
            records.FileRevived: self._file_revived,
            records.FileUndeleted: self._file_undeleted,
            records.FileVerified: self._file_verified,
            records.FileForgotten: self._file_forgotten,
            records.FileMoved: self._file_moved,
            records.SeriesLoaded: self._series_loaded,
            records.ListBegun: self._list_begun,
        }

    def _file_loaded(self, op: records.FileLoaded, ts: int) -> None:
        devices = self._index.devices.pack(op.devices, op.first, op.last)
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
            first_look=op.first_look,
            closed_look=op.closed_look,
            origin=op.origin,
            registered=is_merged(op.physical),  # its series are those of what it is made of
        )
        self._index.rows.young[op.physical] = row
        self._index.note_way(row)
        self._index.add_tail(row)
        self._index.take_path(row, op.path)
        self._index.orders[row.state].add(op.physical)
        self._index.show(row)
        self._index.gone.touch(row)

    def _file_deleted(self, op: records.FileDeleted, ts: int) -> None:
        row = self._index.become_young(op.physical)
        self._index.hide(row, FileState.DELETED)
        self._index.lost.pop(op.physical, None)
        self._index.free_paths(row)
        self._index.unrest(row)
        if row.state is FileState.SUPERSEDED or op.reason == "expired":
            self._pass_on(row)
        self._index.drop_tail(row)
        deleted = self._index.rows.young[op.physical] = msgspec.structs.replace(
            row,
            state=FileState.DELETED,
            reason=op.reason,
            rests=(),
            devices=row.devices.without_ranges(),
            deleted=ts,
            changed=ts,
        )
        self._index.deleted[op.physical] = None
        self._index.deleted_tails.add(deleted)
        if row.state is FileState.RETIRED:
            self._index.gone.touch(deleted)

    def _file_retired(self, op: records.FileRetired, ts: int) -> None:
        number = (
            None if op.physical in self._index.rows.young else self._index.rows.number(op.physical)
        )
        if number is not None:
            self._end_packed(number, op, ts)
            return
        row = self._index.become_young(op.physical)
        self._index.free_paths(row)
        state = FileState.RETIRED if row.visible else row.state
        retired = msgspec.structs.replace(
            row, state=state, retired=True, last_look=op.last_look or ts - 1, changed=ts
        )
        self._index.rows.young[op.physical] = retired
        self._index.lose(retired)
        self._index.gone.take(retired)
        self._index.gone.touch(retired)

    def _end_packed(self, number: int, op: records.FileRetired, ts: int) -> None:
        """The same for one that is packed, as most files are when they end."""
        last = op.last_look or ts - 1
        row = self._index.rows.end(number, op.physical, last_look=last, changed=ts)
        self._index.listed.remove(row, row.path)
        self._index.be_found(row)
        self._index.gone.take(row)
        self._index.gone.touch(row)

    def _file_returned(self, op: records.FileReturned, ts: int) -> None:
        row = self._index.become_young(op.physical)
        path = op.path or row.path
        self._index.take_path(row, path)
        self._index.gone.drop(row)
        row = _seen_anew(row, op.first_look, op.closed_look)
        returned = msgspec.structs.replace(
            row, path=path, names=(), state=FileState.LIVE, retired=False, last_look=0, changed=ts
        )
        self._index.rows.young[op.physical] = returned
        self._index.gone.touch(returned)

    def _file_named(self, op: records.FileNamed, ts: int) -> None:
        row = self._index.become_young(op.physical)
        self._index.take_path(row, op.path)
        path, *names = op.among(row.paths)
        row = _seen_anew(row, op.first_look)
        named = msgspec.structs.replace(row, path=path, names=tuple(names), changed=ts)
        self._index.rows.young[op.physical] = named
        self._index.note_way(named)
        if op.first_look:
            self._index.gone.touch(named)

    def _file_unnamed(self, op: records.FileUnnamed, ts: int) -> None:
        row = self._index.become_young(op.physical)
        self._index.free_path(row, op.path)
        path, *names = (each for each in row.paths if each != op.path)
        row = _seen_anew(row, op.first_look)
        unnamed = msgspec.structs.replace(row, path=path, names=tuple(names), changed=ts)
        self._index.rows.young[op.physical] = unnamed
        self._index.gone.touch(unnamed)

    def _origin_noted(self, op: records.OriginNoted, ts: int) -> None:
        row = msgspec.structs.replace(
            self._index.become_young(op.physical), origin=op.origin, changed=ts
        )
        self._index.rows.young[op.physical] = row
        self._index.note_way(row)
        self._index.gone.touch(row)

    def _resource_noted(self, op: records.ResourceNoted, ts: int) -> None:
        # As with `verified`: nobody who decides about a file depends on it, so `changed` stays.
        row = self._index.become_young(op.physical)
        self._index.rows.young[op.physical] = msgspec.structs.replace(row, resource=op.resource)

    def _file_moved(self, op: records.FileMoved, ts: int) -> None:
        # As with `verified`: nobody who decides about a file depends on it, so `changed` stays.
        if op.physical not in self._index.rows:
            return  # it is a merged file
        row = self._index.become_young(op.physical)
        moved = msgspec.structs.replace(row, data_dir=intern(op.data_dir))
        self._index.rows.young[op.physical] = moved
        if row.visible:
            self._index.by_directory.add(row, -1)
            self._index.by_directory.add(moved, 1)

    def _file_superseded(self, op: records.FileSuperseded, ts: int) -> None:
        row = self._index.become_young(op.physical)
        self._index.hide(row, FileState.SUPERSEDED)
        superseded = msgspec.structs.replace(
            row,
            state=FileState.SUPERSEDED,
            rests=tuple(map(intern, op.rests)),
            last_look=row.rank.last,  # of an older row it is known by `changed` alone
            superseded=ts,
            changed=ts,
        )
        self._index.rows.young[op.physical] = superseded
        self._index.rest(superseded)
        self._index.gone.take(superseded)

    def _file_revived(self, op: records.FileRevived, ts: int) -> None:
        row = self._index.become_young(op.physical)
        self._index.unrest(row)
        revived = msgspec.structs.replace(
            row, state=FileState.RETIRED, rests=(), superseded=0, changed=ts
        )
        self._index.rows.young[op.physical] = revived
        self._index.gone.drop(row)
        self._index.reorder(row, FileState.RETIRED)
        self._index.show(revived)
        self._index.gone.touch(revived)

    def _file_quarantined(self, op: records.FileQuarantined, ts: int) -> None:
        row = self._index.become_young(op.physical)
        self._index.hide(row, FileState.QUARANTINED)
        bad = self._index.rows.young[op.physical] = msgspec.structs.replace(
            row,
            state=FileState.QUARANTINED,
            reason=op.reason,
            verified=0,
            last_look=row.rank.last if row.retired else 0,
            changed=ts,
        )
        self._index.lose(bad)
        if not row.retired:
            for path in row.paths:
                self._index.listed.remove(row, path)
            self._index.wanted.setdefault(row.sender, {})[op.physical] = None

    def _file_restored(self, op: records.FileRestored, ts: int) -> None:
        row = self._index.become_young(op.physical)
        state = FileState.RETIRED if row.retired else FileState.LIVE
        restored = msgspec.structs.replace(row, state=state, reason=None, changed=ts)
        self._index.rows.young[op.physical] = restored
        self._index.lost.pop(op.physical, None)
        for path in row.paths if state is FileState.LIVE else ():
            self._index.listed.add(row, path)
        self._index.reorder(row, state)
        self._index.unwant(row)
        self._index.show(restored)
        self._index.gone.touch(restored)

    def _file_undeleted(self, op: records.FileUndeleted, ts: int) -> None:
        row = self._index.become_young(op.physical)
        back = msgspec.structs.replace(
            row,
            state=FileState.RETIRED,
            retired=True,
            reason=None,
            devices=self._index.devices.pack(op.devices, row.first, row.last),
            last_look=row.last_look or row.deleted - 1,
            deleted=0,
            superseded=0,
            verified=0,
            changed=ts,
        )
        self._index.rows.young[op.physical] = back
        self._index.gone.touch(back)
        del self._index.deleted[op.physical]
        self._index.deleted_tails.drop(row)
        self._index.reorder(row, FileState.RETIRED)
        self._index.add_tail(back)
        self._index.show(back)

    def _file_verified(self, op: records.FileVerified, ts: int) -> None:
        # As with `registered`: nobody who decides about a file depends on it, so `changed` stays.
        for physical in op.physicals:
            row = self._index.become_young(physical)
            if not row.verified:
                self._index.verified[row.sender] = self._index.verified.get(row.sender, 0) + 1
            self._index.rows.young[physical] = msgspec.structs.replace(row, verified=ts)

    def _file_forgotten(self, op: records.FileForgotten, ts: int) -> None:
        row = self._index.become_young(op.physical)
        del self._index.rows.young[op.physical]
        for path in row.paths:
            if self._index.forwarded.get((row.sender, path)) == op.physical:
                del self._index.forwarded[row.sender, path]
        del self._index.deleted[op.physical]
        self._index.deleted_tails.drop(row)
        self._index.orders[FileState.DELETED].remove(op.physical)

    def _series_loaded(self, op: records.SeriesLoaded, ts: int) -> None:
        row = self._index.become_young(op.physical)
        if not row.registered:
            self._index.rows.young[op.physical] = msgspec.structs.replace(row, registered=True)

    def _list_begun(self, op: records.ListBegun, ts: int) -> None:
        for each in self._index.listed_by(op.sender):
            row = self._index.become_young(each.physical)
            anew = msgspec.structs.replace(_seen_anew(row, op.look), changed=ts)
            self._index.rows.young[row.physical] = anew
            self._index.gone.touch(anew)

    def _pass_on(self, row: FileRow) -> None:
        """What rests on a file rests on what that one rests on, for it cannot come back itself.

        On an expired one nothing rests any more: its times are past the TTL in each file.
        """
        for resting in self._index.resting_on(row.physical):
            left = [each for each in resting.rests if each != row.physical]
            self._index.unrest(resting)
            heir = msgspec.structs.replace(resting, rests=tuple(dict.fromkeys([*left, *row.rests])))
            self._index.rows.young[heir.physical] = heir
            self._index.rest(heir)


def _seen_anew(row: FileRow, look: int, closed: int = 0) -> FileRow:
    if not look:
        return row
    return msgspec.structs.replace(row, first_look=look, closed_look=closed or look)
