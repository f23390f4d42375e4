"""Columns: growing arrays of the standard library, looked at through numpy for as long as a call.

A scalar is read from an `array` in a third of the time that numpy takes, and an array grows in
place (a large one without a copy). An array that is looked at through numpy cannot grow, so a view
is never kept: it dies with the call that made it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from common.errors import DamagedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = array[int]
else:
    Ints = array  # it takes no parameter at run time before Python 3.12

__all__ = [
    "BATCH",
    "Ints",
    "Section",
    "Versions",
    "append_many",
    "grow",
    "reach",
    "restore",
    "view",
]

Section = tuple[str, "Ints | bytes | bytearray"]
"""A column with the name under which it stands in a checkpoint."""
BATCH: Final = 24
"""From so many values on numpy is faster."""
_DTYPES: dict[str, np.dtype[Any]] = {code: np.dtype(code) for code in "bBHiIqQ"}
_VERSIONS = ("heads", "ts", "values", "older", "newer", "free")
_EMPTY = {code: np.empty(0, dtype) for code, dtype in _DTYPES.items()}


def view(column: Ints) -> NDArray[np.int64]:
    """The column as numpy sees it: the same memory. Drop it before the column grows.

    The type says int64, so that what is made of it has a type at all; it is that of the column.
    """
    if not column:
        return _EMPTY[column.typecode]
    return np.frombuffer(column, _DTYPES[column.typecode])


def grow(column: Ints, count: int, fill: int = 0) -> None:
    """`count` more values, each 0 or -1."""
    byte = b"\xff" if fill else b"\0"
    column.frombytes(byte * (count * column.itemsize))


def reach(column: Ints, length: int, fill: int) -> None:
    """Make a column that is filled only as far as it is needed at least so long."""
    if len(column) < length:
        if fill in (0, -1):
            grow(column, length - len(column), fill)
        else:
            column.extend(array(column.typecode, [fill]) * (length - len(column)))


def append_many(column: Ints, values: NDArray[Any]) -> None:
    """Values of any integer type behind the others."""
    column.frombytes(values.astype(_DTYPES[column.typecode], copy=False).tobytes())


def restore(
    sections: Mapping[str, memoryview | bytes], name: str, column: Ints, *, swap: bool = False
) -> Ints:
    """Fill an empty column from a section.

    Raises:
        DamagedError: the section is missing, or no whole number of values.
    """
    try:
        column.frombytes(sections[name])
    except KeyError:
        raise DamagedError(f"the schema's section {name!r} is missing") from None
    except ValueError as error:
        raise DamagedError(f"the schema's section {name!r} is cut off") from error
    if swap:
        column.byteswap()
    return column


class Versions:
    """Values of objects over time: of each a chain of (ts, value), the newest first.

    Objects are small integers; one that never had a value costs four bytes if a higher one has.
    """

    __slots__ = ("_free", "_heads", "_newer", "_older", "_ts", "_values")

    def __init__(self) -> None:
        self._heads: Ints = array("i")
        self._ts: Ints = array("q")
        self._values: Ints = array("q")
        self._older: Ints = array("i")
        self._newer: Ints = array("i")
        self._free: Ints = array("i")

    def put(self, what: int, value: int, ts: int) -> int:
        """A new value from `ts` on; gives the entry that it replaces, to be dropped, or -1."""
        reach(self._heads, what + 1, -1)
        before = self._heads[what]
        if self._free:
            entry = self._free.pop()
            self._ts[entry], self._values[entry] = ts, value
            self._older[entry], self._newer[entry] = before, -1
        else:
            entry = len(self._ts)
            self._ts.append(ts)
            self._values.append(value)
            self._older.append(before)
            self._newer.append(-1)
        if before >= 0:
            self._newer[before] = entry
        self._heads[what] = entry
        return before

    def get(self, what: int, at: int | None, default: int) -> int:
        """The value at a time."""
        entry = self._at(what, at)
        return default if entry < 0 else self._values[entry]

    def get_many(self, what: NDArray[Any], at: int | None, default: int) -> NDArray[np.int64]:
        """`get` of many."""
        found = np.full(len(what), default, np.int64)
        active = np.flatnonzero(what < len(self._heads))
        entries = view(self._heads)[what[active]]
        ts, older = view(self._ts), view(self._older)
        while at is not None:
            late = entries >= 0
            late[late] = ts[entries[late]] > at
            if not late.any():
                break
            entries[late] = older[entries[late]]
        there = entries >= 0
        found[active[there]] = view(self._values)[entries[there]]
        return found

    def changed(self, what: int, at: int | None = None) -> int:
        """When the value of a time was put, 0 for never."""
        entry = self._at(what, at)
        return 0 if entry < 0 else self._ts[entry]

    def _at(self, what: int, at: int | None) -> int:
        entry = self._heads[what] if what < len(self._heads) else -1
        if at is not None:
            while entry >= 0 and self._ts[entry] > at:
                entry = self._older[entry]
        return entry

    def drop(self, entry: int) -> None:
        """An entry that was replaced, the oldest of its object, is no more."""
        self._older[self._newer[entry]] = -1
        self._free.append(entry)

    def forget(self, what: int) -> None:
        """Drop the value of an object whose replaced ones are dropped."""
        if what < len(self._heads) and self._heads[what] >= 0:
            self._free.append(self._heads[what])
            self._heads[what] = -1

    def sections(self, prefix: str) -> list[Section]:
        """The columns by the names of their sections."""
        return [(f"{prefix}.{name}", getattr(self, f"_{name}")) for name in _VERSIONS]

    @classmethod
    def thaw(
        cls, prefix: str, sections: Mapping[str, memoryview | bytes], *, swap: bool
    ) -> Versions:
        """What was frozen under a prefix."""
        made = cls()
        for name in _VERSIONS:
            restore(sections, f"{prefix}.{name}", getattr(made, f"_{name}"), swap=swap)
        columns = (made._ts, made._values, made._older, made._newer)
        if len({len(column) for column in columns}) != 1:
            raise DamagedError(f"the schema's sections {prefix}.* do not fit together")
        return made
