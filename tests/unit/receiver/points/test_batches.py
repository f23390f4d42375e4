"""Streams of pieces are merged, joined and cut without holding more than a few pieces of each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from receiver.points import batches
from receiver.points.batches import Piece, TooMuchError, cut, joined_on_time, merged


def pieces(
    times: list[int], values: list, size: int, taken: list[int] | None = None
) -> Iterator[Piece]:
    for at in range(0, len(times), size):
        if taken is not None:
            taken.append(at)
        yield Piece(np.array(times[at : at + size], np.int64), (pa.array(values[at : at + size]),))


def collected(stream: Iterator[Piece]) -> list[tuple]:
    rows = []
    for piece in stream:
        assert (np.diff(piece.times) > 0).all()
        columns = [column.to_pylist() for column in piece.columns]
        rows += zip(piece.times.tolist(), *columns, strict=True)
    return rows


def test_of_equal_times_the_last_source_stays():
    for size in (1, 3, 100):
        sources = [
            pieces([1, 2, 3, 7, 9], [10, 20, 30, 70, 90], size),
            pieces([2, 3, 4], [21, 31, 41], size),
            pieces([3, 100], [32, 102], size),
        ]
        found = collected(merged(sources, ahead=2))
        assert found == [(1, 10), (2, 21), (3, 32), (4, 41), (7, 70), (9, 90), (100, 102)]


def test_streams_of_other_times_are_joined_with_nulls():
    for size in (1, 2, 100):
        sources = [pieces([1, 3, 5], ["a", "b", "c"], size), pieces([2, 3, 9], [1, 2, 3], size)]
        found = collected(joined_on_time(sources, [pa.string(), pa.int64()], ahead=2))
        assert found == [(1, "a", None), (2, None, 1), (3, "b", 2), (5, "c", None), (9, None, 3)]


def test_a_join_does_not_run_ahead_of_its_streams():
    taken: list[int] = []
    numbers = list(range(10_000))
    sources = [pieces(numbers, numbers, 100, taken), pieces(numbers, numbers, 100)]
    next(joined_on_time(sources, [pa.int64()] * 2, ahead=200))
    assert len(taken) <= 3


def test_small_pieces_come_as_one_batch_and_large_ones_in_parts():
    schema = pa.schema([("time", pa.int64()), ("value", pa.int64())])
    numbers = list(range(1000))
    sizes = [batch.num_rows for batch in cut(pieces(numbers, numbers, 10), schema, rows=100)]
    assert sizes == [100] * 10
    sizes = [batch.num_rows for batch in cut(pieces(numbers, numbers, 250), schema, rows=100)]
    assert sizes == [100, 100, 50] * 4
    assert list(cut(iter(()), schema, rows=100)) == []


def test_streams_hold_no_more_than_the_bytes_they_may(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batches, "_BYTES", 4000)
    taken: list[int] = []
    numbers = list(range(1000))
    sources = [pieces(numbers, numbers, 100, taken), pieces(numbers, numbers, 100)]
    next(joined_on_time(sources, [pa.int64()] * 2, ahead=10_000))
    assert len(taken) <= 4
    monkeypatch.setattr(batches, "_MOST_BYTES", 1000)
    with pytest.raises(TooMuchError):
        next(joined_on_time([pieces(numbers, numbers, 100)] * 2, [pa.int64()] * 2))
