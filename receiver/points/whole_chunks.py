"""Whole chunks, decoded for what they come to, and checked."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from common.tsfile import DataType, Device, Series, Statistics
from receiver.points.aligned import DECODED_AT_ONCE, parts
from receiver.points.chunks import ChunkRef, ChunkSummary, PointBlock, chunk_refs
from receiver.points.encodings import is_rounded
from receiver.points.errors import DamagedData, DataError, UnsupportedData
from receiver.points.page_data.chunk_window import Pages
from receiver.points.page_data.rounding import far
from receiver.points.summaries import differing, merge

if TYPE_CHECKING:
    from receiver.points.aligned import TimeChunk, ValueChunk
    from receiver.points.chunk_reader import ChunkReader
    from receiver.points.plain_chunks import PlainChunk

__all__ = ["Observer", "summaries"]

Observer: TypeAlias = Callable[[str, PointBlock], None]
"""Is told the measurement and each of its blocks; the block's arrays are not to be kept."""


class _Walk:
    """One chunk on its way through: blocks come out, what they come to is known at the end."""

    def __init__(self, file: ChunkReader, device: Device, series: Series, chunk: ChunkRef) -> None:
        self._file, self._device, self._series, self._chunk = file, device, series, chunk
        self.pages: Pages
        self.page_count = self.rows = 0
        self.statistics: Statistics
        self.exact: bool

    def blocks(self) -> Iterator[PointBlock]:
        if self._chunk.time_chunk is not None:
            return self._values(self._chunk.time_chunk)
        return self._times() if self._series.data_type == DataType.VECTOR else self._plain()

    def _plain(self) -> Iterator[PointBlock]:
        plain = self._file.plain_chunk(self._device, self._series, self._chunk, check=True)
        for block in plain.blocks():
            self.rows += len(block.times)
            yield block
        self._end(plain, plain.finish())

    def _times(self) -> Iterator[PointBlock]:
        times = self._file.time_chunk(self._device, self._chunk, check=True)
        for group in self._file.kept(self._chunk, times):
            self.rows += len(group.times)
            yield PointBlock(group.times, None, group.first, len(group))
        self._end(times, times.finish())

    def _values(self, time_chunk: ChunkRef) -> Iterator[PointBlock]:
        values = self._file.value_chunk(self._device, self._series, self._chunk, check=True)
        time_pages = 0
        for group in self._file.times(self._device, time_chunk):
            for part in parts(group, [values], DECODED_AT_ONCE):
                yield PointBlock(part.times, values.column(part), part.first, len(part))
            time_pages += len(group)
            self.rows += len(group.times)
        self._end(values, values.finish(time_pages))

    def _end(self, walked: PlainChunk | TimeChunk | ValueChunk, statistics: Statistics) -> None:
        self.pages, self.page_count, self.statistics = walked.pages, walked.decoded, statistics
        self.exact = walked.exact

    def summary(self) -> ChunkSummary:
        pages = self.pages
        return ChunkSummary(
            self._series.measurement,
            self._chunk.offset,
            pages.end,
            pages.code,
            pages.encoding,
            pages.compression,
            self.page_count,
            self.rows,
            self.statistics,
            self.exact,
        )


def summaries(
    file: ChunkReader, device: Device, observe: Observer | None = None
) -> Iterator[ChunkSummary | DataError]:
    """See ``TsFileReader.summaries``."""
    sums = _Sums()
    if device.aligned:
        yield from _of_groups(file, device, sums, observe)
    else:
        for series in file.columns(device).values():
            try:
                refs = chunk_refs(series, None, file.place(device, series))
            except DamagedData as error:
                yield sums.add(series, error)
                continue
            for chunk in refs:
                yield sums.add(series, _attempt(file, device, series, chunk, observe))
    for series in file.columns(device).values():
        wrong = sums.compare(series)
        if wrong:
            yield DamagedData(
                f"not what the index says of the series: {wrong}", file.place(device, series)
            )
    try:
        sums.require_ownership(file, device)
    except DamagedData as error:
        yield error


