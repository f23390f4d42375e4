"""The rows of one device of a merge, as readers of its files get them.

Chunks that lie one behind the other are decoded many at once and joined; so are those that overlap,
and then a sort decides, after which each time of a series is its highest file's (of one file the
later chunk's). Of chunks that overlap nothing, and of which nothing is deleted, the pages are kept
as they stand in the file, if they are not small: they can be written again.

Two things go the readers' own way, `DeviceMerge`, which is slower by far: files whose order has a
circle, and more points that overlap than are to be held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from common.tsfile import Encoding
from receiver.compaction.making.chunk_runs import (
    ChunkRun,
    MergeSpan,
    chunks_in,
    cut_times,
    runs_of,
    spans_between,
)
from receiver.compaction.making.device_chunks import DeviceChunks, MergeFiles, MergeStanding
from receiver.points.chunks import chunk_refs
from receiver.points.columns import BINARY, Column
from receiver.points.deleted.deletions import deleted
from receiver.points.device_merge import DeviceMerge, MergeSource
from receiver.points.encodings import Binaries
from receiver.points.many_chunks import Chunks, WantedSpan, plain_points, row_times, row_values
from receiver.points.page_data.stored_pages import KeptChunks, StoredChunk
from receiver.writing.arrow_columns import column_of
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.page_compression import compressed_as
from receiver.writing.page_cuts import part_of
from receiver.writing.value_encoding import written_as

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.compaction.making.survey import SeenDevice
    from receiver.points.decoding import Times

__all__ = ["DeviceRows", "MergedPart"]

_Rows = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Stored: TypeAlias = "dict[int, tuple[StoredChunk, ...]]"
"""By the number of a chunk, see ``MergedPart.stored``."""

_LEAST_ROWS: Final = 1024
_CELL_BYTES: Final = 32
"""That a number takes while it is merged and written."""
_LEAST_PAGE: Final = 4000
"""Rows of a page that is taken over, as a mean of its chunk: smaller ones are joined, since each
costs its readers. Servers end a page at 64 KiB or 10,000 rows."""
_PACKED: Final = 30
"""How many times as much a text takes then as it took in the files, about."""
_MOST_TIMES: Final = 4
"""Of the points that are to be held at once, where what overlaps is cut by time: of chunks that
reach far the same are decoded for several parts."""


class MergedPart(NamedTuple):
    """Points of a series, or rows of a device.

    Attributes:
        times: int64, increasing, behind those of the part before.
        columns: a value or a null for each; one of a series.
        stored: pages of these very points, where they stand ready: of a series its own, of a
            device those of the times, and then of each column (none where it has no value).
    """

    times: Times
    columns: list[Column]
    stored: tuple[StoredChunk, ...] = ()


class DeviceRows:
    """A device in all of the files that have it.

    Attributes:
        device: which.
    """

    def __init__(
        self, files: MergeFiles, standing: MergeStanding, device: SeenDevice, memory: int
    ) -> None:
        """Look at nothing yet.

        Args:
            files: of the merge.
            standing: of them.
            device: which.
            memory: bytes that decoded points take, about.
        """
        self.device = device
        self._files, self._standing = files, standing
        self._chunks = DeviceChunks(files, device)
        self._deletions = self._chunks.deletions()
        self._memory = memory

    def spans(self, size: int, within: MergeSpan | None = None) -> list[MergeSpan]:
        """Its times in parts of about so many bytes each; one where it has not much more.

        Args:
            size: bytes.
            within: only these times.
        """
        whole = within or MergeSpan()
        pieces = round(self.device.size / max(1, size))
        if self.device.size <= 1.5 * size or pieces < 2:
            return [whole]
        names = [""] if self.device.aligned else self.device.series
        parts = [self._chunks.of(name) for name in names]
        every = Chunks(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        return spans_between(whole, [e for e in cut_times(every, pieces) if whole.goes_on(e)])

    # -- how it is written ---------------------------------------------------------------------

    def forms(self) -> list[SeriesForm]:
        """Its series, each to be written as its last chunk is, or what is written in its place."""
        return [self._form(name) for name in self.device.series if name]

    def time_compression(self) -> int:
        """Of the times that its series share."""
        return self._form("").compression if "" in self.device.series else compressed_as(-1)

    def _form(self, name: str) -> SeriesForm:
        seen = self.device.series[name]
        reader = self._files.open(seen.file).reader
        device = reader.device(self.device.name)
        series = reader.series(device, name)
        last = chunk_refs(series, None, reader.place(device, series))[-1]
        pages = reader.pages(device, series, last)
        code = seen.data_type
        return SeriesForm(
            name, code, written_as(pages.encoding, code), compressed_as(pages.compression)
        )

    # -- series whose times are their own ------------------------------------------------------

    def points(self, form: SeriesForm, span: MergeSpan) -> Iterator[MergedPart]:
        """The points of a series, one of ``forms``."""
        name = form.measurement
        most = max(_LEAST_ROWS, self._memory // self._weight(1))
        for run, here in _parts(self._chunks.of(name), span, most):
            chunks = self._ordered(run)
            if chunks is None or run.points > _MOST_TIMES * most:
                yield from self._merged_points(name, here)
                continue
            kept = None
            if not run.overlaps:
                large = chunks.counts >= _LEAST_PAGE
                kept = KeptChunks(form.encoding, form.compression, large, _LEAST_PAGE)
            times, column = plain_points(
                self._chunks, name, form.data_type, chunks, kept, _both_ends(here)
            )
            keep = _within(times, here, self._kept(times, chunks, chunks.bounds, name))
            if run.overlaps:
                rows = np.argsort(times, kind="stable")
                rows = rows if keep is None else rows[keep[rows]]
                times = times[rows]
                last = _lasts(times)
                if not last.all():
                    rows, times = rows[last], times[last]
                yield MergedPart(times, [_taken(column, rows, None)])
            else:
                assert kept is not None
                found: _Stored = {at: (chunk,) for at, chunk in kept.found.items()}
                yield from _pieces(times, [column], keep, chunks.bounds, found)

    def _merged_points(self, name: str, span: MergeSpan) -> Iterator[MergedPart]:
        code = self.device.series[name].data_type
        for found in self._merge([name]).rows(*span):
            yield MergedPart(found.times, [column_of(found.columns[0], code)])

    # -- series that share their times ---------------------------------------------------------

    def rows(self, forms: Sequence[SeriesForm], span: MergeSpan) -> Iterator[MergedPart]:
        """Rows with a column for each of ``forms``, in its order."""
        names = [form.measurement for form in forms]
        if "" not in self.device.series:
            return
        most = max(_LEAST_ROWS, self._memory // self._weight(len(names)))
        for run, here in _parts(self._chunks.of(""), span, most):
            chunks = self._ordered(run)
            if chunks is None or run.points > _MOST_TIMES * most:
                yield from self._merged_rows(names, here)
                continue
            group = None if run.overlaps else _KeptGroups(chunks, self.time_compression())
            times, columns, keep = self._decoded(forms, chunks, group, _both_ends(here))
            keep = _within(times, here, keep)
            if group is None:
                yield self._together(times, columns, keep)
                continue
            if not self.device.is_table:
                some = _any_value(columns, len(times))
                keep = some if keep is None else keep if some is None else keep & some
            yield from _pieces(times, columns, keep, chunks.bounds, group.found)

    def _decoded(
        self,
        forms: Sequence[SeriesForm],
        chunks: Chunks,
        group: _KeptGroups | None,
        span: WantedSpan,
    ) -> tuple[Times, list[Column], _Bools | None]:
        """Rows of chunks, deleted cells null; which rows are not deleted, None for all."""
        times = row_times(self._chunks, chunks, None if group is None else group.times, span)
        bounds, columns = chunks.bounds, []
        for form in forms:
            name = form.measurement
            values, beside = self._chunks.beside(name, chunks)
            kept = None if group is None else group.wanted_of(form, beside)
            column = row_values(
                self._chunks, name, form.data_type, values, beside, times, bounds, kept, span
            )
            places = np.stack((bounds[beside], bounds[beside + 1]), axis=1)
            there = self._kept(times, values, places, name)
            if group is not None and kept is not None:
                group.add(beside, kept, bounds, there)
            columns.append(column if there is None else _without(column, there))
        return times, columns, self._kept(times, chunks, bounds, "")

    def _together(self, times: Times, columns: Sequence[Column], keep: _Bools | None) -> MergedPart:
        """Rows of one time as one: of each column the highest value."""
        rows = np.argsort(times, kind="stable")
        rows = rows if keep is None else rows[keep[rows]]
        if not len(rows):
            return MergedPart(times[:0], [_taken(each, rows, None) for each in columns])
        times = times[rows]
        last = _lasts(times)
        begins = np.concatenate(([0], np.flatnonzero(last)[:-1] + 1))
        found = []
        for column in columns:
            valid = None if column.valid is None else column.valid[rows]
            if valid is None:
                found.append(_taken(column, rows[last], None))
                continue
            numbered = np.where(valid, np.arange(len(rows)), -1)
            highest = np.maximum.reduceat(numbered, begins)
            there = highest >= 0
            found.append(_taken(column, rows[highest], there))
        times = times[last]
        some = None if self.device.is_table else _any_value(found, len(times))
        if some is None or some.all():
            return MergedPart(times, found)
        kept = np.flatnonzero(some)
        return MergedPart(times[kept], [_taken(each, kept, None) for each in found])

    def _merged_rows(self, names: Sequence[str], span: MergeSpan) -> Iterator[MergedPart]:
        codes = [self.device.series[name].data_type for name in names]
        for found in self._merge(names).rows(*span):
            pairs = zip(found.columns, codes, strict=True)
            yield MergedPart(found.times, [column_of(array, code) for array, code in pairs])

    # -- both ----------------------------------------------------------------------------------

    def _weight(self, columns: int) -> int:
        """Bytes that a row takes while it is merged and written, about."""
        text = any(each.data_type in BINARY for each in self.device.series.values())
        packed = self.device.size / max(1, self.device.points)
        return 64 + columns * (max(_CELL_BYTES, int(_PACKED * packed)) if text else _CELL_BYTES)

    def _ordered(self, run: ChunkRun) -> Chunks | None:
        """The chunks of a run, the lower before the higher; None where that order has a circle."""
        if not run.overlaps:
            return run.chunks
        numbers = run.files
        steps = self._standing.order(numbers)
        if steps is None:
            return None
        place = np.array(steps)[np.searchsorted(numbers, run.chunks.files)]
        return run.chunks.take(np.lexsort((run.chunks.offsets, place)))

    def _kept(self, times: Times, chunks: Chunks, bounds: _Rows, name: str) -> _Bools | None:
        """Which rows of a series, or of times (``""``), are not deleted; None for all.

        Args:
            times: of all rows.
            chunks: of them.
            bounds: where each begins, and the end; or of each where it begins and ends.
            name: of the series.
        """
        if not self._deletions:
            return None
        keep: _Bools | None = None
        places = bounds if bounds.ndim > 1 else np.stack((bounds[:-1], bounds[1:]), axis=1)
        listed = zip(chunks.files.tolist(), chunks.offsets.tolist(), places.tolist(), strict=True)
        for file, offset, (low, high) in listed:
            if file not in self._deletions:
                continue
            device = self._files.open(file).reader.device(self.device.name)
            ranges = self._deletions[file].ranges(device, name, chunk=offset)
            if ranges:
                keep = np.ones(len(times), np.bool_) if keep is None else keep
                keep[low:high] = ~deleted(times[low:high], ranges)
        return keep

    def _merge(self, names: Sequence[str]) -> DeviceMerge:
        numbers = self.device.files
        sources = []
        for number in numbers:
            reader = self._files.open(number, len(numbers)).reader
            sources.append(MergeSource(reader, reader.device(self.device.name)))
        return DeviceMerge(sources, self._standing.ladder(numbers), names)


class _KeptGroups:
    """Chunks of times that are kept, each with all chunks of values beside it.

    Attributes:
        times: of them.
        found: by the number of the chunk of times: that, and then a chunk for each column.
    """

    def __init__(self, chunks: Chunks, compression: int) -> None:
        self.times = KeptChunks(
            Encoding.TS_2DIFF, compression, chunks.counts >= _LEAST_PAGE, _LEAST_PAGE
        )
        self.found: _Stored = {}
        self._begun = False

    def wanted_of(self, form: SeriesForm, beside: _Rows) -> KeptChunks:
        """Which chunks of the next column are to be kept."""
        if not self._begun:
            self.found = {at: (chunk,) for at, chunk in self.times.found.items()}
            self._begun = True
        wanted = np.array([at in self.found for at in beside.tolist()], np.bool_)
        return KeptChunks(form.encoding, form.compression, wanted)

    def add(self, beside: _Rows, kept: KeptChunks, bounds: _Rows, there: _Bools | None) -> None:
        """Take what was kept of a column; without all of a chunk a group is not kept.

        Args:
            beside: of each chunk of the column the number of that of its times.
            kept: of those chunks.
            bounds: of the rows of the chunks of times.
            there: which rows are not deleted in this column; None for all.
        """
        number = {at: number for number, at in enumerate(beside.tolist())}
        before, self.found = self.found, {}
        for at, chunks in before.items():
            chunk = kept.found.get(number[at]) if at in number else _NO_VALUES
            is_whole = there is None or bool(there[bounds[at] : bounds[at + 1]].all())
            if chunk is not None and is_whole:
                self.found[at] = (*chunks, chunk)


_NO_VALUES: Final = StoredChunk(-1, -1, ())


def _pieces(
    times: Times,
    columns: list[Column],
    keep: _Bools | None,
    bounds: _Rows,
    found: _Stored,
) -> Iterator[MergedPart]:
    """The rows that are kept: those of chunks that stand ready by themselves, others together."""
    low = 0
    for at in sorted(found):
        begin, end = int(bounds[at]), int(bounds[at + 1])
        if keep is not None and not keep[begin:end].all():
            continue
        yield from _rows_between(times, columns, keep, low, begin)
        here = [part_of(each, begin, end) for each in columns]
        yield MergedPart(times[begin:end], here, found[at])
        low = end
    yield from _rows_between(times, columns, keep, low, len(times))


def _rows_between(
    times: Times, columns: list[Column], keep: _Bools | None, low: int, high: int
) -> Iterator[MergedPart]:
    if low == high:
        return
    if keep is None or keep[low:high].all():
        yield MergedPart(times[low:high], [part_of(each, low, high) for each in columns])
    else:
        rows = low + np.flatnonzero(keep[low:high])
        yield MergedPart(times[rows], [_taken(each, rows, None) for each in columns])


def _parts(chunks: Chunks, span: MergeSpan, most: int) -> Iterator[tuple[ChunkRun, MergeSpan]]:
    """Runs of chunks, and the times that are wanted of each; those of too many points in parts."""
    for run in runs_of(chunks, span, most // 8, _LEAST_PAGE):
        whole = run.within(span)
        if run.points <= most:
            yield run, whole
            continue
        for each in spans_between(whole, _cuts_within(run, whole, most)):
            yield ChunkRun(chunks_in(run.chunks, each), run.overlaps), each


def _cuts_within(run: ChunkRun, span: MergeSpan, most: int) -> list[int]:
    assert span.start is not None
    assert span.end is not None
    cuts = cut_times(run.chunks, 2 * run.points // most + 1)
    return [each for each in cuts if span.start <= each < span.end]


def _both_ends(span: MergeSpan) -> WantedSpan:
    assert span.start is not None
    assert span.end is not None
    return span.start, span.end


def _within(times: Times, span: MergeSpan, keep: _Bools | None) -> _Bools | None:
    """Which rows are kept, and in a span; None for all."""
    assert span.start is not None
    assert span.end is not None
    if not len(times) or (times.min() >= span.start and times.max() <= span.end):
        return keep
    here: _Bools = (times >= span.start) & (times <= span.end)
    return here if keep is None else here & keep


def _lasts(times: Times) -> _Bools:
    """Of equal times, which stand together, the last one."""
    last = np.ones(len(times), np.bool_)
    np.not_equal(times[1:], times[:-1], out=last[:-1])
    return last


def _without(column: Column, there: _Bools) -> Column:
    """A column with nulls where rows are not there."""
    valid = there if column.valid is None else column.valid & there
    found = Column(column.data_type, column.values, valid)
    if isinstance(column.values, Binaries):  # a null has no bytes
        return column_of(found.to_arrow("binary"), column.data_type)
    return found


def _any_value(columns: Sequence[Column], rows: int) -> _Bools | None:
    """Which rows have a value; None for all."""
    some = np.zeros(rows, np.bool_)
    for column in columns:
        if column.valid is None:
            return None
        some |= column.valid
    return some


def _taken(column: Column, rows: _Rows, there: _Bools | None) -> Column:
    """Some rows of a column, null where they are not there."""
    valid = None if column.valid is None else column.valid[rows]
    if there is not None:
        valid = there if valid is None else valid & there
    if valid is not None and valid.all():
        valid = None
    values = column.values
    if isinstance(values, Binaries):  # a null has no bytes
        chosen = pa.array(rows, mask=None if valid is None else ~valid)
        array = Column(column.data_type, values).to_arrow("binary").take(chosen)
        return column_of(array, column.data_type)
    return Column(column.data_type, values[rows], valid)
