"""Children of a node under many names; mostly their rows lie side by side, in the order asked for.

The series of a device are mostly made together, and every file names them in the same order again.
Comparing slices of the columns then takes the place of looking each of them up: some microseconds
for a whole device, which numpy takes for a single step.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

from receiver.metadata.schema.tree_columns.growing_columns import BATCH, view
from receiver.metadata.schema.tree_columns.node_tree import KIND, LEAF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from receiver.metadata.schema.tree_columns.node_tree import NodeTree

__all__ = ["are_leaves", "codes_are", "find_blocks", "rows_below"]

_LOWEST: Final = 0 if sys.byteorder == "little" else 3
"""Where the lowest of the four bytes of a column's value stands."""


def rows_below(tree: NodeTree, parent: int, names: Sequence[str]) -> Sequence[int]:
    """What a node has now under each name, of any kind; -1 for nothing.

    A range, where all are there and lie side by side in this order.
    """
    if parent < 0:
        return [-1] * len(names)
    numbers = tree.names.find_many(names)
    if len(numbers) > 1:
        first = tree.index.find(parent, numbers[0])
        if first >= 0 and (block := _find_block(tree, parent, numbers, first)) is not None:
            return block
        if first < 0 and tree.has_none(parent, numbers):
            return [-1] * len(names)
    if len(names) < BATCH:
        return [-1 if each < 0 else tree.child(parent, each) for each in numbers]
    rows = tree.index.find_many(parent, np.array(numbers, np.int32))
    rows[(rows >= 0) & (view(tree.deleted)[rows] != 0)] = -1
    found: list[int] = rows.tolist()
    return found


def _find_block(tree: NodeTree, parent: int, numbers: Sequence[int], first: int) -> range | None:
    """The rows of the children with these names now, if they follow each other.

    Args:
        tree: to look in.
        parent: their row.
        numbers: of their names, -1 for one that is not kept.
        first: row of the first of them.
    """
    count = len(numbers)
    end = first + count
    if tree.name[first:end] != array("i", numbers):
        return None
    # A row of this parent that was never deleted is the only one of its name that lives.
    if tree.parent[first:end] != array("i", (parent,)) * count:
        return None
    return range(first, end) if tree.deleted[first:end].tobytes() == bytes(8 * count) else None


def find_blocks(
    tree: NodeTree, parents: NDArray[np.int32], names: NDArray[np.int32], counts: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Where the series of many devices begin, -1 if they do not live side by side in this order.

    Args:
        tree: to look in.
        parents: rows of the devices.
        names: numbers of the names of their series, those of one device behind those of another.
        counts: how many each device has, one at least.
    """
    at = np.cumsum(counts) - counts
    begins = tree.index.find_many(parents, names[at])
    begins[begins + counts > len(tree)] = -1
    rows = np.repeat(np.maximum(begins, 0) - at, counts) + np.arange(len(names))
    np.minimum(rows, len(tree) - 1, out=rows)
    fits = view(tree.name)[rows] == names
    fits &= view(tree.parent)[rows] == np.repeat(parents, counts)
    fits &= view(tree.deleted)[rows] == 0
    fits &= view(tree.kind)[rows] & KIND == LEAF
    begins[~np.logical_and.reduceat(fits, at)] = -1
    return begins


def are_leaves(tree: NodeTree, rows: range) -> bool:
    """Whether all rows are series of one device."""
    kinds = tree.kind[rows.start : rows.stop].tobytes()
    return kinds[0] & KIND == LEAF and kinds.count(kinds[0]) == len(kinds)


def codes_are(tree: NodeTree, rows: range, types: bytes) -> bool:
    """Whether the rows, which are series, have these data types."""
    return tree.ref[rows.start : rows.stop].tobytes()[_LOWEST::4] == types
