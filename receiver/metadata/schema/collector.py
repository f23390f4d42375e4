"""What history lets go of: rows, tags and values that no question can reach any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from receiver.metadata.schema.tree_columns.ended import NODE, OFFSET, POSTING
from receiver.metadata.schema.tree_columns.growing_columns import view
from receiver.metadata.schema.tree_columns.node_tree import FREE, KIND, LEAF

if TYPE_CHECKING:
    from receiver.metadata.schema.tree_columns.schemacolumns import SchemaColumns

__all__ = ["Collector"]

_FEW_NAMES: Final = 1024


class Collector:
    """Drops what ended, in the order in which it did."""

    __slots__ = ("_columns",)

    def __init__(self, columns: SchemaColumns) -> None:
        self._columns = columns

    def collect(self, horizon: int, budget: int = 10_000) -> int:
        """Drop what no question at `horizon` or later can see, at most `budget` pieces of it.

        Returns:
            how many went; 0: nothing is left to collect.
        """
        columns, count = self._columns, 0
        for kind, what in columns.ended.take(horizon, budget):
            count += 1
            if kind == NODE:
                self._drop(what)
            elif kind == POSTING:
                columns.index.drop(what)
                columns.unnamed += 1
            elif kind == OFFSET:
                columns.offsets.drop(what)
            else:
                columns.ttls.drop(what)
        count += columns.heats.trim(horizon)
        # Looking for names that nobody has any more looks at all rows: only now and then.
        if columns.unnamed > max(_FEW_NAMES, columns.tree.names.used // 4):
            self.release_names()
        return count

    def _drop(self, row: int) -> None:
        columns = self._columns
        tree = columns.tree
        if tree.kind[row] & KIND < LEAF:
            columns.ttls.forget(tree.ref[row])
        columns.offsets.forget(row)
        columns.heats.forget(row)
        columns.props.forget(row)
        tree.drop(row)
        columns.unnamed += 1

    def release_names(self) -> None:
        """Give up the texts of names that nobody has any more."""
        columns = self._columns
        tree = columns.tree
        columns.index.purge()
        used = np.zeros(len(tree.names), bool)
        used[view(tree.name)[view(tree.kind) != FREE]] = True
        columns.props.mark_names(used)
        columns.index.mark_names(used)
        tree.names.release(used)
        columns.unnamed = 0
