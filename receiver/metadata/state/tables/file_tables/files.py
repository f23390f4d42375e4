"""Files that are or were loaded, and the orders in which they are asked for.

A file is visible from the moment that its commit, durable by then, is applied here, until it is
deleted or put in quarantine.
"""

from __future__ import annotations

from itertools import chain, compress, takewhile
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common.names import Kind
from receiver.metadata.state.file_rows import FrozenFileRows
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.file_tables.file_changes import FileChanges
from receiver.metadata.state.tables.file_tables.file_index import FileIndex, GroupKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from receiver.metadata.state.packed_files import PackedFiles
    from receiver.metadata.state.packing import Packed
    from receiver.metadata.state.ranges import DeviceTable
    from receiver.metadata.state.sorted_keys import SortedKeys
    from receiver.metadata.state.tables import Appliers
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey

__all__ = ["FileTable", "FileTotals", "FrozenFiles"]

_NO_TIME = -(1 << 63)


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
        self._index = index = FileIndex(devices)
        self._changes = FileChanges(index)
        self.rows = index.rows
        self.gone = index.gone
        self.listed = index.listed
        self.by_partition = index.by_partition
        self.by_directory = index.by_directory

    # -- questions ---------------------------------------------------------------------------

    def held(self, sender: str, path: str) -> FileRow | None:
        """The file that takes this path of a sender: live, or in quarantine after its load.

        The path may be any of its names.
        """
        found = self._index.at_path.get(sender, {}).get(path)
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
        keys, taken = self._index.inventories.get(sender), self._index.at_path.get(sender, {})
        found = [] if keys is None else keys.page(after, limit)
        young = [(path, self.rows.young[taken[path]]) for path in found]
        packed = self._packed_page(self.rows.packed.held_behind(sender, after), limit)
        if young and packed:
            young += [(row.path, row) for row in packed]
            return [_under(*each) for each in sorted(young, key=itemgetter(0))[:limit]]
        return packed or [_under(*each) for each in young]

    def listed_by(self, sender: str) -> list[FileRow]:
        """All files that take a path of a sender, each once."""
        return self._index.listed_by(sender)

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
        young = [self.rows.young[each] for each in self._index.orders[state].page(after, limit)]
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
        return [self.rows[each] for each in self._index.wanted.get(sender, ())]

    def every_wanted(self) -> list[FileRow]:
        """Those of all senders."""
        return [self.rows[each] for wanted in self._index.wanted.values() for each in wanted]

    def lost(self) -> list[FileRow]:
        """Files in quarantine that their senders have no more."""
        return [self.rows[each] for each in self._index.lost]

    def forwarded(self, sender: str, path: str) -> FileRow | None:
        """The file that a forwarding sender named so, held, ended or deleted."""
        found = self._index.forwarded.get((sender, path))
        return None if found is None else self.rows.get(found)

    def of_tail(self, tail: str) -> list[FileRow]:
        """Files with this digest of their tail that are not deleted, whoever sent them."""
        young = [self.rows.young[each] for each in self._index.young_of_tail(tail)]
        numbers = self.rows.packed.of_tail(tail)
        return young + self.rows.staying(numbers) if numbers else young

    def deleted_of_tail(self, tail: str) -> list[FileRow]:
        """Deleted files with this digest of their tail that are not forgotten yet."""
        return [self.rows[each] for each in self._index.deleted_tails.of(tail)]

    def resting_on(self, physical: str) -> list[FileRow]:
        """Superseded files whose proof names this file, or named one that this one superseded."""
        return self._index.resting_on(physical)

    def deleted(self) -> list[FileRow]:
        """Deleted files whose bytes may still be on the disk, the longest deleted first."""
        return [self.rows[each] for each in self._index.deleted]

    def count_deleted(self) -> int:
        """How many of those there are."""
        return len(self._index.deleted)

    def deleted_since(self, commit: int) -> list[FileRow]:
        """Those that were deleted behind a commit, the last one first."""
        rows = (self.rows[each] for each in reversed(self._index.deleted))
        return list(takewhile(lambda row: row.deleted > commit, rows))

    def superseded_since(self, commit: int) -> list[FileRow]:
        """Those that a proof took out of sight behind a commit, the last one first."""
        rows = (self.rows[each] for each in reversed(self.gone.superseded()))
        return list(takewhile(lambda row: row.superseded > commit, rows))

    def directories(self) -> list[str]:
        """Directories of groups that have a visible file; `GroupKey.of` takes one apart.

        A storage group may have 100,000 of them: do that without the lock.
        """
        packed = compress(self.rows.packed.texts.directories, self.rows.within)
        return list(dict.fromkeys(chain(self._index.groups, packed)))

    def group(self, key: GroupKey) -> list[FileRow]:
        """The visible files of a group, in order of (first, last, physical)."""
        directory = "/".join(key)
        young = (self.rows.young[each] for each in self._index.groups.get(directory, ()))
        packed = self.rows.staying(self.rows.packed.of_directory(directory))
        return sorted([*young, *packed], key=_order)

    def count_in(self, sg: str, sender: str, *, held: bool) -> int:
        """How many visible files of a storage group are of a sender; no row is made of one.

        Args:
            sg: storage group.
            sender: uuid.
            held: only those that it lists.
        """
        young = self.rows.young
        count = 0
        for directory, names in self._index.groups.items():
            if directory.split("/", 2)[1] == sg:
                rows = map(young.__getitem__, names)
                count += sum(row.sender == sender and (row.held or not held) for row in rows)
        return count + self.rows.count_packed(sg, sender, held=held)

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
            keys = self._index.orders[state]
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
                rows += [
                    self.rows.young[each] for each in self._index.orders[state].starting(begin)
                ]
        return rows

    def totals(self, sender: str | None = None) -> FileTotals:
        """Number and bytes of the visible files of a sender, or of all."""
        if sender is not None:
            return FileTotals._make(self._index.totals.get(sender, (0, 0)))
        every = self._index.totals.values()
        return FileTotals(sum(files for files, _ in every), sum(size for _, size in every))

    def verified(self, sender: str | None = None) -> int:
        """How many of the visible files of a sender, or of all, are verified."""
        if sender is not None:
            return self._index.verified.get(sender, 0)
        return sum(self._index.verified.values())

    # -- from a checkpoint -------------------------------------------------------------------

    def orders(self) -> tuple[list[str], list[str]]:
        """Physical paths in the orders that `deleted` and `wanted` have, for `restore_orders`."""
        return list(self._index.deleted), [
            each for wanted in self._index.wanted.values() for each in wanted
        ]

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
            self._index.be_packed(number, row)

    def shrink(self) -> None:
        """Give back the room of rows that are packed by now."""
        self.rows.shrink()
        self._index.at_path = {
            sender: dict(taken) for sender, taken in self._index.at_path.items() if taken
        }
        self._index.tails.shrink()
        self._index.deleted_tails.shrink()
        for keys in (*self._index.inventories.values(), *self._index.orders.values()):
            keys.shrink()

    def thaw(self, packed: PackedFiles) -> None:
        """Put in packed files as they were, before all others."""
        self.rows.thaw(packed)
        for sender, files, size, verified in packed.totals():
            self._index.totals[sender] = [files, size]
            if verified:
                self._index.verified[sender] = verified
        self.gone.thaw(packed)
        self.by_partition.thaw(packed)
        self.by_directory.thaw(packed)

    def restore(self, row: FileRow) -> None:
        """Put a row in as it was."""
        self._index.restore(row)

    def restore_orders(self, deleted: Iterable[str], wanted: Iterable[str]) -> None:
        """Finish what `restore` began, when all rows are there."""
        self._index.deleted = dict.fromkeys(deleted)
        for physical in wanted:
            self._index.wanted.setdefault(self.rows[physical].sender, {})[physical] = None
        self.gone.settle(self.rows)
        for keys in self._index.orders.values():
            keys.settle()  # now, and not when somebody who holds the lock asks for a page

    # -- operations --------------------------------------------------------------------------

    def operations(self) -> Appliers:
        """What it does with operations."""
        return self._changes.operations()


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
