"""How many visible files each data directory has, and of how many time partitions they are.

By the paths that rows name. What a directory really has is for who looks at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.state.tables.file_tables.retired import partition_of

if TYPE_CHECKING:
    from receiver.metadata.state.packed_files import PackedFiles
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["DirectoryTotal", "DirectoryTotals"]


class DirectoryTotal(NamedTuple):
    """The visible files of a data directory.

    Attributes:
        files: how many.
        size: their bytes.
        partitions: of how many time partitions of storage groups, of all virtual groups.
    """

    files: int = 0
    size: int = 0
    partitions: int = 0


class _Sums:
    __slots__ = ("files", "partitions", "size")

    def __init__(self) -> None:
        self.files = self.size = 0
        self.partitions: dict[tuple[str, str], int] = {}

    def add(self, place: tuple[str, str], files: int, size: int) -> None:
        self.files += files
        self.size += size
        count = self.partitions.get(place, 0) + files
        if count:
            self.partitions[place] = count
        else:
            del self.partitions[place]


class DirectoryTotals:
    """Totals by the path of a data directory."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}

    def names(self) -> list[str]:
        """Directories that have a visible file, by the paths that rows name."""
        return [name for name, sums in self._sums.items() if sums.files]

    def of(self, data_dir: str) -> DirectoryTotal:
        """Of one directory."""
        sums = self._sums.get(data_dir)
        if sums is None:
            return DirectoryTotal()
        return DirectoryTotal(sums.files, sums.size, len(sums.partitions))

    def add(self, row: FileRow, sign: int) -> None:
        """Count a visible file in (1), or out (-1)."""
        self._add(row.data_dir, row.physical, sign, sign * row.size)

    def _add(self, data_dir: str, physical: str, files: int, size: int) -> None:
        sums = self._sums.get(data_dir)
        if sums is None:
            sums = self._sums[data_dir] = _Sums()
        key = partition_of(physical)
        sums.add((key.sg, key.partition), files, size)

    def thaw(self, packed: PackedFiles) -> None:
        """Count packed files in, before all others."""
        for data_dir, directory, files, size in packed.lying():
            self._add(data_dir, f"{directory}/", files, size)
