"""What the server asks the process that reads files for proofs, and what it is answered."""

from __future__ import annotations

import msgspec

from receiver.metadata.model.ranks import RankBelow, TransferCut

__all__ = [
    "ExclusiveRange",
    "FileAsked",
    "FileProof",
    "NotesAsked",
    "PartitionAnswer",
    "PartitionAsked",
]


class _Asked(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of what is asked and answered."""


class ExclusiveRange(_Asked, frozen=True):
    """Times of a series that no visible file above gives: the remainder of a retired file.

    Attributes:
        device: of the file.
        measurement: of the device; empty for the rows of a table, and for all of a device.
        first: the earliest time.
        last: the latest time.
        points: how many times there are.
        table: whether the device is one of the table model.
    """

    device: str
    measurement: str
    first: int
    last: int
    points: int
    table: bool = False


class NotesAsked(_Asked, frozen=True):
    """Records of a deletion file that were seen first by one look.

    Attributes:
        sender: whose; where it was forwarded, of which edge and engine.
        physical: of the loaded file that they are of; None while there is none.
        form: `mods` or `mods2`.
        content: the records.
        floor: they hide their times in files that were closed in this look or before it.
        commit: that told them.
        devices: of the file that they are of, where what a pattern names hangs on it.
    """

    sender: str
    physical: str | None
    form: str
    content: bytes
    floor: int
    commit: int
    devices: tuple[str, ...] = ()


class FileAsked(_Asked, frozen=True):
    """A file of a partition.

    Attributes:
        physical: its name at the receiver.
        path: where its bytes are; None if nowhere.
        sender: whose; where it was forwarded, from which edge, by which engine's looks.
        size: bytes, as loaded.
        md5: of the bytes, as loaded.
        series: how many, as loaded.
        points: how many, as loaded.
        start: the earliest time, None without points.
        end: the latest time.
        name: of its rank, None for a name that no database gave.
        first: the first look that had it.
        closed: the first look that had it closed, as the floors of its notes count.
        last: the last look that had it.
        loaded: the commit that loaded it.
        candidate: whether it is retired, and is to be proved.
        judged: the commit as of which it was not proved; 0 if it has to be judged anew.
        exclusive: what of it was not given by others then.
        below: of its rank.
        cuts: where it stands otherwise, in devices that were transferred, as files call these.
    """

    physical: str
    path: str | None
    sender: str
    size: int
    md5: str
    series: int
    points: int
    start: int | None
    end: int | None
    name: tuple[int, int, int, int, int] | None
    first: int
    closed: int
    last: int
    loaded: int
    candidate: bool = False
    judged: int = 0
    exclusive: tuple[ExclusiveRange, ...] = ()
    below: tuple[RankBelow, ...] = ()
    cuts: tuple[TransferCut, ...] = ()


class PartitionAsked(_Asked, frozen=True):
    """All visible files of a partition that have to do with those that are to be proved.

    Attributes:
        files: of the partition.
        notes: deletions of their senders.
        most_points: times that are held in memory at once, about.
    """

    files: list[FileAsked]
    notes: list[NotesAsked]
    most_points: int


class FileProof(_Asked, frozen=True):
    """What was found of a candidate.

    Attributes:
        physical: of it.
        proved: whether every point of it is given by others.
        rests: those others.
        exclusive: what is not.
        unreadable: why nothing can be said of it; empty if it was read.
    """

    physical: str
    proved: bool = False
    rests: tuple[str, ...] = ()
    exclusive: tuple[ExclusiveRange, ...] = ()
    unreadable: str = ""


class PartitionAnswer(_Asked, frozen=True):
    """What was found of the candidates of a partition.

    Attributes:
        proofs: of all candidates, but of those that nothing has touched since they were judged.
        read: files that were read.
        read_bytes: of those.
    """

    proofs: list[FileProof]
    read: int = 0
    read_bytes: int = 0
