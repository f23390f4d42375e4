"""Which time partitions spans reach over."""

from __future__ import annotations

from receiver.compaction.worth_merging.time_windows import (
    TimeWindows,
    count_of,
    time_windows,
    windows_one_by_one,
)

FIRST, LAST = -(2**63), 2**63 - 1


def test_each_partition_counts_once_and_neighbours_are_together() -> None:
    spans = [(0, 9), (5, 12), (10, 10), (20, 29), (45, 45), (None, None)]
    assert time_windows(spans, 10) == [TimeWindows(0, 2), TimeWindows(4, 4)]
    assert count_of(time_windows(spans, 10)) == 4


def test_times_before_the_epoch_are_of_partitions_below_zero() -> None:
    assert time_windows([(-1, 0)], 10) == [TimeWindows(-1, 0)]
    assert time_windows([(-10, -1)], 10) == [TimeWindows(-1, -1)]


def test_without_an_interval_nothing_is_told_apart() -> None:
    assert time_windows([(0, 1 << 60)], 0) == []
    assert count_of([]) == 0


def test_partitions_one_by_one_end_where_times_end() -> None:
    found = list(windows_one_by_one([TimeWindows(-1, 0), TimeWindows(3, 3)], 10))
    assert found == [(-10, -1), (0, 9), (30, 39)]
    week = 604_800_000
    (low,) = windows_one_by_one(time_windows([(FIRST, FIRST)], week), week)
    (high,) = windows_one_by_one(time_windows([(LAST, LAST)], week), week)
    assert low[0] == FIRST
    assert high[1] == LAST
    assert low[1] < FIRST + week
    assert high[0] > LAST - week


def test_very_many_are_counted_without_being_gone_through() -> None:
    assert count_of(time_windows([(FIRST, LAST)], 1)) == 2**64
