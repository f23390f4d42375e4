"""Files that an operator deleted, and that are forgotten here but for that.

Without them a sender that lists such a file still would take it for lost at the centre and send it
again; and one that has lost its list, was restored from a copy of its disk or put in the place of
another would send it as a new file. What an edge has told, or heard, says nothing of what it will
know tomorrow, so a note stays until the content is loaded again.
"""

from __future__ import annotations

from collections import defaultdict
from sys import intern
from typing import TYPE_CHECKING

from receiver.metadata.model import records
from receiver.metadata.state.table_rows import LetGoRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from receiver.metadata.state.tables import Appliers

__all__ = ["LetGoTable"]


class LetGoTable:
    """By sender, path and content; and by content alone."""

    def __init__(self) -> None:
        """Make an empty one."""
        self._rows: dict[str, dict[tuple[str, str], LetGoRow]] = {}
        self._by_tail: dict[str, list[LetGoRow]] = defaultdict(list)

    def __iter__(self) -> Iterator[LetGoRow]:
        """All of them."""
        for rows in self._rows.values():
            yield from rows.values()

    def get(self, sender: str, path: str, md5: str) -> LetGoRow | None:
        """What is known of a content under a path of a sender."""
        return self._rows.get(sender, {}).get((path, md5))

    def of(self, sender: str) -> Iterable[LetGoRow]:
        """All of a sender."""
        return self._rows.get(sender, {}).values()

    def of_tail(self, tail: str) -> Iterable[LetGoRow]:
        """All with the digest of a tail, whoever had them, under whatever path."""
        return self._by_tail.get(tail, ())

    def restore(self, row: LetGoRow) -> None:
        """Put a row in as it was; what an earlier release had no use for any more goes."""
        if row.deleted:
            self._rows.setdefault(row.sender, {})[row.path, row.md5] = row
            if row.tail:
                self._by_tail[row.tail].append(row)

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.LetGoNoted: self._noted,
            records.LetGoEnded: self._ended,
            records.FileLoaded: self._file_loaded,
        }

    def _noted(self, op: records.LetGoNoted, ts: int) -> None:
        self._drop(op.sender, op.path, op.md5)
        self.restore(
            LetGoRow(
                sender=intern(op.sender),
                path=op.path,
                md5=op.md5,
                deleted=op.deleted,
                tail=op.tail,
                created=ts,
                changed=ts,
            )
        )

    def _ended(self, op: records.LetGoEnded, ts: int) -> None:
        for row in [each for each in self.of(op.sender) if each.path == op.path]:
            self._drop(row.sender, row.path, row.md5)

    def _file_loaded(self, op: records.FileLoaded, ts: int) -> None:
        self._drop(op.sender, op.path, op.md5)
        for row in [each for each in self.of_tail(op.tail) if each.md5 == op.md5]:
            self._drop(row.sender, row.path, row.md5)

    def _drop(self, sender: str, path: str, md5: str) -> None:
        rows = self._rows.get(sender, {})
        row = rows.pop((path, md5), None)
        if row is None:
            return
        if not rows:
            del self._rows[sender]
        if row.tail:
            left = self._by_tail[row.tail]
            left.remove(row)
            if not left:
                del self._by_tail[row.tail]
