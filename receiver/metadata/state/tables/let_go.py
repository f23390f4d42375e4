"""Files that an operator deleted, that are forgotten here, and that their senders may list still.

Without them a sender that compares its list would take such a file for lost at the centre, and send
it again. A note goes when its sender tells the end of the file, or has other content there.
"""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING

from receiver.metadata.model import records
from receiver.metadata.state.table_rows import LetGoRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from receiver.metadata.state.tables import Appliers

__all__ = ["LetGoTable"]


class LetGoTable:
    """By sender and path; whoever tells an end before the file is forgotten has a row, too."""

    def __init__(self) -> None:
        """Make an empty one."""
        self._rows: dict[str, dict[str, LetGoRow]] = {}

    def __iter__(self) -> Iterator[LetGoRow]:
        """All of them."""
        for rows in self._rows.values():
            yield from rows.values()

    def get(self, sender: str, path: str) -> LetGoRow | None:
        """What is known of a path of a sender."""
        return self._rows.get(sender, {}).get(path)

    def of(self, sender: str) -> Iterable[LetGoRow]:
        """All of a sender."""
        return self._rows.get(sender, {}).values()

    def restore(self, row: LetGoRow) -> None:
        """Put a row in as it was."""
        self._rows.setdefault(row.sender, {})[row.path] = row

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.LetGoNoted: self._noted,
            records.LetGoEnded: self._ended,
            records.FileLoaded: self._file_loaded,
        }

    def _noted(self, op: records.LetGoNoted, ts: int) -> None:
        known = self._drop(op.sender, op.path)
        if known is None or known.deleted:
            self.restore(
                LetGoRow(
                    sender=intern(op.sender),
                    path=op.path,
                    md5=op.md5,
                    deleted=op.deleted,
                    created=ts,
                    changed=ts,
                )
            )

    def _ended(self, op: records.LetGoEnded, ts: int) -> None:
        if self._drop(op.sender, op.path) is None:
            self.restore(LetGoRow(sender=op.sender, path=op.path, created=ts, changed=ts))

    def _file_loaded(self, op: records.FileLoaded, ts: int) -> None:
        self._drop(op.sender, op.path)

    def _drop(self, sender: str, path: str) -> LetGoRow | None:
        rows = self._rows.get(sender, {})
        row = rows.pop(path, None)
        if row is not None and not rows:
            del self._rows[sender]
        return row
