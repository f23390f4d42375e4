"""Is it a TsFile, and which one: what the receiver finds out by its own reading of the bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from common.digests import md5_of_fd
from common.errors import DigestError, NotATsFileError
from common.tsfile import read_tail
from common.tsfile.tail_digest import tail_digest
from receiver.load.folder.staged import Verified

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.durable import Tree
    from common.names import FilePath
    from common.tsfile import Tail, TsFileOrigin

__all__ = ["SingleTask", "check_content", "check_md5", "hash_staged", "record_of"]


def check_content(source: TsFileOrigin, path: FilePath, called: str = "") -> Tail | None:
    """Read the tail of a TsFile with its whole structure; a resource may hold anything.

    Args:
        source: the file.
        path: of it.
        called: what an error calls it, if not by its path.

    Returns:
        the tail; None: it is a resource.

    Raises:
        NotATsFileError: it is none of those that are read here, or not closed.
    """
    if path.is_resource:
        return None
    tail: Tail = read_tail(source, structure=True)
    if not tail.complete:
        raise NotATsFileError(f"{called or path}: {tail.status.replace('_', ' ')}: {tail.reason}")
    return tail


def check_md5(path: FilePath, found: str, *expected: str | None) -> None:
    """Compare an MD5 with all that is known of it.

    Raises:
        DigestError: one of them is another.
    """
    for each in expected:
        if each is not None and each != found:
            raise DigestError(f"{path}: MD5 of the whole file is {found}, {each} was expected")


class SingleTask(NamedTuple):
    """A file that is a task of its own.

    Attributes:
        id: of the task.
        scope: of the token that it came with.
        token: its id; None without one.
    """

    id: str
    scope: Sequence[str]
    token: str | None


def record_of(
    fd: int,
    path: FilePath,
    md5: str,
    *,
    source: TsFileOrigin,
    at: float,
    single: SingleTask | None = None,
    commit: int = 0,
) -> Verified:
    """The record of a verified file that is open as `fd` (renaming keeps inode and mtime).

    `source` is that file as well, or its bytes where they have been read.
    """
    found = os.fstat(fd)
    return Verified(
        path=path.text,
        size=found.st_size,
        md5=md5,
        tail="" if path.is_resource else tail_digest(source),
        inode=found.st_ino,
        mtime_ns=found.st_mtime_ns,
        at=at,
        single=None if single is None else single.id,
        scope=[] if single is None else list(single.scope),
        token=None if single is None else single.token,
        commit=commit,
    )


def hash_staged(tree: Tree, rel: str, path: FilePath, *, at: float) -> Verified:
    """Verify a file that lies in `data/` without a record that holds, and flush it.

    Raises:
        NotATsFileError: it is none.
    """
    tree.sync_file(rel)  # a folder that was just copied here is in the kernel's memory only
    fd = tree.open_read(rel)
    try:
        check_content(fd, path)
        return record_of(fd, path, md5_of_fd(fd), source=fd, at=at)
    finally:
        os.close(fd)
