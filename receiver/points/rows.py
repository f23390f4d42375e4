"""Points in the order of time: one series, or the rows of a device."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from common.tsfile import DataType, Device, Series
from receiver.points.aligned import DECODED_AT_ONCE, parts
from receiver.points.batches import Piece, TooMuchError, cut, joined_on_time, merged
from receiver.points.chunks import ChunkRef, chunk_refs, clusters
from receiver.points.columns import Column, InvalidValue, arrow_type, no_values
from receiver.points.deleted.deletions import Ranges, deleted
from receiver.points.errors import UnsupportedData
from receiver.points.grouping import GROUP_ROWS
from receiver.points.page_data.chunk_window import WINDOW_BYTES

if TYPE_CHECKING:
    from receiver.points.chunk_reader import ChunkReader

__all__ = ["read_device", "read_series"]

_WINDOWS: Final = 16 * 1024 * 1024
"""What all windows of a device take together, unless each is at its least."""
_LEAST_WINDOW: Final = 64 * 1024
_CELLS: Final = 2 * 1024 * 1024
"""Rows times columns that are decoded together, unless a page has more rows."""
_LEAST_ROWS: Final = 1024
_MOST_OVERLAPPING: Final = 1024
"""Chunks of one series that are merged: each of them is open at once."""
_MOST_BYTES: Final = 1024 * 1024 * 1024
"""Of the rows that are decoded together, whatever a header says."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Span:
    """What is asked for: inclusive, None without a limit."""

    start: int | None
    end: int | None


