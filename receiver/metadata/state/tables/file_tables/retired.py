"""Retired files by partition, and those that a proof took out of sight in the order of that."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from common.names import FilePath
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Mapping, Reversible

    from receiver.metadata.state.packed_files import PackedFiles
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["PartitionKey", "RetiredIndex", "partition_of"]


class PartitionKey(NamedTuple):
    """A partition of a storage group, sequence and unsequence together."""

    sg: str
    vsg: str
    partition: str


def partition_of(physical: str) -> PartitionKey:
    """The partition of a file, by its checked path."""
    return _partition(physical.rpartition("/")[0])


@lru_cache(4096)
def _partition(directory: str) -> PartitionKey:
    parsed = FilePath.parse(f"{directory}/1-1-0-0.tsfile")
    return PartitionKey(parsed.sg, str(parsed.vsg), str(parsed.partition))


class RetiredIndex:
    """What of the files is retired or superseded.

    Attributes:
        retired_bytes: of those that are visible.
        superseded_bytes: of those that are not.
    """

    def __init__(self) -> None:
        self._retired: dict[PartitionKey, int] = {}
        self._count = 0
        self._superseded: dict[str, None] = {}
        self._touched: dict[PartitionKey, int] = {}
        self.retired_bytes = 0
        self.superseded_bytes = 0

    @property
    def retired_files(self) -> int:
        """How many are retired and visible."""
        return self._count

    @property
    def superseded_files(self) -> int:
        """How many are superseded, their bytes kept."""
        return len(self._superseded)

    def where(self) -> list[PartitionKey]:
        """Partitions that have a retired file that is visible."""
        return list(self._retired)

    def superseded(self) -> Reversible[str]:
        """Physical paths of the superseded, the longest superseded first."""
        return self._superseded.keys()

    def touched(self, key: PartitionKey) -> int:
        """The last commit by which a file of a partition came, ended or came back.

        0 for none since the state was taken from a checkpoint.
        """
        return self._touched.get(key, 0)

    def touch(self, row: FileRow) -> None:
        """Note that a row is another one now."""
        self._touched[partition_of(row.physical)] = row.changed

    def take(self, row: FileRow) -> None:
        """Count a row in that came to be what it is."""
        if row.state is FileState.RETIRED:
            key = partition_of(row.physical)
            self._retired[key] = self._retired.get(key, 0) + 1
            self._count += 1
            self.retired_bytes += row.size
        elif row.state is FileState.SUPERSEDED:
            self._superseded[row.physical] = None
            self.superseded_bytes += row.size

    def drop(self, row: FileRow) -> None:
        """Count a row out, as it was."""
        if row.state is FileState.RETIRED:
            key = partition_of(row.physical)
            self._retired[key] -= 1
            if not self._retired[key]:
                del self._retired[key]
            self._count -= 1
            self.retired_bytes -= row.size
        elif row.state is FileState.SUPERSEDED:
            del self._superseded[row.physical]
            self.superseded_bytes -= row.size

    def thaw(self, packed: PackedFiles) -> None:
        """Count packed files in, before all others."""
        for directory, files, size in packed.retired():
            key = partition_of(f"{directory}/")
            self._retired[key] = self._retired.get(key, 0) + files
            self._count += files
            self.retired_bytes += size

    def settle(self, rows: Mapping[str, FileRow]) -> None:
        """Put the superseded in order, after rows were put in as they were found."""
        order = sorted(self._superseded, key=lambda each: rows[each].superseded)
        self._superseded = dict.fromkeys(order)
