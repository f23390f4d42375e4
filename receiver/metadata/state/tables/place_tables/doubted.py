"""Copies at storage nodes that were found to have other bytes, by the master that read them.

A row goes when the node has given the right bytes, and with that of the file or of the node. No
word of a node takes one away: one that calls its copy good said so before.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from receiver.metadata.state.tables import Appliers

__all__ = ["DoubtedCopyRow", "DoubtedTable"]


class DoubtedCopyRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """See `records.CopyDoubted`.

    Attributes:
        created: the commit that said so.
    """

    node: str
    tablet: str
    physical: str
    created: int


class DoubtedTable:
    """Copies that do not count.

    Attributes:
        rows: by node and physical name.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.rows: dict[tuple[str, str], DoubtedCopyRow] = {}
        self._of_node: dict[str, dict[str, DoubtedCopyRow]] = {}
        self._of_tablet: Counter[tuple[str, str]] = Counter()

    def of_node(self, node: str) -> Mapping[str, DoubtedCopyRow]:
        """Those at a node, by physical name."""
        return self._of_node.get(node, {})

    def of_tablet(self, node: str, tablet: str) -> bool:
        """Whether any of a tablet is at a node; it is asked of each tablet, again and again."""
        return (node, tablet) in self._of_tablet

    def restore(self, row: DoubtedCopyRow) -> None:
        """Put a row in as it was."""
        self._of_tablet[row.node, row.tablet] += 1
        self.rows[row.node, row.physical] = row
        self._of_node.setdefault(row.node, {})[row.physical] = row

    def _drop(self, node: str, physical: str) -> None:
        row = self.rows.pop((node, physical), None)
        if row is None:
            return
        self._of_tablet[node, row.tablet] -= 1
        if not self._of_tablet[node, row.tablet]:
            del self._of_tablet[node, row.tablet]
        del self._of_node[node][physical]
        if not self._of_node[node]:
            del self._of_node[node]

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.CopyDoubted: self._copy_doubted,
            records.FileForgotten: self._file_forgotten,
            records.NodeForgotten: self._node_forgotten,
        }

    def _copy_doubted(self, op: records.CopyDoubted, ts: int) -> None:
        if not op.doubted:
            self._drop(op.node, op.physical)
        elif (op.node, op.physical) not in self.rows:
            self.restore(
                DoubtedCopyRow(node=op.node, tablet=op.tablet, physical=op.physical, created=ts)
            )

    def _file_forgotten(self, op: records.FileForgotten, ts: int) -> None:
        for node in list(self._of_node):
            self._drop(node, op.physical)

    def _node_forgotten(self, op: records.NodeForgotten, ts: int) -> None:
        for physical in list(self.of_node(op.uuid)):
            self._drop(op.uuid, physical)
