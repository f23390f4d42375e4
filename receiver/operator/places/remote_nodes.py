"""Storage nodes as operators see them, and what operators say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from common.errors import ConflictError, NotFoundError
from receiver.heartbeats.node_manager import NodeSeen
from receiver.heartbeats.node_wire import free_of
from receiver.metadata.model import records
from receiver.operator.directories import RunningReceiver
from receiver.operator.views.remote_node_views import (
    NodeTotals,
    RemoteNodesPage,
    RemoteNodeView,
    UnknownTablets,
)
from receiver.transfer.said_lists.listing import page_limit

if TYPE_CHECKING:
    from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow
    from receiver.operator.directories import ReceiverDirectories
    from receiver.operator.views.remote_node_views import RemoteNodeState

__all__ = [
    "accept_node",
    "declare_node_found",
    "list_remote_nodes",
    "must_be_silent",
    "node_totals",
    "remote_node_concerns",
    "remote_views",
    "show_remote_node",
    "unknown_tablets",
]

_REMOTE: Final = "remote"


def list_remote_nodes(
    there: ReceiverDirectories, *, after: str | None = None, limit: int | None = None
) -> RemoteNodesPage:
    """A page of the storage nodes, by uuid.

    Args:
        there: what to look at.
        after: the cursor of the page before.
        limit: nodes of the page; as many as the configuration allows, if left out.
    """
    limit = page_limit(limit, there.config.limits.max_page_items)
    found = sorted(_seen(there), key=lambda each: each.row.uuid)
    page = [each for each in found if after is None or each.row.uuid > after]
    return RemoteNodesPage(
        nodes=[_view(each, there) for each in page[:limit]],
        next=page[limit - 1].row.uuid if len(page) > limit else None,
    )


def show_remote_node(there: ReceiverDirectories, node: str) -> RemoteNodeView:
    """One of them.

    Args:
        there: what to look at.
        node: its uuid, or its name.

    Raises:
        NotFoundError: there is none.
        ConflictError: several have the name.
    """
    return _view(_one(there, node), there)


def remote_views(there: ReceiverDirectories) -> dict[str, RemoteNodeView]:
    """All of them, by uuid."""
    return {each.row.uuid: _view(each, there) for each in _seen(there)}


def must_be_silent(there: ReceiverDirectories, node: str) -> None:
    """See that a storage node does not speak, so that it can be called lost, or none.

    Raises:
        ConflictError: it does.
    """
    found = _one(there, node)
    if found.heard is not None and not found.is_down and not found.row.lost:
        raise ConflictError(
            f"the node {found.row.uuid} was heard {found.age:.0f} s ago: stop it first"
        )


def unknown_tablets(
    there: ReceiverDirectories, node: str, *, after: str | None = None, limit: int | None = None
) -> UnknownTablets:
    """Tablets that a node holds and the catalogue does not have; they are never deleted for that.

    Raises:
        NotFoundError, ConflictError: see `show_remote_node`.
    """
    limit = page_limit(limit, there.config.limits.max_page_items)
    heard = _one(there, node).heard
    found = [] if heard is None else heard.reports.held.unknown()
    with there.engine.reading() as state:  # one that was reported early may be known by now
        rows = state.tablet_table.rows
        page = [
            each for each in found if each.id not in rows and (after is None or each.id > after)
        ]
    return UnknownTablets(
        tablets=page[:limit], next=page[limit - 1].id if len(page) > limit else None
    )


def declare_node_found(there: RunningReceiver, node: str) -> None:
    """Say that a node is there after all.

    Raises:
        NotFoundError: there is none.
        ConflictError: it is not lost.
    """
    found = _one(there, node)
    if not found.row.lost:
        raise ConflictError(f"the node {found.row.uuid} is not lost")
    there.engine.commit([records.NodeLost(found.row.uuid, lost=False)])


def accept_node(there: RunningReceiver, node: str) -> None:
    """Let the next start of a node go on, of whatever copy of its directory.

    Raises:
        NotFoundError: there is none.
    """
    there.nodes.accept(_one(there, node).row.uuid)


def node_totals(there: ReceiverDirectories) -> NodeTotals:
    """Storage nodes in numbers."""
    found = _seen(there)
    kept = [each for each in found if not each.row.lost]
    heard = [each.heard for each in kept if each.heard is not None]
    newest = there.engine.newest_commit
    running = isinstance(there, RunningReceiver)
    return NodeTotals(
        nodes=len(kept),
        down=sum(each.is_down for each in kept),
        reporting=sum(_is_reporting(each) for each in kept),
        lost=len(found) - len(kept),
        partial=sum(_is_partial(each) for each in kept),
        doubting=sum(bool(each.doubt) or each.commit > newest for each in heard),
        oldest=round(max((each.age for each in kept), default=0.0), 3) if running else 0.0,
        tablets=sum(len(each.reports.held) for each in heard),
        unknown=sum(each.reports.held.totals.unknown for each in heard),
    )


def _is_partial(seen: NodeSeen) -> bool:
    heard = seen.heard
    return heard is not None and not seen.is_down and any(d.problem for d in heard.directories)


def remote_node_concerns(totals: NodeTotals) -> list[str]:
    """What of them is not as it should be."""
    found = []
    if totals.down:
        found.append(f"{totals.down} of {totals.nodes} storage nodes are down.")
    if totals.partial:
        found.append(f"{totals.partial} of {totals.nodes} storage nodes miss a directory.")
    if totals.doubting:
        found.append(
            f"{totals.doubting} storage nodes have seen commits that this receiver does not have: "
            "was it restored from an older copy?"
        )
    if totals.unknown:
        found.append(f"{totals.unknown} tablets at storage nodes are not of this catalogue.")
    return found


def _seen(there: ReceiverDirectories) -> list[NodeSeen]:
    if isinstance(there, RunningReceiver):
        return there.nodes.nodes()
    with there.engine.reading() as state:
        rows = state.node_table.of_kind(_REMOTE)
    return [NodeSeen(row, None, 0.0, False) for row in rows]


def _one(there: ReceiverDirectories, node: str) -> NodeSeen:
    with there.engine.reading() as state:
        rows = [row for row in state.node_table.named(node) if row.kind == _REMOTE]
    if not rows:
        raise NotFoundError(f"there is no storage node {node[:80]!a}")
    if len(rows) > 1:
        raise ConflictError(f"{len(rows)} storage nodes are called {node[:80]!a}: name a uuid")
    return next(each for each in _seen(there) if each.row.uuid == rows[0].uuid)


def _view(found: NodeSeen, there: ReceiverDirectories) -> RemoteNodeView:
    row, heard = found.row, found.heard
    running = isinstance(there, RunningReceiver)
    view = RemoteNodeView(
        uuid=row.uuid,
        name=row.name,
        url=row.addresses[0] if row.addresses else "",
        host=row.host,
        instance=row.instance,
        state=_state(row, found),
        age=round(found.age, 3) if running else None,
        heard=heard is not None,
    )
    if heard is None:
        return view
    held = heard.reports.held
    totals = held.totals
    return replace(
        view,
        version=heard.registration.version,
        tablets=len(held),
        files=totals.files,
        bytes=totals.size,
        copying=totals.states["copying"],
        damaged=totals.states["damaged"],
        unknown=totals.unknown,
        load=heard.load,
        free=free_of(heard.directories),
        cache=heard.registration.cache,
        directories=tuple(heard.directories),
        behind=heard.commit > there.engine.newest_commit,
        doubt=heard.doubt,
        refused=heard.refused,
    )


def _state(row: StorageNodeRow, found: NodeSeen) -> RemoteNodeState:
    if row.lost:
        return "lost"
    if found.is_down:
        return "down"
    if found.heard is None:
        return "unheard"
    if _is_reporting(found):
        return "reporting"
    return "draining" if row.draining else "up"


def _is_reporting(found: NodeSeen) -> bool:
    heard = found.heard
    return not found.is_down and heard is not None and heard.reports.acknowledged is None
