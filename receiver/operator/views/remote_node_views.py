"""What is told of storage nodes, as JSON and on terminals."""

from __future__ import annotations

from typing import Literal

from common.wire import Struct
from receiver.heartbeats.node_wire import DirectoryRoom, ReportedTablet

__all__ = ["NodeTotals", "RemoteNodeState", "RemoteNodeView", "RemoteNodesPage", "UnknownTablets"]


RemoteNodeState = Literal["up", "down", "reporting", "unheard", "draining", "lost"]


class RemoteNodeView(Struct, frozen=True, kw_only=True):
    """A storage node.

    Attributes:
        uuid: of the node, for life.
        name: for people.
        url: where the master calls it.
        host: tells its machine from others.
        instance: the newest of its starts that was taken.
        state: `up`; `down`: silent for longer than `nodes.timeout`; `unheard`: not heard from since
            the master began, which was not that long ago; `reporting`: it speaks, and its full
            report is not here yet; `draining` and `lost`: as an operator said.
        age: seconds since it was last heard from, or since the master began; None where no master
            runs.
        heard: whether it was heard from since the master began.
        version: of its program.
        tablets: that it reports.
        files: in these.
        bytes: of these.
        copying: tablets that are not whole there yet.
        damaged: tablets that it cannot give.
        unknown: tablets that the catalogue does not have; they stay, and are shown.
        load: calls that it works on.
        free: bytes of its directories together, those of one file system once.
        cache: bytes that it may keep of the object store for others; 0 for none.
        directories: of its data.
        behind: whether the newest commit that it has seen is one that the master does not have.
        doubt: why it carries out no order that destroys something.
        refused: what was said to another start, or to a copy of it; the last one.
    """

    uuid: str
    name: str
    url: str = ""
    host: str = ""
    instance: int
    state: RemoteNodeState
    age: float | None = None
    heard: bool = False
    version: str = ""
    tablets: int = 0
    files: int = 0
    bytes: int = 0
    copying: int = 0
    damaged: int = 0
    unknown: int = 0
    load: int = 0
    free: int = 0
    cache: int = 0
    directories: tuple[DirectoryRoom, ...] = ()
    behind: bool = False
    doubt: str = ""
    refused: str = ""


class RemoteNodesPage(Struct, frozen=True, kw_only=True):
    """Storage nodes, by uuid.

    Attributes:
        nodes: of this page.
        next: the cursor of the page after.
    """

    nodes: list[RemoteNodeView]
    next: str | None = None


class UnknownTablets(Struct, frozen=True, kw_only=True):
    """Tablets that a node holds and the catalogue does not have, in order of their ids.

    Attributes:
        tablets: of this page.
        next: the cursor of the page after.
    """

    tablets: list[ReportedTablet]
    next: str | None = None


class NodeTotals(Struct, frozen=True, kw_only=True):
    """Storage nodes in numbers.

    Attributes:
        nodes: that belong to the engine, lost ones not counted.
        down: of these, silent for too long.
        reporting: of these, those that speak and whose full report is not here yet.
        lost: that an operator has declared lost.
        partial: of these, those that are heard from, and miss a directory.
        doubting: that do not trust this master, or have seen commits which it does not have.
        oldest: seconds since the one was heard that has been silent for the longest time.
        tablets: that they report.
        unknown: of these, those that the catalogue does not have.
    """

    nodes: int = 0
    down: int = 0
    reporting: int = 0
    lost: int = 0
    partial: int = 0
    doubting: int = 0
    oldest: float = 0.0
    tablets: int = 0
    unknown: int = 0
