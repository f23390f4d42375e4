"""Page headers: all of a chunk in one pass over its bytes.

A header is: uvarint uncompressed size (0: an empty page, nothing follows), uvarint compressed
size and, in a chunk of several pages, Statistics. The page's bytes follow. Source: apache/tsfile,
``PageHeader``, ``ChunkReader``; of Statistics see ``common.tsfile.statistics``.

What is read is a table of int64, a row a page. Its columns from ``COUNT`` on are the statistics:
times and numbers as they are, floats and doubles as the bits of a canonical form (one NaN), so
that rows compare as integers. TEXT and STRING have their binaries at ``BODY_AT`` instead.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from receiver.points.encodings import Bytes
from receiver.points.jit import Number, kernel

__all__ = [
    "BODY_AT",
    "COMPRESSED",
    "COUNT",
    "DATA_AT",
    "END",
    "FIRST",
    "HEADER_AT",
    "LAST",
    "LEAST_HEADER",
    "MAX",
    "MIN",
    "START",
    "STATISTICS",
    "SUM",
    "UNCOMPRESSED",
    "WIDTH",
    "PageTable",
    "int64_at",
    "new_table",
    "scan_pages",
    "statistics_body",
]

PageTable: TypeAlias = npt.NDArray[np.int64]

HEADER_AT: Final = 0  # where the header begins
DATA_AT: Final = 1  # where the page's bytes begin
COMPRESSED: Final = 2
UNCOMPRESSED: Final = 3
BODY_AT: Final = 4  # where the body of the statistics begins, -1 without statistics
COUNT: Final = 5
START: Final = 6
END: Final = 7
FIRST: Final = 8
LAST: Final = 9
MIN: Final = 10
MAX: Final = 11
SUM: Final = 12
WIDTH: Final = 13
STATISTICS: Final = slice(COUNT, WIDTH)

LEAST_HEADER: Final = 64
"""Enough bytes for any header but one with TEXT or STRING statistics."""

WHOLE: Final = 0  # scan_pages: the bytes ended with a page
PARTIAL: Final = 1  # they end within one
BAD_SIZE: Final = 2  # a size of more than 31 bits
BAD_TYPE: Final = 3  # statistics of a type that has none
BAD_BINARY: Final = 4  # a statistics value of negative length


def new_table(rows: int) -> PageTable:
    """An empty table for so many pages."""
    return np.zeros((rows, WIDTH), np.int64)


@kernel
def _uvarint(data: Bytes, pos: Number, end: Number) -> Number:
    """(number, position behind), the position -1 where the bytes end, -2 where they go on."""
    number = np.int64(0)
    for index in range(5):
        if pos >= end:
            return number, np.int64(-1)
        byte = np.int64(data[pos])
        pos += 1
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if number > 0x7FFFFFFF:
                return number, np.int64(-2)
            return number, np.int64(pos)
    return number, np.int64(-2)


@kernel
def int64_at(data: Bytes, pos: Number) -> Number:
    """The big-endian number of 8 bytes at a place."""
    number = np.uint64(0)
    for index in range(8):
        number = (number << np.uint64(8)) | np.uint64(data[pos + index])
    return np.int64(number)


@kernel
def _int32(data: Bytes, pos: Number) -> Number:
    number = np.int64(0)
    for index in range(4):
        number = (number << 8) | np.int64(data[pos + index])
    if number >= 0x80000000:
        number -= 0x100000000
    return number


@kernel
def _float_bits(bits: Number) -> Number:
    if (bits & 0x7FFFFFFF) > 0x7F800000:
        return np.int64(0x7FC00000)
    return bits


@kernel
def _double_bits(bits: Number) -> Number:
    if (bits & np.int64(0x7FFFFFFFFFFFFFFF)) > np.int64(0x7FF0000000000000):
        return np.int64(0x7FF8000000000000)
    return bits


@kernel
def statistics_body(data: Bytes, pos: Number, end: Number, code: Number, row: PageTable) -> Number:
    """Read the body of statistics into a row: the position behind, or -1, -3, -4.

    It stands so in page headers and in the index.
    """
    if code == 0:
        if pos + 10 > end:
            return np.int64(-1)
        row[FIRST] = data[pos] != 0
        row[LAST] = data[pos + 1] != 0
        row[SUM] = int64_at(data, pos + 2)
        return np.int64(pos + 10)
    if code == 1 or code == 9 or code == 3:
        if pos + 24 > end:
            return np.int64(-1)
        for column, at in ((MIN, 0), (MAX, 4), (FIRST, 8), (LAST, 12)):
            bits = _int32(data, pos + at)
            row[column] = _float_bits(bits) if code == 3 else bits
        total = int64_at(data, pos + 16)
        row[SUM] = _double_bits(total) if code == 3 else total
        return np.int64(pos + 24)
    if code == 2 or code == 8 or code == 4:
        if pos + 40 > end:
            return np.int64(-1)
        for column, at in ((MIN, 0), (MAX, 8), (FIRST, 16), (LAST, 24)):
            bits = int64_at(data, pos + at)
            row[column] = _double_bits(bits) if code == 4 else bits
        row[SUM] = _double_bits(int64_at(data, pos + 32))
        return np.int64(pos + 40)
    if code == 5 or code == 11:
        for _ in range(2 if code == 5 else 4):
            if pos + 4 > end:
                return np.int64(-1)
            length = _int32(data, pos)
            if length < 0:
                return np.int64(-4)
            pos += 4 + length
        return np.int64(-1) if pos > end else np.int64(pos)
    if code == 6 or code == 10 or code == 12:
        return np.int64(pos)
    return np.int64(-3)


@kernel
def scan_pages(
    data: Bytes, pos: Number, end: Number, code: Number, with_statistics: Number, table: PageTable
) -> Number:
    """Read the headers of the pages in ``data[pos:end]``, as many as are there whole.

    Args:
        data: uint8.
        pos: where a header begins.
        end: of the bytes at hand.
        code: data type of the series.
        with_statistics: whether headers have them (in a chunk of several pages).
        table: int64 ``(pages, WIDTH)``, zeros; positions written to it are within ``data``.

    Returns:
        (pages, position behind the last of them, state, bytes that the next page needs from that
        position on, as far as known). State: ``WHOLE``, ``PARTIAL``, or what is bad.
    """
    pages = 0
    while pages < len(table) and pos < end:
        row = table[pages]
        row[HEADER_AT] = pos
        row[BODY_AT] = -1
        size, at = _uvarint(data, pos, end)
        if at == -2:
            return pages, pos, BAD_SIZE, np.int64(0)
        if at == -1:
            return pages, pos, PARTIAL, np.int64(LEAST_HEADER)
        row[UNCOMPRESSED] = size
        row[COMPRESSED] = 0
        if size > 0:
            length, at = _uvarint(data, at, end)
            if at == -2:
                return pages, pos, BAD_SIZE, np.int64(0)
            if at == -1:
                return pages, pos, PARTIAL, np.int64(LEAST_HEADER)
            row[COMPRESSED] = length
            if with_statistics:
                count, at = _uvarint(data, at, end)
                if at == -2:
                    return pages, pos, BAD_SIZE, np.int64(0)
                if at == -1 or at + 16 > end:
                    return pages, pos, PARTIAL, np.int64(LEAST_HEADER)
                row[COUNT] = count
                row[START] = int64_at(data, at)
                row[END] = int64_at(data, at + 8)
                row[BODY_AT] = at + 16
                at = statistics_body(data, at + 16, end, code, row)
                if at == -1:
                    return pages, pos, PARTIAL, np.int64(2 * (end - pos) + LEAST_HEADER)
                if at < 0:
                    return pages, pos, -at, np.int64(0)
            if at + length > end:
                return pages, pos, PARTIAL, np.int64(at + length - pos)
        row[DATA_AT] = at
        pos = at + row[COMPRESSED]
        pages += 1
    return pages, np.int64(pos), WHOLE, np.int64(0)
