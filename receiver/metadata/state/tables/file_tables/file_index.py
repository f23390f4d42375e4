"""Where each file is found: by its paths, tail, group, state and sender, and what they sum up to.

`FileChanges` keeps it as commits say; `FileTable` answers from it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.state.file_rows import FileRows
from receiver.metadata.state.packed_file import whole
from receiver.metadata.state.sorted_keys import SortedKeys
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.file_tables.directory_totals import DirectoryTotals
from receiver.metadata.state.tables.file_tables.listed import ListedSums
from receiver.metadata.state.tables.file_tables.partition_totals import PartitionTotals
from receiver.metadata.state.tables.file_tables.retired import RetiredIndex
from receiver.metadata.state.tables.file_tables.tail_index import TailIndex

if TYPE_CHECKING:
    from receiver.metadata.state.ranges import DeviceTable

__all__ = ["FileIndex", "GroupKey"]


class GroupKey(NamedTuple):
    """What a list of files in time order is kept for."""

    kind: str
    sg: str
    vsg: str
    partition: str

    @classmethod
    def of(cls, path: str) -> GroupKey:
        """The group of a checked path, or of a directory."""
        return cls._make(path.split("/", 4)[:4])


class FileIndex:
    """Files and the orders in which they are asked for; see the module.

    Attributes:
        rows, gone, listed, by_partition, by_directory: see `FileTable`.
        devices: packs what the files hold.
        groups: physical paths of visible young files, by the directory of their group, in order.
        at_path: the young file that takes a path, by sender and path.
        inventories: these paths, by sender, in order.
        orders: physical paths of young files by state; visible ones are in one order.
        totals: number and bytes of visible files, by sender.
        verified: how many of these are verified.
        deleted: deleted files, the longest deleted first.
        wanted: files in quarantine that are asked for again, by sender.
        resting: superseded files, by each file that their proof names.
        tails: young files that are not deleted, by the digest of their tail.
        deleted_tails: deleted files, by the same.
        lost: files in quarantine that their senders have no more.
        forwarded: the file that a forwarding sender named so, by sender and path.
    """

    def __init__(self, devices: DeviceTable) -> None:
        """Make an empty one."""
        self.rows = FileRows(devices)
        self.gone = RetiredIndex()
        self.listed = ListedSums(self.rows)
        self.by_partition = PartitionTotals()
        self.by_directory = DirectoryTotals()
        self.devices = devices
        self.groups: dict[str, list[str]] = {}
        self.at_path: dict[str, dict[str, str]] = {}
        self.inventories: dict[str, SortedKeys] = {}
        visible = SortedKeys()
        self.orders = {
            FileState.LIVE: visible,
            FileState.RETIRED: visible,
            FileState.QUARANTINED: SortedKeys(),
            FileState.SUPERSEDED: SortedKeys(),
            FileState.DELETED: SortedKeys(),
        }
        self.totals: dict[str, list[int]] = {}
        self.deleted: dict[str, None] = {}
        self.wanted: dict[str, dict[str, None]] = {}
        self.verified: dict[str, int] = {}
        self.resting: dict[str, dict[str, None]] = {}
        self.tails = TailIndex()
        self.deleted_tails = TailIndex()
        self.lost: dict[str, None] = {}
        self.forwarded: dict[tuple[str, str], str] = {}

    def restore(self, row: FileRow) -> None:
        """Put a row in as it was."""
        self.rows.young[row.physical] = row
        if row.held:
            for path in row.paths:
                self.take_path(row, path)
        self.orders[row.state].add(row.physical)
        if row.visible:
            self.show(row)
        if row.state is FileState.DELETED:
            self.deleted_tails.add(row)
        else:
            self.add_tail(row)
        self.rest(row)
        self.lose(row)
        self.note_way(row)
        if row.state is FileState.SUPERSEDED:
            self.gone.take(row)

    def listed_by(self, sender: str) -> list[FileRow]:
        """All files that take a path of a sender, each once."""
        taken = self.at_path.get(sender, {})
        packed = self.rows.staying(self.rows.packed.held_behind(sender, None))
        every = {row.path: row for row in packed}
        every |= {path: self.rows.young[physical] for path, physical in taken.items()}
        if len(every) > len(packed):
            every = {path: every[path] for path in sorted(every)}
        return list({id(row): row for row in every.values()}.values())

    def resting_on(self, physical: str) -> list[FileRow]:
        """Superseded files whose proof names this file, or named one that this one superseded."""
        return [self.rows[each] for each in self.resting.get(physical, ())]

    def become_young(self, physical: str) -> FileRow:
        """The row of a file that is to change: a packed one is young from now on."""
        found = self.rows.young.get(physical)
        if found is not None:
            return whole(found)
        number = self.rows.number(physical)
        if number is None:
            raise KeyError(physical)
        row = self.rows.take_out(number)
        if row.held:
            self.at_path.setdefault(row.sender, {})[row.path] = physical
            self._inventory(row.sender).add(row.path)
        self.be_found(row)
        return row

    def be_found(self, row: FileRow) -> None:
        """Let a visible file be found as those that are young are."""
        self.orders[row.state].add(row.physical)
        self._group(row)
        self.add_tail(row)

    def be_packed(self, number: int, row: FileRow) -> None:
        """The opposite of `become_young`, for a row that the packed file with a number is."""
        if not self.rows.put_back(number, row):
            return
        if row.held:
            del self.at_path[row.sender][row.path]
            self._inventory(row.sender).remove(row.path)
        self.orders[row.state].remove(row.physical)
        self._ungroup(row)
        self.drop_tail(row)

    def reorder(self, row: FileRow, state: FileState) -> None:
        """A file stands otherwise from now on."""
        self.orders[row.state].remove(row.physical)
        self.orders[state].add(row.physical)

    def show(self, row: FileRow) -> None:
        """Readers see a file from now on."""
        self._group(row)
        self._count(row, 1)
        if row.state is FileState.RETIRED:
            self.gone.take(row)

    def hide(self, row: FileRow, state: FileState) -> None:
        """A file is no longer as it was: it stands otherwise, and readers do not see it."""
        self.reorder(row, state)
        self.gone.drop(row)
        if not row.visible:
            return
        self._ungroup(row)
        self._count(row, -1)

    def _group(self, row: FileRow) -> None:
        directory = row.physical.rpartition("/")[0]
        group = self.groups.get(directory)
        if group is None:
            group = self.groups[directory] = []
        insort(group, row.physical)

    def _ungroup(self, row: FileRow) -> None:
        directory = row.physical.rpartition("/")[0]
        group = self.groups[directory]
        del group[bisect_left(group, row.physical)]
        if not group:
            del self.groups[directory]

    def _count(self, row: FileRow, sign: int) -> None:
        totals = self.totals.setdefault(row.sender, [0, 0])
        totals[0] += sign
        totals[1] += sign * row.size
        self.by_partition.add(row, sign)
        self.by_directory.add(row, sign)
        if row.verified:
            self.verified[row.sender] = self.verified.get(row.sender, 0) + sign

    def take_path(self, row: FileRow, path: str) -> None:
        """A file takes a path of its sender."""
        self.at_path.setdefault(row.sender, {})[path] = row.physical
        if row.visible:
            self.listed.add(row, path)
        self._inventory(row.sender).add(path)

    def free_path(self, row: FileRow, path: str) -> None:
        """It takes it no more."""
        del self.at_path[row.sender][path]
        if row.visible:
            self.listed.remove(row, path)
        self._inventory(row.sender).remove(path)

    def free_paths(self, row: FileRow) -> None:
        """It takes none any more, and is not asked for again."""
        self.unwant(row)
        if row.held:
            for path in row.paths:
                self.free_path(row, path)

    def add_tail(self, row: FileRow) -> None:
        """A file can be found by its tail."""
        self.tails.add(row)

    def drop_tail(self, row: FileRow) -> None:
        """It cannot any more."""
        self.tails.drop(row)

    def young_of_tail(self, tail: str) -> tuple[str, ...]:
        """Young files with this digest of their tail."""
        return self.tails.of(tail)

    def note_way(self, row: FileRow) -> None:
        """Each hop names a file as it came, and never another one so."""
        if row.origin is not None:
            for path in row.paths:
                self.forwarded[row.sender, path] = row.physical

    def rest(self, row: FileRow) -> None:
        """A superseded file rests on those that its proof names."""
        for physical in row.rests:
            self.resting.setdefault(physical, {})[row.physical] = None

    def unrest(self, row: FileRow) -> None:
        """It rests on none of them any more."""
        for physical in row.rests:
            resting = self.resting[physical]
            del resting[row.physical]
            if not resting:
                del self.resting[physical]

    def lose(self, row: FileRow) -> None:
        """A file in quarantine that its sender has no more is lost."""
        if row.state is FileState.QUARANTINED and row.retired:
            self.lost[row.physical] = None

    def unwant(self, row: FileRow) -> None:
        """A file is not asked for again."""
        self.wanted.get(row.sender, {}).pop(row.physical, None)

    def _inventory(self, sender: str) -> SortedKeys:
        keys = self.inventories.get(sender)
        if keys is None:
            keys = self.inventories[sender] = SortedKeys()
        return keys
