"""What operators are told of loaded files: as they are, in quarantine, and held deletions."""

from __future__ import annotations

import msgspec

from common.wire import Struct
from common.wire.base import CommitTs, Time

__all__ = ["FileView", "FilesPage", "HeldDeletesView", "QuarantineView"]


class FileView(Struct, frozen=True, kw_only=True):
    """A row of the catalogue.

    Attributes:
        sender: uuid of the sender.
        path: at the sender.
        physical: beneath the data directory, unique.
        data_dir: where the bytes are; None if nowhere.
        size: bytes.
        md5: 32 hex digits.
        state: `live`, `retired`, `quarantined`, `superseded` or `deleted`.
        reason: of the quarantine or deletion; `expired` for what the TTL has deleted.
        task: that loaded it.
        created: commit that loaded it.
        created_at: when that was.
        deleted: commit that deleted it, 0 if none.
        first_time: of its points, in the file's unit.
        last_time: the same.
        devices: how many.
        series: how many.
        points: how many.
        resource: whether its `.resource` is here too.
        verified: commit of its last verification, 0 for never.
        verified_at: when that was.
        stored: whether the object store has it, or storage nodes have proved to have it; with no
            `data_dir`, it is only there.
        adopted: whether it was taken from an old receiver, and not verified since.
        inside: physical paths of the merged files that readers read in its place: for now, or, of a
            superseded one, for good. Empty where it is read itself, or not at all.
    """

    sender: str
    path: str
    physical: str
    data_dir: str | None
    size: int
    md5: str
    state: str
    reason: str | None = None
    task: str | None = None
    created: CommitTs = 0
    deleted: CommitTs = 0
    first_time: Time | None = None
    last_time: Time | None = None
    devices: int = 0
    series: int = 0
    points: int = 0
    resource: bool = False
    verified: CommitTs = 0
    created_at: float | None = None
    verified_at: float | None = None
    stored: bool = False
    adopted: bool = False
    inside: list[str] = msgspec.field(default_factory=list)


class FilesPage(Struct, frozen=True, kw_only=True):
    """Rows in order of their physical path; `next` is the cursor of the page after."""

    files: list[FileView]
    next: str | None = None


class QuarantineView(Struct, frozen=True, kw_only=True):
    """A file that was refused, or found bad after it was loaded.

    Attributes:
        sender: uuid of the sender.
        path: at the sender.
        digest: of its tail (32 hex digits), part of the key; of a loaded file its physical path.
        size: bytes.
        hold: whether it waits for an operator (otherwise the next round tries again).
        reason: in words.
        device: that it is about, if it is a conflict.
        kept: whether the bytes are still here.
        loaded: whether it had been loaded before it was found bad.
        since: commit.
        since_at: when that was.
    """

    sender: str
    path: str
    digest: str
    size: int
    hold: bool
    reason: str
    device: str | None = None
    kept: bool
    loaded: bool = False
    since: CommitTs = 0
    since_at: float | None = None


class HeldDeletesView(Struct, frozen=True, kw_only=True):
    """Deletes of a sender in a storage group that wait for an operator.

    Attributes:
        digest: of the list.
        sender: uuid.
        group: the storage group.
        records: whether records of deletion files would hide the points of the files; else the
            files are gone at their sender, which mirrors that.
        reason: why they wait.
        files: their paths at the sender.
        bytes: of those.
        points: of those.
        since: commit.
        since_at: when that was.
    """

    digest: str
    sender: str
    group: str
    records: bool
    reason: str
    files: list[str]
    bytes: int
    points: int
    since: CommitTs
    since_at: float | None = None
