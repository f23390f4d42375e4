"""Where the files of an engine are fetched from: what is there now, and the bytes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from common.errors import Permanent, Transient
from receiver.metadata.log.checkpoints import checkpoint_name
from receiver.metadata.log.segments import segment_name

if TYPE_CHECKING:
    from receiver.operator.views.log_file_views import LogOrigin

__all__ = [
    "CircleError",
    "FetchedBlock",
    "LogSource",
    "NotContinuedError",
    "ReplacedSourceError",
    "SourceCheckpoint",
    "SourceLog",
    "SourceSegment",
]


class NotContinuedError(Transient):
    """What is there does not go on from the copy here, which has to be made anew."""

    slug = "not-continued"


class ReplacedSourceError(Permanent):
    """What is there is older than what was followed before, or another engine's."""

    slug = "replaced-source"
    http_status = 409


class CircleError(Permanent):
    """A node that is followed follows this one, itself or by others: nobody in it gets anything."""

    slug = "following-circle"
    http_status = 409


class SourceCheckpoint(NamedTuple):
    """A checkpoint.

    Attributes:
        lsn: of the last commit in it.
        size: bytes of its file.
    """

    lsn: int
    size: int

    @property
    def name(self) -> str:
        """Of its file."""
        return checkpoint_name(self.lsn)


class SourceSegment(NamedTuple):
    """A segment of the log.

    Attributes:
        first_lsn: of its first commit.
        next_lsn: of the commit behind it.
        size: bytes of its file that count.
    """

    first_lsn: int
    next_lsn: int
    size: int

    @property
    def name(self) -> str:
        """Of its file."""
        return segment_name(self.first_lsn)


class SourceLog(NamedTuple):
    """An engine's files as of a commit.

    Attributes:
        engine: its uuid.
        incarnation: as whom its owner wrote them; 0 where no store ever made it matter.
        lsn: of the newest commit in the files.
        ts: its timestamp.
        checkpoints: the newest last.
        segments: in order, without a gap.
        tags_end: bytes of the tlog that a checkpoint may rest on.
        goes_on: whether the commit that was asked about is in this log; None: not known.
        taken_by: the highest incarnation that is known; above `incarnation`, its owner has put
            nothing yet, and what is here may be no part of what it goes on from.
        origin: where a node that is followed has it from; None where it follows nobody.
    """

    engine: str
    incarnation: int
    lsn: int
    ts: int
    checkpoints: tuple[SourceCheckpoint, ...]
    segments: tuple[SourceSegment, ...]
    tags_end: int
    goes_on: bool | None = None
    taken_by: int = 0
    origin: LogOrigin | None = None


class FetchedBlock(NamedTuple):
    """Bytes of a file.

    Attributes:
        data: the bytes.
        sound_to: offset in the file up to which everything is what was put there.
    """

    data: bytes
    sound_to: int


class LogSource(Protocol):
    """A place that an engine can be followed from. For one thread at a time, but for `close`.

    Every call may raise `UnreachableError`, and `Permanent` errors where somebody has to change
    something.
    """

    url: str
    """Without secrets."""
    waits: bool
    """Whether `look` waits for news; otherwise it has to be asked by period."""

    def look(self, *, lsn: int = 0, ts: int = 0, wait: float = 0.0) -> SourceLog:
        """What is there now.

        Args:
            lsn: of the newest commit that is known; 0 for none.
            ts: its timestamp.
            wait: seconds, at most, to wait for a newer one.

        Raises:
            DamagedError: what says so cannot be read.
            NotFoundError: nobody's engine is there.
        """
        ...

    def read(self, found: SourceLog, name: str, begin: int, end: int) -> Iterator[FetchedBlock]:
        """The bytes of a file, as this look had it.

        Raises:
            DamagedError, ContentChangedError: they are not what was put there.
            NotFoundError: the file is gone meanwhile.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
