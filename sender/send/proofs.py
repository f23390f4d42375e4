"""What this sender says of every series of what it sends, for the receiver to be checked against.

A table is made of the very bytes that travelled, while they are still in the page cache. It is a
second opinion, never a condition: a file whose chunks cannot be read this way is sent as it is.
"""

from __future__ import annotations

import logging
import os
from typing import Final

import xxhash

from common import wire
from common.errors import UnsafePathError
from common.tsfile import Corrupt, read_tail
from common.tsfile.proof import compress
from common.tsfile.proving import series_proofs
from sender.kept.snapshot import Snapshot, SnapshotFile, still_same

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

    def add(self, path: str, snap: SnapshotFile) -> None:
        """Make the table of a file that the receiver has whole."""
        made = self._make(path, snap)
        if made is None:
            self._found.pop(path, None)
            return
        root, packed = made
        length = -(-len(packed) // 3) * 4
        fits = len(packed) <= MAX_TABLE and length <= self._room
        if fits:
            self._room -= length
        self._found[path] = wire.ProofEntry(root=root, table=packed if fits else None)

    def of(self, path: str) -> wire.ProofEntry | None:
        """What goes into the manifest for a file; None where nothing can be said."""
        return self._found.get(path)

    def _make(self, path: str, snap: SnapshotFile) -> tuple[str, bytes] | None:
        try:
            fd = self._snapshot.open(snap)
        except (OSError, UnsafePathError) as error:
            _log.warning("%s: no table of its series: %s", path, error)
            return None
        try:
            data = series_proofs(fd, read_tail(fd)).encode()
            if not still_same(fd, snap):
                return None
        except (OSError, Corrupt) as error:
            _log.warning("%s: no table of its series: %s", path, error)
            return None
        finally:
            os.close(fd)
        return xxhash.xxh3_128_hexdigest(data), compress(data)
