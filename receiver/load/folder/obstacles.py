"""What somebody has put in the way of the receiver's files, and whose trouble that is."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from common.durable import failed_sync
from common.errors import ReadOnlyError, TsferryError, UnsafePathError

if TYPE_CHECKING:
    from common.durable import Tree

__all__ = ["is_of_one_path", "kind_of", "misplaced", "obstacle"]

_OF_ONE_PATH = frozenset(
    {
        errno.EACCES,
        errno.EBUSY,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMLINK,
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
        errno.EPERM,
        errno.EXDEV,
    }
)
"""What a path itself is to blame for. A full or a dying disk is everybody's: that is waited for."""


def is_of_one_path(error: Exception) -> bool:
    """Whether an error of the file system concerns the path that was asked for, and no other."""
    if isinstance(error, ReadOnlyError):  # another file system is mounted there, read-only
        return failed_sync() is None
    if isinstance(error, UnsafePathError):
        return True
    return isinstance(error, OSError) and error.errno in _OF_ONE_PATH


def obstacle(tree: Tree, rel: str, error: Exception) -> str:
    """What stands in the way of `rel`, in words."""
    above = rel.split("/")
    for depth in range(1, len(above)):
        here = "/".join(above[:depth])
        try:
            found = tree.stat(here)
        except (OSError, TsferryError):
            break
        if found is not None and not stat.S_ISDIR(found.st_mode):
            return f"{here} is {kind_of(found.st_mode)} where a directory has to be"
    if isinstance(error, OSError):
        return f"{rel.rstrip('/')}: {error.strerror}"
    return str(error)


def misplaced(tree: Tree, rel: str, *, directory: bool) -> str | None:
    """What is there in place of a directory or of a file, in words; None if it is one, or nothing.

    Args:
        tree: the data directory.
        rel: the path in it.
        directory: whether a directory has to be there.
    """
    wanted = "a directory" if directory else "a file"
    try:
        found = tree.stat(rel)
        if found is None or kind_of(found.st_mode) == wanted:
            if found is not None and directory:
                os.close(tree.open_dir(rel))
            return None
    except (OSError, TsferryError) as error:
        return obstacle(tree, rel, error)
    return f"{rel} is {kind_of(found.st_mode)} where {wanted} has to be"


def kind_of(mode: int) -> str:
    """What the mode of a file says that it is."""
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    return "a file" if stat.S_ISREG(mode) else "a special file"
