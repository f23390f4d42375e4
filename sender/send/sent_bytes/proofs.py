"""What this sender says of every series of what it sends, for the receiver to be checked against.

A table is made of the very bytes that travel: of a small file while it is in memory to be offered,
of a large one behind it, while it is still in the page cache. It is a second opinion, never a
condition: a file whose chunks cannot be read this way is sent as it is.
"""

from __future__ import annotations

import logging
import os
from typing import Final

import xxhash

from common import wire
from common.errors import UnsafePathError
from common.tsfile import Corrupt, Tail, TsFileOrigin, read_tail
from common.tsfile.proof import compress
from common.tsfile.proving import series_proofs
from sender.kept.loaded_list.snapshot import Snapshot, SnapshotFile, still_same

__all__ = ["Proofs"]

_log = logging.getLogger(__name__)

MAX_TABLE: Final = 1 << 20
"""Bytes of a packed table that still travels: some fifty thousand series."""
MAX_TABLES: Final = 8 << 20
"""Bytes of all tables of a task, as they stand in the end's JSON."""
SHARE: Final = 4
"""At most this part of what the receiver takes in one request."""


class Proofs:
    """The tables of a task's files, packed; those that would be too long are known by their root.

    Args:
        snapshot: that holds the files.
        limits: of the receiver.
    """

    def __init__(self, snapshot: Snapshot, limits: wire.Limits) -> None:
        self._snapshot = snapshot
        self._room = min(MAX_TABLES, limits.max_page_bytes // SHARE)
        self._found: dict[str, wire.ProofEntry] = {}

    def take(self, path: str, source: TsFileOrigin, tail: Tail) -> None:
        """Make the table of a file that has been read."""
        try:
            data = series_proofs(source, tail).encode()
        except (OSError, Corrupt) as error:
            _log.warning("%s: no table of its series: %s", path, error)
            return
        packed = compress(data)
        length = _length(packed)
        fits = len(packed) <= MAX_TABLE and length <= self._room
        if fits:
            self._room -= length
        root = xxhash.xxh3_128_hexdigest(data)
        self._found[path] = wire.ProofEntry(root=root, table=packed if fits else None)

    def add(self, path: str, snap: SnapshotFile) -> None:
        """Make the table of a file that the receiver has whole, if that is not done."""
        if path in self._found:
            return
        try:
            fd = self._snapshot.open(snap)
        except (OSError, UnsafePathError) as error:
            _log.warning("%s: no table of its series: %s", path, error)
            return
        try:
            self.take(path, fd, read_tail(fd))
            if not still_same(fd, snap):
                self.drop(path)
        except OSError as error:
            _log.warning("%s: no table of its series: %s", path, error)
            self.drop(path)
        finally:
            os.close(fd)

    def drop(self, path: str) -> None:
        """Let the table of a file go that is not in the task after all; there may be none."""
        found = self._found.pop(path, None)
        if found is not None and found.table is not None:
            self._room += _length(found.table)

    def of(self, path: str) -> wire.ProofEntry | None:
        """What goes into the manifest for a file; None where nothing can be said."""
        return self._found.get(path)


def _length(packed: bytes) -> int:
    """Bytes of a table in JSON, which takes it as base64."""
    return -(-len(packed) // 3) * 4
