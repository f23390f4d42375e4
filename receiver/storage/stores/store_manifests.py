"""What of an engine's files is in the store: the numbered manifests of its log."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from receiver.storage.stores.numbered_manifest import NumberedManifest

__all__ = ["CheckpointCopy", "FilePiece", "SegmentCopy", "StoreManifest"]


class FilePiece(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file, as an object.

    Attributes:
        key: of the object.
        offset: in the file.
        size: bytes.
        md5: of them, hex.
    """

    key: str
    offset: int
    size: int
    md5: str

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.size


class SegmentCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of the log: one piece once it is closed, until then one for each time it grew.

    Attributes:
        first_lsn: of its first commit.
        next_lsn: of the commit behind what is here.
        pieces: without a gap, from offset 0.
    """

    first_lsn: int
    next_lsn: int
    pieces: list[FilePiece]


class CheckpointCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint.

    Attributes:
        lsn: of the last commit in it.
        piece: all of its file.
    """

    lsn: int
    piece: FilePiece


class StoreManifest(NumberedManifest, frozen=True, kw_only=True):
    """An engine's files as of a commit.

    Attributes:
        parent_lsn: up to here the commits are the parent's; 0 where that is not known, as when an
            operator has a machine that was turned back go on.
        lsn: of the newest commit that is in the store.
        checkpoints: the newest last; the first serves the begin of the history.
        segments: in order, from behind the first checkpoint on.
        tags: pieces of the tlog.
    """

    FOLDER: ClassVar[str] = "manifests"

    lsn: int
    checkpoints: list[CheckpointCopy]
    segments: list[SegmentCopy]
    tags: list[FilePiece]
    parent_lsn: int = 0

    @property
    def pieces(self) -> list[FilePiece]:
        """All that it names."""
        copies = [each.piece for each in self.checkpoints]
        return [*copies, *(piece for each in self.segments for piece in each.pieces), *self.tags]
