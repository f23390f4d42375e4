"""The time partitions that files reach over: outputs of a merge are cut where these begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["TimeWindows", "count_of", "time_windows", "windows_one_by_one"]

_FIRST: Final = -(1 << 63)
_LAST: Final = (1 << 63) - 1


class TimeWindows(NamedTuple):
    """Time partitions that lie one behind the other.

    Attributes:
        first: number of the first: times from 0 on are of number 0.
        last: of the last.
    """

    first: int
    last: int


def time_windows(
    spans: Iterable[tuple[int | None, int | None]], interval: int
) -> list[TimeWindows]:
    """The partitions of spans of time, each once, in order.

    Args:
        spans: first and last time; None for no points.
        interval: width of a partition; without one (0) nothing is told apart.
    """
    if interval <= 0:
        return []
    numbers = {
        (first // interval, last // interval)
        for first, last in spans
        if first is not None and last is not None
    }
    found: list[TimeWindows] = []
    for first, last in sorted(numbers):
        if found and first <= found[-1].last + 1:
            found[-1] = TimeWindows(found[-1].first, max(last, found[-1].last))
        else:
            found.append(TimeWindows(first, last))
    return found


def count_of(windows: Sequence[TimeWindows]) -> int:
    """How many partitions they are."""
    return sum(last - first + 1 for first, last in windows)


def windows_one_by_one(windows: Iterable[TimeWindows], interval: int) -> Iterator[tuple[int, int]]:
    """First and last time of each partition, both of them in it, in order."""
    for first, last in windows:
        for number in range(first, last + 1):
            begin = number * interval
            yield max(_FIRST, begin), min(_LAST, begin + interval - 1)
