"""Pieces of columns on their way to Arrow batches: merged, joined on time, cut to size.

A piece is times (int64, strictly increasing) and Arrow arrays of as many rows. Streams of pieces
are in the order of time. Everything here holds a few pieces a stream, never a whole one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from receiver.points.columns import mask_array, times_array
from receiver.points.decoding import Times

__all__ = ["Piece", "TooMuchError", "cut", "joined_on_time", "merged", "steps"]


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Rows: their times, and the columns."""

    times: Times
    columns: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.times)

    @property
    def size(self) -> int:
        """Bytes of the columns."""
        return sum(column.nbytes for column in self.columns)

    def slice(self, low: int, high: int) -> Piece:
        """Rows from ``low`` to before ``high``; nothing is copied."""
        columns = tuple(column.slice(low, high - low) for column in self.columns)
        return Piece(self.times[low:high], columns)

    def filter(self, keep: npt.NDArray[np.bool_]) -> Piece:
        """The rows that are to be kept."""
        if keep.all():
            return self
        mask = mask_array(keep)
        return Piece(self.times[keep], tuple(column.filter(mask) for column in self.columns))

    def between(self, start: int | None, end: int | None) -> Piece:
        """The rows whose times are within, both ends included."""
        low, high = 0, len(self)
        if high and start is not None and self.times[0] < start:
            low = int(np.searchsorted(self.times, start, side="left"))
        if high and end is not None and self.times[-1] > end:
            high = int(np.searchsorted(self.times, end, side="right"))
        return self if high - low == len(self) else self.slice(low, max(low, high))


