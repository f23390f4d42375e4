"""All of the copies at storage nodes, as one object of the receiver that is their master."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from common.durable import Closing
from common.errors import CloneError
from receiver.heartbeats.node_wire import ReportedTablet
from receiver.placement.assigning.assignment import Assignment, PlacementRules
from receiver.placement.assigning.first_tablets import FirstTablets
from receiver.placement.assigning.replica_condition import ReplicaCondition
from receiver.placement.copies_there.copies_back import CopiesBack
from receiver.placement.copies_there.copy_lists import CopyLists
from receiver.placement.copies_there.copy_places import CopyPlaces
from receiver.placement.copies_there.doubted_copies import DoubtedCopies
from receiver.placement.copies_there.doubted_reader import DoubtedReader
from receiver.placement.copies_there.held_copies import HeldCopiesBook
from receiver.placement.copies_there.offered_files import KeptOfNodes, OfferedFiles
from receiver.placement.copies_there.released_files import ReleasedFiles
from receiver.placement.node_orders import NodeOrders
from receiver.placement.node_place import NodePlace
from receiver.placement.placeable_nodes import look_at_nodes
from receiver.placement.slot_keeping import SlotKeeper
from receiver.placement.staged_sources import StagedSources
from receiver.placement.upload_nodes import UploadNodes
from receiver.tablet_copies.copies_wire import FilePlace
from receiver.tablet_copies.read_tickets import TicketMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from receiver.config import NodesConfig
    from receiver.datadirs.disks import Disks
    from receiver.heartbeats.node_manager import NodeManager
    from receiver.heartbeats.node_reports import ReportNews
    from receiver.heartbeats.node_wire import TicketKey
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow, TabletRow
    from receiver.placement.placeable_nodes import PlaceableNode
    from receiver.tablet_copies.copies_wire import HeldCopies

__all__ = ["CopyService"]

_FRESH: Final = 0.5
"""Seconds for which a look at the nodes is good enough."""
_NOT_HEARD: Final = ReportedTablet(id="0" * 32, files=1)
"""The worst that may be at a node."""


class CopyService(Closing):
    """The copies; any thread may call.

    Attributes:
        book: of what nodes have.
        doubts: copies that were found to have other bytes.
        reader: reads these.
        lists: that nodes read.
        tickets: by which nodes give files to readers.
        slots: which nodes keep what of the object store.
        condition: how many nodes must have a file.
        assignment: places tablets; runs only where copies are wanted.
        offers: what nodes have and this master does not know.
        back: brings back what the master's own disks have lost.
        released: what has left these disks for nodes.
        upload_nodes: where edges may send files; None where that is not wanted.
    """

    def __init__(
        self,
        config: NodesConfig,
        engine: Engine,
        manager: NodeManager,
        disks: Disks,
        *,
        stirred: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            config: how many copies are wanted.
            engine: of the master.
            manager: knows the nodes.
            disks: the data directories of the master.
            stirred: called when a node has come to have something.
            monotonic: seconds that nobody sets.
        """
        self._config = config
        self._engine = engine
        self._manager = manager
        self._stirred = stirred
        self._monotonic = monotonic
        self._disks = disks
        self._looked: tuple[float, Mapping[str, PlaceableNode]] | None = None
        self.doubts = DoubtedCopies(engine)
        self.book = HeldCopiesBook(self.doubts)
        self.tickets = TicketMaker(monotonic=monotonic)
        self.slots = SlotKeeper(
            engine,
            self.nodes,
            lambda: look_at_nodes(manager),
            self.tickets,
            lost_after=config.lost_after,
            monotonic=monotonic,
        )
        self._places = CopyPlaces(
            engine,
            self.book,
            self.doubts,
            self.nodes,
            self._reported,
            self.tickets.ticket,
        )
        self.lists = CopyLists(
            engine,
            self.book,
            mark=manager.mark,
            had=manager.life.has,
            sources=self._places.sources_for,
        )
        self.condition = ReplicaCondition(
            self.book,
            self.nodes,
            config.before_ack,
            safe=config.replicas,
            monotonic=monotonic,
        )
        ca_cert = None if config.ca_cert is None else str(config.ca_cert)
        self._orders = NodeOrders(ca_cert, self.tickets.ticket)
        self.reader = DoubtedReader(
            engine,
            self.doubts,
            self.book,
            self.nodes,
            self.tickets.ticket,
            ca_cert,
            monotonic=monotonic,
        )
        self.back = CopiesBack(
            engine,
            disks.standing,
            lambda physical: self.places(physical, perhaps=True),
            ca_cert,
            StagedSources(self.nodes, self._orders),
        )
        self.back.doubted, self.back.gave = self._doubt, self._trust
        self.offers = OfferedFiles(
            engine, self.nodes, self._every, self.lists, self.tickets, KeptOfNodes(ca_cert)
        )
        self.assignment = Assignment(
            engine,
            PlacementRules(
                config.replicas,
                timeout=config.assignment_timeout,
                lost_after=config.lost_after,
                evict_copies=config.evict_copies,
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
        self.released = ReleasedFiles(
            engine,
            self.book,
            self.nodes,
            lambda node, tablet: self._reported(node, tablet) is not None,
            self._seems_here,
        )
        manager.listeners.append(self._heard)
        manager.ticket_key = self._ticket_key
        manager.beaten = self.slots.look
        # Not with the next pass: a start on an older disk lacks what the one before has said.
        manager.begins = lambda start: self.book.started(start.uuid, start.boot)

    def start(self) -> None:
        """Begin to place tablets, where copies are wanted, or have what the disks here have not."""
        if self._config.replicas or self.has_released():
            self.assignment.start()
            self.reader.start()
            return
        with self._engine.reading() as state:
            state.loaded_tables.standings = {}  # nothing is asked of nodes

    def has_released(self) -> bool:
        """Whether files may have left the disks of the master for nodes."""
        with self._engine.reading() as state:
            return bool(state.released_table.rows)

    def place(self) -> NodePlace:
        """Nodes as what files leave the disks for."""
        return NodePlace(
            self._engine,
            self.book,
            self.doubts,
            self.nodes,
            self._orders,
            self._disks.standing,
            wanted=self._config.evict_copies,
            seems_here=self._seems_here,
        )

    def _seems_here(self, physical: str) -> bool:
        return any(tree.seems_there(physical) for tree in self._disks.trees)

    def close(self) -> None:
        """End."""
        self.reader.close()
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
        """Nodes that give a file; see `CopyPlaces.of_file`."""
        return self._places.of_file(physical, perhaps=perhaps)

    def _doubt(self, place: FilePlace, physical: str) -> None:
        for each in self.nodes().values():
            if each.url == place.url:
                self.doubts.doubt(each.uuid, place.tablet, physical)

    def _trust(self, place: FilePlace, physical: str) -> None:
        for each in self.nodes().values():
            if each.url == place.url:
                self.doubts.trust(each.uuid, physical)

    # -- what may be forgotten ---------------------------------------------------------------

    def may_forget(self, table: LoadedTableRow) -> bool:
        """Whether no node has anything of a dropped table any more, or is known to be lost."""
        with self._engine.reading() as state:
            tablets = state.tablet_table.every_of(table.id)
        return all(self.has_gone(each) for each in tablets)

    def has_gone(self, tablet: TabletRow) -> bool:
        """Whether no node has anything of a tablet any more, or is known to be lost."""
        return all(each is None for each in self._said_of(tablet))

    def is_empty(self, tablet: TabletRow) -> bool:
        """Whether no node has a file of a tablet any more, or is known to be lost."""
        return all(each is None or not each.files for each in self._said_of(tablet))

    def _said_of(self, tablet: TabletRow) -> Iterator[ReportedTablet | None]:
        """What each node that is not lost reports of a tablet.

        Of all nodes: one that was away has what it was once given, though another one has its place
        since. If the tablet went meanwhile, what it has would be shown as of nobody for good. So
        the last word of one that fell silent behind it, or misses a directory, is none.
        """
        for uuid, node in self.nodes().items():
            if not node.is_lost:
                yield self._said(uuid, tablet.id) if node.tells_all else _NOT_HEARD

    def _said(self, uuid: str, tablet: str) -> ReportedTablet | None:
        """What a node reports of a tablet; the worst of one that was not heard."""
        if not self.has_told(uuid):
            return _NOT_HEARD
        return self._reported(uuid, tablet)

    def has_told(self, uuid: str) -> bool:
        """Whether a node has told of all that it has, in this life of the master."""
        heard = self._manager.heard(uuid)
        return heard is not None and heard.reports.acknowledged is not None
