"""Compactions that are final: their outputs are files of their own, in the place of the inputs.

Such a row stays as long as one of those files is known. It tells what a merged file is made of, so
a file of a sender is known that comes once more after its bytes went into another one: by its path,
and by its content alone where an operator deleted what became of it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

import msgspec

from receiver.metadata.state.tables.file_tables.compacted_rows import is_marked, mark_of, marks_of
from receiver.metadata.state.tables.file_tables.retired import PartitionKey, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

    from receiver.metadata.model import records
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow, MergedLeaf

__all__ = ["BY_OPERATORS", "FinalCompactions"]

BY_OPERATORS: Final = ("operator", "everywhere")
"""Reasons of deletions; what was merged came from no centre below."""
_READ: Final = 8
"""Rows whose leaves are kept read: who asks for one file of a row asks for others of it as well."""


class _Leaves:
    """What a row is made of, as it is asked for."""

    def __init__(self, row: CompactedRow) -> None:
        every = row.merged_leaves
        self.by_name = {(leaf.md5, leaf.path): leaf for leaf in every}
        self.by_tail: dict[str, list[MergedLeaf]] = {}
        for leaf in every:
            self.by_tail.setdefault(leaf.tail, []).append(leaf)


class FinalCompactions:
    """The final ones among the rows of the table that has them all."""

    def __init__(
        self, rows: MutableMapping[int, CompactedRow], files: Mapping[str, FileRow]
    ) -> None:
        """Begin with none.

        Args:
            rows: all compactions by id, as they change.
            files: the rows of files, by physical path.
        """
        self._files = files
        self._rows = rows
        self._made: dict[str, int] = {}
        self._of_partition: dict[PartitionKey, dict[int, None]] = {}
        self._places: dict[tuple[str, str], dict[PartitionKey, None]] = {}
        self._leaves: dict[int, array[int]] = {}
        self._dropped: dict[int, None] = {}
        self._contents: tuple[array[int], array[int]] | None = None
        self._read: dict[int, _Leaves] = {}

    def maker(self, physical: str) -> CompactedRow | None:
        """The final compaction that made a file."""
        found = self._made.get(physical)
        return None if found is None else self._rows[found]

    def news_of(self, file: FileRow) -> int:
        """The commit that loaded a file; of a merged one the last file that it is made of."""
        maker = self.maker(file.physical)
        return file.created if maker is None else maker.news

    def all(self) -> list[CompactedRow]:
        """Those whose outputs are, or were, files."""
        return [self._rows[each] for several in self._of_partition.values() for each in several]

    def of_partition(self, key: PartitionKey) -> list[CompactedRow]:
        """The final ones of a partition."""
        return [self._rows[each] for each in self._of_partition.get(key, ())]

    def near(self, key: PartitionKey, partitions: Iterable[int]) -> list[CompactedRow]:
        """The final ones of a partition, and of others of its group by their numbers."""
        if not self._of_partition:
            return []
        wanted = dict.fromkeys((key.partition, *map(str, partitions)))
        return [
            row
            for partition in wanted
            for place in self._places.get((key.sg, partition), ())
            for row in self.of_partition(place)
        ]

    def with_leaf(self, sender: str, path: str, md5: str) -> list[CompactedRow]:
        """The final ones that are made of a file of a sender."""
        rows = self.of_partition(partition_of(path)) if self._of_partition else ()
        leaf = f"{md5} {path}"
        return [row for row in rows if row.sender == sender and self._has_leaf(row, leaf)]

    def with_content(self, path: str, md5: str) -> list[CompactedRow]:
        """Those of the partition of a path that are made of a file with some content."""
        rows = self.of_partition(partition_of(path)) if self._of_partition else ()
        return [row for row in rows if self._has_leaf(row, md5)]

    def dropped_with(
        self, sender: str, path: str, tail: str, md5: str | None
    ) -> list[tuple[CompactedRow, MergedLeaf]]:
        """Those of which an operator deleted something, and that are made of a content.

        Args:
            sender: that has it.
            path: under which.
            tail: digest of its tail; empty if that does not tell it.
            md5: of it, where that is known.
        """
        if not self._dropped:
            return []
        found: dict[tuple[int, MergedLeaf], None] = {}
        for ident in self._dropped_of_tail(tail) if tail else ():
            for leaf in self._reading(ident).by_tail[tail]:
                if md5 in (None, leaf.md5):
                    found[ident, leaf] = None
        if md5 is not None:
            for row in self.of_partition(partition_of(path)):
                is_meant = row.sender == sender and row.id in self._dropped
                named = self._reading(row.id).by_name.get((md5, path)) if is_meant else None
                if named is not None:
                    found[row.id, named] = None
        return [(self._rows[ident], leaf) for ident, leaf in found]

    def deleted_by_operator(self, physical: str, ts: int) -> None:
        """An operator deleted a file."""
        row = self.maker(physical)
        if row is not None:
            dropped = dict(row.dropped) | {physical: ts}
            self._drops(msgspec.structs.replace(row, dropped=tuple(dropped.items())))

    def restore_dropped(self) -> None:
        """Note what an operator deleted before that was noted here; the files are all there."""
        for row in self.all():
            for each in row.became if not row.dropped else ():
                file = self._files.get(each)
                if file is not None and file.deleted and file.reason in BY_OPERATORS:
                    self.deleted_by_operator(each, file.deleted)

    def undeleted(self, op: records.FileUndeleted, ts: int) -> None:
        """A deleted file is back."""
        row = self.maker(op.physical)
        if row is not None and row.dropped:
            dropped = tuple(each for each in row.dropped if each[0] != op.physical)
            self._drops(msgspec.structs.replace(row, dropped=dropped))

    def _drops(self, row: CompactedRow) -> None:
        self._rows[row.id] = row
        if row.dropped:
            self._dropped[row.id] = None
        else:
            self._dropped.pop(row.id, None)
        self._contents = None

    def _dropped_of_tail(self, tail: str) -> Iterable[int]:
        """Ids of those of which something was deleted, and that are made of what has a tail."""
        if self._contents is None:  # it changes with what an operator says
            several = sorted(
                (mark_of(leaf.tail), ident)
                for ident in self._dropped
                for leaf in self._rows[ident].merged_leaves
                if leaf.tail
            )
            self._contents = (
                array("Q", [mark for mark, _ in several]),
                array("q", [ident for _, ident in several]),
            )
        marks, idents = self._contents
        mark = mark_of(tail)
        begin, end = bisect_left(marks, mark), bisect_right(marks, mark)
        found = dict.fromkeys(idents[begin:end])
        return [each for each in found if tail in self._reading(each).by_tail]

    def _reading(self, ident: int) -> _Leaves:
        known = self._read.get(ident)
        if known is None:
            known = _Leaves(self._rows[ident])
            # As a whole: several may ask at once.
            self._read = dict([*self._read.items()][1 - _READ :]) | {ident: known}
        return known

    def _has_leaf(self, row: CompactedRow, leaf: str) -> bool:
        """Whether one is made of a file with this MD5, or this MD5 and path."""
        known = self._leaves.get(row.id)
        if known is None:  # hardly ever asked for
            said = [(f"{md5} {path}", md5) for md5, path in row.made_of]
            known = self._leaves[row.id] = marks_of({each for both in said for each in both})
        return is_marked(known, leaf)

    def put(self, row: CompactedRow) -> None:
        """Have one that became final."""
        self._of_partition.setdefault(row.key, {})[row.id] = None
        self._places.setdefault((row.sg, row.partition), {})[row.key] = None
        self._made |= dict.fromkeys(row.became, row.id)
        if row.dropped:
            self._drops(row)

    def drop(self, row: CompactedRow) -> None:
        """Forget one."""
        for physical in row.became:
            del self._made[physical]
        of_partition = self._of_partition[row.key]
        del of_partition[row.id]
        if not of_partition:
            del self._of_partition[row.key]
        self._leaves.pop(row.id, None)
        self._read = {}
        self._dropped.pop(row.id, None)
        self._contents = None
