"""Nodes that are taken off the list: only those of which nothing is needed any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import ConflictError
from receiver.datadirs.disks import has_resource_in, is_whole_in
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.uploaded import NOT_STORED
from receiver.operator.directories import RunningReceiver
from receiver.operator.places.node_lists import node_of, say_of_node
from receiver.operator.places.remote_nodes import must_be_silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow
    from receiver.operator.directories import ReceiverDirectories

__all__ = ["forget_node", "node_to_forget"]

_PAGE: Final = 1000
_KINDS: Final = (
    FileState.LIVE,  # and the retired, with them
    FileState.QUARANTINED,
    FileState.SUPERSEDED,
    FileState.DELETED,
)


def forget_node(there: RunningReceiver, text: str) -> None:
    """Take the row of a node away, that is empty or lost, and out of the configuration.

    Raises:
        NotFoundError: there is no such node.
        ConflictError: it is needed still.
    """
    row = node_to_forget(there, text)
    alone = there.copies.released.alone_at(row.uuid)
    if alone.files and not row.lost:
        raise ConflictError(
            f"no other storage node is known to have {alone.files} files that {row.name} may have, "
            f"as {alone.first[0]}, and they are in no data directory: wait for another one, or say "
            "that it is lost"
        )
    say_of_node(there, row, records.NodeForgotten(row.uuid))


def node_to_forget(there: ReceiverDirectories, text: str) -> StorageNodeRow:
    """A node whose row may go.

    Raises:
        NotFoundError, ConflictError: see `forget_node`.
    """
    row = node_of(there, text)
    if any(each.uuid == row.uuid for each in there.disks.every()):
        raise ConflictError(
            f"{row.name} is in the configuration: take it out of data_dirs, and start the server "
            "anew"
        )
    if row.kind == "remote":
        must_be_silent(there, row.uuid)
    elif not row.lost:
        _must_be_empty(there, row)
    return row


def _must_be_empty(there: ReceiverDirectories, row: StorageNodeRow) -> None:
    """See that a directory has nothing that is nowhere else.

    What has left it for the object store or for nodes has its path in the catalogue still.
    """
    count, first = 0, ""
    for physical in _needed(there, row.name):
        count, first = count + 1, first or physical
    if count:
        raise ConflictError(
            f"the catalogue has {count} files in {row.name}, as {first}, that are not known to be "
            "anywhere else now: drain it, wait for who else has them, or say that it is lost"
        )


def _needed(there: ReceiverDirectories, data_dir: str) -> Iterator[str]:
    """Files of a directory, those too that readers do not see, and that are nowhere else."""
    with there.engine.reading() as state:
        outputs = [
            each.physical
            for made in state.compacted_table.rows.values()
            for each in made.outputs
            if each.data_dir == data_dir
        ]
    yield from outputs
    for row in _files_of(there, data_dir):
        if not _is_elsewhere(there, row):
            yield row.physical


def _files_of(there: ReceiverDirectories, data_dir: str) -> Iterator[FileRow]:
    for each in _KINDS:
        with there.engine.reading() as state:
            if each is FileState.LIVE and not state.file_table.by_directory.of(data_dir).files:
                continue
        after: str | None = None
        while True:
            with there.engine.reading() as state:
                page = state.file_table.among(each, after, _PAGE)
            yield from (row for row in page if row.data_dir == data_dir)
            if not page:
                break
            after = page[-1].physical


def _is_elsewhere(there: ReceiverDirectories, row: FileRow) -> bool:
    """Whether a file is in another directory, or where files leave the directories for.

    Its resource does not always leave with it: nodes keep none, and it may have come later. What
    was noted of a store says nothing while that does not answer: it may be another one by now.
    """
    trees = there.disks.standing()
    if is_whole_in(trees, row):
        return True
    with there.engine.reading() as state:
        noted = state.uploaded_table.parts(row)
    if not isinstance(there, RunningReceiver):
        return False
    is_reached = there.storage is not None and there.storage.is_reached
    stored = noted if is_reached else NOT_STORED
    at_nodes = there.copies.released.has(row.physical)
    has_left = stored.file or at_nodes
    return has_left and (stored.resource or has_resource_in(trees, row))
