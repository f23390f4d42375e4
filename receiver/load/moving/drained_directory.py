"""What is left in a data directory that is drained, and what of it can go.

A file that the catalogue has here still is to be moved. One that it has in another directory was
moved: this copy stays for those who read it, and goes when the other one was read through once
more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from common.errors import TsferryError
from common.names import RESOURCE, Kind
from receiver.load.moving.copied_files import MOVING, known_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.durable import Tree
    from receiver.load.folder.sender_folder import Folders, SenderFolder
    from receiver.load.moving.copied_files import CataloguedFile
    from receiver.metadata.engine import Engine

__all__ = ["DrainedDirectory", "look_through"]

_BESIDE: Final = ("quarantine", "manifests")
"""What of a folder that was left is needed still."""
_UNDER_WAY: Final = ("merging", MOVING)
_SHOWN: Final = 20


@dataclass
class DrainedDirectory:
    """What was found in a data directory.

    Attributes:
        files: that the catalogue has here.
        bytes: of them.
        to_move: the first of those.
        copies: of files that it has in another one of these directories, which has them.
        to_go: the first of those that may go, and where they are now.
        unknown: files that it does not have; a load may be about to commit them.
        strangers: the first of these.
        folders: how many senders' folders stand here.
        kept: files of folders that were left, as (where they are, where their sender is now).
        under_way: merges and moves into it that are not at their end.
        bare: files that have left the disks for storage nodes, and whose resources lie here.
    """

    files: int = 0
    bytes: int = 0
    to_move: list[CataloguedFile] = field(default_factory=list)
    copies: int = 0
    to_go: list[tuple[CataloguedFile, Tree]] = field(default_factory=list)
    unknown: int = 0
    strangers: list[str] = field(default_factory=list)
    folders: int = 0
    kept: list[tuple[str, SenderFolder]] = field(default_factory=list)
    under_way: int = 0
    bare: list[CataloguedFile] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing that is needed, or that nobody knows, lies in it."""
        needed = self.files or self.copies or self.folders or self.kept or self.bare
        return not (needed or self.unknown or self.under_way)


def look_through(
    engine: Engine,
    tree: Tree,
    trees: Sequence[Tree],
    folders: Folders,
    *,
    most: int,
    is_wanted: Callable[[str], bool] = lambda _: True,
    may_go: Callable[[str], bool] = lambda _: True,
) -> DrainedDirectory:
    """Find out what is left in a directory; no file is read, and nothing is changed.

    Args:
        engine: the metadata engine.
        tree: the directory.
        trees: the data directories that count.
        folders: of the senders.
        most: files that are named to be moved, and to go.
        is_wanted: whether one is to be moved now.
        may_go: whether a copy may go now.
    """
    found = DrainedDirectory()
    by_path = {str(each.path): each for each in trees if each is not tree}
    for physical in _names(tree):
        known = known_file(engine, physical)
        if known is None:
            found.unknown += 1
            if len(found.strangers) < _SHOWN:
                found.strangers.append(physical)
            continue
        if not tree.exists(physical) and _is_released(engine, physical):
            found.bare.append(known)
            continue
        other = by_path.get(known.data_dir)
        if other is not None and _is_there(other, known):
            found.copies += 1
            if len(found.to_go) < most and may_go(physical):
                found.to_go.append((known, other))
            continue
        found.files += 1
        found.bytes += known.size
        if len(found.to_move) < most and is_wanted(physical):
            found.to_move.append(known)
    for folder in folders.all():
        found.folders += folder.tree is tree
    for folder in folders.left():
        active = folders.find(folder.uuid)
        if folder.tree is tree and active is not None:
            found.kept += [(rel, active) for rel in _files_beside(folder)]
    found.under_way = sum(len(tree.listing(each)) for each in _UNDER_WAY)
    return found


def _is_released(engine: Engine, physical: str) -> bool:
    with engine.reading() as state:
        return physical in state.released_table.rows


def _names(tree: Tree) -> Iterator[str]:
    """Files, and those of which only the resource is there."""
    for kind in Kind:
        for rel, _ in tree.files(kind):
            name = rel.removesuffix(RESOURCE)
            if name == rel or not tree.exists(name):
                yield name


def _files_beside(folder: SenderFolder) -> list[str]:
    found: list[str] = []
    for name in _BESIDE:
        rel = folder.at(name)
        try:
            found += [f"{rel}/{each}" for each, _ in folder.tree.listing(rel)]
        except (OSError, TsferryError):
            found.append(rel)  # something is in the way there
    return found


def _is_there(tree: Tree, known: CataloguedFile) -> bool:
    there = tree.stat(known.physical)
    return there is not None and there.st_size == known.size
