"""What those who follow the engine are told of its files.

Times are seconds since the epoch, except those that are called commits, which are commit
timestamps (milliseconds << 18 | counter).
"""

from __future__ import annotations

from common.wire import Struct
from common.wire.base import CommitTs

__all__ = [
    "CheckpointFile",
    "FollowView",
    "LogFilesView",
    "LogOrigin",
    "SegmentFile",
]


class CheckpointFile(Struct, frozen=True):
    """A checkpoint: the LSN of the last commit in it, and its bytes."""

    lsn: int
    """Log sequence number of the last commit in it."""
    size: int


class SegmentFile(Struct, frozen=True):
    """A segment of the log.

    Attributes:
        first_lsn: of its first commit.
        next_lsn: of the commit behind it.
        size: bytes of it that are committed.
    """

    first_lsn: int
    next_lsn: int
    size: int


class LogOrigin(Struct, frozen=True, kw_only=True):
    """Where a node that serves its copy of a log has that from.

    Attributes:
        through: the node and those that it follows, the nearest first: a random name of each.
        behind: seconds since it had all that the last of them is behind; None if never since its
            start.
        is_live: whether `behind` is of commits; of an object store it is of the copies there.
        writer: where files and changes go, None if that is not known.
    """

    through: list[str]
    behind: float | None
    is_live: bool
    writer: str | None


class LogFilesView(Struct, frozen=True, kw_only=True):
    """The files of the engine, for a node that follows it.

    Attributes:
        engine: its uuid.
        incarnation: of this receiver as the owner of an object store; 0 where it never had one.
        lsn: of the newest commit.
        ts: its timestamp.
        checkpoints: the newest last.
        segments: in order, without a gap.
        tags_end: bytes of the tlog that are committed.
        goes_on: whether the commit that was asked about is in this log; None: too old to tell.
        origin: of a node's copy; None of the receiver that commits.
    """

    engine: str
    incarnation: int
    lsn: int
    ts: int
    checkpoints: list[CheckpointFile]
    segments: list[SegmentFile]
    tags_end: int
    goes_on: bool | None = None
    origin: LogOrigin | None = None


class FollowView(Struct, frozen=True, kw_only=True):
    """Where a node that follows stands.

    Attributes:
        url: of the store or the receiver that it follows.
        incarnation: of the owner whose log it has, 0 for none.
        commit: that it stands at.
        commit_at: when that was.
        source_commit: the newest commit that was seen there.
        level_at: when it last had all that was there, None if never since its start.
        behind: seconds since then, None if never since its start.
        problem: why it does not go on, None if it does.
        writer: where files and changes go, None if that is not known.
    """

    url: str
    incarnation: int
    commit: CommitTs
    commit_at: float | None = None
    source_commit: CommitTs = 0
    level_at: float | None = None
    behind: float | None = None
    problem: str | None = None
    writer: str | None = None
