"""What goes to the verification's workers and what comes back, and how files are cut for them.

A file is one part, or several where it is large: then part 0 proves it as a whole (digest,
structure, counts) and the others decode a share of its devices each.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from receiver.spark.report.results import CodecTotal, Finding
from receiver.spark.work import deal
from receiver.storage.reading.stored_place import StoredPlace

__all__ = [
    "GROUPS_PER_CORE",
    "PART_BYTES",
    "Expected",
    "FilePart",
    "PartResult",
    "PartSpan",
    "group_parts",
    "pack",
    "split",
    "unpack",
]

PART_BYTES = 256 << 20
"""A file above this is cut, and a group of parts is about this large at most."""
GROUP_FILES = 500
"""Parts of one group at most: what Spark would have to do again when a worker dies."""
GROUPS_PER_CORE = 3
"""At least, if there are parts enough: the last ones to end then leave little idle."""
_OPENING = 1 << 20
"""What opening a file costs, in bytes that could be decoded meanwhile; for fair dealing."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of a file before it is read; None where nothing is (files of no receiver).

    Attributes:
        physical: path beneath the data directory, unique; of a plain file its path.
        roots: data directories, in the order to look in; empty for a plain file.
        size: bytes.
        md5: 32 hex digits.
        devices: names of its devices, as committed; many files may share one object.
        series: count of series that the receiver read when it loaded the file.
        points: count of points, likewise.
        manifest_series: count of series in the sender's manifest, None if it sent none.
        manifest_points: count of points, likewise.
        manifest_root: digest of the table of series in the manifest, likewise.
        database: that its directory names, for the names of table devices; "" for none.
        kind: `sequence`, `unsequence` or "".
        place: in the object store, where it is there; None where it is not, or nobody says which.
    """

    physical: str
    roots: tuple[str, ...] = ()
    size: int | None = None
    md5: str | None = None
    devices: Sequence[str] | None = None
    series: int | None = None
    points: int | None = None
    manifest_series: int | None = None
    manifest_points: int | None = None
    manifest_root: str | None = None
    database: str = ""
    kind: str = ""
    place: StoredPlace | None = None


@dataclass(frozen=True, slots=True)
class FilePart:
    """One piece of work.

    Attributes:
        file: number of the file in the run.
        part: 0 for the file as a whole.
        parts: how many there are beside part 0; 0: part 0 decodes all devices itself.
        weight: bytes that it reads, about.
        expected: of the file.
    """

    file: int
    part: int
    parts: int
    weight: int
    expected: Expected


class PartSpan(msgspec.Struct, frozen=True, array_like=True):
    """The times of a device in one part; see `results.DeviceSpan`.

    Of a file in parts, part 0 says `first`, `last` and `rows`, the others what stands in gaps.
    """

    device: str
    first: int | None
    last: int | None
    rows: int
    interval: int | None
    gap: int | None
    gap_begins: int | None


@dataclass(slots=True)
class PartResult:
    """What a worker says of a part; counts of several parts of a file add up.

    Attributes:
        file: as in `FilePart`.
        part: as in `FilePart`.
        absent: the file was in none of the roots.
        host: of the worker, where that matters: if the file was absent.
        size: bytes found.
        md5: "" if it was not computed.
        version: of the format, 0 if not known.
        devices: count.
        series: count.
        points: decoded and good.
        chunks: likewise.
        pages: likewise.
        first_time: of the file by its index.
        last_time: likewise.
        findings: at most `findings.MOST_FINDINGS`.
        dropped: findings beyond those.
        days: points by day since 1970 in UTC.
        codecs: what was decoded, by type, encoding and compression.
        outline: types and codecs of all series, packed (`schemacheck`); None in all parts but 0.
        table: table of series, packed, where it is not the manifest's.
        seconds: spent.
    """

    file: int
    part: int
    absent: bool = False
    host: str = ""
    size: int = 0
    md5: str = ""
    version: int = 0
    devices: int = 0
    series: int = 0
    points: int = 0
    chunks: int = 0
    pages: int = 0
    first_time: int | None = None
    last_time: int | None = None
    findings: list[Finding] = field(default_factory=list)
    dropped: int = 0
    days: dict[int, int] = field(default_factory=dict)
    codecs: list[CodecTotal] = field(default_factory=list)
    outline: bytes | None = None
    table: bytes | None = None
    seconds: float = 0.0


def split(number: int, expected: Expected, size: int) -> list[FilePart]:
    """The parts of a file.

    Args:
        number: of the file.
        expected: of it.
        size: its bytes, as far as they are known.
    """
    whole = FilePart(number, 0, 0, size, expected)
    shares = -(-size // PART_BYTES)
    if shares < 2:
        return [whole]
    # Part 0 reads everything once, though it decodes nothing: about a third of the work.
    first = replace(whole, parts=shares, weight=size // 3)
    rest = [FilePart(number, at, shares, size // shares, expected) for at in range(1, shares + 1)]
    return [first, *rest]


def group_parts(parts: Sequence[FilePart], cores: int) -> list[list[FilePart]]:
    """Groups of parts, each to be worked off by one task, all about as heavy."""
    work = sum(each.weight for each in parts)
    wanted = max(-(-work // PART_BYTES), -(-len(parts) // GROUP_FILES), GROUPS_PER_CORE * cores)
    return deal(parts, wanted, lambda part: part.weight + _OPENING)


def pack(group: list[FilePart]) -> bytes:
    """A group in few bytes: what its files share stands there once."""
    return zlib.compress(pickle.dumps(group, pickle.HIGHEST_PROTOCOL), 1)


def unpack(packed: bytes) -> list[FilePart]:
    """Undo `pack`; the bytes came from the driver of this very job."""
    group: list[FilePart] = pickle.loads(zlib.decompress(packed))  # noqa: S301 - from our own driver
    return group
