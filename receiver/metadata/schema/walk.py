"""Nodes that match a pattern: one by one in path order, or all at once in columns.

The order of paths is that of their nodes, each level by name. A walk can begin behind any path, so
a cursor needs to remember nothing but the last path it gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from receiver.metadata.model.paths import MANY, ONE, ROOT, Nodes, Partial, Pattern, Wildcard
from receiver.metadata.schema.columns import Ints, view
from receiver.metadata.schema.tree import ALIAS, KIND, LEAF, ROOT_ROW, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Wanted",
    "few",
    "has_leaves",
    "is_level",
    "matching",
    "path_order",
    "select",
    "sort_keys",
    "walk",
]

Wanted = Literal["leaf", "device", "node"]
_BUDGET: Final = 4000
"""Rows that `select` looks at one by one (some milliseconds), before it looks at all by columns."""
_RANKED: Final = 64
"""Fewer rows are put in order by their texts; numpy takes a hundred microseconds a level."""
_WIDEST: Final = 61
"""Steps of a pattern whose state fits into a column."""


class _Exhausted(Exception):
    """A walk looked at more rows than it was meant to."""


class _States:
    """`Pattern.advance`, remembered where the name does not matter."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._after: dict[int, int | None] = {}

    def after_any(self, state: int) -> int | None:
        """The state of every child, None where it depends on the name."""
        if state not in self._after:
            steps = self._pattern.steps
            active = [step for i, step in enumerate(steps) if state >> i & 1]
            same = all(isinstance(step, Wildcard) for step in active)
            self._after[state] = self._pattern.advance(state, "") if same else None
        return self._after[state]


def walk(
    tree: Tree,
    pattern: Pattern,
    at: int | None,
    wanted: Wanted,
    after: Nodes | None = None,
    budget: int | None = None,
) -> Iterator[int]:
    """Rows that match, in path order, from behind `after`; not across a commit.

    Args:
        tree: to walk.
        pattern: that paths match.
        at: the time; None for now.
        wanted: series; nodes that have series; or nodes of any kind (aliases are none).
        after: the path behind which to begin.
        budget: give up after so many rows.
    """
    state = pattern.advance(pattern.START, ROOT)
    states = _States(pattern)
    if not state:
        return
    if after is None and pattern.is_match(state) and _is_wanted(tree, ROOT_ROW, wanted, at):
        yield ROOT_ROW
    kinds, names, text = tree.kind, tree.name, tree.names.text
    created, deleted = tree.created, tree.deleted
    left = budget
    stack: list[_Level] = []
    level: _Level | None = _Level(tree, pattern, ROOT_ROW, state, at, (after or ())[1:])
    while level is not None or stack:
        if level is None:
            level = stack[-1]
        elif left is not None and (left := left - len(level.rows)) < 0:
            raise _Exhausted
        else:
            stack.append(level)
        below = states.after_any(level.state)
        by_name = below is None
        hit = below is not None and pattern.is_match(below)
        border = level.after[0] if level.after else None
        for row in level.rest:
            end = deleted[row]
            if (end and (at is None or end <= at)) or (at is not None and created[row] > at):
                continue
            kind = kinds[row] & KIND
            if kind == ALIAS:
                continue
            if by_name:
                below = pattern.advance(level.state, text(names[row]))
                hit = pattern.is_match(below)
            # `after` itself and the nodes above it come before what is asked for.
            passed = border is not None and text(names[row]) == border
            if kind == LEAF:
                if hit and not passed and wanted != "device":
                    yield row
                continue
            if hit and not passed and _is_wanted(tree, row, wanted, at):
                yield row
            if below and _leads_on(tree, row, states.after_any(below), wanted, at):
                rest = level.after[1:] if passed else ()
                level = _Level(tree, pattern, row, below, at, rest)
                break
        else:
            stack.pop()
            level = None


def _leads_on(tree: Tree, row: int, below: int | None, wanted: Wanted, at: int | None) -> bool:
    """Whether anything that is wanted may stand below a row; `below`: the state there."""
    if below == 0:
        return False
    if wanted != "device" or at is not None:
        return True
    inner = tree.ref[row]
    return tree.live[inner] > tree.leaves[inner]


