"""Where files are at nodes: for who reads one, and for a node that pulls what others have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import NotFoundError
from receiver.metadata.state.placed_files import placement_of, released_placement
from receiver.tablet_copies.copies_wire import CopySource, FilePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from receiver.heartbeats.node_wire import ReportedTablet
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.placement.copies_there.doubted_copies import DoubtedCopies
    from receiver.placement.copies_there.held_copies import HeldCopiesBook
    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["CopyPlaces"]

_SOURCES: Final = 4
"""Nodes that are named to one that pulls."""


class CopyPlaces:
    """Answers; any thread may ask that does not read the state."""

    def __init__(
        self,
        engine: Engine,
        book: HeldCopiesBook,
        doubts: DoubtedCopies,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        reported: Callable[[str, str], ReportedTablet | None],
        ticket: Callable[[str, str], str | None],
    ) -> None:
        """Prepare.

        Args:
            engine: of the master.
            book: of what nodes have.
            doubts: copies that had other bytes.
            nodes: as they are now, by uuid.
            reported: what a node has reported of a tablet.
            ticket: for a node and a tablet; None where the node cannot read one.
        """
        self._engine = engine
        self._book = book
        self._doubts = doubts
        self._nodes = nodes
        self._reported = reported
        self._ticket = ticket

    def of_file(self, physical: str, *, perhaps: bool = False) -> list[FilePlace]:
        """Nodes that give a file, with a ticket for each; those with least to do first.

        Args:
            physical: its name.
            perhaps: behind those name the other nodes of its tablet. They may have it: a replica
                is not complete in this life as long as a file of it is nowhere. Of what has left
                the master's disks they are named in any case.

        Raises:
            NotFoundError: there is no such file.
        """
        nodes = self._nodes()
        with self._engine.reading() as state:
            row = state.files.get(physical)
            if row is None:
                raise NotFoundError(f"{physical!a} is no file of the catalogue")
            found = released_placement(state, physical) or placement_of(state, physical)
            there = self._book.nodes_with(state, row) if found is not None else []
            released = physical in state.released_table.rows
        if found is None:
            return []
        if perhaps or released:
            there += [each for each in found[1].nodes if each not in there]
        if perhaps or released:
            # One that is emptied, or was silent, has it until others do, wherever it is placed; and
            # an older state of the master does not know where it is placed by now.
            there += [each for each in self._reporting(found[0].id, nodes) if each not in there]
        usable = [nodes[each] for each in there if each in nodes]
        places: list[FilePlace] = []
        for node in usable:
            ticket = self._ticket(node.uuid, found[0].id)
            if ticket is not None and node.url and not (node.is_down or node.is_lost):
                place = FilePlace(url=node.url, ticket=ticket, tablet=found[0].id)
                places.append(place)
        return places

    def sources_for(self, row: PlacementRow, node: str) -> list[CopySource]:
        """The leader of a tablet, and some other nodes that have it; not the one that asks.

        Behind the others one of which other bytes came. Of a tablet that the master has not all of,
        others too that may have some of it.
        """
        nodes = self._nodes()
        with self._engine.reading() as state:
            newest, released = state.newest, bool(state.released_table.of_tablet(row.tablet))
        known = {each: self._book.commit(each, row.tablet, row.generation) for each in row.nodes}
        order = sorted(
            (each for each in row.nodes if known[each]), key=lambda each: each != row.leader
        )
        if released:
            perhaps = [each for each in self._reporting(row.tablet, nodes) if not known.get(each)]
            order += sorted(perhaps, key=lambda each: each in row.nodes)  # who had it before, first
            known.update(dict.fromkeys(perhaps, newest))
        with self._engine.reading() as state:
            doubted = {each for each in order if self._doubts.of_tablet(state, each, row.tablet)}
        sources: list[CopySource] = []
        for uuid in sorted(order, key=doubted.__contains__):
            commit, there = known[uuid], nodes.get(uuid)
            if uuid == node or not commit or there is None or there.is_down or not there.url:
                continue
            ticket = self._ticket(uuid, row.tablet)
            if ticket is not None:
                sources.append(CopySource(url=there.url, ticket=ticket, commit=commit))
            if len(sources) == _SOURCES:
                break
        return sources

    def _reporting(self, tablet: str, nodes: Iterable[str]) -> list[str]:
        """Nodes that report a replica of a tablet, of whatever generation."""
        return [each for each in nodes if self._reported(each, tablet) is not None]
