"""The tus calls: create, head, patch, terminate; from the first byte to the verified file.

One thread at a time writes an upload; a second one is told *busy* at once. The lock lives in this
process and only for the length of a call, so a dropped link leaves none behind.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from common.digests import is_md5
from common.errors import (
    BusyError,
    ConflictError,
    DigestError,
    ForbiddenError,
    GoneError,
    NameRefusedError,
    NotATsFileError,
    NotFoundError,
    OffsetError,
    ProtocolError,
    TooLargeError,
    TsferryError,
)
from common.names import FilePath, is_task_id
from common.wire import Result
from receiver.load.recovery import single_task
from receiver.transfer.body import checker, pieces
from receiver.transfer.intake import Intake, Received
from receiver.transfer.partial import Partial, UploadMeta
from receiver.transfer.planning import Resumable
from receiver.transfer.views import UploadView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from common.durable import WriteFile
    from common.wire import PlanEntry
    from receiver.config import ReceiverConfig
    from receiver.load.folders import SenderFolder
    from receiver.load.loader import Job
    from receiver.load.service import LoadService
    from receiver.load.task import Planned
    from receiver.metadata.engine import Engine
    from receiver.principal import Principal
    from receiver.transfer.body import Checksum, Stream
    from receiver.transfer.partial import Pending

__all__ = ["Uploads"]

_BLOCK = 4 << 20
"""Without a checksum, so many bytes count at a time."""
_REMEMBERED = 10_000
"""Finished uploads that HEAD still answers for, should the last answer be lost."""


class _Upload:
    """An upload that is begun and not finished."""

    def __init__(self, folder: SenderFolder, partial: Partial, touched: float) -> None:
        self.folder = folder
        self.partial = partial
        self.touched = touched
        self.lock = threading.Lock()
        self.gone = False
        self.job: Job | None = None
        """Of a task of one file that is verified, and waits to be loaded."""

    @property
    def meta(self) -> UploadMeta:
        return self.partial.meta


class Uploads:
    """All uploads of all senders. All calls are safe from any thread."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        load: LoadService,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._engine = engine
        self._load = load
        self._clock = clock
        self._intake = Intake(config, engine, load, clock=clock)
        self._uploads: dict[str, _Upload] = {}
        self._of_sender: dict[str, dict[str, _Upload]] = {}
        self._finished: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._lock = threading.Lock()
        load.reaper.chores.append(self.expire)

    # -- calls -----------------------------------------------------------------------------

    def create(
        self,
        who: Principal,
        sender: str,
        length: int,
        metadata: Mapping[str, str],
        body: Stream | None = None,
        *,
        body_length: int = 0,
        checksum: Checksum | None = None,
        repr_md5: str | None = None,
    ) -> UploadView:
        """`POST /files`, with its first bytes or without.

        Args:
            who: asks.
            sender: uuid that the file is of.
            length: of the whole file.
            metadata: `path`, and perhaps `task`, `size`, `md5` (hex).
            body: the first bytes (creation-with-upload).
            body_length: how many those are.
            checksum: of those, algorithm and raw digest.
            repr_md5: MD5 of the whole file (hex), where these bytes are all of it.

        Raises:
            NameRefusedError: the path is none that is taken here.
            NoSpaceError: not now; a quota, or the disk.
            TooLargeError: the file is larger than is taken here.
            GoneError: the task is not open.
        """
        folder = self._intake.folder(who, sender)
        meta = self._new_meta(who, folder, length, metadata)
        with folder.lock:
            self._admit(folder, meta)
            partial = Partial.create(folder.tree, folder.uploads, meta)
            upload = _Upload(folder, partial, self._clock())
            self._register(upload)
        if (body is None or body_length == 0) and length > 0:
            return self._view(upload)
        with self._held(upload):
            if body is not None and body_length:
                return self._receive(who, upload, 0, body, body_length, checksum, repr_md5)
            return self._receive_nothing(who, upload, repr_md5)

    def head(self, who: Principal, upload_id: str) -> UploadView:
        """`HEAD /files/<id>`: the offset to go on from; every byte before it is on the disk."""
        finished = self._finished.get(upload_id)
        if finished is not None:
            return self._view_finished(who, upload_id, *finished)
        upload = self._find(who, upload_id)
        with self._held(upload):
            upload.partial.prepare()
            return self._view(upload)

    def patch(
        self,
        who: Principal,
        upload_id: str,
        offset: int,
        stream: Stream,
        length: int,
        checksum: Checksum | None = None,
        repr_md5: str | None = None,
    ) -> UploadView:
        """`PATCH /files/<id>`: the next bytes.

        With a checksum all of them count or none; without one, what came whole before a break may.
        The call that brings the last byte returns once the file is verified and in its place (and,
        without a task, committed).

        Raises:
            OffsetError: the upload stands elsewhere, `extra["offset"]` says where.
            BusyError: another call is writing this upload.
            DigestError: block or whole do not match; after the whole the upload is gone.
            NotATsFileError: the bytes are whole and no TsFile; they are in quarantine.
        """
        finished = self._finished.get(upload_id)
        if finished is not None and (offset, length) == (finished[1], 0):
            return self._view_finished(who, upload_id, *finished)
        upload = self._find(who, upload_id)
        with self._held(upload):
            return self._receive(who, upload, offset, stream, length, checksum, repr_md5)

    def terminate(self, who: Principal, upload_id: str) -> None:
        """`DELETE /files/<id>`: forget the upload and its bytes."""
        finished = self._finished.get(upload_id)
        if finished is not None:
            self._view_finished(who, upload_id, *finished)
            self._finished.pop(upload_id, None)
            return
        upload = self._find(who, upload_id)
        with self._held(upload):
            if upload.job is None:
                self._drop(upload)

    # -- for others ------------------------------------------------------------------------

    def recover(self) -> None:
        """Find the uploads that an earlier process left."""
        for folder in self._load.folders.all():
            for name, found in folder.tree.listing(folder.uploads):
                stem, _, kind = name.rpartition(".")
                if kind != "upload" or stem in self._uploads:
                    continue
                partial = Partial.open(folder.tree, folder.uploads, stem)
                if partial is not None:
                    touched = max(found.st_mtime, partial.touched)
                    self._register(_Upload(folder, partial, touched))

    def resumable(self, who: Principal, folder: SenderFolder, entry: PlanEntry) -> Resumable | None:
        """A partial upload of this very file, made with the same token."""
        owner = who.upload_owner(folder.uuid)
        with self._lock:
            uploads = list(self._of_sender.get(folder.uuid, {}).values())
        fitting = [
            each
            for each in uploads
            if each.meta.path == entry.path
            and each.meta.task is not None
            and (each.meta.owner, each.meta.length, each.meta.tail)
            == (owner, entry.size, entry.tail)
            and (each.meta.md5 is None or entry.md5 in (None, each.meta.md5))
        ]
        best = max(fitting, key=lambda each: each.partial.offset, default=None)
        if best is None or best.partial.offset == 0:
            return None
        return Resumable(best.meta.id, best.partial.offset)

    def numbers(self, sender: str | None = None) -> tuple[int, int]:
        """How many uploads of a sender (or of all) are begun, and the bytes they have."""
        with self._lock:
            every = list(
                (self._uploads if sender is None else self._of_sender.get(sender, {})).values()
            )
        return len(every), sum(each.partial.offset for each in every)

    def expire(self, now: float) -> None:
        """Drop uploads that nothing came for in a long time."""
        oldest = now - self._config.limits.upload_expiry
        with self._lock:
            stale = [each for each in self._uploads.values() if each.touched < oldest]
        for upload in stale:
            self._drop_if_idle(upload)

    # -- creation --------------------------------------------------------------------------

    def _new_meta(
        self, who: Principal, folder: SenderFolder, length: int, metadata: Mapping[str, str]
    ) -> UploadMeta:
        if "path" not in metadata:
            raise ProtocolError("Upload-Metadata has no path")
        path = FilePath.parse(metadata["path"])
        self._intake.check_size(path, length)
        size = metadata.get("size")
        if size is not None and size != str(length):
            raise ProtocolError(f"{path}: size and Upload-Length differ")
        md5 = metadata.get("md5")
        if md5 is not None and not is_md5(md5):
            raise ProtocolError(f"{path}: {md5[:40]!a} is no MD5 in hex")
        task = metadata.get("task")
        if task is not None and not is_task_id(task):
            raise ProtocolError(f"{task[:40]!a} is no task id")
        planned = self._planned(folder, path, length) if task is not None else None
        return UploadMeta(
            id=secrets.token_hex(16),
            sender=folder.uuid,
            owner=who.upload_owner(folder.uuid),
            path=path.text,
            length=length,
            created=self._clock(),
            task=task,
            md5=md5,
            tail=planned.tail if planned is not None and not path.is_resource else None,
        )

    def _planned(self, folder: SenderFolder, path: FilePath, length: int) -> Planned | None:
        """The plan's entry for a file, which it has to fit."""
        current = folder.task
        planned = current.planned.get(path.tsfile.text) if current is not None else None
        if planned is None:
            return None
        if planned.refused is not None:
            raise ConflictError(f"{path}: the plan said {planned.refused}: {planned.reason}")
        if not path.is_resource and planned.size != length:
            raise ProtocolError(f"{path}: {length} bytes, {planned.size} were planned")
        return planned

    def _admit(self, folder: SenderFolder, meta: UploadMeta) -> None:
        """Whether one more upload may be begun; uploads of tasks that are over make room."""
        if meta.task is not None:
            self._intake.open_task(folder, meta.task)
            self._drop_others(folder, meta)
        elif FilePath.parse(meta.path).is_resource:
            raise NameRefusedError(f"{meta.path}: a resource comes in a task, with its TsFile")
        limit = self._config.limits.max_open_uploads
        count, partial_bytes = self.numbers(folder.uuid)
        needs_room = folder.staged.bytes + partial_bytes + meta.length
        if count >= limit or needs_room > self._config.limits.max_unloaded_bytes:
            self._make_room(folder)
            count, partial_bytes = self.numbers(folder.uuid)
        if count >= limit:
            raise BusyError(
                f"{count} uploads of this sender are open, limits.max_open_uploads is {limit}",
                retry_after=60,
            )
        self._intake.check_room(folder, meta.length, partial_bytes)

    def _drop_others(self, folder: SenderFolder, meta: UploadMeta) -> None:
        """An upload of other content for the same path of the same task's sender is stale."""
        with self._lock:
            others = list(self._of_sender.get(folder.uuid, {}).values())
        for each in others:
            if (each.meta.path, each.meta.owner) == (meta.path, meta.owner) and each.meta.task:
                self._drop_if_idle(each)

    def _make_room(self, folder: SenderFolder) -> None:
        """Let go what earlier tasks have left and the present one has not planned."""
        current = folder.task
        planned = current.planned if current is not None else {}
        with self._lock:
            uploads = list(self._of_sender.get(folder.uuid, {}).values())
        for each in uploads:
            is_current = current is not None and each.meta.task == current.id
            if each.meta.task is not None and not is_current and each.meta.path not in planned:
                self._drop_if_idle(each)
        if current is None or not current.loading:
            wanted = {text for path in planned for text in (path, f"{path}.resource")}
            folder.staged.discard(
                each.path
                for each in folder.staged.all()
                if each.single is None and each.path not in wanted
            )

    # -- bytes -----------------------------------------------------------------------------

    def _receive(
        self,
        who: Principal,
        upload: _Upload,
        offset: int,
        stream: Stream,
        length: int,
        checksum: Checksum | None,
        repr_md5: str | None,
    ) -> UploadView:
        if checksum is not None:
            checker(checksum)  # an unknown algorithm is refused before anything is read
        if upload.job is not None:
            self._check_offset(upload, offset, length)
            for _ in pieces(stream, length):
                pass  # these bytes are here already
            return self._await_load(upload)
        upload.partial.prepare()
        self._check_offset(upload, offset, length)
        self._intake.check_room(upload.folder, length, self.numbers(upload.meta.sender)[1])
        with upload.folder.tree.open_write(upload.partial.part) as file:
            last = self._write(upload, file, stream, length, checksum)
            if last is not None:
                return self._finish(who, upload, file, last, repr_md5)
        return self._view(upload)

    def _write(
        self,
        upload: _Upload,
        file: WriteFile,
        stream: Stream,
        length: int,
        checksum: Checksum | None,
    ) -> Pending | None:
        """Take the body in; returns the block with the file's last byte, which does not count."""
        try:
            for pending in self._blocks(upload, file, stream, length, checksum):
                upload.touched = self._clock()
                if pending.block.end == upload.meta.length:
                    return pending
                upload.partial.commit(file, pending)
        except Exception:
            upload.partial.give_up(file)
            raise
        return None

    def _check_offset(self, upload: _Upload, offset: int, length: int) -> None:
        here = upload.partial.offset
        if offset != here:
            raise OffsetError(
                f"the block does not begin where the copy ends, at {here}", extra={"offset": here}
            )
        limit = self._config.limits.max_chunk_bytes
        if length < 0 or length > limit:
            raise TooLargeError(f"a block has 0 to limits.max_chunk_bytes, {limit}, bytes")
        if here + length > upload.meta.length:
            raise TooLargeError(
                f"{length} bytes at {here} go beyond the file's {upload.meta.length}",
                extra={"offset": here},
            )

    def _blocks(
        self,
        upload: _Upload,
        file: WriteFile,
        stream: Stream,
        length: int,
        checksum: Checksum | None,
    ) -> Iterator[Pending]:
        """The body as blocks that count one by one; with a checksum it is one block."""
        if length == 0:
            return
        if checksum is not None:
            yield upload.partial.write(file, pieces(stream, length, checksum))
            return
        left = length
        while left:
            size = min(left, _BLOCK)
            yield upload.partial.write(file, pieces(stream, size))
            left -= size

    def _receive_nothing(self, who: Principal, upload: _Upload, repr_md5: str | None) -> UploadView:
        """A file of no bytes is whole as soon as it is made."""
        with upload.folder.tree.open_write(upload.partial.part) as file:
            return self._finish(who, upload, file, upload.partial.write(file, ()), repr_md5)

    # -- the last byte -----------------------------------------------------------------------

    def _finish(
        self,
        who: Principal,
        upload: _Upload,
        file: WriteFile,
        pending: Pending,
        repr_md5: str | None,
    ) -> UploadView:
        """Verify the whole and put it in its place; nothing of the last block counts before."""
        folder, meta = upload.folder, upload.meta
        path = FilePath.parse(meta.path)
        file.sync()
        planned = None
        if meta.task is not None and folder.task is not None:
            planned = folder.task.planned.get(path.tsfile.text)
        try:
            record = self._intake.verify(
                file.fileno(),
                path,
                pending.md5.hexdigest(),
                expected=(meta.md5, repr_md5),
                planned=planned,
                single=meta.id if meta.task is None else None,
                scope=who.scope if meta.task is None else (),
            )
        except DigestError:
            self._drop(upload)
            raise
        except NotATsFileError as error:
            self._intake.quarantine(
                folder, upload.partial.part, path, file.fileno(), meta.length, error.message
            )
            self._drop(upload)
            raise
        self._stage(upload, Received(path, upload.partial.part, record))
        if meta.task is not None:
            return self._finished_view(upload)
        upload.job = self._load.loader.submit(folder, single_task(folder, record))
        return self._await_load(upload)

    def _stage(self, upload: _Upload, received: Received) -> None:
        try:
            self._intake.stage(upload.folder, [received])
        except Exception:
            if not upload.folder.tree.exists(received.part):
                self._drop(upload)  # it was moved and not recorded: the next plan asks for it
            raise

    def _await_load(self, upload: _Upload) -> UploadView:
        """Wait for the commit of a task of one file.

        Raises:
            ConflictError: a device of another owner, or other content under the path.
            ForbiddenError: a device outside of the token's scope.
            TsferryError, OSError: it cannot be loaded now; sending the last block again waits on.
        """
        assert upload.job is not None
        self._load.loader.wait_for(upload.job)
        with self._engine.reading() as state:
            row = state.task(upload.meta.sender, upload.meta.id)
        view = self._finished_view(upload)
        outcome = row.outcomes[0] if row is not None else None
        if outcome is None or outcome.result in (Result.LOADED, Result.ALREADY):
            return view
        kind: type[TsferryError] = {
            Result.CONFLICT: ConflictError,
            Result.REFUSED: ForbiddenError,
            Result.QUARANTINED: NotATsFileError,
        }.get(outcome.result, DigestError)
        extra: dict[str, object] = {"device": outcome.device} if outcome.device else {}
        raise kind(f"{outcome.path}: {outcome.reason}", extra=extra)

    def _finished_view(self, upload: _Upload) -> UploadView:
        meta = upload.meta
        self._unregister(upload)
        upload.partial.drop()
        with self._lock:
            self._finished[meta.id] = (meta.owner, meta.length)
            if len(self._finished) > _REMEMBERED:
                self._finished.popitem(last=False)
        return self._view_of(meta.id, meta.length, meta.length, self._clock())

    # -- the register ------------------------------------------------------------------------

    def _find(self, who: Principal, upload_id: str) -> _Upload:
        finished = self._finished.get(upload_id)
        if finished is not None:
            length = finished[1]
            raise OffsetError(f"all {length} bytes are here", extra={"offset": length})
        upload = self._uploads.get(upload_id)
        if upload is None:
            raise NotFoundError(f"there is no upload {upload_id[:40]!a}; it may have expired")
        who.must_send_for(upload.meta.sender)
        if who.upload_owner(upload.meta.sender) != upload.meta.owner:
            raise ForbiddenError("this upload was made with another token")
        return upload

    @contextmanager
    def _held(self, upload: _Upload) -> Iterator[None]:
        if not upload.lock.acquire(blocking=False):
            raise BusyError("another request is writing this upload", retry_after=1)
        try:
            if upload.gone:
                raise GoneError("this upload is finished or was dropped")
            yield
        finally:
            upload.lock.release()

    def _register(self, upload: _Upload) -> None:
        with self._lock:
            self._uploads[upload.meta.id] = upload
            self._of_sender.setdefault(upload.meta.sender, {})[upload.meta.id] = upload

    def _unregister(self, upload: _Upload) -> None:
        upload.gone = True
        with self._lock:
            self._uploads.pop(upload.meta.id, None)
            self._of_sender.get(upload.meta.sender, {}).pop(upload.meta.id, None)

    def _drop(self, upload: _Upload) -> None:
        self._unregister(upload)
        upload.partial.drop()

    def _drop_if_idle(self, upload: _Upload) -> None:
        if upload.job is None and upload.lock.acquire(blocking=False):
            try:
                if not upload.gone:
                    self._drop(upload)
            finally:
                upload.lock.release()

    # -- views -------------------------------------------------------------------------------

    def _view(self, upload: _Upload) -> UploadView:
        return self._view_of(
            upload.meta.id, upload.partial.offset, upload.meta.length, upload.touched
        )

    def _view_of(self, upload_id: str, offset: int, length: int, touched: float) -> UploadView:
        expires = touched + self._config.limits.upload_expiry
        return UploadView(id=upload_id, offset=offset, length=length, expires=expires)

    def _view_finished(self, who: Principal, upload_id: str, owner: str, length: int) -> UploadView:
        sender = owner.removeprefix("sender:")
        if who.upload_owner(sender) != owner:
            raise ForbiddenError("this upload was made with another token")
        return self._view_of(upload_id, length, length, self._clock())
