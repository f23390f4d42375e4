"""The files of a database's schema directory, as one text log.

What a checkpoint of the database left comes first: a snapshot of its tree, in text (0.10, 0.11) or
binary (0.12). Behind it, what the log says since: `mlog.bin` where there is one, for a database
that writes it has taken over its `mlog.txt`.
"""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

from common.digests import read_blocks
from common.durable import Tree, memory_file
from common.errors import UnsafePathError
from common.mtreetext import read_tree, tree_log
from sender.schema.binary_log import binary_lines, binary_nodes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["as_text", "opened", "unread_logs"]

_BINARY_MLOG: Final = "mlog.bin"
_BINARY_SUFFIX: Final = ".bin"
_SNAPSHOT: Final = re.compile(r"mtree[^/]*\.snapshot(?:\.bin)?")


def as_text(tree: Tree, mlog: str) -> int | None:
    """The log as text, open for reading; None if there is none. The caller closes it.

    Args:
        tree: the schema directory.
        mlog: name of the text log.

    Raises:
        UnsafePathError: something else stands in the place of a file.
        DamagedError: a binary log or a snapshot is damaged; the message says where.
    """
    binary = opened(tree, _BINARY_MLOG)
    log = opened(tree, mlog) if binary is None else binary
    if binary is None and _newest_snapshot(tree) is None:
        return log
    content = _content(log)
    # A checkpoint puts its snapshot there before it begins the log anew: looked for in this order,
    # both together never lack anything.
    snapshot = _newest_snapshot(tree)
    lines: list[Iterable[str]] = []
    if snapshot is not None:
        nodes = binary_nodes if snapshot.endswith(_BINARY_SUFFIX) else read_tree
        lines.append(tree_log(nodes(_content(opened(tree, snapshot)), snapshot), snapshot))
    if binary is not None:
        lines.append(binary_lines(content, _BINARY_MLOG))
        content = b""
    return memory_file(chain(map(str.encode, chain.from_iterable(lines)), [content]))


def opened(tree: Tree, name: str) -> int | None:
    """A regular file, open for reading; None if there is none.

    Raises:
        UnsafePathError: it is something else.
    """
    found = tree.stat(name)
    if found is None:
        return None
    if not modes.S_ISREG(found.st_mode):
        raise UnsafePathError(f"{tree.path / name} is no regular file; links are not followed")
    return tree.open_read(name)


def unread_logs(schema_dir: Path) -> str | None:
    """Why a directory without a log of its own says nothing; None if there is nothing to say.

    Databases from 0.13 on keep a log for each of their regions, `<database>/<region>/mlog.bin`.
    """
    count = sum(1 for _ in _region_logs(schema_dir))
    if not count:
        return None
    return (
        f"{count} logs <database>/<region>/{_BINARY_MLOG} of a newer database are not read here: "
        "the centre makes the schema from the files; tags, aliases and TTL do not travel"
    )


def _region_logs(schema_dir: Path) -> Iterator[str]:
    with suppress(FileNotFoundError), Tree(schema_dir) as tree:
        for database, found in tree.listing():
            if not modes.S_ISDIR(found.st_mode) or database == "sync":
                continue
            for region, below in tree.listing(database):
                log = f"{database}/{region}/{_BINARY_MLOG}"
                if modes.S_ISDIR(below.st_mode) and tree.exists(log):
                    yield log


def _newest_snapshot(tree: Tree) -> str | None:
    """The snapshot that the database wrote last; one that it is still writing has another name."""
    found = [(each.st_mtime_ns, name) for name, each in tree.listing() if _SNAPSHOT.fullmatch(name)]
    return max(found)[1] if found else None


def _content(descriptor: int | None) -> bytes:
    if descriptor is None:
        return b""
    try:
        return b"".join(read_blocks(descriptor))
    finally:
        os.close(descriptor)
