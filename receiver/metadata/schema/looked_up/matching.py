"""Nodes that match a pattern, all at once in columns, in no order.

The columns are copied in pieces, by who looks while others commit, or in one, by who commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from receiver.metadata.model.paths import MANY, ONE, ROOT, PartialPattern, Pattern
from receiver.metadata.schema.looked_up.pattern_walk import WantedNodes, few, walk
from receiver.metadata.schema.tree_columns.growing_columns import view
from receiver.metadata.schema.tree_columns.node_tree import KIND, LEAF, ROOT_ROW, NodeTree

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WIDEST", "NodeColumns", "matching", "select_series"]

WIDEST: Final = 61
"""Steps of a pattern whose state fits into a column."""


class NodeColumns:
    """Columns of all nodes that are there at a time (no aliases): `kind` is 0 where none is.

    Args:
        count: rows of the tree.
    """

    def __init__(self, count: int) -> None:
        self.parent = np.empty(count, np.int32)
        self.name = np.empty(count, np.int32)
        self.kind = np.empty(count, np.uint8)
        self.depth = np.empty(count, np.uint8)

    def copy(self, tree: NodeTree, part: slice, at: int | None) -> None:
        """Fill in some rows."""
        self.parent[part] = view(tree.parent)[part]
        self.name[part] = view(tree.name)[part]
        self.depth[part] = view(tree.depth)[part]
        kind = view(tree.kind)[part] & KIND
        self.kind[part] = np.where(tree.visible(part, at) & (kind <= LEAF), kind, 0)

    def wanted(self, wanted: WantedNodes) -> NDArray[np.bool_]:
        """Marks those that are wanted, whatever their path."""
        if wanted == "node":
            return self.kind > 0
        leaves: NDArray[np.bool_] = self.kind == LEAF
        if wanted == "leaf":
            return leaves
        devices = np.zeros(len(leaves), bool)
        devices[self.parent[leaves]] = True
        return devices

    def matched(
        self,
        pattern: Pattern,
        find: Callable[[str], int],
        texts: Callable[[NDArray[Any]], Iterable[str]],
    ) -> NDArray[np.bool_]:
        """Marks the nodes whose path is meant.

        It costs the same for few hits as for many, some 20 ms for a million rows.

        Args:
            pattern: of at most `WIDEST` steps.
            find: gives the number of a name, -1 for one that is not kept.
            texts: gives those of some names, by their numbers.
        """
        # How far the pattern has come at each node: a bit for each number of steps.
        states = np.zeros(len(self.kind), np.int64)
        states[ROOT_ROW] = pattern.advance(pattern.START, ROOT)
        for level in range(1, int(self.depth.max(initial=0)) + 1):
            rows = np.flatnonzero((self.depth == level) & (self.kind > 0))
            before = states[self.parent[rows]]
            rows, before = rows[before != 0], before[before != 0]
            if not len(rows):
                break
            after = np.zeros(len(rows), np.int64)
            for i, step in enumerate(pattern.steps):
                active = (before >> i) & 1
                if step is MANY:
                    after |= active * (3 << i)
                elif step is ONE:
                    after |= active * (2 << i)
                elif active.any():
                    numbers = self.name[rows]
                    fits = (
                        _fitting(numbers, step, texts)
                        if isinstance(step, PartialPattern)
                        else (numbers == find(step))
                    )
                    after |= (active & fits) * (2 << i)
            states[rows] = after
        found: NDArray[np.bool_] = (states >> len(pattern.steps)) & 1 == 1
        return found


def _fitting(
    numbers: NDArray[Any], step: PartialPattern, texts: Callable[[NDArray[Any]], Iterable[str]]
) -> NDArray[np.bool_]:
    """Which of some names have the form of a step."""
    different, which = np.unique(numbers, return_inverse=True)
    fits: NDArray[np.bool_] = np.array([step.matches(text) for text in texts(different)], bool)
    return fits[which]


def select_series(tree: NodeTree, pattern: Pattern) -> NDArray[np.int32]:
    """Rows of the series that match now, in no order."""
    found = few(tree, pattern, None, "leaf")
    if found is not None:
        return found
    if len(pattern.steps) > WIDEST:
        return np.array(list(walk(tree, pattern, None, "leaf")), np.int32)
    columns = NodeColumns(len(tree))
    columns.copy(tree, slice(0, len(tree)), None)
    find, texts = tree.names.find, tree.names.texts
    matched = columns.matched(pattern, find, lambda numbers: texts(numbers.tolist()))
    return np.flatnonzero(matched & columns.wanted("leaf")).astype(np.int32)


def matching(tree: NodeTree, pattern: Pattern, rows: Iterable[int]) -> list[int]:
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
