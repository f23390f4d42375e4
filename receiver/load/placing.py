"""Moving verified files to their final names and back; done before the commit, and repeatable.

A physical name belongs to one file of one task for ever, so whatever lies under it is that file:
an attempt that was cut off is simply made again. What was moved and then refused goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import crash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from common.durable import Tree
    from common.names import FilePath
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Move", "move_back", "move_in", "tree_of"]

Move = tuple[str, "FilePath"]
"""Where a verified file lies, relative to the data directory, and its physical name."""


def move_in(tree: Tree, moves: Iterable[Move]) -> None:
    """Give files their final names; when this returns the names are on the disk.

    Names that an earlier attempt gave are flushed too: it may have died before it did so.
    """
    every = list(moves)
    pending = [(rel, physical) for rel, physical in every if tree.exists(rel)]
    directories = sorted({physical.directory for _, physical in every})
    for directory in directories:
        tree.make_dirs(directory)
    for rel, physical in pending:
        tree.rename(rel, physical.text, sync=False)
        crash.point("placing.moved")
    for directory in directories:
        tree.sync_dir(directory)
    for directory in sorted({rel.rpartition("/")[0] for rel, _ in pending}):
        tree.sync_dir(directory)
    crash.point("placing.synced")


def move_back(tree: Tree, moves: Iterable[Move]) -> None:
    """Undo `move_in` for files that are not loaded after all."""
    pending = [(rel, physical) for rel, physical in moves if tree.exists(physical.text)]
    for rel, physical in pending:
        tree.make_dirs(rel.rpartition("/")[0])
        tree.rename(physical.text, rel, sync=False)
        crash.point("placing.moved_back")
    back = {rel.rpartition("/")[0] for rel, _ in pending}
    away = {physical.directory for _, physical in pending}
    for directory in [*sorted(back), *sorted(away)]:  # a file with two names is no harm
        tree.sync_dir(directory)


def tree_of(trees: Sequence[Tree], row: FileRow) -> Tree | None:
    """The data directory that holds a file's bytes, None if none does."""
    return next((tree for tree in trees if tree.exists(row.physical)), None)
