"""Lock files: each is held by one process at a time, and names it for people."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from common.beneath import open_beneath, require_regular
from common.durable.flushing import meaning
from common.durable.open_files import Lock
from common.errors import LockedError

if TYPE_CHECKING:
    from common.durable.reading_tree import ReadingTree

__all__ = ["take_lock"]


def take_lock(tree: ReadingTree, root: int, rel: str, what: str) -> Lock:
    """Take a lock file; see `Tree.lock`.

    Args:
        tree: that it is in.
        root: the open directory of that.
        rel: its path there.
        what: that messages call it.

    Raises:
        LockedError: another process holds it; `extra["pid"]` says which, where known.
    """
    while True:
        fd = _flock(root, rel, what)
        try:
            there = tree.stat(rel)
            if there is not None and os.path.samestat(there, os.fstat(fd)):
                break
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # removed between open and flock: a lock that nobody else would meet
    with suppress(OSError):  # the pid is for people; a full disk must not keep us from starting
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return Lock(fd)


def _flock(root: int, rel: str, what: str) -> int:
    with meaning(what):
        fd = open_beneath(root, rel, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        require_regular(fd, what)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        try:
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        finally:
            os.close(fd)
        raise LockedError(
            f"{what} is held by process {pid or 'unknown'}", extra={"pid": pid}
        ) from error
    except BaseException:
        os.close(fd)
        raise
    return fd
