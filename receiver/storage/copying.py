"""The copies of a running receiver: a thread for files, one for the log, one for what is to go.

A store that is away, or refuses, holds up nothing but the copies: it is tried again, and what is in
the way is shown. Who has been replaced by another receiver stops for good.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from common.durable import Closing, Tree
from common.errors import DamagedError, TsferryError
from common.network.bandwidth import Bandwidth
from receiver.metadata.model.errors import HistoryGoneError
from receiver.storage.cache.disk_room import DiskRoom
from receiver.storage.cache.object_fetching import sweep_fetched
from receiver.storage.cache.store_place import ReachedStore, StorePlace, StoreSource
from receiver.storage.cache.stored_files import stands_in
from receiver.storage.copy_jobs import CopyJobs
from receiver.storage.log_copies.log_removal import LogRemover
from receiver.storage.log_copies.log_succession import claim_log
from receiver.storage.objects.object_removal import ObjectRemover
from receiver.storage.objects.read_objects import ReadObjects
from receiver.storage.objects.scrubbing import Scrubber
from receiver.storage.stores.incarnation import has_been_put
from receiver.storage.stores.object_keys import stored_key
from receiver.storage.stores.object_store import StoreAwayError, StoreRefusedError
from receiver.storage.stores.owned_prefix import check_prefix, own_prefix
from receiver.storage.stores.store_opening import StoreOptions, open_store
from receiver.storage.stores.store_trouble import StoreTrouble
from receiver.storage.uploading.digest_backlog import DigestBacklog
from receiver.storage.uploading.uploader import Uploader, UploadProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from receiver.config import StorageConfig
    from receiver.eviction_place import EvictionPlace
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.storage.cache.file_fetching import FetchSource
    from receiver.storage.log_copies.log_shipping import LogShipper
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore
    from receiver.storage.tree.tree_removal import TreeRemover
    from receiver.storage.tree.tree_shipping import TreeShipper
    from receiver.storage.uploading.pulled_files import PulledFiles

__all__ = ["StorageProgress", "StorageService", "store_of"]

log = logging.getLogger(__name__)

_FILES, _LOG, _REMOVAL, _ROOM = "file copies", "log copies", "removal of copies", "room"
_TREE, _SCRUB = "the tree of files", "scrub"
_LOOK = 1.0
"""Seconds between two looks for files that are to be uploaded."""
_BACKLOG = 0.2
"""Seconds of these in which digests are made of what was uploaded without."""
_REMOVE = 600.0
"""Seconds between two looks for objects that are to go."""
_REFUSED = 3600.0
"""Seconds until removing is tried again where the store refused it."""


def store_of(config: StorageConfig) -> ObjectStore:
    """The store of a configuration that has one.

    Raises:
        ConfigError: its URL means none, or what it needs is not installed.
        StoreRefusedError: there is no such directory, or no region is known.
    """
    assert config.url is not None
    options = StoreOptions(
        endpoint=config.endpoint,
        region=config.region,
        profile=config.profile,
        path_style=config.path_style,
        parallel=config.parallel,
        encryption=config.encryption,
        kms_key=config.kms_key,
    )
    return open_store(config.url, options)


class StorageProgress(NamedTuple):
    """How far the copies are.

    Attributes:
        files: how far those of files are.
        incarnation: as whom they are put; 0 while the store was not reached yet.
        shipped: the newest commit whose log is in the store, 0 for none.
        behind: the oldest commit whose log is not, 0 for none.
        requests: sent to the store since the start, by kind.
        ended: files that are forgotten, and whose objects are still there.
        staying: why objects stay that should have gone, None if none does.
        trouble: what is in the way, None if nothing is.
        is_fenced: another receiver has taken over, for good.
        cached_files: that lie in the data directories, where their capacity is limited.
        cached_bytes: allocated for them.
        tree: the newest commit that the tree in the store has, 0 for none.
        asked: files that were needed here since the start, each time.
        fetched: of those, that came from the store for it.
    """

    files: UploadProgress
    incarnation: int = 0
    shipped: int = 0
    behind: int = 0
    requests: Mapping[str, int] = MappingProxyType({})
    ended: int = 0
    staying: str | None = None
    trouble: StoreTrouble | None = None
    is_fenced: bool = False
    cached_files: int = 0
    cached_bytes: int = 0
    tree: int = 0
    asked: int = 0
    fetched: int = 0


class StorageService(Closing):
    """Copies in the background, from `start` to `close`."""

    def __init__(
        self,
        config: StorageConfig,
        engine: Engine,
        schema_dir: Tree,
        trees: Callable[[], Sequence[Tree]],
        *,
        takes: Callable[[Tree], bool] = lambda _: True,
        shipped: Callable[[], None] = lambda: None,
        found_bad: Callable[[str, str, str], object] = lambda physical, digest, why: None,
        nodes: Sequence[FetchSource] = (),
        nodes_at_last: Sequence[FetchSource] = (),
        pulled: PulledFiles | None = None,
    ) -> None:
        """Prepare; the store is not spoken to before `start`.

        Args:
            config: with a URL.
            engine: the metadata engine.
            schema_dir: its directory; closed with this.
            trees: gives the data directories that count now.
            takes: whether new files may come to one.
            shipped: called when more of the log is in the store.
            found_bad: see `Uploader`.
            nodes: storage nodes, which are asked for files before the store is.
            nodes_at_last: those that are asked behind it, for what it does not give.
            pulled: gives files that lie at them alone, to be uploaded.
        """
        self._config = config
        self._engine = engine
        self._home = schema_dir
        self._trees = trees
        self._takes = takes
        self._heard = shipped
        self._found_bad = found_bad
        self._pulled = pulled
        self._jobs = CopyJobs((_FILES, _LOG, _REMOVAL, _ROOM, _TREE))
        self._store: ObjectStore | None = None
        self._uploader: Uploader | None = None
        self._backlog: DigestBacklog | None = None
        self._scrubber: Scrubber | None = None
        self._places: list[EvictionPlace] = []
        self._of_store = ReachedStore(self._why_away, config.lag)
        self.disk_room = DiskRoom(
            config,
            engine,
            trees,
            [*nodes, self._of_store, *nodes_at_last],
            self._places,
            takes=takes,
            hurry=lambda: self._jobs.hurry(_ROOM),
        )
        self._shipper: LogShipper | None = None
        self._removers: tuple[ObjectRemover, LogRemover] | None = None
        self._owner: Incarnation | None = None
        self._tree: TreeShipper | None = None
        self._tree_remover: TreeRemover | None = None
        self._staying: str | None = None
        self._bandwidth = Bandwidth(config.bandwidth_limit, sleep=self._jobs.stop.wait)
        self._incarnation = 0
        self._read_objects = ReadObjects()

    def start(self) -> None:
        """Start the threads; whoever calls holds the engine's lock."""
        for tree in self._trees():
            sweep_fetched(tree)
        jobs = {_LOG: self._ship, _FILES: self._upload, _REMOVAL: self._remove}
        if self._config.capacity is not None:
            jobs[_ROOM] = self._evict
        if self._config.tree:
            jobs[_TREE] = self._ship_tree
        self._jobs.start(jobs)

    def close(self) -> None:
        """Stop; what is under way is gone on with at the next start."""
        self._jobs.halt()
        if self._uploader is not None:
            self._uploader.close()
        self.disk_room.halt()
        self._jobs.join()
        if self._store is not None:
            self._store.close()
        self._home.close()

    def hurry(self, physicals: Sequence[str] = ()) -> None:
        """Go on now, if nothing is in the way, with these files first: somebody waits for it."""
        uploader = self._uploader
        if physicals and uploader is not None:
            uploader.first(physicals)
        self._jobs.hurry(_FILES, _LOG)

    def shipped(self) -> int:
        """The newest commit whose log is in the store as ours, 0 for none."""
        newest = None if self._shipper is None else self._shipper.newest
        is_ours = newest is not None and newest.incarnation == self._incarnation
        return newest.ts if newest is not None and is_ours else 0

    def progress(self) -> StorageProgress:
        """How far the copies are."""
        uploader, room = self._uploader, self.disk_room
        shipped = self.shipped()
        with self._engine.reading() as state:
            ended = len(state.uploaded_table.ended)
        return StorageProgress(
            files=UploadProgress() if uploader is None else uploader.progress(),
            incarnation=self._incarnation,
            shipped=shipped,
            behind=self._behind(shipped),
            requests={} if self._store is None else dict(self._store.requests),
            ended=ended,
            staying=self._staying,
            trouble=self.trouble(),
            is_fenced=self._jobs.is_fenced,
            cached_files=room.cache.files,
            cached_bytes=room.cache.usage,
            tree=0 if self._tree is None else self._tree.reaches,
            asked=room.asked,
            fetched=room.fetched,
        )

    def _behind(self, shipped: int) -> int:
        if self._engine.newest_commit == shipped:
            return 0
        try:
            return next(iter(self._engine.log_since(shipped))).ts
        except (StopIteration, HistoryGoneError):
            return shipped

    @property
    def is_reached(self) -> bool:
        """Whether the store answered in this life, is the one that files were put in, and does."""
        return self._incarnation > 0 and self.trouble() is None

    def trouble(self) -> StoreTrouble | None:
        """What is in the way of the copies, None if nothing is."""
        return self._jobs.trouble()

    def stored(self, rows: Sequence[FileRow]) -> frozenset[str]:
        """Ask the store which of these files it has, whole and with their resources.

        Where it tells no digests the bytes are read, as many as one question may cost.

        Returns:
            their physical names; none while the store does not answer.
        """
        store = self._store
        if store is None or self._jobs.is_fenced or not rows:
            return frozenset()
        with self._engine.reading() as state:
            table = state.uploaded_table.rows
            asked = [(row, table[row.physical]) for row in rows if row.physical in table]
        try:
            with ThreadPoolExecutor(self._config.parallel, thread_name_prefix="asking") as pool:
                found = pool.map(lambda each: stands_in(store, self._engine.uuid, *each), asked)
                said = dict(zip((row.physical for row, _ in asked), found, strict=True))
                untold = [
                    (row, stored_key(self._engine.uuid, there))
                    for row, there in asked
                    if said[row.physical] is None
                ]
                whole = self._read_objects.whole(store, untold, pool)
        except TsferryError as error:
            log.warning("the object store cannot be asked", extra={"error": str(error)})
            return frozenset()
        return frozenset(whole | {each for each, stands in said.items() if stands})

    def _why_away(self) -> str:
        trouble = self.trouble()
        said = "it is being asked" if trouble is None else trouble.text
        return f"it is in {self._config.url}, and the store was not reached yet: {said}"

    def _evict(self) -> float:
        pause = self.disk_room.evict()
        doubtful = self.disk_room.doubtful
        said = f"{doubtful} files are not in the store as they were put there; they stay here"
        self._jobs.tell_of("doubtful", _damaged(said) if doubtful else None)
        return pause

    def _ship(self) -> float:
        if self._shipper is None:
            self._connect()
        assert self._shipper is not None
        if self._shipper.ship():
            self._heard()
        return self._config.lag / 2

    def _upload(self) -> float:
        if self._uploader is not None and self._uploader.run_once() and self._config.before_ack:
            self._jobs.hurry(_LOG)
        if self._backlog is not None:
            self._backlog.work(_BACKLOG)
        if self._scrubber is not None:
            self._scrubber.work()
            found = self._scrubber.problem
            self._jobs.tell_of(_SCRUB, None if found is None else _damaged(found))
        return min(_LOOK, self._config.lag)

    def _remove(self) -> float:
        """What the store refuses here is in nobody's way: it costs room, and is shown."""
        if self._removers is None:
            return min(_LOOK, self._config.lag)
        files, logs = self._removers
        try:
            files.run_once()
            files.abandon_attempts()
            logs.run_once()
            if self._tree_remover is not None:
                self._tree_remover.run_once()
        except StoreAwayError:
            return max(_REMOVE, self._config.lag)  # the copies tell of it
        except (StoreRefusedError, DamagedError) as error:
            if self._staying != error.message:
                log.warning("objects stay in the store", extra={"error": error.message})
            self._staying = error.message
            return _REFUSED
        self._staying = files.problem
        return _REMOVE

    def _ship_tree(self) -> float:
        if self._owner is None or self._store is None:
            return min(_LOOK, self._config.tree_every)
        if self._tree is None:
            self._tree = self._find_tree(self._store, self._owner)
        return 0.0 if self._tree.ship() else self._config.tree_every

    def _find_tree(self, store: ObjectStore, owner: Incarnation) -> TreeShipper:
        # Here alone: pyarrow takes its time and its memory, and most receivers keep no tree.
        from receiver.storage.tree.tree_removal import TreeRemover
        from receiver.storage.tree.tree_shipping import TreeShipper
        from receiver.storage.tree.unnamed_tables import UnnamedTables

        unnamed = UnnamedTables(self._home, owner, self._engine.clock.cautious)
        tree = TreeShipper(
            self._engine,
            store,
            owner,
            self._trees,
            unnamed=unnamed,
            shipped=self.shipped,
            go_on=self._jobs.go_on,
        )
        self._tree_remover = TreeRemover(
            self._engine,
            store,
            owner,
            grace=self._config.grace,
            newest=lambda: tree.newest,
            unnamed=unnamed,
            go_on=self._jobs.go_on,
        )
        return tree

    def _connect(self) -> None:
        """Find the store, and out who owns what is in it; by the thread of the log alone."""
        if self._store is None:
            self._store = store_of(self._config)
        uuid = self._engine.uuid
        is_known = has_been_put(self._home, uuid, self._engine.notes)
        (check_prefix if is_known else own_prefix)(self._store, uuid)
        owner, shipper = claim_log(self._engine, self._store, self._home)
        # What may fail is made before anything is said: half a connection is not tried again.
        parts = self._engine, self._store, owner
        scrubber = None
        if days := self._config.scrub_days:
            scrubber = Scrubber(*parts, self._home, self._trees, days=days, pulled=self._pulled)
        uploader = Uploader(
            *parts,
            self._home,
            self._trees,
            rules=None if self._config.before_ack else self._config.upload,
            clock=self._engine.clock,
            parallel=self._config.parallel,
            paced=self._bandwidth.take,
            found_bad=self._found_bad,
            pulled=self._pulled,
        )
        grace, go_on = self._config.grace, self._jobs.go_on
        self._removers = (
            ObjectRemover(*parts, grace=grace, newest=lambda: shipper.newest, go_on=go_on),
            LogRemover(*parts, grace=grace, newest=lambda: shipper.newest, go_on=go_on),
        )
        self._backlog = DigestBacklog(*parts, self._trees)
        self._scrubber, self._uploader = scrubber, uploader
        place = StorePlace(*parts, self.shipped)
        self._of_store.source = StoreSource(self._engine, self._store)
        self._places[:] = [place]
        self._owner, self._shipper = owner, shipper
        self._incarnation = owner.number  # the last: who sees it gets files from the store
        self._jobs.hurry(_FILES)


def _damaged(said: str) -> StoreTrouble:
    return StoreTrouble(said, "objects in the store are lost or damaged", "object-damaged")
