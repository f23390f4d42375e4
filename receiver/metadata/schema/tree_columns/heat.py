"""Heat: the newest timestamp loaded of each series, with what it was before.

A file mostly moves all series of a device from the same time to another. Such a step is one entry
of the undo log, for the device; other steps have an entry a series. Entries of one series or device
are a chain; they lie in the order of their commits, so that history lets go of the first ones.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from common.errors import DamagedError
from receiver.metadata.schema.tree_columns.growing_columns import (
    Ints,
    Section,
    append_many,
    reach,
    restore,
    view,
)
from receiver.metadata.schema.tree_columns.node_tree import KIND, LEAF

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from receiver.metadata.schema.tree_columns.node_tree import NodeTree

__all__ = ["COLD", "Heat"]

COLD: Final = -(1 << 63)
"""No timestamp yet. A point at the very first instant there is counts as none."""
_FEW: Final = 24
"""Up to so many series one by one: each costs a third of a microsecond, all by numpy some ten."""
_NEVER: Final = np.iinfo(np.int32).max
_COLUMNS: Final = ("now", "head", "ts", "old", "older")


class Heat:
    """Columns by row: `now` (its heat) and `head` (its newest entry; a device's row has one too).

    Columns by entry: `ts`, `old` (heat before it), `older` (entry of the same row, -1).
    """

    __slots__ = ("_tree", *_COLUMNS)

    def __init__(self, tree: NodeTree) -> None:
        self._tree = tree
        self.now: Ints = array("q")
        self.head: Ints = array("i")
        self.ts: Ints = array("q")
        self.old: Ints = array("q")
        self.older: Ints = array("i")

    def raise_to(
        self, device: int, rows: Sequence[int], lasts: Sequence[int | None], ts: int, *, ended: bool
    ) -> None:
        """Series of a device have points up to these times; an older time changes nothing.

        Args:
            device: its row.
            rows: below it; what is no series has no heat.
            lasts: newest time of each, None without points.
            ts: of the commit.
            ended: whether something was deleted earlier in this commit: a step of the device would
                seem to be one of such a series too.
        """
        is_block = isinstance(rows, range)
        reach(self.now, (rows[-1] if is_block else max(rows)) + 1, COLD)
        if is_block and not ended and self._raise_together(device, rows, lasts, ts):
            return
        if len(rows) <= _FEW:
            self._raise_each(device, rows, lasts, ts, ended=ended)
        else:
            self._raise_many(device, rows, lasts, ts, ended=ended)

    def _raise_together(
        self, device: int, rows: Sequence[int], lasts: Sequence[int | None], ts: int
    ) -> bool:
        """Raise all series of a device, which lie side by side, from one time; False: it is not so.

        Newer than that time may be all or none.
        """
        tree, first, count = self._tree, rows[0], len(rows)
        end = first + count
        times = [last for last in lasts if last is not None]
        if not len(times) == count == tree.leaves[tree.ref[device]]:
            return False
        before = self.now[first]
        if self.now[first:end] != array("q", (before,)) * count:
            return False
        if max(times) <= before:
            return True
        if min(times) <= before or max(tree.created[first:end]) >= ts:
            return False
        self.now[first:end] = array("q", times)
        self._step(device, before, ts)
        return True

    def _step(self, what: int, before: int, ts: int) -> None:
        """Remember what heat a series, or all of a device, had before a commit."""
        reach(self.head, what + 1, -1)
        self.older.append(self.head[what])
        self.head[what] = len(self.ts)
        self.old.append(before)
        self.ts.append(ts)

    def _raise_each(
        self, device: int, rows: Sequence[int], lasts: Sequence[int | None], ts: int, *, ended: bool
    ) -> None:
        tree, now = self._tree, self.now
        kinds, created = tree.kind, tree.created
        known, before, hotter = [], [], 0
        for row, last in zip(rows, lasts, strict=True):
            heat = now[row]
            if last is None or last <= heat or kinds[row] & KIND != LEAF:
                continue
            hotter += 1
            now[row] = last
            # A series that this very commit made is not seen before it.
            if created[row] < ts:
                known.append(row)
                before.append(heat)
        if not known:
            return
        whole = not ended and hotter == tree.leaves[tree.ref[device]]
        if whole and before.count(before[0]) == len(before):
            self._step(device, before[0], ts)
            return
        for row, heat in zip(known, before, strict=True):
            self._step(row, heat, ts)

    def _raise_many(
        self, device: int, rows: Sequence[int], lasts: Sequence[int | None], ts: int, *, ended: bool
    ) -> None:
        """`_raise_each` by numpy."""
        tree = self._tree
        where = np.array(rows, np.int32)
        if None in lasts:
            lasts = [COLD if last is None else last for last in lasts]
        when = np.array(lasts, np.int64)
        now = view(self.now)
        hotter = (when > now[where]) & (view(tree.kind)[where] & KIND == LEAF)
        where, when = where[hotter], when[hotter]
        known = where[view(tree.created)[where] < ts]
        old = now[known]
        now[where] = when
        if not len(known):
            return
        whole = not ended and len(where) == tree.leaves[tree.ref[device]]
        if whole and (old == old[0]).all():
            self._step(device, int(old[0]), ts)
            return
        self._step_many(known, old, ts)

    def raise_blocks(
        self,
        devices: NDArray[np.int32],
        begins: NDArray[np.int32],
        counts: NDArray[np.int32],
        lasts: NDArray[np.int64],
        ts: int,
    ) -> NDArray[np.bool_]:
        """`raise_to` of many devices whose series lie side by side, none of them twice.

        Args:
            devices: their rows.
            begins: row of the first series of each.
            counts: how many follow it, with itself.
            lasts: newest time of each series, `COLD` without points.
            ts: of the commit; nothing was deleted in it.

        Returns:
            for which it is done: all of their series go from one time to newer ones, or none.
        """
        tree, at = self._tree, np.cumsum(counts) - counts
        rows = np.repeat(begins - at, counts) + np.arange(len(lasts))
        reach(self.now, int(rows.max()) + 1, COLD)
        now = view(self.now)
        heats = now[rows]
        before = heats[at]
        whole = view(tree.leaves)[view(tree.ref)[devices]] == counts
        whole &= np.minimum.reduceat(heats, at) == np.maximum.reduceat(heats, at)
        still = whole & (np.maximum.reduceat(lasts, at) <= before)
        created = view(tree.created)[rows]
        known = np.maximum.reduceat(created, at) < ts
        # A series that this very commit made is not seen before it.
        made = np.minimum.reduceat(created, at) >= ts
        hotter = whole & (known | made) & (np.minimum.reduceat(lasts, at) > before)
        which = np.repeat(hotter, counts)
        now[rows[which]] = lasts[which]
        stepping = hotter & known
        if stepping.any():
            self._step_many(devices[stepping], before[stepping], ts)
        done: NDArray[np.bool_] = still | hotter
        return done

    def _step_many(self, what: NDArray[Any], before: NDArray[Any], ts: int) -> None:
        """`_step` of many."""
        begin = len(self.ts)
        reach(self.head, int(what.max()) + 1, -1)
        head = view(self.head)
        append_many(self.older, head[what])
        head[what] = np.arange(begin, begin + len(what), dtype=np.int32)
        append_many(self.old, before)
        append_many(self.ts, np.full(len(what), ts))

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
    def thaw(
        cls, tree: NodeTree, sections: Mapping[str, memoryview | bytes], *, swap: bool
    ) -> Heat:
        """What was frozen."""
        made = cls(tree)
        for name in _COLUMNS:
            restore(sections, f"heat.{name}", getattr(made, name), swap=swap)
        if not len(made.ts) == len(made.old) == len(made.older):
            raise DamagedError("the schema's sections heat.* do not fit together")
        return made
