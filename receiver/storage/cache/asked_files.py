"""Files that somebody asks for by name: brought in the background, and asked for again goes on."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple

from common.errors import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.metadata.state.table_rows import FileRow

__all__ = ["AskedFiles", "FetchedFiles"]


class FetchedFiles(NamedTuple):
    """What became of files that were asked for.

    Attributes:
        here: physical names of those that lie in a data directory.
        coming: of those that are on their way.
        failed: of the others, each with the reason.
    """

    here: list[str]
    coming: list[str]
    failed: list[tuple[str, str]]


class AskedFiles:
    """Brings them, so many at once; any thread may ask."""

    def __init__(self, bring: Callable[[FileRow], None], parallel: int) -> None:
        """Prepare.

        Args:
            bring: has a file in a data directory, or raises.
            parallel: files at once.
        """
        self._bring = bring
        self._lock = threading.Lock()
        self._asked: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="asked for")
        self._is_closed = False

    def halt(self) -> None:
        """Begin no more."""
        with self._lock:
            self._is_closed = True
            self._pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown(wait=True)

    def fetch(self, rows: Sequence[FileRow], timeout: float) -> FetchedFiles:
        """See `DiskRoom.fetch`.

        Raises:
            StoppedError: it was told to end.
        """
        under_way: dict[str, Future[None]] = {}
        with self._lock:
            if self._is_closed:
                raise StoppedError("told to stop")
            for row in rows:
                if row.physical not in self._asked:
                    self._asked[row.physical] = self._pool.submit(self._bring, row)
                under_way[row.physical] = self._asked[row.physical]
        done = wait(under_way.values(), timeout).done
        found = FetchedFiles([], [], [])
        for physical, future in under_way.items():
            if future not in done:
                found.coming.append(physical)
                continue
            with self._lock:
                if self._asked.get(physical) is future:
                    del self._asked[physical]
            if future.cancelled():
                found.failed.append((physical, "the receiver stops"))
                continue
            error = future.exception()
            if error is None:
                found.here.append(physical)
            else:
                found.failed.append((physical, str(error)))
        return found
