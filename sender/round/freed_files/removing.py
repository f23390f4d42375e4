"""Removing files that are safe to delete, with what belongs to them.

1. `freed-<number>.state` of every receiver: what may go now
2. `free.begun`: what belongs to each of these files
3. the TsFiles, each if it is still the one that was judged; then their directories are flushed
4. what belongs to them: before its deletion file goes, a TsFile must be gone for good
5. `free.begun` goes

    <schema dir>/sync/free.begun      only while something is to be removed: JSON, `_Begun`

A death after any of these leaves files that are there with all that belongs to them, or what
belonged to files that are gone; the next run removes that.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from common import crash
from common.decoders import from_json
from common.errors import DamagedError, UnsafePathError
from common.names import RESOURCE, SUFFIX
from sender.kept.freed import FreedFile, changing_freed
from sender.select.found import LocalDeletions, LocalFile, Scan, stat_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from common.durable import Tree

__all__ = ["FreeBatch", "Names", "Removal"]

_BEGUN = "free.begun"
_VERSION = 1
_SHARED = re.compile(r"[0-9]+-[0-9]+\.mods2\Z")

Names: TypeAlias = frozenset[tuple[Path, str, int]]
"""What lies in some directories: (data directory, path, inode)."""


class _Beside(msgspec.Struct, frozen=True, array_like=True):
    """A file that belongs to a TsFile."""

    rel: str
    identity: tuple[int, int, int]


class _Going(msgspec.Struct, frozen=True, array_like=True):
    """A TsFile that is about to go, and what belongs to it."""

    data_dir: str
    rel: str
    beside: tuple[_Beside, ...]


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    """`free.begun`."""

    version: int = _VERSION
    files: tuple[_Going, ...] = ()


@dataclass(frozen=True)
class FreeBatch:
    """Files that one judgement called safe.

    Attributes:
        files: of one partition, the lowest first.
        scan: that they were judged by.
        directories: of the partition, relative to each data directory.
        names: all that lay in them before that.
        lines: what is to be remembered for a receiver, by the folder that keeps it.
    """

    files: Sequence[LocalFile]
    scan: Scan
    directories: Sequence[str]
    names: Names
    lines: Mapping[str, Sequence[FreedFile]]


class Removal:
    """Removes; one at a time on a node.

    Args:
        sync: `<schema dir>/sync`.
        trees: the data directories.
    """

    def __init__(self, sync: Tree, trees: Mapping[Path, Tree]) -> None:
        self._sync = sync
        self._trees = trees
        self._away: tuple[_Going, ...] = ()
        """Of data directories that do not count now, what an earlier run had begun with."""

    def names(self, directories: Iterable[str]) -> Names:
        """What lies in these directories of all data directories; none is followed to by a link."""
        found = []
        for data_dir, tree in self._trees.items():
            for rel in directories:
                try:
                    fd = tree.open_dir(rel)
                except (OSError, UnsafePathError):
                    continue  # a scan says why
                try:
                    with os.scandir(fd) as entries:
                        found += [(data_dir, _at(rel, each.name), each.inode()) for each in entries]
                finally:
                    os.close(fd)
        return frozenset(found)

    def run(self, batch: FreeBatch, go_on: Callable[[LocalFile], bool]) -> list[LocalFile]:
        """Remove files as long as the judgement holds; those that are gone.

        It holds while nothing changes in the partition but by this, nor in what belongs to a file.

        Args:
            batch: that was judged.
            go_on: asked before each file.
        """
        for directory, lines in batch.lines.items():
            with changing_freed(self._sync, directory) as freed:
                freed.add(lines)
        crash.point("removing.noted")
        deletions = {
            file.path: [
                each
                for each in batch.scan.deletions
                if (each.path, each.data_dir) == (file.path, file.data_dir)
            ]
            for file in batch.files
        }
        going = {file.path: self._going(file, deletions[file.path]) for file in batch.files}
        begun = _Begun(files=(*going.values(), *self._away))
        self._sync.write_atomic(_BEGUN, msgspec.json.encode(begun))
        crash.point("removing.begun")
        gone: list[LocalFile] = []
        left = set(batch.names)
        for file in batch.files:
            if not go_on(file) or self.names(batch.directories) != left:
                break
            if not self._is_as_judged(file, deletions[file.path]):
                break
            tree = self._trees[file.data_dir]
            if not tree.unlink(file.rel, identity=file.identity, sync=False):
                break
            crash.point("removing.unlinked")
            left.discard((file.data_dir, file.rel, file.inode))
            gone.append(file)
        self._clear([going[file.path] for file in gone])
        return gone

    def finish(self) -> None:
        """Remove what a run that died has left of files that are gone.

        What is of a data directory that does not count now is left for when it does.

        Raises:
            DamagedError: what it had begun cannot be read.
        """
        try:
            begun = from_json(self._sync.read(_BEGUN), _Begun)
        except FileNotFoundError:
            return
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            where = self._sync.path / _BEGUN
            raise DamagedError(f"{where} is damaged: {error}; remove it") from error
        here = [each for each in begun.files if Path(each.data_dir) in self._trees]
        self._away = tuple(each for each in begun.files if Path(each.data_dir) not in self._trees)
        self._clear(
            [each for each in here if not self._trees[Path(each.data_dir)].exists(each.rel)]
        )

    def _going(self, file: LocalFile, deletions: Iterable[LocalDeletions]) -> _Going:
        tree = self._trees[file.data_dir]
        own = [
            _Beside(each.rel, stat_identity(found))
            for each in deletions
            if each.rel and (found := tree.stat(each.rel)) is not None
        ]
        if file.resource is not None:
            size, mtime_ns, inode = file.resource
            own.append(_Beside(file.rel + RESOURCE, (size, mtime_ns, inode)))
        return _Going(str(file.data_dir), file.rel, tuple(own))

    def _is_as_judged(self, file: LocalFile, deletions: Iterable[LocalDeletions]) -> bool:
        """Whether what belongs to a file is as it was; what others share of it, too."""
        tree = self._trees[file.data_dir]
        if file.resource is not None:
            found = tree.stat(file.rel + RESOURCE)
            if found is None or stat_identity(found) != file.resource:
                return False
        return all(_identity(tree, each) == each.identity for each in deletions)

    def _clear(self, gone: Sequence[_Going]) -> None:
        """Remove what belongs to files that are gone, once they are gone for good."""
        places = {(Path(each.data_dir), each.rel.rpartition("/")[0]) for each in gone}
        self._flush(places)
        crash.point("removing.flushed")
        for each in gone:
            for beside in each.beside:
                tree = self._trees[Path(each.data_dir)]
                tree.unlink(beside.rel, identity=beside.identity, sync=False)
                crash.point("removing.cleared")
        for data_dir, rel in places:
            _clear_shared(self._trees[data_dir], rel)
        self._flush(places)
        if self._away:
            self._sync.write_atomic(_BEGUN, msgspec.json.encode(_Begun(files=self._away)))
        else:
            self._sync.unlink(_BEGUN)
        crash.point("removing.done")

    def _flush(self, places: Iterable[tuple[Path, str]]) -> None:
        for data_dir, rel in sorted(places):
            self._trees[data_dir].sync_dir(rel)


def _identity(tree: Tree, deletions: LocalDeletions) -> tuple[int, ...] | None:
    """What `LocalDeletions.identity` would be now; None where one of its files is not there."""
    shared = "" if deletions.shared is None else deletions.shared.rel
    found = [tree.stat(rel) for rel in (deletions.rel, shared) if rel]
    there = [stat_identity(each) for each in found if each is not None]
    return tuple(map(sum, zip(*there, strict=True))) if len(there) == len(found) else None


def _clear_shared(tree: Tree, rel: str) -> None:
    """Deletion files that files of a directory share go with the last TsFile in it."""
    there = tree.listing(rel)
    if any(name.endswith(SUFFIX) for name, _ in there):
        return
    for name, found in there:
        if _SHARED.match(name):
            tree.unlink(_at(rel, name), identity=stat_identity(found), sync=False)


def _at(rel: str, name: str) -> str:
    return f"{rel}/{name}" if rel else name
