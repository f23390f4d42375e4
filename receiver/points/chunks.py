"""Chunks of a series: where they are, what they hold, what their points come to."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from common.tsfile import Device, Series, Statistics
from receiver.points.columns import Column
from receiver.points.errors import DamagedData, Place

__all__ = [
    "Block",
    "ChunkRef",
    "ChunkSummary",
    "DecodedChunk",
    "chunk_refs",
    "clusters",
    "group_headers",
]

_GROUP: Final = b"\x00"  # the marker of a chunk group's header
_NULL: Final = b"\x01"
_MOST_NULLS: Final = 16

Int64s: TypeAlias = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk as the index has it.

    Attributes:
        offset: of its header in the file.
        statistics: of its points, as the index says.
        time_chunk: the chunk that has its times; None on a plain device, and of a time chunk.
    """

    offset: int
    statistics: Statistics
    time_chunk: ChunkRef | None = None

    @property
    def rows(self) -> int:
        """As the index says: of an aligned chunk with its nulls."""
        return (self.time_chunk or self).statistics.count


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows of one chunk.

    Attributes:
        times: int64, strictly increasing.
        column: a row for each time; of a time chunk None.
        first_page: number of the first page in here.
        pages: how many there are.
    """

    times: Int64s
    column: Column | None
    first_page: int
    pages: int


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkSummary:
    """What the points of one chunk come to, every page decoded and checked.

    Attributes:
        measurement: ``""`` is the time column of an aligned device.
        offset: of the chunk's header.
        end: behind its last byte; ``offset`` to ``end`` is what a digest goes over.
        data_type: code, see ``common.tsfile.DataType``.
        encoding: code, see ``common.tsfile.Encoding``.
        compression: code, see ``common.tsfile.Compression``.
        pages: how many.
        rows: of an aligned chunk with nulls, otherwise the points.
        statistics: count, times, first, last, min, max and sum as decoded. Where the type's
            statistics in the file lack one (TEXT has no minimum), it is None.
        exact: whether the values were the file's statistics to the last bit. Some encodings lose
            something, and some writers add up in an order that nobody can know: then they are as
            near as that explains.
    """

    measurement: str
    offset: int
    end: int
    data_type: int
    encoding: int
    compression: int
    pages: int
    rows: int
    statistics: Statistics
    exact: bool


@dataclasses.dataclass(frozen=True, slots=True)
class DecodedChunk:
    """All rows of one chunk.

    Attributes:
        times: int64, one a row; of an aligned chunk the rows of its time chunk.
        column: the values, one a row; None for a time chunk.
        page_offsets: of each page's header, absolute; none for a chunk without pages.
        page_counts: points of each page.
        page_rows: rows of each page, nulls counted.
        summary: encoding, compression, type, the range of raw bytes, statistics as decoded.
    """

    times: Int64s
    column: Column | None
    page_offsets: Int64s
    page_counts: Int64s
    page_rows: Int64s
    summary: ChunkSummary


def chunk_refs(series: Series, times: Series | None, place: Place) -> list[ChunkRef]:
    """The chunks of a series in the file's order, each with the chunk of its times.

    A writer puts the chunks of values behind the chunk of their times, and then the next group;
    a series that came later has none in the first groups.

    Args:
        series: whose chunks.
        times: the time column of its device, None on a plain one.
        place: of the series, for the error.

    Raises:
        DamagedData: values without times, or two chunks of values for one of times.
    """
    chunks = sorted(series.chunks, key=lambda chunk: chunk.offset)
    if times is None or series is times:
        return [ChunkRef(chunk.offset, chunk.statistics) for chunk in chunks]
    groups = chunk_refs(times, None, place)
    offsets = [group.offset for group in groups]
    refs, before = [], -1
    for chunk in chunks:
        at = bisect_right(offsets, chunk.offset) - 1
        if at < 0 or at == before:
            here = dataclasses.replace(place, chunk=chunk.offset)
            raise DamagedData("a chunk of values without one of times", here)
        refs.append(ChunkRef(chunk.offset, chunk.statistics, groups[at]))
        before = at
    return refs


def group_headers(device: Device, version: int) -> tuple[bytes, ...]:
    """What may stand before the first chunk of a device: a marker and the device.

    The index has no null tags at the end of a device; the header may have some. Source:
    apache/tsfile, ``ChunkGroupHeader``, ``StringArrayDeviceID``.
    """
    segments = [_vstr(segment) for segment in device.segments]
    if version == 3:
        return (_GROUP + segments[0],)
    body = b"".join(segments)
    return tuple(
        _GROUP + _uvarint(len(segments) + nulls) + body + _NULL * nulls
        for nulls in range(_MOST_NULLS)
    )


def _vstr(text: str | None) -> bytes:
    if text is None:
        return _NULL
    raw = text.encode()
    return _uvarint(2 * len(raw)) + raw


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def clusters(refs: Sequence[ChunkRef], start: int | None, end: int | None) -> list[list[ChunkRef]]:
    """Chunks with points in a range of time, in its order.

    In files of late data the chunks of one series may overlap: such ones come together, in the
    file's order, in which a later one overrides an earlier one.

    Args:
        refs: of one series.
        start: inclusive.
        end: inclusive.
    """
    wanted = [
        ref
        for ref in refs
        if ref.statistics.count
        and (start is None or ref.statistics.end >= start)
        and (end is None or ref.statistics.start <= end)
    ]
    wanted.sort(key=lambda ref: (ref.statistics.start, ref.offset))
    found: list[list[ChunkRef]] = []
    reach = 0
    for ref in wanted:
        if found and ref.statistics.start <= reach:
            found[-1].append(ref)
            reach = max(reach, ref.statistics.end)
        else:
            found.append([ref])
            reach = ref.statistics.end
    for cluster in found:
        cluster.sort(key=lambda ref: ref.offset)
    return found
