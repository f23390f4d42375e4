"""Heat: the newest timestamp loaded of each series, with what it was before.

A file mostly moves all series of a device from the same time to another. Such a step is one entry
of the undo log, for the device; other steps have an entry a series. Entries of one series or device
are a chain; they lie in the order of their commits, so that history lets go of the first ones.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from common.errors import DamagedError
from receiver.metadata.schema.columns import Ints, Section, append_many, reach, restore, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from receiver.metadata.schema.tree import Tree

__all__ = ["COLD", "Heat"]

COLD: Final = -(1 << 63)
"""No timestamp yet. A point at the very first instant there is counts as none."""
_NEVER: Final = np.iinfo(np.int32).max
_COLUMNS: Final = ("now", "head", "ts", "old", "older")


class Heat:
    """Columns by row: `now` (its heat) and `head` (its newest entry; a device's row has one too).

    Columns by entry: `ts`, `old` (heat before it), `older` (entry of the same row, -1).
    """

    __slots__ = ("_tree", *_COLUMNS)

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.now: Ints = array("q")
        self.head: Ints = array("i")
        self.ts: Ints = array("q")
        self.old: Ints = array("q")
        self.older: Ints = array("i")

    def raise_to(
        self, device: int, rows: NDArray[Any], lasts: NDArray[Any], ts: int, *, ended: bool
    ) -> None:
        """Series of a device have points up to these times; an older time changes nothing.

        Args:
            device: its row.
            rows: of its series.
            lasts: newest time of each.
            ts: of the commit.
            ended: whether something was deleted earlier in this commit: a step of the device would
                seem to be one of such a series too.
        """
        tree = self._tree
        top = max(device, int(rows.max())) + 1
        reach(self.now, top, COLD)
        now = view(self.now)
        hotter = lasts > now[rows]
        rows, lasts = rows[hotter], lasts[hotter]
        if not len(rows):
            return
        # A series that this very commit made is not seen before it.
        known = rows[view(tree.created)[rows] < ts]
        old = now[known]
        now[rows] = lasts
        del now
        if not len(known):
            return
        reach(self.head, top, -1)
        whole = not ended and len(rows) == tree.leaves[tree.ref[device]]
        if whole and (old == old[0]).all():
            known, old = np.array([device], np.int32), old[:1]
        begin = len(self.ts)
        head = view(self.head)
        append_many(self.older, head[known])
        head[known] = np.arange(begin, begin + len(known), dtype=np.int32)
        append_many(self.old, old)
        append_many(self.ts, np.full(len(known), ts))

    def get(self, row: int, at: int | None) -> int:
        """The heat of a series at a time, `COLD` for none."""
        found = self.now[row] if row < len(self.now) else COLD
        if at is None:
            return found
        first = _NEVER
        end = self._tree.deleted[row] or 1 << 62
        for what in (row, self._tree.parent[row]):
            entry = self.head[what] if what < len(self.head) else -1
            while entry >= 0 and self.ts[entry] > at:
                # What its device did after the end of a series does not concern it.
                if self.ts[entry] <= end and entry < first:
                    first = entry
                entry = self.older[entry]
        return found if first == _NEVER else self.old[first]

    def get_many(self, rows: NDArray[Any], at: int | None) -> NDArray[np.int64]:
        """`get` of many."""
        found = np.full(len(rows), COLD, np.int64)
        there = rows < len(self.now)
        found[there] = view(self.now)[rows[there]]
        if at is None or not self.ts or self.ts[-1] <= at:
            return found
        first = np.full(len(rows), _NEVER, np.int64)
        deleted = view(self._tree.deleted)[rows]
        end = np.where(deleted == 0, 1 << 62, deleted)
        for what in (rows, view(self._tree.parent)[rows]):
            self._first_after(at, what, end, first)
        undone = first != _NEVER
        found[undone] = view(self.old)[first[undone]]
        return found

    def _first_after(
        self, at: int, what: NDArray[Any], end: NDArray[Any], first: NDArray[np.int64]
    ) -> None:
        """Lower `first` to the first entry of each chain between `at` and `end`."""
        ts, older = view(self.ts), view(self.older)
        active = np.flatnonzero(what < len(self.head))
        entry = view(self.head)[what[active]]
        while True:
            there = entry >= 0
            there[there] = ts[entry[there]] > at
            active, entry = active[there], entry[there]
            if not len(active):
                return
            before = ts[entry] <= end[active]
            which = active[before]
            first[which] = np.minimum(first[which], entry[before])
            entry = older[entry]

    def forget(self, row: int) -> None:
        """A row is no more."""
        if row < len(self.now):
            self.now[row] = COLD
        if row < len(self.head):
            self.head[row] = -1

    def trim(self, horizon: int) -> int:
        """Drop entries up to a commit, once they are half of all; gives how many went."""
        count = bisect_right(self.ts, horizon)
        if count * 2 <= len(self.ts) or not count:
            return 0
        for column in (self.ts, self.old, self.older):
            del column[:count]
        for column in (self.head, self.older):
            entries = view(column)
            np.maximum(entries - count, -1, out=entries)
        return count

    # -- checkpoint --

    def sections(self) -> list[Section]:
        """The columns by the names of their sections."""
        return [(f"heat.{name}", getattr(self, name)) for name in _COLUMNS]

    @classmethod
    def thaw(cls, tree: Tree, sections: Mapping[str, memoryview | bytes], *, swap: bool) -> Heat:
        """What was frozen."""
        made = cls(tree)
        for name in _COLUMNS:
            restore(sections, f"heat.{name}", getattr(made, name), swap=swap)
        if not len(made.ts) == len(made.old) == len(made.older):
            raise DamagedError("the schema's sections heat.* do not fit together")
        return made
