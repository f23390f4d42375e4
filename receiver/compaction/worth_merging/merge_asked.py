"""What is asked of a merge of files and what it comes to (msgpack), and how it may fail."""

from __future__ import annotations

from common.errors import Integrity, Permanent
from receiver.metadata.model.records.record_parts import DeviceRange, Record
from receiver.superseding.asking import FileAsked, NotesAsked

__all__ = [
    "ComparisonAsked",
    "ComparisonReply",
    "ContradictingFilesError",
    "MergeAnswer",
    "MergeAsked",
    "MergeDiffersError",
    "MergeOutput",
    "MergeQuestion",
]


class ContradictingFilesError(Permanent):
    """Files have a series, a device or a table in ways that one file cannot hold together."""

    slug = "contradicting-files"


class MergeDiffersError(Integrity):
    """What was written is, decoded again, not what was merged."""

    slug = "merge-differs"


class MergeAsked(Record, frozen=True):
    """Files that are merged into outputs.

    Attributes:
        files: of one database and time partition; no file outside of them has a time of a device
            in common with them.
        notes: deletions of their senders, as readers apply them; none is applied to the outputs.
        database: that tables are in, as the storage group is called.
        directory: where the outputs go; it is there.
        name: they are called `<name>-<number>.tsfile`, from 1 on; such that are there are replaced.
        target_bytes: an output ends about there. Where one device has more, it is cut by time.
        memory: bytes that decoded points and open files take at most, about.
        interval: width of a time partition, in the unit of the data: no output has points of two.
            0: none is cut there.
        bytes_per_second: that are read and written at most, all together; 0 for no limit.
    """

    files: tuple[FileAsked, ...]
    notes: tuple[NotesAsked, ...]
    database: str
    directory: str
    name: str
    target_bytes: int
    memory: int = 512 << 20
    interval: int = 0
    bytes_per_second: int = 0


class MergeQuestion(Record, frozen=True):
    """What an executor elsewhere is asked.

    Attributes:
        asked: the files, without paths, and without a directory.
        block: bytes of an output that it sends at once, at most.
    """

    asked: MergeAsked
    block: int


class MergeOutput(Record, frozen=True):
    """A file that was written, flushed and compared.

    Attributes:
        path: of it.
        size: bytes.
        md5: of the bytes, in hex.
        version: of the format.
        series: measurements over all devices.
        points: values over all series; nulls are none.
        first: time of its first row.
        last: time of its last row.
        devices: as a catalogue calls them, each with its first and last row.
    """

    path: str
    size: int
    md5: str
    version: int
    series: int
    points: int
    first: int
    last: int
    devices: tuple[DeviceRange, ...]


class MergeAnswer(Record, frozen=True):
    """What a merge came to.

    Attributes:
        outputs: none of them has a time of a device in common with another one. Without a point
            or row left there are none.
        points: of the files, as they stand in them: those that are hidden or deleted too.
        read_bytes: of the files.
        seconds: it took.
    """

    outputs: tuple[MergeOutput, ...]
    points: int
    read_bytes: int
    seconds: float


class ComparisonAsked(Record, frozen=True):
    """A compaction that is compared with what it stands for.

    Attributes:
        merge: its inputs, as they are asked for when they are merged; no output goes anywhere.
        outputs: its merged files, with their paths.
    """

    merge: MergeAsked
    outputs: tuple[FileAsked, ...]


class ComparisonReply(Record, frozen=True):
    """What came of it: with both empty, the merged files are right.

    Attributes:
        apart: how they are not what readers get of the inputs.
        unknown: why that could not be found out.
    """

    apart: str = ""
    unknown: str = ""
