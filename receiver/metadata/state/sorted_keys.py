"""Sorted keys with cheap changes and pages: an order is made when somebody asks for it."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SortedKeys"]

_BLOCK = 1000
"""Keys of a block as it is made; it is cut in two when it has twice as many."""
_SHARE = 8
"""If more than this part of the keys changed, all are sorted anew: that is cheaper then."""
_settling = threading.Lock()
"""Who leads the commits asks without the lock of readers, so two may want an order at one time."""


class SortedKeys:
    """A set of texts that gives pages in order, in O(page + log n + changes since the last one).

    The keys lie in blocks: a single list of a million would be moved in memory for every addition,
    and whoever asks for a page holds the lock that commits wait for.
    """

    __slots__ = ("_added", "_blocks", "_firsts", "_removed", "_settled")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._firsts: list[str] = []
        self._settled = 0
        self._added: set[str] = set()
        self._removed: set[str] = set()

    def __len__(self) -> int:
        return self._settled + len(self._added) - len(self._removed)

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        if key in self._removed:
            self._removed.remove(key)
        else:
            self._added.add(key)

    def add_many(self, keys: Sequence[str]) -> None:
        """Add keys that are not there, none of them twice."""
        if self._removed:
            for key in keys:
                self.add(key)
        else:
            self._added.update(keys)

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        if key in self._added:
            self._added.remove(key)
        else:
            self._removed.add(key)

    def shrink(self) -> None:
        """Give back the room of many changes that were taken back before they were settled."""
        self._added, self._removed = set(self._added), set(self._removed)

    def page(self, after: str | None, limit: int) -> list[str]:
        """Up to `limit` keys that sort after `after` (from the first, for None)."""
        self.settle()
        found: list[str] = []
        for block in islice(self._blocks, 0 if after is None else self._block_of(after), None):
            if len(found) >= limit:
                break
            begin = 0 if after is None or found else bisect_right(block, after)
            found += block[begin : begin + limit - len(found)]
        return found

    def starting(self, prefix: str) -> list[str]:
        """All keys that begin with `prefix`, in order."""
        self.settle()
        found: list[str] = []
        for block in islice(self._blocks, self._block_of(prefix), None):
            begin = bisect_left(block, prefix)
            # Cut to the length of the prefix, keys in order are in order still.
            end = bisect_right(block, prefix, begin, key=lambda key: key[: len(prefix)])
            found += block[begin:end]
            if end < len(block):
                break
        return found

    def _block_of(self, key: str) -> int:
        """The block that a key is in, if it is there at all."""
        return max(0, bisect_right(self._firsts, key) - 1)

    def settle(self) -> None:
        """Bring what has changed in order; after many changes better before a lock is held."""
        if self._added or self._removed:
            with _settling:
                self._settle()

    def _settle(self) -> None:
        if (len(self._added) + len(self._removed)) * _SHARE > self._settled:
            self._sort_anew()
        else:
            for key in self._removed:
                self._take_out(key)
            for key in self._added:
                self._put_in(key)
        self._settled = len(self)
        self._removed.clear()
        self._added.clear()

    def _sort_anew(self) -> None:
        keys = [key for block in self._blocks for key in block if key not in self._removed]
        keys.extend(sorted(self._added))
        keys.sort()  # two runs: timsort merges them in one pass
        self._blocks = [keys[at : at + _BLOCK] for at in range(0, len(keys), _BLOCK)]
        self._firsts = [block[0] for block in self._blocks]

    def _take_out(self, key: str) -> None:
        number = self._block_of(key)
        block = self._blocks[number]
        del block[bisect_left(block, key)]
        if block:
            self._firsts[number] = block[0]
        else:
            del self._blocks[number], self._firsts[number]

    def _put_in(self, key: str) -> None:
        number = self._block_of(key)
        block = self._blocks[number]
        insort(block, key)
        self._firsts[number] = block[0]
        if len(block) >= 2 * _BLOCK:
            self._blocks[number : number + 1] = block[:_BLOCK], block[_BLOCK:]
            self._firsts.insert(number + 1, block[_BLOCK])
