"""The places that files lie at, searched, sorted and in pages, however many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from receiver.operator.directories import RunningReceiver, time_of
from receiver.operator.places.node_lists import list_nodes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from receiver.heartbeats.node_wire import DirectoryRoom
    from receiver.operator.directories import ReceiverDirectories
    from receiver.operator.list_asked import ListAsked
    from receiver.operator.views.node_views import NodeView

__all__ = [
    "NODE_ORDERS",
    "FoundNodes",
    "NodeFound",
    "node_found",
    "node_troubles",
    "search_nodes",
]

_UNTROUBLED: Final = ("standing", "up", "draining")
_FOREVER: Final = float("inf")
_WORDS: Final = {
    "away": "away",
    "down": "silent",
    "reporting": "its full report is not here yet",
    "unheard": "not heard since the start",
}


class NodeFound(NamedTuple):
    """A node of a page.

    Attributes:
        view: all that `nodes list` has of it.
        heard_at: when a process was last heard from, seconds since the epoch; None of a directory,
            and of one that was not heard from since the server began.
        version: of its program, if that is a process that was heard from; else empty.
        directories: of such a process.
        troubles: what somebody should look at, in words.
    """

    view: NodeView
    heard_at: float | None
    version: str
    directories: tuple[DirectoryRoom, ...]
    troubles: tuple[str, ...]


@dataclass(frozen=True)
class FoundNodes:
    """A page of nodes.

    Attributes:
        nodes: of the page.
        first: number of the first of them among those that were found, from 0 on.
        found: how many were found.
        known: how many there are.
        remote: of these, processes.
        troubled: of all, those with some trouble.
        lost: of all, those that are lost: that is no trouble, somebody has said it.
    """

    nodes: list[NodeFound]
    first: int
    found: int
    known: int
    remote: int
    troubled: int
    lost: int


_BY: Final[dict[str, Callable[[NodeView], Any]]] = {
    "name": lambda view: (view.kind, view.name.casefold(), view.uuid),
    "state": lambda view: (not node_troubles(view), view.state),
    "heard": lambda view: _FOREVER if view.age is None else view.age,
    "tablets": lambda view: view.tablets,
    "files": lambda view: view.files,
    "bytes": lambda view: view.bytes,
    "free": lambda view: -1 if view.free_bytes is None else view.free_bytes,
}
NODE_ORDERS = tuple(_BY)
"""What nodes can be sorted by; by `state` those with trouble come first."""


def search_nodes(there: ReceiverDirectories, asked: ListAsked) -> FoundNodes:
    """A page of the nodes.

    Args:
        there: what to look at; only a server that runs hears processes.
        asked: which of them, by name, uuid, host or state; sorted by one of `NODE_ORDERS`.

    Raises:
        UsageError: there is no such order.
    """
    every = list_nodes(there).nodes
    found = asked.found(every, _BY, has=_has, troubles=node_troubles)
    return FoundNodes(
        nodes=[node_found(there, each) for each in asked.page(found)],
        first=asked.first,
        found=len(found),
        known=len(every),
        remote=sum(each.kind == "remote" for each in every),
        troubled=sum(bool(node_troubles(each)) for each in every),
        lost=sum(each.state == "lost" for each in every),
    )


def node_found(there: ReceiverDirectories, view: NodeView) -> NodeFound:
    """A node with what its view has no room for."""
    heard = there.nodes.heard(view.uuid) if isinstance(there, RunningReceiver) else None
    silent = view.age if heard is not None else None
    return NodeFound(
        view=view,
        heard_at=None if silent is None else time_of(there) - silent,
        version="" if heard is None else heard.registration.version,
        directories=() if heard is None else tuple(heard.directories),
        troubles=node_troubles(view),
    )


def node_troubles(view: NodeView) -> tuple[str, ...]:
    """What somebody should look at; nothing of a node that is lost, for that was said."""
    if view.state == "lost":
        return ()
    found = [] if view.state in _UNTROUBLED else [_WORDS[view.state]]
    if view.why:
        found.append(view.why)
    check, drain = view.check, view.drain
    if check is not None:
        found += [
            f"{number} {what}"
            for number, what in (
                (check.missing, "files missing"),
                (check.wrong, "files of another size"),
                (check.foreign, "files not in the catalogue"),
            )
            if number
        ]
    if drain is not None and drain.stuck:
        found.append("files cannot be moved away")
    return tuple(found)


def _has(view: NodeView, text: str) -> bool:
    return (
        not text
        or text in view.uuid
        or text in view.name.casefold()
        or text in view.host.casefold()
        or text == view.state
    )
