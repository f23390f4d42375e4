"""How much loaded files take in the data directories.

It is counted at the start, by what the disk has allocated, and followed by commits from then on.
The store is not needed for that.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from common.names import RESOURCE, FilePath, Kind
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.storage.cache.disk_cache import DiskCache

__all__ = ["CacheBooks", "allocated"]

_NEWS = (
    records.FileLoaded,
    records.FileForgotten,
    records.ResourceNoted,
    records.FileMoved,
    records.FileUploaded,  # a resource that was told of has come to its place by then
)
"""Operations behind which a file takes another room here."""


def allocated(trees: Sequence[Tree], physical: str) -> int:
    """Bytes that a file and its resource take in all of the data directories."""
    path = FilePath.parse(physical)
    names = (path.text, path.resource.text)
    found = [tree.stat(name) for tree in trees for name in names]
    return sum(each.st_blocks * 512 for each in found if each is not None)


class CacheBooks:
    """Counts, when it is called; from any thread."""

    def __init__(
        self,
        engine: Engine,
        trees: Callable[[], Sequence[Tree]],
        cache: DiskCache,
    ) -> None:
        """Prepare; nothing is looked at before `look`.

        Args:
            engine: the metadata engine.
            trees: gives the data directories that count now.
            cache: what is found goes there.
        """
        self._engine = engine
        self._trees = trees
        self._cache = cache
        self._seen = -1
        self._merged: dict[int, tuple[str, ...]] = {}
        self._looking = threading.Lock()

    def look(self) -> None:
        """Follow what was loaded and forgotten since the last look."""
        with self._looking:
            if self._seen < 0:
                self._count_all()
            else:
                self._follow()

    def follow(self) -> None:
        """The same, for who asks for room, once all was counted: what was loaded just now counts.

        It counts as staged no more, and nobody may be let in for its room.
        """
        if self._seen >= 0:
            self.look()

    def _follow(self) -> None:
        if self._engine.newest_commit == self._seen:
            return
        try:
            for commit in self._engine.log_since(self._seen):
                for op in commit.ops:
                    if isinstance(op, _NEWS):
                        self._count(op.physical)
                    elif isinstance(op, records.FilesCompacted):
                        self._merged[op.id] = tuple(each.physical for each in op.outputs)
                        self._count_merged(op.id)
                    elif isinstance(op, records.CompactionForgotten):
                        self._count_merged(op.id)
                        self._merged.pop(op.id, None)
                self._seen = commit.ts
        except HistoryGoneError:
            self._count_all()

    def count(self, physical: str) -> None:
        """A file takes another room than it did: count it, once all were."""
        with self._looking:
            if self._seen >= 0:
                self._count(physical)

    def _count(self, physical: str) -> None:
        size = allocated(self._trees(), physical)
        if size:
            self._cache.came(physical, size)
        else:
            self._cache.went(physical)

    def _count_merged(self, ident: int) -> None:
        """What a compaction made counts as well; it leaves the disk by no eviction."""
        for physical in self._merged.get(ident, ()):
            self._count(physical)

    def _count_all(self) -> None:
        """Count what the disks have, in the order of the loads."""
        with self._engine.reading() as state:
            newest = state.newest
            created = {row.physical: row.created for row in state.files.values()}
            self._merged = {
                row.id: tuple(each.physical for each in row.outputs)
                for row in state.compacted_table.rows.values()
            }
        there: dict[str, int] = {}
        for tree in self._trees():
            for kind in Kind:
                for rel, found in tree.files(kind):
                    physical = rel.removesuffix(RESOURCE)
                    there[physical] = there.get(physical, 0) + found.st_blocks * 512
        for physical in sorted(there, key=lambda each: (created.get(each, 0), each)):
            self._cache.came(physical, there[physical])
        for physical in self._cache.names():
            if physical not in there:  # it went, or came behind the walk
                self._count(physical)
        self._seen = newest
