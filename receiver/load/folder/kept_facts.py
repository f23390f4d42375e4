"""What was read of verified files as they came, until they are loaded: in memory, within a bound.

The oldest goes where there is no more room. Whoever finds nothing here reads the file once more.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from receiver.load.folder.staged import Verified

__all__ = ["KeptFacts"]

_LIMIT: Final = 32 << 20
_OVERHEAD: Final = 400
"""Bytes that an entry takes beside its data, about."""


class KeptFacts:
    """Facts, in whatever form, of the files of all senders. All calls are safe from any thread."""

    def __init__(self, limit: int = _LIMIT) -> None:
        """Keep nothing yet.

        Args:
            limit: bytes.
        """
        self._limit = limit
        self._bytes = 0
        self._kept: dict[tuple[str, str], tuple[Verified, bytes]] = {}
        self._lock = threading.Lock()

    def put(self, sender: str, record: Verified, facts: bytes) -> None:
        """Keep what was read of a file.

        Args:
            sender: its uuid.
            record: of the file.
            facts: what was read.
        """
        with self._lock:
            self._drop((sender, record.path))
            self._kept[sender, record.path] = (record, facts)
            self._bytes += len(facts) + _OVERHEAD
            while self._bytes > self._limit:
                self._drop(next(iter(self._kept)))

    def take(self, sender: str, record: Verified) -> bytes | None:
        """What was read of that very file, which is not kept any longer; None: it is not known."""
        with self._lock:
            found = self._drop((sender, record.path))
        return found[1] if found is not None and found[0] == record else None

    def _drop(self, key: tuple[str, str]) -> tuple[Verified, bytes] | None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._bytes -= len(found[1]) + _OVERHEAD
        return found