class _Level:
    """Children of a node on the way of a walk; `after`: the rest of the path to begin behind."""

    __slots__ = ("after", "rest", "rows", "state")

    def __init__(
        self, tree: Tree, pattern: Pattern, row: int, state: int, at: int | None, after: Nodes
    ) -> None:
        self.after = after
        self.state = state
        self.rows = _children(tree, pattern, row, state, at, after[0] if after else None)
        self.rest = iter(self.rows)


def _children(
    tree: Tree, pattern: Pattern, row: int, state: int, at: int | None, begin: str | None
) -> list[int] | Ints:
    only = pattern.literals(state)
    if only is None:
        return tree.order.children(row, begin)
    found = []
    for name in sorted(only):
        if begin is not None and name < begin:
            continue
        number = tree.names.find(name)
        if number >= 0 and (child := tree.child(row, number, at)) >= 0:
            found.append(child)
    return found


def _is_wanted(tree: Tree, row: int, wanted: Wanted, at: int | None) -> bool:
    if wanted == "node":
        return True
    leaf = tree.kind[row] & KIND == LEAF
    return leaf if wanted == "leaf" else not leaf and has_leaves(tree, row, at)


def has_leaves(tree: Tree, row: int, at: int | None) -> bool:
    """Whether an inner node is a device."""
    if at is None:
        return tree.leaves[tree.ref[row]] > 0
    kinds = tree.kind
    return any(
        kinds[child] & KIND == LEAF and tree.is_visible(child, at) for child in tree.children(row)
    )


# -- in columns ----------------------------------------------------------------------------------


def few(tree: Tree, pattern: Pattern, at: int | None, wanted: Wanted) -> NDArray[np.int32] | None:
    """Rows that match, in path order; None: they are not found in some milliseconds."""
    try:
        return np.array(list(walk(tree, pattern, at, wanted, budget=_BUDGET)), np.int32)
    except _Exhausted:
        return None


def select(tree: Tree, pattern: Pattern, at: int | None, wanted: Wanted) -> NDArray[np.int32]:
    """Rows that match, in no order."""
    if len(pattern.steps) > _WIDEST:
        return np.array(list(walk(tree, pattern, at, wanted)), np.int32)
    found = few(tree, pattern, at, wanted)
    return _Columns(tree, pattern, at).select(wanted) if found is None else found


