"""Brings loaded files into the object store, behind their commits, and says so by commits.

A file counts as uploaded when the store has said of its object what was computed here of the bytes
that went, or, where it knows no digest, when they were read back; and when a commit says so. The
key is the file's for ever (engine, incarnation, physical name), so whoever is cut off anywhere
finds its object there at the next try, or the parts of it, and nothing is put twice. The attempt at
a large one is remembered on the disk before its first byte goes; no other attempt is ever dropped.

Nothing else is kept: what is missing is found from the catalogue at the start, and from its commits
from then on. The oldest goes first.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common import crash
from common.decoders import from_json
from common.digests import md5
from common.errors import StoppedError
from common.names import FilePath
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError, RefusedCommitError
from receiver.metadata.state.table_rows import FileState
from receiver.storage.confirming import put_confirmed
from receiver.storage.incarnation import check_owner
from receiver.storage.object_content import ContentChangedError, FileContent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.storage.incarnation import Incarnation
    from receiver.storage.object_store import Fingerprint, ObjectStore

__all__ = ["UploadProgress", "Uploader", "data_key"]

log = logging.getLogger(__name__)

_ATTEMPTS = "storage/attempts"
_BATCH = 100
"""Files that one commit tells of, at most; fewer if a second has passed."""


def data_key(owner: Incarnation, physical: str) -> str:
    """Of a file's object; its resource is beside it."""
    return f"{owner.engine}/data/{owner.number:08}/{physical}"


class UploadProgress(NamedTuple):
    """How far the store is behind.

    Attributes:
        waiting_files: loaded, and not in the store.
        oldest: commit that loaded the oldest of them, 0 for none.
        uploaded_files: in the store.
        uploaded_bytes: of those.
    """

    waiting_files: int = 0
    oldest: int = 0
    uploaded_files: int = 0
    uploaded_bytes: int = 0


class _Attempt(msgspec.Struct, frozen=True):
    key: str
    ident: str


