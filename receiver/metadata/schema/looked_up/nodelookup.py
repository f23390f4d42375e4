"""Nodes: what stands at a path, how far down there is anything, and in which storage group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from receiver.metadata.model.paths import ROOT, Nodes
from receiver.metadata.schema.looked_up.schemarows import NodeKind, StorageGroupRow
from receiver.metadata.schema.tree_columns.growing_columns import view
from receiver.metadata.schema.tree_columns.node_tree import (
    ALIAS,
    ALIGNED,
    INTERNAL,
    KIND,
    LEAF,
    ROOT_ROW,
    STORAGE_GROUP,
    NodeTree,
)

if TYPE_CHECKING:
    from receiver.metadata.schema.tree_columns.schemacolumns import SchemaColumns

__all__ = ["NodeLookup", "StorageGroupLookup"]

_KINDS: Final[dict[int, NodeKind]] = {
    INTERNAL: "internal",
    STORAGE_GROUP: "storage_group",
    LEAF: "leaf",
    ALIAS: "alias",
}


class NodeLookup:
    """Questions about a path, whatever stands there."""

    __slots__ = ("_tree",)

    def __init__(self, tree: NodeTree) -> None:
        self._tree = tree

    def kind_at(self, nodes: Nodes, at: int | None = None) -> NodeKind | None:
        """What stands at a path, None for nothing."""
        row = self._tree.find(nodes, at)
        return None if row < 0 else self.kind(row)

    def kind(self, row: int) -> NodeKind:
        """What a row is."""
        return "root" if row == ROOT_ROW else _KINDS[self._tree.kind[row] & KIND]

    def reach(self, nodes: Nodes) -> tuple[int, NodeKind, bool, bool | None]:
        """How far down a path there are nodes now.

        Returns:
            how many of the nodes are there, what the last of them is, whether it lies in a storage
            group, and whether its series share one time column (None if it has none).
        """
        tree = self._tree
        depth = len(nodes)
        while (row := tree.known(nodes[:depth])) < 0 and depth > 1:
            depth -= 1
        if depth < len(nodes):
            depth, row = self._walk_down(nodes, depth, max(row, ROOT_ROW))
        kind = tree.kind[row]
        if kind & KIND >= LEAF:
            return depth, _KINDS[kind & KIND], True, None
        aligned = bool(kind & ALIGNED) if tree.leaves[tree.ref[row]] else None
        return depth, self.kind(row), tree.storage_group(row) >= 0, aligned

    def _walk_down(self, nodes: Nodes, depth: int, row: int) -> tuple[int, int]:
        """How far down there are nodes from an inner one at a depth, and the row of the last."""
        tree = self._tree
        for node in nodes[depth:]:
            name = tree.names.find(node)
            below = -1 if name < 0 else tree.child(row, name)
            if below < 0:
                return depth, row
            depth, row = depth + 1, below
            if tree.kind[row] & KIND >= LEAF:
                return depth, row
            tree.remember(nodes[:depth], row)
        return depth, row


class StorageGroupLookup:
    """Questions about storage groups."""

    __slots__ = ("_columns", "_tree", "_ttls")

    def __init__(self, columns: SchemaColumns) -> None:
        self._columns = columns
        self._tree = columns.tree
        self._ttls = columns.ttls

    def of(self, nodes: Nodes, at: int | None = None) -> Nodes | None:
        """The storage group that a path is or lies in, None for none."""
        tree = self._tree
        row = ROOT_ROW if nodes[:1] == (ROOT,) else -1
        for depth, node in enumerate(nodes[1:], 2):
            name = tree.names.find(node)
            if row < 0 or name < 0 or (row := tree.child(row, name, at)) < 0:
                return None
            if tree.kind[row] & KIND == STORAGE_GROUP:
                return nodes[:depth]
        return None

    def is_any_below(self, nodes: Nodes, at: int | None = None) -> bool:
        """Whether a storage group lies strictly below a path."""
        tree = self._tree
        row = tree.find(nodes, at)
        if row < 0 or tree.kind[row] & KIND != INTERNAL or tree.storage_group(row) >= 0:
            return False
        # A node above storage groups is there only as long as one of them is; root always is.
        if row != ROOT_ROW:
            return True
        if at is None:
            return self._columns.storage_group_count > 0
        return bool(self._rows(at))

    def rows(self, at: int | None = None) -> list[StorageGroupRow]:
        """All storage groups, in path order."""
        tree = self._tree
        found = []
        for row in self._rows(at):
            inner = tree.ref[row]
            ttl = self._ttls.get(inner, at, -1)
            changed = max(tree.created[row], self._ttls.changed(inner, at))
            created = tree.created[row]
            nodes = tree.nodes(row)
            found.append(StorageGroupRow(nodes, None if ttl < 0 else ttl, created, changed))
        return sorted(found)

    def _rows(self, at: int | None) -> list[int]:
        rows = np.flatnonzero(view(self._tree.kind) & KIND == STORAGE_GROUP)
        found: list[int] = rows[self._tree.visible(rows, at)].tolist()
        return found

    def changed(self, nodes: Nodes) -> int:
        """The newest commit that made, altered or deleted this storage group; 0 for never."""
        tree = self._tree
        return max(
            (
                max(tree.created[row], tree.deleted[row], self._ttls.changed(tree.ref[row]))
                for row in tree.lives_at(nodes, STORAGE_GROUP)
            ),
            default=0,
        )

    def ttl(self, nodes: Nodes, at: int | None = None) -> int | None:
        """The TTL of a storage group in milliseconds, None for ever."""
        row = self._tree.find(nodes, at)
        if row < 0 or self._tree.kind[row] & KIND != STORAGE_GROUP:
            return None
        found = self._ttls.get(self._tree.ref[row], at, -1)
        return None if found < 0 else found
