"""What operators are told of files that the edge has no more, and of those that nobody has.

Times are seconds since the epoch, except those that are called commits, which are commit
timestamps (milliseconds << 18 | counter).
"""

from __future__ import annotations

import msgspec

from common.wire import Struct
from common.wire.base import CommitTs, Time

__all__ = [
    "KeptView",
    "LostView",
    "RemainderView",
    "RetiredPage",
    "RetiredTotals",
    "RetiredView",
]


class RemainderView(Struct, frozen=True):
    """Times of a series that a retired file alone gives.

    Attributes:
        device: of the file.
        measurement: of the device; empty for the rows of a table, and where a file has so many
            series that their devices are told in their place.
        first: the earliest time, in the file's unit.
        last: the latest.
        points: how many times there are.
    """

    device: str
    measurement: str
    first: Time
    last: Time
    points: int


class RetiredView(Struct, frozen=True, kw_only=True):
    """A file that its sender has no more.

    Attributes:
        sender: uuid of the sender.
        path: at the sender, last.
        physical: beneath the data directory, unique.
        size: bytes.
        points: how many.
        state: `retired`, and visible; or `superseded`: others give all of it.
        since: commit that made it so.
        since_at: when that was.
        judged: whether it was looked at since the server was started.
        unreadable: why nothing can be said of it; None if it was read.
        unique_points: points that no other file gives.
        unique_series: series that have such points.
        remainder: where those are; empty in lists.
        rests: physical paths of the files that give what a superseded one has.
        merged: files of the sender that a merged one is made of for good; 0 for others.
        made_of: paths of those at the sender; empty in lists.
        inside: physical paths of the merged files that readers read in its place, for now or for
            good; empty where it is read itself.
    """

    sender: str
    path: str
    physical: str
    size: int
    points: int
    state: str
    since: CommitTs = 0
    since_at: float | None = None
    judged: bool = False
    unreadable: str | None = None
    unique_points: int = 0
    unique_series: int = 0
    remainder: list[RemainderView] = msgspec.field(default_factory=list)
    rests: list[str] = msgspec.field(default_factory=list)
    merged: int = 0
    made_of: list[str] = msgspec.field(default_factory=list)
    inside: list[str] = msgspec.field(default_factory=list)


class RetiredPage(Struct, frozen=True, kw_only=True):
    """Files in order of their physical path; `next` is the cursor of the page after."""

    files: list[RetiredView]
    next: str | None = None


class RetiredTotals(Struct, frozen=True, kw_only=True):
    """Files that their senders have no more.

    Attributes:
        waiting_files: retired, and not judged since the server was started.
        waiting_bytes: of those.
        unique_files: retired, and found to have points that exist nowhere else, or not to be read.
        unique_bytes: of those.
        superseded_files: proved to be given by others; their bytes go with the kept history.
        superseded_bytes: of those.
        files_per_second: judged, while it is at work.
        problem: why nothing is proved, None if nothing is in the way.
    """

    waiting_files: int = 0
    waiting_bytes: int = 0
    unique_files: int = 0
    unique_bytes: int = 0
    superseded_files: int = 0
    superseded_bytes: int = 0
    files_per_second: float = 0.0
    problem: str | None = None


class LostView(Struct, frozen=True, kw_only=True):
    """A file that neither side has any more.

    Attributes:
        sender: uuid.
        path: of it at the sender.
        md5: of its content.
        size: of it.
        first: earliest time of its data, None where it is not known.
        last: latest.
        reason: why.
        physical: of the file in quarantine that stands for it, None where there is none.
        since: commit.
        since_at: when that was.
    """

    sender: str
    path: str
    md5: str
    size: int
    first: Time | None = None
    last: Time | None = None
    reason: str = ""
    physical: str | None = None
    since: CommitTs = 0
    since_at: float | None = None


class KeptView(Struct, frozen=True, kw_only=True):
    """Retired files of a box that a mirror took over from, and that it is not known to have had.

    Attributes:
        sender: uuid of the old box.
        by: of the mirror, which all their devices belong to.
        files: how many.
        bytes: of those.
    """

    sender: str
    by: str
    files: int
    bytes: int
