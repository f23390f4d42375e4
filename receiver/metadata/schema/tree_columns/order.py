"""Children in the order of their names: sorted when asked for, and kept where there are many.

Who checks a commit asks without the lock of the readers, so two may ask at once. Rows that were
given out therefore never change, and one at a time puts into order what is new: a child that was
put in twice would stay when its row is given to a node elsewhere.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from receiver.metadata.schema.tree_columns.growing_columns import Ints, view

if TYPE_CHECKING:
    from receiver.metadata.schema.tree_columns.name_table import NameTable

__all__ = ["Order"]

_SORTED_FROM: Final = 256
"""Children whose order is kept; fewer are sorted each time, in some ten microseconds."""
_RESORT: Final = 4
"""With more new children than this part of all, all are sorted; fewer are put in one by one."""


class Order:
    """The children of any node by name; those of one name by row, whatever was asked before."""

    __slots__ = ("_children", "_known", "_name", "_names", "_one")

    def __init__(self, name: Ints, names: NameTable, children: Callable[[int], list[int]]) -> None:
        """Order the rows of a tree.

        Args:
            name: its column, the number of each row's name.
            names: their texts.
            children: gives all rows below one, in no order.
        """
        self._name = name
        self._names = names
        self._children = children
        self._one = threading.Lock()
        self._known: dict[int, _Children] = {}

    def keeps(self, parent: int) -> bool:
        """Whether it has to be told of new children of a parent."""
        return parent in self._known

    def added(self, parent: int, rows: Sequence[int]) -> None:
        """A parent has new children."""
        if (known := self._known.get(parent)) is not None:
            known.fresh.extend(rows)

    def dropped(self, parent: int, row: int) -> None:
        """A child, which still has its name, is no more."""
        if (known := self._known.get(parent)) is not None:
            with self._one:
                rows = self._settled(known)
                at = bisect_left(rows, self._key(row), key=self._key)
                assert rows[at] == row, "a child is missing in the order of its parent"
                del rows[at]  # nobody has them now: it is done with the lock of the readers

    def forget(self, parent: int) -> None:
        """A parent is no more."""
        self._known.pop(parent, None)

    def children(self, parent: int, begin: str | None = None) -> list[int] | Ints:
        """All rows below a parent by name, from the name `begin` on; of all times, aliases too."""
        known = self._known.get(parent)
        if known is None:
            rows = self._children(parent)
            if len(rows) < _SORTED_FROM:
                return self._sorted(rows, begin)
            known = self._known.setdefault(parent, _Children(array("i"), rows))
        with self._one:
            ordered = self._settled(known)
        if begin is None:
            return ordered
        text, name = self._names.text, self._name
        return ordered[bisect_left(ordered, begin, key=lambda row: text(name[row])) :]

    def _sorted(self, rows: list[int], begin: str | None) -> list[int]:
        if len(rows) < 2 and begin is None:
            return rows
        name = self._name
        pairs = sorted(zip(self._names.texts([name[row] for row in rows]), rows, strict=True))
        return [row for text, row in pairs if begin is None or text >= begin]

    def _settled(self, known: _Children) -> Ints:
        """The rows with the new ones among them; the caller is the only one here."""
        fresh = known.fresh
        if not fresh:
            return known.rows
        if len(fresh) * _RESORT > len(known.rows):
            numbers = np.array([*known.rows, *fresh], np.int32)
            numbers.sort()
            order = self._names.order(view(self._name)[numbers])
            rows = array("i", numbers[order].tobytes())
        else:
            rows = known.rows[:]
            for row in fresh:
                rows.insert(bisect_left(rows, self._key(row), key=self._key), row)
        known.rows = rows
        fresh.clear()
        return rows

    def _key(self, row: int) -> tuple[str, int]:
        return self._names.text(self._name[row]), row


class _Children:
    """Children of a large parent in order, and those that came since."""

    __slots__ = ("fresh", "rows")

    def __init__(self, rows: Ints, fresh: list[int]) -> None:
        self.rows = rows
        self.fresh = fresh
