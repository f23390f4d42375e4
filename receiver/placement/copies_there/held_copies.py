"""What nodes are known to have: by their word, which is held against what they were given to read.

A node says that a replica is complete as of a commit. That counts if it is the commit of a list
that this process gave to this node for this tablet and this generation, as long as the node is not
started anew and does not report otherwise. So a node that was never asked to have a file, or has
not read its list, is never counted.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.state.placed_files import placement_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.metadata.state.tables.place_tables.tablets import TabletRow
    from receiver.placement.copies_there.doubted_copies import DoubtedCopies

__all__ = ["HeldCopiesBook"]


class _Held(NamedTuple):
    generation: int
    commit: int


class HeldCopiesBook:
    """What is known of replicas; any thread may call."""

    def __init__(self, doubts: DoubtedCopies) -> None:
        """Begin with nothing.

        Args:
            doubts: copies that had other bytes, which count for nothing whatever nodes say.
        """
        self._lock = threading.Lock()
        self._doubts = doubts
        self._given: dict[tuple[str, str], dict[int, int]] = {}
        self._held: dict[str, dict[str, _Held]] = {}
        self._again: dict[str, dict[str, None]] = {}
        self._boots: dict[str, str] = {}
        self._losses: Counter[tuple[str, str]] = Counter()

    def started(self, node: str, boot: str) -> None:
        """Which start of a node speaks; what another one has said is not known of this one."""
        with self._lock:
            if self._boots.get(node, boot) != boot:
                self._forget(node)
            self._boots[node] = boot

    # -- what nodes say ----------------------------------------------------------------------

    def gave(self, node: str, tablet: str, generation: int, commit: int) -> None:
        """A node was given a list to read, as of a commit."""
        with self._lock:
            known = self._given.setdefault((node, tablet), {})
            known[commit] = generation
            while len(known) > 4:  # it reads one at a time
                del known[next(iter(known))]

    def said(self, node: str, tablet: str, generation: int, commit: int) -> bool:
        """A node says that a replica is complete as of a commit; whether that counts.

        Where it does not, the node is to look at its list once more.
        """
        with self._lock:
            held = self._held.setdefault(node, {})
            known = held.get(tablet)
            if known is not None and (known.generation, known.commit) == (generation, commit):
                return True  # the answer was lost
            if self._given.get((node, tablet), {}).get(commit) != generation:
                self._again.setdefault(node, {})[tablet] = None
                return False
            del self._given[node, tablet]
            if known is None or (known.generation, known.commit) < (generation, commit):
                held[tablet] = _Held(generation, commit)
            self._again.get(node, {}).pop(tablet, None)
            return True

    def not_by_us(self, node: str, tablet: str) -> None:
        """A node is complete by the list of another life: it is to look at the one of this."""
        with self._lock:
            self._again.setdefault(node, {})[tablet] = None

    def not_complete(self, node: str, tablets: Iterable[str]) -> None:
        """A node says that it has lost something of replicas, or has them no more.

        That they were complete, which it may have said before and is heard later, does not count.
        """
        with self._lock:
            held = self._held.get(node, {})
            for each in tablets:
                self._losses[node, each] += 1
                held.pop(each, None)
                self._given.pop((node, each), None)
                self._again.setdefault(node, {})[each] = None

    def again(self, node: str) -> list[str]:
        """Tablets that a node is to look at once more: what it said last of them is that."""
        with self._lock:
            return list(self._again.get(node, ()))

    def forget(self, node: str) -> None:
        """Nothing is known of a node any more: it is gone."""
        with self._lock:
            self._forget(node)
            self._boots.pop(node, None)

    def _forget(self, node: str) -> None:
        self._held.pop(node, None)
        self._again.pop(node, None)
        for key in [key for key in self._given if key[0] == node]:
            del self._given[key]
        for key in [key for key in self._losses if key[0] == node]:
            del self._losses[key]

    # -- questions ---------------------------------------------------------------------------

    def losses(self, node: str, tablet: str) -> int:
        """How often a node has said, since it was started, that it lost something of a tablet."""
        with self._lock:
            return self._losses[node, tablet]

    def commit(self, node: str, tablet: str, generation: int) -> int:
        """The commit that a replica of this generation is complete as of, 0 for none."""
        with self._lock:
            known = self._held.get(node, {}).get(tablet)
        return known.commit if known is not None and known.generation == generation else 0

    def nodes_with(self, state: State, row: FileRow, *, doubted: bool = False) -> list[str]:
        """Nodes that have a file, as far as is known.

        Args:
            state: committed.
            row: the file, as readers see it.
            doubted: those too that gave other bytes of it.
        """
        found = placement_of(state, row.physical)
        if found is None:
            return []
        tablet, placement = found
        table = state.loaded_tables.rows[tablet.table].name
        touched = state.placement_table.touched(table, tablet.begin, tablet.end)
        needed = min(max(row.created, row.changed), touched)
        return [
            node
            for node in placement.nodes
            if self.commit(node, tablet.id, placement.generation) >= max(needed, row.created)
            and (doubted or not self._doubts.of_file(state, node, row.physical))
        ]

    def complete(self, state: State, tablet: TabletRow, placement: PlacementRow) -> list[str]:
        """Nodes of a placement that have all that is in the tablet now."""
        table = state.loaded_tables.rows[tablet.table].name
        touched = state.placement_table.touched(table, tablet.begin, tablet.end)
        return [
            node
            for node in placement.nodes
            if self.commit(node, tablet.id, placement.generation) >= max(touched, 1)
            and not self._doubts.of_tablet(state, node, tablet.id)
        ]
