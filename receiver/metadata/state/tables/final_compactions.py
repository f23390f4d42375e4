"""Compactions that are final: their outputs are files of their own, in the place of the inputs.

Such a row stays as long as one of those files is known. It tells what a merged file is made of, so
a file of a sender is known that comes once more after its bytes went into another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.state.tables.compacted_rows import is_marked, marks_of
from receiver.metadata.state.tables.retired import PartitionKey, partition_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Mapping

    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.compacted_rows import CompactedRow

__all__ = ["FinalCompactions"]


class FinalCompactions:
    """The final ones among the rows of the table that has them all."""

    def __init__(self, rows: Mapping[int, CompactedRow]) -> None:
        """Begin with none.

        Args:
            rows: all compactions by id, as they change.
        """
        self._rows = rows
        self._made: dict[str, int] = {}
        self._of_partition: dict[PartitionKey, dict[int, None]] = {}
        self._places: dict[tuple[str, str], dict[PartitionKey, None]] = {}
        self._leaves: dict[int, array[int]] = {}

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

    def _has_leaf(self, row: CompactedRow, leaf: str) -> bool:
        known = self._leaves.get(row.id)
        if known is None:  # hardly ever asked for
            marks = marks_of(f"{md5} {path}" for md5, path in row.made_of)
            known = self._leaves[row.id] = marks
        return is_marked(known, leaf)

    def put(self, row: CompactedRow) -> None:
        """Have one that became final."""
        self._of_partition.setdefault(row.key, {})[row.id] = None
        self._places.setdefault((row.sg, row.partition), {})[row.key] = None
        self._made |= dict.fromkeys(row.became, row.id)

    def drop(self, row: CompactedRow) -> None:
        """Forget one."""
        for physical in row.became:
            del self._made[physical]
        of_partition = self._of_partition[row.key]
        del of_partition[row.id]
        if not of_partition:
            del self._of_partition[row.key]
        self._leaves.pop(row.id, None)
