"""The time partitions of a storage group, a window at a time: what readers see in each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.file_tables.partition_totals import PartitionTotal

__all__ = ["PartitionWindow", "partition_window"]

_LEAST: Final = 26
"""Partitions of a window: half a year of weeks."""


@dataclass(frozen=True)
class PartitionWindow:
    """A run of time partitions as they are now.

    Attributes:
        begin: number of the first.
        end: of the first that is not in it.
        totals: of those with files, by their numbers, the newest first.
        earlier: the last number of the window before; None if nothing is before it.
        later: of the window after; None if nothing is after it.
        count: how many partitions of the group have files.
        whole: of all of these together.
        regions: virtual storage groups that have files, as directories below that of the group.
    """

    begin: int
    end: int
    totals: dict[int, PartitionTotal]
    earlier: int | None
    later: int | None
    count: int
    whole: PartitionTotal
    regions: tuple[str, ...]


def partition_window(
    engine: Engine, group: str, until: int | None = None, *, width: int
) -> PartitionWindow:
    """Partitions of a storage group, of sums that the engine keeps: no file is looked at.

    Args:
        engine: that knows them.
        group: as its directory is called.
        until: number of the last of the window; that of the newest with files, if left out.
        width: how many numbers it has, at most.
    """
    with engine.reading() as state:
        kept = state.file_table.by_partition
        numbers = kept.partitions(group)
        whole = kept.of(group, numbers[0], numbers[-1] + 1) if numbers else kept.of(group, 0, 0)
        regions = tuple(kept.regions(group))
        last = until if until is not None else numbers[-1] if numbers else 0
        # A group that is young has a window that is not mostly empty.
        oldest = min(numbers[0] if numbers else last, last - _LEAST + 1)
        begin, end = max(last - width + 1, oldest), last + 1
        low, high = bisect_left(numbers, begin), bisect_right(numbers, last)
        totals = {each: kept.of(group, each, each + 1) for each in reversed(numbers[low:high])}
    return PartitionWindow(
        begin=begin,
        end=end,
        totals=totals,
        earlier=numbers[low - 1] if low else None,
        later=min(numbers[high] + width - 1, numbers[-1]) if high < len(numbers) else None,
        count=len(numbers),
        whole=whole,
        regions=regions,
    )
