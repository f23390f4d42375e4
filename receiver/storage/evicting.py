"""Keeps the data directories within their capacity: what is in the object store may leave them.

A file may go if readers see it, or would see it again, as it is in the store with its `.resource`,
its commit that says so is in the store too, and the store says so once more just before. Nothing
else ever goes. First its TsFile goes, then its `.resource`: from the first step on it is *remote*,
whatever is cut off behind it, and the rest goes in its turn.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from common import crash
from common.errors import UnsafePathError
from common.names import FilePath
from receiver.disks import NAMING
from receiver.storage.confirming import read_through
from receiver.storage.incarnation import check_owner
from receiver.storage.object_store import ObjectMissingError
from receiver.storage.stored_files import stands_in
from receiver.storage.uploader import stored_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow, UploadedRow
    from receiver.storage.cache_books import CacheBooks
    from receiver.storage.disk_cache import DiskCache
    from receiver.storage.incarnation import Incarnation
    from receiver.storage.object_store import ObjectStore

__all__ = ["Evictor"]

log = logging.getLogger(__name__)

_BATCH = 64
"""Files that the store is asked for before the first of them goes."""
_TRY_AGAIN = 600.0
"""Seconds until a file is tried again that could not go, or that the store did not have as it was
put there."""


class Evictor:
    """Evicts what has to go, when it is called; one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        owner: Incarnation,
        trees: Callable[[], Sequence[Tree]],
        cache: DiskCache,
        books: CacheBooks,
        *,
        parallel: int = 4,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is looked at before `run_once`.

        Args:
            engine: the metadata engine.
            store: has the objects.
            owner: as whom they were put.
            trees: gives the data directories that count now.
            cache: what lies there.
            books: what is counted there.
            parallel: questions to the store at once.
            monotonic: seconds.
        """
        self._engine = engine
        self._store = store
        self._owner = owner
        self._trees = trees
        self._cache = cache
        self._books = books
        self._parallel = parallel
        self._monotonic = monotonic
        self._doubtful: set[str] = set()
        self._later: dict[str, float] = {}

    @property
    def doubtful(self) -> int:
        """Files that the store should have, and did not have as they were put there."""
        return len(self._doubtful)

    def run_once(self) -> int:
        """Evict what has to go now; returns how many files went.

        Raises:
            FencedError: another receiver has taken over.
            StoreAwayError, StoreRefusedError: of the store.
        """
        self._books.look()
        gone = 0
        size = self._cache.excess()
        if size <= 0:
            return 0
        victims = self._cache.victims(size, self._may_go_now)
        if not victims:
            return 0
        check_owner(self._store, self._owner)
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="evict") as pool:
            for low in range(0, len(victims), _BATCH):
                batch = victims[low : low + _BATCH]
                sure = pool.map(self._confirmed, batch)
                gone += sum(
                    is_sure and self._evict(each) for each, is_sure in zip(batch, sure, strict=True)
                )
        return gone

    # -- what may go -------------------------------------------------------------------------

    def _may_go_now(self, physical: str) -> bool:
        tried = self._later.get(physical)
        if tried is not None and self._monotonic() - tried < _TRY_AGAIN:
            return False
        with self._engine.reading() as state:
            return self._books.may_go(state, physical)

    def _confirmed(self, physical: str) -> bool:
        """Whether the store says now that it has a file.

        Raises:
            StoreAwayError, StoreRefusedError: it says nothing.
        """
        with self._engine.reading() as state:
            row, there = state.files.get(physical), state.uploaded_table.rows.get(physical)
        if row is None or there is None:
            return False
        said = stands_in(self._store, self._engine.uuid, row, there)
        if self._has_bytes(row, there) if said is None else said:
            self._doubtful.discard(physical)
            return True
        if physical not in self._doubtful:
            log.error(
                "the object store does not have a file as it was put there; it stays here",
                extra={"physical": physical},
            )
        self._doubtful.add(physical)
        self._later[physical] = self._monotonic()
        return False

    def _has_bytes(self, row: FileRow, there: UploadedRow) -> bool:
        """Where the store knows no digest its bytes are read: what goes here is the last copy."""
        try:
            return read_through(self._store, self._key(there), row.size, row.md5)
        except ObjectMissingError:
            return False

    def _key(self, there: UploadedRow) -> str:
        return stored_key(self._engine.uuid, there)

    def _evict(self, physical: str) -> bool:
        """Take a file away, unless something has come in between."""
        crash.point("storage.evict.before")
        if not self._cache.begin_evicting(physical):
            return False
        went = False
        try:
            with NAMING:
                with self._engine.reading() as state:
                    may_go = self._books.may_go(state, physical)
                if may_go:
                    self._unlink(FilePath.parse(physical))
                    went = True
        except (OSError, UnsafePathError) as error:  # another user's directory, a link in its place
            log.warning("a file cannot make room", extra={"file": physical, "error": str(error)})
            self._later[physical] = self._monotonic()
        finally:
            if went:
                self._cache.went(physical)
            else:
                self._cache.kept(physical)
        return went

    def _unlink(self, path: FilePath) -> None:
        for tree in self._trees():
            tree.unlink(path.text)
        crash.point("storage.evict.half")
        for tree in self._trees():
            tree.unlink(path.resource.text)
        crash.point("storage.evicted")
