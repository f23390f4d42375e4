"""Which node an edge may send a file to, with a ticket for it; and what lies there, for the master.

A file goes to a node of its tablet, so that it need not be copied there: the leader, else another
one. A tablet that there is none of yet is made for it, where its table is there
(`receiver.placement.assigning.first_tablets`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import NameRefusedError, NotFoundError
from common.names import FilePath
from common.wire import UploadNode
from receiver.metadata.state.placed_files import placement_of
from receiver.tablet_copies.upload_tickets import SentFile, upload_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from common.wire import PlanEntry
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.placement.assigning.first_tablets import FirstTablets
    from receiver.placement.node_orders import NodeOrders
    from receiver.placement.placeable_nodes import PlaceableNode
    from receiver.tablet_copies.read_tickets import TicketMaker

__all__ = ["UploadNodes"]


class UploadNodes:
    """Any thread may call."""

    def __init__(
        self,
        engine: Engine,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        tickets: TicketMaker,
        orders: NodeOrders,
        *,
        least: int,
        first: FirstTablets | None = None,
    ) -> None:
        """Prepare.

        Args:
            engine: of the master.
            nodes: gives those that there are.
            tickets: by keys that nodes have.
            orders: calls them.
            least: bytes of a file that is worth it.
            first: makes tablets of files that are planned.
        """
        self._first = first
        self._engine = engine
        self._nodes = nodes
        self._tickets = tickets
        self._orders = orders
        self._least = least

    def prepare(self, sender: str, entries: Iterable[PlanEntry]) -> None:
        """Have tablets at nodes for files that are to be planned, as far as that is soon done.

        Args:
            sender: uuid of their sender.
            entries: the files.
        """
        if self._first is None:
            return
        partitions: set[tuple[str, int]] = set()
        with self._engine.reading() as state:
            for each in entries:
                path = self._path(each)
                if path is not None and state.file_table.live(sender, path.text) is None:
                    partitions.add((path.sg, path.partition))
        if partitions:
            self._first.prepare(partitions)

    def _path(self, entry: PlanEntry) -> FilePath | None:
        """Of a file that may go to a node."""
        if entry.size < max(self._least, 1):
            return None
        try:
            return FilePath.parse(entry.path)
        except NameRefusedError:
            return None

    def offer(
        self, sender: str, task: str, entry: PlanEntry, avoid: Collection[str]
    ) -> UploadNode | None:
        """A node that a file may be sent to; None: it comes to the master.

        Args:
            sender: uuid of its sender.
            task: that it belongs to.
            entry: the file.
            avoid: uuids of nodes that are none for this sender.
        """
        path = self._path(entry)
        if path is None:
            return None
        with self._engine.reading() as state:
            found = placement_of(state, path.text)
        if found is None or not found[1].running:
            return None
        tablet, row = found
        for node in self._usable(row, entry.size, avoid):
            file = SentFile(
                node=node.uuid,
                sender=sender,
                task=task,
                path=path.text,
                size=entry.size,
                tail=entry.tail,
                md5=entry.md5,
                tablet=tablet.id,
                generation=row.generation,
            )
            made = self._tickets.upload_ticket(node.uuid, file.written())
            if made is not None:
                return UploadNode(uuid=node.uuid, url=node.url, ticket=made[0], lasts=made[1])
        return None

    def _usable(
        self, row: PlacementRow, size: int, avoid: Collection[str]
    ) -> Iterator[PlaceableNode]:
        nodes = self._nodes()
        for uuid in sorted(row.nodes, key=lambda each: (each != row.leader, each)):
            node = nodes.get(uuid)
            if node is None or uuid in avoid or not node.takes or node.is_hurt:
                continue
            if size <= node.free:
                yield node

    def read(self, node: str, sender: str, entry: PlanEntry, begin: int, length: int) -> bytes:
        """Bytes of a sender's file at a node, `length` at most; none where no more are there.

        Raises:
            NotFoundError: there is no such node, or it is declared lost.
            TsferryError: it gives nothing.
        """
        there = self._nodes().get(node)
        if there is None or not there.url or there.is_lost:
            raise NotFoundError(f"there is no storage node {node[:40]!a} to be asked")
        upload = upload_id(sender, entry.path, entry.size, entry.tail)
        return self._orders.staged(there, upload, begin, length)
