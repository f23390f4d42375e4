"""The rows of the object store: which files are in it, under which numbers, and when others go."""

from __future__ import annotations

from receiver.metadata.state.table_rows import CommittedRow

__all__ = ["UploadTimeRow", "UploadedRow"]


class UploadTimeRow(CommittedRow, frozen=True, kw_only=True):
    """When files of a storage group are uploaded; see `records.UploadSet`."""

    path: str
    after: int


class UploadedRow(CommittedRow, frozen=True, kw_only=True):
    """A file in the object store; see `records.FileUploaded`.

    Attributes:
        resource: of the last time that it was said.
        ended: the commit that forgot the file; its object stays for a while. 0 before.
        former: incarnation, number and resource as they were said before; those objects stay as
            long.
    """

    physical: str
    incarnation: int
    size: int
    digests: str
    resource: str = ""
    ended: int = 0
    again: int = 0
    former: tuple[tuple[int, int, str], ...] = ()
