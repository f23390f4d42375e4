"""Nodes that match a pattern, one by one in path order; and that order.

The order of paths is that of their nodes, each level by name. A walk can begin behind any path, so
a cursor needs to remember nothing but the last path it gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from receiver.metadata.model.paths import ROOT, Nodes, Pattern, Wildcard
from receiver.metadata.schema.tree_columns.growing_columns import Ints, view
from receiver.metadata.schema.tree_columns.node_tree import ALIAS, KIND, LEAF, ROOT_ROW, NodeTree

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "WantedNodes",
    "few",
    "has_leaves",
    "is_level",
    "path_order",
    "sort_keys",
    "walk",
]

WantedNodes = Literal["leaf", "device", "node"]
_BUDGET: Final = 4000
"""Rows that `few` looks at one by one: some milliseconds."""
_RANKED: Final = 64
"""Fewer rows are put in order by their texts; numpy takes a hundred microseconds a level."""


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
    tree: NodeTree,
    pattern: Pattern,
    at: int | None,
    wanted: WantedNodes,
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


def _leads_on(
    tree: NodeTree, row: int, below: int | None, wanted: WantedNodes, at: int | None
) -> bool:
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
        self, tree: NodeTree, pattern: Pattern, row: int, state: int, at: int | None, after: Nodes
    ) -> None:
        self.after = after
        self.state = state
        self.rows = _children(tree, pattern, row, state, at, after[0] if after else None)
        self.rest = iter(self.rows)


def _children(
    tree: NodeTree, pattern: Pattern, row: int, state: int, at: int | None, begin: str | None
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


def _is_wanted(tree: NodeTree, row: int, wanted: WantedNodes, at: int | None) -> bool:
    if wanted == "node":
        return True
    leaf = tree.kind[row] & KIND == LEAF
    return leaf if wanted == "leaf" else not leaf and has_leaves(tree, row, at)


def has_leaves(tree: NodeTree, row: int, at: int | None) -> bool:
    """Whether an inner node is a device."""
    if at is None:
        return tree.leaves[tree.ref[row]] > 0
    kinds = tree.kind
    return any(
        kinds[child] & KIND == LEAF and tree.is_visible(child, at) for child in tree.children(row)
    )


def few(
    tree: NodeTree, pattern: Pattern, at: int | None, wanted: WantedNodes
) -> NDArray[np.int32] | None:
    """Rows that match, in path order; None: they are not found in some milliseconds."""
    try:
        return np.array(list(walk(tree, pattern, at, wanted, budget=_BUDGET)), np.int32)
    except _Exhausted:
        return None


# -- path order ------------------------------------------------------------------------------------


def sort_keys(tree: NodeTree, rows: Iterable[int]) -> list[str]:
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


def is_level(tree: NodeTree, rows: NDArray[Any]) -> bool:
    """Whether `path_order` takes a microsecond for three of these rows: all are of one depth."""
    if len(rows) < _RANKED:
        return False
    depth = view(tree.depth)[rows]
    return bool(depth.min() == depth.max())


def path_order(tree: NodeTree, rows: NDArray[Any]) -> NDArray[np.int64]:
    """Positions that put rows into the order of their paths; those of the same path stay so."""
    if not is_level(tree, rows):
        keys = sort_keys(tree, rows.tolist())
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    found: NDArray[np.int64] = np.argsort(_ranks(tree, rows), kind="stable")
    return found


def _ranks(tree: NodeTree, rows: NDArray[Any]) -> NDArray[np.int64]:
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
