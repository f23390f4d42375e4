"""Files that are or were loaded, and the orders in which they are asked for.

A file is visible from the moment that its commit, durable by then, is applied here, until it is
deleted or put in quarantine.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import compress, takewhile
from operator import attrgetter, itemgetter
from sys import intern
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common.names import Kind
from receiver.metadata.model import records
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.file_rows import FileRows, FrozenFileRows
from receiver.metadata.state.packed_file import whole
from receiver.metadata.state.sorted_keys import SortedKeys
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.directory_totals import DirectoryTotals
from receiver.metadata.state.tables.listed import ListedSums
from receiver.metadata.state.tables.partition_totals import PartitionTotals
from receiver.metadata.state.tables.retired import RetiredIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from receiver.metadata.state.packed_files import PackedFiles
    from receiver.metadata.state.packing import Packed
    from receiver.metadata.state.ranges import DeviceTable
    from receiver.metadata.state.tables import Appliers
    from receiver.metadata.state.tables.retired import PartitionKey

__all__ = ["FileTable", "FileTotals", "FrozenFiles", "GroupKey"]

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


class FileTotals(NamedTuple):
    """Visible files."""

    files: int
    size: int


class FrozenFiles(NamedTuple):
    """Files as of one commit, free of any lock.

    Attributes:
        rows: see there.
        deleted: physical paths in the order of `FileTable.deleted`.
        wanted: those of `FileTable.wanted`, in order.
        listed: `ListedSums.sums`.
    """

    rows: FrozenFileRows
    deleted: list[str]
    wanted: list[str]
    listed: dict[str, tuple[int, str]]


class FileTable:
    """Files.

    Attributes:
        rows: by physical path, those too that are deleted and not yet forgotten.
        gone: those that their senders have no more, retired or superseded.
        listed: the sums of those that their senders have.
        by_partition: the sums of those that are visible.
        by_directory: the same, by the data directory that they lie in.
    """

    def __init__(self, devices: DeviceTable) -> None:
        """Make an empty table; `devices` packs what the files hold."""
        self.rows = FileRows(devices)
        self.gone = RetiredIndex()
        self.listed = ListedSums(self.rows)
        self.by_partition = PartitionTotals()
        self.by_directory = DirectoryTotals()
        self._devices = devices
        self._groups: dict[GroupKey, list[str]] = {}
        self._at_path: dict[str, dict[str, str]] = {}
        self._inventories: dict[str, SortedKeys] = {}
        visible = SortedKeys()
        self._orders = {
            FileState.LIVE: visible,
            FileState.RETIRED: visible,
            FileState.QUARANTINED: SortedKeys(),
            FileState.SUPERSEDED: SortedKeys(),
            FileState.DELETED: SortedKeys(),
        }
        self._totals: dict[str, list[int]] = {}
        self._deleted: dict[str, None] = {}
        self._wanted: dict[str, dict[str, None]] = {}
        self._verified: dict[str, int] = {}
        self._resting: dict[str, dict[str, None]] = {}
        self._tails: dict[bytes | str, str | tuple[str, ...]] = {}
        self._lost: dict[str, None] = {}
        self._forwarded: dict[tuple[str, str], str] = {}

    # -- questions ---------------------------------------------------------------------------

    def held(self, sender: str, path: str) -> FileRow | None:
        """The file that takes this path of a sender: live, or in quarantine after its load.

        The path may be any of its names.
        """
        found = self._at_path.get(sender, {}).get(path)
        if found is not None:
            return self.rows.young[found]
        numbers = self.rows.packed.at_path(path)
        if not numbers:
            return None
        rows = self.rows.staying(numbers)
        return next((row for row in rows if row.held and row.sender == sender), None)

    def live(self, sender: str, path: str) -> FileRow | None:
        """The live file at this path of a sender."""
        found = self.held(sender, path)
        return found if found is not None and found.state is FileState.LIVE else None

    def inventory(self, sender: str, after: str | None, limit: int) -> list[FileRow]:
        """A page of the files that take a path of the sender, by path, from behind `after`.

        A file with several names is there under each; `path` is the one that it is listed under.
        """
        keys, taken = self._inventories.get(sender), self._at_path.get(sender, {})
        found = [] if keys is None else keys.page(after, limit)
        young = [(path, self.rows.young[taken[path]]) for path in found]
        packed = self._packed_page(self.rows.packed.held_behind(sender, after), limit)
        if young and packed:
            young += [(row.path, row) for row in packed]
            return [_under(*each) for each in sorted(young, key=itemgetter(0))[:limit]]
        return packed or [_under(*each) for each in young]

    def listed_by(self, sender: str) -> list[FileRow]:
        """All files that take a path of a sender, each once."""
        taken = self._at_path.get(sender, {})
        packed = self.rows.staying(self.rows.packed.held_behind(sender, None))
        every = {row.path: row for row in packed}
        every |= {path: self.rows.young[physical] for path, physical in taken.items()}
        if len(every) > len(packed):
            every = {path: every[path] for path in sorted(every)}
        return list({id(row): row for row in every.values()}.values())

    def _packed_page(self, numbers: Sequence[int], limit: int) -> list[FileRow]:
        """Up to `limit` packed files, the first of some numbers."""
        found: list[FileRow] = []
        for at in range(0, len(numbers), max(limit, 1)):
            found += self.rows.staying(numbers[at : at + limit])
            if len(found) >= limit:
                break
        return found[:limit]

    def catalogue(self, after: str | None, limit: int) -> list[FileRow]:
        """A page of all visible files, retired ones too, by physical path, from behind `after`."""
        return self.among(FileState.LIVE, after, limit)

    def among(self, state: FileState, after: str | None, limit: int) -> list[FileRow]:
        """A page of files by physical path: all visible ones, or all in another state."""
        young = [self.rows.young[each] for each in self._orders[state].page(after, limit)]
        if state not in (FileState.LIVE, FileState.RETIRED):
            return young
        begin = 0 if after is None else self.rows.packed.behind(after)
        packed = self._packed_page(range(begin, len(self.rows.packed)), limit)
        if young and packed:
            return sorted([*young, *packed], key=attrgetter("physical"))[:limit]
        return packed or young

    def quarantined(self) -> list[FileRow]:
        """Files that were found bad after they were loaded, by physical path."""
        return self.among(FileState.QUARANTINED, None, len(self.rows))

    def wanted(self, sender: str) -> list[FileRow]:
        """Files that the sender once sent, now found bad: wanted again but for those on hold."""
        return [self.rows[each] for each in self._wanted.get(sender, ())]

    def every_wanted(self) -> list[FileRow]:
        """Those of all senders."""
        return [self.rows[each] for wanted in self._wanted.values() for each in wanted]

    def lost(self) -> list[FileRow]:
        """Files in quarantine that their senders have no more."""
        return [self.rows[each] for each in self._lost]

    def forwarded(self, sender: str, path: str) -> FileRow | None:
        """The file that a forwarding sender named so, held, ended or deleted."""
        found = self._forwarded.get((sender, path))
        return None if found is None else self.rows.get(found)

    def of_tail(self, tail: str) -> list[FileRow]:
        """Files with this digest of their tail that are not deleted, whoever sent them."""
        young = [self.rows.young[each] for each in self._young_of_tail(tail)]
        numbers = self.rows.packed.of_tail(tail)
        return young + self.rows.staying(numbers) if numbers else young

    def resting_on(self, physical: str) -> list[FileRow]:
        """Superseded files whose proof names this file, or named one that this one superseded."""
        return [self.rows[each] for each in self._resting.get(physical, ())]

    def deleted(self) -> list[FileRow]:
        """Deleted files whose bytes may still be on the disk, the longest deleted first."""
        return [self.rows[each] for each in self._deleted]

    def count_deleted(self) -> int:
        """How many of those there are."""
        return len(self._deleted)

    def deleted_since(self, commit: int) -> list[FileRow]:
        """Those that were deleted behind a commit, the last one first."""
        rows = (self.rows[each] for each in reversed(self._deleted))
        return list(takewhile(lambda row: row.deleted > commit, rows))

    def superseded_since(self, commit: int) -> list[FileRow]:
        """Those that a proof took out of sight behind a commit, the last one first."""
        rows = (self.rows[each] for each in reversed(self.gone.superseded()))
        return list(takewhile(lambda row: row.superseded > commit, rows))

    def groups(self) -> list[GroupKey]:
        """Groups that have a visible file."""
        rows = self.rows
        directories = compress(rows.packed.texts.directories, rows.within)
        packed = (GroupKey.of(f"{each}/") for each in directories)
        return list(dict.fromkeys([*self._groups, *packed]))

    def group(self, key: GroupKey) -> list[FileRow]:
        """The visible files of a group, in order of (first, last, physical)."""
        young = (self.rows.young[each] for each in self._groups.get(key, ()))
        packed = self.rows.staying(self.rows.packed.of_directory("/".join(key)))
        return sorted([*young, *packed], key=_order)

    def partition(self, sg: str, vsg: str, partition: int | str) -> list[FileRow]:
        """The visible files of a partition, sequence then unsequence, whoever sent them."""
        return [row for kind in Kind for row in self.group(GroupKey(kind, sg, vsg, str(partition)))]

    def beside(
        self,
        key: PartitionKey,
        ids: AbstractSet[int],
        first: int,
        last: int,
        *,
        since: int = 0,
        hidden: bool = False,
    ) -> list[FileRow]:
        """Visible files of other partitions that have a device and a time of some files.

        Mostly there are none. Where files lie by what a database's directory does not tell, one may
        have times of several partitions; and a device may have been of another group before.

        Args:
            key: the partition that is left out.
            ids: of the devices; see `ids_of`.
            first: time of those files.
            last: of them.
            since: only files that changed behind this commit.
            hidden: those too that may be visible again.
        """
        own = {f"{kind}/{'/'.join(key)}" for kind in Kind}
        found = self.rows.meeting(ids, first, last, since=since, beside=own, hidden=hidden)
        return list(found)

    def is_empty(self, sg: str, begin: int, end: int) -> bool:
        """Whether partitions `begin` to `end` of a storage group have no file in whatever state.

        Those count too that are not yet forgotten.
        """
        if self.by_partition.of(sg, begin, end).files:
            return False
        for state in (FileState.QUARANTINED, FileState.SUPERSEDED, FileState.DELETED):
            keys = self._orders[state]
            for above in (f"{kind}/{sg}/" for kind in Kind):
                for region in _directories(keys, above):
                    places = (f"{above}{region}/{each}/" for each in range(begin, end))
                    if any(_first(keys, each) for each in places):
                        return False
        return True

    def every_in(self, sg: str, vsg: str, partition: int | str) -> list[FileRow]:
        """The files of a partition in whatever state, those too that are not yet forgotten."""
        rows = self.partition(sg, vsg, partition)
        for state in (FileState.QUARANTINED, FileState.SUPERSEDED, FileState.DELETED):
            for kind in Kind:
                begin = "/".join((kind, sg, vsg, str(partition), ""))
                rows += [self.rows.young[each] for each in self._orders[state].starting(begin)]
        return rows

    def totals(self, sender: str | None = None) -> FileTotals:
        """Number and bytes of the visible files of a sender, or of all."""
        if sender is not None:
            return FileTotals._make(self._totals.get(sender, (0, 0)))
        every = self._totals.values()
        return FileTotals(sum(files for files, _ in every), sum(size for _, size in every))

    def verified(self, sender: str | None = None) -> int:
        """How many of the visible files of a sender, or of all, are verified."""
        if sender is not None:
            return self._verified.get(sender, 0)
        return sum(self._verified.values())

    # -- from a checkpoint -------------------------------------------------------------------

    def orders(self) -> tuple[list[str], list[str]]:
        """Physical paths in the orders that `deleted` and `wanted` have, for `restore_orders`."""
        return list(self._deleted), [each for wanted in self._wanted.values() for each in wanted]

    def freeze(self) -> FrozenFiles:
        """A copy, made under the caller's lock."""
        deleted, wanted = self.orders()
        return FrozenFiles(self.rows.freeze(), deleted, wanted, listed=self.listed.sums())

    def adopt(self, frozen: FrozenFiles, packed: Packed) -> None:
        """Take what frozen rows were packed to; they stay young until `be_packed` is told so."""
        self.rows.adopt(frozen.rows, packed)

    def be_packed(self, rows: Iterable[tuple[int, FileRow]]) -> None:
        """Let packed files, by number, stand for those of these rows that did not change."""
        for number, row in rows:
            self._pack(number, row)

    def shrink(self) -> None:
        """Give back the room of rows that are packed by now."""
        self.rows.shrink()
        self._at_path = {sender: dict(taken) for sender, taken in self._at_path.items() if taken}
        self._tails = dict(self._tails)
        for keys in (*self._inventories.values(), *self._orders.values()):
            keys.shrink()

    def thaw(self, packed: PackedFiles) -> None:
        """Put in packed files as they were, before all others."""
        self.rows.thaw(packed)
        for sender, files, size, verified in packed.totals():
            self._totals[sender] = [files, size]
            if verified:
                self._verified[sender] = verified
        self.gone.thaw(packed)
        self.by_partition.thaw(packed)
        self.by_directory.thaw(packed)

    def restore(self, row: FileRow) -> None:
        """Put a row in as it was."""
        self.rows.young[row.physical] = row
        if row.held:
            for path in row.paths:
                self._take_path(row, path)
        self._orders[row.state].add(row.physical)
        if row.visible:
            self._show(row)
        if row.state is not FileState.DELETED:
            self._add_tail(row)
        self._rest(row)
        self._lose(row)
        self._note_way(row)
        if row.state is FileState.SUPERSEDED:
            self.gone.take(row)

    def restore_orders(self, deleted: Iterable[str], wanted: Iterable[str]) -> None:
        """Finish what `restore` began, when all rows are there."""
        self._deleted = dict.fromkeys(deleted)
        for physical in wanted:
            self._wanted.setdefault(self.rows[physical].sender, {})[physical] = None
        self.gone.settle(self.rows)
        for keys in self._orders.values():
            keys.settle()  # now, and not when somebody who holds the lock asks for a page

    # -- operations --------------------------------------------------------------------------

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
            first_look=op.first_look,
            closed_look=op.closed_look,
            origin=op.origin,
            registered=is_merged(op.physical),  # its series are those of what it is made of
        )
        self.rows.young[op.physical] = row
        self._note_way(row)
        self._add_tail(row)
        self._take_path(row, op.path)
        self._orders[row.state].add(op.physical)
        self._show(row)
        self.gone.touch(row)

    def _file_deleted(self, op: records.FileDeleted, ts: int) -> None:
        row = self._young(op.physical)
        self._hide(row, FileState.DELETED)
        self._lost.pop(op.physical, None)
        self._free_paths(row)
        self._unrest(row)
        if row.state is FileState.SUPERSEDED or op.reason == "expired":
            self._pass_on(row)
        self._drop_tail(row)
        deleted = self.rows.young[op.physical] = msgspec.structs.replace(
            row,
            state=FileState.DELETED,
            reason=op.reason,
            rests=(),
            devices=row.devices.without_ranges(),
            deleted=ts,
            changed=ts,
        )
        self._deleted[op.physical] = None
        if row.state is FileState.RETIRED:
            self.gone.touch(deleted)

    def _file_retired(self, op: records.FileRetired, ts: int) -> None:
        number = None if op.physical in self.rows.young else self.rows.number(op.physical)
        if number is not None:
            self._end_packed(number, op, ts)
            return
        row = self._young(op.physical)
        self._free_paths(row)
        state = FileState.RETIRED if row.visible else row.state
        retired = msgspec.structs.replace(
            row, state=state, retired=True, last_look=op.last_look or ts - 1, changed=ts
        )
        self.rows.young[op.physical] = retired
        self._lose(retired)
        self.gone.take(retired)
        self.gone.touch(retired)

    def _end_packed(self, number: int, op: records.FileRetired, ts: int) -> None:
        """The same for one that is packed, as most files are when they end."""
        last = op.last_look or ts - 1
        row = self.rows.end(number, op.physical, last_look=last, changed=ts)
        self.listed.remove(row, row.path)
        self._be_found(row)
        self.gone.take(row)
        self.gone.touch(row)

    def _file_returned(self, op: records.FileReturned, ts: int) -> None:
        row = self._young(op.physical)
        path = op.path or row.path
        self._take_path(row, path)
        self.gone.drop(row)
        row = _seen_anew(row, op.first_look, op.closed_look)
        returned = msgspec.structs.replace(
            row, path=path, names=(), state=FileState.LIVE, retired=False, last_look=0, changed=ts
        )
        self.rows.young[op.physical] = returned
        self.gone.touch(returned)

    def _file_named(self, op: records.FileNamed, ts: int) -> None:
        row = self._young(op.physical)
        self._take_path(row, op.path)
        path, *names = op.among(row.paths)
        row = _seen_anew(row, op.first_look)
        named = msgspec.structs.replace(row, path=path, names=tuple(names), changed=ts)
        self.rows.young[op.physical] = named
        self._note_way(named)
        if op.first_look:
            self.gone.touch(named)

    def _file_unnamed(self, op: records.FileUnnamed, ts: int) -> None:
        row = self._young(op.physical)
        self._free_path(row, op.path)
        path, *names = (each for each in row.paths if each != op.path)
        row = _seen_anew(row, op.first_look)
        unnamed = msgspec.structs.replace(row, path=path, names=tuple(names), changed=ts)
        self.rows.young[op.physical] = unnamed
        self.gone.touch(unnamed)

    def _origin_noted(self, op: records.OriginNoted, ts: int) -> None:
        row = msgspec.structs.replace(self._young(op.physical), origin=op.origin, changed=ts)
        self.rows.young[op.physical] = row
        self._note_way(row)
        self.gone.touch(row)

    def _resource_noted(self, op: records.ResourceNoted, ts: int) -> None:
        # As with `verified`: nobody who decides about a file depends on it, so `changed` stays.
        row = self._young(op.physical)
        self.rows.young[op.physical] = msgspec.structs.replace(row, resource=op.resource)

    def _file_moved(self, op: records.FileMoved, ts: int) -> None:
        # As with `verified`: nobody who decides about a file depends on it, so `changed` stays.
        if op.physical not in self.rows:
            return  # it is a merged file
        row = self._young(op.physical)
        moved = msgspec.structs.replace(row, data_dir=intern(op.data_dir))
        self.rows.young[op.physical] = moved
        if row.visible:
            self.by_directory.add(row, -1)
            self.by_directory.add(moved, 1)

    def _note_way(self, row: FileRow) -> None:
        """Each hop names a file as it came, and never another one so."""
        if row.origin is not None:
            for path in row.paths:
                self._forwarded[row.sender, path] = row.physical

    def _file_superseded(self, op: records.FileSuperseded, ts: int) -> None:
        row = self._young(op.physical)
        self._hide(row, FileState.SUPERSEDED)
        superseded = msgspec.structs.replace(
            row,
            state=FileState.SUPERSEDED,
            rests=tuple(map(intern, op.rests)),
            last_look=row.rank.last,  # of an older row it is known by `changed` alone
            superseded=ts,
            changed=ts,
        )
        self.rows.young[op.physical] = superseded
        self._rest(superseded)
        self.gone.take(superseded)

    def _file_revived(self, op: records.FileRevived, ts: int) -> None:
        row = self._young(op.physical)
        self._unrest(row)
        revived = msgspec.structs.replace(
            row, state=FileState.RETIRED, rests=(), superseded=0, changed=ts
        )
        self.rows.young[op.physical] = revived
        self.gone.drop(row)
        self._reorder(row, FileState.RETIRED)
        self._show(revived)
        self.gone.touch(revived)

    def _file_quarantined(self, op: records.FileQuarantined, ts: int) -> None:
        row = self._young(op.physical)
        self._hide(row, FileState.QUARANTINED)
        bad = self.rows.young[op.physical] = msgspec.structs.replace(
            row,
            state=FileState.QUARANTINED,
            reason=op.reason,
            verified=0,
            last_look=row.rank.last if row.retired else 0,
            changed=ts,
        )
        self._lose(bad)
        if not row.retired:
            for path in row.paths:
                self.listed.remove(row, path)
            self._wanted.setdefault(row.sender, {})[op.physical] = None

    def _file_restored(self, op: records.FileRestored, ts: int) -> None:
        row = self._young(op.physical)
        state = FileState.RETIRED if row.retired else FileState.LIVE
        restored = msgspec.structs.replace(row, state=state, reason=None, changed=ts)
        self.rows.young[op.physical] = restored
        self._lost.pop(op.physical, None)
        for path in row.paths if state is FileState.LIVE else ():
            self.listed.add(row, path)
        self._reorder(row, state)
        self._unwant(row)
        self._show(restored)
        self.gone.touch(restored)

    def _file_undeleted(self, op: records.FileUndeleted, ts: int) -> None:
        row = self._young(op.physical)
        back = msgspec.structs.replace(
            row,
            state=FileState.RETIRED,
            retired=True,
            reason=None,
            devices=self._devices.pack(op.devices, row.first, row.last),
            last_look=row.last_look or row.deleted - 1,
            deleted=0,
            superseded=0,
            verified=0,
            changed=ts,
        )
        self.rows.young[op.physical] = back
        self.gone.touch(back)
        del self._deleted[op.physical]
        self._reorder(row, FileState.RETIRED)
        self._add_tail(back)
        self._show(back)

    def _file_verified(self, op: records.FileVerified, ts: int) -> None:
        # As with `registered`: nobody who decides about a file depends on it, so `changed` stays.
        for physical in op.physicals:
            row = self._young(physical)
            if not row.verified:
                self._verified[row.sender] = self._verified.get(row.sender, 0) + 1
            self.rows.young[physical] = msgspec.structs.replace(row, verified=ts)

    def _file_forgotten(self, op: records.FileForgotten, ts: int) -> None:
        row = self._young(op.physical)
        del self.rows.young[op.physical]
        for path in row.paths:
            if self._forwarded.get((row.sender, path)) == op.physical:
                del self._forwarded[row.sender, path]
        del self._deleted[op.physical]
        self._orders[FileState.DELETED].remove(op.physical)

    def _series_loaded(self, op: records.SeriesLoaded, ts: int) -> None:
        row = self._young(op.physical)
        if not row.registered:
            self.rows.young[op.physical] = msgspec.structs.replace(row, registered=True)

    def _list_begun(self, op: records.ListBegun, ts: int) -> None:
        for each in self.listed_by(op.sender):
            row = self._young(each.physical)
            anew = msgspec.structs.replace(_seen_anew(row, op.look), changed=ts)
            self.rows.young[row.physical] = anew
            self.gone.touch(anew)

    # -- young and packed ones ---------------------------------------------------------------

    def _young(self, physical: str) -> FileRow:
        """The row of a file that is to change: a packed one is young from now on."""
        found = self.rows.young.get(physical)
        if found is not None:
            return whole(found)
        number = self.rows.number(physical)
        if number is None:
            raise KeyError(physical)
        row = self.rows.take_out(number)
        if row.held:
            self._at_path.setdefault(row.sender, {})[row.path] = physical
            self._inventory(row.sender).add(row.path)
        self._be_found(row)
        return row

    def _be_found(self, row: FileRow) -> None:
        """Let a visible file be found as those that are young are."""
        self._orders[row.state].add(row.physical)
        self._group(row)
        self._add_tail(row)

    def _pack(self, number: int, row: FileRow) -> None:
        """The opposite of `_young`, for a row that the packed file with a number is."""
        if not self.rows.put_back(number, row):
            return
        if row.held:
            del self._at_path[row.sender][row.path]
            self._inventory(row.sender).remove(row.path)
        self._orders[row.state].remove(row.physical)
        self._ungroup(row)
        self._drop_tail(row)

    def _reorder(self, row: FileRow, state: FileState) -> None:
        self._orders[row.state].remove(row.physical)
        self._orders[state].add(row.physical)

    def _show(self, row: FileRow) -> None:
        self._group(row)
        self._count(row, 1)
        if row.state is FileState.RETIRED:
            self.gone.take(row)

    def _hide(self, row: FileRow, state: FileState) -> None:
        self._reorder(row, state)
        self.gone.drop(row)
        if not row.visible:
            return
        self._ungroup(row)
        self._count(row, -1)

    def _group(self, row: FileRow) -> None:
        key = GroupKey.of(row.physical)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = []
        insort(group, row.physical)

    def _ungroup(self, row: FileRow) -> None:
        key = GroupKey.of(row.physical)
        group = self._groups[key]
        del group[bisect_left(group, row.physical)]
        if not group:
            del self._groups[key]

    def _count(self, row: FileRow, sign: int) -> None:
        totals = self._totals.setdefault(row.sender, [0, 0])
        totals[0] += sign
        totals[1] += sign * row.size
        self.by_partition.add(row, sign)
        self.by_directory.add(row, sign)
        if row.verified:
            self._verified[row.sender] = self._verified.get(row.sender, 0) + sign

    def _take_path(self, row: FileRow, path: str) -> None:
        self._at_path.setdefault(row.sender, {})[path] = row.physical
        if row.visible:
            self.listed.add(row, path)
        self._inventory(row.sender).add(path)

    def _free_path(self, row: FileRow, path: str) -> None:
        del self._at_path[row.sender][path]
        if row.visible:
            self.listed.remove(row, path)
        self._inventory(row.sender).remove(path)

    def _free_paths(self, row: FileRow) -> None:
        self._unwant(row)
        if row.held:
            for path in row.paths:
                self._free_path(row, path)

    def _add_tail(self, row: FileRow) -> None:
        # Nearly every tail is of one file: its name alone costs less than a tuple with it.
        raw = _raw(row.tail)
        there = self._tails.get(raw)
        if there is None:
            self._tails[raw] = row.physical
        else:
            several = (there,) if isinstance(there, str) else there
            self._tails[raw] = (*several, row.physical)

    def _drop_tail(self, row: FileRow) -> None:
        left = tuple(each for each in self._young_of_tail(row.tail) if each != row.physical)
        if left:
            self._tails[_raw(row.tail)] = left if len(left) > 1 else left[0]
        else:
            del self._tails[_raw(row.tail)]

    def _young_of_tail(self, tail: str) -> tuple[str, ...]:
        found = self._tails.get(_raw(tail), ())
        return (found,) if isinstance(found, str) else found

    def _rest(self, row: FileRow) -> None:
        for physical in row.rests:
            self._resting.setdefault(physical, {})[row.physical] = None

    def _unrest(self, row: FileRow) -> None:
        for physical in row.rests:
            resting = self._resting[physical]
            del resting[row.physical]
            if not resting:
                del self._resting[physical]

    def _pass_on(self, row: FileRow) -> None:
        """What rests on a file rests on what that one rests on, for it cannot come back itself.

        On an expired one nothing rests any more: its times are past the TTL in each file.
        """
        for resting in self.resting_on(row.physical):
            left = [each for each in resting.rests if each != row.physical]
            self._unrest(resting)
            heir = msgspec.structs.replace(resting, rests=tuple(dict.fromkeys([*left, *row.rests])))
            self.rows.young[heir.physical] = heir
            self._rest(heir)

    def _lose(self, row: FileRow) -> None:
        if row.state is FileState.QUARANTINED and row.retired:
            self._lost[row.physical] = None

    def _unwant(self, row: FileRow) -> None:
        self._wanted.get(row.sender, {}).pop(row.physical, None)

    def _inventory(self, sender: str) -> SortedKeys:
        keys = self._inventories.get(sender)
        if keys is None:
            keys = self._inventories[sender] = SortedKeys()
        return keys


