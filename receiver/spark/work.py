"""The one cutter of work: whatever has a weight into groups for tasks, or a file into pieces.

The verification deals out parts of files by cores, the data source slices of files by bytes; both
cut a large file by its devices, the source a large device by its chunks too.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["deal", "spread"]

T = TypeVar("T")


def deal(items: Sequence[T], count: int, weight: Callable[[T], int]) -> list[list[T]]:
    """Groups that are about as heavy, in no order; none is empty.

    The heaviest item is dealt out first, each to the group that has the least, so that all are
    busy to the end.

    Args:
        items: what is dealt out.
        count: of groups, at most.
        weight: of an item.
    """
    groups: list[list[T]] = [[] for _ in range(min(count, len(items)))]
    loads = [(0, 0, at) for at in range(len(groups))]
    for each in sorted(items, key=weight, reverse=True):
        load, length, at = heapq.heappop(loads)
        groups[at].append(each)
        heapq.heappush(loads, (load + weight(each), length + 1, at))
    return groups


def spread(items: Sequence[T], count: int, weight: Callable[[T], int]) -> list[list[T]]:
    """So many runs of consecutive items, about as heavy; some may be empty.

    What lies together in a file stays together.
    """
    runs: list[list[T]] = [[] for _ in range(count)]
    total = max(1, sum(map(weight, items)))
    before = 0
    for each in items:
        runs[min(before * count // total, count - 1)].append(each)
        before += weight(each)
    return runs
