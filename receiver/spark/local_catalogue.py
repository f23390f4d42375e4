"""What the directories of a receiver, or the copies of them in an object store, have loaded."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from receiver.config import ReceiverConfig
from receiver.metadata.clock.clock_record import RECORD
from receiver.metadata.engine import Engine
from receiver.metadata.query.past_files import files_at
from receiver.metadata.state.deletion_rows import DeletionsRow
from receiver.metadata.state.transfer_cuts import TransferCuts
from receiver.open_engine import is_behind, read_current
from receiver.spark.finder import DataFile
from receiver.spark.noted_deletions import NotedDeletions
from receiver.spark.standing_in import StandIn, is_whole_here
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress
from receiver.storage.stores.store_opening import StoreOptions, open_store

if TYPE_CHECKING:
    from receiver.follower.store_view import StoreView
    from receiver.metadata.query.past_files import PastFiles
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

from receiver.spark.catalogue import Catalogue, Loads

__all__ = ["LocalCatalogue", "StoreCatalogue"]
_ASKED_AGAIN: Final = 10.0
"""Seconds from one question to etcd, whether there are newer commits, to the next."""


class LocalCatalogue(Catalogue):
    """Reads the engine's files, beside a server that may be running, without its lock."""

    def __init__(
        self,
        schema_dir: Path,
        kind: str = "all",
        data_dirs: Sequence[str] = (),
        *,
        store: StoreAddress | None = None,
        receiver: ReceiverAddress | None = None,
        config: ReceiverConfig | None = None,
    ) -> None:
        """Open it.

        Args:
            schema_dir: of the receiver.
            kind: which of a database's files.
            data_dirs: to look for files in; where each was loaded into, if left out.
            store: that has files which are not there.
            receiver: that gives what a worker finds in neither.
            config: of the receiver: with that, and with etcd behind it, no old copy is read.

        Raises:
            NotFoundError: there is no engine in the directory.
            DamagedError: the receiver's log is damaged.
            ConflictError: another receiver has committed since, by the same keys of etcd.
        """
        super().__init__(kind, data_dirs, store, receiver)
        self._schema = schema_dir
        self._config = config
        self._asked = -math.inf
        self._seen: Any = None
        self._engine: Engine | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read the engine anew, if its files changed, or should have."""
        seen = self._look()
        if self._engine is not None and seen == self._seen and not self._is_behind():
            return
        if self._config is None:
            engine = Engine.read_only(self._schema)
        else:
            engine, self._asked = read_current(self._config), time.monotonic()
        self.close()
        self._engine, self._seen = engine, seen
        self.uuid, self.times = engine.uuid, engine.times

    def _is_behind(self) -> bool:
        """Whether what was read is old, though its files are the same; asked now and then."""
        if self._config is None or time.monotonic() < self._asked + _ASKED_AGAIN:
            return False
        self._asked = time.monotonic()
        return is_behind(self._config, self.engine)

    def _look(self) -> list[tuple[str, int, int]]:
        # Every commit makes the log longer.
        try:
            there = [each for each in os.scandir(self._schema) if each.name != RECORD]
            found = [(each.name, each.stat()) for each in there]
        except OSError:
            return []
        return sorted((name, stat.st_size, stat.st_ino) for name, stat in found)

    @property
    def engine(self) -> Engine:
        """As its files had it when they were looked at last."""
        assert self._engine is not None
        return self._engine

    @property
    def newest(self) -> int:
        """See `Catalogue`."""
        return self.engine.newest_commit

    @property
    def mark(self) -> object:
        """See `Catalogue`: an engine that is read anew is another one."""
        return self.engine

    def loads(self, at: int, since: int = 0, *, without: frozenset[str] = frozenset()) -> Loads:
        """See `Catalogue`."""
        past = self._past(at, since, None if self._kind == "all" else self._is_wanted)
        with self.engine.reading() as state:
            noted = NotedDeletions(state.deletion_table, past.commit, self._older_of(state))
            cuts = TransferCuts(state.owner_table.moves, past.commit)
            table, released = state.uploaded_table, set(state.released_table.rows)
            rows = chain(past.visible, past.quarantined) if table.rows else ()
            stored = {
                row.physical: table.rows[row.physical] for row in rows if table.parts(row).file
            }
            news = {
                physical: maker.news
                for maker in state.compacted_table.finals.all()
                for physical in maker.became
            }

        def found(row: FileRow) -> DataFile:
            deletions = noted.of(row.author, row.physical, row.closed)
            file = self._committed(
                row.data_dir, row.rank, row.size, row.devices, row.first, row.last
            )
            there = stored.get(row.physical)
            place = self._place(row.physical, row.size, row.md5, there)
            return replace(
                file,
                created=news.get(row.physical, row.created),
                cuts=cuts.of(row),
                deletions=deletions,
                stored=there is not None or row.physical in released,
                place=place,
            )

        visible = (row for row in past.visible if row.physical not in without)
        return self._loads(map(found, visible), map(found, past.quarantined))

    def stand_ins(self, at: int) -> list[StandIn]:
        """See `Catalogue`."""
        with self.engine.reading() as state:
            rows = state.compacted_table.at(min(at, state.newest))
        found: list[StandIn] = []
        for row in rows:
            files = [self._merged(each, each.devices, row.created) for each in row.outputs]
            whole = [each for each in files if each is not None and is_whole_here(each)]
            if len(whole) == len(files):
                found.append(StandIn(tuple(row.inputs), tuple(whole)))
        return found

    @staticmethod
    def _older_of(state: State) -> Callable[[DeletionsRow], frozenset[str]]:
        def older(noted: DeletionsRow) -> frozenset[str]:
            row = state.files.get(noted.physical or "")
            if row is None or noted.form != "mods":
                return frozenset()
            from receiver.points.deleted.deletions import older_in

            return older_in(noted.content, noted.path, row.devices.names())

        return older

    def rows(self, at: int, since: int = 0) -> PastFiles:
        """The same as `loads`, of all kinds and with all that the engine knows.

        Raises:
            HistoryGoneError: `at` is before the kept history.
        """
        return self._past(at, since)

    def _past(self, at: int, since: int, within: Callable[[str], bool] | None = None) -> PastFiles:
        return files_at(self.engine, at, since=since, within=within)

    def _is_wanted(self, directory: str) -> bool:
        return directory.split("/", 1)[0] == self._kind

    def close(self) -> None:
        """See `Catalogue`."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


