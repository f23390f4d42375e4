"""Questions about one path, one row, or the names of one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from receiver.metadata.model.paths import ROOT, Nodes
from receiver.metadata.schema.blocks import are_leaves, codes_are
from receiver.metadata.schema.changes import BATCH
from receiver.metadata.schema.columns import view
from receiver.metadata.schema.describing import Describing
from receiver.metadata.schema.heat import COLD
from receiver.metadata.schema.rows import DeviceRow, Kind, StorageGroupRow
from receiver.metadata.schema.tree import (
    ALIAS,
    ALIGNED,
    INTERNAL,
    KIND,
    LEAF,
    ROOT_ROW,
    STORAGE_GROUP,
)
from receiver.metadata.schema.walk import has_leaves

__all__ = ["Looking"]

_KINDS: Final[dict[int, Kind]] = {
    INTERNAL: "internal",
    STORAGE_GROUP: "storage_group",
    LEAF: "leaf",
    ALIAS: "alias",
}


class Looking(Describing):
    """Questions that cost the same in a large schema as in a small one, or nearly."""

    # -- series -----------------------------------------------------------------------------------

    def find_series(self, nodes: Nodes, at: int | None = None, *, alias: bool = True) -> int:
        """The row of a series by its path, or (`alias`) by its alias in place of the last node.

        -1: there is none.
        """
        tree = self.tree
        name = tree.names.find(nodes[-1])
        parent = tree.find_inner(nodes[:-1], at)
        if name < 0 or parent < 0:
            return -1
        row = tree.child(parent, name, at)
        if row < 0:
            return -1
        kind = tree.kind[row] & KIND
        if kind == LEAF:
            return row
        return tree.ref[row] if alias and kind == ALIAS else -1

    def tags_of(self, row: int, at: int | None = None) -> dict[str, str]:
        """The tags of a series, by key, from the index (attributes are in the tag log only)."""
        return self.index.tags(row, at)

    def tags_at(self, row: int, at: int | None = None) -> int:
        """Where tags and attributes of a series are in the tag log, -1 for none."""
        return self.offsets.get(row, at, -1)

    def heat(self, row: int, at: int | None = None) -> int | None:
        """The newest timestamp loaded of a series, None before the first."""
        found = self.heats.get(row, at)
        return None if found == COLD else found

    def type_of(self, row: int) -> int:
        """TSDataType code of a series."""
        return self.tree.ref[row] & 0xFF

    def changed(self, nodes: Nodes) -> int:
        """The newest commit that made, altered or deleted the series of this path; 0 for never.

        A deletion that history has collected counts as never.
        """
        row = self.find_series(nodes, alias=False)
        if row >= 0:
            return self._changed(row)
        return max((self._changed(life) for life in self._lives(nodes, LEAF)), default=0)

    def _changed(self, row: int) -> int:
        tree = self.tree
        newest = max(tree.created[row], tree.deleted[row], self.offsets.changed(row))
        if row < len(tree.alias) and (alias := tree.alias[row]) >= 0:
            newest = max(newest, tree.created[alias], tree.deleted[alias])
        return newest

    def _lives(self, nodes: Nodes, kind: int) -> list[int]:
        """All rows that ever stood at a path and were of a kind."""
        tree = self.tree
        rows = [ROOT_ROW] if nodes[0] == ROOT else []
        for node in nodes[1:]:
            name = tree.names.find(node)
            inner = [row for row in rows if tree.kind[row] & KIND < LEAF]
            rows = [life for row in inner for life in tree.lives(row, name)]
        return [row for row in rows if tree.kind[row] & KIND == kind]

    # -- other nodes ------------------------------------------------------------------------------

    def kind_at(self, nodes: Nodes, at: int | None = None) -> Kind | None:
        """What stands at a path, None for nothing."""
        row = self.tree.find(nodes, at)
        return None if row < 0 else self.kind(row)

    def kind(self, row: int) -> Kind:
        """What a row is."""
        return "root" if row == ROOT_ROW else _KINDS[self.tree.kind[row] & KIND]

    def storage_group_of(self, nodes: Nodes, at: int | None = None) -> Nodes | None:
        """The storage group that a path is or lies in, None for none."""
        tree = self.tree
        row = ROOT_ROW if nodes[:1] == (ROOT,) else -1
        for depth, node in enumerate(nodes[1:], 2):
            name = tree.names.find(node)
            if row < 0 or name < 0 or (row := tree.child(row, name, at)) < 0:
                return None
            if tree.kind[row] & KIND == STORAGE_GROUP:
                return nodes[:depth]
        return None

    def has_storage_group_below(self, nodes: Nodes, at: int | None = None) -> bool:
        """Whether a storage group lies strictly below a path."""
        tree = self.tree
        row = tree.find(nodes, at)
        if row < 0 or tree.kind[row] & KIND != INTERNAL or tree.storage_group(row) >= 0:
            return False
        # A node above storage groups is there only as long as one of them is; root always is.
        if row != ROOT_ROW:
            return True
        if at is None:
            return self._groups > 0
        return bool(self._group_rows(at))

    def storage_groups(self, at: int | None = None) -> list[StorageGroupRow]:
        """All storage groups, in path order."""
        tree = self.tree
        found = []
        for row in self._group_rows(at):
            inner = tree.ref[row]
            ttl = self.ttls.get(inner, at, -1)
            changed = max(tree.created[row], self.ttls.changed(inner, at))
            created = tree.created[row]
            nodes = tree.nodes(row)
            found.append(StorageGroupRow(nodes, None if ttl < 0 else ttl, created, changed))
        return sorted(found)

    def _group_rows(self, at: int | None) -> list[int]:
        rows = np.flatnonzero(view(self.tree.kind) & KIND == STORAGE_GROUP)
        found: list[int] = rows[self.tree.visible(rows, at)].tolist()
        return found

    def storage_group_changed(self, nodes: Nodes) -> int:
        """The newest commit that made, altered or deleted this storage group; 0 for never."""
        tree = self.tree
        return max(
            (
                max(tree.created[row], tree.deleted[row], self.ttls.changed(tree.ref[row]))
                for row in self._lives(nodes, STORAGE_GROUP)
            ),
            default=0,
        )

    def ttl(self, nodes: Nodes, at: int | None = None) -> int | None:
        """The TTL of a storage group in milliseconds, None for ever."""
        row = self.tree.find(nodes, at)
        if row < 0 or self.tree.kind[row] & KIND != STORAGE_GROUP:
            return None
        found = self.ttls.get(self.tree.ref[row], at, -1)
        return None if found < 0 else found

    def device(self, nodes: Nodes, at: int | None = None) -> DeviceRow | None:
        """The device at a path, None where no series are right below it."""
        row = self.tree.find_inner(nodes, at)
        return self.device_row(row, at) if row >= 0 and has_leaves(self.tree, row, at) else None

    def device_row(self, row: int, at: int | None = None) -> DeviceRow:
        """All of a device whose row was found at that time."""
        tree = self.tree
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

    # -- for validation: many names of one device -------------------------------------------------

    def reach(self, nodes: Nodes) -> tuple[int, Kind, bool, bool | None]:
        """How far down a path there are nodes now.

        Returns:
            how many of the nodes are there, what the last of them is, whether it lies in a storage
            group, and whether its series share one time column (None if it has none).
        """
        tree = self.tree
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
        tree = self.tree
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

    def existing_rows(self, device: Nodes, names: Sequence[str]) -> Sequence[int]:
        """What the device has now under each name: a row (of any kind), or -1."""
        return self.rows_below(self.tree.find_inner(device), names)

    def missing(self, device: Nodes, names: Sequence[str]) -> list[int]:
        """Positions of names under which the device has nothing now."""
        rows = self.existing_rows(device, names)
        return [i for i, row in enumerate(rows) if row < 0] if -1 in rows else []

    def taken(self, device: Nodes, names: Sequence[str]) -> Sequence[int]:
        """Positions of names under which the device has anything now: series, alias or node."""
        tree = self.tree
        parent = tree.find_inner(device)
        if parent < 0:
            return ()
        if len(names) == 1:  # most often, and then the name is new
            name = tree.names.find(names[0])
            return () if name < 0 or tree.child(parent, name) < 0 else (0,)
        rows = self.rows_below(parent, names)
        if max(rows, default=-1) < 0:
            return ()
        return [i for i, row in enumerate(rows) if row >= 0]

    def compare(
        self, device: Nodes, names: Sequence[str], types: bytes
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Positions of names under which the device has nothing now, and of those that differ.

        Those are series of another type, or no series.
        """
        rows = self.existing_rows(device, names)
        if isinstance(rows, range) and are_leaves(self.tree, rows):
            return (), () if codes_are(self.tree, rows, types) else self._differing(rows, types)
        missing = [i for i, row in enumerate(rows) if row < 0] if -1 in rows else ()
        return missing, self._differing(rows, types)

    def _differing(self, rows: Sequence[int], types: bytes) -> list[int]:
        tree = self.tree
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
