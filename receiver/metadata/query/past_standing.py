"""Where files stood at a time: their names and looks as they were, from today's rows and the log.

What a file's rank is made of changes when it is retired, comes back, or loses the name that it was
loaded under. Readers of the past rank by what was true then: a file that was on its sender's list
is not retired for having ended since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from receiver.metadata.model import records
from receiver.metadata.state.packed_file import whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from receiver.metadata.model.records import Commit, Op
    from receiver.metadata.query.row_source import Answering
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["PastStanding"]


class PastStanding:
    """Follows the log behind a time, and tells how each file stood at it."""

    def __init__(self, engine: Answering, at: int) -> None:
        """Begin at a commit; see `follow`."""
        self._engine, self._at = engine, at
        self._first: dict[str, tuple[Op, int]] = {}
        self._renamed: set[str] = set()
        self._begun: dict[str, set[int]] = {}
        self._known: dict[str, _Standing] | None = None

    def follow(self, commit: Commit) -> None:
        """Take in a commit that came after the time; the log's order."""
        for op in commit.ops:
            if isinstance(op, records.ListBegun):
                self._begun.setdefault(op.sender, set()).add(op.look)
            if isinstance(op, _Moving) or (isinstance(op, records.FileNamed) and op.first_look):
                self._first.setdefault(op.physical, (op, commit.ts))
                if isinstance(op, _Renaming) and op.first_look:
                    self._renamed.add(op.physical)

    @property
    def moved(self) -> Collection[str]:
        """The files that it tells something of by their physical paths."""
        return self._first.keys()

    @property
    def begun(self) -> Mapping[str, Collection[int]]:
        """Of each sender whose list has begun anew since: the looks that its files count from."""
        return self._begun

    def of(self, row: FileRow) -> FileRow:
        """A file's row with its names, looks and end as they were.

        Of what changed before the kept history, and was changed once more since, the commit that
        loaded the file stands for its first look, and the begin of the history for its last.
        """
        if row.first_look and row.first_look in self._begun.get(row.sender, ()):
            known = self._history.get(row.physical, _Standing())
            row = msgspec.structs.replace(
                whole(row), first_look=known.first, closed_look=known.closed
            )
        first = self._first.get(row.physical)
        if first is None:
            return row
        op, ts = first
        if row.physical in self._renamed:
            row = self._history.get(row.physical, _Standing()).named(row, op)
        if isinstance(op, records.FileReturned):
            last = self._history.get(row.physical, _Standing()).last
            return msgspec.structs.replace(
                whole(row), retired=True, last_look=last or self._oldest - 1
            )
        if isinstance(op, records.FileDeleted):  # one that came back since counts as retired
            was = row.retired and row.last_look != ts - 1
            return row if was else msgspec.structs.replace(whole(row), retired=False, last_look=0)
        if isinstance(op, records.FileUndeleted):
            return row
        return msgspec.structs.replace(whole(row), retired=False, last_look=0)

    @property
    def _oldest(self) -> int:
        return self._engine.oldest_answerable

    @property
    def _history(self) -> Mapping[str, _Standing]:
        """What the kept history says of the files that came back, or were renamed, since.

        Of all files, if a list has begun anew since.
        """
        if self._known is None:
            wanted = self._renamed | {
                physical
                for physical, (op, _) in self._first.items()
                if isinstance(op, records.FileReturned)
            }
            self._known = {}
            for commit in self._until() if wanted or self._begun else ():
                for op in commit.ops:
                    if isinstance(op, records.ListBegun):
                        self._begin(op)
                    elif isinstance(op, _Told) and (self._begun or op.physical in wanted):
                        known = self._known.get(op.physical, _Standing())
                        self._known[op.physical] = known.behind(op, commit.ts)
        return self._known

    def _begin(self, op: records.ListBegun) -> None:
        assert self._known is not None
        for physical, known in self._known.items():
            if known.sender == op.sender and not known.last:
                anew = msgspec.structs.replace(known, first=op.look, closed=op.look)
                self._known[physical] = anew

    def _until(self) -> Iterator[Commit]:
        for commit in self._engine.log_since(self._oldest):
            if commit.ts > self._at:
                return
            yield commit


_Renaming = records.FileReturned | records.FileUnnamed | records.FileNamed
_Ending = records.FileRetired | records.FileDeleted | records.FileUndeleted
_Moving = records.FileReturned | records.FileUnnamed | _Ending
_Told = _Renaming | records.FileLoaded | records.FileRetired


class _Standing(msgspec.Struct, frozen=True):
    """What is known of a file's standing: its paths, looks (0 for unknown), last look, sender."""

    paths: tuple[str, ...] = ()
    first: int = 0
    closed: int = 0
    last: int = 0
    sender: str = ""

    def behind(self, op: Op, ts: int) -> _Standing:
        """What is known behind an operation."""
        if isinstance(op, records.FileLoaded):
            return _Standing((op.path,), op.first_look, op.closed_look, sender=op.sender)
        if isinstance(op, records.FileNamed):
            return self._seen(op.first_look, op.among(self.paths))
        if isinstance(op, records.FileRetired):
            return msgspec.structs.replace(self, last=op.last_look or ts - 1)
        if isinstance(op, records.FileReturned):
            paths = (op.path,) if op.path else self.paths[:1]
            return self._seen(op.first_look, paths)
        assert isinstance(op, records.FileUnnamed)
        return self._seen(op.first_look, tuple(each for each in self.paths if each != op.path))

    def named(self, row: FileRow, op: Op) -> FileRow:
        """A row with these names and first looks; `op` is the first that changed it since."""
        paths = self.paths
        if not paths and isinstance(op, records.FileUnnamed | records.FileNamed):
            others = tuple(each for each in row.paths if each != op.path)
            paths = (op.path, *others) if isinstance(op, records.FileUnnamed) else others
        path, *names = paths or row.paths
        return msgspec.structs.replace(
            whole(row),
            path=path,
            names=tuple(names),
            first_look=self.first,
            closed_look=self.closed,
        )

    def _seen(self, look: int, paths: tuple[str, ...]) -> _Standing:
        first, closed = (look, look) if look else (self.first, self.closed)
        return _Standing(paths, first, closed, sender=self.sender)
