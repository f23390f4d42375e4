"""What is at the paths of the configuration: whether each is a data directory of this engine.

Directories that have no marker yet are those of a first start, or of tsferry 0.1.0, which made
none. There is one proof that such a directory is not an empty disk in the place of the real one:
files of the catalogue lie in it. Where nothing is missing, nothing has to be proved.

A directory that has the uuid of another one is a copy of that disk, and one whose marker has fewer
starts than the catalogue knows is a copy that was made before: neither counts.
"""

from __future__ import annotations

import logging
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from common.console.root_mistakes import telling_of_root
from common.console.terminal import printable
from common.durable import Tree
from common.errors import ConfigError, ConflictError, TsferryError
from common.names import Kind
from receiver.datadirs.directory_markers import (
    RECEIVER_MARKER,
    DamagedMarkerError,
    DirectoryMarker,
    engine_of,
    read_marker,
    write_marker,
)
from receiver.metadata.state.placed_files import parts_elsewhere

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow

__all__ = [
    "FoundDirectory",
    "adopt",
    "adopt_one",
    "check_begun",
    "check_first_start",
    "check_restored",
    "find_directories",
    "marker_problem",
    "see_directory",
    "warned_of_root",
]

_log = logging.getLogger(__name__)

_WAY_OUT: Final = (
    "is its disk mounted? If it is new, or its files are lost, `tsferry-receiver init --adopt` "
    "takes it as it is"
)


def marker_problem(tree: Tree, uuid: str, directory: str = "") -> str | None:
    """Why a directory is not this engine's, None if it is.

    Args:
        tree: the directory.
        uuid: of the engine.
        directory: uuid that it has to have itself; empty for any.
    """
    try:
        found = read_marker(tree)
    except DamagedMarkerError as error:
        return error.message
    except (OSError, TsferryError) as error:
        return f"its marker {RECEIVER_MARKER} cannot be read: {error}"
    if found is None:
        return f"it has no marker {RECEIVER_MARKER}: {_WAY_OUT}"
    if found.engine != uuid:
        return f"its marker names the engine {found.engine}, this one is {uuid}: {_WAY_OUT}"
    if directory and found.directory != directory:
        return "its marker is another one than at the start: start anew"
    return None


@dataclass
class FoundDirectory:
    """What is at the path of a data directory.

    Attributes:
        path: of the configuration.
        tree: open, if there is a directory.
        reason: why it is not this engine's, None if it is.
        is_new: whether it has no marker, not even a foreign one.
        is_taken: whether it is this engine's all the same, and is to get its marker.
        marker: of this engine, as it stands there; None if there is none.
    """

    path: Path
    tree: Tree | None
    reason: str | None
    is_new: bool = False
    is_taken: bool = False
    marker: DirectoryMarker | None = None


def find_directories(
    config: ReceiverConfig, engine: Engine, stack: ExitStack
) -> tuple[list[FoundDirectory], bool]:
    """The data directories, judged; and whether all of them have had their markers."""
    with Tree(config.schema_dir) as schema:
        known = engine_of(schema)
    if known not in (None, engine.uuid):
        raise ConfigError(
            f"schema_dir: {config.schema_dir} belongs to the engine {known}, and the log is that "
            f"of {engine.uuid}: which of the two is in the wrong place?"
        )
    found = [see_directory(path, engine.uuid, stack) for path in config.data_dirs]
    with engine.reading() as state:
        nodes = dict(state.node_table.rows)
    _refuse_copies(found, nodes)
    if known is None:
        _take_unmarked(engine, found)
        if config.metadata.etcd.standby:
            _take_own(found, nodes)
    else:
        _take_added(found, nodes, other_hosts=config.metadata.etcd.standby)
    return found, known is not None


def see_directory(path: Path, uuid: str, stack: ExitStack) -> FoundDirectory:
    """What is at the path of a data directory; `uuid` is that of the engine."""
    try:
        tree = stack.enter_context(Tree(path))
    except FileNotFoundError:
        return FoundDirectory(path, None, f"it is not there: {_WAY_OUT}", is_new=True)
    except OSError as error:
        return FoundDirectory(path, None, f"it cannot be opened: {error.strerror}")
    reason = marker_problem(tree, uuid)
    if reason is None:
        return FoundDirectory(path, tree, None, marker=read_marker(tree))
    return FoundDirectory(path, tree, reason, is_new=not tree.exists(RECEIVER_MARKER))


