"""How the files of a merge stand to each other: thousands, compared pair by pair, many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from receiver.metadata.model.ranks import Ladder, Rank
from receiver.superseding.sweeping import RankArrays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.superseding.asking import FileAsked

__all__ = ["FileStanding"]

_PAIRS = 1 << 20
"""That are compared at once."""


class FileStanding:
    """Ranks of files, by their numbers."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = ranks
        self._arrays = RankArrays(self._ranks)
        self._last: tuple[tuple[int, ...], list[int] | None] = ((), [])

    @classmethod
    def of_asked(cls, files: Sequence[FileAsked]) -> FileStanding:
        """That of the files of a merge."""
        return cls([
            Rank(each.name, each.first, each.closed, each.last, each.loaded, each.physical,
                 each.below)
            for each in files
        ])  # fmt: skip

    def order(self, numbers: Sequence[int]) -> list[int] | None:
        """Of each of some files how many of them it stands above; None where there is a circle."""
        key = tuple(numbers)
        if self._last[0] != key:  # devices have mostly the same files
            self._last = key, self._order(np.array(key, np.int64))
        return self._last[1]

    def ladder(self, numbers: Sequence[int]) -> Ladder:
        """Where there is a circle: which of any of some files is the highest."""
        return Ladder([self._ranks[each] for each in numbers])

    def _order(self, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int] | None:
        count = len(numbers)
        below = np.zeros(count, np.int64)
        rows = max(1, _PAIRS // max(1, count))
        for low in range(0, count, rows):
            some = numbers[low : low + rows]
            pairs = np.repeat(some, count), np.tile(numbers, len(some))
            above = self._arrays.above(*pairs) & (pairs[0] != pairs[1])
            below[low : low + rows] = above.reshape(len(some), count).sum(axis=1)
        # Of two one stands above the other: without a circle no two stand above as many.
        return below.tolist() if len(np.unique(below)) == count else None