class _Columns:
    """One level of the tree after the other, all of it at once: the state of each row in a column.

    It costs the same for few hits as for many, some 20 ms for a million rows.
    """

    def __init__(self, tree: Tree, pattern: Pattern, at: int | None) -> None:
        self._tree = tree
        self._pattern = pattern
        self._at = at
        self._state = np.zeros(len(tree), np.int64)

    def select(self, wanted: Wanted) -> NDArray[np.int32]:
        tree = self._tree
        depth, kind = view(tree.depth), view(tree.kind) & KIND
        fits = (kind <= LEAF) if wanted != "device" else (kind < LEAF)
        fits &= kind > 0
        self._state[ROOT_ROW] = self._pattern.advance(self._pattern.START, ROOT)
        reached = np.zeros(1, np.int64)
        found = [reached]
        for level in range(1, 1 << 16):
            rows = np.flatnonzero((depth == level) & fits)
            rows = rows[self._state[view(tree.parent)[rows]] != 0]
            reached = self._reach(rows[tree.visible(rows, self._at)])
            if not len(reached):
                break
            found.append(reached)
        rows = np.concatenate(found)
        rows = rows[(self._state[rows] >> len(self._pattern.steps)) & 1 == 1]
        return self._wanted(rows, wanted).astype(np.int32)

    def _reach(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give rows of one level their state; those that have one."""
        tree = self._tree
        before = self._state[view(tree.parent)[rows]]
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
        self._state[rows] = after
        reached: NDArray[np.int64] = rows[after != 0]
        return reached

    def _named(self, rows: NDArray[np.int64], step: Any) -> NDArray[np.bool_]:
        names = self._tree.names
        numbers: NDArray[np.int64] = view(self._tree.name)[rows]
        if not isinstance(step, Partial):
            same: NDArray[np.bool_] = numbers == names.find(step)
            return same
        different, which = np.unique(numbers, return_inverse=True)
        fits = [step.matches(text) for text in names.texts(different.tolist())]
        named: NDArray[np.bool_] = np.array(fits, bool)[which]
        return named

    def _wanted(self, rows: NDArray[np.int64], wanted: Wanted) -> NDArray[np.int64]:
        tree, at = self._tree, self._at
        if wanted == "node":
            return rows
        kind = view(tree.kind) & KIND
        if wanted == "leaf":
            fits = kind[rows] == LEAF
        elif at is None:
            fits = view(tree.leaves)[view(tree.ref)[rows]] > 0
        else:
            leaves = np.flatnonzero(kind == LEAF)
            leaves = leaves[tree.visible(leaves, at)]
            devices = np.zeros(len(tree), bool)
            devices[view(tree.parent)[leaves]] = True
            fits = devices[rows]
        found: NDArray[np.int64] = rows[fits]
        return found


# -- rows that are known ---------------------------------------------------------------------------


def matching(tree: Tree, pattern: Pattern, rows: Iterable[int]) -> list[int]:
    """Those of some rows whose path matches."""
    text, name, parent = tree.names.text, tree.name, tree.parent
    states = {-1: pattern.START}

    def state_of(row: int) -> int:
        found = states.get(row)
        if found is None:
            above = state_of(parent[row])
            found = states[row] = pattern.advance(above, text(name[row])) if above else 0
        return found

    found = []
    for row in rows:
        above = state_of(parent[row])
        if above and pattern.is_match(pattern.advance(above, text(name[row]))):
            found.append(row)
    return found


def sort_keys(tree: Tree, rows: Iterable[int]) -> list[str]:
    """A text for each row; they are in the order of the paths."""
    text, name, parent = tree.names.text, tree.name, tree.parent
    keys = {ROOT_ROW: ROOT}

    def key_of(row: int) -> str:
        found = keys.get(row)
        if found is None:
            found = keys[row] = key_of(parent[row]) + _below(text(name[row]))
        return found

    return [key_of(parent[row]) + _below(text(name[row])) if row else ROOT for row in rows]


def _below(node: str) -> str:
    # Lower than any text that goes on, so that a node stands before those whose name is longer.
    return "\0\0" + (node.replace("\0", "\0\1") if "\0" in node else node)


def is_level(tree: Tree, rows: NDArray[Any]) -> bool:
    """Whether `path_order` takes a microsecond for three of these rows: all are of one depth."""
    if len(rows) < _RANKED:
        return False
    depth = view(tree.depth)[rows]
    return bool(depth.min() == depth.max())


def path_order(tree: Tree, rows: NDArray[Any]) -> NDArray[np.int64]:
    """Positions that put rows into the order of their paths; those of the same path stay so."""
    if not is_level(tree, rows):
        keys = sort_keys(tree, rows.tolist())
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    found: NDArray[np.int64] = np.argsort(_ranks(tree, rows), kind="stable")
    return found


def _ranks(tree: Tree, rows: NDArray[Any]) -> NDArray[np.int64]:
    """The rank of each path among them, all of one depth: that of what is above, then the name."""
    different, which = np.unique(rows, return_inverse=True)
    if len(different) == 1:
        return np.zeros(len(rows), np.int64)
    above = _ranks(tree, view(tree.parent)[different])
    names, places = np.unique(view(tree.name)[different], return_inverse=True)
    by_name = np.empty(len(names), np.int64)
    by_name[tree.names.order(names)] = np.arange(len(names))
    ranks: NDArray[np.int64] = (above * len(names) + by_name[places])[which]
    if len(different) * len(names) < 1 << 31:
        return ranks
    # They must not grow from level to level beyond what a column holds.
    dense: NDArray[np.int64] = np.unique(ranks, return_inverse=True)[1]
    return dense
