"""All of the copies at storage nodes, as one object of the receiver that is their master."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from common.durable import Closing
from common.errors import CloneError, NotFoundError
from receiver.metadata.state.placed_files import placement_of
from receiver.placement.assignment import Assignment, PlacementRules
from receiver.placement.copies_back import CopiesBack
from receiver.placement.copy_lists import CopyLists
from receiver.placement.first_tablets import FirstTablets
from receiver.placement.held_copies import HeldCopiesBook
from receiver.placement.node_orders import NodeOrders
from receiver.placement.offered_files import KeptOfNodes, OfferedFiles
from receiver.placement.placeable_nodes import look_at_nodes
from receiver.placement.replica_condition import ReplicaCondition
from receiver.placement.slot_keeping import SlotKeeper
from receiver.placement.upload_nodes import UploadNodes
from receiver.tablet_copies.copies_wire import CopySource, FilePlace
from receiver.tablet_copies.read_tickets import TicketMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from common.durable import Tree
    from receiver.config import NodesConfig
    from receiver.heartbeats.node_manager import NodeManager
    from receiver.heartbeats.node_reports import ReportNews
    from receiver.heartbeats.node_wire import ReportedTablet, TicketKey
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.placements import PlacementRow
    from receiver.metadata.state.tables.tablets import LoadedTableRow
    from receiver.placement.placeable_nodes import PlaceableNode
    from receiver.tablet_copies.copies_wire import HeldCopies

__all__ = ["CopyService"]

_FRESH: Final = 0.5
"""Seconds for which a look at the nodes is good enough."""


class CopyService(Closing):
    """The copies; any thread may call.

    Attributes:
        book: of what nodes have.
        lists: that nodes read.
        tickets: by which nodes give files to readers.
        slots: which nodes keep what of the object store.
        condition: how many nodes must have a file.
        assignment: places tablets; runs only where copies are wanted.
        offers: what nodes have and this master does not know.
        back: brings back what the master's own disks have lost.
        upload_nodes: where edges may send files; None where that is not wanted.
    """

    def __init__(
        self,
        config: NodesConfig,
        engine: Engine,
        manager: NodeManager,
        trees: Callable[[], Sequence[Tree]],
        *,
        stirred: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            config: how many copies are wanted.
            engine: of the master.
            manager: knows the nodes.
            trees: gives the data directories of the master that count now.
            stirred: called when a node has come to have something.
            monotonic: seconds that nobody sets.
        """
        self._config = config
        self._engine = engine
        self._manager = manager
        self._stirred = stirred
        self._monotonic = monotonic
        self._looked: tuple[float, Mapping[str, PlaceableNode]] | None = None
        self.book = HeldCopiesBook()
        self.tickets = TicketMaker(monotonic=monotonic)
        self.slots = SlotKeeper(
            engine,
            self.nodes,
            lambda: look_at_nodes(manager),
            self.tickets,
            lost_after=config.lost_after,
            monotonic=monotonic,
        )
        self.lists = CopyLists(engine, self.book, mark=manager.mark, source=self._source_for)
        self.condition = ReplicaCondition(
            self.book, self.nodes, config.before_ack, safe=config.replicas
        )
        ca_cert = None if config.ca_cert is None else str(config.ca_cert)
        self._orders = NodeOrders(ca_cert)
        self.back = CopiesBack(
            engine, trees, lambda physical: self.places(physical, perhaps=True), ca_cert
        )
        self.offers = OfferedFiles(
            engine, self.nodes, self._every, self.lists, self.tickets, KeptOfNodes(ca_cert)
        )
        self.assignment = Assignment(
            engine,
            PlacementRules(
                config.replicas,
                timeout=config.assignment_timeout,
                lost_after=config.lost_after,
            ),
            lambda: look_at_nodes(manager),
            self._reported,
            self._every,
            self.lists,
            self.book,
            self._orders,
            monotonic=monotonic,
        )
        least = config.uploads_from
        first = FirstTablets(engine, self.nodes, self.assignment)
        self.upload_nodes = (
            UploadNodes(engine, self.nodes, self.tickets, self._orders, least=least, first=first)
            if least is not None
            else None
        )
        manager.listeners.append(self._heard)
        manager.ticket_key = self._ticket_key
        manager.beaten = self.slots.look

    def start(self) -> None:
        """Begin to place tablets, where copies are wanted."""
        if self._config.replicas:
            self.assignment.start()

    def close(self) -> None:
        """End."""
        self.assignment.close()
        self._orders.close()

    # -- nodes -------------------------------------------------------------------------------

    def nodes(self) -> Mapping[str, PlaceableNode]:
        """The nodes, as they were found a moment ago."""
        # No lock: who asks may be reading the state, which the look does as well.
        now, looked = self._monotonic(), self._looked
        if looked is None or now - looked[0] > _FRESH:
            looked = self._looked = now, look_at_nodes(self._manager)
        return looked[1]

    def _heard(self, news: ReportNews) -> None:
        self.assignment.heard(news)

    def _ticket_key(self, node: str) -> TicketKey | None:
        heard = self._manager.heard(node)
        return None if heard is None else self.tickets.key_for(node, heard.start.boot)

    def _reported(self, node: str, tablet: str) -> ReportedTablet | None:
        """Nobody who reads the state may ask: whoever reports does that with the lock held."""
        heard = self._manager.heard(node)
        if heard is None:
            return None
        with heard.lock:
            return heard.reports.held.find(tablet)

    def _every(self, node: str) -> Iterable[ReportedTablet]:
        heard = self._manager.heard(node)
        if heard is None:
            return ()
        with heard.lock:
            return list(heard.reports.held.tablets())

    def held(self, said: HeldCopies) -> None:
        """A node says which replicas are complete.

        Raises:
            CloneError: this start of the node is not the one that is known.
        """
        heard = self._manager.heard(said.start.uuid)
        if heard is None or heard.start != said.start:
            raise CloneError(f"start {said.start.instance} of {said.start.uuid} is not registered")
        self.book.started(said.start.uuid, said.start.boot)
        self.lists.held(said)
        self._stirred()
        self.assignment.wake()

    # -- where files are ---------------------------------------------------------------------

    def places(self, physical: str, *, perhaps: bool = False) -> list[FilePlace]:
        """Nodes that give a file, with a ticket for each; those with least to do first.

        Args:
            physical: its name.
            perhaps: behind those name the other nodes of its tablet. They may have it: a replica
                is not complete in this life as long as a file of it is nowhere.

        Raises:
            NotFoundError: there is no such file.
        """
        nodes = self.nodes()
        with self._engine.reading() as state:
            row = state.files.get(physical)
            if row is None:
                raise NotFoundError(f"{physical!a} is no file of the catalogue")
            found = placement_of(state, physical)
            there = self.book.nodes_with(state, row) if found is not None else []
        if found is None:
            return []
        if perhaps:
            there += [each for each in found[1].nodes if each not in there]
        usable = [nodes[each] for each in there if each in nodes]
        places: list[FilePlace] = []
        for node in usable:
            ticket = self.tickets.ticket(node.uuid, found[0].id)
            if ticket is not None and node.url and not (node.is_down or node.is_lost):
                place = FilePlace(url=node.url, ticket=ticket, tablet=found[0].id)
                places.append(place)
        return places

    def _source_for(self, row: PlacementRow, node: str) -> CopySource | None:
        """The leader of a tablet, or another node that has it; not the one that asks."""
        nodes = self.nodes()
        for uuid in sorted(row.nodes, key=lambda each: each != row.leader):
            commit = self.book.commit(uuid, row.tablet, row.generation)
            there = nodes.get(uuid)
            if uuid == node or not commit or there is None or there.is_down or not there.url:
                continue
            ticket = self.tickets.ticket(uuid, row.tablet)
            if ticket is not None:
                return CopySource(url=there.url, ticket=ticket, commit=commit)
        return None

    # -- what may be forgotten ---------------------------------------------------------------

    def may_forget(self, table: LoadedTableRow) -> bool:
        """Whether no node has anything of a dropped table any more, or is known to be lost."""
        with self._engine.reading() as state:
            tablets = state.tablet_table.of_table(table.id)
            placed = [
                (uuid, tablet.id)
                for tablet in tablets
                if (row := state.placement_table.rows.get(tablet.id)) is not None
                for uuid in row.nodes
            ]
        if not placed:
            return True
        nodes = self.nodes()
        for uuid, tablet in placed:
            if uuid not in nodes or nodes[uuid].is_lost:
                continue
            heard = self._manager.heard(uuid)
            if heard is None or heard.reports.acknowledged is None:
                return False
            if self._reported(uuid, tablet) is not None:
                return False
        return True
