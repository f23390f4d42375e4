"""Sorted keys with cheap changes and pages: an order is made when somebody asks for it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

__all__ = ["SortedKeys"]

_FEW = 64
"""Up to so many additions are inserted one by one; more are sorted in, which costs one pass."""


class SortedKeys:
    """A set of texts that gives pages in order, in O(page + log n) while little changes."""

    __slots__ = ("_added", "_keys", "_removed")

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._added: set[str] = set()
        self._removed: set[str] = set()

    def __len__(self) -> int:
        return len(self._keys) + len(self._added) - len(self._removed)

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        if key in self._removed:
            self._removed.remove(key)
        else:
            self._added.add(key)

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        if key in self._added:
            self._added.remove(key)
        else:
            self._removed.add(key)

    def page(self, after: str | None, limit: int) -> list[str]:
        """Up to `limit` keys that sort after `after` (from the first, for None)."""
        self._settle()
        begin = 0 if after is None else bisect_right(self._keys, after)
        return self._keys[begin : begin + max(0, limit)]

    def starting(self, prefix: str) -> list[str]:
        """All keys that begin with `prefix`, in order."""
        self._settle()
        begin = bisect_left(self._keys, prefix)
        # Cut to the length of the prefix, keys in order are in order still.
        end = bisect_right(self._keys, prefix, begin, key=lambda key: key[: len(prefix)])
        return self._keys[begin:end]

    def _settle(self) -> None:
        if len(self._removed) > _FEW:
            self._keys = [key for key in self._keys if key not in self._removed]
        else:
            for key in self._removed:
                del self._keys[bisect_left(self._keys, key)]
        if len(self._added) > _FEW:
            self._keys.extend(sorted(self._added))
            self._keys.sort()  # two runs: timsort merges them in one pass
        else:
            for key in self._added:
                insort(self._keys, key)
        self._removed.clear()
        self._added.clear()
