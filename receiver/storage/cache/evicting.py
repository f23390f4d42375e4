"""Keeps the data directories within their capacity: what is elsewhere may leave them.

A file may go if readers see it, or would see it again, as it is there, and whoever has it says so
once more just before (`EvictionPlace`): the object store, or storage nodes. Nothing else ever goes.
First its TsFile goes, then its `.resource` if that is there too: from the first step on it is
*remote*, whatever is cut off behind it, and the rest goes in its turn.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from common import crash
from common.errors import UnsafePathError
from common.names import FilePath
from receiver.datadirs.disks import NAMING
from receiver.eviction_place import PlaceWord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.durable import Tree
    from receiver.eviction_place import EvictionPlace
    from receiver.metadata.engine import Engine
    from receiver.storage.cache.cache_books import CacheBooks
    from receiver.storage.cache.disk_cache import DiskCache

__all__ = ["Evictor"]

log = logging.getLogger(__name__)

_BATCH: Final = 64
"""Files that are asked for before the first of them goes."""
_TRY_AGAIN: Final = 600.0
"""Seconds until a file is tried again that could not go, or that was not elsewhere as it is."""
_ASK_AGAIN: Final = 30.0
"""Seconds until it is asked for again where nobody answered."""


class Evictor:
    """Evicts what has to go, when it is called; one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        places: Sequence[EvictionPlace],
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
            places: that have files; of several that may have one, the first is asked.
            trees: gives the data directories that count now.
            cache: what lies there.
            books: what is counted there.
            parallel: questions at once.
            monotonic: seconds.
        """
        self._engine = engine
        self._places = places
        self._trees = trees
        self._cache = cache
        self._books = books
        self._parallel = parallel
        self._monotonic = monotonic
        self._doubtful: set[str] = set()
        self._later: dict[str, float] = {}

    @property
    def doubtful(self) -> int:
        """Files that should be elsewhere, and were not there as they are."""
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
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="evict") as pool:
            for place, several in self._by_place(victims):
                place.begin()
                for low in range(0, len(several), _BATCH):
                    batch = several[low : low + _BATCH]
                    said = place.confirmed(batch, pool)
                    gone += sum(
                        self._heard(each, word) and self._evict(each, place)
                        for each, word in zip(batch, said, strict=True)
                    )
        return gone

    # -- what may go -------------------------------------------------------------------------

    def _may_go_now(self, physical: str) -> bool:
        until = self._later.get(physical)
        if until is not None and self._monotonic() < until:
            return False
        return self._place_of(physical) is not None

    def _place_of(self, physical: str) -> EvictionPlace | None:
        with self._engine.reading() as state:
            return next((each for each in self._places if each.may_go(state, physical)), None)

    def _by_place(self, victims: Sequence[str]) -> Iterator[tuple[EvictionPlace, list[str]]]:
        found = [(each, self._place_of(each)) for each in victims]
        for place in self._places:
            several = [each for each, its in found if its is place]
            if several:
                yield place, several

    def _heard(self, physical: str, word: PlaceWord) -> bool:
        """Whether a file may go by what was said of it."""
        if word is PlaceWord.SURE:
            self._doubtful.discard(physical)
            return True
        if word is PlaceWord.UNKNOWN:
            self._later[physical] = self._monotonic() + _ASK_AGAIN
            return False
        if physical not in self._doubtful:
            log.error(
                "a file is not elsewhere as it was said to be; it stays here",
                extra={"physical": physical},
            )
        self._doubtful.add(physical)
        self._later[physical] = self._monotonic() + _TRY_AGAIN
        return False

    # -- what goes ---------------------------------------------------------------------------

    def _evict(self, physical: str, place: EvictionPlace) -> bool:
        """Take a file away, unless something has come in between."""
        crash.point("storage.evict.before")
        if not self._cache.begin_evicting(physical):
            return False
        names = place.leaving(FilePath.parse(physical))
        went = False
        try:
            with NAMING:
                with self._engine.reading() as state:
                    may_go = place.may_leave(state, physical)
                if may_go:
                    self._unlink(names)
                    went = True
        except (OSError, UnsafePathError) as error:  # another user's directory, a link in its place
            log.warning("a file cannot make room", extra={"file": physical, "error": str(error)})
            self._later[physical] = self._monotonic() + _TRY_AGAIN
        finally:
            if went:
                self._cache.went(physical)
            else:
                self._cache.kept(physical)
        if went and len(names) == 1:
            self._books.count(physical)  # its resource is here still
        return went

    def _unlink(self, names: Sequence[str]) -> None:
        for at, name in enumerate(names):
            if at:
                crash.point("storage.evict.half")
            for tree in self._trees():
                tree.unlink(name)
        crash.point("storage.evicted")
