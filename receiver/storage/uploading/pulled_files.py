"""Files that lie at storage nodes alone, read here for as long as it takes to upload them.

Each comes into a data directory under a name that nobody reads, checked by its MD5, and goes from
there again: it takes room only while it is on its way, of what loads leave.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from common.durable import free_bytes
from common.errors import TsferryError
from receiver.datadirs.disks import disk_room
from receiver.storage.stores.object_content import ContentChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.durable import Tree
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["PulledFiles"]


class PulledFiles:
    """Pulls files from nodes; any thread may ask."""

    def __init__(
        self,
        trees: Callable[[], Sequence[Tree]],
        fetch: Callable[[FileRow, Tree], str | None] = lambda row, tree: None,
        *,
        keep_free: int = 0,
        free: Callable[[Tree], int] = lambda tree: free_bytes(tree.path),
    ) -> None:
        """Prepare.

        Args:
            trees: gives the data directories that count now.
            fetch: fetches a file from a node into a directory, checked; where it lies then, None
                where no node gives it.
            keep_free: bytes that stay free in a directory.
            free: bytes that are free in one.
        """
        self._trees = trees
        self._fetch = fetch
        self._keep_free = keep_free
        self._free = free
        self._lock = threading.Lock()
        self._coming = 0

    @contextmanager
    def opened(self, row: FileRow) -> Iterator[int]:
        """A descriptor of a file that is in no data directory, as long as it is needed.

        Raises:
            ContentChangedError: no node gives it now, or there is no room for it.
        """
        with self._room(row) as tree:
            rel = self._fetched(row, tree)
            try:
                fd = tree.open_read(rel)
                try:
                    yield fd
                finally:
                    os.close(fd)
            finally:
                tree.unlink(rel, sync=False)

    @contextmanager
    def _room(self, row: FileRow) -> Iterator[Tree]:
        wanted = disk_room(row.size)
        with self._lock:
            tree = max(self._trees(), key=self._free, default=None)
            if tree is None or self._free(tree) - self._coming - wanted < self._keep_free:
                raise ContentChangedError(
                    f"{row.physical} is in no data directory, and none has room for it while it is "
                    "read from a node"
                )
            self._coming += wanted
        try:
            yield tree
        finally:
            with self._lock:
                self._coming -= wanted

    def _fetched(self, row: FileRow, tree: Tree) -> str:
        try:
            rel = self._fetch(row, tree)
        except (OSError, TsferryError) as error:
            raise ContentChangedError(
                f"{row.physical} is in no data directory, and does not come: {error}"
            ) from error
        if rel is None:
            raise ContentChangedError(
                f"{row.physical} is in no data directory, and no storage node gives it now"
            )
        return rel
