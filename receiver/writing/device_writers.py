"""The data section, device by device: a plain one series by series, an aligned one row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from common.tsfile.layout import TIME_COLUMN_FLAG, VALUE_COLUMN_FLAG
from receiver.points.columns import Column, dtype_of
from receiver.points.decoding import Times
from receiver.points.encodings import Binaries
from receiver.points.page_data.stored_pages import StoredPage
from receiver.points.summaries import ROW_COUNT, first_out_of_order, merge
from receiver.writing.chunk_pages import ChunkPages, Scratch, SeriesForm, time_form
from receiver.writing.index_writer import DeviceIndex
from receiver.writing.page_cuts import Cuts, WaitingRows, part_of
from receiver.writing.structures import ChunkEntry, series_bytes

__all__ = ["AlignedDeviceWriter", "DataSection", "PlainDeviceWriter", "TakenPage"]

_BEFORE_ALL = int(np.iinfo(np.int64).min)


class TakenPage(NamedTuple):
    """A page that is taken over as it stands.

    Attributes:
        page: of another file.
        mark: of the caller, or None; where all pages of a chunk have one they are kept, see
            ``DataSection``.
    """

    page: StoredPage
    mark: Any


class DataSection(Protocol):
    """What a device is written into.

    Attributes:
        cuts: where pages and chunks end.
        scratch: for the page that is being encoded.
        marks: of the pages of chunks that were all taken over, by the offsets of those.
    """

    cuts: Cuts
    scratch: Scratch
    marks: dict[int, tuple[Any, ...]]

    def begin_group(self) -> None:
        """Write what stands before the chunks of the device."""

    def put_chunk(self, content: bytes) -> int:
        """Write a chunk: the offset where it begins."""

    def end_device(self, series: DeviceIndex) -> None:
        """Take what the index has of the device."""


class _Series:
    """A series, a time column, or a value column, and its chunks so far."""

    def __init__(self, form: SeriesForm, flag: int, section: DataSection) -> None:
        self.form, self._flag, self._section = form, flag, section
        self.pages = ChunkPages(form, flag, section.scratch)
        self._chunks: list[ChunkEntry] = []

    def end_chunk(self) -> None:
        chunk = self.pages.seal()
        offset = self._section.put_chunk(chunk.content)
        if chunk.marks:
            self._section.marks[offset] = chunk.marks
        self._chunks.append(ChunkEntry(offset, chunk.statistics))

    def entry(self) -> tuple[str, bytes, int]:
        """For the index."""
        form, chunks = self.form, self._chunks
        whole = merge(chunk.statistics for chunk in chunks)
        content = series_bytes(self._flag, form.measurement, form.data_type, whole, chunks)
        return form.measurement, content, len(chunks)


class _DeviceWriter:
    """What both kinds of devices have: a block that is left ends the device."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()

    def close(self) -> None:
        """Write what waits; the device is whole."""
        raise NotImplementedError


class PlainDeviceWriter(_DeviceWriter):
    """A device whose series have their own times; made by ``TsFileWriter.plain_device``."""

    def __init__(self, section: DataSection) -> None:
        self._section = section
        self._series: _Series | None = None
        self._waiting = WaitingRows(section.cuts)
        self._last = _BEFORE_ALL
        self._done: DeviceIndex = []
        self._names: set[str] = set()

    def write(self, form: SeriesForm, times: Times, column: Column) -> None:
        """Write points of a series: a new one, or behind those of the last call.

        Args:
            form: how it is written, the same at each call for a series.
            times: int64, increasing, behind those before.
            column: a value for each; no nulls.

        Raises:
            ValueError: they are not that, or the series was ended by another.
        """
        if not len(times):
            return
        series = self._accepted(form, times, column)
        for page, columns in self._waiting.push(times, [Column(form.data_type, column.values)]):
            self._add(series, page, columns[0])

    def take(
        self, form: SeriesForm, times: Times, column: Column, pages: Iterable[TakenPage]
    ) -> None:
        """Write points whose pages stand ready, as ``write`` otherwise; what waits ends a page.

        Args:
            form: see ``write``; pages have its encoding and compression.
            times: see ``write``.
            column: likewise.
            pages: of all of these points.
        """
        series = self._accepted(form, times, column)
        for page, columns in self._waiting.rest():
            self._add(series, page, columns[0])
        low = 0
        for taken in pages:
            high = low + int(taken.page.row[ROW_COUNT])
            here = Column(form.data_type, column.values)
            series.pages.take(taken.page, times[low:high], part_of(here, low, high), taken.mark)
            self._end_if_full(series)
            low = high
        if low != len(times):
            raise ValueError(f"series {form.measurement!r}: pages of {low} points: {len(times)}")

    def _accepted(self, form: SeriesForm, times: Times, column: Column) -> _Series:
        if self._series is None or self._series.form != form:
            self._begin(form)
        series = self._series
        assert series is not None
        _check(form, times, column, self._last)
        if column.valid is not None and not column.valid.all():
            raise ValueError(f"series {form.measurement!r}: a null where times are its own")
        self._last = int(times[-1])
        return series

    def close(self) -> None:
        """See ``_DeviceWriter``."""
        self._end()
        self._section.end_device(self._done)

    def _begin(self, form: SeriesForm) -> None:
        self._end()
        if not form.measurement or form.measurement in self._names:
            raise ValueError(f"series {form.measurement!r} without a name, or for the second time")
        if not self._names:
            self._section.begin_group()
        self._names.add(form.measurement)
        self._series, self._last = _Series(form, 0, self._section), _BEFORE_ALL

    def _add(self, series: _Series, times: Times, column: Column) -> None:
        series.pages.add(times, column)
        self._end_if_full(series)

    def _end_if_full(self, series: _Series) -> None:
        cuts, pages = self._section.cuts, series.pages
        if pages.rows >= cuts.chunk_points or pages.size >= cuts.chunk_bytes:
            series.end_chunk()

    def _end(self) -> None:
        if self._series is None:
            return
        for page, columns in self._waiting.rest():
            self._add(self._series, page, columns[0])
        if self._series.pages.rows:
            self._series.end_chunk()
        self._done.append(self._series.entry())
        self._series = None


