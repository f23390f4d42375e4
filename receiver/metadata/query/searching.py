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

from receiver.metadata.model.paths import Pattern
from receiver.metadata.query.questions import ALL
from receiver.metadata.query.row_source import Look
from receiver.metadata.schema.looked_up.matching import WIDEST, NodeColumns, matching
from receiver.metadata.schema.looked_up.pattern_walk import WantedNodes, few
from receiver.metadata.schema.tree_columns.growing_columns import view
from receiver.metadata.schema.tree_columns.name_table import containing
from receiver.metadata.schema.tree_columns.node_tree import KIND, ROOT_ROW, STORAGE_GROUP

if TYPE_CHECKING:
    from receiver.metadata.query.questions import TagFilter

__all__ = [
    "RowNumbers",
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

RowNumbers = NDArray[Any]
"""Rows of the tree, or numbers of other things."""

_COLUMN: Final = 1 << 17
"""Values of a column under one hold: about a millisecond."""
_SINGLE: Final = 2000
"""Things that are looked at one by one under one hold: some milliseconds."""
_FEW: Final = 20_000
"""So many rows are compared with a pattern one by one; more by columns."""


def pieces(count: int, size: int) -> Iterator[slice]:
    """Slices of `size`, which together are `count` long."""
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))


def _columns_of(look: Look) -> NodeColumns:
    with look as (state, _):
        count = len(state.schema.tree)
    columns = NodeColumns(count)
    for part in pieces(count, _COLUMN):
        with look as (state, at):
            columns.copy(state.schema.tree, part, at)
    return columns


# -- by path ---------------------------------------------------------------------------------------


def select(look: Look, pattern: Pattern, wanted: WantedNodes) -> RowNumbers:
    """Rows that match, in no order."""
    with look as (state, at):
        found = few(state.schema.tree, pattern, at, wanted)
    if found is not None:
        return found
    columns = _columns_of(look)
    fits = columns.wanted(wanted)
    if pattern == ALL:
        fits[ROOT_ROW] = False
        return np.flatnonzero(fits)
    if len(pattern.steps) > WIDEST:
        return _matching(look, pattern, np.flatnonzero(fits))

    def find(name: str) -> int:
        with look as (state, _):
            return state.schema.tree.names.find(name)

    matched = columns.matched(pattern, find, lambda numbers: texts_of(look, numbers))
    return np.flatnonzero(fits & matched)


def storage_groups(look: Look, patterns: Sequence[Pattern]) -> RowNumbers:
    """Rows of the storage groups that match, in no order; a path means itself and what is below."""
    with look as (state, _):
        count = len(state.schema.tree)
    parts = [np.empty(0, np.int64)]
    for part in pieces(count, _COLUMN):
        with look as (state, at):
            tree = state.schema.tree
            kind = view(tree.kind)[part] & KIND
            there = tree.visible(part, at) & (kind == STORAGE_GROUP)
            parts.append(np.flatnonzero(there) + part.start)
    found = np.concatenate(parts)
    if ALL in patterns:
        return found
    wider = [each.below() for each in patterns if each.is_path]
    matched = [_matching(look, each, found) for each in (*patterns, *wider)]
    return distinct(np.concatenate(matched))


def texts_of(look: Look, numbers: RowNumbers) -> Iterator[str]:
    """The texts of names that are in use."""
    listed = numbers.tolist()
    for part in pieces(len(listed), _SINGLE):
        with look as (state, _):
            found = state.schema.tree.names.texts(listed[part])
        yield from found


def _matching(look: Look, pattern: Pattern, rows: RowNumbers) -> RowNumbers:
    """Those of some rows whose path is meant."""
    listed, found = rows.tolist(), []
    for part in pieces(len(listed), _SINGLE):
        with look as (state, _):
            found += matching(state.schema.tree, pattern, listed[part])
    return np.array(found, np.int64)


def ancestors(look: Look, rows: RowNumbers, level: int) -> RowNumbers:
    """The ancestor at a level (root is 0), or the node itself, of each node that is no higher."""
    if len(rows) <= _FEW:
        return _ancestors_of_few(look, rows.tolist(), level)
    columns = _columns_of(look)
    found: RowNumbers = rows[columns.depth[rows].astype(np.int64) >= level]
    while len(below := np.flatnonzero(columns.depth[found].astype(np.int64) > level)):
        found[below] = columns.parent[found[below]]
    return found


def _ancestors_of_few(look: Look, rows: list[int], level: int) -> RowNumbers:
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


def tagged(look: Look, where: TagFilter, pattern: Pattern) -> RowNumbers:
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


def _containing(look: Look, key: str, text: str) -> RowNumbers:
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


def _marked(numbers: RowNumbers, marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which numbers are marked; what is newer than the marks is not."""
    if not len(marks):
        return np.zeros(len(numbers), bool)
    known = (numbers >= 0) & (numbers < len(marks))
    found: NDArray[np.bool_] = known & marks[np.where(known, numbers, 0)]
    return found


def tag_pairs(look: Look, pattern: Pattern, key: str | None = None) -> RowNumbers:
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


def distinct(rows: RowNumbers) -> RowNumbers:
    """Each once; many times as fast as a sort, for numbers that are dense."""
    return np.flatnonzero(_marks(rows))


def _marks(rows: RowNumbers) -> NDArray[np.bool_]:
    marks = np.zeros(int(rows.max(initial=-1)) + 1, bool)
    marks[rows] = True
    return marks


def tag_keys(look: Look, pattern: Pattern) -> RowNumbers:
    """Numbers of the names of the tag keys that series which match have."""
    pairs = tag_pairs(look, pattern)
    with look as (state, _):
        keys: RowNumbers = view(state.schema.index.key)[pairs]
    return distinct(keys)
