"""Whether a store that tells no digests has bytes as they were put: they are read.

Size and time of an object say nothing of a disk that rotted. What was read counts for a day, so
that a question over many files, asked again and again, reads each of them seldom.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from receiver.storage.stores.confirming import read_through
from receiver.storage.stores.object_store import ObjectMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor

    from receiver.metadata.state.table_rows import FileRow
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["ReadObjects"]

_FRESH = 86400.0
"""Seconds."""
_MOST = 2 << 30
"""Bytes that are read for one question."""
_REMEMBERED = 100_000


class ReadObjects:
    """What was read of a store; any thread may ask."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, most: int = _MOST) -> None:
        self._monotonic, self._most = monotonic, most
        self._read: dict[str, float] = {}
        self._lock = threading.Lock()

    def whole(
        self, store: ObjectStore, asked: Iterable[tuple[FileRow, str]], pool: Executor
    ) -> set[str]:
        """Physical names of the files whose objects have their bytes.

        What does not fit into one question is not among them; the next one reads it.

        Args:
            store: that knows no digest of them.
            asked: files, each with the key of its object.
            pool: reads them.

        Raises:
            StoreAwayError, StoreRefusedError: of the store.
        """
        found: set[str] = set()
        due: list[tuple[FileRow, str]] = []
        left = self._most
        for row, key in asked:
            if self._is_fresh(key):
                found.add(row.physical)
            elif not due or row.size <= left:
                due.append((row, key))
                left -= row.size
        answers = pool.map(lambda each: self._has(store, *each), due)
        found.update(row.physical for (row, _), is_whole in zip(due, answers, strict=True)
                     if is_whole)  # fmt: skip
        return found

    def _is_fresh(self, key: str) -> bool:
        with self._lock:
            read = self._read.get(key)
        return read is not None and self._monotonic() - read < _FRESH

    def _has(self, store: ObjectStore, row: FileRow, key: str) -> bool:
        try:
            is_whole = read_through(store, key, row.size, row.md5)
        except ObjectMissingError:
            return False
        if is_whole:
            with self._lock:
                self._read.pop(key, None)
                self._read[key] = self._monotonic()
                if len(self._read) > _REMEMBERED:
                    del self._read[next(iter(self._read))]
        return is_whole
