"""A hash table from two integers to a row that has them, in one array of four bytes a slot.

The keys are not in the table but in two columns of the rows. Open addressing with linear probing;
removal shifts back what stood behind, so there are no tombstones, and many keys can be looked up or
put in at once by numpy, one step of all their probes at a time.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from receiver.metadata.schema.tree_columns.growing_columns import Ints, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PairIndex", "fill_slots"]

_M: Final = (1 << 64) - 1
# Odd constants with well mixed bits (of the golden ratio, and of splitmix64).
_A: Final = 0x9E3779B97F4A7C15
_B: Final = 0xBF58476D1CE4E5B9
_C: Final = 0x94D049BB133111EB
_NA, _NB, _NC, _N29 = np.uint64(_A), np.uint64(_B), np.uint64(_C), np.uint64(29)
_SMALLEST: Final = 64
_FEW: Final = 400
"""Up to so many keys one by one: each costs a third of a microsecond, a step by numpy some ten."""
_FEW_NEW: Final = 40
"""The same of new keys, where one step finds a place for most: it costs as much as 40 of them."""
_FULL: Final = 0.6
"""A table grows beyond this load: probes stay at two or three on average."""


class PairIndex:
    """Which row has these two values; the columns belong to the rows, and are only read here."""

    __slots__ = ("_first", "_mask", "_second", "_shift", "_slots", "_used")

    def __init__(self, first: Ints, second: Ints, slots: Ints | None = None, used: int = 0) -> None:
        self._first = first
        self._second = second
        self._used = used
        self._set_slots(array("i", [-1]) * _SMALLEST if slots is None else slots)

    @property
    def slots(self) -> Ints:
        """The table, to be frozen."""
        return self._slots

    def _set_slots(self, slots: Ints) -> None:
        self._slots = slots
        self._mask = len(slots) - 1
        self._shift = 65 - len(slots).bit_length()

    def find(self, a: int, b: int) -> int:
        """The row of a key, -1 for none."""
        slots, first, second = self._slots, self._first, self._second
        mixed = a * _A + b * _B & _M
        at = ((mixed ^ mixed >> 29) * _C & _M) >> self._shift
        while (row := slots[at]) >= 0:
            if second[row] == b and first[row] == a:
                return row
            at = at + 1 & self._mask
        return -1

    def put(self, a: int, b: int, row: int) -> int:
        """Let a key have this row; gives the row that it had, or -1."""
        if self._used >= len(self._slots) * _FULL:
            self._rebuild(self._used + 1)
        slots, first, second = self._slots, self._first, self._second
        mixed = a * _A + b * _B & _M
        at = ((mixed ^ mixed >> 29) * _C & _M) >> self._shift
        while (old := slots[at]) >= 0:
            if old != row and second[old] == b and first[old] == a:
                slots[at] = row
                return old
            at = at + 1 & self._mask
        slots[at] = row
        self._used += 1
        return -1

    def replace(self, old: int, row: int) -> None:
        """Let the key of row `old`, which is in the table, have another row."""
        self._slots[self._slot_of(old)] = row

    def remove(self, row: int) -> None:
        """Take a row out that is in the table."""
        slots, mask = self._slots, self._mask
        hole = self._slot_of(row)
        at = hole
        while True:
            at = at + 1 & mask
            other = slots[at]
            if other < 0:
                break
            home = self._home(self._first[other], self._second[other])
            # It may move into the hole unless its home lies behind the hole.
            if (at - home & mask) >= (at - hole & mask):
                slots[hole] = other
                hole = at
        slots[hole] = -1
        self._used -= 1

    def _slot_of(self, row: int) -> int:
        at = self._home(self._first[row], self._second[row])
        while self._slots[at] != row:
            at = at + 1 & self._mask
        return at

    def _home(self, a: int, b: int) -> int:
        mixed = a * _A + b * _B & _M
        return ((mixed ^ mixed >> 29) * _C & _M) >> self._shift

    # -- many at once --

    def find_many(self, a: int | NDArray[Any], b: NDArray[Any]) -> NDArray[np.int32]:
        """The rows of many keys, -1 for none.

        Args:
            a: the first value of each, or of all.
            b: the second value of each; a negative one is not found.
        """
        at = self._homes(a, b)
        if not isinstance(a, np.ndarray) and len(b) <= _FEW:
            return self._find_few(a, b.tolist(), at.tolist())
        found = np.full(len(b), -1, np.int32)
        slots, first, second = view(self._slots), view(self._first), view(self._second)
        pending = np.arange(len(b))
        while len(pending):
            rows = slots[at]
            there = rows >= 0
            if not there.all():
                pending, at, rows = pending[there], at[there], rows[there]
            wanted = a[pending] if isinstance(a, np.ndarray) else a
            hit = (second[rows] == b[pending]) & (first[rows] == wanted)
            if hit.any():
                found[pending[hit]] = rows[hit]
                rest = ~hit
                pending, at = pending[rest], at[rest]
            at = at + 1 & self._mask
        return found

    def _find_few(self, a: int, keys: list[int], homes: list[int]) -> NDArray[np.int32]:
        """Up to some hundreds: a step of all probes by numpy takes longer than these one by one."""
        slots, first, second, mask = self._slots, self._first, self._second, self._mask
        found = array("i", bytes(4 * len(keys)))
        for i, (b, at) in enumerate(zip(keys, homes, strict=True)):
            while (row := slots[at]) >= 0:
                if second[row] == b and first[row] == a:
                    break
                at = at + 1 & mask
            found[i] = row
        return view(found).astype(np.int32)

    def put_new(self, a: int | NDArray[Any], b: NDArray[Any], rows: NDArray[Any]) -> None:
        """Put keys in that are not there, none of them twice."""
        if self._used + len(rows) >= len(self._slots) * _FULL:
            self._rebuild(self._used + len(rows))
        fill_slots(self._slots, self._homes(a, b), rows)
        self._used += len(rows)

    def _homes(self, a: int | NDArray[Any], b: NDArray[Any]) -> NDArray[np.int64]:
        # The one value of all is multiplied by Python, which does not warn of what overflows.
        some = a.astype(np.uint64) * _NA if isinstance(a, np.ndarray) else np.uint64(a * _A & _M)
        mixed = b.astype(np.uint64) * _NB + some
        mixed ^= mixed >> _N29
        mixed *= _NC
        return (mixed >> np.uint64(self._shift)).astype(np.int64)

    def _rebuild(self, used: int) -> None:
        """A table with room for so many keys and as many again."""
        old = view(self._slots)
        rows = old[old >= 0]
        del old
        size = _SMALLEST
        while size * _FULL * 0.75 < used:
            size *= 2
        self._set_slots(array("i", [-1]) * size)
        homes = self._homes(view(self._first)[rows], view(self._second)[rows])
        fill_slots(self._slots, homes, rows)


def fill_slots(table: Ints, homes: NDArray[np.int64], rows: NDArray[Any]) -> None:
    """Put rows into a table at or behind their homes; it has room, and none of them."""
    mask = len(table) - 1
    slots, at = view(table), homes
    while len(rows) > _FEW_NEW:
        empty = slots[at] < 0
        # Of several rows with the same slot the last one stays; the others go on.
        slots[at[empty]] = rows[empty]
        rest = slots[at] != rows
        at, rows = at[rest] + 1 & mask, rows[rest]
    for place, row in zip(at.tolist(), rows.tolist(), strict=True):
        while table[place] >= 0:
            place = place + 1 & mask
        table[place] = row
