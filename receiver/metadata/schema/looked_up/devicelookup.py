"""Devices, and what they have under many names at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from receiver.metadata.model.paths import Nodes
from receiver.metadata.schema.looked_up.blocks import are_leaves, codes_are, rows_below
from receiver.metadata.schema.looked_up.pattern_walk import has_leaves
from receiver.metadata.schema.looked_up.schemarows import DeviceRow
from receiver.metadata.schema.tree_columns.growing_columns import BATCH, view
from receiver.metadata.schema.tree_columns.node_tree import ALIGNED, KIND, LEAF, NodeTree

__all__ = ["DeviceLookup"]


class DeviceLookup:
    """Questions about devices."""

    __slots__ = ("_tree",)

    def __init__(self, tree: NodeTree) -> None:
        self._tree = tree

    def find(self, nodes: Nodes, at: int | None = None) -> DeviceRow | None:
        """The device at a path, None where no series are right below it."""
        row = self._tree.find_inner(nodes, at)
        return self.describe(row, at) if row >= 0 and has_leaves(self._tree, row, at) else None

    def describe(self, row: int, at: int | None = None) -> DeviceRow:
        """All of a device whose row was found at that time."""
        tree = self._tree
        if at is None:
            series, aligned = tree.leaves[tree.ref[row]], tree.kind[row] & ALIGNED
        else:
            below = [
                tree.kind[child]
                for child in tree.children(row)
                if tree.kind[child] & KIND == LEAF and tree.is_visible(child, at)
            ]
            series, aligned = len(below), below[0] & ALIGNED
        group = tree.nodes(tree.storage_group(row))
        return DeviceRow(row, tree.nodes(row), group, bool(aligned), series, tree.created[row])

    def series_names(self, nodes: Nodes) -> list[str]:
        """Names of the series that a device has now; if it has none any more, of those it had."""
        tree = self._tree
        row = tree.find_inner(nodes)
        leaves = (
            []
            if row < 0
            else [each for each in tree.children(row) if tree.kind[each] & KIND == LEAF]
        )
        now = [each for each in leaves if tree.is_visible(each, None)]
        return list(dict.fromkeys(tree.nodes(each)[-1] for each in now or leaves))

    # -- for validation: many names of one device -------------------------------------------------

    def rows(self, device: Nodes, names: Sequence[str]) -> Sequence[int]:
        """What the device has now under each name: a row (of any kind), or -1."""
        return rows_below(self._tree, self._tree.find_inner(device), names)

    def missing(self, device: Nodes, names: Sequence[str]) -> list[int]:
        """Positions of names under which the device has nothing now."""
        rows = self.rows(device, names)
        return [i for i, row in enumerate(rows) if row < 0] if -1 in rows else []

    def taken(self, device: Nodes, names: Sequence[str]) -> Sequence[int]:
        """Positions of names under which the device has anything now: series, alias or node."""
        tree = self._tree
        parent = tree.find_inner(device)
        if parent < 0:
            return ()
        if len(names) == 1:  # most often, and then the name is new
            name = tree.names.find(names[0])
            return () if name < 0 or tree.child(parent, name) < 0 else (0,)
        rows = rows_below(tree, parent, names)
        if max(rows, default=-1) < 0:
            return ()
        return [i for i, row in enumerate(rows) if row >= 0]

    def compare(
        self, device: Nodes, names: Sequence[str], types: bytes
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Positions of names under which the device has nothing now, and of those that differ.

        Those are series of another type, or no series.
        """
        rows = self.rows(device, names)
        if isinstance(rows, range) and are_leaves(self._tree, rows):
            return (), () if codes_are(self._tree, rows, types) else self._differing(rows, types)
        missing = [i for i, row in enumerate(rows) if row < 0] if -1 in rows else ()
        return missing, self._differing(rows, types)

    def _differing(self, rows: Sequence[int], types: bytes) -> list[int]:
        tree = self._tree
        if len(rows) >= BATCH:
            where = np.array(rows, np.int32)
            differs = view(tree.ref)[where] & 0xFF != np.frombuffer(types, np.uint8)
            differs |= view(tree.kind)[where] & KIND != LEAF
            found: list[int] = np.flatnonzero(differs & (where >= 0)).tolist()
            return found
        return [
            i
            for i, row in enumerate(rows)
            if row >= 0 and (tree.ref[row] & 0xFF != types[i] or tree.kind[row] & KIND != LEAF)
        ]
