"""The pages of one chunk: encoded, compressed, summed up, and put behind a chunk header."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from common.tsfile import DataType, Encoding, Statistics
from common.tsfile.layout import VALUE_COLUMN_FLAG
from common.tsfile.primitives import uvarint_bytes
from receiver.points.columns import BINARY, Column
from receiver.points.decoding import Times
from receiver.points.encodings import Binaries, Bytes, Values
from receiver.points.page_data.stored_pages import StoredPage
from receiver.points.summaries import ROW_WIDTH, extremes, merge, row_statistics, summarise
from receiver.writing.page_compression import compress_page
from receiver.writing.structures import (
    ONE_PAGE,
    SEVERAL_PAGES,
    chunk_header,
    statistics_bytes,
)
from receiver.writing.value_encoding import room_for, write_values

__all__ = ["ChunkPages", "Scratch", "SealedChunk", "SeriesForm", "time_form"]

_TIME_ENCODING: Final = Encoding.TS_2DIFF
"""Of plain devices' times it stands nowhere, so it is the one that every reader expects."""
_PREFIX: Final = 5  # of the encoded times' length
_ROWS: Final = struct.Struct(">i").pack_into
_EMPTY_PAGE: Final = b"\x00"


class SeriesForm(NamedTuple):
    """How a series is written.

    Attributes:
        measurement: its name, as the file has it (back-quoted where the database does).
        data_type: code.
        encoding: code, one of ``written_as``.
        compression: code, one of ``compressed_as``.
    """

    measurement: str
    data_type: int
    encoding: int
    compression: int


class SealedChunk(NamedTuple):
    """A chunk.

    Attributes:
        content: its bytes, header and pages.
        statistics: what its points come to.
        marks: of its pages, where all of them were taken over with one; otherwise none.
    """

    content: bytes
    statistics: Statistics
    marks: tuple[Any, ...]


class Scratch:
    """A buffer for the page that is being encoded; one for all the series of a file."""

    def __init__(self) -> None:
        self._buffer: Bytes = np.empty(1 << 18, np.uint8)

    def of(self, size: int) -> Bytes:
        """At least so many bytes, of any content."""
        if len(self._buffer) < size:
            self._buffer = np.empty(2 * size, np.uint8)
        return self._buffer