def _refuse_copies(found: Sequence[FoundDirectory], nodes: Mapping[str, StorageNodeRow]) -> None:
    """Of directories with one uuid all but one are copies; so is one of an earlier start."""
    first: dict[str, FoundDirectory] = {}
    # What has started more often was used last; of equals that which is where it was.
    for each in sorted(found, key=lambda each: _standing(each, nodes), reverse=True):
        marker = each.marker
        if marker is None or not marker.directory:
            continue
        other, node = first.setdefault(marker.directory, each), nodes.get(marker.directory)
        if other is not each:
            each.reason = (
                f"it has the uuid {marker.directory} of {other.path}: one is a copy of the other"
            )
        elif node is not None and marker.instance < node.instance:
            each.reason = (
                f"its marker is of start {marker.instance}, and there were {node.instance}: it is "
                "an older copy of that disk"
            )
        elif node is not None and node.lost:
            each.reason = "it was declared lost"
        if each.reason is not None:
            each.reason += "; `tsferry-receiver init --adopt` takes it as another directory"


def _standing(each: FoundDirectory, nodes: Mapping[str, StorageNodeRow]) -> tuple[int, bool]:
    if each.marker is None:
        return 0, False
    node = nodes.get(each.marker.directory)
    return each.marker.instance, node is not None and node.name == str(each.path)


def _take_own(found: Sequence[FoundDirectory], nodes: Mapping[str, StorageNodeRow]) -> None:
    """Take empty directories at the first start of a receiver that stood by for another one.

    Its configuration says that it has directories of its own: what the catalogue knows of are the
    other one's. Not where that knows one at this path of this machine.
    """
    host = socket.gethostname()
    known = {row.name for row in nodes.values() if row.kind == "directory" and row.host == host}
    for each in found:
        if str(each.path) in known or each.tree is None:
            continue
        if each.is_new and not each.tree.listing():
            each.is_taken, each.reason = True, None


def _take_added(
    found: Sequence[FoundDirectory],
    nodes: Mapping[str, StorageNodeRow],
    *,
    other_hosts: bool = False,
) -> None:
    """Take empty directories that were added to the configuration.

    Only where every directory that is known is there: else one of these may have been that one's,
    whose disk is not mounted. Where others stand by, those of other hosts are not to be there.
    """
    host = socket.gethostname()
    known = {
        uuid
        for uuid, row in nodes.items()
        if row.kind == "directory" and not row.lost and not (other_hosts and row.host != host)
    }
    there = {each.marker.directory for each in found if each.marker and each.reason is None}
    if not known or not known <= there:
        return
    for each in found:
        if each.is_new and each.tree is not None and not each.tree.listing():
            each.is_taken = True


def _take_unmarked(engine: Engine, found: Sequence[FoundDirectory]) -> None:
    """Find out which directories without a marker are this engine's: see the module."""
    with engine.reading() as state:
        rows = [row for row in state.files.values() if row.visible]
        remote = {row.physical for row in rows if parts_elsewhere(state, row).file}
    homes = [each.tree for each in found if each.tree is not None and each.reason is None]
    for each in found:
        if each.is_new and each.tree is not None and _holds_one(each.tree, rows):
            each.is_taken = True
            homes.append(each.tree)
    # A file that is missing where others of its directory are was not on a disk that is away.
    known = {str(tree.path) for tree in homes}
    nothing_missing = all(
        row.data_dir in known
        or row.physical in remote
        or any(tree.exists(row.physical) for tree in homes)
        for row in rows
    )
    for each in found:
        each.is_taken = each.is_taken or (each.is_new and nothing_missing)
        if each.is_new and not each.is_taken:
            each.reason = f"files were loaded into it, and none of them is there: {_WAY_OUT}"


def _holds_one(tree: Tree, rows: Sequence[FileRow]) -> bool:
    return any(tree.exists(kind) for kind in Kind) and any(
        tree.exists(row.physical) for row in rows
    )