def _first(keys: SortedKeys, above: str) -> str | None:
    """The first of some names that begin so."""
    found = keys.page(above, 1)
    return found[0] if found and found[0].startswith(above) else None


def _directories(keys: SortedKeys, above: str) -> Iterator[str]:
    """The names of what is in a directory that has some of these, a step for each of them."""
    after = above
    while (found := keys.page(after, 1)) and found[0].startswith(above):
        name = found[0][len(above) :].partition("/")[0]
        yield name
        after = f"{above}{name}0"  # which stands behind a slash


def _under(path: str, row: FileRow) -> FileRow:
    return row if row.path == path else msgspec.structs.replace(row, path=path)


def _order(row: FileRow) -> tuple[int, int, str]:
    first = _NO_TIME if row.first is None else row.first
    last = _NO_TIME if row.last is None else row.last
    return first, last, row.physical


def _seen_anew(row: FileRow, look: int, closed: int = 0) -> FileRow:
    if not look:
        return row
    return msgspec.structs.replace(row, first_look=look, closed_look=closed or look)


def _raw(digest: str) -> bytes | str:
    """A digest in half the bytes; whatever else stands in its place stays as it is."""
    try:
        raw = bytes.fromhex(digest)
    except ValueError:
        return digest
    return raw if raw.hex() == digest else digest
