"""Searches through the whole schema, in pieces: nobody waits for longer than one takes.

Columns are copied or looked through piece by piece, each under a hold of the lock, and put together
without it. Rows (postings, names) that are there at the commit of the question keep their numbers,
so that pieces of different moments fit together; all others are left out as they are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from receiver.metadata.model.paths import MANY, ONE, ROOT, Partial, Pattern
from receiver.metadata.query.source import Look
from receiver.metadata.query.statements import ALL
from receiver.metadata.schema.columns import view
from receiver.metadata.schema.names import containing
from receiver.metadata.schema.tree import KIND, LEAF, ROOT_ROW, STORAGE_GROUP
from receiver.metadata.schema.walk import Wanted, few, matching

if TYPE_CHECKING:
    from receiver.metadata.query.statements import TagFilter

__all__ = [
    "Rows",
    "ancestors",
    "distinct",
    "pieces",
    "select",
    "storage_groups",
    "tag_keys",
    "tag_pairs",
    "tagged",
    "texts_of",
]

Rows = NDArray[Any]
"""Rows of the tree, or numbers of other things."""

_COLUMN: Final = 1 << 17
"""Values of a column under one hold: about a millisecond."""
_SINGLE: Final = 2000
"""Things that are looked at one by one under one hold: some milliseconds."""
_FEW: Final = 20_000
"""So many rows are compared with a pattern one by one; more by columns."""
_WIDEST: Final = 61
"""Steps of a pattern whose state fits into a column."""


def pieces(count: int, size: int) -> Iterator[slice]:
    """Slices of `size`, which together are `count` long."""
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))


class _Columns:
    """Columns of all nodes that are there (no aliases): `kind` is 0 where none is."""

    def __init__(self, look: Look) -> None:
        with look as (state, _):
            count = len(state.schema.tree)
        self.parent = np.empty(count, np.int32)
        self.name = np.empty(count, np.int32)
        self.kind = np.empty(count, np.uint8)
        self.depth = np.empty(count, np.uint8)
        for part in pieces(count, _COLUMN):
            with look as (state, at):
                tree = state.schema.tree
                self.parent[part] = view(tree.parent)[part]
                self.name[part] = view(tree.name)[part]
                self.depth[part] = view(tree.depth)[part]
                kind = view(tree.kind)[part] & KIND
                there = tree.visible(part, at) & (kind <= LEAF)  # type: ignore[arg-type]  # a slice does as well
                self.kind[part] = np.where(there, kind, 0)

    def wanted(self, wanted: Wanted) -> NDArray[np.bool_]:
        """Marks those that are wanted, whatever their path."""
        if wanted == "node":
            return self.kind > 0
        leaves: NDArray[np.bool_] = self.kind == LEAF
        if wanted == "leaf":
            return leaves
        devices = np.zeros(len(leaves), bool)
        devices[self.parent[leaves]] = True
        return devices


# -- by path ---------------------------------------------------------------------------------------


def select(look: Look, pattern: Pattern, wanted: Wanted) -> Rows:
    """Rows that match, in no order."""
    with look as (state, at):
        found = few(state.schema.tree, pattern, at, wanted)
    return _select(look, _Columns(look), pattern, wanted) if found is None else found


def _select(look: Look, columns: _Columns, pattern: Pattern, wanted: Wanted) -> Rows:
    fits = columns.wanted(wanted)
    if pattern == ALL:
        fits[ROOT_ROW] = False
        return np.flatnonzero(fits)
    if len(pattern.steps) > _WIDEST:
        return _matching(look, pattern, np.flatnonzero(fits))
    return np.flatnonzero(fits & _States(look, columns, pattern).matched())


class _States:
    """How far a pattern has come at each node: a bit for each number of steps, one level at a time.

    It costs the same for few hits as for many, some 20 ms for a million rows.
    """

    def __init__(self, look: Look, columns: _Columns, pattern: Pattern) -> None:
        self._look = look
        self._columns = columns
        self._pattern = pattern
        self._state = np.zeros(len(columns.kind), np.int64)
        with look as (state, _):
            find = state.schema.tree.names.find
            self._numbers = {step: find(step) for step in pattern.steps if isinstance(step, str)}

    def matched(self) -> NDArray[np.bool_]:
        """Marks the nodes whose path is meant."""
        columns, steps = self._columns, self._pattern.steps
        self._state[ROOT_ROW] = self._pattern.advance(self._pattern.START, ROOT)
        deepest = int(columns.depth.max(initial=0))
        for level in range(1, deepest + 1):
            rows = np.flatnonzero((columns.depth == level) & (columns.kind > 0))
            rows = rows[self._state[columns.parent[rows]] != 0]
            if not len(rows):
                break
            self._state[rows] = self._advanced(rows)
        found: NDArray[np.bool_] = (self._state >> len(steps)) & 1 == 1
        return found

    def _advanced(self, rows: Rows) -> NDArray[np.int64]:
        before = self._state[self._columns.parent[rows]]
        after = np.zeros(len(rows), np.int64)
        for i, step in enumerate(self._pattern.steps):
            active = (before >> i) & 1
            if not active.any():
                continue
            if step is MANY:
                after |= active * (3 << i)
            elif step is ONE:
                after |= active * (2 << i)
            else:
                after |= (active & self._named(rows, step)) * (2 << i)
        return after

    def _named(self, rows: Rows, step: Any) -> NDArray[np.bool_]:
        numbers = self._columns.name[rows]
        if not isinstance(step, Partial):
            same: NDArray[np.bool_] = numbers == self._numbers[step]
            return same
        different, which = np.unique(numbers, return_inverse=True)
        fits = [step.matches(text) for text in texts_of(self._look, different)]
        named: NDArray[np.bool_] = np.array(fits, bool)[which]
        return named


def storage_groups(look: Look, patterns: Sequence[Pattern]) -> Rows:
    """Rows of the storage groups that match, in no order; a path means itself and what is below."""
    with look as (state, _):
        count = len(state.schema.tree)
    parts = [np.empty(0, np.int64)]
    for part in pieces(count, _COLUMN):
        with look as (state, at):
            tree = state.schema.tree
            kind = view(tree.kind)[part] & KIND
            there = tree.visible(part, at) & (kind == STORAGE_GROUP)  # type: ignore[arg-type]  # see above
            parts.append(np.flatnonzero(there) + part.start)
    found = np.concatenate(parts)
    if ALL in patterns:
        return found
    wider = [each.below() for each in patterns if each.is_path]
    matched = [_matching(look, each, found) for each in (*patterns, *wider)]
    return distinct(np.concatenate(matched))


def texts_of(look: Look, numbers: Rows) -> Iterator[str]:
    """The texts of names that are in use."""
    listed = numbers.tolist()
    for part in pieces(len(listed), _SINGLE):
        with look as (state, _):
            found = state.schema.tree.names.texts(listed[part])
        yield from found


def _matching(look: Look, pattern: Pattern, rows: Rows) -> Rows:
    """Those of some rows whose path is meant."""
    listed, found = rows.tolist(), []
    for part in pieces(len(listed), _SINGLE):
        with look as (state, _):
            found += matching(state.schema.tree, pattern, listed[part])
    return np.array(found, np.int64)


def ancestors(look: Look, rows: Rows, level: int) -> Rows:
    """The ancestor at a level (root is 0), or the node itself, of each node that is no higher."""
    if len(rows) <= _FEW:
        return _ancestors_of_few(look, rows.tolist(), level)
    columns = _Columns(look)
    found: Rows = rows[columns.depth[rows].astype(np.int64) >= level]
    while len(below := np.flatnonzero(columns.depth[found].astype(np.int64) > level)):
        found[below] = columns.parent[found[below]]
    return found


def _ancestors_of_few(look: Look, rows: list[int], level: int) -> Rows:
    found = []
    for part in pieces(len(rows), _SINGLE):
        with look as (state, _):
            depth, parent = state.schema.tree.depth, state.schema.tree.parent
            for each in rows[part]:
                row = each
                while depth[row] > level:
                    row = parent[row]
                if depth[row] == level:
                    found.append(row)
    return np.array(found, np.int64)


# -- by tag ----------------------------------------------------------------------------------------


def tagged(look: Look, where: TagFilter, pattern: Pattern) -> Rows:
    """Rows of the series with a tag whose path matches, in no order."""
    if where.contains:
        rows = _containing(look, where.key, where.value)
    else:
        with look as (state, at):
            rows = state.schema.index.find(where.key, where.value, at)
    if pattern == ALL:
        return rows
    if len(rows) > _FEW:
        return np.intersect1d(rows, select(look, pattern, "leaf"))
    return _matching(look, pattern, rows)


def _containing(look: Look, key: str, text: str) -> Rows:
    with look as (state, _):
        index, names = state.schema.index, state.schema.tree.names
        number, postings = names.find(key), len(index.pair)
        if number < 0:
            return np.empty(0, np.int32)
        keys, values = view(index.key).copy(), view(index.value).copy()
        blob, starts, lengths = names.copies()
    fits = np.zeros(len(starts), bool)
    fits[containing(blob, starts, lengths, text)] = True
    of_key = np.flatnonzero(keys == number)
    pairs = np.zeros(len(keys), bool)
    pairs[of_key[fits[values[of_key]]]] = True
    found = [np.empty(0, np.int32)]
    for part in pieces(postings, _COLUMN):
        with look as (state, at):
            index = state.schema.index
            there = index.visible(part, at) & _marked(view(index.pair)[part], pairs)
            found.append(view(index.row)[part][there].astype(np.int32))
    return np.concatenate(found)


def _marked(numbers: Rows, marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which numbers are marked; what is newer than the marks is not."""
    if not len(marks):
        return np.zeros(len(numbers), bool)
    known = (numbers >= 0) & (numbers < len(marks))
    found: NDArray[np.bool_] = known & marks[np.where(known, numbers, 0)]
    return found