class AlignedDeviceWriter(_DeviceWriter):
    """A device whose series share their times; made by ``TsFileWriter.aligned_device``."""

    def __init__(self, section: DataSection, forms: Sequence[SeriesForm], compression: int) -> None:
        names = {form.measurement for form in forms}
        if "" in names or len(names) < len(forms):
            raise ValueError(f"series without a name, or one of them twice: {sorted(names)}")
        self._section = section
        self._times = _Series(time_form(compression), TIME_COLUMN_FLAG, section)
        self._columns = [_Series(form, VALUE_COLUMN_FLAG, section) for form in forms]
        self._waiting = WaitingRows(section.cuts, len(forms))
        self._last = _BEFORE_ALL
        self._begun = False

    def write(self, times: Times, columns: Sequence[Column]) -> None:
        """Write rows, behind those before.

        Args:
            times: int64, increasing, behind those before.
            columns: one for each series, in their order, a value or a null for each time.

        Raises:
            ValueError: they are not that.
        """
        if not len(times):
            return
        self._accept(times, columns)
        for page, parts in self._waiting.push(times, columns):
            self._add(page, parts)

    def take(
        self,
        times: Times,
        columns: Sequence[Column],
        pages: Iterable[tuple[TakenPage, Sequence[TakenPage]]],
    ) -> None:
        """Write rows whose pages stand ready, as ``write`` otherwise; what waits ends a page.

        Args:
            times: see ``write``.
            columns: likewise.
            pages: of all of these rows: one of times, and beside it one of each series.
        """
        self._accept(times, columns)
        for page, parts in self._waiting.rest():
            self._add(page, parts)
        low = 0
        for stamps, cells in pages:
            high = low + int(stamps.page.row[ROW_COUNT])
            here = times[low:high]
            self._times.pages.take(stamps.page, here, None, stamps.mark)
            for series, column, taken in zip(self._columns, columns, cells, strict=True):
                series.pages.take(taken.page, here, part_of(column, low, high), taken.mark)
            self._end_if_full()
            low = high
        if low != len(times):
            raise ValueError(f"pages of {low} rows: {len(times)}")

    def _accept(self, times: Times, columns: Sequence[Column]) -> None:
        for series, column in zip(self._columns, columns, strict=True):
            _check(series.form, times, column, self._last)
        if not self._columns:
            _check_times(times, self._last, "a device without series")
        self._last = int(times[-1])

    def close(self) -> None:
        """See ``_DeviceWriter``."""
        for page, parts in self._waiting.rest():
            self._add(page, parts)
        if self._times.pages.rows:
            self._end_chunks()
        every = (self._times, *self._columns) if self._begun else ()
        self._section.end_device([each.entry() for each in every])

    def _add(self, times: Times, parts: Sequence[Column]) -> None:
        self._times.pages.add(times, None)
        for series, part in zip(self._columns, parts, strict=True):
            series.pages.add(times, part)
        self._end_if_full()

    def _end_if_full(self) -> None:
        cuts = self._section.cuts
        size = self._times.pages.size + sum(series.pages.size for series in self._columns)
        if self._times.pages.rows >= cuts.chunk_points or size >= cuts.group_bytes:
            self._end_chunks()

    def _end_chunks(self) -> None:
        """One chunk of each column, as a group of its own: so it is where a server flushed."""
        self._section.begin_group()
        self._begun = True
        for series in (self._times, *self._columns):
            series.end_chunk()


def _check(form: SeriesForm, times: Times, column: Column, last: int) -> None:
    values, who = column.values, f"series {form.measurement!r}"
    if column.data_type != form.data_type:
        raise ValueError(f"{who}: values of type {column.data_type}, not {form.data_type}")
    if not isinstance(values, Binaries) and values.dtype != dtype_of(form.data_type):
        raise ValueError(f"{who}: values of {values.dtype}, not of type {form.data_type}")
    if len(column) != len(times):
        raise ValueError(f"{who}: {len(column)} values for {len(times)} times")
    _check_times(times, last, who)


def _check_times(times: Times, last: int, who: str) -> None:
    wrong = first_out_of_order(times, last)
    if wrong >= 0:
        before = times[wrong - 1] if wrong else last
        raise ValueError(f"{who}: time {times[wrong]} behind time {before}")
