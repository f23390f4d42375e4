"""Moving verified files to their final names and back; done before the commit, and repeatable.

A physical name belongs to one file of one task for ever, so whatever file lies under it is that
file: an attempt that was cut off is simply made again. What was moved and then refused goes back.

What somebody has put in the way of a file (a file where its directory has to be, a link, a
directory of another user) concerns the files that have to go there, and no others.
"""

from __future__ import annotations

import logging
import os
import stat
from typing import TYPE_CHECKING

from common import crash
from common.digests import read_blocks
from common.durable import staying
from common.errors import Transient, TsferryError
from common.names import FilePath
from receiver.datadirs.disks import home_of
from receiver.load.folder.obstacles import is_of_one_path, kind_of, obstacle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from common.durable import Tree
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedOutput

__all__ = ["Move", "move_back", "move_in", "replace_resource", "tree_of"]

log = logging.getLogger(__name__)

Move = tuple[str, "FilePath"]
"""Where a verified file lies, relative to the data directory, and its physical name."""


def move_in(tree: Tree, moves: Iterable[Move]) -> dict[str, str]:
    """Give files their final names; when this returns the names are on the disk.

    Names that an earlier attempt gave are flushed too: it may have died before it did so.

    Returns:
        what stands in the way of the others, by where these lie still.
    """
    stuck: dict[str, str] = {}
    lasting: dict[str, str | None] = {}
    left: set[str] = set()
    with staying(tree) as here:
        for rel, physical in moves:
            directory = physical.directory
            if directory not in lasting:
                lasting[directory] = _make_directory(here, physical)
            why = lasting[directory]
            if why is None:
                why = _move(here, rel, physical, left)
            if why is not None:
                stuck[rel] = why
    for directory in sorted(name for name, why in lasting.items() if why is None):
        tree.sync_dir(directory)
    for directory in sorted(left):
        tree.sync_dir(directory)
    crash.point("placing.synced")
    return stuck


def _make_directory(tree: Tree, physical: FilePath) -> str | None:
    """Make the directory of a file; in words why that cannot be."""
    try:
        tree.make_dirs(physical.directory)
    except (OSError, TsferryError) as error:
        if not is_of_one_path(error):
            raise
        return obstacle(tree, physical.text, error)
    return None


def _move(tree: Tree, rel: str, physical: FilePath, left: set[str]) -> str | None:
    """Move a file, if that was not done before; in words why that cannot be."""
    try:
        try:
            tree.rename(rel, physical.text, replace=False, sync=False)
        except FileExistsError:
            found = tree.stat(physical.text)
            if found is not None and not stat.S_ISREG(found.st_mode):
                return f"{physical} is {kind_of(found.st_mode)}"
            tree.rename(rel, physical.text, sync=False)
    except (OSError, TsferryError) as error:
        if _is_gone(tree, rel):
            return None
        if not is_of_one_path(error):
            raise
        return obstacle(tree, physical.text, error)
    left.add(rel.rpartition("/")[0])
    crash.point("placing.moved")
    return None


def _is_gone(tree: Tree, rel: str) -> bool:
    try:
        return not tree.exists(rel)
    except (OSError, TsferryError):
        return False


def move_back(tree: Tree, moves: Iterable[Move]) -> None:
    """Undo `move_in` for files that are not loaded after all; what cannot be is left to fsck."""
    back: set[str] = set()
    away: set[str] = set()
    for rel, physical in moves:
        try:
            found = tree.stat(physical.text)
            if found is None or not stat.S_ISREG(found.st_mode):
                continue
            tree.make_dirs(rel.rpartition("/")[0])
            tree.rename(physical.text, rel, sync=False)
        except (OSError, TsferryError) as error:
            if not is_of_one_path(error):
                raise
            log.warning("a file cannot be taken back", extra={"error": str(error)})
            continue
        crash.point("placing.moved_back")
        back.add(rel.rpartition("/")[0])
        away.add(physical.directory)
    for directory in [*sorted(back), *sorted(away)]:  # a file with two names is no harm
        tree.sync_dir(directory)


def replace_resource(
    source: Tree, rel: str, trees: Sequence[Tree], row: FileRow, *, stored: bool = False
) -> None:
    """Put another resource beside a loaded file; the old one is there until the new one is, whole.

    It is done behind the commit that tells of it, as the old one is what was committed before. The
    copy is made anew each time, for a life that was cut off may have made it or not.

    Args:
        source: the data directory that it was received in.
        rel: where it lies there.
        trees: the data directories that count now.
        row: the file.
        stored: the object store has the file, which need not be here: what comes lies where the
            file was, until it is in the store too.

    Raises:
        Transient: the data directory that holds the file is away.
    """
    tree = tree_of(trees, row)
    if tree is None and stored:
        tree = home_of(trees, row) or source
        tree.make_dirs(row.physical.rpartition("/")[0])
    if tree is None:
        if not any(str(each.path) == row.data_dir for each in trees):
            raise Transient(f"{row.data_dir}, which holds {row.physical}, is away")
        log.warning("a resource has no file to lie beside", extra={"file": row.physical})
        return
    target = FilePath.parse(row.physical).resource.text
    fd = source.open_read(rel)
    try:
        # Always the same name, so that the next life takes away what this one leaves.
        beside = f"{target}.new"
        tree.unlink(beside, sync=False)
        with tree.create(beside) as file:
            for block in read_blocks(fd):
                file.write(block)
            file.sync()
        crash.point("placing.resource.written")
        tree.rename(beside, target)
        for other in trees:  # of a file that was moved, and is where it was still
            if other is not tree:
                other.unlink(target, sync=False)
    except (OSError, TsferryError) as error:
        if not is_of_one_path(error):
            raise
        log.warning("a resource cannot be put in its place", extra={"error": str(error)})
    finally:
        os.close(fd)
    crash.point("placing.resource.placed")


def tree_of(trees: Sequence[Tree], row: FileRow | CompactedOutput) -> Tree | None:
    """The data directory that holds a file's bytes, None if none does.

    Of several the one that the catalogue names: a file that was moved is in both for a while.
    """
    home = home_of(trees, row)
    if home is not None and home.exists(row.physical):
        return home
    return next((tree for tree in trees if tree.exists(row.physical)), None)