def _concatenated(pieces: Sequence[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    columns = zip(*(piece.columns for piece in pieces), strict=True)
    return Piece(
        np.concatenate([piece.times for piece in pieces]),
        tuple(pa.concat_arrays(list(parts)) for parts in columns),
    )


_BYTES: Final = 32 * 1024 * 1024
"""What streams hold together, unless the pieces that each has to hold are larger."""
_MOST_BYTES: Final = 1024 * 1024 * 1024
"""What they may hold at all."""


class TooMuchError(Exception):
    """Pieces are so large that those of all streams together take more memory than they may."""


class _Stream:
    """A stream of pieces, some rows or bytes ahead.

    Attributes:
        size: bytes that are held.
    """

    def __init__(self, pieces: Iterator[Piece], ahead: int, size: int) -> None:
        self._pieces = pieces
        self._ahead = ahead
        self._most = size
        self._held: list[Piece] = []
        self._rows = 0
        self.size = 0
        self._ended = False

    def fill(self) -> bool:
        """Read on until enough rows are held; whether there are any."""
        while not self._ended and self._rows < self._ahead and self.size < self._most:
            piece = next(self._pieces, None)
            if piece is None:
                self._ended = True
            elif len(piece):
                self._held.append(piece)
                self._rows += len(piece)
                self.size += piece.size
        return bool(self._held)

    @property
    def last(self) -> int:
        """Time of the last row held."""
        return int(self._held[-1].times[-1])

    def take(self, bound: int) -> Piece | None:
        """Remove the rows up to and with a time; None if there are none."""
        taken: list[Piece] = []
        while self._held and self._held[0].times[-1] <= bound:
            taken.append(self._held.pop(0))
        if self._held and self._held[0].times[0] <= bound:
            first = self._held[0]
            at = int(np.searchsorted(first.times, bound, side="right"))
            taken.append(first.slice(0, at))
            self._held[0] = first.slice(at, len(first))
        if not taken:
            return None
        piece = _concatenated(taken)
        self._rows -= len(piece)
        self.size = sum(each.size for each in self._held)
        return piece


def steps(
    sources: Sequence[Iterator[Piece]], ahead: int, starts: Sequence[int] | None = None
) -> Iterator[list[Piece | None]]:
    """From all streams at once, the rows up to the same time, again and again.

    Args:
        sources: in the order of time each.
        ahead: rows to hold of each.
        starts: a time of each that none of its rows is before: a stream is not begun before it
            is that late, so that of many files only those are read that have a time in common.

    Raises:
        TooMuchError: pieces are too large.
    """
    share = _BYTES // max(1, len(sources))
    streams = [_Stream(source, ahead, share) for source in sources]
    waiting = sorted(range(len(streams)), key=lambda at: starts[at], reverse=True) if starts else []
    running = [] if starts else list(range(len(streams)))
    while True:
        running = [at for at in running if streams[at].fill()]
        bound = min((streams[at].last for at in running), default=None)
        while starts and waiting and (bound is None or starts[waiting[-1]] <= bound):
            at = waiting.pop()
            if streams[at].fill():
                running.append(at)
                bound = streams[at].last if bound is None else min(bound, streams[at].last)
        if bound is None:
            return
        if sum(streams[at].size for at in running) > _MOST_BYTES:
            raise TooMuchError
        step: list[Piece | None] = [None] * len(streams)
        for at in running:
            step[at] = streams[at].take(bound)
        yield step


def merged(sources: Sequence[Iterator[Piece]], *, ahead: int = 8192) -> Iterator[Piece]:
    """One stream of several with the same columns; of equal times the last source's row stays.

    Args:
        sources: the more important one behind the less important.
        ahead: rows to hold of each.

    Raises:
        TooMuchError: pieces are too large.
    """
    if len(sources) == 1:
        yield from sources[0]
        return
    for step in steps(sources, ahead):
        pieces = [piece for piece in step if piece is not None]
        if len(pieces) == 1:
            yield pieces[0]
            continue
        whole = _concatenated(pieces)
        order = np.argsort(whole.times, kind="stable")
        times = whole.times[order]
        last = np.ones(len(times), np.bool_)
        np.not_equal(times[1:], times[:-1], out=last[:-1])
        chosen = pa.array(order[last])
        yield Piece(times[last], tuple(column.take(chosen) for column in whole.columns))


def joined_on_time(
    sources: Sequence[Iterator[Piece]],
    kinds: Sequence[pa.DataType | None],
    *,
    ahead: int = 8192,
) -> Iterator[Piece]:
    """One row for each time that any of the streams has, null where one has none.

    Args:
        sources: of one column each, or of none (times alone).
        kinds: type of each stream's column; None of a stream without a column.
        ahead: rows to hold of each.

    Raises:
        TooMuchError: pieces are too large.
    """
    for step in steps(sources, ahead):
        pieces = [piece for piece in step if piece is not None]
        times = pieces[0].times
        if any(not np.array_equal(times, piece.times) for piece in pieces[1:]):
            times = np.unique(np.concatenate([piece.times for piece in pieces]))
        columns = []
        for piece, kind in zip(step, kinds, strict=True):
            if kind is None:
                continue
            columns.append(pa.nulls(len(times), kind) if piece is None else _spread(piece, times))
        yield Piece(times, tuple(columns))


def _spread(piece: Piece, times: Times) -> pa.Array:
    """A piece's column over more rows."""
    (column,) = piece.columns
    if len(piece) == len(times):
        return column
    rows = np.zeros(len(times), np.int64)
    missing = np.ones(len(times), np.bool_)
    at = np.searchsorted(times, piece.times)
    rows[at] = np.arange(len(piece))
    missing[at] = False
    return column.take(pa.array(rows, mask=missing))


def cut(
    pieces: Iterator[Piece], schema: pa.Schema, *, rows: int, size: int = 32 * 1024 * 1024
) -> Iterator[pa.RecordBatch]:
    """Batches of at most ``rows`` rows, and of not much fewer where pieces are small.

    Args:
        pieces: in order.
        schema: time and the columns.
        rows: of a batch.
        size: a batch of small pieces ends where it has so many bytes.
    """
    held: list[Piece] = []
    count = volume = 0
    for piece in pieces:
        if held and (count + len(piece) > rows or volume >= size):
            yield from _batches(_concatenated(held), schema, rows)
            held, count, volume = [], 0, 0
        if len(piece):
            held.append(piece)
            count += len(piece)
            volume += piece.size
    if held:
        yield from _batches(_concatenated(held), schema, rows)


def _batches(piece: Piece, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    batch = pa.RecordBatch.from_arrays([times_array(piece.times), *piece.columns], schema=schema)
    for at in range(0, len(piece), rows):
        yield batch.slice(at, rows)
