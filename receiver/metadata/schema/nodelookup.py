"""Nodes of any kind: what stands at a path, and how far down there is anything."""

from __future__ import annotations

from typing import Final

from receiver.metadata.model.paths import Nodes
from receiver.metadata.schema.node_tree import (
    ALIAS,
    ALIGNED,
    INTERNAL,
    KIND,
    LEAF,
    ROOT_ROW,
    STORAGE_GROUP,
    NodeTree,
)
from receiver.metadata.schema.schemarows import Kind

__all__ = ["NodeLookup"]

_KINDS: Final[dict[int, Kind]] = {
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

    def kind_at(self, nodes: Nodes, at: int | None = None) -> Kind | None:
        """What stands at a path, None for nothing."""
        row = self._tree.find(nodes, at)
        return None if row < 0 else self.kind(row)

    def kind(self, row: int) -> Kind:
        """What a row is."""
        return "root" if row == ROOT_ROW else _KINDS[self._tree.kind[row] & KIND]

    def reach(self, nodes: Nodes) -> tuple[int, Kind, bool, bool | None]:
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