def read_series(
    file: ChunkReader,
    device: Device,
    measurement: str,
    start: int | None,
    end: int | None,
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """See ``TsFileReader.read_series``."""
    series = file.series(device, measurement)
    kind = arrow_type(series.data_type, file.text)
    schema = pa.schema([("time", pa.int64()), ("value", kind)])
    points = _Points(file, device, _Span(start, end), columns=1, rows=batch_rows)
    return cut(points.bounded(points.of(series)), schema, rows=batch_rows)


def read_device(
    file: ChunkReader,
    device: Device,
    measurements: Sequence[str] | None,
    start: int | None,
    end: int | None,
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """See ``TsFileReader.read_device``."""
    columns = file.columns(device)
    if measurements is None:
        measurements = [name for name in columns if columns[name].data_type != DataType.VECTOR]
    wanted = [columns[name] for name in measurements]
    kinds = [arrow_type(series.data_type, file.text) for series in wanted]
    fields = [pa.field(name, kind) for name, kind in zip(measurements, kinds, strict=True)]
    schema = pa.schema([pa.field("time", pa.int64()), *fields])
    points = _Points(file, device, _Span(start, end), columns=len(wanted), rows=batch_rows)
    if device.aligned:
        pieces = points.of_groups(wanted)
    else:
        sources = [points.of(series) for series in wanted]
        pieces = joined_on_time(sources, kinds, ahead=points.rows // 2)
    return cut(points.bounded(pieces), schema, rows=batch_rows)


class _Points:
    """The points of a device in the order of time, without the deleted ones, as pieces.

    Attributes:
        rows: to decode together.
    """

    def __init__(
        self, file: ChunkReader, device: Device, span: _Span, *, columns: int, rows: int
    ) -> None:
        self._file, self._device, self._span = file, device, span
        width = max(1, columns)
        self.rows = min(GROUP_ROWS, max(_LEAST_ROWS, min(rows, _CELLS // width)))
        self._window = min(WINDOW_BYTES, max(_LEAST_WINDOW, _WINDOWS // width))

    def of(self, series: Series) -> Iterator[Piece]:
        """The points of one series, each with a value."""
        refs = self._refs(series)
        for cluster in clusters(refs, self._span.start, self._span.end):
            yield from self._of_cluster(series, cluster)

    def of_groups(self, wanted: Sequence[Series]) -> Iterator[Piece]:
        """The rows of an aligned device."""
        times = self._file.times_of(self._device)
        if times is None:
            return
        refs = [{ref.time_chunk: ref for ref in self._refs(series)} for series in wanted]
        for cluster in clusters(self._refs(times), self._span.start, self._span.end):
            if len(cluster) == 1:
                chunks = [each.get(cluster[0]) for each in refs]
                yield from self._of_group(cluster[0], wanted, chunks)
                continue
            # chunks of late data: a later value overrides an earlier one, a null does not
            sources = [self._of_cluster(times, cluster)]
            for series, each in zip(wanted, refs, strict=True):
                sources.append(self._of_cluster(series, [each[t] for t in cluster if t in each]))
            kinds = [None, *(arrow_type(each.data_type, self._file.text) for each in wanted)]
            for piece in joined_on_time(sources, kinds, ahead=self.rows // 2):
                yield self._with_a_value(piece)

    def _refs(self, series: Series) -> list[ChunkRef]:
        times = self._file.times_of(self._device)
        return chunk_refs(series, times, self._file.place(self._device, series))

    def _of_cluster(self, series: Series, cluster: Sequence[ChunkRef]) -> Iterator[Piece]:
        if len(cluster) > _MOST_OVERLAPPING:
            reason = f"{len(cluster)} chunks that overlap in time, more than {_MOST_OVERLAPPING}"
            raise UnsupportedData(reason, self._file.place(self._device, series))
        window = max(_LEAST_WINDOW, self._window // max(1, len(cluster)))
        return merged([self._of_chunk(series, ref, window) for ref in cluster])

    def _of_chunk(self, series: Series, ref: ChunkRef, window: int) -> Iterator[Piece]:
        start, end = self._span.start, self._span.end
        dead = [each for each in self._ranges_with_times(series, ref) if each]
        blocks = self._file.blocks(
            self._device, series, ref, start=start, end=end, rows=self.rows, window=window
        )
        for block in blocks:
            arrays: tuple[pa.Array, ...] = ()
            keep = None
            for each in dead:
                there = ~deleted(block.times, each)
                keep = there if keep is None else keep & there
            if block.column is not None:
                arrays = (self._arrow(series, ref, block.times, block.column),)
                if block.column.valid is not None:
                    keep = block.column.valid if keep is None else keep & block.column.valid
            piece = Piece(block.times, arrays)
            yield (piece if keep is None else piece.filter(keep)).between(start, end)

    def _of_group(
        self, times: ChunkRef, wanted: Sequence[Series], refs: Sequence[ChunkRef | None]
    ) -> Iterator[Piece]:
        """The rows of one chunk of times, column beside column."""
        file, start, end = self._file, self._span.start, self._span.end
        stamps = file.time_chunk(self._device, times)
        open_chunk = functools.partial(file.value_chunk, self._device, window=self._window)
        chunks = [
            None if ref is None else open_chunk(series, ref)
            for series, ref in zip(wanted, refs, strict=True)
        ]
        ranges = [
            self._ranges(series, ref) if ref else []
            for series, ref in zip(wanted, refs, strict=True)
        ]
        dead = self._ranges(file.time_column(self._device), times)
        opened = [chunk for chunk in chunks if chunk is not None]
        pieces = (
            part
            for group in stamps.groups(start, end, rows=self.rows)
            for part in parts(group, opened, DECODED_AT_ONCE)
        )
        for group in pieces:
            arrays: list[pa.Array] = []
            size = 0
            for series, ref, chunk, gone in zip(wanted, refs, chunks, ranges, strict=True):
                if ref is None or chunk is None:
                    column = no_values(series.data_type, len(group.times))
                else:
                    column = _without(chunk.column(group), group.times, gone)
                arrays.append(self._arrow(series, ref or times, group.times, column))
                size += arrays[-1].nbytes
                if size > _MOST_BYTES:
                    raise TooMuchError
            piece = Piece(group.times, tuple(arrays))
            if dead:
                piece = piece.filter(~deleted(group.times, dead))
            yield self._with_a_value(piece.between(start, end))
        if file.check:
            stamps.finish()
            for chunk in opened:
                chunk.finish(stamps.passed)

    def bounded(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The same; what takes too much memory is an error of ours."""
        try:
            yield from pieces
        except TooMuchError:
            reason = "pages so large that those of all columns do not fit into memory: take fewer"
            raise UnsupportedData(reason, self._file.place(self._device)) from None

    def _with_a_value(self, piece: Piece) -> Piece:
        """Of a tree-model device the rows with a value; of a table all."""
        if self._device.is_table or any(not column.null_count for column in piece.columns):
            return piece
        keep = np.zeros(len(piece), np.bool_)
        for column in piece.columns:
            keep |= column.is_valid().to_numpy(zero_copy_only=False)
        return piece.filter(keep)

    def _ranges_with_times(self, series: Series, ref: ChunkRef) -> Iterator[Ranges]:
        """Those of a chunk, and those of its times: a deletion may end between the two."""
        yield self._ranges(series, ref)
        if ref.time_chunk is not None:
            yield self._ranges(self._file.time_column(self._device), ref.time_chunk)

    def _ranges(self, series: Series, ref: ChunkRef) -> Ranges:
        deletions = self._file.deletions
        if not deletions:
            return []
        return deletions.ranges(self._device, series.measurement, chunk=ref.offset)

    def _arrow(
        self, series: Series, ref: ChunkRef, times: npt.NDArray[np.int64], column: Column
    ) -> pa.Array:
        try:
            return column.to_arrow(self._file.text)
        except InvalidValue as bad:
            place = dataclasses.replace(self._file.place(self._device, series), chunk=ref.offset)
            raise UnsupportedData(f"at time {times[bad.row]}: {bad}", place) from bad


def _without(column: Column, times: npt.NDArray[np.int64], ranges: Ranges) -> Column:
    """A column, null where it was deleted."""
    if not ranges:
        return column
    kept = ~deleted(times, ranges)
    valid = kept if column.valid is None else column.valid & kept
    return dataclasses.replace(column, valid=valid)
