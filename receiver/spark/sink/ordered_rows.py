"""Sorted slices as one: rows in the order of their times, each time once, in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from receiver.spark.sink.sorted_rows import TIME

if TYPE_CHECKING:
    import numpy.typing as npt

    from receiver.spark.sink.sorted_rows import SortedSlice

__all__ = ["RepeatedTimeError", "ordered", "side_by_side"]

_ROWS: Final = 1 << 16
_LEAST: Final = 256
_BYTES: Final = 16 << 20
"""Of a piece, about, where rows are large."""


class RepeatedTimeError(Exception):
    """A time comes twice."""

    def __init__(self, at: int) -> None:
        super().__init__(f"time {at} comes twice")
        self.at = at


class _Cursor:
    """Where a slice is read, and the rows of it that are at hand."""

    def __init__(self, rows: SortedSlice, columns: Sequence[str], piece: int) -> None:
        self._table = rows.table.select([TIME, *columns])
        self._at, self._end, self._piece = rows.begin, rows.end, piece
        self.times: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._window: pa.Table = self._table.slice(0, 0)

    def fill(self) -> bool:
        """Whether there is a row at hand; the next are fetched where there is none."""
        if not len(self.times):
            count = min(self._piece, self._end - self._at)
            self._window = self._table.slice(self._at, count)
            self.times = self._window.column(TIME).to_numpy()
            self._at += count
        return len(self.times) > 0

    def until(self, time: int) -> pa.Table:
        """The rows at hand up to a time."""
        count = int(np.searchsorted(self.times, time, "right"))
        found = self._window.slice(0, count)
        self._window, self.times = self._window.slice(count), self.times[count:]
        return found


def ordered(slices: Sequence[SortedSlice], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of slices, by time; `TIME` and the columns.

    Raises:
        RepeatedTimeError: two have the same time.
    """
    last: int | None = None
    if len(slices) == 1:  # as of nearly all devices of a write of many
        for table in _pieces(slices[0], columns):
            last = _increasing(table.column(TIME).to_numpy(), last)
            yield table
        return
    left = [_Cursor(each, columns, max(1, _most(slices) // len(slices))) for each in slices]
    while left := [each for each in left if each.fill()]:
        cut = min(int(each.times[-1]) for each in left)
        parts = [each.until(cut) for each in left]
        table = pa.concat_tables([each for each in parts if len(each)])
        times = table.column(TIME).to_numpy()
        if len(parts) > 1:
            order = np.argsort(times, kind="stable")
            table, times = table.take(pa.array(order)), times[order]
        last = _increasing(times, last)
        yield table


def _pieces(rows: SortedSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of one slice."""
    table, count = rows.table.select([TIME, *columns]), rows.end - rows.begin
    if count <= _LEAST:
        yield table.slice(rows.begin, count)
        return
    most = _most([rows])
    for begin in range(rows.begin, rows.end, most):
        yield table.slice(begin, min(most, rows.end - begin))


def _most(slices: Sequence[SortedSlice]) -> int:
    """Rows of a piece."""
    size: int = max(each.table.nbytes // max(1, len(each.table)) for each in slices)
    return max(_LEAST, min(_ROWS, _BYTES // max(1, size)))


def _increasing(times: npt.NDArray[np.int64], last: int | None) -> int:
    """The last of sorted times of which each is there once, and none as late as one before."""
    if last is not None and times[0] <= last:
        raise RepeatedTimeError(last)
    twice: npt.NDArray[np.bool_] = times[1:] == times[:-1]
    if twice.any():
        raise RepeatedTimeError(int(times[twice.argmax()]))
    return int(times[-1])


def side_by_side(
    series: Mapping[str, Iterator[tuple[npt.NDArray[np.int64], pa.Array]]],
) -> Iterator[tuple[npt.NDArray[np.int64], dict[str, pa.Array]]]:
    """Points of several series as rows: a time each, NULL where a series has no point.

    Args:
        series: of each its times and values, in pieces, increasing.
    """
    at_hand: dict[str, tuple[npt.NDArray[np.int64], pa.Array]] = {}
    kinds: dict[str, pa.DataType] = {}
    while True:
        for name, pieces in series.items():
            if name not in at_hand and (piece := next(pieces, None)) is not None:
                at_hand[name] = piece
                kinds[name] = piece[1].type
        if not at_hand:
            return
        cut = min(int(times[-1]) for times, _ in at_hand.values())
        taken: dict[str, tuple[npt.NDArray[np.int64], pa.Array]] = {}
        for name, (times, values) in list(at_hand.items()):
            count = int(np.searchsorted(times, cut, "right"))
            taken[name] = times[:count], values.slice(0, count)
            if count == len(times):
                del at_hand[name]
            else:
                at_hand[name] = times[count:], values.slice(count)
        whole = np.unique(np.concatenate([times for times, _ in taken.values()]))
        yield (
            whole,
            {
                name: _spread(whole, *taken[name]) if name in taken else pa.nulls(len(whole), kind)
                for name, kind in kinds.items()
            },
        )


def _spread(
    whole: npt.NDArray[np.int64], times: npt.NDArray[np.int64], values: pa.Array
) -> pa.Array:
    if len(times) == len(whole):
        return values
    places = np.searchsorted(times, whole)
    places[places == len(times)] = 0
    there = np.zeros(len(whole), np.bool_) if not len(times) else times[places] == whole
    return values.take(pa.array(places, mask=~there))
