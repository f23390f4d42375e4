"""The data directories of a storage node: their markers, and how much room they have.

`.tsferry-node` in each says whose it is:

    tsferry storage node directory 1
    node 5d3f0c1b8a9e4f7296b1c0d4e8a7f352
    directory 9b0c7d52f0e14f4f8d3e2a1b6c5d4e3f

It is written once, into a directory that holds nothing. One without it that holds something, or
with that of another node, is *away*: nothing is written there. So is one whose path once had
another marker: another disk, or none, is mounted there now. A disk that takes the place of a lost
one is named by another path. One that is read-only at the start is away as well, for what an
earlier life left there cannot be taken up; the others are not kept from their work by it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from common.durable import Closing, Tree, is_temporary
from common.errors import DamagedError, TsferryError
from common.names import is_sender_uuid
from common.system_errors import read_only_disk
from receiver.heartbeats.node_wire import DirectoryRoom
from receiver.storagenode.node_home import random_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["NODE_DIRECTORY_MARKER", "NodeDirectories", "NodeDisk"]

NODE_DIRECTORY_MARKER: Final = ".tsferry-node"
_HEAD: Final = "tsferry storage node directory 1"
_LIMIT: Final = 4096
_LOST: Final = "lost+found"
"""Stands in the root of a new file system."""


class NodeDisk(Closing):
    """A data directory, as it was found at the start.

    Attributes:
        path: of the configuration.
        uuid: of its marker; empty where it is away.
        tree: held open; None where it is away.
    """

    def __init__(self, path: Path, tree: Tree | None, uuid: str, problem: str) -> None:
        self.path = path
        self.tree = tree
        self.uuid = uuid
        self._problem = problem

    def problem(self) -> str:
        """Why nothing can be put there now, empty if it can; the disk is asked."""
        if self.tree is None:
            return self._problem
        try:
            with Tree(self.path) as now:
                found = _marker(now)
        except (OSError, TsferryError) as error:
            return f"it cannot be read: {error}"
        if found is None:
            return f"its marker {NODE_DIRECTORY_MARKER} is gone: is its disk mounted?"
        if found[1] != self.uuid:
            return f"the directory {found[1]} is there now, and {self.uuid} was at the start"
        return ""

    def room(self) -> DirectoryRoom:
        """What a master is told of it."""
        problem = self.problem()
        if problem or self.tree is None:
            return DirectoryRoom(
                path=str(self.path),
                uuid=self.uuid,
                problem=problem[:1000],
                begun=self.tree is not None,
            )
        found = os.statvfs(self.path)
        return DirectoryRoom(
            path=str(self.path),
            uuid=self.uuid,
            device=os.stat(self.path).st_dev,
            capacity=found.f_blocks * found.f_frsize,
            free=found.f_bavail * found.f_frsize,
            begun=True,
        )

    def close(self) -> None:
        """Let it go; closing twice is harmless."""
        if self.tree is not None:
            self.tree.close()


class NodeDirectories(Closing):
    """All of a node, in the order of the configuration."""

    def __init__(self, disks: Sequence[NodeDisk]) -> None:
        self.disks = disks

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        node: str,
        known: Mapping[str, str],
        *,
        random: Callable[[], str] = random_id,
    ) -> Self:
        """Open them, and mark those that are new.

        Args:
            paths: of the configuration.
            node: uuid of the node.
            known: uuids of the directories that were at a path before.
            random: gives the uuid of a new one.
        """
        with ExitStack() as stack:
            disks: list[NodeDisk] = []
            for path in paths:
                disk = stack.enter_context(_open(path, node, known, random))
                if disk.uuid and disk.uuid in {each.uuid for each in disks}:
                    disk.close()
                    text = f"the directory {disk.uuid} is named twice, or was copied"
                    disk = NodeDisk(path, None, "", text)
                disks.append(disk)
            stack.pop_all()
        return cls(disks)

    @property
    def uuids(self) -> dict[str, str]:
        """Path and uuid of those that are there."""
        return {str(each.path): each.uuid for each in self.disks if each.uuid}

    def rooms(self) -> list[DirectoryRoom]:
        """What a master is told of them; the disks are asked."""
        return [each.room() for each in self.disks]

    def has(self, tree: Tree) -> bool:
        """Whether a directory is there now; the disk is asked."""
        return any(each.tree is tree and not each.problem() for each in self.disks)

    def close(self) -> None:
        """Let all go; closing twice is harmless."""
        for each in self.disks:
            each.close()


def _open(path: Path, node: str, known: Mapping[str, str], random: Callable[[], str]) -> NodeDisk:
    try:
        tree = Tree(path, create=True)
    except (OSError, TsferryError) as error:
        return NodeDisk(path, None, "", f"it cannot be opened: {error}")
    uuid, problem = _own(tree, node, known.get(str(path)), random)
    if problem:
        tree.close()
        return NodeDisk(path, None, "", problem)
    return NodeDisk(path, tree, uuid, "")


def _own(tree: Tree, node: str, before: str | None, random: Callable[[], str]) -> tuple[str, str]:
    """The uuid of a directory, marked now if it is new; or why it is none of this node's."""
    try:
        found = _marker(tree)
        if found is None and before is not None:
            return "", f"it has no marker, and was the directory {before}: is its disk mounted?"
        if found is None:
            others = [name for name, _ in tree.listing() if not _is_nothing(name)]
            if others:
                return "", (
                    f"it holds {others[0]!a} and has no marker {NODE_DIRECTORY_MARKER}: name an "
                    "empty directory, or is its disk mounted?"
                )
            uuid = random()
            tree.write_atomic(
                NODE_DIRECTORY_MARKER, f"{_HEAD}\nnode {node}\ndirectory {uuid}\n".encode()
            )
            return uuid, ""
    except (OSError, TsferryError) as error:
        return "", f"its marker {NODE_DIRECTORY_MARKER} cannot be read or written: {error}"
    if found[0] != node:
        return "", f"its marker names the node {found[0]}, this is {node}"
    if before not in (None, found[1]):
        return "", f"it is the directory {found[1]} now, and was {before}: name it by another path"
    if os.statvfs(tree.path).f_flag & os.ST_RDONLY:
        return "", f"{read_only_disk(str(tree.path)).message}; then start the node anew"
    return found[1], ""


def _marker(tree: Tree) -> tuple[str, str] | None:
    """The node and the directory of a marker, None if there is none.

    Raises:
        DamagedError: the marker is none.
    """
    try:
        content = tree.read(NODE_DIRECTORY_MARKER, limit=_LIMIT)
    except FileNotFoundError:
        return None
    lines = content.decode("utf-8", "replace").splitlines()
    if len(lines) == 3 and lines[0] == _HEAD:
        node, uuid = lines[1].removeprefix("node "), lines[2].removeprefix("directory ")
        if is_sender_uuid(node) and is_sender_uuid(uuid):  # of the same form
            return node, uuid
    raise DamagedError("it is damaged")


def _is_nothing(name: str) -> bool:
    return name == _LOST or is_temporary(name)
