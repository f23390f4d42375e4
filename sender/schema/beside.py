"""The files of a database's schema directory that say what series it has.

A database before 0.13 has one log for all: `mlog.bin`, or `mlog.txt` in older versions. What a
checkpoint of it left comes first: a snapshot of its tree, in text (0.10, 0.11) or binary (0.12).
One that writes `mlog.bin` has taken over its `mlog.txt`.

Later ones have a log for each region, `<database>/<region>/mlog.bin` with a `tlog.txt` beside it,
and have taken over the log before. Before there was a ConfigNode (0.13, and a 1.0 that stands
alone), databases and their TTLs are in `storage_group_log.bin`.
"""

from __future__ import annotations

import re
import stat as modes
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from common.durable import Tree
from common.errors import UnsafePathError

if TYPE_CHECKING:
    import os

__all__ = ["MLOG", "TLOG", "SchemaFile", "database_of", "opened", "schema_files", "unread_files"]

MLOG: Final = "mlog.txt"
TLOG: Final = "tlog.txt"
_BINARY_MLOG: Final = "mlog.bin"
_GROUP_LOG: Final = "storage_group_log.bin"
_TEMPLATE_LOG: Final = "template_log.bin"
_BINARY_SUFFIX: Final = ".bin"
_SNAPSHOT: Final = re.compile(r"mtree[^/]*\.snapshot(?:\.bin)?")
_REGION: Final = re.compile(r"\d{1,10}")
_PAGES: Final = ".pst"

_Kind = Literal["tree", "binary tree", "text", "binary", "region"]


class SchemaFile(msgspec.Struct, frozen=True):
    """A file to be read.

    Attributes:
        name: below the schema directory.
        kind: a snapshot of the tree, or a log, and its form.
        tlog: name of the file with its tags.
        found: what the file system says of it.
    """

    name: str
    kind: _Kind
    tlog: str
    found: os.stat_result


def schema_files(tree: Tree) -> list[SchemaFile]:
    """What is to be read, in this order; none if there is no log.

    Raises:
        UnsafePathError: something else stands in the place of a file.
    """
    regions = [log for _, log in _regions(tree) if log is not None]
    if regions:
        groups = _file(tree, _GROUP_LOG, "binary")
        return [groups, *regions] if groups else regions
    # A checkpoint puts its snapshot there before it begins the log anew: looked for in this order,
    # both together never lack anything.
    log = _file(tree, _BINARY_MLOG, "binary") or _file(tree, MLOG, "text")
    snapshot = _newest_snapshot(tree)
    return [each for each in (snapshot, log) if each is not None]


def database_of(name: str) -> str | None:
    """The database of a region's log; None if the file is not in a region of the tree model."""
    database, slash, _ = name.partition("/")
    return database if slash and database.startswith("root.") else None


def unread_files(tree: Tree) -> list[str]:
    """What of a schema directory is not read, in words."""
    regions = list(_regions(tree))
    said = []
    without = sum(1 for _, log in regions if log is None)
    if without:
        said.append(
            f"{without} regions keep no {_BINARY_MLOG} (links are not followed; with Ratis their "
            "schema is in the log of the consensus): name the server as schema.server to have it "
            "asked"
        )
    pages = sum(1 for names, _ in regions if any(each.endswith(_PAGES) for each in names))
    if pages:
        said.append(
            f"{pages} regions keep their series in pages (*{_PAGES}), of which only the log is "
            "read: name the server as schema.server to have it asked"
        )
    if regions and not tree.exists(_GROUP_LOG):
        said.append("TTLs, templates and the tables of databases are kept by the ConfigNode")
    if tree.exists(_TEMPLATE_LOG):
        said.append(f"schema templates are in {_TEMPLATE_LOG}")
    return said


def opened(tree: Tree, name: str) -> int | None:
    """A regular file, open for reading; None if there is none.

    Raises:
        UnsafePathError: it is something else.
    """
    return None if _regular(tree, name) is None else tree.open_read(name)


def _regular(tree: Tree, name: str) -> os.stat_result | None:
    found = tree.stat(name)
    if found is not None and not modes.S_ISREG(found.st_mode):
        raise UnsafePathError(f"{tree.path / name} is no regular file; links are not followed")
    return found


def _file(tree: Tree, name: str, kind: _Kind, tlog: str = TLOG) -> SchemaFile | None:
    found = _regular(tree, name)
    return None if found is None else SchemaFile(name, kind, tlog, found)


def _newest_snapshot(tree: Tree) -> SchemaFile | None:
    """The snapshot that the database wrote last; one that it is still writing has another name."""
    names = [(each.st_mtime_ns, name) for name, each in tree.listing() if _SNAPSHOT.fullmatch(name)]
    if not names:
        return None
    name = max(names)[1]
    return _file(tree, name, "binary tree" if name.endswith(_BINARY_SUFFIX) else "tree")


def _regions(tree: Tree) -> Iterator[tuple[list[str], SchemaFile | None]]:
    """The names in each region's directory, and its log if it has one; older regions first."""
    found = []
    for database, facts in tree.listing():
        if not modes.S_ISDIR(facts.st_mode) or database == "sync":
            continue
        for region, below in tree.listing(database):
            if modes.S_ISDIR(below.st_mode) and _REGION.fullmatch(region):
                found.append((int(region), f"{database}/{region}"))
    for _, at in sorted(found):
        names = [name for name, _ in tree.listing(at)]
        if names:
            log = None
            with suppress(UnsafePathError):  # it keeps no other region back
                log = _file(tree, f"{at}/{_BINARY_MLOG}", "region", f"{at}/{TLOG}")
            yield names, log
