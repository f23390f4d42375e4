"""Brings loaded files back into the data directories, from wherever they are (`FetchSource`).

A file is fetched once, however many wait for it. What a step needs is pinned and brought all at
once, or none of it: who cannot have all lets the rest go while it waits, and waits for so long at
most. A file that was deleted while it came does not stay; neither does a `.resource` that was
replaced. Nothing of this is a commit.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from common import crash
from common.errors import NoSpaceError, NotFoundError, StoppedError, TsferryError
from receiver.datadirs.disks import NAMING, home_of
from receiver.metadata.state.table_rows import FileState
from receiver.storage.cache.cache_books import allocated
from receiver.storage.cache.object_fetching import settle_fetched
from receiver.storage.reading.prefetching import fetched_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.storage.cache.disk_cache import DiskCache

__all__ = ["FetchSource", "FileFetcher"]

log = logging.getLogger(__name__)

_TURNS = 2
"""Batches of files that come while another is worked on."""
_TURN_BYTES = 256 << 20
"""Bytes of them, unless one alone has more."""
_LOOK = 1.0
"""Seconds at most between two looks for room."""


class FetchSource(Protocol):
    """Who gives files back: the object store, or storage nodes."""

    def room_for(self, state: State, row: FileRow) -> int | None:
        """Bytes that a file of it will take, rounded as disks do; None if it has none of it."""

    def bring(self, row: FileRow, tree: Tree, brought: list[tuple[str, str]]) -> None:
        """Have a file lie checked in a data directory, under names that nobody reads.

        Args:
            row: of the file.
            tree: the directory.
            brought: what lies there is added, and the name that it is to have: the TsFile last.
                Nothing where nobody can say that it should have come.

        Raises:
            TsferryError: it does not come from here.
            OSError: of the disk.
        """


class _Due(NamedTuple):
    row: FileRow
    size: int
    sources: tuple[FetchSource, ...]


class _Pinned(AbstractContextManager[None]):
    """See `FileFetcher.pinned`; not a generator, as that takes as long as all else of a pin."""

    __slots__ = ("_cache", "_have", "_names", "_rows", "_used")

    def __init__(
        self,
        have: Callable[[Sequence[FileRow], Sequence[str]], None],
        cache: DiskCache,
        rows: Sequence[FileRow],
        *,
        used: bool,
    ) -> None:
        self._have = have
        self._cache = cache
        self._rows = rows
        self._names = [row.physical for row in rows]
        self._used = used

    def __enter__(self) -> None:
        self._have(self._rows, self._names)
        if self._used:
            for each in self._names:
                self._cache.used(each)

    def __exit__(self, *_: object) -> None:
        self._cache.unpin(self._names)


class FileFetcher:
    """Fetches for whoever asks, from any thread.

    Attributes:
        asked: files that were needed here, each time.
        fetched: of those, that came for it.
    """

    def __init__(
        self,
        engine: Engine,
        sources: Sequence[FetchSource],
        trees: Callable[[], Sequence[Tree]],
        cache: DiskCache,
        *,
        takes: Callable[[Tree], bool] = lambda _: True,
        parallel: int = 4,
        pin_wait: float = 30.0,
        wake: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            sources: that give files, in the order in which they are asked.
            trees: gives the data directories that count now.
            cache: the books of what lies there.
            takes: whether new files may come to a data directory.
            parallel: files on their way at once.
            pin_wait: seconds that a step waits for room, at most.
            wake: called when room is needed.
            monotonic: seconds.
        """
        self._engine = engine
        self._sources = sources
        self._trees = trees
        self._cache = cache
        self._takes = takes
        self._pin_wait = pin_wait
        self._wake = wake
        self._monotonic = monotonic
        self._coming: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self.asked = self.fetched = 0
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="fetch")
        self._parallel = parallel
        self._guess: Future[None] = Future()
        self._guess.set_result(None)
        # One thread: a batch that is needed later takes no room before one that is needed sooner.
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="turns")
        self._guesses = ThreadPoolExecutor(1, thread_name_prefix="guesses")

    def close(self) -> None:
        """Begin no more; what is under way comes to its end."""
        with self._lock:
            self._is_closed = True
        self._turns.shutdown(wait=True, cancel_futures=True)
        self._guesses.shutdown(wait=True, cancel_futures=True)
        self._pool.shutdown(wait=True, cancel_futures=False)

    def pinned(
        self, rows: Sequence[FileRow], *, used: bool = False, ahead: bool = False
    ) -> AbstractContextManager[None]:
        """While it is entered, files lie in the data directories and stay there.

        What is in neither place is left to whoever looks for it there.

        Args:
            rows: the files.
            used: they are asked for by name, and not in a walk over many.
            ahead: nobody needs them yet, so they get room that is free, and nothing goes for them.

        Raises:
            NoSpaceError: there is no room for all of them, now or ever.
            NotFoundError: a file was forgotten, or the store has lost it.
            ContentChangedError: the store has other bytes.
            StoreAwayError, StoreRefusedError: of the store.
        """
        have = self._have_ahead if ahead else self._have_counted
        return _Pinned(have, self._cache, rows, used=used)

    def pinned_in_turn(
        self, batches: Iterable[Sequence[FileRow]]
    ) -> Generator[AbstractContextManager[None], None, None]:
        """For one batch after the other, what has its files here while it is entered (`pinned`).

        While one is worked on, the next come: two at most, and into room that is free. Nothing
        goes for them, and they are pinned only while they come: who waits for room waits for no
        guess. One that does not come so comes when it is entered, or is an error there.
        """
        ahead = fetched_ahead(
            batches,
            self._come,
            lambda rows: sum(row.size for row in rows),
            self._turns,
            most_things=_TURNS,
            most_bytes=_TURN_BYTES,
        )
        with closing(ahead):
            for rows, came in ahead:
                yield self._taken(rows, came)

    def come_ahead(self, rows: Sequence[FileRow]) -> None:
        """Have files come that are going to be asked for, into free room; one such list at a time.

        What does not come so comes, or is an error, when it is asked for.
        """
        with self._lock:
            if self._is_closed or not self._guess.done():
                return
            self._guess = self._guesses.submit(self._come_by_few, rows)

    def _come_by_few(self, rows: Sequence[FileRow]) -> None:
        for begin in range(0, len(rows), self._parallel):
            if self._is_closed:
                return
            try:
                self._come(rows[begin : begin + self._parallel])
            except NoSpaceError:
                return
            except TsferryError as error:
                log.debug("files did not come ahead", extra={"error": str(error)})

    def _come(self, rows: Sequence[FileRow]) -> None:
        with self.pinned(rows, ahead=True):
            pass

    @contextmanager
    def _taken(self, rows: Sequence[FileRow], came: Callable[[], None]) -> Iterator[None]:
        try:
            came()
        except TsferryError as error:
            log.debug("files did not come ahead", extra={"error": str(error)})
        with self.pinned(rows):
            yield

    def _have_counted(self, rows: Sequence[FileRow], names: Sequence[str]) -> None:
        self._have(rows, names)
        with self._lock:
            self.asked += len(rows)

    def _have_ahead(self, rows: Sequence[FileRow], names: Sequence[str]) -> None:
        self._have(rows, names, ahead=True)

    def _have(self, rows: Sequence[FileRow], names: Sequence[str], *, ahead: bool = False) -> None:
        """Pin files, and bring those that are not here."""
        until: float | None = None
        while True:
            self._cache.pin(names)
            try:
                due = self._absent(rows)
                if not due:
                    return
                if until is None:
                    until = self._monotonic() + self._pin_wait
                coming = {each.row.physical: each.size for each in due}
                size = sum(coming.values())
                capacity = self._cache.capacity
                if capacity is not None and size > capacity:
                    raise NoSpaceError(
                        f"{size} bytes are to come at once, and storage.capacity is {capacity}"
                    )
                if self._cache.reserve(coming, wanted=not ahead):
                    try:
                        self._bring_all(due)
                        with self._lock:
                            self.fetched += len(due)
                    finally:
                        self._cache.release(coming)
                    return
            except BaseException:
                self._cache.unpin(names)
                raise
            self._cache.unpin(names)
            if not ahead:
                self._wake()
            left = 0 if ahead else until - self._monotonic()
            if left <= 0:
                raise NoSpaceError(
                    f"{size} bytes are to come, and no room is made for "
                    "them: other files are in use, or nowhere else",
                    retry_after=self._pin_wait,
                )
            self._cache.wait(min(left, _LOOK))

    def _absent(self, rows: Sequence[FileRow]) -> list[_Due]:
        away = rows
        for tree in self._trees():
            away = [row for row in away if not tree.seems_there(row.physical)]
            if not away:  # as mostly: nobody is waited for
                return []
        due: list[_Due] = []
        with self._engine.reading() as state:
            for row in away:
                told = [(each, each.room_for(state, row)) for each in self._sources]
                sizes = {each: size for each, size in told if size is not None}
                if sizes:
                    due.append(_Due(row, max(sizes.values()), tuple(sizes)))
        return due

    def _bring_all(self, due: Sequence[_Due]) -> None:
        """Have all of them come; the first that does not is the error."""
        with self._lock:
            if self._is_closed:
                raise StoppedError("told to stop")
            for each in due:
                physical = each.row.physical
                if physical not in self._coming:
                    self._coming[physical] = self._pool.submit(self._bring, each)
            coming = [self._coming[each.row.physical] for each in due]
        wait(coming)
        for future in coming:
            future.result()

    def _bring(self, due: _Due) -> None:
        try:
            if self._is_closed:  # of many that one step waits for, these have not begun
                raise StoppedError("told to stop")
            self._fetch(due)
        finally:
            with self._lock:
                self._coming.pop(due.row.physical, None)

    def _fetch(self, due: _Due) -> None:
        row, physical = due.row, due.row.physical
        trees = self._trees()
        if any(tree.exists(physical) for tree in trees):
            return  # it came just before this one asked
        tree = self._home(trees, row)
        if tree is None:
            raise NotFoundError(f"{physical}: no data directory is there for it to come to")
        brought: list[tuple[str, str]] = []
        try:
            self._come_from(due, tree, brought)
            if brought:
                self._name(due, tree, brought)
        finally:
            for rel, _ in brought:
                tree.unlink(rel, sync=False)

    def _come_from(self, due: _Due, tree: Tree, brought: list[tuple[str, str]]) -> None:
        """Have a file come from the first source that gives it."""
        failed: TsferryError | None = None
        for source in due.sources:
            try:
                source.bring(due.row, tree, brought)
            except NoSpaceError:
                raise
            except TsferryError as error:
                told = {"file": due.row.physical, "error": str(error)}
                log.info("a file is not fetched from here", extra=told)
                failed = error
            if brought and brought[-1][1] == due.row.physical:
                return
        if failed is not None:
            raise failed

    def _home(self, trees: Sequence[Tree], row: FileRow) -> Tree | None:
        """Where a file is to come to: where it was, unless nothing comes there any more."""
        home = home_of(trees, row)
        if home is not None and self._takes(home):
            return home
        return next(filter(self._takes, trees), home or next(iter(trees), None))

    def _name(self, due: _Due, tree: Tree, brought: list[tuple[str, str]]) -> None:
        """Give what came its names, the TsFile's last: with it all of it is here."""
        physical = due.row.physical
        tree.make_dirs(physical.rpartition("/")[0])
        with NAMING:
            self._check_wanted(due)
            with self._engine.reading() as state:
                now = state.files[physical].resource
            for rel, target in brought:
                if target != physical and (now != due.row.resource or tree.exists(target)):
                    continue  # another one was told of, and is there or comes by itself
                tree.rename(rel, target, sync=False)
                crash.point("storage.fetch.named")
            tree.sync_dir(physical.rpartition("/")[0])
            settle_fetched(tree)
        self._cache.came(physical, allocated(self._trees(), physical))
        try:
            self._check_wanted(due)
        except NotFoundError:
            # Deleted between the two looks: whoever removes its bytes may have been here before.
            tree.unlink(f"{physical}.resource", sync=False)
            tree.unlink(physical)
            self._cache.went(physical)
            raise
        crash.point("storage.fetched")

    def _check_wanted(self, due: _Due) -> None:
        """See that a file was not deleted since it was asked for.

        Raises:
            NotFoundError: it was.
        """
        with self._engine.reading() as state:
            row = state.files.get(due.row.physical)
        if row is None or (
            row.state is FileState.DELETED and due.row.state is not FileState.DELETED
        ):
            raise NotFoundError(f"{due.row.physical} was deleted meanwhile")
