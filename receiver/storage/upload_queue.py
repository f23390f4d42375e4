"""Which files are to be uploaded, the oldest first.

It is found from the catalogue at the start, and from its commits from then on. A file that could
not be read waits for a while: its directory may be away, its new resource comes to its place behind
the commit that tells of it, and what is damaged may be repaired.
"""

from __future__ import annotations

import heapq
import threading
from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow, UploadedRow

__all__ = ["DueFile", "UploadQueue"]

_AGAIN = 60.0
"""Seconds until a file that could not be read is looked at again."""
_NEWS = (
    records.FileLoaded,
    records.FileRestored,
    records.FileRevived,
    records.FileUndeleted,
    records.ResourceNoted,
)
"""Operations behind which a file is missing that was not before."""


class DueFile(NamedTuple):
    """A file that is to be uploaded now.

    Attributes:
        row: of the file.
        there: what is in the store of it; None for nothing.
    """

    row: FileRow
    there: UploadedRow | None


class _Entry(NamedTuple):
    due: float
    ts: int
    physical: str


class UploadQueue:
    """What is missing; one thread takes from it, any may look."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        """Prepare; nothing is in it before `look`.

        Args:
            engine: the metadata engine.
            clock: seconds.
        """
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []
        self._under_way: dict[str, int] = {}
        self._seen = -1

    def look(self) -> None:
        """Add what was loaded since the last look."""
        if self._engine.newest_commit == self._seen:
            return
        try:
            if self._seen < 0:
                self._look_at_all()
                return
            for commit in self._engine.log_since(self._seen):
                for op in commit.ops:
                    if isinstance(op, _NEWS):
                        self._add(_Entry(0.0, commit.ts, op.physical))
                self._seen = commit.ts
        except HistoryGoneError:
            self._look_at_all()

    def take(self) -> DueFile | None:
        """The next one that is due, which is under way from then on."""
        now = self._clock()
        while True:
            with self._lock:
                if not self._entries or self._entries[0].due > now:
                    return None
                entry = heapq.heappop(self._entries)
                if entry.physical in self._under_way:
                    continue  # `done` looks at it again
                self._under_way[entry.physical] = entry.ts
            with self._engine.reading() as state:
                row = state.files.get(entry.physical)
                if row is not None and state.uploaded_table.lacks(row):
                    return DueFile(row, state.uploaded_table.rows.get(entry.physical))
            self._forget(entry.physical)

    def done(self, physical: str) -> None:
        """It was told of; what came to it meanwhile is due at once."""
        ts = self._forget(physical)
        with self._engine.reading() as state:
            missing = state.uploaded_table.lacks(state.files.get(physical))
        if missing:
            self._add(_Entry(0.0, ts, physical))

    def put_back_all(self) -> None:
        """All that is under way is due as before: nothing came of it."""
        for physical in list(self._under_way):
            self._add(_Entry(0.0, self._forget(physical), physical))

    def put_off(self, physical: str) -> None:
        """It could not be read, and is due again after a while."""
        self._add(_Entry(self._clock() + _AGAIN, self._forget(physical), physical))

    def missing(self) -> dict[str, int]:
        """Physical names of what is not in the store, with the commits that brought it."""
        with self._lock:
            found = [*self._entries, *(_Entry(0.0, ts, p) for p, ts in self._under_way.items())]
        with self._engine.reading() as state:
            lacks, files = state.uploaded_table.lacks, state.files
            return {each.physical: each.ts for each in found if lacks(files.get(each.physical))}

    def _look_at_all(self) -> None:
        with self._engine.reading() as state:
            found = [
                _Entry(0.0, row.created, row.physical)
                for row in state.files.values()
                if state.uploaded_table.lacks(row)
            ]
            self._seen = state.newest
        heapq.heapify(found)
        with self._lock:
            self._entries = found

    def _add(self, entry: _Entry) -> None:
        with self._lock:
            heapq.heappush(self._entries, entry)

    def _forget(self, physical: str) -> int:
        with self._lock:
            return self._under_way.pop(physical)
