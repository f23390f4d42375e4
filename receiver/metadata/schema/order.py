"""Children in the order of their names: sorted when asked for, and kept where there are many."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from receiver.metadata.schema.columns import Ints, view

if TYPE_CHECKING:
    from receiver.metadata.schema.tree import Tree

__all__ = ["Order"]

_SORTED_FROM: Final = 256
"""Children whose order is kept; fewer are sorted each time, in some ten microseconds."""
_RESORT: Final = 4
"""With more new children than this part of all, all are sorted; fewer are put in one by one."""


class Order:
    """The children of any node by name; those of one name by row, whatever was asked before."""

    __slots__ = ("_known", "_tree")

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[int, _Children] = {}

    def added(self, parent: int, rows: Sequence[int]) -> None:
        """A parent has new children."""
        if (known := self._known.get(parent)) is not None:
            known.fresh.extend(rows)

    def dropped(self, parent: int, row: int) -> None:
        """A child, which still has its name, is no more."""
        if (known := self._known.get(parent)) is not None:
            self._settle(known)
            del known.rows[bisect_left(known.rows, self._key(row), key=self._key)]

    def forget(self, parent: int) -> None:
        """A parent is no more."""
        self._known.pop(parent, None)

    def children(self, parent: int, begin: str | None = None) -> list[int] | Ints:
        """All rows below a parent by name, from the name `begin` on; of all times, aliases too."""
        known = self._known.get(parent)
        if known is None:
            rows = self._tree.children(parent)
            if len(rows) < _SORTED_FROM:
                return self._sorted(rows, begin)
            known = self._known[parent] = _Children(array("i"), rows)
        self._settle(known)
        if begin is None:
            return known.rows
        text, name = self._tree.names.text, self._tree.name
        return known.rows[bisect_left(known.rows, begin, key=lambda row: text(name[row])) :]

    def _sorted(self, rows: list[int], begin: str | None) -> list[int]:
        if len(rows) < 2 and begin is None:
            return rows
        name = self._tree.name
        pairs = sorted(zip(self._tree.names.texts([name[row] for row in rows]), rows, strict=True))
        return [row for text, row in pairs if begin is None or text >= begin]

    def _settle(self, known: _Children) -> None:
        if len(known.fresh) * _RESORT > len(known.rows):
            rows = np.array([*known.rows, *known.fresh], np.int32)
            rows.sort()
            order = self._tree.names.order(view(self._tree.name)[rows])
            known.rows = array("i", rows[order].tobytes())
        else:
            for row in known.fresh:
                known.rows.insert(bisect_left(known.rows, self._key(row), key=self._key), row)
        known.fresh.clear()

    def _key(self, row: int) -> tuple[str, int]:
        return self._tree.names.text(self._tree.name[row]), row


class _Children:
    """Children of a large parent in order, and those that came since."""

    __slots__ = ("fresh", "rows")

    def __init__(self, rows: Ints, fresh: list[int]) -> None:
        self.rows = rows
        self.fresh = fresh
