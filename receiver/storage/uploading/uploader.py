"""Brings loaded files into the object store, behind their commits, and says so by commits.

A file counts as uploaded when the store has said of its object what was computed here of the bytes
that went, or, where it knows no digest, when they were read back; and when a commit says so. The
key is the file's for ever (engine, incarnation, physical name), so whoever is cut off anywhere
finds its object there at the next try, or the parts of it, and nothing is put twice. The attempt at
a large one is remembered on the disk before its first byte goes; no other attempt is ever dropped.
What is not what was loaded never goes: it is judged, as a verification judges (`changed_bytes`).
A `.resource` that the sender's database wrote anew is an object of its own beside the one before
it; its file is told of once more. So are the digests of a large file's blocks, which who reads it
from the store goes by.

Several files are on their way at once. One thread tells of those that came, many in one commit.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from common import crash
from common.errors import StoppedError, TsferryError
from common.names import FilePath
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.storage.stores.confirming import SentObject, is_confirmed, put_sent, unconfirmed
from receiver.storage.stores.incarnation import check_owner
from receiver.storage.stores.object_content import ContentChangedError, FileContent
from receiver.storage.stores.object_keys import data_key, digests_text, resource_key
from receiver.storage.stores.object_store import StoreForbiddenError, StoreRefusedError
from receiver.storage.uploading.changed_bytes import changed_for_good
from receiver.storage.uploading.digest_uploads import ReadContent, put_block_digests
from receiver.storage.uploading.pulled_files import PulledFiles
from receiver.storage.uploading.upload_attempts import UploadAttempts
from receiver.storage.uploading.upload_hands import UploadHands
from receiver.storage.uploading.upload_queue import UploadQueue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from common.config import UploadRules
    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore
    from receiver.storage.uploading.upload_queue import DueFile

__all__ = ["UploadProgress", "Uploader"]

log = logging.getLogger(__name__)

_BATCH = 200
"""Files that one commit tells of, at most."""
_SMALL = 1 << 20
"""Bytes that go sooner than the store says whether they have to."""
_TELL = 1.0
"""Seconds that a file which came waits for others to be told of with it."""


class UploadProgress(NamedTuple):
    """How far the store is behind.

    Attributes:
        waiting_files: loaded, and not in the store as they are.
        waiting_bytes: of those.
        kept_files: loaded, and not to go yet, or never.
        kept_bytes: of those.
        unreadable_files: those of them that were not where they should be, or not what was loaded,
            or that the store refused.
        oldest: commit that brought the oldest of them, 0 for none.
        uploaded_files: in the store.
        uploaded_bytes: of those.
    """

    waiting_files: int = 0
    waiting_bytes: int = 0
    kept_files: int = 0
    kept_bytes: int = 0
    unreadable_files: int = 0
    oldest: int = 0
    uploaded_files: int = 0
    uploaded_bytes: int = 0


class _Brought(NamedTuple):
    """What came of one file: what is to be told, and whether something of it is still missing."""

    told: records.FileUploaded | None
    is_whole: bool
    sent: list[SentObject]
    """That the store has not said to have yet."""


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
        rules: UploadRules | None = None,
        parallel: int = 4,
        paced: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        found_bad: Callable[[str, str, str], object] = lambda physical, digest, why: None,
        pulled: PulledFiles | None = None,
    ) -> None:
        """Prepare; nothing is done before `run_once`.

        Args:
            engine: the metadata engine.
            store: where the objects go.
            owner: as whom they are put.
            home: the schema directory, which remembers attempts.
            trees: gives the data directories that count now.
            rules: when files go, where no operator said it of their storage group; None: at once,
                whatever was said.
            parallel: files on their way at once.
            paced: called with a number of bytes before they go; may wait.
            clock: seconds since the epoch.
            found_bad: called with the physical name and MD5 of a file whose bytes here are proved
                to be others, and with what they are.
            pulled: gives files that lie at storage nodes alone.
        """
        self._engine = engine
        self._store = store
        self._owner = owner
        self._attempts = UploadAttempts(home)
        self._trees = trees
        self._parallel = parallel
        self._paced = paced
        self._found_bad = found_bad
        self._pulled = pulled or PulledFiles(trees)
        self._queue = UploadQueue(engine, rules, clock)
        self._unreadable: set[str] = set()
        self._refused = 0
        self._trouble: TsferryError | None = None
        self._may_be_there = parallel + _BATCH
        self._stop = threading.Event()

    def progress(self) -> UploadProgress:
        """How far it is."""
        missing, kept = self._queue.missing()
        with self._engine.reading() as state:
            table = state.uploaded_table
            sizes = {
                each: state.files[each].size
                for each in (*missing, *kept)
                if each in state.files and each not in table.rows
            }
            return UploadProgress(
                waiting_files=len(missing),
                waiting_bytes=sum(sizes.get(each, 0) for each in missing),
                kept_files=len(kept),
                kept_bytes=sum(sizes.get(each, 0) for each in kept),
                unreadable_files=len(self._unreadable & missing.keys()),
                oldest=min(missing.values(), default=0),
                uploaded_files=len(table.rows),
                uploaded_bytes=table.bytes,
            )

    def first(self, physicals: Sequence[str]) -> None:
        """Somebody waits for these files: they go before all others. Any thread may call."""
        self._queue.first(physicals)

    def close(self) -> None:
        """Stop before the next part; the next start goes on with it."""
        self._stop.set()

    def run_once(self) -> int:
        """Upload all that is due now; returns how many files.

        Raises:
            FencedError: another receiver has taken over.
            StoreAwayError, StoreRefusedError: of the store.
            StoppedError: told to stop.
        """
        self._queue.look()
        done = 0
        try:
            # Twice as many threads as bring files: others ask the store for what came meanwhile.
            with ThreadPoolExecutor(2 * self._parallel, thread_name_prefix="upload") as pool:
                while self._queue.is_due():
                    check_owner(self._store, self._owner)  # and again before each commit
                    done += self._run(pool)
        finally:
            self._queue.put_back_all()
        return done

    def _run(self, pool: ThreadPoolExecutor) -> int:
        self._refused, self._trouble = 0, None
        done, hands = 0, UploadHands[_Brought]()
        bring = partial(self._bring_next, hands)
        batches = hands.batches(pool, self._parallel, bring, most=_BATCH, seconds=_TELL)
        with closing(batches):  # at once, if nothing can be told of
            for come in batches:
                done += self._tell(pool, come)
                self._queue.look()  # others may be waited for by now, and a backlog is long
        if self._trouble is not None:
            raise self._trouble
        return done

    def _bring_next(self, hands: UploadHands[_Brought]) -> bool:
        """Bring the next file; whether there was one. Any thread."""
        due = self._queue.take()
        if due is None:
            return False
        physical = due.row.physical
        try:
            brought = self._bring(due)
        except ContentChangedError as error:
            self._put_off(physical, error)
        except StoreForbiddenError as error:
            self._trouble = error  # no other file would be taken
            hands.halt()
        except StoreRefusedError as error:
            # Of one file, such as a name that is too long there, no other has to suffer.
            self._put_off(physical, error)
            self._refused += 1
            if self._refused >= 2 * self._parallel:
                self._trouble = error
                hands.halt()
        except TsferryError as error:
            self._trouble = error  # the file is put back with all that was not told of
            hands.halt()
        else:
            self._refused = 0
            if brought.told is not None:
                hands.add(brought)
            elif brought.is_whole:
                self._queue.done(physical)
            else:
                self._wait_for_resource(physical)
        return True

    def _put_off(self, physical: str, error: TsferryError) -> None:
        if physical not in self._unreadable:
            self._unreadable.add(physical)
            log.warning(
                "a file is not uploaded",
                extra={"physical": physical, "error": str(error)},
            )
        self._queue.put_off(physical)

    def _wait_for_resource(self, physical: str) -> None:
        """It is told of and not in its place yet, as for a moment it may be, or not any more."""
        if physical not in self._unreadable:
            self._unreadable.add(physical)
            log.info("a file waits for its resource", extra={"physical": physical})
        self._queue.put_off(physical)

    # -- telling -----------------------------------------------------------------------------

    def _confirm(self, pool: ThreadPoolExecutor, come: list[_Brought]) -> None:
        """Have the store say of all that came that it has it; what it does not have is put off."""
        lacking = unconfirmed(self._store, [one for each in come for one in each.sent], pool)
        for each in list(come) if lacking else ():
            found = next((one.key for one in each.sent if one.key in lacking), None)
            if found is not None and each.told is not None:
                come.remove(each)
                self._put_off(each.told.physical, _other_bytes(self._store, found))

    def _tell(self, pool: ThreadPoolExecutor, come: list[_Brought]) -> int:
        """Commit what came; returns how many files that are."""
        self._confirm(pool, come)
        if not come:
            return 0
        crash.point("storage.upload.confirmed")
        check_owner(self._store, self._owner)
        told = [each.told for each in come if each.told is not None]
        try:
            self._engine.commit(told)
        except RefusedCommitError:
            told = [each for each in told if self._tell_one(each)]
        crash.point("storage.upload.committed")
        for each in come:
            assert each.told is not None
            self._unreadable.discard(each.told.physical)
            data = data_key(
                self._owner.engine, each.told.incarnation, each.told.physical, each.told.again
            )
            self._attempts.forget(data, resource_key(data, each.told.resource))
            if each.is_whole:
                self._queue.done(each.told.physical)
            else:
                self._wait_for_resource(each.told.physical)
        return len(told)

    def _tell_one(self, told: records.FileUploaded) -> bool:
        try:
            self._engine.commit([told])
        except RefusedCommitError:
            return False  # it was forgotten meanwhile; its object is one that was never told of
        return True

    # -- one file ----------------------------------------------------------------------------

    def _bring(self, due: DueFile) -> _Brought:
        """Have a file and its resource in the store.

        Raises:
            ContentChangedError: the file is not there, or not what was loaded.
        """
        row = due.row
        number = self._owner.number if due.there is None else due.there.incarnation
        again = 0 if due.there is None else due.there.again
        key = data_key(self._owner.engine, number, row.physical, again)
        physical = FilePath.parse(row.physical)
        sent: list[SentObject] = []
        if due.there is None:
            digests = digests_text(self._put_file(row, key, sent))
        else:
            digests = due.there.digests
        there = "" if due.there is None else due.there.resource
        resource, is_whole = there, True
        if row.resource is not None and row.resource.md5 != there:
            resource, is_whole = row.resource.md5, True
            try:
                self._put_resource(physical, key, row.resource, sent)
            except ContentChangedError:
                resource, is_whole = there, False
        if due.there is not None and resource == there:
            return _Brought(None, is_whole, sent)
        crash.point("storage.upload.sent")
        told = records.FileUploaded(row.physical, number, row.size, digests, resource, again)
        return _Brought(told, is_whole, sent)

    def _put_file(self, row: FileRow, key: str, sent: list[SentObject]) -> dict[str, str]:
        """Have a file in the store, with the digests of its blocks; what is known of both."""
        about = {"sender": row.sender, "path": row.path, "md5": row.md5}
        try:
            with self._content(row) as fd:
                return self._put(fd, key, row.size, row.md5, about, sent)
        except ContentChangedError:
            why = changed_for_good(self._trees(), row.physical, row.size, row.md5)
            if why is not None:
                self._found_bad(row.physical, row.md5, why)
                crash.point("storage.upload.judged")
            raise

    def _put_resource(
        self,
        physical: FilePath,
        key: str,
        known: records.ResourceMeta,
        sent: list[SentObject],
    ) -> None:
        place = resource_key(key, known.md5)
        rel = physical.resource.text
        fd = self._open(rel)
        if fd is None:
            raise ContentChangedError(f"{rel} is in no data directory")
        try:
            self._put(fd, place, known.size, known.md5, None, sent)
        finally:
            os.close(fd)

    @contextmanager
    def _content(self, row: FileRow) -> Iterator[int]:
        """A descriptor of a file, here or as a node gives it, as long as it is needed."""
        fd = self._open(row.physical)
        if fd is None:
            with self._pulled.opened(row) as of_node:
                yield of_node
            return
        try:
            yield fd
        finally:
            os.close(fd)

    def _put(
        self,
        fd: int,
        key: str,
        size: int,
        digest: str,
        about: dict[str, str] | None,
        sent: list[SentObject],
    ) -> dict[str, str]:
        """Have an object in the store, and the store's word for it, or note that it is owed.

        Beside that of a file, of which something is said, lie the digests of its blocks.
        """
        if self._stop.is_set():
            raise StoppedError("told to stop")
        attempt = self._attempts.of(key)
        try:
            content = ReadContent(FileContent(fd, size, digest))
            found = put_sent(
                self._store,
                key,
                content,
                about or {},
                look_first=attempt is not None or (size > _SMALL and self._may_be_there > 0),
                resume=attempt,
                began=lambda ident: self._attempts.note(key, ident),
                paced=self._pace,
            )
            if not found.confirmed:
                if self._store.tells_many and size <= _SMALL:
                    sent.append(found)
                elif not is_confirmed(self._store, found):
                    raise _other_bytes(self._store, key)
            blocks = {} if about is None else put_block_digests(self._store, key, content)
        finally:
            self._may_be_there -= 1
        return {**found.printed.digests, **blocks}

    def _open(self, rel: str) -> int | None:
        """A descriptor of a file; None where it is in no data directory."""
        for tree in self._trees():
            try:
                return tree.open_read(rel)
            except FileNotFoundError:
                continue
            except (OSError, TsferryError) as error:
                raise ContentChangedError(f"{rel} cannot be read: {error}") from error
        return None

    def _pace(self, size: int) -> None:
        if self._stop.is_set():
            raise StoppedError("told to stop")
        self._paced(size)


def _other_bytes(store: ObjectStore, key: str) -> ContentChangedError:
    return ContentChangedError(f"{store.url}: {key}: the store has other bytes")
