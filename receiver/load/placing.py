"""Moving verified files to their final names and back; done before the commit, and repeatable.

A physical name belongs to one file of one task for ever, so whatever lies under it is that file:
an attempt that was cut off is simply made again. What was moved and then refused goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import crash

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.durable import Tree
    from common.names import FilePath

__all__ = ["Move", "move_back", "move_in"]

Move = tuple[str, "FilePath"]
"""Where a verified file lies, relative to the data directory, and its physical name."""


def move_in(tree: Tree, moves: Iterable[Move]) -> None:
    """Give files their final names; when this returns the names are on the disk."""
    pending = [(rel, physical) for rel, physical in moves if tree.exists(rel)]
    for directory in sorted({physical.directory for _, physical in pending}):
        tree.make_dirs(directory)
    for rel, physical in pending:
        tree.rename(rel, physical.text, sync=False)
        crash.point("placing.moved")
    _sync_all(tree, ((rel, physical.text) for rel, physical in pending))
    crash.point("placing.synced")


def move_back(tree: Tree, moves: Iterable[Move]) -> None:
    """Undo `move_in` for files that are not loaded after all."""
    pending = [(rel, physical) for rel, physical in moves if tree.exists(physical.text)]
    for rel, physical in pending:
        tree.make_dirs(rel.rpartition("/")[0])
        tree.rename(physical.text, rel, sync=False)
        crash.point("placing.moved_back")
    _sync_all(tree, ((physical.text, rel) for rel, physical in pending))


def _sync_all(tree: Tree, moved: Iterable[tuple[str, str]]) -> None:
    """The new names first: a file with two names is no harm, one without any is."""
    pairs = [(old.rpartition("/")[0], new.rpartition("/")[0]) for old, new in moved]
    for directory in dict.fromkeys([new for _, new in pairs] + [old for old, _ in pairs]):
        tree.sync_dir(directory)
