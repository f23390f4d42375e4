"""Many chunks of a series at once: small ones cost little more than their points.

A database that flushes every few minutes writes chunks of one page with some hundred points, and
what is done once a chunk is then most of the work. Here the only pages of many chunks are decoded
by one call, and compared with the index by another. What is not that simple, or not just what the
index says of it, goes the one way of `ChunkReader.blocks`, which also says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import lz4.block
import numpy as np
import numpy.typing as npt

from common.tsfile import Compression, DataType, Device, Encoding, Series, Statistics
from common.tsfile.primitives import vstr_bytes
from receiver.points import summaries
from receiver.points.chunk_reader import ChunkReader
from receiver.points.chunks import ChunkRef, PointBlock
from receiver.points.columns import BINARY, Column, dtype_of, joined_values, no_values
from receiver.points.decoding import Times
from receiver.points.encodings import (
    Binaries,
    Bytes,
    Values,
    has_old_form,
    is_rounded,
)
from receiver.points.grouping import GREATEST_TIME, LEAST_TIME
from receiver.points.jit import readonly
from receiver.points.page_data import page_kernels
from receiver.points.page_data.compression import BadCompression, UnsupportedCompression, decompress
from receiver.points.page_data.page_runs import PagePlaces, decode_pages
from receiver.points.page_data.stored_pages import KeptChunks, PageKeeper, StoredChunk, StoredPage

__all__ = [
    "ChunkSource",
    "Chunks",
    "PlacedChunk",
    "WantedSpan",
    "plain_points",
    "row_times",
    "row_values",
]

_LEAST_READ: Final = 256
_LIKELY_BYTES: Final = 12
_MOST_POINTS: Final = 32_768
"""Of a chunk: a larger one is worth its own way."""
_MOST_BYTES: Final = 1 << 20

_Places: TypeAlias = npt.NDArray[np.int64]
WantedSpan: TypeAlias = tuple[int, int]
"""Times, both ends included."""


class PlacedChunk(NamedTuple):
    """A chunk of an open file."""

    file: ChunkReader
    device: Device
    series: Series
    ref: ChunkRef


class Chunks(NamedTuple):
    """Chunks of one series of one device, of several files.

    Attributes:
        files: number of the file of each.
        offsets: of the headers.
        statistics: as the index says, a row each as of ``summaries``.
    """

    files: _Places
    offsets: _Places
    statistics: summaries.SummaryRows

    def take(self, which: npt.NDArray[Any]) -> Chunks:
        """Some of them."""
        return Chunks(self.files[which], self.offsets[which], self.statistics[which])

    @property
    def counts(self) -> _Places:
        """Points of each."""
        return self.statistics[:, summaries.ROW_COUNT]

    @property
    def bounds(self) -> _Places:
        """Where each begins among the points of all, and the end."""
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(self.counts)))


class ChunkSource(Protocol):
    """Where the chunks of a device are."""

    def gather(self, chunks: Chunks, likely: _Places) -> tuple[Bytes, _Places, _Places]:
        """The bytes of chunks: what holds them, where each begins, and where what is there ends.

        Args:
            chunks: of one series.
            likely: how many bytes each may have; of one that has more the end is missed.
        """

    def placed(self, name: str, file: int, offset: int) -> PlacedChunk:
        """A chunk of a series, to be decoded by itself."""


class _Pages:
    """The only pages of some of the chunks, taken out of their compression.

    Attributes:
        chunks: their numbers.
        data: their bytes, one behind the other.
        starts: where each begins.
        ends: where it ends.
        good: whether each is as it should be, so far.
        encodings: of each.
        empty: numbers of the chunks that have no page, and no point.
    """

    def __init__(self, source: ChunkSource, name: str, code: int, chunks: Chunks) -> None:
        counts = chunks.counts
        (some,) = np.nonzero(counts <= _MOST_POINTS)
        self.empty = some[:0]
        found = np.zeros((0, 5), np.int64)
        data: Bytes = np.empty(0, np.uint8)
        if len(some):
            prefix = vstr_bytes(name)
            likely = _LEAST_READ + len(prefix) + _LIKELY_BYTES * counts[some]
            data, positions, limits = source.gather(chunks.take(some), likely)
            data, called = readonly(data), readonly(np.frombuffer(prefix, np.uint8))
            found = np.zeros((len(some), 5), np.int64)
            page_kernels.only_pages(data, positions, limits, called, code, found)
            self.empty = some[(found[:, 0] == -2) & (counts[some] == 0)]
            is_one = (found[:, 0] >= 0) & (found[:, 2] <= _MOST_BYTES) & (counts[some] > 0)
            some, found = some[is_one], found[is_one]
        contents = [_content(data.data, *row) for row in found[:, :4].tolist()]
        self._stored, self._found = data, found
        self.chunks, self.encodings = some, found[:, 4]
        self.data = readonly(np.frombuffer(b"".join(contents), np.uint8))
        sizes = np.array([len(each) for each in contents], np.int64)
        self.ends = np.cumsum(sizes, dtype=np.int64)
        self.starts = self.ends - sizes
        self.good = sizes > 0

    def __len__(self) -> int:
        return len(self.chunks)

    def keep(self, chunks: Chunks, kept: KeptChunks | None) -> None:
        """Keep the good ones among them that are wanted, and those without a page."""
        if kept is None:
            return
        for number in self.empty.tolist():
            kept.add(number, StoredChunk(-1, -1, ()))
        for at in np.flatnonzero(self.good & kept.wanted[self.chunks]).tolist():
            start, length, size, compression, encoding = self._found[at].tolist()
            number = int(self.chunks[at])
            content = self._stored[start : start + length].tobytes()
            page = StoredPage(content, size, chunks.statistics[number].copy())
            kept.add(number, StoredChunk(encoding, compression, (page,)))

    def bad(self, count: int) -> list[int]:
        """The numbers of the chunks, of so many, that are to go the other way."""
        done = np.zeros(count, np.bool_)
        done[self.empty] = done[self.chunks[self.good]] = True
        found: list[int] = np.flatnonzero(~done).tolist()
        return found


def _content(
    data: memoryview, start: int, length: int, size: int, compression: int
) -> bytes | memoryview:
    """What a page holds; nothing if it is broken."""
    page = data[start : start + length]
    try:
        if compression == Compression.LZ4:  # what most have, and it takes no longer than the call
            found = lz4.block.decompress(page, uncompressed_size=size)
            return found if len(found) == size else b""
        return decompress(compression, np.frombuffer(page, np.uint8), size).data
    except (lz4.block.LZ4BlockError, ValueError, BadCompression, UnsupportedCompression):
        return b""


def plain_points(
    source: ChunkSource,
    name: str,
    code: int,
    chunks: Chunks,
    kept: KeptChunks | None = None,
    span: WantedSpan | None = None,
) -> tuple[Times, Column]:
    """Decode chunks of a series whose times are its own: times and values, one behind the other.

    Args:
        source: has them.
        name: of the series.
        code: its type.
        chunks: of it.
        kept: is given those chunks that it wants as they stand.
        span: of the times that are wanted. Other pages of large chunks may be left out: their rows
            have times outside of it then, behind the others of their chunk, and any values.

    Raises:
        DamagedData, UnsupportedData: see `ChunkReader.blocks`.
    """
    bounds = chunks.bounds
    times = np.empty(int(bounds[-1]), np.int64)
    if code in BINARY:
        parts: list[Values] = []
        for at in range(len(chunks.files)):
            here = times[bounds[at] : bounds[at + 1]]
            found = _own_way(_Alone(source, name, chunks, at, kept, span), here)
            left_out = len(here) - sum(map(len, found))
            parts += [*found, no_values(code, left_out).values] if left_out else found
        return times, Column(code, joined_values(parts))
    pages = _Pages(source, name, code, chunks)
    values = np.empty(len(times), dtype_of(code))
    if len(pages):
        lows, highs = bounds[pages.chunks], bounds[pages.chunks + 1]
        splits = np.zeros(len(pages), np.int64)
        page_kernels.plain_times(
            pages.data, pages.starts, pages.ends, lows, highs, times, splits, pages.good
        )
        page_kernels.in_order(times, lows, highs, pages.good)
        _decode(pages, splits, lows, highs, code, values)
        rows = _summed_up(code, values, lows, highs)
        _check(pages, chunks, rows, times[lows], times[highs - 1])
        pages.keep(chunks, kept)
    for at in pages.bad(len(chunks.files)):
        low, high = bounds[at], bounds[at + 1]
        for part in _own_way(_Alone(source, name, chunks, at, kept, span), times[low:high]):
            assert not isinstance(part, Binaries)
            values[low : low + len(part)] = part
            low += len(part)
    return times, Column(code, values)


def row_times(
    source: ChunkSource,
    chunks: Chunks,
    kept: KeptChunks | None = None,
    span: WantedSpan | None = None,
) -> Times:
    """Decode chunks of times of an aligned device; as ``plain_points``."""
    bounds = chunks.bounds
    times = np.empty(int(bounds[-1]), np.int64)
    pages = _Pages(source, "", int(DataType.VECTOR), chunks)
    if len(pages):
        lows, highs = bounds[pages.chunks], bounds[pages.chunks + 1]
        pages.good &= pages.encodings == Encoding.TS_2DIFF
        page_kernels.deltas(pages.data, pages.starts, pages.ends, lows, highs, times, pages.good)
        page_kernels.in_order(times, lows, highs, pages.good)
        rows = np.zeros((len(pages), summaries.ROW_WIDTH), np.int64)
        rows[:, summaries.ROW_COUNT] = highs - lows
        _check(pages, chunks, rows, times[lows], times[highs - 1])
        pages.keep(chunks, kept)
    for at in pages.bad(len(chunks.files)):
        here = times[bounds[at] : bounds[at + 1]]
        _own_way(_Alone(source, "", chunks, at, kept, span), here)
    return times


def row_values(
    source: ChunkSource,
    name: str,
    code: int,
    chunks: Chunks,
    beside: _Places,
    times: Times,
    bounds: _Places,
    kept: KeptChunks | None = None,
    span: WantedSpan | None = None,
) -> Column:
    """Decode the chunks of values that stand beside some of times.

    Args:
        source: has them.
        name: of the series.
        code: its type.
        chunks: of it.
        beside: of each of them the number of its chunk of times.
        times: of those, one behind the other.
        bounds: where each of those begins, and the end.
        kept: is given those chunks of values that it wants as they stand.
        span: as the times were decoded with; rows that were left out have no value.
    """
    valid = np.zeros(len(times), np.bool_)
    if code in BINARY:
        binaries = _row_binaries(source, name, code, chunks, beside, bounds, valid, kept, span)
        return Column(code, binaries, None if valid.all() else valid)
    values = np.zeros(len(times), dtype_of(code))
    pages = _Pages(source, name, code, chunks)
    if len(pages):
        lows, highs = bounds[beside[pages.chunks]], bounds[beside[pages.chunks] + 1]
        splits, counts = np.zeros(len(pages), np.int64), np.zeros(len(pages), np.int64)
        page_kernels.bitmaps(
            pages.data, pages.starts, pages.ends, lows, highs, valid, counts, splits, pages.good
        )
        pages.good &= counts > 0
        ends = np.cumsum(counts)
        begins = ends - counts
        dense = np.empty(int(ends[-1]), values.dtype)
        _decode(pages, splits, begins, ends, code, dense)
        rows = _summed_up(code, dense, begins, ends)
        first, last = np.zeros(len(pages), np.int64), np.zeros(len(pages), np.int64)
        page_kernels.edges(times, valid, lows, highs, first, last)
        _check(pages, chunks, rows, first, last)
        page_kernels.spread(dense, begins, lows, highs, valid, values)
    pages.keep(chunks, kept)
    for at in pages.bad(len(chunks.files)):
        low, high = bounds[beside[at]], bounds[beside[at] + 1]
        valid[low:high] = False
        values[low:high] = 0
        for column in _columns(_Alone(source, name, chunks, at, kept, span)):
            values[low : low + len(column)] = column.values
            valid[low : low + len(column)] = True if column.valid is None else column.valid
            low += len(column)
    return Column(code, values, None if valid.all() else valid)


# -- what is done once a type ----------------------------------------------------------------------


def _decode(
    pages: _Pages, splits: _Places, lows: _Places, highs: _Places, code: int, out: Any
) -> None:
    """Decode the values of the good pages, which begin at ``splits``, into rows of ``out``."""
    for encoding in np.unique(pages.encodings[pages.good]).tolist():
        here = np.flatnonzero(pages.good & (pages.encodings == encoding))
        good = np.ones(len(here), np.bool_)
        if is_rounded(encoding, code, old_form=True) or has_old_form(encoding, code):
            good[:] = False
        else:
            places = PagePlaces(splits[here], pages.ends[here], lows[here], highs[here])
            decode_pages(encoding, code, pages.data, places, out, good)
        pages.good[here] = good


def _summed_up(code: int, values: Any, lows: _Places, highs: _Places) -> summaries.SummaryRows:
    """What the values of each page come to; ``lows`` and ``highs`` are increasing."""
    edges = np.empty(2 * len(lows), np.int64)  # of pages and of what may lie between them
    edges[0::2], edges[1::2] = lows, highs
    rows = np.zeros((len(edges), summaries.ROW_WIDTH), np.int64)
    summaries.summarise(code, values, edges, rows)
    rows = rows[0::2].copy()
    rows[:, summaries.ROW_COUNT] = highs - lows
    return rows


def _check(
    pages: _Pages, chunks: Chunks, rows: summaries.SummaryRows, first: Times, last: Times
) -> None:
    """Keep those good that are what the index says of them, to the last bit."""
    rows[:, summaries.ROW_START], rows[:, summaries.ROW_END] = first, last
    pages.good &= (rows == chunks.statistics[pages.chunks]).all(axis=1)


# -- the other way ---------------------------------------------------------------------------------


class _Alone(NamedTuple):
    """A chunk that is decoded by itself: the number `at` of some."""

    source: ChunkSource
    name: str
    chunks: Chunks
    at: int
    kept: KeptChunks | None
    span: WantedSpan | None

    def blocks(self) -> Iterator[PointBlock]:
        """Decode it, or the pages of it that have to do with the span."""
        at, kept, chunks = self.at, self.kept, self.chunks
        chunk = self.source.placed(self.name, int(chunks.files[at]), int(chunks.offsets[at]))
        times = chunk.ref if chunk.ref.time_chunk is None else chunk.ref.time_chunk
        start, end = self.span or (None, None)
        if self.outside() is None or not _reaches_out(times.statistics, self.span):
            start = end = None
        keeper = None
        if kept is not None and kept.wanted[at] and start is None:
            keeper = PageKeeper()
        yield from chunk.file.blocks(
            chunk.device, chunk.series, chunk.ref, start=start, end=end, keeper=keeper
        )
        if kept is not None and keeper is not None:
            kept.add(at, keeper.stored())

    def outside(self) -> int | None:
        """A time that is not wanted; None if all are."""
        if self.span is None:
            return None
        start, end = self.span
        if start > LEAST_TIME:
            return start - 1
        return end + 1 if end < GREATEST_TIME else None


def _reaches_out(statistics: Statistics, span: WantedSpan | None) -> bool:
    return span is not None and not span[0] <= statistics.start <= statistics.end <= span[1]


def _own_way(chunk: _Alone, times: Times) -> list[Values]:
    """Decode a chunk by itself; its times go into ``times``."""
    parts: list[Values] = []
    filled = 0
    for block in chunk.blocks():
        times[filled : filled + len(block.times)] = block.times
        filled += len(block.times)
        if block.column is not None:
            parts.append(block.column.values)
    if filled < len(times):
        outside = chunk.outside()
        assert outside is not None
        times[filled:] = outside
    return parts


def _columns(chunk: _Alone) -> Iterator[Column]:
    for block in chunk.blocks():
        assert block.column is not None
        yield block.column


def _row_binaries(
    source: ChunkSource,
    name: str,
    code: int,
    chunks: Chunks,
    beside: _Places,
    bounds: _Places,
    valid: npt.NDArray[np.bool_],
    kept: KeptChunks | None,
    span: WantedSpan | None,
) -> Values:
    by_times = {each: at for at, each in enumerate(beside.tolist())}
    parts: list[Values] = []
    for number, (low, high) in enumerate(pairwise(bounds.tolist())):
        at = by_times.get(number)
        if at is None:
            parts.append(no_values(code, high - low).values)
            continue
        filled = low
        for column in _columns(_Alone(source, name, chunks, at, kept, span)):
            here = slice(filled, filled + len(column))
            valid[here] = True if column.valid is None else column.valid
            parts.append(column.values)
            filled += len(column)
        if filled < high:
            parts.append(no_values(code, high - filled).values)
    return joined_values(parts)
