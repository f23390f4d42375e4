"""What several records of the log are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from common.wire import Result
from common.wire.base import AS_NUMBERS, WIDE, CommitTs

__all__ = [
    "CodeBytes",
    "DeletionReason",
    "DeviceRange",
    "FileOrigin",
    "FileOutcome",
    "ManifestMeta",
    "OriginLooks",
    "RawTime",
    "Record",
    "ResourceMeta",
    "TimePiece",
]

RawTime = Annotated[int, msgspec.Meta(extra={WIDE: True})]
"""A time of the data, in its own precision."""
CodeBytes = Annotated[bytes, msgspec.Meta(extra={AS_NUMBERS: True})]
"""One byte a series: `mlog dump` shows numbers."""
DeletionReason = Literal["gone", "superseded", "replaced", "operator", "expired", "everywhere"]


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of everything that is stored."""


class DeviceRange(Record, frozen=True):
    """A device of a file, with its first and last timestamp.

    Attributes:
        first: None if it has no points.
        last: None if it has no points.
    """

    name: str
    first: RawTime | None
    last: RawTime | None


class ResourceMeta(Record, frozen=True):
    """The `.resource` that came with a file."""

    size: int
    md5: str


class ManifestMeta(Record, frozen=True):
    """What the sender's manifest says of a file.

    Attributes:
        series: how many.
        points: how many.
        root: digest of its table of series (`common.tsfile.proof`), empty where the sender sent
            none.
    """

    series: int
    points: int
    root: str = ""


class OriginLooks(Record, frozen=True):
    """Where a file stands at a centre below: the looks there, as its engine numbers them.

    Attributes:
        engine: its uuid.
        first: the first look that had it.
        closed: the first look that had it closed.
        last: the last look that had it; 0 while its sender has it.
        loaded: the commit that loaded it.
        physical: its name there.
    """

    engine: str
    first: int
    closed: int
    last: int
    loaded: CommitTs
    physical: str


class FileOrigin(Record, frozen=True):
    """Where a forwarded file comes from.

    Attributes:
        sender: uuid of the edge.
        path: at the edge.
        below: at each centre on the way, from the edge on; one at least.
    """

    sender: str
    path: str
    below: Sequence[OriginLooks]

    @property
    def author(self) -> str:
        """In whose files, and by which engine's looks, deletions count."""
        return f"{self.sender}@{self.below[0].engine}"


class FileOutcome(Record, frozen=True):
    """The fate of one path of a task.

    Attributes:
        device: that stands in its way, if one does.
        result: what became of it.
        owner: uuid of who owns the device, recorded always and revealed only by choice.
        hold: whether it is not tried again by itself.
    """

    path: str
    result: Result
    device: str | None = None
    reason: str | None = None
    owner: str | None = None
    hold: bool = False


class TimePiece(Record, frozen=True):
    """From `ts` on timestamps stand for `moment` and what follows it, `pace` times as fast.

    See `receiver.metadata.model.true_times`; `moment` is on the scale of timestamps.
    """

    ts: CommitTs
    """Timestamp of a commit."""
    moment: CommitTs
    """What it stands for, as a timestamp."""
    pace: int
    """How many times as fast moments go as timestamps do: 0, 1 or 2."""
