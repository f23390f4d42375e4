"""Copies a receiver's directories into a store, once, beside a server that may be running.

It is what a receiver with a store copies by itself, and `restore` makes a receiver of it. The files
come first, all that a look at the directories shows, then the log up to that look: so each state
that can be restored has its files. What is there is not copied again. A long copying ends with
another look, so that what the log says is not as old as its begin.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from common import crash
from common.console.step_progress import StepCounter, untold
from common.errors import BusyError, TsferryError
from common.names import FilePath
from receiver.storage.cache.stored_files import StoredContent
from receiver.storage.log_copies.log_shipping import LogShipper
from receiver.storage.objects.object_places import file_of, is_beside, list_objects
from receiver.storage.stores.confirming import put_confirmed
from receiver.storage.stores.incarnation import own_incarnation
from receiver.storage.stores.object_content import ContentChangedError, FileContent
from receiver.storage.stores.object_keys import data_key, resource_key, stored_key
from receiver.storage.stores.owned_prefix import own_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from common.console.step_progress import ToldProgress
    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["BackedUp", "back_up"]

_LOOKS = 5
"""Times that the directories are looked at, at most."""
_PARALLEL = 4


class BackedUp(NamedTuple):
    """What a backup came to.

    Attributes:
        engine: uuid of the metadata engine.
        copied: files that were copied now.
        bytes: of them.
        files: that are in the backup, of those that readers see.
        commit: the newest one that is in it.
        lacking: files that could not be copied, and why.
    """

    engine: str
    copied: int
    bytes: int
    files: int
    commit: int
    lacking: list[tuple[FileRow, str]]


def back_up(
    store: ObjectStore,
    home: Tree,
    look: Callable[[], AbstractContextManager[tuple[Engine, Sequence[Tree]]]],
    *,
    remote: ObjectStore | None = None,
    given: Callable[[str, int, int], bytes] | None = None,
    told: ToldProgress = untold,
) -> BackedUp:
    """Bring a backup up to now.

    Args:
        store: where it is.
        home: the schema directory, which remembers as whom it puts objects.
        look: opens the engine as it is now, and the data directories.
        remote: the store of the receiver, which has files that are in no data directory.
        given: so many bytes of a file that has left these for storage nodes, from an offset on.
        told: called with each file that is there, or was copied.

    Raises:
        FencedError: the place is another receiver's, or one that was restored from it has gone on.
        ConflictError: the backup is ahead of these directories.
        BusyError: the log was cut under every look.
        StoreAwayError, StoreRefusedError: of the store.
    """
    copied = size = 0
    for number in range(_LOOKS):
        is_last = number == _LOOKS - 1
        with look() as (engine, trees):
            owner = _owner(store, home, engine.uuid)
            with engine.reading() as state:
                rows = [row for row in state.files.values() if row.visible]
                places = {name: stored_key(engine.uuid, row) for name, row in _told(state)}
                released = frozenset(state.released_table.rows) if given else frozenset()
            at_nodes = _AtNodes(released, given)
            copying = _Copying(store, owner, trees, remote, places, at_nodes)
            copying.run(rows, told)
            copied, size = copied + copying.copied, size + copying.bytes
            if (copying.copied or copying.lacking) and not is_last and number < 2:
                continue
            crash.point("storage.backup.files")
            try:
                LogShipper(engine.published, home, store, owner).ship()
            except FileNotFoundError:
                continue  # a checkpoint was made, and what it stands for has gone
            return BackedUp(
                engine=engine.uuid,
                copied=copied,
                bytes=size,
                files=len(rows) - len(copying.lacking),
                commit=engine.newest_commit,
                lacking=copying.lacking,
            )
    raise BusyError(f"{home.path}: its files went under each of {_LOOKS} looks; try again")


def _owner(store: ObjectStore, home: Tree, engine: str) -> Incarnation:
    own_prefix(store, engine)
    return own_incarnation(store, home, engine, is_backup=True)


def _told(state: State) -> list[tuple[str, UploadedRow]]:
    return [(name, row) for name, row in state.uploaded_table.rows.items() if not row.ended]


class _AtNodes(NamedTuple):
    """Files that have left the data directories for storage nodes, and what gives them."""

    released: frozenset[str]
    given: Callable[[str, int, int], bytes] | None

    def content(self, rel: str, size: int, digest: str) -> _Given | None:
        """One of them; None of another file."""
        if self.given is None or rel not in self.released:
            return None
        return _Given(rel, size, digest, self.given)


@dataclass(frozen=True)
class _Given:
    """See `ObjectContent`."""

    rel: str
    size: int
    md5: str
    given: Callable[[str, int, int], bytes]

    def read(self, offset: int, length: int) -> bytes:
        """See `ObjectContent.read`."""
        try:
            found = self.given(self.rel, offset, length)
        except (TsferryError, OSError) as error:
            raise ContentChangedError(f"it is at storage nodes only: {error}") from error
        if len(found) != length:
            raise ContentChangedError(f"{self.rel}: {len(found)} bytes of {length} came")
        return found


class _Copying:
    """One look's files on their way."""

    def __init__(
        self,
        store: ObjectStore,
        owner: Incarnation,
        trees: Sequence[Tree],
        remote: ObjectStore | None,
        places: Mapping[str, str],
        at_nodes: _AtNodes,
    ) -> None:
        self._at_nodes = at_nodes
        self._store = store
        self._owner = owner
        self._trees = trees
        self._remote = remote
        self._places = places
        self.copied = self.bytes = 0
        self.lacking: list[tuple[FileRow, str]] = []

    def run(self, rows: Sequence[FileRow], told: ToldProgress) -> None:
        counter = StepCounter("files", len(rows), sum(row.size for row in rows), told)
        listed = list_objects(self._store, self._owner.engine)
        sizes = {key: each.size for key, each in listed.items()}
        keys = {
            (file_of(key), each.size): key for key, each in listed.items() if not is_beside(key)
        }
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="backup") as pool:
            results = pool.map(lambda row: self._bring(row, sizes, keys), rows)
            for row, came in zip(rows, results, strict=True):
                counter.done(row.size)
                if isinstance(came, str):
                    self.lacking.append((row, came))
                elif came:
                    self.copied, self.bytes = self.copied + 1, self.bytes + row.size

    def _bring(
        self,
        row: FileRow,
        sizes: Mapping[str, int],
        keys: Mapping[tuple[str | None, int], str],
    ) -> bool | str:
        """Copy a file, if it is not there; why it could not be, or whether it was."""
        physical = FilePath.parse(row.physical)
        key = keys.get((row.physical, row.size))
        came = key is None
        try:
            if key is None:
                key = data_key(self._owner.engine, self._owner.number, row.physical)
                about = {"sender": row.sender, "path": row.path, "md5": row.md5}
                there = self._places.get(row.physical)
                self._put(physical.text, there, key, row.size, row.md5, about)
            if row.resource is not None:
                beside = resource_key(key, row.resource.md5)
                if sizes.get(beside) != row.resource.size:
                    self._put_resource(physical, beside, row)
        except ContentChangedError as error:
            return error.message
        return came

    def _put_resource(self, physical: FilePath, key: str, row: FileRow) -> None:
        assert row.resource is not None
        size, digest = row.resource.size, row.resource.md5
        there = self._places.get(row.physical)
        there = None if there is None else resource_key(there, digest)
        try:
            self._put(physical.resource.text, there, key, size, digest, {})
        except ContentChangedError:
            return  # it decides nothing, and may not be in its place yet

    def _put(
        self,
        rel: str,
        there: str | None,
        key: str,
        size: int,
        digest: str,
        about: Mapping[str, str],
    ) -> None:
        fd = self._open(rel)
        if fd is None:
            released = self._at_nodes.content(rel, size, digest)
            if released is not None:
                put_confirmed(self._store, key, released, about)
                return
            if self._remote is None or there is None:
                raise ContentChangedError(f"{rel} is in no data directory")
            put_confirmed(self._store, key, StoredContent(self._remote, there, size, digest), about)
            return
        try:
            put_confirmed(self._store, key, FileContent(fd, size, digest), about)
        finally:
            os.close(fd)

    def _open(self, rel: str) -> int | None:
        for tree in self._trees:
            try:
                return tree.open_read(rel)
            except FileNotFoundError:
                continue
            except (OSError, TsferryError) as error:
                raise ContentChangedError(f"{rel} cannot be read: {error}") from error
        return None
