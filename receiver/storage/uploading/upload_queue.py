"""Which files are to be uploaded: what somebody waits for, then the oldest first.

It is found from the catalogue at the start, and from its commits from then on. When a file goes,
its storage group says: at once, some time behind its load, or never. A file that could not be read
waits for a while: its directory may be away, its new resource comes to its place behind the commit
that tells of it, and what is damaged may be repaired.
"""

from __future__ import annotations

import heapq
import threading
from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from common.config import UploadRules
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow

__all__ = ["DueFile", "MissingFiles", "UploadQueue"]

_URGENT = -1.0
"""When a file is due that somebody waits for: before all that are due at once."""
_SOONEST, _LATEST = 0.5, 60.0
"""Seconds until a file that could not be read is looked at again, doubled each time."""
_NEWS = (
    records.FileLoaded,
    records.FileRestored,
    records.FileRevived,
    records.FileUndeleted,
    records.ResourceNoted,
)
"""Operations behind which a file is missing that was not before."""
_RULES = (records.UploadSet, records.StorageGroupDeleted)
"""Operations behind which files go at another time."""


class DueFile(NamedTuple):
    """A file that is to be uploaded now.

    Attributes:
        row: of the file.
        there: what is in the store of it; None for nothing.
    """

    row: FileRow
    there: UploadedRow | None


class MissingFiles(NamedTuple):
    """What is not in the store.

    Attributes:
        due: physical names of what should be there, with the commits that brought it.
        kept: physical names of what is not to go there yet, or never.
    """

    due: dict[str, int]
    kept: set[str]


class _Entry(NamedTuple):
    due: float
    ts: int
    physical: str


class UploadQueue:
    """What is missing; any thread may look, and take from it."""

    def __init__(
        self, engine: Engine, rules: UploadRules | None, clock: Callable[[], float]
    ) -> None:
        """Prepare; nothing is in it before `look`.

        Args:
            engine: the metadata engine.
            rules: when files go, where no operator said it of their storage group; None: at once,
                whatever was said.
            clock: seconds since the epoch.
        """
        self._engine = engine
        self._rules = rules
        self._clock = clock
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._entries: list[_Entry] = []
        self._under_way: dict[str, int] = {}
        self._pauses: dict[str, float] = {}
        self._urgent: set[str] = set()
        self._seen = -1

    def look(self) -> None:
        """Add what was loaded since the last look."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        if self._engine.newest_commit == self._seen:
            return
        try:
            if self._seen < 0:
                self._look_at_all()
                return
            for commit in self._engine.log_since(self._seen):
                if any(isinstance(op, _RULES) for op in commit.ops):
                    self._look_at_all()
                    return
                for op in commit.ops:
                    if isinstance(op, _NEWS):
                        with self._engine.reading() as state:
                            due = self._due(state, state.files.get(op.physical))
                        self._add(_Entry(due, commit.ts, op.physical))
                self._seen = commit.ts
        except HistoryGoneError:
            self._look_at_all()

    def is_due(self) -> bool:
        """Whether one may be due now."""
        with self._lock:
            return bool(self._entries) and self._entries[0].due <= self._clock()

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

    def first(self, physicals: Iterable[str]) -> None:
        """Somebody waits for these: they go before all others, if they are not there yet."""
        with self._engine.reading() as state:
            table = state.uploaded_table
            found = [state.files.get(each) for each in physicals]
            rows = [row for row in found if row is not None and table.lacks(row)]
        with self._lock:
            for row in rows:
                if row.physical not in self._urgent:
                    self._urgent.add(row.physical)
                    heapq.heappush(self._entries, _Entry(_URGENT, row.created, row.physical))

    def done(self, physical: str) -> None:
        """It was told of; what came to it meanwhile is due at once."""
        self._pauses.pop(physical, None)
        ts = self._forget(physical)
        with self._engine.reading() as state:
            missing = state.uploaded_table.lacks(state.files.get(physical))
        if missing:
            self._add(_Entry(0.0, ts, physical))

    def put_back_all(self) -> None:
        """All that is under way is due as before: nothing came of it."""
        with self._lock:
            for physical, ts in self._under_way.items():
                due = _URGENT if physical in self._urgent else 0.0
                heapq.heappush(self._entries, _Entry(due, ts, physical))
            self._under_way.clear()

    def put_off(self, physical: str) -> None:
        """It could not be read, and is due again after a while."""
        pause = self._pauses.get(physical, _SOONEST)
        self._pauses[physical] = min(2 * pause, _LATEST)
        self._add(_Entry(self._clock() + pause, self._forget(physical), physical))

    def missing(self) -> MissingFiles:
        """All that is not in the store, by the newest commit."""
        self.look()
        now = self._clock()
        with self._lock:
            found = [*self._entries, *(_Entry(0.0, ts, p) for p, ts in self._under_way.items())]
            pauses = dict(self._pauses)
        due: dict[str, int] = {}
        kept: set[str] = set()
        with self._engine.reading() as state:
            lacks, files = state.uploaded_table.lacks, state.files
            for each in found:
                if not lacks(files.get(each.physical)):
                    continue
                if each.due <= now or each.physical in pauses:
                    due[each.physical] = each.ts
                else:
                    kept.add(each.physical)
        return MissingFiles(due, kept - due.keys())

    def _look_at_all(self) -> None:
        with self._engine.reading() as state:
            found = [
                _Entry(self._due(state, row), row.created, row.physical)
                for row in state.files.values()
                if state.uploaded_table.lacks(row)
            ]
            self._seen = state.newest
        with self._lock:
            found += [each for each in self._entries if each.due == _URGENT]
            heapq.heapify(found)
            self._entries = found

    def _due(self, state: State, row: FileRow | None) -> float:
        """The time from which a file is to go."""
        if row is None or self._rules is None:
            return 0.0
        after = state.upload_times.after(row.parsed.sg, self._rules)
        if not after:
            return 0.0
        # A merged file is as old as what it is made of, which goes out of sight for it.
        return self._engine.times.seconds(state.compacted_table.finals.news_of(row)) + after

    def _add(self, entry: _Entry) -> None:
        with self._lock:
            heapq.heappush(self._entries, entry)

    def _forget(self, physical: str) -> int:
        with self._lock:
            self._urgent.discard(physical)
            return self._under_way.pop(physical)
