"""Which partitions have to be looked at: all after a start, then those that commits touch."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.state.tables.file_tables.file_index import GroupKey
from receiver.metadata.state.tables.file_tables.retired import PartitionKey, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from receiver.metadata.engine import Engine

__all__ = ["TouchedPartitions"]

_TOUCHING: Final = (
    records.FileLoaded,
    records.FileDeleted,
    records.FileRetired,
    records.FileReturned,
    records.FileSuperseded,
    records.FileQuarantined,
    records.FileRestored,
    records.FileRevived,
    records.FileUndeleted,
)


class TouchedPartitions:
    """Partitions that wait to be looked at, the longest waiting first; any thread may call."""

    def __init__(self, engine: Engine) -> None:
        """Begin with none; the first `follow` finds all."""
        self._engine = engine
        self._seen = -1
        self._lock = threading.Lock()
        self._known: set[PartitionKey] = set()
        self._waiting: dict[PartitionKey, None] = {}

    def every(self) -> list[PartitionKey]:
        """All that there were files in since the start, in order; see `follow`."""
        with self._lock:
            return sorted(self._known)

    def all(self) -> list[PartitionKey]:
        """Those that wait."""
        with self._lock:
            return list(self._waiting)

    def add(self, key: PartitionKey) -> None:
        """Have one looked at."""
        with self._lock:
            self._waiting[key] = None

    def drop(self, key: PartitionKey) -> None:
        """One was looked at, and nothing is to be done."""
        with self._lock:
            self._waiting.pop(key, None)

    def follow(self) -> dict[PartitionKey, int]:
        """Take in what commits have touched since the last time.

        Returns:
            that, with the last commit that did; 0 where it is not known.
        """
        with self._lock:
            newest = self._engine.newest_commit
            found: dict[PartitionKey, int] = {}
            if self._seen < 0:
                found = self._every()
            elif newest != self._seen:
                try:
                    for commit in self._engine.log_since(self._seen):
                        found |= dict.fromkeys(self._keys(commit.ops), commit.ts)
                        newest = max(newest, commit.ts)
                except HistoryGoneError:
                    found = self._every()
            self._seen = newest
            self._waiting |= dict.fromkeys(found)
            self._known.update(found)
            return found

    def _every(self) -> dict[PartitionKey, int]:
        with self._engine.reading() as state:
            directories = state.file_table.directories()
        keys = (
            PartitionKey(each.sg, each.vsg, each.partition)
            for each in map(GroupKey.of, directories)
        )
        return dict.fromkeys(keys, 0)

    def _keys(self, ops: Iterable[records.Op]) -> Iterator[PartitionKey]:
        for op in ops:
            if isinstance(op, _TOUCHING):
                yield partition_of(op.physical)
            elif isinstance(op, records.CompactionDissolved):
                with self._engine.reading() as state:
                    row = state.compacted_table.rows.get(op.id)
                if row is not None:
                    yield row.key
