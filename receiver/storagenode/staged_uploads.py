"""Files that edges send to a node: in blocks that count like those at a receiver.

The last block is answered when the whole was flushed and checked, and what is known of it is on the
disk. The master reads the file from here and decides what becomes of it; when it lists the file, it
is moved into the replica that it belongs to. What nobody comes for is dropped after a while: what
counts for an edge is the master's word, and the master has bytes of its own then.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from common import crash
from common.errors import (
    BusyError,
    DigestError,
    NoSpaceError,
    NotATsFileError,
    NotFoundError,
    OffsetError,
    TooLargeError,
    TsferryError,
)
from common.names import FilePath
from common.tsfile.tail_digest import tail_digest
from receiver.load.folder.content_checks import check_content, check_md5
from receiver.storagenode.staged_upload import (
    UPLOADS,
    StagedUpload,
    remove_upload,
    upload_left,
)
from receiver.transfer.receiving.partial import PartialUpload, UploadMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.durable import Tree, WriteFile
    from receiver.config import LimitsConfig
    from receiver.tablet_copies.copies_wire import CopiedFile
    from receiver.tablet_copies.replica_store import ReplicaStore
    from receiver.tablet_copies.upload_tickets import SentFile
    from receiver.transfer.receiving.partial import Pending

__all__ = ["StagedPiece", "StagedStanding", "StagedUploads", "StagedView"]

log = logging.getLogger(__name__)

_EVERY: Final = 60.0
"""Seconds between two looks for what is to be dropped."""


class StagedView(NamedTuple):
    """Where an upload stands.

    Attributes:
        id: of it.
        offset: bytes that are on the disk for good.
        length: of the whole file.
        expires: when it is dropped if nothing more comes, seconds since the epoch.
    """

    id: str
    offset: int
    length: int
    expires: float


class StagedStanding(NamedTuple):
    """How much there is of uploads.

    Attributes:
        uploads: that are here.
        whole: those of them that wait for the master alone.
        bytes: of all, as far as they have come.
    """

    uploads: int
    whole: int
    bytes: int


class StagedPiece(NamedTuple):
    """Bytes of an upload for the master.

    Attributes:
        content: from where they were asked for on, perhaps fewer, or none.
        offset: bytes that count here.
        md5: of the whole file, once it is that.
    """

    content: bytes
    offset: int
    md5: str | None


class StagedUploads:
    """The uploads of a node; any thread may call."""

    def __init__(
        self,
        trees: Sequence[Tree],
        store: ReplicaStore,
        limits: LimitsConfig,
        *,
        clock: Callable[[], float],
    ) -> None:
        """Open what an earlier life left.

        Args:
            trees: the directories of the node, as the store has them.
            store: of replicas: what has room, and where whole files go.
            limits: what one sender can make it hold.
            clock: seconds since the epoch.
        """
        self._trees = trees
        self._store = store
        self._limits = limits
        self._clock = clock
        self._expired = 0.0
        self._lock = threading.Lock()
        self._all: dict[str, StagedUpload] = {}
        self._of_path: dict[tuple[str, str], str] = {}
        self._begun: dict[str, str] = {}
        """Uploads whose first flush goes on -> their senders."""
        for number in range(len(trees)):
            self._open(number)

    # -- calls of edges ----------------------------------------------------------------------

    def begin(self, file: SentFile) -> StagedView:
        """Begin the upload of a file, or go on with the one that there is.

        Raises:
            NoSpaceError: there is no room for it, or its sender has enough here.
            BusyError: too many of its sender are open, or somebody is at it.
        """
        found = self._known(file)
        if found is not None:
            with suppress(NotFoundError), found.alone():
                if file.md5 in (None, found.md5) or found.md5 is None:
                    return self._prepared(found)
                self._drop(found)  # the same tail, and other bytes before it
        number = self._store.place(file.size)
        self._store.placed(number, file.size)
        with self._lock:
            if file.upload in self._all or file.upload in self._begun:
                raise BusyError("another request begins this upload", retry_after=1)
            self._must_have_room(file)
            self._begun[file.upload] = file.sender
        try:  # its flushes hold up nobody else
            made = self._create(number, file)
        except BaseException:
            with suppress(OSError, TsferryError):  # else what is left is in the way of another try
                remove_upload(self._trees[number], file.upload)
            with self._lock:
                del self._begun[file.upload]
            raise
        with self._lock:
            del self._begun[file.upload]
            return self._view(self._add(made))

    def head(self, file: SentFile) -> StagedView:
        """Where it stands; every byte before that is on the disk.

        Raises:
            NotFoundError: it is not here.
        """
        found = self._find(file)
        with found.alone():
            return self._prepared(found)

    def patch(
        self,
        file: SentFile,
        offset: int,
        block: bytes | memoryview,
        *,
        xxh3: str | None = None,
        repr_md5: str | None = None,
    ) -> StagedView:
        """Take in a block that is what its checksum says; all of it counts, or nothing.

        Args:
            file: that it is of.
            offset: where it begins.
            block: the bytes.
            xxh3: xxh3-64 of them, where that is known.
            repr_md5: MD5 of the whole file (hex), where it is known.

        Raises:
            OffsetError: the upload stands elsewhere.
            DigestError: the whole is not what was said; the upload is gone.
            NotATsFileError: it is none; the upload is gone.
            NoSpaceError, NotFoundError, BusyError: as they say.
        """
        found = self._find(file)
        if found.md5 is not None:
            return self._again(found, offset, block, repr_md5)
        finish = _Finish(file, repr_md5)
        if block and found.partial.is_read:
            return self._beside(found, offset, block, xxh3, finish)
        with found.alone():
            found.partial.prepare()
            self._check(found, offset, len(block))
            if offset != found.offset:
                raise _elsewhere(found.offset)
            with self._trees[found.number].open_write(found.partial.part) as out:
                try:
                    written = found.partial.put(out, block, offset, xxh3)
                    self._take(found, out, found.partial.digest(written, block), finish)
                except Exception:
                    found.partial.give_up(out, offset)
                    raise
            return self._view(found)

    def drop(self, file: SentFile) -> None:
        """Give an upload up; one that is whole stays for the master."""
        found = self._known(file)
        if found is None or found.md5 is not None:
            return
        with suppress(NotFoundError), found.alone():
            self._drop(found)

    def standing(self) -> StagedStanding:
        """How much there is of them."""
        with self._lock:
            there = list(self._all.values())
        whole = sum(each.md5 is not None for each in there)
        return StagedStanding(len(there), whole, sum(each.offset for each in there))

    # -- for the master and the replicas -----------------------------------------------------

    def read(self, upload: str, begin: int, length: int) -> StagedPiece:
        """Bytes from `begin` on, `length` of them at most.

        Of a file that comes those too that are not flushed yet: the master writes them meanwhile,
        and judges by the whole.

        Raises:
            NotFoundError: it is not here.
        """
        with self._lock:
            found = self._all.get(upload)
        if found is None:
            raise NotFoundError(f"there is no upload {upload[:40]!a} here")
        if found.md5 is None and not found.partial.is_read:
            with found.alone():
                found.partial.prepare()
        there, md5 = found.offset, found.md5
        written = there if md5 is not None else found.partial.written
        length = max(0, min(length, written - begin))
        try:
            fd = self._trees[found.number].open_read(found.partial.part)
        except FileNotFoundError:
            raise NotFoundError(f"upload {upload} is not here any more") from None
        try:
            content = os.pread(fd, length, begin) if length else b""
        finally:
            os.close(fd)
        found.touched = self._clock()
        return StagedPiece(content, there, md5)

    @contextmanager
    def offered(self, file: CopiedFile) -> Iterator[tuple[int, str] | None]:
        """A whole file that is what the master lists: the number of its directory, and its name.

        Whoever takes it gives it another name; what is left of it then goes.
        """
        with self._lock:
            found = self._all.get(self._of_path.get((file.sender, file.path), ""))
        is_it = found is not None and found.md5 == file.md5 and found.offset == file.size
        with ExitStack() as stack:
            if found is None or not is_it or not found.is_taken(stack):
                yield None
                return
            tree, part = self._trees[found.number], found.partial.part
            yield found.number, part
            if not tree.exists(part):
                crash.point("staged.taken")
                self._drop(found)

    def let_go(self, file: CopiedFile) -> None:
        """A file has come to its replica in another way: it is not waited for any more."""
        with self._lock:
            found = self._all.get(self._of_path.get((file.sender, file.path), ""))
        if found is not None and found.partial.meta.length == file.size:
            with suppress(BusyError, NotFoundError), found.alone():
                self._drop(found)

    def expire_now_and_then(self) -> None:
        """The same, once a minute at most."""
        now = self._clock()
        if abs(now - self._expired) >= _EVERY:
            self._expired = now
            self.expire(now)

    def expire(self, now: float) -> None:
        """Drop what nothing came for, and nobody came for, in a long time."""
        oldest = now - self._limits.upload_expiry
        with self._lock:
            old = [each for each in self._all.values() if each.touched < oldest]
        for each in old:
            with suppress(BusyError, NotFoundError), each.alone():
                self._drop(each)

    # -- bytes -------------------------------------------------------------------------------

    def _again(
        self, found: StagedUpload, offset: int, block: bytes | memoryview, repr_md5: str | None
    ) -> StagedView:
        """A block for a file that is whole: the answer to the last one was lost, perhaps."""
        if block or offset != found.offset:
            raise _elsewhere(found.offset)
        if repr_md5 not in (None, found.md5):
            with found.alone():
                self._drop(found)
            raise DigestError(f"MD5 of the whole file is {found.md5}, {repr_md5} was expected")
        return self._view(found)

    def _beside(
        self,
        found: StagedUpload,
        offset: int,
        block: bytes | memoryview,
        xxh3: str | None,
        finish: _Finish,
    ) -> StagedView:
        """Take a block in while those before it are still being flushed."""
        partial = found.partial
        with (
            found.turns.joined(lambda: partial.offset, offset, len(block)) as turn,
            self._trees[found.number].open_write(partial.part) as out,
        ):
            found.must_be_there()
            self._check(found, offset, len(block))
            try:
                if turn.first:
                    partial.prepare()
                written = partial.put(out, block, turn.begin, xxh3)
                with turn.digesting():
                    pending = partial.digest(written, block)
                if turn.end < partial.meta.length:
                    partial.flush(out)
            except Exception:
                partial.give_up(out, turn.begin)
                raise
            with turn.counting():
                self._take(found, out, pending, finish)
                return self._view(found)

    def _take(self, found: StagedUpload, out: WriteFile, pending: Pending, finish: _Finish) -> None:
        found.touched = self._clock()
        if pending.block.end < found.partial.meta.length:
            found.partial.flush(out)
            found.partial.count(pending)
        else:
            self._finish(found, out, pending.md5.hexdigest(), finish)

    def _check(self, found: StagedUpload, offset: int, length: int) -> None:
        most, whole = self._limits.max_chunk_bytes, found.partial.meta.length
        if length > most:
            raise TooLargeError(f"a block has 0 to limits.max_chunk_bytes, {most}, bytes")
        if offset + length > whole:
            raise TooLargeError(f"{length} bytes at {offset} go beyond the file's {whole}")
        if self._store.room(found.number) < length:
            raise NoSpaceError(f"{length} bytes are to come, and there is too little space left")
        with self._lock:  # many may have begun while each of them had room
            self._must_be_allowed(self._of_sender(found.partial.meta.sender), length)

    def _finish(self, found: StagedUpload, out: WriteFile, md5: str, finish: _Finish) -> None:
        """Verify the whole; nothing of the last block counts before."""
        out.sync()
        path = FilePath.parse(finish.file.path)
        try:
            check_md5(path, md5, finish.file.md5, finish.repr_md5)
            check_content(out.fileno(), path)
            if (tail := tail_digest(out.fileno())) != finish.file.tail:
                raise DigestError(f"{path}: tail digest {tail}, {finish.file.tail} was planned")
        except (DigestError, NotATsFileError):
            self._drop(found)
            raise
        crash.point("staged.checked")
        found.keep(self._trees[found.number], md5)

    # -- which there are ---------------------------------------------------------------------

    def _known(self, file: SentFile) -> StagedUpload | None:
        with self._lock:
            return self._all.get(file.upload)

    def _find(self, file: SentFile) -> StagedUpload:
        found = self._known(file)
        if found is None:
            raise NotFoundError(f"there is no upload {file.upload} here; it may have expired")
        return found

    def _prepared(self, found: StagedUpload) -> StagedView:
        if found.md5 is None:
            found.partial.prepare()
        found.touched = self._clock()
        return self._view(found)

    def _view(self, found: StagedUpload) -> StagedView:
        meta = found.partial.meta
        expires = found.touched + self._limits.upload_expiry
        return StagedView(meta.id, found.offset, meta.length, expires)

    def _must_have_room(self, file: SentFile) -> None:
        here = self._of_sender(file.sender)
        count = len(here) + sum(each == file.sender for each in self._begun.values())
        if count >= self._limits.max_open_uploads:
            raise BusyError(f"{count} uploads of this sender are here", retry_after=60)
        self._must_be_allowed(here, file.size)

    def _of_sender(self, sender: str) -> list[StagedUpload]:
        return [each for each in self._all.values() if each.partial.meta.sender == sender]

    def _must_be_allowed(self, here: Sequence[StagedUpload], size: int) -> None:
        used, most = sum(each.offset for each in here), self._limits.max_unloaded_bytes
        if used + size > most:
            raise NoSpaceError(
                f"{used} bytes of this sender are here, {size} more are to come, and "
                f"limits.max_unloaded_bytes is {most}"
            )

    def _create(self, number: int, file: SentFile) -> StagedUpload:
        tree, now = self._trees[number], self._clock()
        meta = UploadMeta(
            id=file.upload,
            sender=file.sender,
            owner=file.tablet,
            path=FilePath.parse(file.path).text,
            length=file.size,
            created=now,
            task=file.task,
            md5=file.md5,
            tail=file.tail,
        )
        tree.make_dirs(UPLOADS)
        return StagedUpload(number, PartialUpload.create(tree, UPLOADS, meta), now)

    def _add(self, staged: StagedUpload) -> StagedUpload:
        meta = staged.partial.meta
        self._all[meta.id] = staged
        self._of_path[meta.sender, meta.path] = meta.id
        return staged

    def _drop(self, found: StagedUpload) -> None:
        """Forget an upload and what there is of it; the caller keeps everybody else away."""
        meta, tree = found.partial.meta, self._trees[found.number]
        found.gone = True
        with self._lock:
            self._all.pop(meta.id, None)
            if self._of_path.get((meta.sender, meta.path)) == meta.id:
                del self._of_path[meta.sender, meta.path]
        found.remove(tree)

    def _open(self, number: int) -> None:
        """What is whole, or may go on; anything else that lies there goes."""
        tree = self._trees[number]
        tree.sweep_temporaries(UPLOADS, deep=False)
        there = tree.listing(UPLOADS)
        sizes = {name: found.st_size for name, found in there}
        for stem in sorted({name.partition(".")[0] for name in sizes}):
            try:
                staged = upload_left(tree, number, stem, sizes, self._clock())
            except (OSError, TsferryError) as error:
                told = {"upload": stem, "error": str(error)}
                log.warning("an upload cannot be resumed", extra=told)
                continue
            if staged is not None and staged.partial.meta.id not in self._all:
                self._add(staged)
            else:
                remove_upload(tree, stem)


class _Finish(NamedTuple):
    """What the whole of a file has to be."""

    file: SentFile
    repr_md5: str | None


def _elsewhere(here: int) -> OffsetError:
    return OffsetError(
        f"the block does not begin where the copy ends, at {here}", extra={"offset": here}
    )
