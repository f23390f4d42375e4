"""Whether a loaded file has other bytes on its disk than were loaded, for good.

A verdict has its sender asked for the file again, so it rests on evidence: two readings, each from
the disk and not from memory, that came to an end and gave the same other bytes. What cannot be read
now may be read tomorrow, and what reads differently each time is no more known than that.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from common.digests import md5_of_fd
from common.errors import TsferryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.durable import Tree

__all__ = ["changed_for_good"]

_READINGS = 2


def changed_for_good(trees: Sequence[Tree], rel: str, size: int, expected: str) -> str | None:
    """What is there in place of a file's bytes; None if that is not proved.

    Args:
        trees: the data directories that count now.
        rel: the file's path in one of them.
        size: bytes that were loaded.
        expected: their MD5.
    """
    found: str | None = None
    for tree in trees:
        try:
            if not tree.exists(rel):
                continue
            seen = {_on_disk(tree, rel) for _ in range(_READINGS)}
        except (OSError, TsferryError):
            return None
        if len(seen) > 1 or (size, expected) in seen:
            return None
        ((length, digest),) = seen
        found = f"{length} bytes with MD5 {digest}, {size} with {expected} were loaded"
    return found


def _on_disk(tree: Tree, rel: str) -> tuple[int, str]:
    fd = tree.open_read(rel)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(fd).st_size, md5_of_fd(fd)
    finally:
        os.close(fd)
