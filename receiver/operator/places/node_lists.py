"""Storage nodes as operators see them, and what they say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.durable import free_bytes
from common.errors import ConflictError, NotFoundError
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.operator.directories import RunningReceiver
from receiver.operator.places.remote_nodes import remote_views, show_remote_node
from receiver.operator.views.node_views import (
    CheckView,
    DrainView,
    NodesPage,
    NodeState,
    NodeView,
    StuckFileView,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.datadirs.disks import Disk
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow
    from receiver.operator.directories import ReceiverDirectories
    from receiver.operator.views.remote_node_views import RemoteNodeView

__all__ = [
    "choose_node",
    "drain_node",
    "list_directories",
    "list_nodes",
    "node_concerns",
    "node_of",
    "node_to_drain",
    "say_of_node",
    "show_node",
    "undrain_node",
]

_SHORTEST = 4
"""Digits of a uuid that may stand for it."""


def list_nodes(there: ReceiverDirectories) -> NodesPage:
    """All nodes, by kind and name.

    Args:
        there: what to look at; a server that runs knows how far what it does is.
    """
    with there.engine.reading() as state:
        processes = state.node_table.of_kind("remote")
        newest = state.newest
    heard = remote_views(there)
    nodes = list_directories(there)
    nodes += [_process(there, row, heard[row.uuid]) for row in processes if row.uuid in heard]
    return NodesPage(commit=newest, nodes=nodes)


def list_directories(there: ReceiverDirectories) -> list[NodeView]:
    """Those of the nodes that are data directories of the receiver: a few."""
    with there.engine.reading() as state:
        rows = state.node_table.of_kind("directory")
    return [_view(there, row) for row in rows]


def show_node(there: ReceiverDirectories, text: str) -> NodeView:
    """One of them, by a uuid, the beginning of one, or a name.

    Raises:
        NotFoundError: there is none.
        ConflictError: there are several.
    """
    return _view(there, node_of(there, text))


def node_of(there: ReceiverDirectories, text: str) -> StorageNodeRow:
    """The node that a uuid, the beginning of one, or a name means.

    Raises:
        NotFoundError: there is none.
        ConflictError: there are several.
    """
    with there.engine.reading() as state:
        rows = dict(state.node_table.rows)
    return rows[choose_node([(row.uuid, row.name, bool(row.lost)) for row in rows.values()], text)]


def choose_node(known: Sequence[tuple[str, str, bool]], text: str) -> str:
    """The uuid of the node that a uuid, the beginning of one, or a name means.

    Args:
        known: uuid, name, and whether it is lost, of each.
        text: as it was typed.

    Raises:
        NotFoundError: there is none.
        ConflictError: there are several.
    """
    found = [each for each in known if text in each[:2]]
    if not found and len(text) >= _SHORTEST:
        found = [each for each in known if each[0].startswith(text)]
    standing = [each for each in found if not each[2]]
    if len(found) > 1 and len(standing) == 1:  # another disk came to be in the place of a lost one
        found = standing
    if not found:
        raise NotFoundError(f"there is no node {text}")
    if len(found) > 1:
        uuids = ", ".join(each[0] for each in found)
        raise ConflictError(f"{text} may be any of the nodes {uuids}: say which by its uuid")
    return found[0][0]


def drain_node(there: RunningReceiver, text: str) -> NodeView:
    """Have nothing new come to a node, and what is there move away; said twice it is said once.

    Raises:
        NotFoundError: there is no such node.
        ConflictError: it is lost, or there is no other data directory for its files.
    """
    row = node_to_drain(there, text)
    if not row.draining:
        say_of_node(there, row, records.NodeDraining(row.uuid, draining=True))
    return _view(there, node_of(there, row.uuid))


def node_to_drain(there: ReceiverDirectories, text: str) -> StorageNodeRow:
    """A node that can be drained, or is.

    Raises:
        NotFoundError, ConflictError: see `drain_node`.
    """
    row = node_of(there, text)
    if row.lost:
        raise ConflictError(f"{row.name} is lost: there is nothing to be moved")
    if not row.draining and row.kind == "directory" and not _others(there, row):
        raise ConflictError(
            f"no other data directory is there that takes files: add one to data_dirs, or "
            f"undrain one, before {row.name} is drained"
        )
    return row


def undrain_node(there: RunningReceiver, text: str) -> NodeView:
    """Have files come to a node again; what was moved stays where it is, and its copies here go.

    Raises:
        NotFoundError: there is no such node.
    """
    row = node_of(there, text)
    if row.draining:
        say_of_node(there, row, records.NodeDraining(row.uuid, draining=False))
    return _view(there, node_of(there, row.uuid))


def node_concerns(there: RunningReceiver) -> list[str]:
    """What is not as it should be with data directories, in words."""
    found = []
    for each in list_directories(there):
        check, drain = each.check, each.drain
        if check is not None and (check.missing or check.wrong or check.foreign):
            found.append(
                f"{each.name}: {check.missing} files are missing, {check.wrong} have another size, "
                f"{check.foreign} are not in the catalogue: `tsferry-receiver nodes list` says more"
            )
        if drain is not None and drain.stuck:
            found.append(
                f"{each.name} is drained, and files of it cannot be moved: "
                "`tsferry-receiver nodes list` says why"
            )
    return found


def say_of_node(
    there: RunningReceiver,
    row: StorageNodeRow,
    op: records.NodeDraining | records.NodeForgotten | records.NodeLost,
) -> None:
    """Commit what an operator says of a node, and have it heeded.

    Raises:
        ConflictError: the node is not as it was looked at.
    """
    try:
        there.engine.commit([op], [Guard("node", row.uuid, row.changed)])
    except GuardFailed as error:
        raise ConflictError(f"{row.name} has changed meanwhile; look again") from error
    there.disks.hear(there.engine)
    there.load.mover.wake()


def _others(there: ReceiverDirectories, row: StorageNodeRow) -> bool:
    """Whether another data directory takes files now."""
    return any(
        each.uuid != row.uuid and each.uuid not in there.disks.draining
        for each in there.disks.every()
        if each.why_away() is None
    )


def _disk(there: ReceiverDirectories, row: StorageNodeRow) -> Disk | None:
    return next((each for each in there.disks.every() if each.uuid == row.uuid), None)


# -- views ---------------------------------------------------------------------------------------


def _process(there: ReceiverDirectories, row: StorageNodeRow, heard: RemoteNodeView) -> NodeView:
    return NodeView(
        uuid=row.uuid,
        kind=row.kind,
        name=row.name,
        host=row.host,
        instance=row.instance,
        state=heard.state,
        why=_of_process(heard),
        since=row.lost or row.draining or row.created,
        since_at=_moment(there.engine, row.lost or row.draining or row.created),
        free_bytes=heard.free if heard.heard else None,
        files=heard.files,
        bytes=heard.bytes,
        tablets=heard.tablets,
        age=heard.age,
    )


def _of_process(heard: RemoteNodeView) -> str | None:
    """What is not as it should be with a process that keeps files."""
    away = sum(bool(each.problem) for each in heard.directories)
    found = [
        f"{heard.unknown} tablets are not of this catalogue" if heard.unknown else "",
        f"{heard.damaged} tablets are damaged there" if heard.damaged else "",
        "it has seen commits that are not here" if heard.doubt or heard.behind else "",
        "another start of it was refused" if heard.refused else "",
        f"{away} of its directories are away" if away else "",
    ]
    return "; ".join(each for each in found if each) or None


def _view(there: ReceiverDirectories, row: StorageNodeRow) -> NodeView:
    if row.kind == "remote":
        return _process(there, row, show_remote_node(there, row.uuid))
    disk = _disk(there, row)
    why = _why_away(there, row) if disk is None else disk.why_away()
    with there.engine.reading() as state:
        total = state.file_table.by_directory.of(row.name)
    is_here = disk is not None and why is None
    return NodeView(
        uuid=row.uuid,
        kind=row.kind,
        name=row.name,
        host=row.host,
        instance=row.instance,
        state=_standing(row, why),
        why=why,
        since=row.lost or row.draining or row.created,
        since_at=_moment(there.engine, row.lost or row.draining or row.created),
        free_bytes=free_bytes(disk.path) if disk is not None and is_here else None,
        files=total.files,
        bytes=total.size,
        tablets=total.partitions,
        drain=_drain(there, row),
        check=_check(there, row),
    )


def _why_away(there: ReceiverDirectories, row: StorageNodeRow) -> str:
    """Why a directory is not among those that were opened as this node."""
    at_path = [each for each in there.disks.every() if str(each.path) == row.name]
    if not at_path:
        return "it is not in the configuration"
    return at_path[0].why_away() or "another directory is in its place"


def _standing(row: StorageNodeRow, why: str | None) -> NodeState:
    if row.lost:
        return "lost"
    if why is not None:
        return "away"
    return "draining" if row.draining else "standing"


def _drain(there: ReceiverDirectories, row: StorageNodeRow) -> DrainView | None:
    if not isinstance(there, RunningReceiver) or not row.draining:
        return None
    found = there.load.mover.progress(row.uuid)
    if found is None:
        return None
    return DrainView(
        files=found.files,
        bytes=found.bytes,
        moved=found.moved,
        moved_bytes=found.moved_bytes,
        copies=found.copies,
        senders=found.senders,
        unknown=found.unknown,
        stuck=tuple(StuckFileView(file=name, why=text) for name, text in found.stuck),
        empty=found.is_empty,
    )


def _check(there: ReceiverDirectories, row: StorageNodeRow) -> CheckView | None:
    found = there.load.checks.report(row.uuid) if isinstance(there, RunningReceiver) else None
    if found is None:
        return None
    return CheckView(
        at=found.at,
        files=found.files,
        missing=found.missing,
        wrong=found.wrong,
        foreign=found.foreign,
        some=tuple(StuckFileView(file=name, why=kind) for kind, name in found.some),
    )


def _moment(engine: Engine, ts: int) -> float | None:
    return engine.times.seconds(ts)
