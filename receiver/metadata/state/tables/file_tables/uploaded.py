"""Which files are in the object store, as the store confirmed it.

What is away from the data directories, and comes back into them, is no commit: a file of this table
may be in both places, and nothing is forgotten of it but by the row of the file itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from receiver.metadata.model import records
from receiver.metadata.state.uploaded_rows import UploadedRow, UploadTimeRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from common.config import UploadRules
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables import Appliers

__all__ = ["NOT_STORED", "InStore", "UploadTimes", "UploadedTable"]


class InStore(NamedTuple):
    """What is elsewhere of a file, by the commits that told of it: in the object store, mostly.

    What is in no data directory and there is *remote*: neither lost nor missing.

    Attributes:
        file: its bytes.
        resource: the `.resource` that it has now, if it has one.
    """

    file: bool = False
    resource: bool = False


NOT_STORED = InStore()


class UploadTimes:
    """When files go, of the storage groups that an operator said it of.

    Attributes:
        rows: by the storage group.
    """

    def __init__(self) -> None:
        self.rows: dict[str, UploadTimeRow] = {}

    def restore(self, row: UploadTimeRow) -> None:
        """Put a row in as it was."""
        self.rows[row.path] = row

    def of(self, group: str) -> int | None:
        """Milliseconds behind the load; -1 for never, None where nobody said anything."""
        while group:
            if group in self.rows:
                return self.rows[group].after
            group = group.rpartition(".")[0]
        return None

    def after(self, group: str, configured: UploadRules) -> float:
        """Seconds behind its load that a file of a storage group goes; infinite for never.

        Args:
            group: the storage group.
            configured: what holds where nobody said anything.
        """
        said = self.of(group)
        if said is None:
            return configured.after(group)
        return math.inf if said < 0 else said / 1000

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.UploadSet: self._upload_set,
            records.StorageGroupDeleted: self._group_deleted,
        }

    def _upload_set(self, op: records.UploadSet, ts: int) -> None:
        known = self.rows.pop(op.path, None)
        if op.after is not None:
            created = ts if known is None else known.created
            self.restore(UploadTimeRow(path=op.path, after=op.after, created=created, changed=ts))

    def _group_deleted(self, op: records.StorageGroupDeleted, ts: int) -> None:
        self.rows.pop(op.path, None)


class UploadedTable:
    """Objects of files.

    Attributes:
        rows: by physical name, those too whose files are forgotten.
        bytes: of all of them.
        ended: those whose files are forgotten, in the order of the commits that forgot them.
    """

    def __init__(self, files: Mapping[str, FileRow]) -> None:
        """Make an empty one.

        Args:
            files: all files by their physical names; a row shares the name of its file.
        """
        self._files = files
        self.rows: dict[str, UploadedRow] = {}
        self.bytes = 0
        self.ended: dict[str, None] = {}

    def restore(self, row: UploadedRow) -> None:
        """Put a row in as it was."""
        file = self._files.get(row.physical)
        if file is not None:
            row = msgspec.structs.replace(row, physical=file.physical)
        if row.physical not in self.rows:
            self.bytes += row.size
        self.rows[row.physical] = row
        self.ended.pop(row.physical, None)
        if row.ended:
            self.ended[row.physical] = None

    def lacks(self, row: FileRow | None) -> bool:
        """Whether readers see a file that is not in the store as it is."""
        if row is None or not row.visible:
            return False
        there = self.rows.get(row.physical)
        if there is None:
            return True
        return row.resource is not None and row.resource.md5 != there.resource

    def parts(self, row: FileRow) -> InStore:
        """What the store has of a file."""
        there = self.rows.get(row.physical)
        if there is None or there.ended or there.size != row.size:
            return NOT_STORED
        return InStore(True, row.resource is not None and row.resource.md5 == there.resource)

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.FileUploaded: self._file_uploaded,
            records.FileForgotten: self._file_forgotten,
            records.ObjectRemoved: self._object_removed,
        }

    def _file_uploaded(self, op: records.FileUploaded, ts: int) -> None:
        known = self.rows.get(op.physical)
        former: tuple[tuple[int, int, str], ...] = ()
        if known is not None:
            former = (*known.former, (known.incarnation, known.again, known.resource))
        self.restore(
            UploadedRow(
                physical=op.physical,
                incarnation=op.incarnation,
                size=op.size,
                digests=op.digests,
                resource=op.resource,
                again=op.again,
                former=former,
                created=ts if known is None else known.created,
                changed=ts,
            )
        )

    def _file_forgotten(self, op: records.FileForgotten, ts: int) -> None:
        row = self.rows.get(op.physical)
        if row is not None:
            self.rows[op.physical] = msgspec.structs.replace(row, ended=ts, changed=ts)
            self.ended[op.physical] = None

    def _object_removed(self, op: records.ObjectRemoved, ts: int) -> None:
        self.bytes -= self.rows.pop(op.physical).size
        self.ended.pop(op.physical, None)