class Uploader:
    """Uploads what is missing, when it is called; one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        owner: Incarnation,
        home: Tree,
        trees: Callable[[], Sequence[Tree]],
        *,
        paced: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Prepare; nothing is done before `run_once`.

        Args:
            engine: the metadata engine.
            store: where the objects go.
            owner: as whom they are put.
            home: the schema directory, which remembers attempts.
            trees: gives the data directories that count now.
            paced: called with a number of bytes before they go; may wait.
        """
        self._engine = engine
        self._store = store
        self._owner = owner
        self._home = home
        self._trees = trees
        self._paced = paced
        self._waiting: list[tuple[int, str]] = []
        self._seen = -1
        self._stop = threading.Event()

    def progress(self) -> UploadProgress:
        """How far it is."""
        with self._engine.reading() as state:
            table = state.uploaded_table
            waiting = [each for each in self._waiting if each[1] not in table.rows]
            return UploadProgress(
                waiting_files=len(waiting),
                oldest=min(waiting, default=(0, ""))[0],
                uploaded_files=len(table.rows),
                uploaded_bytes=table.bytes,
            )

    def close(self) -> None:
        """Stop before the next part; the next start goes on with it."""
        self._stop.set()

    def run_once(self) -> int:
        """Upload all that is missing now; returns how many files.

        Raises:
            FencedError: another receiver has taken over.
            StoreAwayError, StoreRefusedError: of the store.
            StoppedError: told to stop.
        """
        self._look()
        if not self._waiting:
            return 0
        check_owner(self._store, self._owner)
        done = 0
        while self._waiting:
            if self._stop.is_set():
                raise StoppedError("told to stop")
            _, physical = self._waiting[0]
            with self._engine.reading() as state:
                row = state.files.get(physical)
                there = physical in state.uploaded_table.rows
            if row is not None and not there and self._is_wanted(row):
                done += self._upload(row)
            heapq.heappop(self._waiting)
        return done

    # -- what is missing ---------------------------------------------------------------------

    def _look(self) -> None:
        """Add what was loaded since the last look."""
        newest = self._engine.newest_commit
        if newest == self._seen:
            return
        try:
            if self._seen < 0:
                self._look_at_all()
                return
            for commit in self._engine.log_since(self._seen):
                for op in commit.ops:
                    if isinstance(op, records.FileLoaded | records.FileRestored):
                        heapq.heappush(self._waiting, (commit.ts, op.physical))
                self._seen = commit.ts
        except HistoryGoneError:
            self._look_at_all()

    def _look_at_all(self) -> None:
        with self._engine.reading() as state:
            rows = state.uploaded_table.rows
            self._waiting = [
                (row.created, row.physical)
                for row in state.files.values()
                if row.physical not in rows and self._is_wanted(row)
            ]
            self._seen = state.newest
        heapq.heapify(self._waiting)

    @staticmethod
    def _is_wanted(row: FileRow) -> bool:
        return row.state in (FileState.LIVE, FileState.RETIRED)

    # -- one file ----------------------------------------------------------------------------

    def _upload(self, row: FileRow) -> int:
        key = data_key(self._owner, row.physical)
        physical = FilePath.parse(row.physical)
        about = {"sender": row.sender, "path": row.path, "md5": row.md5}
        with ExitStack() as stack:
            fd = self._open(physical.text)
            if fd is None:
                log.warning("a file is not there to be uploaded", extra={"physical": row.physical})
                return 0
            stack.callback(os.close, fd)
            try:
                if row.resource is not None:
                    self._put_resource(physical, key, row.resource)
                found = self._put(key, FileContent(fd, row.size, row.md5), about)
            except ContentChangedError as error:
                # fsck and verification tell of it; what is in the store is never such a copy.
                log.error(
                    "a file is not what was loaded, and is not uploaded",
                    extra={"physical": row.physical, "error": str(error)},
                )
                return 0
        crash.point("storage.upload.confirmed")
        op = records.FileUploaded(row.physical, key, found.size, dict(found.digests))
        try:
            self._engine.commit([op])
        except RefusedCommitError:
            return 0  # it was forgotten meanwhile; its object is found by what was never committed
        crash.point("storage.upload.committed")
        self._forget_attempt(key)
        return 1

    def _put_resource(self, physical: FilePath, key: str, known: records.ResourceMeta) -> None:
        fd = self._open(physical.resource.text)
        if fd is None:
            raise ContentChangedError(f"{physical.resource.text} is not there")
        try:
            self._put(f"{key}.{known.md5}.resource", FileContent(fd, known.size, known.md5), {})
        finally:
            os.close(fd)

    def _open(self, rel: str) -> int | None:
        for tree in self._trees():
            try:
                return tree.open_read(rel)
            except FileNotFoundError:
                continue
        return None

    def _put(self, key: str, content: FileContent, about: dict[str, str]) -> Fingerprint:
        """Have the object in the store, and the store's word for it."""
        return put_confirmed(
            self._store,
            key,
            content,
            about,
            resume=self._attempt(key),
            began=lambda ident: self._note_attempt(key, ident),
            paced=self._pace,
        )

    def _pace(self, size: int) -> None:
        if self._stop.is_set():
            raise StoppedError("told to stop")
        self._paced(size)

    # -- attempts ----------------------------------------------------------------------------

    def _attempt(self, key: str) -> str | None:
        try:
            found = from_json(self._home.read(_attempt_file(key)), _Attempt)
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return found.ident if found.key == key else None

    def _note_attempt(self, key: str, ident: str) -> None:
        self._home.make_dirs(_ATTEMPTS)
        self._home.write_atomic(_attempt_file(key), msgspec.json.encode(_Attempt(key, ident)))

    def _forget_attempt(self, key: str) -> None:
        self._home.unlink(_attempt_file(key), sync=False)


def _attempt_file(key: str) -> str:
    return f"{_ATTEMPTS}/{md5(key.encode()).hexdigest()}.json"