def tag_pairs(look: Look, pattern: Pattern, key: str | None = None) -> Rows:
    """Pairs (tag key, value) that series which match have.

    Args:
        look: at the state.
        pattern: of series.
        key: only with this tag; None for all.
    """
    rows = None if pattern == ALL else _marks(select(look, pattern, "leaf"))
    with look as (state, _):
        index = state.schema.index
        number = -1 if key is None else state.schema.tree.names.find(key)
        postings, keys = len(index.pair), view(index.key).copy()
    met = np.zeros(len(keys), bool)
    for part in pieces(postings, _COLUMN):
        with look as (state, at):
            index = state.schema.index
            there = index.visible(part, at)
            if rows is not None:
                there &= _marked(view(index.row)[part], rows)
            pairs = view(index.pair)[part][there]
            met[pairs[pairs < len(met)]] = True
    return np.flatnonzero(met if key is None else met & (keys == number))


def distinct(rows: Rows) -> Rows:
    """Each once; many times as fast as a sort, for numbers that are dense."""
    return np.flatnonzero(_marks(rows))


def _marks(rows: Rows) -> NDArray[np.bool_]:
    marks = np.zeros(int(rows.max(initial=-1)) + 1, bool)
    marks[rows] = True
    return marks


def tag_keys(look: Look, pattern: Pattern) -> Rows:
    """Numbers of the names of the tag keys that series which match have."""
    pairs = tag_pairs(look, pattern)
    with look as (state, _):
        keys: Rows = view(state.schema.index.key)[pairs]
    return distinct(keys)
