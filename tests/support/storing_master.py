"""A master of two that has an object store beside its nodes: `StoringMaster`.

Its copies are those of a server (`receiver.node`), told when to work in place of their threads.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from common.errors import TsferryError
from receiver import node as server
from receiver.config import LimitsConfig, ReceiverConfig, StorageConfig
from receiver.load.upkeep.verdicts import Verdict
from receiver.metadata.state.table_rows import FileRow
from receiver.operator.centre.loaded_content import LoadedContent
from receiver.operator.damaged_files import DamagedFiles
from receiver.storage.copying import StorageService
from receiver.storage.objects.object_check import CopiesReport
from receiver.storage.objects.object_repair import examine_store, repair_store
from receiver.transfer.said_lists.listing import Listing
from tests.support.two_masters import OneOfTwo, TwoMasters

__all__ = ["StoringMaster"]


class StoringMaster(OneOfTwo):
    """See the module; files leave its disks for the bucket, and for no node.

    Attributes:
        storage: its copies.
    """

    storage: StorageService

    def __init__(self, centre: TwoMasters, name: str) -> None:
        super().__init__(centre, name)
        self.bucket.mkdir(exist_ok=True)

    @property
    def bucket(self) -> Path:
        """The one that both have."""
        return self.centre.root / "bucket"

    def _open(self) -> None:
        super()._open()
        self.fetcher.close()
        config = ReceiverConfig(
            schema_dir=self.world.root / "schema",
            data_dirs=[self.world.data],
            limits=LimitsConfig(min_free_bytes=0),
            storage=StorageConfig(url=self.bucket.as_uri(), lag=0.1, scrub_days=1, parallel=1),
        )
        trees = [self.world._tree]
        disks: Any = SimpleNamespace(
            standing=lambda: trees,
            trees=trees,
            holding=lambda: trees,
            away=list,
            is_draining=lambda _: False,
        )
        load: Any = SimpleNamespace(disks=disks, loader=SimpleNamespace(stir=lambda: None))
        self.damaged = DamagedFiles(
            self.engine,
            disks.standing,
            self.copies.back,
            lambda rows: self.storage.disk_room.pinned(rows),
        )
        storage = server._storage(config, self.engine, load, self.damaged, self.copies)
        assert storage is not None
        self.storage = storage
        self.copies.back.came = storage.disk_room.came
        self.reads = LoadedContent(
            config,
            self.engine,
            disks,
            bring=self.copies.back.bring,
            relay=self.copies.back.relay,
        )
        self.listing = Listing(
            config,
            self.engine,
            disks,
            storage.stored,
            is_copied=self.copies.condition.is_safe,
        )
        self._connects()

    def _connects(self) -> bool:
        """Whether it has found the bucket, and may put something there."""
        try:
            self.storage._ship()
        except TsferryError:
            return False
        return True

    def die(self) -> None:
        self.storage.close()
        self.reads.close()
        super().die()

    # -- what it does by itself --------------------------------------------------------------

    def copy(self) -> None:
        """Bring to the bucket what is not there, and the log behind it."""
        if not self.works:
            return
        try:
            for step in (self.storage._ship, self.storage._upload, self.storage._ship):
                step()
        except TsferryError:
            return

    def evict(self) -> int:
        """Let everything go that may; how many files went."""
        if not self.works or not self._connects():
            return 0
        room = self.storage.disk_room
        room._evictor._later.clear()
        room.cache.capacity = 1
        try:
            return room._evictor.run_once()
        except TsferryError:
            return 0
        finally:
            room.cache.capacity = None

    def scrub(self) -> None:
        """Ask the bucket for everything, in the round that is due."""
        scrubber = self.storage._scrubber if self.works else None
        if scrubber is None:
            return
        with self.engine.reading() as state:
            scrubber._due = list(state.uploaded_table.rows)
        try:
            while scrubber._due:
                scrubber.work()
        except TsferryError:
            scrubber._due = []

    def removes_objects(self) -> None:
        """Of what is forgotten, and of logs that nobody needs."""
        if self.works and self._connects():
            try:
                self.storage._remove()
            except TsferryError:
                return

    # -- what it is asked --------------------------------------------------------------------

    def content(self, physical: str, begin: int, length: int) -> bytes:
        with self.engine.reading() as state:
            row = state.files[physical]
        return self.reads.read(row, begin, length)

    def fetched(self, row: FileRow) -> bytes:
        with self.storage.disk_room.pinned([row]):
            return (self.world.data / row.physical).read_bytes()

    def safe(self, rows: list[FileRow]) -> frozenset[str]:
        """Which files `free` may take at the edge, by their names."""
        with self.engine.reading() as state:
            stored = {row.physical: state.uploaded_table.parts(row) for row in rows}
        return self.listing._standing(rows, stored)

    def judges(self, row: FileRow, why: str) -> None:
        """Somebody has read other bytes here than a file has."""
        self.damaged.judge([Verdict(row.physical, row.md5, why)])

    def fsck_of_the_bucket(self, *, repair: bool) -> CopiesReport | None:
        """As an operator has it checked, or put right; None while it does not answer."""
        if not self.works or not self._connects():
            return None
        store, owner = self.storage._store, self.storage._owner
        assert store is not None
        assert owner is not None
        try:
            found = examine_store(self.engine, store, [self.world._tree], deep=True)
            if repair:
                found = repair_store(self.engine, store, owner, [self.world._tree], found)
        except TsferryError:
            return None
        return found
