"""The nodes that copies can be placed at, as one look at the node manager finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from receiver.heartbeats.node_wire import free_of

if TYPE_CHECKING:
    from receiver.heartbeats.node_manager import NodeManager

__all__ = ["PlaceableNode", "look_at_nodes"]


class PlaceableNode(NamedTuple):
    """A node.

    Attributes:
        uuid: of it.
        host: its machine; two that say nothing may be the same one.
        url: where it is called; empty while it was not heard from.
        call_key: what its calls are made with; empty while it was not heard from.
        age: seconds since it was heard from, or since this process began.
        is_down: it has been silent for too long to be given anything.
        is_draining: it is being emptied.
        is_lost: an operator has said that what was there is gone.
        is_hurt: a directory that it began with is away: which of its files these are is not known.
        is_partial: a directory is away, of those too that it began without.
        free: bytes that it has room for.
        used: bytes of copies that it reports.
        tablets: how many it reports.
        boot: of its newest start.
        cache: bytes that it keeps of the object store for others; 0 for none.
    """

    uuid: str
    host: str
    url: str = ""
    call_key: str = ""
    age: float = 0.0
    is_down: bool = False
    is_draining: bool = False
    is_lost: bool = False
    is_hurt: bool = False
    is_partial: bool = False
    free: int = 0
    used: int = 0
    tablets: int = 0
    boot: str = ""
    cache: int = 0

    @property
    def takes(self) -> bool:
        """Whether something new may be placed there, room or not."""
        return bool(self.url) and not (self.is_down or self.is_draining or self.is_lost)

    @property
    def counts(self) -> bool:
        """Whether what it has said that it has may be relied on now."""
        return not (self.is_down or self.is_lost or self.is_hurt)

    @property
    def tells_all(self) -> bool:
        """Whether what it does not report is not there now."""
        return self.counts and not self.is_partial


def look_at_nodes(manager: NodeManager) -> dict[str, PlaceableNode]:
    """All remote nodes, by uuid."""
    found: dict[str, PlaceableNode] = {}
    for row, heard, age, is_down in manager.nodes():
        node = PlaceableNode(
            row.uuid,
            row.host,
            age=age,
            is_down=is_down or heard is None,
            is_draining=bool(row.draining),
            is_lost=bool(row.lost),
        )
        if heard is not None:
            node = node._replace(
                host=heard.registration.host or row.host,
                url=heard.registration.url,
                call_key=heard.registration.call_key,
                free=free_of(heard.directories),
                used=heard.reports.held.totals.size,
                tablets=len(heard.reports.held),
                boot=heard.start.boot,
                cache=heard.registration.cache,
                is_hurt=any(each.problem and each.begun for each in heard.directories),
                is_partial=any(each.problem for each in heard.directories),
            )
        found[row.uuid] = node
    return found
