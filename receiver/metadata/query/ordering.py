"""What a search found, in order: by path, by heat, by text; as much of it as is asked for.

The searches of a long answer find all of it each time, and put in order what is next. So that they
are few, a cursor keeps what comes next (`Ahead`), in a few bytes a row.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from receiver.metadata.model.paths import Pattern
from receiver.metadata.query.row_source import Look, TakenRows
from receiver.metadata.query.searching import RowNumbers, pieces
from receiver.metadata.schema.looked_up.pattern_walk import (
    WantedNodes,
    is_level,
    path_order,
    sort_keys,
    walk,
)

if TYPE_CHECKING:
    from receiver.metadata.state.state import State

__all__ = ["Ahead", "by_heat", "by_path", "first_by_text", "heats_of", "take_ahead"]

_AHEAD: Final = 1 << 14
"""Things that are kept for the next pages: a search for each page would be quadratic."""
_SORTED: Final = 20_000
"""So many rows are put into path order by sorting them; more are met on a walk over the tree."""
_SINGLE: Final = 2000
"""Things that are looked at one by one under one hold of the lock: some milliseconds."""
_WALKED: Final[dict[WantedNodes, int]] = {"leaf": 2000, "node": 2000, "device": 50}
"""Rows that a walk finds under one hold; for devices of the past it looks at all their series."""
_HEATS: Final = 1 << 14


class Ahead(NamedTuple):
    """A position in what searches find.

    Attributes:
        found: what was found already, and is next.
        last: the last of them as the search wants it; None before the first search.
        more: whether there is anything behind those.
    """

    found: Sequence[int] = ()
    last: Any = None
    more: bool = True


def take_ahead(
    position: Ahead | None,
    count: int,
    search: Callable[[Any, int], tuple[Iterable[int], Any]],
    code: str = "i",
) -> TakenRows:
    """The next ones that searches find.

    Args:
        position: behind the last that was taken.
        count: how many to take.
        search: finds, behind `last`, as many as it is told; gives them, and the new `last`.
        code: of an array that holds them.
    """
    position = position or Ahead()
    if position.more and len(position.found) < count:
        found, last = search(position.last, _AHEAD)
        fresh = array(code, found)
        position = Ahead(
            array(code, position.found) + fresh,
            last if fresh else position.last,
            len(fresh) == _AHEAD,
        )
    taken, rest = position.found[:count], position.found[count:]
    return TakenRows(taken, position._replace(found=rest), position.more or bool(rest))


# -- by path ---------------------------------------------------------------------------------------


def by_path(
    look: Look, rows: RowNumbers, within: Pattern, wanted: WantedNodes, last: int | None, count: int
) -> list[int]:
    """The first rows in path order.

    Args:
        look: at the state.
        rows: in no order.
        within: all of them match it, and not much else.
        wanted: what they are.
        last: a row: those behind it; None: all.
        count: how many.
    """
    if len(rows) > _SORTED:
        return _met(look, rows, within, wanted, last, count)
    if last is None:
        with look as (state, _):
            if is_level(state.schema.tree, rows):  # some milliseconds at most
                return rows[path_order(state.schema.tree, rows)][:count].tolist()  # type: ignore[no-any-return]
    listed = rows.tolist()
    found = sorted(zip(_path_keys(look, listed), listed, strict=True))
    if last is not None:
        (border,) = _path_keys(look, [last])
        found = [each for each in found if each[0] > border]
    return [row for _, row in found[:count]]


def _path_keys(look: Look, rows: list[int]) -> list[str]:
    keys: list[str] = []
    for part in pieces(len(rows), _SINGLE):
        with look as (state, _):
            keys += sort_keys(state.schema.tree, rows[part])
    return keys


def _met(
    look: Look, rows: RowNumbers, within: Pattern, wanted: WantedNodes, last: int | None, count: int
) -> list[int]:
    """Those of many rows that a walk meets first."""
    marks = np.zeros(int(rows.max()) + 1, np.uint8)
    marks[rows] = 1
    is_marked, top = marks.tobytes(), len(marks)
    step = _WALKED[wanted]
    found: list[int] = []
    while len(found) < count:
        with look as (state, at):
            tree = state.schema.tree
            after = None if last is None else tree.nodes(last)
            met = list(islice(walk(tree, within, at, wanted, after), step))
        found += [row for row in met if row < top and is_marked[row]]
        if len(met) < step:
            break
        last = met[-1]
    return found[:count]


# -- by heat ---------------------------------------------------------------------------------------


def heats_of(look: Look, rows: RowNumbers) -> RowNumbers:
    """The heat of each row."""
    found = [np.empty(0, np.int64)]
    for part in pieces(len(rows), _HEATS):
        with look as (state, at):
            found.append(state.schema.columns.heats.get_many(rows[part], at))
    return np.concatenate(found)


def by_heat(
    look: Look, rows: RowNumbers, within: Pattern, last: tuple[int, int] | None, count: int
) -> tuple[list[int], tuple[int, int] | None]:
    """The hottest series, those without heat last, equal ones by path.

    Args:
        look: at the state.
        rows: in no order.
        within: as of `by_path`.
        last: a heat and a row of it: the series behind that; None: all.
        count: how many.

    Returns:
        rows, and of the last of them heat and row.
    """
    heats = heats_of(look, rows)
    found: list[int] = []
    if last is not None:
        # Only what is behind is put in order, so that late pages cost no more than early ones.
        heat, row = last
        found = by_path(look, rows[heats == heat], within, "leaf", row, count)
        behind = heats < heat
        rows, heats = rows[behind], heats[behind]
    if len(found) < count and len(rows):
        found += _hottest(look, rows, heats, within, count - len(found))
    if not found:
        return found, last
    with look as (state, at):
        return found, (state.schema.columns.heats.get(found[-1], at), found[-1])


def _hottest(
    look: Look, rows: RowNumbers, heats: RowNumbers, within: Pattern, count: int
) -> list[int]:
    if count >= len(rows):
        return _sorted_by_heat(look, rows, heats)
    place = len(heats) - count
    least = np.partition(heats, place)[place]
    hotter = heats > least
    first = _sorted_by_heat(look, rows[hotter], heats[hotter])
    ties = rows[heats == least]
    return first + by_path(look, ties, within, "leaf", None, count - len(first))


def _sorted_by_heat(look: Look, rows: RowNumbers, heats: RowNumbers) -> list[int]:
    listed = rows.tolist()
    keys = zip((-heats.astype(object)).tolist(), _path_keys(look, listed), listed, strict=True)
    return [row for _, _, row in sorted(keys)]


# -- by text ---------------------------------------------------------------------------------------


def first_by_text(
    look: Look,
    numbers: RowNumbers,
    texts: Callable[[State, list[int]], list[Any]],
    last: Any,
    count: int,
) -> tuple[list[int], Any]:
    """The first of many things in the order of their texts.

    Args:
        look: at the state.
        numbers: of the things, in no order; no two have the same text.
        texts: of some of them, or other values to be ordered by.
        last: a text: those behind it; None: all.
        count: how many.

    Returns:
        numbers, and the text of the last of them.
    """
    listed = numbers.tolist()
    best: list[tuple[Any, int]] = []
    for part in pieces(len(listed), _SINGLE):
        with look as (state, _):
            found = texts(state, listed[part])
        bound = best[-1][0] if len(best) == count else None
        best += [
            (text, number)
            for text, number in zip(found, listed[part], strict=True)
            if (last is None or text > last) and (bound is None or text < bound)
        ]
        best.sort()
        del best[count:]
    return [number for _, number in best], best[-1][0] if best else last
