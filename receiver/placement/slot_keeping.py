"""Which storage nodes keep what of the object store: kept up to date, and told to readers.

Who is one of them follows from what nodes say of themselves. One that says it keeps nothing any
more, that is emptied, lost or forgotten gives its slots away at once; one that is silent keeps them
as long as it keeps its tablets (`nodes.lost_after`), and is named to nobody meanwhile. Whoever was
named a node reads there as long as that answers: objects never change, so no version of the slots
gives other bytes than another.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from common.errors import NotFoundError, TsferryError
from receiver.metadata.model import records
from receiver.metadata.state.tables.file_tables.retired import partition_of
from receiver.placement.slot_map import owners_of, slot_of
from receiver.tablet_copies.cached_files import CachedFile
from receiver.tablet_copies.copies_wire import CachePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.place_tables.cache_slots import CacheSlotsRow
    from receiver.placement.placeable_nodes import PlaceableNode
    from receiver.storage.reading.stored_place import StoredPlace
    from receiver.tablet_copies.read_tickets import TicketMaker

__all__ = ["SlotKeeper", "cache_nodes"]

log = logging.getLogger(__name__)

_EVERY: Final = 1.0
"""Seconds between two looks, at least; and twenty times as long as the last one took."""


class _Where(NamedTuple):
    version: int
    owner: str | None
    before: str | None
    place: StoredPlace


def cache_nodes(
    nodes: Mapping[str, PlaceableNode], row: CacheSlotsRow | None, lost_after: float
) -> dict[str, int]:
    """Bytes that each node keeps which is to have slots.

    Args:
        nodes: all that there are.
        row: the slots as they are.
        lost_after: seconds of silence after which a node has none any more; 0 for never.
    """
    known = {} if row is None else dict(zip(row.nodes, row.sizes, strict=True))
    found = {}
    for uuid, node in nodes.items():
        if node.is_lost or node.is_draining or (lost_after and node.age > lost_after):
            continue
        # Of one that was not heard since the start of this process what it said before counts.
        size = node.cache if node.url else known.get(uuid, 0)
        if size:
            found[uuid] = size
    return found


class SlotKeeper:
    """Any thread may call."""

    def __init__(
        self,
        engine: Engine,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        nodes_now: Callable[[], Mapping[str, PlaceableNode]],
        tickets: TicketMaker,
        *,
        lost_after: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at nothing yet.

        Args:
            engine: of the master.
            nodes: gives those that there are, as they were a moment ago.
            nodes_now: gives those that there are.
            tickets: by keys that nodes have.
            lost_after: see `cache_nodes`.
            monotonic: seconds that nobody sets.
        """
        self._engine = engine
        self._nodes = nodes
        self._nodes_now = nodes_now
        self._tickets = tickets
        self._lost_after = lost_after
        self._monotonic = monotonic
        self._looking = threading.Lock()
        self._next = 0.0

    def look(self) -> None:
        """Commit other slots if the nodes are others; called often, does so now and then."""
        if self._monotonic() < self._next or not self._looking.acquire(blocking=False):
            return
        try:
            begun = self._monotonic()
            self._settle()
            taken = self._monotonic() - begun
            self._next = begun + max(_EVERY, 20 * taken)
        except TsferryError as error:  # the next look sees what has become of it
            log.warning("cache slots stay as they are", extra={"reason": error.message})
        finally:
            self._looking.release()

    def _settle(self) -> None:
        nodes = self._nodes_now()
        with self._engine.reading() as state:
            row = state.cache_slots.row
        wanted = cache_nodes(nodes, row, self._lost_after)
        known = {} if row is None else dict(zip(row.nodes, row.sizes, strict=True))
        if wanted == known:
            return
        uuids, owners = owners_of(wanted)
        version = 1 if row is None else row.version + 1
        sizes = [wanted[each] for each in uuids]
        self._engine.commit([records.CacheSlotsSet(version, uuids, sizes, owners)])
        log.info("cache slots have moved", extra={"version": version, "nodes": len(uuids)})

    def place(self, physical: str) -> CachePlace | None:
        """The node that keeps a file of the store; None where none does, or it is not there.

        Raises:
            NotFoundError: there is no such file.
        """
        found = self._where(physical)
        if found is None:
            return None
        made = CachedFile(
            version=found.version,
            key=found.place.key,
            size=found.place.size,
            md5=found.place.md5,
            blocks=found.place.blocks,
        )
        if found.before is not None and (before := self._ticket(found.before, made)) is not None:
            made = CachedFile(
                version=made.version,
                key=made.key,
                size=made.size,
                md5=made.md5,
                blocks=made.blocks,
                before=before.url,
                before_ticket=before.ticket,
            )
        return None if found.owner is None else self._ticket(found.owner, made)

    def _where(self, physical: str) -> _Where | None:
        with self._engine.reading() as state:
            file = state.files.get(physical)
            if file is None:
                raise NotFoundError(f"{physical!a} is no file of the catalogue")
            row, before = state.cache_slots.row, state.cache_slots.before
            there = state.uploaded_table.rows.get(physical)
        if row is None or not row.nodes or there is None or not file.size:
            return None
        # Only here: what never had a store imports nothing of it.
        from receiver.storage.cache.stored_files import place_of
        from receiver.storage.reading.block_digests import WHOLE_BYTES

        place = place_of(None, self._engine.uuid, there, file.md5)
        if place.size > WHOLE_BYTES and not place.blocks:
            return None  # it would be read whole for each question
        key = partition_of(physical)
        slot = slot_of(key.sg, int(key.partition))
        owner, had = row.owner(slot), None if before is None else before.owner(slot)
        return _Where(row.version, owner, None if had == owner else had, place)

    def _ticket(self, uuid: str, file: CachedFile) -> CachePlace | None:
        node = self._nodes().get(uuid)
        if node is None or not node.url or node.is_down or node.is_lost or not node.cache:
            return None
        ticket = self._tickets.cache_ticket(uuid, file.written())
        if ticket is None:
            return None
        return CachePlace(url=node.url, ticket=ticket, version=file.version)
