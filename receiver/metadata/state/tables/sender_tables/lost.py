"""Files that neither side has any more, as far as no row of a file stands for them.

What is in quarantine and gone at the edge is lost as well (`FileTable.lost`); it has a row here
from the moment that an operator has acknowledged it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from receiver.metadata.model import records
from receiver.metadata.state.table_rows import LostRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables import Appliers

__all__ = ["LostTable"]


class LostTable:
    """Lost files.

    Attributes:
        rows: by (sender, path, MD5).
    """

    def __init__(self, files: Mapping[str, FileRow]) -> None:
        """Make an empty table beside that of the files."""
        self.rows: dict[tuple[str, str, str], LostRow] = {}
        self._files = files
        self._of_content: dict[tuple[str, int], dict[tuple[str, str, str], None]] = {}
        self._of_file: dict[str, tuple[str, str, str]] = {}

    def is_acknowledged(self, file: FileRow) -> bool:
        """Whether an operator knows that a file in quarantine is lost."""
        return file.physical in self._of_file

    def found_by(self, op: records.FileLoaded) -> list[tuple[str, str, str]]:
        """Keys of what is found by a load: its content is here again, under whatever name.

        That of another sender's file too, which took its place; without points it tells of nothing.
        """
        lost = self._of_content.get((op.md5, op.size), ())
        return [key for key in lost if op.points or key[0] == op.sender]

    def restore(self, row: LostRow) -> None:
        """Put a row in as it was."""
        self.rows[row.key] = row
        self._of_content.setdefault((row.md5, row.size), {})[row.key] = None
        if row.physical:
            self._of_file[row.physical] = row.key

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.FileLost: self._file_lost,
            records.LossAcknowledged: self._loss_acknowledged,
            records.FileLoaded: self._file_loaded,
            records.FileRestored: self._file_restored,
            records.FileDeleted: self._file_deleted,
        }

    def _file_lost(self, op: records.FileLost, ts: int) -> None:
        self.restore(
            LostRow(
                sender=op.sender,
                path=op.path,
                md5=op.md5,
                size=op.size,
                first=op.first,
                last=op.last,
                reason=op.reason,
                created=ts,
                changed=ts,
            )
        )

    def _loss_acknowledged(self, op: records.LossAcknowledged, ts: int) -> None:
        known = self.rows.get((op.sender, op.path, op.md5))
        if not op.physical and known is not None:
            self.restore(msgspec.structs.replace(known, acknowledged=ts, changed=ts))
            return
        file = self._files[op.physical]
        self.restore(
            LostRow(
                sender=op.sender,
                path=op.path,
                md5=op.md5,
                size=file.size,
                first=file.first,
                last=file.last,
                reason=str(file.reason or ""),
                physical=op.physical,
                acknowledged=ts,
                created=ts,
                changed=ts,
            )
        )

    def _file_loaded(self, op: records.FileLoaded, ts: int) -> None:
        for key in self.found_by(op):
            self._drop(key)

    def _file_restored(self, op: records.FileRestored, ts: int) -> None:
        self._drop(self._of_file.get(op.physical))

    def _file_deleted(self, op: records.FileDeleted, ts: int) -> None:
        self._drop(self._of_file.get(op.physical))

    def _drop(self, key: tuple[str, str, str] | None) -> None:
        row = None if key is None else self.rows.pop(key)
        if row is None:
            return
        keys = self._of_content[row.md5, row.size]
        del keys[row.key]
        if not keys:
            del self._of_content[row.md5, row.size]
        self._of_file.pop(row.physical, None)
