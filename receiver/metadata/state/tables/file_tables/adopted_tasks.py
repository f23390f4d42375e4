"""Tasks whose files were taken from another receiver's directories, and not sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.model import records
from receiver.metadata.state.table_rows import AdoptionRow

if TYPE_CHECKING:
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables import Appliers

__all__ = ["AdoptionTable"]


class AdoptionTable:
    """The tasks that adopted files; there are few, and they stay.

    Attributes:
        rows: by (sender, task).
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], AdoptionRow] = {}

    def is_adopted(self, file: FileRow) -> bool:
        """Whether a file was adopted, and nothing has proved since that it is what was written."""
        return not file.verified and (file.sender, file.task or "") in self.rows

    def restore(self, row: AdoptionRow) -> None:
        """Put a row in as it was."""
        self.rows[row.sender, row.task] = row

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {records.FilesAdopted: self._files_adopted}

    def _files_adopted(self, op: records.FilesAdopted, ts: int) -> None:
        self.restore(
            AdoptionRow(sender=op.sender, task=op.task, source=op.source, created=ts, changed=ts)
        )
