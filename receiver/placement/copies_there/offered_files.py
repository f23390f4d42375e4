"""What storage nodes have and this master does not know: offered back, and taken by an operator.

A master that was restored from an older copy knows less than its nodes. Each of these has in its
journal what was known of a file when it was loaded, and lets none go that a master does not know
(`receiver.tablet_copies.tablet_replica`). Here the nodes are asked what they have; nothing is
changed, at them or here: a file that was deleted while a node was away is offered as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from common import wire
from common.errors import NotFoundError, ProtocolError, TsferryError, UnreachableError
from receiver.placement.node_orders import KEPT_FILES, WITHIN
from receiver.tablet_copies.copies_wire import KeptFiles
from receiver.tablet_copies.read_tickets import READ_TICKET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from receiver.heartbeats.node_wire import ReportedTablet
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.placement.copies_there.copy_lists import CopyLists
    from receiver.placement.placeable_nodes import PlaceableNode
    from receiver.tablet_copies.copies_wire import CopiedFile, TableAttributes
    from receiver.tablet_copies.read_tickets import TicketMaker

__all__ = ["AsksKept", "KeptOfNodes", "KnownOfNode", "OfferedFiles", "OfferedOfNode"]


class AsksKept(Protocol):
    """Asks a node; raises errors of the common tree."""

    def kept(self, node: PlaceableNode, tablet: str, after: str | None) -> KeptFiles:
        """A page of what it has of a tablet."""

    def content(
        self, node: PlaceableNode, ticket: str, tablet: str, physical: str, begin: int, length: int
    ) -> bytes:
        """Bytes of a file, perhaps fewer than asked for."""


class KeptOfNodes:
    """Over HTTP; see `AsksKept`."""

    def __init__(self, ca_cert: str | None) -> None:
        self._ca_cert = ca_cert

    def kept(self, node: PlaceableNode, tablet: str, after: str | None) -> KeptFiles:
        """See `AsksKept`."""
        query: dict[str, str | int | None] = {"tablet": tablet, "after": after}
        return wire.decode(
            self._get(node, node.call_key, KEPT_FILES, query, {}), KeptFiles, "the node's answer"
        )

    def content(
        self, node: PlaceableNode, ticket: str, tablet: str, physical: str, begin: int, length: int
    ) -> bytes:
        """See `AsksKept`."""
        from receiver.storage.reading.copy_reads import CONTENT_OF_NODE

        query: dict[str, str | int | None] = {
            "tablet": tablet,
            "path": physical,
            "begin": begin,
            "length": length,
        }
        return self._get(node, None, CONTENT_OF_NODE, query, {READ_TICKET: ticket})

    def _get(
        self,
        node: PlaceableNode,
        token: str | None,
        path: str,
        query: Mapping[str, str | int | None],
        headers: Mapping[str, str],
    ) -> bytes:
        from receiver.storage.reading.reader_calls import ReaderCalls

        calls = ReaderCalls(
            node.url, token=token, ca_cert=self._ca_cert, what="the node's URL", within=WITHIN
        )
        try:
            return calls.get(path, query, headers)
        finally:
            calls.close()


class OfferedOfNode(NamedTuple):
    """A file that a node has and the catalogue has not."""

    node: str
    tablet: str
    table: str
    file: CopiedFile


class KnownOfNode(NamedTuple):
    """What a node knows of a table, and the catalogue does not."""

    node: str
    table: str
    attributes: TableAttributes


class OfferedFiles:
    """Asks nodes; any thread may."""

    def __init__(
        self,
        engine: Engine,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        every: Callable[[str], Iterable[ReportedTablet]],
        lists: CopyLists,
        tickets: TicketMaker,
        calls: AsksKept,
    ) -> None:
        """Prepare.

        Args:
            engine: of the master.
            nodes: as they are now.
            every: all that a node has reported.
            lists: of what belongs to tablets.
            tickets: for what nodes give.
            calls: asks them.
        """
        self._engine = engine
        self._nodes = nodes
        self._every = every
        self._lists = lists
        self._tickets = tickets
        self._calls = calls

    def find(self, most: int) -> tuple[list[OfferedOfNode], list[str]]:
        """Files that are offered, each once, and uuids of nodes that may have more.

        Args:
            most: files; further ones are left for the next time.
        """
        found: dict[tuple[str, str], OfferedOfNode] = {}
        silent: list[str] = []
        for uuid, node in self._nodes().items():
            if node.is_lost:
                continue
            if node.is_down or not node.url:
                silent.append(uuid)
                continue
            try:
                for each in self._of_node(node):
                    found.setdefault((each.file.physical, each.file.md5), each)
                    if len(found) >= most:
                        return list(found.values()), silent
            except TsferryError:
                silent.append(uuid)
        return list(found.values()), silent

    def tables(self) -> list[KnownOfNode]:
        """Tables that nodes know something of as of a later commit than is known here, by name.

        A TTL that is forgotten here would have files come back, and stay, that were to go.
        """
        found: dict[str, KnownOfNode] = {}
        for node in self._nodes().values():
            if node.is_lost or node.is_down or not node.url:
                continue
            try:
                for each in self._tables_of(node):
                    known = found.get(each.table)
                    if known is None or known.attributes.version < each.attributes.version:
                        found[each.table] = each
            except TsferryError:
                continue  # it is named among the silent ones
        return [found[name] for name in sorted(found)]

    def _tables_of(self, node: PlaceableNode) -> Iterator[KnownOfNode]:
        asked: set[tuple[str | None, int]] = set()
        for reported in self._every(node.uuid):
            if not reported.version:
                continue
            with self._engine.reading() as state:
                tablet = state.tablet_table.rows.get(reported.id)
                row = None if tablet is None else state.loaded_tables.rows[tablet.table]
            key = None if row is None else row.id, reported.version
            is_known = row is not None and (row.dropped or row.version >= reported.version)
            if is_known or (row is not None and key in asked):
                continue
            asked.add(key)
            page = self._calls.kept(node, reported.id, None)
            with self._engine.reading() as state:
                there = state.loaded_tables.named(page.table)
            if page.table and (there is None or there.version < page.attributes.version):
                yield KnownOfNode(node.uuid, page.table, page.attributes)

    def content(self, uuid: str, tablet: str, physical: str, begin: int, length: int) -> bytes:
        """Bytes of an offered file, perhaps fewer than asked for.

        Raises:
            NotFoundError: there is no such node.
            UnreachableError: it is not heard from.
        """
        node = self._nodes().get(uuid)
        if node is None:
            raise NotFoundError(f"there is no node {uuid}")
        ticket = self._tickets.ticket(uuid, tablet)
        if ticket is None or not node.url:
            raise UnreachableError(f"the node {uuid} is not heard from")
        return self._calls.content(node, ticket, tablet, physical, begin, length)

    def _of_node(self, node: PlaceableNode) -> Iterator[OfferedOfNode]:
        for reported in self._every(node.uuid):
            if not reported.files or self._is_listed(reported):
                continue
            after: str | None = None
            while True:
                page = self._calls.kept(node, reported.id, after)
                with self._engine.reading() as state:
                    unknown = [each for each in page.files if not _is_known(state, each)]
                for file in unknown:
                    yield OfferedOfNode(node.uuid, reported.id, page.table, file)
                if page.next is None:
                    break
                if after is not None and page.next <= after:
                    raise ProtocolError(f"the list of {reported.id} does not go on: {after}")
                after = page.next

    def _is_listed(self, reported: ReportedTablet) -> bool:
        """Whether all of a replica is on the list of its tablet."""
        return self._lists.digest_of(reported.id) == reported.digest


def _is_known(state: State, file: CopiedFile) -> bool:
    """Whether the catalogue has a file, under the name that it has at the node or another one."""
    if file.physical in state.files:
        return True
    held = state.file_table.held(file.sender, file.path)
    return held is not None and held.md5 == file.md5
