"""What the senders have listed: of each the sum of its listed files, kept as commits change it.

Listed is a file that its sender has, loaded and good: what is in quarantine counts apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.digests import xxh3_128
from common.listed import KnownRecords, ListedSum, deletions_text
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["ListedSums"]

_NOTHING = ListedSum()


class ListedSums:
    """The sums of all senders."""

    def __init__(self, files: Mapping[str, FileRow]) -> None:
        """Begin with none; `files` are the rows by physical path."""
        self._files = files
        self._sums: dict[str, ListedSum] = {}
        self._deletions: dict[str, str] = {}

    def of(self, sender: str) -> tuple[int, str]:
        """How many files a sender has listed here, and the digest of them."""
        found = self._sums.get(sender, _NOTHING)
        return found.files, found.digest

    def sums(self) -> dict[str, tuple[int, str]]:
        """`of` each sender, for `restore`."""
        return {sender: (each.files, each.digest) for sender, each in self._sums.items()}

    def restore(self, sums: Mapping[str, tuple[int, str]]) -> None:
        """Put in what `sums` gave, when all files are there; it counts those that were packed."""
        self._sums = {
            each: ListedSum(files, int(total, 16)) for each, (files, total) in sums.items()
        }

    def deletions(self, physical: str) -> str:
        """What is known of the deletion files of a file: `common.listed`."""
        return self._deletions.get(physical, "")

    def add(self, row: FileRow, path: str) -> None:
        """A file is listed under a path from now on."""
        if row.sender not in self._sums:
            self._sums[row.sender] = ListedSum()
        self._sums[row.sender].add(path, row.md5, self.deletions(row.physical))

    def remove(self, row: FileRow, path: str) -> None:
        """It is not any more."""
        self._sums[row.sender].remove(path, row.md5, self.deletions(row.physical))

    def told(self, physical: str, rows: Iterable[DeletionsRow]) -> None:
        """The deletion files of a file are others now."""
        known = {
            each.form: KnownRecords(len(each.content), xxh3_128(each.content).hex())
            for each in rows
        }
        row = self._files.get(physical)
        paths = row.paths if row is not None and row.state is FileState.LIVE else ()
        for path in paths:
            assert row is not None
            self.remove(row, path)
        if known:
            self._deletions[physical] = deletions_text(known)
        else:
            self._deletions.pop(physical, None)
        for path in paths:
            assert row is not None
            self.add(row, path)
