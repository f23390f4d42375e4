"""The data directories as a cache: what leaves them, what comes back, and what stays for now.

Who has the files that leave is told to it: the object store (`receiver.storage.cache.store_place`),
storage nodes (`receiver.placement.node_place`), or both.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final

from common.errors import NotFoundError
from receiver.storage.cache.asked_files import AskedFiles, FetchedFiles
from receiver.storage.cache.cache_books import CacheBooks
from receiver.storage.cache.disk_cache import DiskCache
from receiver.storage.cache.evicting import Evictor
from receiver.storage.cache.file_fetching import FileFetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from common.durable import Tree
    from receiver.config import StorageConfig
    from receiver.eviction_place import EvictionPlace
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.storage.cache.file_fetching import FetchSource

__all__ = ["DiskRoom"]

_BUSY: Final = 10
"""Times as long as it took to look for files that may make room is the rest after it."""
_LOOK: Final = 1.0
"""Seconds between two looks."""


class DiskRoom:
    """The room of the data directories; any thread may call.

    Attributes:
        cache: the books of what lies there.
    """

    def __init__(
        self,
        config: StorageConfig,
        engine: Engine,
        trees: Callable[[], Sequence[Tree]],
        sources: Sequence[FetchSource],
        places: Sequence[EvictionPlace],
        *,
        takes: Callable[[Tree], bool] = lambda _: True,
        hurry: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; nothing leaves before a place is known that has it.

        Args:
            config: how much there is.
            engine: the metadata engine.
            trees: gives the data directories that count now.
            sources: give files back, in the order in which they are asked.
            places: for which files leave; some may come to be known later.
            takes: whether new files may come to one.
            hurry: called when room is needed: `evict` is to be called soon.
        """
        self._trees = trees
        self._hurry = hurry
        self.cache = DiskCache(
            config.capacity, evict_above=config.evict_above, evict_to=config.evict_to
        )
        self._books = CacheBooks(engine, trees, self.cache)
        self._asked = AskedFiles(self._fetch_one, config.parallel)
        self._fetcher = FileFetcher(
            engine,
            sources,
            trees,
            self.cache,
            parallel=config.parallel,
            takes=takes,
            pin_wait=config.pin_wait,
            wake=hurry,
        )
        self._evictor = Evictor(
            engine, places, trees, self.cache, self._books, parallel=config.parallel
        )

    def halt(self) -> None:
        """Begin no more."""
        self._asked.halt()
        self._fetcher.close()
        self._asked.join()

    # -- what is known -----------------------------------------------------------------------

    @property
    def asked(self) -> int:
        """Files that were needed here since the start, each time."""
        return self._fetcher.asked

    @property
    def fetched(self) -> int:
        """Of those, that were fetched for it."""
        return self._fetcher.fetched

    @property
    def doubtful(self) -> int:
        """Files that were to leave, and are not elsewhere as they should be; they stay."""
        return self._evictor.doubtful

    def room(self) -> int | None:
        """Bytes that loaded files may take more, None for any number."""
        if self.cache.capacity is not None:
            self._books.follow()
        return self.cache.room()

    def make_room(self, size: int) -> None:
        """So many bytes were turned away: what may go makes room for them soon."""
        self.cache.want(size)
        self._hurry()

    def came(self, physical: str) -> None:
        """A file lies in a data directory again that nobody asked for here."""
        self._books.count(physical)

    @contextmanager
    def moving(self, physical: str) -> Iterator[bool]:
        """While a file leaves a directory that it was moved from; False if somebody uses it now."""
        if not self.cache.begin_evicting(physical):
            yield False
            return
        try:
            yield True
        finally:
            self.cache.kept(physical)
            self._books.count(physical)

    # -- what leaves -------------------------------------------------------------------------

    def evict(self) -> float:
        """Have leave what has to; for how many seconds to rest then.

        Raises:
            FencedError, StoreAwayError, StoreRefusedError: of a place that is asked.
        """
        began = time.monotonic()
        self._books.look()  # without a place too: what fills up the disk is turned away
        self._evictor.run_once()
        # Among many files that cannot go, those that can are looked for now and then.
        return max(_LOOK, _BUSY * (time.monotonic() - began))

    # -- what comes back ---------------------------------------------------------------------

    def pinned(
        self, rows: Sequence[FileRow], *, used: bool = False
    ) -> AbstractContextManager[None]:
        """Have files in the data directories, while it is entered; see `FileFetcher.pinned`."""
        return self._fetcher.pinned(rows, used=used)

    def pinned_in_turn(
        self, batches: Iterable[Sequence[FileRow]]
    ) -> Generator[AbstractContextManager[None], None, None]:
        """For one batch after the other what has it here; see `FileFetcher.pinned_in_turn`."""
        yield from self._fetcher.pinned_in_turn(batches)

    def come_ahead(self, rows: Sequence[FileRow]) -> None:
        """Have files come that are going to be fetched; see `FileFetcher.come_ahead`."""
        if rows:
            self._fetcher.come_ahead(rows)

    def fetch(self, rows: Sequence[FileRow], timeout: float) -> FetchedFiles:
        """Bring files here for somebody who asks for them by name, in the background.

        Args:
            rows: the files.
            timeout: seconds that this call takes, at most; asked for again, it goes on.
        """
        return self._asked.fetch(rows, timeout)

    def _fetch_one(self, row: FileRow) -> None:
        with self.pinned([row], used=True):
            if not any(tree.exists(row.physical) for tree in self._trees()):
                raise NotFoundError("it is neither here nor anywhere else that gives it")
