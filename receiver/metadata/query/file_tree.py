"""The tree of loaded files: database, storage group, time partition, file.

    root                                       database; of the table model its own name
    root.wind                                  storage group, as its directory is called
    root.wind/0/2931                           storage group, virtual group, time partition
    sequence/root.wind/0/2931/1-1-0-0.<tag>.tsfile    file, by its physical path

A file is there while readers see it: from the commit that shows it until the one that takes it out
of sight, and once more from the commit that brings it back. A directory is there while a file below
it is. One commit that puts a file in the place of another ends the one and begins the other at its
timestamp, and the directory does not end in between.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from receiver.metadata.model import records
from receiver.metadata.model.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from receiver.metadata.model.records import Commit, Op

__all__ = ["DirectoryName", "FileMove", "directories_of", "ends_of", "moves_of"]

TreeKind = Literal["database", "storage_group", "partition", "file"]


class DirectoryName(NamedTuple):
    """A directory of the tree.

    Attributes:
        kind: `database`, `storage_group` or `partition`.
        path: unique among those of its kind.
        parent: path of the directory that it lies in; empty for a database.
    """

    kind: TreeKind
    path: str
    parent: str


def directories_of(physical: str) -> tuple[DirectoryName, DirectoryName, DirectoryName]:
    """The directories that a file lies in, from the database down."""
    return _directories(physical.split("/", 1)[1].rpartition("/")[0])


@lru_cache(1 << 12)
def _directories(partition: str) -> tuple[DirectoryName, DirectoryName, DirectoryName]:
    group = partition.split("/", 1)[0]
    database = ROOT if group.split(".", 1)[0] == ROOT else group
    return (
        DirectoryName("database", database, ""),
        DirectoryName("storage_group", group, database),
        DirectoryName("partition", partition, group),
    )


class FileMove(NamedTuple):
    """A file that comes into sight, or leaves it.

    Attributes:
        op: that says so.
        is_seen: whether readers see it from then on.
    """

    op: Op
    is_seen: bool


_SHOWING: Final = (
    records.FileLoaded | records.FileRestored | records.FileRevived | records.FileUndeleted
)
_HIDING: Final = records.FileQuarantined | records.FileSuperseded


def moves_of(commit: Commit, hidden: set[str]) -> dict[str, FileMove]:
    """What a commit does to the tree, by physical path.

    Args:
        commit: of the log, in its order.
        hidden: files that are in quarantine or superseded; kept up to date.
    """
    found: dict[str, FileMove] = {}
    for op in commit.ops:
        if isinstance(op, _SHOWING):
            hidden.discard(op.physical)
            _net(found, op.physical, FileMove(op, True))
        elif isinstance(op, _HIDING):
            if op.physical not in hidden:
                _net(found, op.physical, FileMove(op, False))
            hidden.add(op.physical)
        elif isinstance(op, records.FileDeleted):
            if op.physical not in hidden:
                _net(found, op.physical, FileMove(op, False))
            hidden.discard(op.physical)
    return found


def _net(found: dict[str, FileMove], physical: str, move: FileMove) -> None:
    """One way and back in one commit is no move."""
    if physical in found and found[physical].is_seen is not move.is_seen:
        del found[physical]
    else:
        found[physical] = move


def ends_of(
    files: Mapping[DirectoryName, Iterable[str]], log: Iterator[Commit]
) -> dict[DirectoryName, int]:
    """When directories end: the commits behind which no file is in them.

    Args:
        files: what is seen in each of these directories at a moment.
        log: the commits behind it.

    Returns:
        The timestamps, of those that end at all.
    """
    left = {each: set(paths) for each, paths in files.items()}
    ended: dict[DirectoryName, int] = {}
    for commit in log:
        moved = moves_of(commit, set())
        touched = set()
        for physical, move in moved.items():
            for each in directories_of(physical):
                if each in left:
                    touched.add(each)
                    (left[each].add if move.is_seen else left[each].discard)(physical)
        for each in touched:
            if not left[each]:
                ended[each] = commit.ts
                del left[each]
        if not left:
            break
    return ended
