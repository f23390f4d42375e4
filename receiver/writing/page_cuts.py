"""Where rows are cut into pages, and rows that wait until a page of them is full."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from receiver.points.columns import Column, joined_values
from receiver.points.decoding import Times
from receiver.points.encodings import Binaries

__all__ = ["Cuts", "WaitingRows", "part_of"]


_TOGETHER = 128
"""Times as many bytes as a page of texts should have: what a few large ones may have together."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cuts:
    """How large things become; all are least sizes at which a thing ends, but for the points.

    Attributes:
        page_points: rows of a page, at most. 10,000 is what the servers have.
        page_cells: rows times columns of the pages of an aligned device, at most, unless one row
            has more: so many values wait in memory.
        page_bytes: of the texts of one column in a page; one value may be larger.
        page_texts: so many texts may be larger together, up to 128 times as much: what says of a
            page or a chunk which its first and its last one is holds them whole, so pages of one
            text each take three times what it has, and more.
        chunk_points: rows of a chunk.
        chunk_bytes: of a chunk, compressed; of a plain device.
        group_bytes: of the chunks of an aligned device that are written together: this much waits
            in memory, and for each column the rows of a page.
    """

    page_points: int = 10_000
    page_cells: int = 4 * 1024 * 1024
    page_bytes: int = 64 * 1024
    page_texts: int = 8
    chunk_points: int = 100_000
    chunk_bytes: int = 1024 * 1024
    group_bytes: int = 16 * 1024 * 1024


class WaitingRows:
    """Rows that were handed in and stand in no page yet."""

    def __init__(self, cuts: Cuts, columns: int = 1) -> None:
        self._most = max(1, min(cuts.page_points, cuts.page_cells // max(1, columns)))
        self._bytes, self._texts = cuts.page_bytes, cuts.page_texts
        self._times: list[Times] = []
        self._columns: list[Sequence[Column]] = []

    def push(
        self, times: Times, columns: Sequence[Column]
    ) -> Iterator[tuple[Times, Sequence[Column]]]:
        """Take rows, behind those that wait; full pages come out."""
        self._times.append(times)
        self._columns.append(columns)
        yield from self._pages(last=False)

    def rest(self) -> Iterator[tuple[Times, Sequence[Column]]]:
        """The pages of all that is left."""
        if self._times:
            yield from self._pages(last=True)

    def _pages(self, *, last: bool) -> Iterator[tuple[Times, Sequence[Column]]]:
        times = self._times[0] if len(self._times) == 1 else np.concatenate(self._times)
        columns = [_joined(parts) for parts in zip(*self._columns, strict=True)]
        low, rows = 0, len(times)
        while low < rows:
            high = self._end(low, rows, columns)
            if high == rows and high - low < self._most and not last:
                break
            yield times[low:high], [part_of(column, low, high) for column in columns]
            low = high
        self._times = [times[low:]] if low < rows else []
        self._columns = [[part_of(each, low, rows) for each in columns]] if low < rows else []

    def _end(self, low: int, rows: int, columns: Sequence[Column]) -> int:
        high = min(low + self._most, rows)
        for column in columns:
            if isinstance(column.values, Binaries):
                offsets = column.values.offsets[low : high + 1].astype(np.int64)
                sizes = offsets[0] + np.array((self._bytes, self._bytes * _TOGETHER))
                fit, most = (np.searchsorted(offsets, sizes, "right") - 1).tolist()
                high = min(high, low + max(1, fit, min(self._texts, most)))
        return high


def _joined(parts: Sequence[Column]) -> Column:
    if len(parts) == 1:
        return parts[0]
    valid = None
    if any(part.valid is not None for part in parts):
        valid = np.concatenate(
            [np.ones(len(p), np.bool_) if p.valid is None else p.valid for p in parts]
        )
    return Column(parts[0].data_type, joined_values([part.values for part in parts]), valid)


def part_of(column: Column, low: int, high: int) -> Column:
    """Rows from ``low`` to before ``high``; nothing is copied."""
    values = column.values
    if isinstance(values, Binaries):
        values = Binaries(values.offsets[low : high + 1], values.data)
    else:
        values = values[low:high]
    return Column(
        column.data_type, values, None if column.valid is None else column.valid[low:high]
    )