def _attempt(
    file: ChunkReader,
    device: Device,
    series: Series,
    chunk: ChunkRef,
    observe: Observer | None,
) -> ChunkSummary | DataError:
    try:
        walk = _Walk(file, device, series, chunk)
        for block in walk.blocks():
            if observe is not None:
                observe(series.measurement, block)
        return walk.summary()
    except (DamagedData, UnsupportedData) as error:
        return error


def _of_groups(
    file: ChunkReader, device: Device, sums: _Sums, observe: Observer | None
) -> Iterator[ChunkSummary | DataError]:
    """Chunk of times after chunk of times, each with its values: times are decoded once."""
    try:
        times = file.times_of(device)
        time_refs = [] if times is None else chunk_refs(times, None, file.place(device, times))
    except DamagedData as error:
        yield error
        return
    groups: dict[int, list[tuple[Series, ChunkRef]]] = {}
    for series in file.columns(device).values():
        if series is times:
            continue
        try:
            refs = chunk_refs(series, times, file.place(device, series))
        except DamagedData as error:
            yield sums.add(series, error)
            continue
        for ref in refs:
            if ref.time_chunk is not None:
                groups.setdefault(ref.time_chunk.offset, []).append((series, ref))
            else:  # without a value
                yield sums.add(series, _attempt(file, device, series, ref, observe))
    if times is None:
        return
    for chunk in time_refs:
        found = sums.add(times, _attempt(file, device, times, chunk, observe))
        yield found
        for series, ref in groups.get(chunk.offset, ()):
            if isinstance(found, ChunkSummary):
                yield sums.add(series, _attempt(file, device, series, ref, observe))
            else:
                place = dataclasses.replace(file.place(device, series), chunk=ref.offset)
                yield sums.add(series, type(found)(f"its times: {found.reason}", place))


class _Sums:
    """What the chunks of each series came to, to be compared with the index at the end."""

    def __init__(self) -> None:
        self._parts: dict[str, list[ChunkSummary]] = {}
        self._failed: set[str] = set()
        self._begins, self._ends = array("q"), array("q")

    def add(self, series: Series, found: ChunkSummary | DataError) -> ChunkSummary | DataError:
        if not isinstance(found, ChunkSummary):
            self._failed.add(series.measurement)
            return found
        self._begins.append(found.offset)
        self._ends.append(found.end)
        if len(series.chunks) > 1:  # of one chunk the index has but one set of statistics
            self._parts.setdefault(series.measurement, []).append(found)
        return found

    def require_ownership(self, file: ChunkReader, device: Device) -> None:
        """See that all chunks are the device's own, and none is within another.

        An index may lead to chunks of another device whose series have the same names. But each
        chunk stands right behind another one of its device, or behind the header of one.

        Raises:
            DamagedData: one does not.
        """
        if self._failed:
            return  # where those chunks end is not known
        begins, ends = np.array(self._begins), np.array(self._ends)
        order = np.argsort(begins, kind="stable")
        begins, ends = begins[order], ends[order]
        behind = np.concatenate(([0], ends[:-1]))
        for at in np.flatnonzero(begins != behind).tolist():
            if begins[at] < behind[at]:
                place = dataclasses.replace(file.place(device), chunk=int(begins[at]))
                raise DamagedData("a chunk that begins within another", place)
            missing = file.header_missing(device, int(begins[at]))
            if missing is not None:
                raise missing

    def compare(self, series: Series) -> str | None:
        parts = self._parts.get(series.measurement)
        if not parts or series.measurement in self._failed:
            return None
        whole = merge(part.statistics for part in parts)
        for part in parts:
            if is_rounded(part.encoding, part.data_type, old_form=True):
                return far(part.encoding, series.data_type, whole, series.statistics)
        return differing(whole, series.statistics, near_sum=True)