class ChunkPages:
    """The pages so far of the next chunk of a series.

    Attributes:
        form: of the series.
        flag: of the time column or of a value column of an aligned device, or 0.
        size: bytes of the pages.
        rows: rows of the pages; points, but for the nulls of a value column.
    """

    def __init__(self, form: SeriesForm, flag: int, scratch: Scratch) -> None:
        self.form, self.flag, self._scratch = form, flag, scratch
        self.size = self.rows = 0
        self._pages: list[tuple[bytes, bytes]] = []  # sizes, compressed content
        self._parts: list[Statistics] = []
        self._marks: list[Any] = []

    def add(self, times: Times, column: Column | None) -> None:
        """Add one page.

        Args:
            times: of its rows, at least one, increasing.
            column: a value for each, None of the time column; nulls in a value column only.
        """
        if column is None:
            used = self._times(times)
            part = Statistics(len(times), int(times[0]), int(times[-1]))
        elif self.flag == VALUE_COLUMN_FLAG:
            valid, values = column.valid, _present(column)
            used = self._nullable(len(times), valid, values)
            part = _summed_up(column.data_type, times if valid is None else times[valid], values)
        else:
            used = self._points(times, column.values)
            part = _summed_up(column.data_type, times, column.values)
        if part.count:
            content = compress_page(self.form.compression, self._scratch.of(0)[:used].data)
            head = uvarint_bytes(used) + uvarint_bytes(len(content))
        else:
            content, head = b"", _EMPTY_PAGE
        self._put(head, content, part, len(times), None)

    def take(self, page: StoredPage, times: Times, column: Column | None, mark: Any) -> None:
        """Add a page as it stood in a file, in a chunk of the same encoding and compression.

        Args:
            page: with these points, its times (of a plain series, or a column of them) TS_2DIFF.
            times: of its rows.
            column: see ``add``.
            mark: is handed back with the chunk, if all of its pages have one; or None.
        """
        form = self.form
        if column is not None and form.data_type in BINARY:
            valid = column.valid
            part = _summed_up(
                form.data_type, times if valid is None else times[valid], _present(column)
            )
        else:
            part = row_statistics(form.data_type, page.row)
        head = _EMPTY_PAGE
        if part.count:
            head = uvarint_bytes(page.size) + uvarint_bytes(len(page.content))
        self._put(head, page.content if part.count else b"", part, len(times), mark)

    def _put(self, head: bytes, content: bytes, part: Statistics, rows: int, mark: Any) -> None:
        self._pages.append((head, content))
        self._parts.append(part)
        if mark is not None:
            self._marks.append(mark)
        self.size += len(head) + len(content)
        self.rows += rows

    def seal(self) -> SealedChunk:
        """The chunk of these pages; what follows belongs to the next.

        A chunk without points has no pages: Java reads no others that are empty all through.
        """
        form, pages = self.form, self._pages
        whole = merge(self._parts)
        body = []
        if whole.count:
            for (head, content), part in zip(pages, self._parts, strict=True):
                known = b""
                if len(pages) > 1 and part.count:
                    known = statistics_bytes(form.data_type, part)
                body += [head, known, content]
        several = len(pages) > 1 and bool(whole.count)
        header = chunk_header(
            (SEVERAL_PAGES if several else ONE_PAGE) | self.flag,
            form.measurement,
            sum(map(len, body)),
            form.data_type,
            form.compression,
            form.encoding,
        )
        is_taken = whole.count and len(self._marks) == len(pages)
        marks = tuple(self._marks) if is_taken else ()
        self._pages, self._parts, self._marks = [], [], []
        self.size = self.rows = 0
        return SealedChunk(b"".join((header, *body)), whole, marks)

    # what stands in a page, in the scratch buffer: bytes used

    def _times(self, times: Times) -> int:
        encoding = self.form.encoding
        out = self._scratch.of(room_for(encoding, DataType.VECTOR, times))
        return write_values(encoding, DataType.VECTOR, times, out, 0)

    def _points(self, times: Times, values: Values) -> int:
        """Length of the encoded times, they, the encoded values."""
        form = self.form
        room = room_for(_TIME_ENCODING, DataType.VECTOR, times)
        out = self._scratch.of(_PREFIX + room + room_for(form.encoding, form.data_type, values))
        end = write_values(_TIME_ENCODING, DataType.VECTOR, times, out, _PREFIX)
        prefix = uvarint_bytes(end - _PREFIX)
        begin = len(prefix)
        out[:begin] = np.frombuffer(prefix, np.uint8)
        if begin < _PREFIX:
            out[begin : begin + end - _PREFIX] = out[_PREFIX:end].copy()
        return write_values(form.encoding, form.data_type, values, out, begin + end - _PREFIX)

    def _nullable(self, rows: int, valid: npt.NDArray[np.bool_] | None, values: Values) -> int:
        """Number of rows, a bit for each, the highest first, and the values that are there."""
        form = self.form
        begin = 4 + (rows + 7) // 8
        out = self._scratch.of(begin + room_for(form.encoding, form.data_type, values))
        _ROWS(out.data, 0, rows)
        bits = np.ones(rows, np.bool_) if valid is None else valid
        out[4:begin] = np.packbits(bits)
        return write_values(form.encoding, form.data_type, values, out, begin)


def time_form(compression: int) -> SeriesForm:
    """Of the time column of an aligned device."""
    return SeriesForm("", DataType.VECTOR, _TIME_ENCODING, compression)


def _present(column: Column) -> Values:
    """The values that are no nulls."""
    values, valid = column.values, column.valid
    if valid is None:
        return values
    if isinstance(values, Binaries):  # a null has no bytes
        lengths = np.diff(values.offsets)[valid]
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return Binaries(offsets + values.offsets[0], values.data)
    return values[valid]


def _summed_up(code: int, times: Times, values: Values) -> Statistics:
    if not len(times):
        return merge(())
    start, end = int(times[0]), int(times[-1])
    if isinstance(values, Binaries):
        return _of_binaries(code, values, len(times), start, end)
    row = np.zeros((1, ROW_WIDTH), np.int64)
    row[0, :3] = len(times), start, end
    summarise(code, values, np.array([0, len(values)], np.int64), row)
    return row_statistics(code, row[0])


def _of_binaries(code: int, values: Binaries, count: int, start: int, end: int) -> Statistics:
    assert code in BINARY
    if code not in (DataType.TEXT, DataType.STRING):
        return Statistics(count, start, end)
    first, last = values[0], values[count - 1]
    if code == DataType.TEXT:
        return Statistics(count, start, end, first, last)
    least, most = extremes(values.offsets, values.data)
    return Statistics(count, start, end, first, last, values[int(least)], values[int(most)])
