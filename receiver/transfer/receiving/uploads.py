"""The tus calls: create, head, patch, terminate; from the first byte to the verified file.

One thread at a time writes an upload (`receiving.register`). What a call answers is on the disk;
the call that brings the last byte answers when the file is verified and in its place.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from common.errors import (
    BusyError,
    ConflictError,
    DigestError,
    ForbiddenError,
    NotATsFileError,
    OffsetError,
    TooLargeError,
    Transient,
    TsferryError,
)
from common.names import FilePath
from common.wire import Result
from receiver.load.folder.content_checks import SingleTask
from receiver.load.folder.obstacles import is_of_one_path
from receiver.load.folder_recovery import single_task
from receiver.transfer.intake import Intake, VerifiedBytes
from receiver.transfer.planning import Resumable
from receiver.transfer.receiving.admission import Admission
from receiver.transfer.receiving.partial import PartialUpload
from receiver.transfer.receiving.register import OpenUpload, Register, UploadView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from common.durable import WriteFile
    from common.wire import PlanEntry
    from receiver.config import ReceiverConfig
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.records import FileOutcome
    from receiver.principal import Principal
    from receiver.transfer.acknowledging import Acknowledging
    from receiver.transfer.receiving.partial import Pending

__all__ = ["Uploads"]

log = logging.getLogger(__name__)

_BLOCK = 4 << 20
_PATIENCE = 20.0
"""Seconds that the last block of a file without a task waits for the copies."""
"""Of what need not count at once, so many bytes count at a time."""
_ERRORS: dict[Result, type[TsferryError]] = {
    Result.CONFLICT: ConflictError,
    Result.REFUSED: ForbiddenError,
    Result.QUARANTINED: NotATsFileError,
    Result.MISSING: Transient,
}


class Uploads:
    """All uploads of all senders. All calls are safe from any thread."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        load: LoadService,
        acknowledging: Acknowledging,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._limits = config.limits
        self._engine = engine
        self._load = load
        self._acknowledging = acknowledging
        self._clock = clock
        self._register = Register()
        self._intake = Intake(config, engine, load, clock=clock)
        self._admission = Admission(config.limits, self._register, self._intake, clock=clock)
        load.reaper.chores.append(self.expire)
        load.after_recovery.append(self.recover_folder)

    # -- calls -----------------------------------------------------------------------------

    def create(
        self,
        who: Principal,
        sender: str,
        length: int,
        metadata: Mapping[str, str],
        block: bytes | memoryview = b"",
        *,
        at_once: bool = False,
        repr_md5: str | None = None,
    ) -> UploadView:
        """`POST /files`, with its first bytes or without.

        Args:
            who: asks.
            sender: uuid that the file is of.
            length: of the whole file.
            metadata: `path`, and perhaps `task`, `size`, `md5` (hex).
            block: the first bytes (creation-with-upload), which are what their checksum says.
            at_once: as for `patch`.
            repr_md5: MD5 of the whole file (hex), where these bytes are all of it.

        Raises:
            NameRefusedError: the path is none that is taken here.
            NoSpaceError: not now; a quota, or the disk.
            TooLargeError: the file is larger than is taken here.
            GoneError: the task is not open.
        """
        folder = self._intake.folder(who, sender)
        newest = self._engine.newest_commit
        meta = self._admission.read(who, folder, length, metadata, newest)
        with folder.lock:
            self._admission.admit(folder, meta)
            partial = PartialUpload.create(folder.tree, folder.uploads, meta)
            upload = OpenUpload(folder, partial, self._clock())
            self._register.add(upload)
        if not block and length > 0:
            return self._view(upload)
        with self._register.held(upload):
            try:
                if block:
                    return self._receive(who, upload, 0, block, at_once, repr_md5)
                return self._receive_nothing(who, upload, repr_md5)
            except Exception:
                if upload.partial.offset == 0 and upload.job is None:
                    self._register.drop(upload)  # its client never learns where it is
                raise

    def head(self, who: Principal, upload_id: str) -> UploadView:
        """`HEAD /files/<id>`: the offset to go on from; every byte before it is on the disk."""
        finished = self._register.finished(who, upload_id)
        if finished is not None:
            return self._view_of(upload_id, finished.length, finished.length, self._clock())
        upload = self._register.find(who, upload_id)
        with self._register.held(upload):
            upload.partial.prepare()
            return self._view(upload)

    def patch(
        self,
        who: Principal,
        upload_id: str,
        offset: int,
        block: bytes | memoryview,
        *,
        at_once: bool = False,
        xxh3: str | None = None,
        repr_md5: str | None = None,
    ) -> UploadView:
        """`PATCH /files/<id>`: the next bytes.

        The call that brings the last byte returns once the file is verified and in its place (and,
        without a task, committed).

        Args:
            who: asks.
            upload_id: of the upload.
            offset: where they begin.
            block: the bytes, which are what their checksum says if they have one.
            at_once: all of them count or none, as those with a checksum do; else those before a
                failure may.
            xxh3: xxh3-64 of the block, where its checksum has told it.
            repr_md5: MD5 of the whole file (hex), where it is known.

        Raises:
            OffsetError: the upload stands elsewhere, `extra["offset"]` says where.
            BusyError: another call is writing this upload.
            DigestError: the whole does not match; the upload is gone.
            NotATsFileError: the bytes are whole and no TsFile; they are in quarantine.
        """
        finished = self._register.finished(who, upload_id)
        if finished is not None:
            here = finished.length
            if offset == here and not block:
                return self._view_of(upload_id, here, here, self._clock())
            raise OffsetError(f"all {here} bytes are here", extra={"offset": here})
        upload = self._register.find(who, upload_id)
        if at_once and block and upload.partial.is_read and upload.job is None:
            return self._receive_beside(who, upload, offset, block, xxh3, repr_md5)
        with self._register.held(upload):
            return self._receive(who, upload, offset, block, at_once, repr_md5)

    def terminate(self, who: Principal, upload_id: str) -> None:
        """`DELETE /files/<id>`: forget the upload and its bytes."""
        if self._register.finished(who, upload_id) is not None:
            self._register.forget(upload_id)
            return
        upload = self._register.find(who, upload_id)
        with self._register.held(upload):
            if upload.job is None:
                self._register.drop(upload)

    # -- for others ------------------------------------------------------------------------

    def recover(self) -> None:
        """Find the uploads that an earlier process left."""
        for folder in self._load.folders.all():
            if folder.recovered:
                self.recover_folder(folder)

    def recover_folder(self, folder: SenderFolder) -> None:
        """Find those in one folder."""
        for name, found in folder.tree.listing(folder.uploads):
            stem, _, kind = name.rpartition(".")
            if kind != "upload" or stem in self._register:
                continue
            try:
                partial = PartialUpload.open(folder.tree, folder.uploads, stem)
            except (OSError, TsferryError) as error:
                if not is_of_one_path(error):
                    raise
                log.warning("an upload cannot be resumed: %s", error)
                continue
            if partial is not None:
                touched = max(found.st_mtime, partial.touched)
                self._register.add(OpenUpload(folder, partial, touched))

    def resumable(self, who: Principal, folder: SenderFolder, entry: PlanEntry) -> Resumable | None:
        """A partial upload of this very file, made with the same token."""
        fitting = [
            each
            for each in self._register.of_path(folder.uuid, entry.path)
            if each.meta.task is not None
            and each.meta.owner == who.upload_owner(folder.uuid)
            and (each.meta.length, each.meta.tail) == (entry.size, entry.tail)
            and (each.meta.md5 is None or entry.md5 in (None, each.meta.md5))
        ]
        best = max(fitting, key=lambda each: each.partial.offset, default=None)
        if best is None or best.partial.offset == 0:
            return None
        return Resumable(best.meta.id, best.partial.offset, best.meta.commit)

    def numbers(self, sender: str | None = None) -> tuple[int, int]:
        """How many uploads of a sender (or of all) are begun, and the bytes they have."""
        return self._admission.numbers(sender)

    def begun(self) -> list[OpenUpload]:
        """Those of all senders."""
        return self._register.all()

    def expire(self, now: float) -> None:
        """Drop uploads that nothing came for in a long time."""
        oldest = now - self._limits.upload_expiry
        for upload in self._register.all():
            if upload.touched < oldest:
                with upload.folder.beside("data/.uploads"):
                    self._register.drop_if_idle(upload)

    # -- bytes -----------------------------------------------------------------------------

    def _receive(
        self,
        who: Principal,
        upload: OpenUpload,
        offset: int,
        block: bytes | memoryview,
        at_once: bool,
        repr_md5: str | None,
    ) -> UploadView:
        if upload.job is not None:
            self._check_offset(upload, offset, len(block))
            return self._await_load(upload)  # these bytes are here already
        upload.partial.prepare()
        self._check_offset(upload, offset, len(block))
        self._intake.check_room(upload.folder, len(block), self.numbers(upload.meta.sender)[1])
        with upload.folder.tree.open_write(upload.partial.part) as file:
            last = self._write(upload, file, block, at_once)
            if last is not None:
                return self._finish(who, upload, file, last, repr_md5)
        return self._view(upload)

    def _receive_beside(
        self,
        who: Principal,
        upload: OpenUpload,
        offset: int,
        block: bytes | memoryview,
        xxh3: str | None,
        repr_md5: str | None,
    ) -> UploadView:
        """Take a block in while those before it are still being flushed."""
        partial = upload.partial
        with (
            self._register.joined(upload, offset, len(block)) as turn,
            upload.folder.tree.open_write(partial.part) as file,
        ):
            self._check_length(upload, offset, len(block))
            self._intake.check_room(upload.folder, len(block), self.numbers(upload.meta.sender)[1])
            is_last = turn.end == upload.meta.length
            try:
                if turn.first:
                    partial.prepare()
                written = partial.put(file, block, turn.begin, xxh3)
                with turn.digesting():
                    pending = partial.digest(written, block)
                upload.touched = self._clock()
                if not is_last:
                    partial.flush(file)
            except Exception:
                partial.give_up(file, turn.begin)
                raise
            with turn.counting():
                if is_last:
                    return self._finish(who, upload, file, pending, repr_md5)
                partial.count(pending)
                return self._view(upload)

    def _check_offset(self, upload: OpenUpload, offset: int, length: int) -> None:
        here = upload.partial.offset
        if offset != here:
            raise OffsetError(
                f"the block does not begin where the copy ends, at {here}", extra={"offset": here}
            )
        self._check_length(upload, here, length)

    def _check_length(self, upload: OpenUpload, here: int, length: int) -> None:
        limit = self._limits.max_chunk_bytes
        if length > limit:
            raise TooLargeError(f"a block has 0 to limits.max_chunk_bytes, {limit}, bytes")
        if here + length > upload.meta.length:
            raise TooLargeError(
                f"{length} bytes at {here} go beyond the file's {upload.meta.length}",
                extra={"offset": here},
            )

    def _write(
        self, upload: OpenUpload, file: WriteFile, block: bytes | memoryview, at_once: bool
    ) -> Pending | None:
        """Take a block in; returns what has the file's last byte, which does not count."""
        step = max(len(block), _BLOCK) if at_once else _BLOCK
        try:
            for start in range(0, len(block), step):
                part = memoryview(block)[start : start + step]
                pending = upload.partial.write(file, part)
                upload.touched = self._clock()
                if pending.block.end == upload.meta.length:
                    return pending
                upload.partial.flush(file)
                upload.partial.count(pending)
        except Exception:
            upload.partial.give_up(file, upload.partial.offset)
            raise
        return None

    def _receive_nothing(
        self, who: Principal, upload: OpenUpload, repr_md5: str | None
    ) -> UploadView:
        """A file of no bytes is whole as soon as it is made."""
        with upload.folder.tree.open_write(upload.partial.part) as file:
            return self._finish(who, upload, file, upload.partial.write(file, b""), repr_md5)

    # -- the last byte -----------------------------------------------------------------------

    def _finish(
        self,
        who: Principal,
        upload: OpenUpload,
        file: WriteFile,
        pending: Pending,
        repr_md5: str | None,
    ) -> UploadView:
        """Verify the whole and put it in its place; nothing of the last block counts before."""
        folder, meta, part = upload.folder, upload.meta, upload.partial.part
        path = FilePath.parse(meta.path)
        file.sync()
        planned = None
        if meta.task is not None and folder.task is not None:
            planned = folder.task.planned.get(path.tsfile.text)
        try:
            received = self._intake.verify(
                file.fileno(),
                path,
                part,
                pending.md5.hexdigest(),
                expected=(meta.md5, repr_md5),
                planned=planned,
                single=SingleTask(meta.id, who.scope, who.token_id) if meta.task is None else None,
                commit=meta.commit,
            )
        except DigestError:
            self._register.drop(upload)
            raise
        except NotATsFileError as error:
            self._intake.quarantine(folder, part, path, file.fileno(), meta.length, error.message)
            self._register.drop(upload)
            raise
        self._stage(upload, received)
        if meta.task is not None:
            return self._finished_view(upload)
        upload.job = self._load.loader.submit(folder, single_task(folder, received.record))
        return self._await_load(upload)

    def _stage(self, upload: OpenUpload, received: VerifiedBytes) -> None:
        try:
            self._intake.stage(upload.folder, [received])
        except Exception:
            if not upload.folder.tree.exists(received.part):
                self._register.drop(upload)  # moved and not recorded: the next plan asks for it
            raise

    def _await_load(self, upload: OpenUpload) -> UploadView:
        """Wait for the commit of a task of one file.

        Raises:
            ConflictError: a device of another owner, or other content under the path.
            ForbiddenError: a device outside of the token's scope.
            TsferryError, OSError: it cannot be loaded now; sending the last block again waits on.
        """
        assert upload.job is not None
        self._load.loader.wait_for(upload.job)
        with self._engine.reading() as state:
            row = state.task_table.get(upload.meta.sender, upload.meta.id)
        if row is not None and not self._acknowledging.may_tell(row):
            told = self._load.loader.wait(lambda: self._acknowledging.may_tell(row), _PATIENCE)
            if not told:
                raise BusyError(
                    f"{upload.meta.path} is loaded, and not in the object store yet", retry_after=5
                )
        view = self._finished_view(upload)
        if row is not None:
            _raise_unless_good(self._acknowledging.outcomes(row)[0])
        return view

    # -- views -------------------------------------------------------------------------------

    def _finished_view(self, upload: OpenUpload) -> UploadView:
        self._register.finish(upload)
        return self._view_of(upload.meta.id, upload.meta.length, upload.meta.length, upload.touched)

    def _view(self, upload: OpenUpload) -> UploadView:
        meta = upload.meta
        view = self._view_of(meta.id, upload.partial.offset, meta.length, upload.touched)
        return msgspec.structs.replace(view, path=meta.path, md5=meta.md5, task=meta.task)

    def _view_of(self, upload_id: str, offset: int, length: int, touched: float) -> UploadView:
        expires = touched + self._limits.upload_expiry
        return UploadView(id=upload_id, offset=offset, length=length, expires=expires)


def _raise_unless_good(outcome: FileOutcome) -> None:
    """Say what became of an upload without a task that was not loaded."""
    if outcome.result in (Result.LOADED, Result.ALREADY):
        return
    kind = _ERRORS.get(outcome.result, DigestError)
    extra: dict[str, object] = {"device": outcome.device} if outcome.device else {}
    raise kind(f"{outcome.path}: {outcome.reason}", extra=extra)
