"""Chunks of a series: where they are, what they hold, what their points come to."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from common.tsfile import Series, Statistics
from common.tsfile.primitives import uvarint_bytes, vstr_bytes
from receiver.points.columns import Column
from receiver.points.errors import DamagedData, DataPlace

__all__ = [
    "ChunkRef",
    "ChunkSummary",
    "GroupHeader",
    "Int64s",
    "PointBlock",
    "chunk_refs",
    "clusters",
]

_GROUP: Final = b"\x00"  # the marker of a chunk group's header
_NULL: Final = b"\x01"
_MOST_NULLS: Final = 4096

Int64s: TypeAlias = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk as the index has it.

    Attributes:
        offset: of its header in the file.
        statistics: of its points, as the index says.
        time_chunk: the chunk that has its times; None on a plain device, of a time chunk, and of
            an empty chunk of values that stands alone.
    """

    offset: int
    statistics: Statistics
    time_chunk: ChunkRef | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PointBlock:
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


def chunk_refs(series: Series, times: Series | None, place: DataPlace) -> list[ChunkRef]:
    """The chunks of a series in the file's order, each with the chunk of its times.

    A writer puts the chunks of values behind the chunk of their times, and then the next group;
    a series that came later has none in the first groups. Of a group without rows writers leave
    the chunk of times out, and the empty chunks of values in.

    Args:
        series: whose chunks.
        times: the time column of its device, None on a plain one.
        place: of the series, for the error.

    Raises:
        DamagedData: the same chunk twice, values without times, or two chunks of values for one
            of times.
    """
    chunks = sorted(series.chunks, key=lambda chunk: chunk.offset)
    for one, other in itertools.pairwise(chunks):
        if one.offset == other.offset:
            here = dataclasses.replace(place, chunk=one.offset)
            raise DamagedData("a chunk that the index has twice", here)
    if times is None or series is times:
        return [ChunkRef(chunk.offset, chunk.statistics) for chunk in chunks]
    groups = chunk_refs(times, None, place)
    offsets = [group.offset for group in groups]
    refs, before = [], -1
    for chunk in chunks:
        at = bisect_right(offsets, chunk.offset) - 1
        if at >= 0 and at != before:
            refs.append(ChunkRef(chunk.offset, chunk.statistics, groups[at]))
            before = at
        elif not chunk.statistics.count:
            refs.append(ChunkRef(chunk.offset, chunk.statistics))
        else:
            here = dataclasses.replace(place, chunk=chunk.offset)
            raise DamagedData("a chunk of values without one of times", here)
    return refs


class GroupHeader:
    """What stands before the first chunk of a device: a marker and the device.

    The index has no null tags at the end of a device; the header may have some (the C++ writer has
    all that its table knows). Source: apache/tsfile, ``ChunkGroupHeader``,
    ``StringArrayDeviceID``.

    Attributes:
        longest: bytes of it, at most.
    """

    def __init__(self, segments: tuple[str | None, ...], version: int) -> None:
        self._segments = 0 if version == 3 else len(segments)
        self._body = b"".join(vstr_bytes(segment) for segment in segments)
        nulls = _MOST_NULLS if self._segments else 0
        self.longest = len(_GROUP) + len(uvarint_bytes(_MOST_NULLS)) + len(self._body) + nulls

    @classmethod
    @functools.lru_cache(256)
    def of(cls, segments: tuple[str | None, ...], version: int) -> GroupHeader:
        """That of a device; thousands of files have the same ones."""
        return cls(segments, version)

    def ends(self, content: bytes) -> bool:
        """Whether bytes end with it."""
        if not self._segments:
            return content.endswith(_GROUP + self._body)
        end = len(content)
        for nulls in range(_MOST_NULLS + 1):
            body = end - len(self._body)
            head = _GROUP + uvarint_bytes(self._segments + nulls)
            if content.endswith(self._body, 0, end) and content.endswith(head, 0, body):
                return True
            if content[end - 1 : end] != _NULL:
                return False
            end -= 1
        return False


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
