"""Data directories that do not come back: what is lost with them, and what comes in their place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from common.errors import ConflictError, UsageError
from receiver.datadirs.directory_finding import adopt_one
from receiver.load.upkeep.lost_directory import find_loss, take_loss
from receiver.metadata.model import records
from receiver.metadata.state.placed_files import placed_nodes, placement_of
from receiver.operator.places.node_lists import node_of, say_of_node
from receiver.operator.places.remote_nodes import must_be_silent
from receiver.operator.views.node_views import LossView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.load.upkeep.lost_directory import DirectoryLoss
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow
    from receiver.operator.directories import RunningReceiver
    from receiver.operator.views.node_views import LossRequest

__all__ = ["lose_node"]

_SHOWN: Final = 20


def lose_node(there: RunningReceiver, text: str, request: LossRequest) -> LossView:
    """Tell what is lost with a directory, and, once that is confirmed, have it come again.

    What storage nodes have is brought back first. It may be said again, where it was cut off.

    Raises:
        NotFoundError: there is no such node.
        ConflictError: it is there, or another directory is away, or what is to replace it is none;
            or a storage node is silent that may have copies.
        NoSpaceError: there is no room for what storage nodes have.
        UsageError: a process is not replaced: another one registers by itself.
    """
    row = node_of(there, text)
    if row.kind == "remote":
        return _lose_process(there, row, request)
    _check_lost(there, row)
    target = None if request.replace is None else _replacement(there, request.replace)
    loss = _find(there, row)
    if not request.confirm:
        return _preview(there, row, loss, target)
    if _bring_back(there, loss):
        loss = _find(there, row)
    if not row.lost:
        say_of_node(there, row, records.NodeLost(row.uuid))
    take_loss(there.engine, loss, f"lost with the data directory {row.name}")
    if target is not None:
        adopt_one(target, there.engine.uuid)
    return _view(row, loss, done=True, replaced=target)


def _lose_process(there: RunningReceiver, row: StorageNodeRow, request: LossRequest) -> LossView:
    """A process that keeps files; those that no data directory has may lie there alone."""
    if request.replace is not None:
        raise UsageError(f"{row.name} is no data directory: a new node registers by itself")
    must_be_silent(there, row.uuid)
    alone = there.copies.released.alone_at(row.uuid)
    if request.confirm and not row.lost:
        say_of_node(there, row, records.NodeLost(row.uuid))
    return LossView(
        node=row.uuid,
        name=row.name,
        kind="remote",
        alone=alone.files,
        alone_bytes=alone.size,
        done=request.confirm,
    )


def _check_lost(there: RunningReceiver, row: StorageNodeRow) -> None:
    """See that a directory is away, and that no other one is: what is nowhere can be told then."""
    for each in there.disks.every():
        reason = each.why_away()
        if each.uuid == row.uuid and reason is None:
            raise ConflictError(f"{row.name} is there: drain it, and nothing of it is lost")
        # Its own path, or one for which another disk is already there.
        if (
            reason is not None
            and each.uuid != row.uuid
            and not _is_of_no_other(there, row, each.path)
        ):
            raise ConflictError(f"{each.path} is away too, and what it has is not known: {reason}")


def _find(there: RunningReceiver, row: StorageNodeRow) -> DirectoryLoss:
    trees = there.disks.standing()
    return find_loss(there.engine, trees, row.name, is_alone=_is_alone(there, row))


def _preview(
    there: RunningReceiver, row: StorageNodeRow, loss: DirectoryLoss, target: Path | None
) -> LossView:
    """What would be lost: what storage nodes have, or may have, is told apart."""
    copied: set[str] = set()
    perhaps: set[str] = set()
    for each in (*loss.wanted, *loss.gone, *loss.superseded):
        if there.copies.places(each.physical):
            copied.add(each.physical)
            continue
        with there.engine.reading() as state:
            if placed_nodes(state, each.physical):
                perhaps.add(each.physical)

    def alone(rows: Sequence[FileRow]) -> tuple[FileRow, ...]:
        return tuple(each for each in rows if each.physical not in copied | perhaps)

    nowhere = replace(
        loss,
        wanted=alone(loss.wanted),
        gone=alone(loss.gone),
        superseded=alone(loss.superseded),
    )
    view = _view(row, nowhere, done=False, replaced=target)
    return msgspec.structs.replace(view, copied=len(copied), perhaps=len(perhaps))


def _bring_back(there: RunningReceiver, loss: DirectoryLoss) -> int:
    """Bring back what storage nodes have of what would be lost; how many files came.

    Raises:
        ConflictError: of a file that does not come, a node may have a copy and is silent.
    """
    count = 0
    nodes = there.copies.nodes()
    if not nodes:
        return 0
    for row in (*loss.wanted, *loss.gone, *loss.superseded):
        if there.copies.back.bring(row):
            count += 1
            continue
        with there.engine.reading() as state:
            found = placement_of(state, row.physical)
        for node in () if found is None else (nodes.get(each) for each in found[1].nodes):
            if node is not None and node.is_down and not node.is_lost:
                raise ConflictError(
                    f"the storage node {node.uuid} is silent, and may have copies: wait for it, or "
                    "say `nodes lost` of it first"
                )
    return count


def _is_alone(there: RunningReceiver, row: StorageNodeRow) -> bool:
    """Whether no other directory of the catalogue may have files that are nowhere here."""
    standing = {each.uuid for each in there.disks.every() if each.why_away() is None}
    with there.engine.reading() as state:
        rows = state.node_table.of_kind("directory")
    return all(each.uuid in standing or each.lost or each.uuid == row.uuid for each in rows)


def _is_of_no_other(there: RunningReceiver, row: StorageNodeRow, path: Path) -> bool:
    """Whether what should be at a path is this node, or nothing that was ever here."""
    with there.engine.reading() as state:
        rows = list(state.node_table.rows.values())
    return all(other.uuid == row.uuid or other.lost or other.name != str(path) for other in rows)


def _replacement(there: RunningReceiver, text: str) -> Path:
    path = Path(text)
    if path not in there.config.data_dirs:
        raise ConflictError(f"{path} is not in data_dirs: name it there first, and start anew")
    if any(each.path == path and each.why_away() is None for each in there.disks.every()):
        raise ConflictError(f"{path} is a directory of its own, and takes files already")
    if not path.is_dir() or any(path.iterdir()):
        raise ConflictError(f"{path} is no empty directory")
    return path


def _view(
    row: StorageNodeRow, loss: DirectoryLoss, *, done: bool, replaced: Path | None
) -> LossView:
    return LossView(
        node=row.uuid,
        name=row.name,
        wanted=len(loss.wanted),
        wanted_bytes=sum(each.size for each in loss.wanted),
        gone=len(loss.gone),
        gone_bytes=sum(each.size for each in loss.gone),
        superseded=len(loss.superseded),
        merged=len(loss.merged),
        stored=loss.stored,
        elsewhere=loss.elsewhere,
        kept=loss.kept,
        first_gone=tuple(each.path for each in loss.gone[:_SHOWN]),
        done=done,
        replaced=None if replaced is None else str(replaced),
    )
