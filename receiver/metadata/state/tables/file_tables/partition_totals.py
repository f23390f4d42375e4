"""How many visible files each time partition has, and which times they reach over.

A partition's name says where its files should lie in time; flat layouts, table-model files and odd
databases cross it. So what has times of a range is found by the least and greatest time of the
files, in a few steps however many partitions there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.state.tables.file_tables.retired import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from receiver.metadata.state.packed_files import PackedFiles
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey

__all__ = ["PartitionTotal", "PartitionTotals"]

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


class PartitionTotal(NamedTuple):
    """The visible files of one partition of a storage group, or of several.

    Attributes:
        files: how many, of all virtual groups and senders.
        size: their bytes.
        first: no file has an earlier time, in the unit of the files; None while none has had any.
        last: none has a later one. Both hold for all files since the partition was last empty.
        points: of the files; those twice that two files have.
    """

    files: int = 0
    size: int = 0
    first: int | None = None
    last: int | None = None
    points: int = 0

    @classmethod
    def of(cls, row: FileRow, sign: int = 1) -> PartitionTotal:
        """Of one file; `sign` is -1 for one that goes."""
        return cls(sign, sign * row.size, row.first, row.last, sign * row.points)

    def with_other(self, other: PartitionTotal) -> PartitionTotal:
        """Of both together."""
        first, last = self.first, self.last
        if first is None or last is None:
            first, last = other.first, other.last
        elif other.first is not None and other.last is not None:
            if other.first < first:
                first = other.first
            if other.last > last:
                last = other.last
        files, size = self.files + other.files, self.size + other.size
        return PartitionTotal(files, size, first, last, self.points + other.points)


class _Group:
    """The partitions of one storage group, in order.

    Attributes:
        numbers: of those with files.
        totals: of these.
        regions: virtual storage groups that have files, and how many.
    """

    __slots__ = ("_firsts", "_lasts", "_stale", "numbers", "regions", "totals")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.totals: dict[int, PartitionTotal] = {}
        self.regions: Counter[str] = Counter()
        self._lasts: list[int] = []  # the greatest time up to each, from the beginning
        self._firsts: list[int] = []  # the least time from each on, up to the end
        self._stale = False

    def add(self, number: int, more: PartitionTotal) -> None:
        before = self.totals.get(number)
        total = more if before is None else before.with_other(more)
        if not total.files:
            del self.totals[number], self.numbers[bisect_left(self.numbers, number)]
            self._stale = True
            return
        if before is None:
            if not self.numbers or number > self.numbers[-1]:
                self.numbers.append(number)
                self._lasts.append(self._lasts[-1] if self._lasts else _LEAST)
                self._firsts.append(_GREATEST)
            else:
                insort(self.numbers, number)
                self._stale = True
        self.totals[number] = total
        if self._stale or (before is not None and before[2:4] == total[2:4]):
            return
        self._widen(bisect_left(self.numbers, number), total)

    def copied(self) -> _Group:
        """The totals alone."""
        made = _Group()
        made.numbers, made.totals = self.numbers.copy(), self.totals.copy()
        return made

    def _widen(self, at: int, total: PartitionTotal) -> None:
        if total.last is not None:
            for each in range(at, len(self._lasts)):
                if self._lasts[each] >= total.last:
                    break
                self._lasts[each] = total.last
        if total.first is not None:
            for each in range(at, -1, -1):
                if self._firsts[each] <= total.first:
                    break
                self._firsts[each] = total.first

    def meeting(self, first: int, last: int) -> Iterator[int]:
        """Partitions that may have a file with a time of a range, both ends included."""
        if self._stale:
            self._settle()
        end = bisect_left(self._firsts, last + 1)
        for at in range(bisect_left(self._lasts, first), end):
            total = self.totals[self.numbers[at]]
            if total.first is not None and total.first <= last and first <= (total.last or 0):
                yield self.numbers[at]

    def _settle(self) -> None:
        # Who leads the commits asks without the lock of readers: another one may use what is here.
        count = len(self.numbers)
        lasts, firsts = [_LEAST] * count, [_GREATEST] * count
        reached, begun = _LEAST, _GREATEST
        for at, number in enumerate(self.numbers):
            found = self.totals[number].last
            reached = reached if found is None else max(reached, found)
            lasts[at] = reached
        for at in range(count - 1, -1, -1):
            found = self.totals[self.numbers[at]].first
            begun = begun if found is None else min(begun, found)
            firsts[at] = begun
        self._lasts, self._firsts = lasts, firsts
        self._stale = False


class PartitionTotals:
    """Totals by storage group and partition."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    # -- questions ---------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Storage groups that have a visible file, as their directories are called."""
        return list(self._groups)

    def partitions(self, group: str) -> list[int]:
        """Numbers of the partitions of a group that have a visible file, in order."""
        found = self._groups.get(group)
        return [] if found is None else list(found.numbers)

    def regions(self, group: str) -> list[str]:
        """Virtual storage groups of a group that have a visible file, in the order of numbers."""
        found = self._groups.get(group)
        return [] if found is None else sorted(found.regions, key=lambda each: (len(each), each))

    def of(self, group: str, begin: int, end: int) -> PartitionTotal:
        """Of the partitions `begin` to `end` (that one excluded) together."""
        found, total = self._groups.get(group), PartitionTotal()
        if found is None:
            return total
        if end - begin == 1:
            return found.totals.get(begin, total)
        for at in range(bisect_left(found.numbers, begin), bisect_left(found.numbers, end)):
            total = total.with_other(found.totals[found.numbers[at]])
        return total

    def copied(self, groups: Iterable[str]) -> PartitionTotals:
        """Those of some groups as they are now, for `of` alone: they need no lock."""
        made = PartitionTotals()
        for each in groups:
            if (found := self._groups.get(each)) is not None:
                made._groups[each] = found.copied()
        return made

    def meeting(self, group: str, first: int, last: int) -> Iterator[int]:
        """Partitions of a group that may have a file with a time of a range, in order.

        Args:
            group: as its directory is called.
            first: of the range, in the unit of the files.
            last: of it; it belongs to it.
        """
        found = self._groups.get(group)
        return iter(()) if found is None else found.meeting(first, last)

    # -- changes -----------------------------------------------------------------------------

    def add(self, row: FileRow, sign: int) -> None:
        """Count a visible file in (1), or out (-1)."""
        key = partition_of(row.physical)
        self._add(key, PartitionTotal.of(row, sign))

    def _add(self, key: PartitionKey, more: PartitionTotal) -> None:
        group = self._groups.get(key.sg)
        if group is None:
            group = self._groups[key.sg] = _Group()
        group.add(int(key.partition), more)
        group.regions[key.vsg] += more.files
        if not group.regions[key.vsg]:
            del group.regions[key.vsg]
        if not group.numbers:
            del self._groups[key.sg]

    def thaw(self, packed: PackedFiles) -> None:
        """Count packed files in, before all others."""
        for directory, *total in packed.reaching():
            self._add(partition_of(f"{directory}/"), PartitionTotal(*total))
