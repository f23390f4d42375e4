"""What lies beside loaded files in a directory that is drained, and is needed where they went.

Bytes in quarantine, and what senders said of series, go to where the sender's folder stands now,
under the same name; they are looked for in all directories. A `.resource` follows its file where it
did not go along: it was told of, and came later.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from common import crash
from common.digests import read_blocks
from common.durable import temporary_name
from common.names import FilePath
from receiver.datadirs.disks import NAMING
from receiver.load.moving.copied_files import MOVING

if TYPE_CHECKING:
    from common.durable import Tree
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.moving.copied_files import CataloguedFile

__all__ = ["carry_bare_resource", "carry_kept", "carry_resource"]


def carry_kept(tree: Tree, rel: str, folder: SenderFolder) -> bool:
    """Carry a file of a folder that was left to where its sender goes on; whether it went.

    Args:
        tree: the directory that it is in.
        rel: where it is there.
        folder: of the sender, as it stands now.
    """
    with folder.lock:
        target = folder.tree
        if target is tree:
            return False
        name = rel.removeprefix(f"{folder.root}/")
        room, _, file = name.partition("/")
        if name == rel or not file:  # something else is in the place of what was looked for
            return False
        try:
            target.make_dirs(folder.at(room))
            to = folder.at(name)
            if not target.exists(to):
                _copy(tree, rel, target, to)
                crash.point("move.kept_copied")
            tree.unlink(rel)
        except FileNotFoundError:
            return False  # it has just gone
    return True


def carry_resource(tree: Tree, home: Tree, known: CataloguedFile) -> bool:
    """Carry a resource after a file that went without; whether it went.

    Args:
        tree: the directory that the file was moved from.
        home: the one that it is in now.
        known: the file.
    """
    rel = FilePath.parse(known.physical).resource.text
    if known.resource is None or not tree.exists(rel):
        return False
    told = known.resource
    with NAMING:
        if home.has_bytes(rel, told.size, told.md5):
            return False
        if home.exists(rel) and not tree.has_bytes(rel, told.size, told.md5):
            return False
        _copy(tree, rel, home, rel)
    return True


def carry_bare_resource(tree: Tree, home: Tree, known: CataloguedFile) -> bool:
    """Carry the resource of a file that lies in no directory; whether it went.

    Args:
        tree: the directory that it lies in.
        home: the one that it goes to.
        known: the file.
    """
    rel = FilePath.parse(known.physical).resource.text
    told = known.resource
    if told is not None:
        home.make_dirs(rel.rpartition("/")[0])
        carry_resource(tree, home, known)
        if not home.has_bytes(rel, told.size, told.md5):
            return False
    with NAMING:
        if tree.exists(known.physical):
            return False  # it has just come back
        tree.unlink(rel)
    return True


def _copy(tree: Tree, rel: str, target: Tree, to: str) -> None:
    """Copy a file into another directory, over what is there; it is on the disk afterwards."""
    beside = f"{MOVING}/{temporary_name()}"
    fd = tree.open_read(rel)
    try:
        target.make_dirs(MOVING)
        with target.create(beside) as file:
            for block in read_blocks(fd):
                file.write(block)
            file.sync()
        target.rename(beside, to)
    finally:
        os.close(fd)
