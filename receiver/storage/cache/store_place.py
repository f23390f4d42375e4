"""The object store as the place of files: what may leave the disk for it, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import NotFoundError
from common.names import FilePath
from receiver.datadirs.disks import disk_room
from receiver.eviction_place import PlaceWord
from receiver.metadata.state.table_rows import FileState
from receiver.storage.cache.object_fetching import fetch_beside
from receiver.storage.cache.stored_files import stands_in
from receiver.storage.stores.confirming import read_through
from receiver.storage.stores.incarnation import check_owner
from receiver.storage.stores.object_keys import resource_key, stored_key
from receiver.storage.stores.object_store import ObjectMissingError, StoreAwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Executor

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["ReachedStore", "StorePlace", "StoreSource"]

_STATES = (FileState.LIVE, FileState.RETIRED, FileState.SUPERSEDED, FileState.DELETED)
"""A deleted one too: its object stays longer than its bytes would here, and who wants it back, or
reads an earlier moment, has it from there. Else a small disk is full of nothing else for as long as
`load.keep_deleted`, and takes nothing."""


class StorePlace:
    """See `EvictionPlace`."""

    def __init__(
        self, engine: Engine, store: ObjectStore, owner: Incarnation, shipped: Callable[[], int]
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            store: has the objects.
            owner: as whom they were put.
            shipped: the newest commit whose log is in the store.
        """
        self._engine = engine
        self._store = store
        self._owner = owner
        self._shipped = shipped

    def may_go(self, state: State, physical: str) -> bool:
        """See `EvictionPlace`."""
        row, there = state.files.get(physical), state.uploaded_table.rows.get(physical)
        if row is None or there is None or row.state not in _STATES:
            return False
        stored = state.uploaded_table.parts(row)
        is_whole = stored.file and (row.resource is None or stored.resource)
        return is_whole and there.changed <= self._shipped()

    def may_leave(self, state: State, physical: str) -> bool:
        """See `EvictionPlace`."""
        return self.may_go(state, physical)

    def begin(self) -> None:
        """See `EvictionPlace`."""
        check_owner(self._store, self._owner)

    def confirmed(self, physicals: Sequence[str], pool: Executor) -> Iterable[PlaceWord]:
        """See `EvictionPlace`."""
        return pool.map(self._confirmed, physicals)

    def leaving(self, path: FilePath) -> Sequence[str]:
        """See `EvictionPlace`."""
        return path.text, path.resource.text

    def _confirmed(self, physical: str) -> PlaceWord:
        with self._engine.reading() as state:
            row, there = state.files.get(physical), state.uploaded_table.rows.get(physical)
        if row is None or there is None:
            return PlaceWord.UNKNOWN
        said = stands_in(self._store, self._engine.uuid, row, there)
        stands = self._has_bytes(row, there) if said is None else said
        return PlaceWord.SURE if stands else PlaceWord.DOUBTFUL

    def _has_bytes(self, row: FileRow, there: UploadedRow) -> bool:
        """Where the store knows no digest its bytes are read: what goes here is the last copy."""
        try:
            key = stored_key(self._engine.uuid, there)
            return read_through(self._store, key, row.size, row.md5)
        except ObjectMissingError:
            return False


class StoreSource:
    """See `FetchSource`."""

    def __init__(self, engine: Engine, store: ObjectStore) -> None:
        """Prepare."""
        self._engine = engine
        self._store = store

    def room_for(self, state: State, row: FileRow) -> int | None:
        """See `FetchSource`."""
        return _room_for(state, row)

    def bring(self, row: FileRow, tree: Tree, brought: list[tuple[str, str]]) -> None:
        """See `FetchSource`."""
        path = FilePath.parse(row.physical)
        with self._engine.reading() as state:
            there = state.uploaded_table.rows.get(row.physical)
        if there is None:
            raise NotFoundError(f"{row.physical} was forgotten meanwhile")
        place = stored_key(self._engine.uuid, there)
        resource = row.resource
        if resource is not None and resource.md5 == there.resource:
            key = resource_key(place, resource.md5)
            rel = fetch_beside(self._store, tree, key, resource.size, resource.md5)
            brought.append((rel, path.resource.text))
        rel = fetch_beside(self._store, tree, place, row.size, row.md5)
        brought.append((rel, path.text))


class ReachedStore:
    """See `FetchSource`: the same of a store that may not have answered yet, in this life.

    Attributes:
        source: its files; None before that.
    """

    def __init__(self, why: Callable[[], str], pause: float) -> None:
        """Prepare.

        Args:
            why: says why it has not answered.
            pause: seconds until it may have.
        """
        self.source: StoreSource | None = None
        self._why = why
        self._pause = pause

    def room_for(self, state: State, row: FileRow) -> int | None:
        """See `FetchSource`."""
        return _room_for(state, row)

    def bring(self, row: FileRow, tree: Tree, brought: list[tuple[str, str]]) -> None:
        """See `FetchSource`."""
        if self.source is None:
            raise StoreAwayError(f"{row.physical}: {self._why()}", retry_after=self._pause)
        self.source.bring(row, tree, brought)


def _room_for(state: State, row: FileRow) -> int | None:
    if not state.uploaded_table.parts(row).file:
        return None
    sizes = [row.size]
    if row.resource is not None:
        sizes.append(row.resource.size)
    return sum(map(disk_room, sizes))
