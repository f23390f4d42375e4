"""Which files in a sender's `data/` are verified, so that none is ever hashed twice.

`verified.log`, version 1, JSON lines: `{"put": {...}}` when a file is in place, `{"drop": path}`
when it has left. A line follows the rename of its file, and is on the disk before anybody is told,
so a file without a line was verified too but never acknowledged: `open` reports it as stray. A
line counts only while inode, size and mtime of the file are those that were recorded; a folder
that was copied or restored has others, and is hashed afresh.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from receiver.datadirs.disks import disk_room
from receiver.load.folder import json_lines

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from common.durable import Tree

__all__ = ["Staged", "Verified"]

_SLACK_LINES = 1000


class Verified(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that is whole and verified.

    Attributes:
        path: at the sender; of a resource, the resource's own.
        size: bytes.
        md5: 32 hex digits, computed here.
        tail: digest of the last 64 KiB, as in a plan.
        inode: of the file in `data/`.
        mtime_ns: of it.
        at: when it was verified, seconds since the epoch.
        single: id of the task of one file that this is, None if it waits for a task.
        scope: of the token, for such a task.
        token: its id.
        commit: the newest one when it began to come; 0 where that was not noted.
    """

    path: str
    size: int
    md5: str
    tail: str
    inode: int
    mtime_ns: int
    at: float
    single: str | None = None
    scope: list[str] = []
    token: str | None = None
    commit: int = 0

    def is_still(self, found: os.stat_result | None) -> bool:
        """Whether what lies there now is what was verified."""
        return found is not None and (found.st_size, found.st_ino, found.st_mtime_ns) == (
            self.size,
            self.inode,
            self.mtime_ns,
        )


class _Line(msgspec.Struct, omit_defaults=True):
    v: int = 1
    put: Verified | None = None
    drop: str | None = None


class Staged:
    """The verified files of one sender. All calls are safe from any thread."""

    def __init__(self, tree: Tree, log: str, data: str) -> None:
        self._tree = tree
        self._log = log
        self._data = data
        self._records: dict[str, Verified] = {}
        self._bytes = self._allocated = 0
        self._lines = 0
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """What all verified files take."""
        return self._bytes

    @property
    def allocated(self) -> int:
        """The same as the disk counts it."""
        return self._allocated

    def all(self) -> list[Verified]:
        """Every record."""
        with self._lock:
            return list(self._records.values())

    def get(self, path: str) -> Verified | None:
        """The record of a path."""
        with self._lock:
            return self._records.get(path)

    def at(self, path: str) -> str:
        """Where the file of a path lies, relative to the data directory."""
        return f"{self._data}/{path}"

    def open(self) -> list[str]:
        """Read the log, drop records without their file; returns files that have no record.

        A damaged line ends the log: what follows is not believed, its files become strays. The
        record of an upload without a task stays though its file is gone: a load may have moved it.
        """
        with self._lock:
            self._records = self._replay(cut=True)
            present = dict(self._present())
            for path, record in list(self._records.items()):
                moved = record.single is not None and path not in present
                if not moved and not record.is_still(present.get(path)):
                    del self._records[path]
            sizes = [each.size for each in self._records.values()]
            self._bytes, self._allocated = sum(sizes), sum(map(disk_room, sizes))
            return [path for path in present if path not in self._records]

    def recorded(self) -> list[Verified]:
        """What the log on the disk says, for those who only look."""
        return list(self._replay(cut=False).values())

    def _replay(self, *, cut: bool) -> dict[str, Verified]:
        records: dict[str, Verified] = {}
        lines = json_lines.read(self._tree, self._log, _Line, cut=cut)
        if cut:
            self._lines = len(lines)
        for line in lines:
            if line.put is not None:
                records[line.put.path] = line.put
            elif line.drop is not None:
                records.pop(line.drop, None)
        return records

    def _present(self) -> Iterable[tuple[str, os.stat_result]]:
        for rel, found in self._tree.files(self._data):
            path = rel[len(self._data) + 1 :]
            if not path.startswith(".uploads/"):
                yield path, found

    def put(self, records: Iterable[Verified]) -> None:
        """Record files that are in place, in one write."""
        self._append([_Line(put=record) for record in records])

    def drop(self, paths: Iterable[str]) -> None:
        """Record that files have left, in one write; the caller has moved or removed them."""
        with self._lock:
            known = [path for path in paths if path in self._records]
        self._append([_Line(drop=path) for path in known])

    def discard(self, paths: Iterable[str]) -> None:
        """Remove files that nobody wants any more, and their records.

        Nearly all ends are of files that are not here: each directory is looked at once.
        """
        gone = list(paths)
        present: dict[str, set[str]] = {}
        for path in gone:
            directory, _, name = self.at(path).rpartition("/")
            if directory not in present:
                listed = self._tree.listing(directory)
                present[directory] = {each for each, _ in listed}
            if name in present[directory]:
                self._tree.unlink(self.at(path), sync=False)
        self.drop(gone)

    def _append(self, lines: list[_Line]) -> None:
        if not lines:
            return
        with self._lock:
            json_lines.append(self._tree, self._log, lines)
            self._lines += len(lines)
            for line in lines:
                self._apply(line)
            if self._lines > 2 * len(self._records) + _SLACK_LINES:
                self._rewrite()

    def _apply(self, line: _Line) -> None:
        path = line.put.path if line.put is not None else line.drop
        assert path is not None
        before = self._records.pop(path, None)
        if before is not None:
            self._bytes -= before.size
            self._allocated -= disk_room(before.size)
        if line.put is not None:
            self._records[path] = line.put
            self._bytes += line.put.size
            self._allocated += disk_room(line.put.size)

    def _rewrite(self) -> None:
        lines = [_Line(put=each) for each in self._records.values()]
        self._tree.write_atomic(self._log, json_lines.dump(lines))
        self._lines = len(lines)
