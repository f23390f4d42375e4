"""What is told of storage nodes, as JSON and on terminals."""

from __future__ import annotations

from typing import Literal

from common.wire import Struct
from common.wire.base import CommitTs

__all__ = [
    "CheckView",
    "DrainView",
    "LossRequest",
    "LossView",
    "NodeState",
    "NodeView",
    "NodesPage",
    "StuckFileView",
]

NodeState = Literal["standing", "away", "draining", "lost", "up", "down", "reporting", "unheard"]


class StuckFileView(Struct, frozen=True, kw_only=True):
    """A file that stays where it is, and why; its name in the data directory."""

    file: str
    """Its name below the data directory."""
    why: str
    """What is in the way, in words."""


class DrainView(Struct, frozen=True, kw_only=True):
    """How far the draining of a data directory is, as it was looked at last.

    Attributes:
        files: that are to be moved still.
        bytes: of them.
        moved: files that were moved since the server runs.
        moved_bytes: of them.
        copies: of moved files that are here still, for those who read them here.
        senders: folders of senders that stand here still.
        unknown: files that the catalogue does not have.
        stuck: why some are not moved; the first of them.
        empty: whether the directory can be taken out.
    """

    files: int = 0
    bytes: int = 0
    moved: int = 0
    moved_bytes: int = 0
    copies: int = 0
    senders: int = 0
    unknown: int = 0
    stuck: tuple[StuckFileView, ...] = ()
    empty: bool = False


class CheckView(Struct, frozen=True, kw_only=True):
    """What the last round over the names of a data directory found; see `[nodes]`.

    Attributes:
        at: when it ended, seconds since the epoch.
        files: that are there, with their resources.
        missing: files of the catalogue that are in no directory and no store.
        wrong: files of another size than were loaded.
        foreign: files that the catalogue does not have.
        some: the first of these: what is with each, and its name.
    """

    at: float
    files: int = 0
    missing: int = 0
    wrong: int = 0
    foreign: int = 0
    some: tuple[StuckFileView, ...] = ()


class NodeView(Struct, frozen=True, kw_only=True):
    """A place that files lie at: a data directory of the receiver, or a process that keeps files.

    Attributes:
        uuid: 32 hex digits, for life.
        kind: `directory` or `remote`.
        name: path of a directory, URL of a process.
        host: the machine that it is on.
        instance: how often it has started.
        state: `draining` and `lost`, as an operator said; of a directory `standing`, `away`; of a
            process `up`, `down`, `reporting`, `unheard`, see `RemoteNodeView`.
        why: it is away; of a process, what else is not as it should be.
        since: the commit since which it is drained or lost; else that made it.
        since_at: when that was, seconds since the epoch; None where it is not known.
        free_bytes: of its file system; None while it is not here.
        files: that readers see, by where the catalogue has them.
        bytes: of them.
        tablets: time partitions of storage groups that these are of.
        drain: how far its draining is; None while it is not drained, or was not looked at.
        age: seconds since a process was last heard from, or since the server began.
        check: what the last round over its names found; None before there was one.
    """

    uuid: str
    kind: str
    name: str
    host: str
    instance: int
    state: NodeState
    why: str | None = None
    since: CommitTs
    since_at: float | None = None
    free_bytes: int | None = None
    files: int = 0
    bytes: int = 0
    tablets: int = 0
    drain: DrainView | None = None
    check: CheckView | None = None
    age: float | None = None


class LossRequest(Struct, frozen=True, kw_only=True):
    """Say that what lies at a node is gone for good.

    Attributes:
        confirm: do it; else it is only told what is lost.
        replace: path of an empty directory of `data_dirs` that comes in its place.
    """

    confirm: bool = False
    replace: str | None = None


class LossView(Struct, frozen=True, kw_only=True):
    """What is lost with a data directory, or would be: what nobody else has.

    Attributes:
        node: uuid of it.
        name: of it.
        kind: `remote` for a storage node, of which only `alone` is told.
        wanted: files that their senders are asked for again.
        wanted_bytes: of them.
        gone: files that their senders have no more: `tsferry-receiver lost` lists them.
        gone_bytes: of them.
        superseded: files that readers left out, for others give their points.
        merged: merges whose inputs are read again.
        stored: files that are in the object store, or have left the disks for storage nodes, and
            are read there.
        elsewhere: files that another directory has.
        copied: files that storage nodes have, and that come back before anything is called lost.
        perhaps: files that storage nodes may have, which are silent or have not told yet: they are
            asked, and while one is silent nothing is called lost.
        kept: files in quarantine whose bytes are gone.
        first_gone: paths of the first of those that are gone.
        alone: of a storage node: files that are in no data directory, and that no other node is
            known to have now.
        alone_bytes: of them.
        done: whether it was carried out.
        replaced: the directory that was made ready in its place, for the next start.
    """

    node: str
    name: str
    kind: Literal["directory", "remote"] = "directory"
    wanted: int = 0
    wanted_bytes: int = 0
    gone: int = 0
    gone_bytes: int = 0
    superseded: int = 0
    merged: int = 0
    stored: int = 0
    elsewhere: int = 0
    copied: int = 0
    perhaps: int = 0
    kept: int = 0
    first_gone: tuple[str, ...] = ()
    alone: int = 0
    alone_bytes: int = 0
    done: bool = False
    replaced: str | None = None


class NodesPage(Struct, frozen=True, kw_only=True):
    """All nodes, by kind and name.

    Attributes:
        commit: that they are as of.
        nodes: each of them.
    """

    commit: CommitTs
    nodes: list[NodeView]