def warned_of_root(config: ReceiverConfig) -> AbstractContextManager[None]:
    """Say what root made in the directories of a receiver, or is about to make within this."""
    names = (RECEIVER_MARKER, "sync-receiver")
    ours = [config.schema_dir, *(each / name for each in config.data_dirs for name in names)]
    return telling_of_root(
        [config.schema_dir, *config.data_dirs],
        below=ours,
        warn=lambda warning: _log.warning("%s", printable(warning)),
    )


def check_first_start(config: ReceiverConfig) -> None:
    """See that an engine may be made: the directories are no other engine's.

    Raises:
        ConfigError: they are. Then the schema directory is lost, or its disk is not mounted.
    """
    for path in (config.schema_dir, *config.data_dirs):
        try:
            with Tree(path) as tree:
                trace = _trace(tree)
        except OSError:
            continue
        if trace is not None:
            raise ConfigError(
                f"schema_dir: {config.schema_dir} has no engine, but {path} {trace}: is the disk "
                "of the schema directory mounted? Restore it from a copy; if there is none, "
                "`tsferry-receiver init --adopt` begins a new engine, and senders bring their "
                "files again"
            )


def check_begun(config: ReceiverConfig, uuid: str) -> None:
    """See that an engine without a commit is no one that `init --adopt` made, and was cut off.

    Such a one would let everybody in: whether the engine that is lost had tokens is known no more.

    Raises:
        ConfigError: a data directory is another engine's.
    """
    for path in config.data_dirs:
        try:
            with Tree(path) as tree:
                found = engine_of(tree)
        except (OSError, TsferryError):
            continue
        if found not in (None, uuid):
            raise ConfigError(
                f"schema_dir: {config.schema_dir} has an engine that holds nothing, but {path} "
                f"belongs to the engine {found}: is the disk of the schema directory mounted? If "
                "`tsferry-receiver init --adopt` was cut off, say it again"
            )


def check_restored(config: ReceiverConfig, uuid: str) -> None:
    """See that an engine may be restored: no data directory is another engine's.

    Raises:
        ConfigError: one is.
    """
    for path in config.data_dirs:
        try:
            with Tree(path) as tree:
                found = engine_of(tree)
        except (OSError, TsferryError):
            continue  # not there yet, or its marker is damaged and is written anew
        if found not in (None, uuid):
            raise ConfigError(
                f"data_dirs: {path} belongs to the engine {found}, not to {uuid}; restore into "
                f"another directory, or remove {path / RECEIVER_MARKER} if that engine is no more"
            )


def _trace(tree: Tree) -> str | None:
    """What an engine that was here has left."""
    try:
        uuid = engine_of(tree)
    except (OSError, TsferryError) as error:
        return f"has a marker: {error}"
    if uuid is not None:
        return f"belongs to the engine {uuid}"
    if any(next(tree.files(kind), None) for kind in Kind):
        return "holds files"
    return None


def adopt_one(path: Path, uuid: str) -> None:
    """Make an empty directory one of this engine's; it counts from the next start on.

    Raises:
        ConflictError: it is not empty.
        NoSpaceError, DiskError: its marker could not be written.
    """
    with Tree(path) as tree:
        if tree.listing():
            raise ConflictError(f"{path} is not empty")
        write_marker(tree, DirectoryMarker(uuid, uuid4().hex, 1))


def adopt(
    config: ReceiverConfig, uuid: str, nodes: Mapping[str, StorageNodeRow] | None = None
) -> list[Path]:
    """Make all directories this engine's, as they are; returns the data directories that were not.

    Args:
        config: of the receiver.
        uuid: of the engine.
        nodes: of its catalogue, by uuid.

    Raises:
        NoSpaceError, DiskError: a marker could not be written.
    """
    marked = []
    with ExitStack() as stack:
        found = [see_directory(path, uuid, stack) for path in config.data_dirs]
        _refuse_copies(found, nodes or {})
        for each in found:
            if each.reason is None:
                continue
            with Tree(each.path, create=True) as tree:
                write_marker(tree, DirectoryMarker(uuid, uuid4().hex, 1))
            marked.append(each.path)
    with Tree(config.schema_dir) as schema:
        if marker_problem(schema, uuid) is not None:
            write_marker(schema, DirectoryMarker(uuid))
    return marked
