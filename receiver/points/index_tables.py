"""The series of a device as the index has them, as a table: one pass of compiled code.

A row is a chunk. Where thousands of files are looked at together, an object for each chunk costs
more than its points.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from common.tsfile import Device
from receiver.points import summaries
from receiver.points.jit import Number, kernel
from receiver.points.page_data import pages

__all__ = ["ChunkTable", "chunk_table"]

_OFFSET: Final = 0
_LEAST_BYTES: Final = 25  # of a chunk: offset, count, times
_MANY: Final = 0x3F
_LEAST: Final = -(2**63)

_Table = npt.NDArray[np.int64]


class ChunkTable(NamedTuple):
    """The chunks of a device.

    Attributes:
        names: of its series, in the order of the index; of times ``""``.
        types: code of each.
        lows: the first row of each, and the end.
        offsets: of the chunks' headers, in the order of the index.
        statistics: of them, a row each as of ``summaries``; of binaries count and times alone.
    """

    names: tuple[str, ...]
    types: list[int]
    lows: _Table
    offsets: _Table
    statistics: _Table

    def lasts(self) -> list[int | None]:
        """Of each series the time of its last point, None without points."""
        counted = self.statistics[:, summaries.ROW_COUNT] > 0
        ends = np.where(counted, self.statistics[:, summaries.ROW_END], _LEAST)
        last = np.maximum.reduceat(ends, self.lows[:-1]).tolist()
        there = np.logical_or.reduceat(counted, self.lows[:-1]).tolist()
        return [end if some else None for end, some in zip(last, there, strict=True)]


def chunk_table(device: Device) -> ChunkTable:
    """The table of a device; its index was checked as it was read, and has a series."""
    raw = device.index
    index = np.frombuffer(raw, np.uint8)
    most = sum(end - begin for begin, end in device.runs) // _LEAST_BYTES + 1
    table = np.zeros((most, pages.WIDTH), np.int64)
    heads = np.zeros((most, 4), np.int64)
    rows = count = 0
    for begin, end in device.runs:
        rows, count = _read(index, begin, end, table, rows, heads, count)
    places = heads[:count].tolist()
    return ChunkTable(
        tuple([raw[low:high].decode() for low, high, _, _ in places]),
        [code for _, _, code, _ in places],
        np.append(heads[:count, 3], rows),
        table[:rows, _OFFSET].copy(),
        table[:rows, pages.STATISTICS].copy(),
    )


@kernel
def _number(data: Any, at: Number) -> Number:
    """An unsigned number of the index: (it, the position behind)."""
    number, shift = np.int64(0), 0
    while True:
        byte = np.int64(data[at])
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift > 28 or at >= len(data):
            return number, at


@kernel
def _times(data: Any, at: Number, code: Number, row: Any) -> Number:
    """Statistics: the position behind them; -1 if they reach beyond the index."""
    count, at = _number(data, at)
    if at + 16 > len(data):
        return np.int64(-1)
    row[pages.COUNT] = count
    row[pages.START], row[pages.END] = pages.int64_at(data, at), pages.int64_at(data, at + 8)
    return np.int64(pages.statistics_body(data, at + 16, len(data), code, row))


@kernel
def _read(
    data: Any, at: Number, end: Number, table: Any, rows: Number, heads: Any, count: Number
) -> Number:
    """Read a run of series: (rows of the table, series) so far."""
    whole = np.zeros(pages.WIDTH, np.int64)
    while at + 20 < end and count < len(heads) and rows < len(table):
        kind = np.int64(data[at])
        length, at = _number(data, at + 1)
        stop = at + (length >> 1)
        if stop + 20 > end:
            break
        code = np.int64(data[stop])
        size, behind = _number(data, stop + 1)
        heads[count, 0], heads[count, 1] = at, stop
        heads[count, 2], heads[count, 3] = code, rows
        count += 1
        at = _times(data, behind, code, whole)
        if at < 0 or at + size > end:
            break
        following = at + size
        if not kind & _MANY:
            table[rows] = whole
            table[rows, _OFFSET] = pages.int64_at(data, at)
            rows += 1
        else:
            while at + _LEAST_BYTES <= following and rows < len(table):
                offset = pages.int64_at(data, at)
                at = _times(data, at + 8, code, table[rows])
                if at < 0:
                    break
                table[rows, _OFFSET] = offset
                rows += 1
        at = following
    return rows, count
