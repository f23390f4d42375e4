"""Children of a node whose rows lie side by side, in the order in which they are asked for.

The series of a device are mostly made together, and every file names them in the same order again.
Comparing slices of the columns then takes the place of looking each of them up: some microseconds
for a whole device, which numpy takes for a single step.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Final

from receiver.metadata.schema.tree import KIND, LEAF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.schema.tree import Tree

__all__ = ["are_leaves", "codes_are", "find_block"]

_LOWEST: Final = 0 if sys.byteorder == "little" else 3
"""Where the lowest of the four bytes of a column's value stands."""


def find_block(tree: Tree, parent: int, numbers: Sequence[int], first: int) -> range | None:
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


def are_leaves(tree: Tree, rows: range) -> bool:
    """Whether all rows are series of one device."""
    kinds = tree.kind[rows.start : rows.stop].tobytes()
    return kinds[0] & KIND == LEAF and kinds.count(kinds[0]) == len(kinds)


def codes_are(tree: Tree, rows: range, types: bytes) -> bool:
    """Whether the rows, which are series, have these data types."""
    return tree.ref[rows.start : rows.stop].tobytes()[_LOWEST::4] == types
