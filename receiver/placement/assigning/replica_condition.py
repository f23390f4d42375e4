"""How many nodes have a file, for whoever makes something depend on that.

Counted are nodes that are heard from now and have all directories that they began with, by what
they have said in this life of the master.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from receiver.metadata.state.placed_files import placed_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.placement.copies_there.held_copies import HeldCopiesBook
    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["ReplicaCondition"]


_LEAST: Final = 2
"""Of what one node has alone, one disk loses all."""
_UNHEARD: Final = 900.0
"""Seconds from the start for which a node may have what nobody has heard of yet, where no copies
are wanted any more."""


class ReplicaCondition:
    """Judges whether enough nodes have a file; any thread may ask."""

    def __init__(
        self,
        book: HeldCopiesBook,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        copies: int,
        *,
        safe: int = 0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            book: of what nodes have.
            nodes: as they are now, by uuid.
            copies: that a file needs before its task is told to be loaded; 0 for none.
            safe: that it needs to be as safe as is wanted, if its table says nothing; 0 for none.
            monotonic: seconds that nobody sets.
        """
        self._book = book
        self._nodes = nodes
        self.copies = copies
        self.safe = safe
        self._monotonic = monotonic
        self._began = monotonic()

    def count(self, state: State, row: FileRow) -> int:
        """Nodes that are heard from now, miss no directory, and have a file."""
        nodes = self._nodes()
        return sum(
            each in nodes and nodes[each].counts for each in self._book.nodes_with(state, row)
        )

    def perhaps(self, state: State, row: FileRow) -> int:
        """Nodes that have a file, or may: one that is silent, or lacks another one, has it still.

        Of those that are to have it, until an operator says that they are lost.
        """
        known = self.count(state, row)
        table = state.loaded_tables.named(row.parsed.sg)
        is_wanted = self.safe or (table is not None and table.replicas)
        if not is_wanted and self._monotonic() - self._began >= _UNHEARD:
            return known
        return max(known, len(placed_nodes(state, row.physical)))

    def lacks(self, state: State, row: FileRow | None) -> bool:
        """Whether a file that readers see is at fewer nodes than its task needs."""
        if not self.copies or row is None or not row.visible:
            return False
        return self.count(state, row) < self.copies

    def is_safe(self, state: State, row: FileRow) -> bool:
        """Whether as many nodes have a file as are wanted, of its table or of all."""
        if not self.safe:
            return True
        table = state.loaded_tables.named(row.parsed.sg)
        wanted = self.safe if table is None else table.replicas or self.safe
        if row.physical in state.released_table.rows:  # perhaps it is at nodes only
            wanted = max(wanted, _LEAST)
        return self.count(state, row) >= wanted

    def busy(self) -> str | None:
        """Why nothing new can be taken, None if it can: too few nodes are there to have it."""
        if not self.copies:
            return None
        there = sum(each.takes for each in self._nodes().values())
        if there >= self.copies:
            return None
        nodes = "1 storage node takes" if there == 1 else f"{there} storage nodes take"
        return f"{nodes} files now, and {self.copies} are to have each (nodes.before_ack)"
