"""TimeseriesMetadata: the index's record of one series of one device.

Layout: byte kind (0x80 time column, 0x40 value column, low six bits 0: one chunk), vstr name,
byte data type, uvarint size of the chunk list, Statistics, chunk list. A chunk is the int64
offset of its header, followed by its own Statistics where the series has more than one.
Source: apache/tsfile, ``TimeseriesMetadata``, ``ChunkMetadata``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from common.tsfile.layout import DataType
from common.tsfile.primitives import INT64, TIMES, Malformed, read_uvarint
from common.tsfile.statistics import BODY_SIZES, Statistics, body_end, read_body, read_statistics

__all__ = ["Chunk", "Series", "SeriesEntry", "check_chunks", "chunk_offsets", "decode", "entries"]

SeriesEntry: TypeAlias = tuple[int, str, int, int, int, int, int, int, int]
"""kind, name, type code, count, start, end; positions of the body, chunk list, next entry."""

_MANY: Final = 0x3F
_KNOWN_KINDS: Final = frozenset({0x00, 0x01, 0x80, 0x81, 0x40, 0x41})


class Chunk(msgspec.Struct, frozen=True):
    """A chunk as the index has it.

    Attributes:
        offset: of its header in the file.
        statistics: of its points.
        encoding: the header's code (see ``Encoding``), None when headers were not read.
        compression: the same (see ``Compression``).
    """

    offset: int
    statistics: Statistics
    encoding: int | None = None
    compression: int | None = None


class Series(msgspec.Struct, frozen=True):
    """One measurement of one device; the time column of an aligned device has the name ``""``."""

    measurement: str
    data_type: DataType
    statistics: Statistics
    chunks: tuple[Chunk, ...]

    @property
    def count(self) -> int:
        """Points, nulls left out."""
        return self.statistics.count

    @property
    def start(self) -> int | None:
        """Time of the first point, None without points."""
        return self.statistics.start if self.statistics.count else None

    @property
    def end(self) -> int | None:
        """Time of the last point, None without points."""
        return self.statistics.end if self.statistics.count else None


def entries(buf: bytes, pos: int, end: int) -> Iterator[SeriesEntry]:
    """Yield the entries of the run ``buf[pos:end]``. The hot loop: a million series pass here.

    Reading past ``end`` is harmless (the buffer holds) and is noticed once the entry is whole.

    Raises:
        Malformed, IndexError, struct.error: the run does not hold entries up to its very end.
    """
    while pos < end:
        kind = buf[pos]
        length, at = buf[pos + 1], pos + 2
        if length > 0x7F:
            length, at = read_uvarint(buf, pos + 1)
        if length & 1:
            raise Malformed("a measurement without a name", pos)
        stop = at + (length >> 1)
        try:
            name = str(buf[at:stop], "utf-8")
        except UnicodeDecodeError:
            raise Malformed("a measurement name that is not UTF-8", pos) from None
        code, size, at = buf[stop], buf[stop + 1], stop + 2
        if size > 0x7F:
            size, at = read_uvarint(buf, stop + 1)
        count = buf[at]
        at += 1
        if count > 0x7F:
            count, at = read_uvarint(buf, at - 1)
        first, last = TIMES(buf, at)
        body = at + 16
        width = BODY_SIZES[code]
        chunks = body + width if width >= 0 else body_end(buf, body, code)
        following = chunks + size
        if following > end:
            raise Malformed(f"series {name!r} reaches beyond its run, which ends", end)
        yield kind, name, code, count, first, last, body, chunks, following
        pos = following


def check_chunks(buf: bytes, entry: SeriesEntry, limit: int) -> int:
    """Check an entry against its chunk list; return the number of its chunks.

    Args:
        buf: what the entry's positions are relative to.
        entry: from ``entries``.
        limit: where the data section ends; chunks begin before it.

    Raises:
        Malformed: they contradict each other.
    """
    kind, name, code, count, start, end, body, pos, following = entry
    if kind not in _KNOWN_KINDS:
        raise Malformed(f"series {name!r} of the unknown kind {kind:#04x}", body)
    if count and start > end:
        raise Malformed(f"series {name!r} starts at time {start} and ends at {end},", body)
    if not kind & _MANY:
        if following - pos != 8:
            raise Malformed(f"series {name!r} of one chunk has a list of another length", pos)
        if not 7 < INT64(buf, pos)[0] < limit:
            raise Malformed(f"series {name!r} has a chunk outside the data section,", pos)
        return 1
    number, points = 0, 0
    first: int | None = None
    last: int | None = None
    for at, chunk_count, body_at, _ in _chunk_list(buf, code, pos, following):
        if not 7 < INT64(buf, at)[0] < limit:
            raise Malformed(f"series {name!r} has a chunk outside the data section,", at)
        number += 1
        if not chunk_count:
            continue
        chunk_start, chunk_end = TIMES(buf, body_at - 16)
        if chunk_start > chunk_end:
            raise Malformed(f"a chunk of series {name!r} ends before it starts,", at)
        points += chunk_count
        first = chunk_start if first is None or chunk_start < first else first
        last = chunk_end if last is None or chunk_end > last else last
    if points != count:
        raise Malformed(f"series {name!r} has {count} points, its chunks {points},", body)
    if not number or (count and (first != start or last != end)):
        raise Malformed(f"series {name!r} and its chunks differ in time,", body)
    return number


def _chunk_list(buf: bytes, code: int, pos: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (position, count, position of the body, position behind) of chunks with statistics."""
    width = BODY_SIZES[code]
    while pos < end:
        count, at = buf[pos + 8], pos + 9
        if count > 0x7F:
            count, at = read_uvarint(buf, pos + 8)
        body = at + 16
        following = body + width if width >= 0 else body_end(buf, body, code)
        if following > end:
            raise Malformed("a chunk reaches beyond its list, which ends", end)
        yield pos, count, body, following
        pos = following


def chunk_offsets(buf: bytes, entry: SeriesEntry) -> Iterator[int]:
    """Yield where the chunk headers of a checked entry stand in the file."""
    kind, _, code, _, _, _, _, pos, following = entry
    if not kind & _MANY:
        yield INT64(buf, pos)[0]
        return
    for at, _, _, _ in _chunk_list(buf, code, pos, following):
        yield INT64(buf, at)[0]


def decode(buf: bytes, entry: SeriesEntry, codecs: Iterator[int] | None) -> Series:
    """Make a ``Series`` of a checked entry.

    Args:
        buf: what the entry's positions are relative to.
        entry: from ``entries``.
        codecs: encoding and compression of each chunk in turn, where headers were read.
    """
    kind, name, code, count, start, end, body, pos, following = entry
    statistics = Statistics(count, start, end, *read_body(buf, body, code))
    chunks = []
    while pos < following:
        own, offset = statistics, INT64(buf, pos)[0]
        pos += 8
        if kind & _MANY:
            own, pos = read_statistics(buf, pos, code)
        encoding, compression = (next(codecs), next(codecs)) if codecs else (None, None)
        chunks.append(Chunk(offset, own, encoding, compression))
    return Series(name, DataType(code), statistics, tuple(chunks))
