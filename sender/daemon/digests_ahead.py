"""Digests of large files as they are closed, while their bytes are in memory.

One thread of low priority. Whatever it does not come to is digested as it is sent.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from common.digests import md5, read_blocks
from common.durable import Tree
from common.errors import TsferryError
from common.threads import join_begun
from sender.select.found import stat_identity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sender.select.known_digests import KnownDigests

__all__ = ["DigestsAhead"]

_MOST_WAITING = 1000
_NICE = 10
_TICK_S = 0.05
"""Longer than any clock of a file system stands still: what is written later has another mtime."""


class DigestsAhead:
    """Digests what it is told of, one file after the other.

    Args:
        data_dirs: only what lies beneath them is read.
        smallest: bytes of a file that is worth it; those that travel many in a request are read
            once in any case.
        digests: hears of them.
    """

    def __init__(self, data_dirs: Sequence[Path], smallest: int, digests: KnownDigests) -> None:
        self._data_dirs = tuple(data_dirs)
        self._smallest = smallest
        self._digests = digests
        self._waiting: deque[Path] = deque(maxlen=_MOST_WAITING)
        self._wake = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="digest", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, in the middle of a file, too."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        join_begun(self._thread)

    def closed(self, path: Path) -> None:
        """A file was closed or came under this name; from any thread."""
        with self._wake:
            if path not in self._waiting:
                self._waiting.append(path)
                self._wake.notify_all()

    def _run(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while (path := self._next()) is not None:
            for data_dir in self._data_dirs:
                if path.is_relative_to(data_dir):
                    with suppress(OSError, TsferryError):  # gone, or a link: no round will read it
                        self._digest(data_dir, str(path.relative_to(data_dir)))
                    break

    def _next(self) -> Path | None:
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._stopped)
            return None if self._stopped else self._waiting.popleft()

    def _digest(self, data_dir: Path, rel: str) -> None:
        with Tree(data_dir) as tree:
            fd = tree.open_read(rel)
        try:
            before = os.fstat(fd)
            if before.st_size < self._smallest:
                return
            time.sleep(_TICK_S)
            digest = md5()
            for block in read_blocks(fd):
                if self._stopped:
                    return
                digest.update(block)
            if stat_identity(os.fstat(fd)) == stat_identity(before):
                self._digests.note(data_dir, rel, stat_identity(before), digest.hexdigest())
        finally:
            os.close(fd)