class StoreCatalogue(LocalCatalogue):
    """Reads the copies of a receiver, which need not be there; up to `storage.lag` behind it."""

    def __init__(
        self,
        store: StoreAddress,
        kind: str = "all",
        data_dirs: Sequence[str] = (),
        *,
        receiver: ReceiverAddress | None = None,
    ) -> None:
        """Open it.

        Args:
            store: that has the copies.
            kind: which of a database's files.
            data_dirs: to look for files in; where each was loaded into, if left out.
            receiver: that gives what a worker finds in neither.

        Raises:
            NotFoundError: nobody has copied anything there.
            DamagedError: nothing there makes a state.
        """
        self._view: StoreView | None = None
        self._address = store
        super().__init__(Path("/"), kind, data_dirs, store=store, receiver=receiver)

    def refresh(self) -> None:
        """Fetch what was copied since."""
        if self._view is None:
            # Only here: what plans by a directory is a new process, mostly, and need not wait.
            from receiver.follower.store_view import StoreView

            there = self._address
            options = StoreOptions(
                endpoint=there.endpoint,
                region=there.region,
                profile=there.profile,
                path_style=there.path_style,
            )
            self._view = StoreView(open_store(there.url, options))
        else:
            self._view.refresh()
        self._engine = engine = self._view.engine
        self.uuid, self.times = engine.uuid, engine.times

    def _past(self, at: int, since: int, within: Callable[[str], bool] | None = None) -> PastFiles:
        if at < self.newest and self._view is not None:
            self._view.fetch_older()
        return super()._past(at, since, within)

    def close(self) -> None:
        """See `Catalogue`."""
        if self._view is not None:
            self._view.close()
