"""What uploads and batches share: is there room, are the bytes good, and where do they go.

The order for a good file: flush it, move it to `data/<path>`, flush the directories, record it in
verified.log, then in sync.log. Only then may the sender be told.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.digests import md5_of_fd
from common.durable import staying
from common.errors import (
    DigestError,
    GoneError,
    NoSpaceError,
    ProtocolError,
    TooLargeError,
    TsferryError,
    UnsafePathError,
)
from common.names import FilePath, is_sender_uuid
from common.tsfile.tail_digest import tail_digest
from receiver.load.folder.content_checks import check_content, check_md5, record_of
from receiver.load.folder.obstacles import is_of_one_path, obstacle
from receiver.load.tail_facts import facts_worth_keeping
from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from common.tsfile import TsFileOrigin
    from receiver.config import ReceiverConfig
    from receiver.load.folder.content_checks import SingleTask
    from receiver.load.folder.current_task import CurrentTask, Planned
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.folder.staged import Verified
    from receiver.load.service import LoadService
    from receiver.load.tail_facts import TailFacts
    from receiver.metadata.engine import Engine
    from receiver.principal import Principal

__all__ = ["Intake", "VerifiedBytes", "check_sender"]

log = logging.getLogger(__name__)

_READ_BACK_BYTES = 16 << 20
"""Of the largest file that is read once more before it counts. It is in the page cache, so this
costs its MD5: 0.03 ms for 16 KiB, 2 ms for 1 MiB, 50 ms for 16 MiB (medians of 7 on two busy
cores, 2026-11-28). In a larger one a byte that the kernel or the disk lost is
found by the next verification; its tail and index are read in any case."""
_TRY_AGAIN = 60.0
_QUARANTINE_SHARE = 8


class VerifiedBytes(msgspec.Struct, frozen=True):
    """A whole file that is flushed under a temporary name, `part`, and verified.

    Attributes:
        path: that it will have.
        part: its temporary name.
        record: of what was verified.
        facts: what a load wants to know of it, where that is worth keeping.
    """

    path: FilePath
    part: str
    record: Verified
    facts: TailFacts | None


class Intake:
    """Takes verified files in."""

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

    # -- who -------------------------------------------------------------------------------

    def folder(self, who: Principal, sender: str) -> SenderFolder:
        """The folder of the sender that this principal speaks for, in order.

        Raises:
            ForbiddenError: it may not speak for that sender.
            ProtocolError: the uuid is none.
            Transient: something is in the way of it.
        """
        check_sender(who, sender)
        return self._load.folder_of(sender, who.peer)

    def open_task(self, folder: SenderFolder, task: str) -> CurrentTask:
        """The task, if it is the one that is open.

        Raises:
            GoneError: it is not.
        """
        current = folder.task
        if current is None or current.id != task or current.loading:
            raise GoneError(f"task {task} is not open here; start it, or another one")
        return current

    # -- room ------------------------------------------------------------------------------

    def check_room(
        self,
        folder: SenderFolder,
        size: int,
        partial_bytes: int,
        *,
        room: int | None = None,
        is_asked: bool = False,
    ) -> None:
        """Whether `size` more bytes may come.

        Args:
            folder: of their sender.
            size: bytes.
            partial_bytes: of uploads of this sender that have begun.
            room: that they take on the disk, where they are many files.
            is_asked: whether somebody has asked for it and is told. Of a sender, which comes again
                by itself, it is remembered that there was no room, and shown as a problem.

        Raises:
            NoSpaceError: not now.
        """
        limits = self._config.limits
        free = self._load.space.room(folder)
        used = folder.staged.bytes + partial_bytes
        if (room or size) > free:
            if is_asked:
                self._load.space.make_room(room or size)
            else:
                self._load.space.note_shortage(folder.uuid, free=size, room=room or size)
            raise NoSpaceError(
                f"{size} bytes are to come, {max(0, free)} are free; try later",
                retry_after=_TRY_AGAIN,
            )
        if used + size > limits.max_unloaded_bytes:
            if not is_asked:
                self._load.space.note_shortage(folder.uuid, quota=size)
            raise NoSpaceError(
                f"{used} bytes of this sender wait to be loaded, {size} more are to come, and "
                f"limits.max_unloaded_bytes is {limits.max_unloaded_bytes}",
                retry_after=_TRY_AGAIN,
            )
        if not is_asked:
            self._load.space.note_taken(folder.uuid, size)

    def check_size(self, path: FilePath, size: int) -> None:
        """Whether a file may be so large.

        Raises:
            ProtocolError: the size is negative.
            TooLargeError: it may not.
        """
        limit = self._config.limits.max_file_bytes
        if size < 0:
            raise ProtocolError(f"{path}: a negative size")
        if size > limit:
            raise TooLargeError(f"{path}: more bytes than limits.max_file_bytes, {limit}")

    # -- bytes -----------------------------------------------------------------------------

    def verify(
        self,
        fd: int,
        path: FilePath,
        part: str,
        md5: str,
        *,
        expected: Iterable[str | None],
        planned: Planned | None,
        content: memoryview | None = None,
        single: SingleTask | None = None,
        commit: int = 0,
    ) -> VerifiedBytes:
        """Check a whole file.

        Args:
            fd: open, flushed.
            path: that it will have.
            part: its temporary name.
            md5: of its bytes, computed here.
            expected: what the sender has said it is, in whatever place.
            planned: its TsFile's entry in the plan.
            content: the bytes that came, of a file that came in one piece.
            single: its task, if it is one of its own.
            commit: the newest one when the bytes began to come, where the plan does not tell.

        Raises:
            DigestError: MD5 or tail are not what was said.
            NotATsFileError: it is none.
        """
        check_md5(path, md5, *expected)
        if planned is not None and not path.is_resource:
            check_md5(path, md5, planned.md5)
        source = _read_back(fd, path, md5, content)
        tail = check_content(source, path)
        record = record_of(
            fd,
            path,
            md5,
            source=source,
            at=self._clock(),
            single=single,
            commit=commit if planned is None else planned.commit,
        )
        if planned is not None:
            _compare(record, path, planned)
        facts = facts_worth_keeping(source, tail, path.sg) if tail is not None else None
        return VerifiedBytes(path, part, record, facts)

    def stage(self, folder: SenderFolder, files: list[VerifiedBytes]) -> None:
        """Put verified files in their places; when this returns they are there for good.

        If that cannot be done now they are under their temporary names again.

        Raises:
            UnsafePathError: something stands in the way of one of them.
        """
        if not files:
            return
        with folder.lock:
            try:
                _place(folder, files)
                folder.staged.put(each.record for each in files)
                for each in files:
                    if each.facts is not None:
                        folder.facts.put(folder.uuid, each.record, each.facts.pack())
            except Exception as error:
                _take_back(folder, files)
                if isinstance(error, OSError) and is_of_one_path(error):
                    why = obstacle(folder.tree, folder.staged_at(files[0].path), error)
                    raise UnsafePathError(f"{files[0].path} cannot be taken in: {why}") from error
                raise
            crash.point("intake.recorded")
            current = folder.task
            if current is not None and not current.loading:
                listed = (each.path for each in files if each.record.single is None)
                current.add_files(listed)
        crash.point("intake.listed")

    def quarantine(
        self, folder: SenderFolder, part: str, path: FilePath, fd: int, size: int, reason: str
    ) -> None:
        """Set a file that is no TsFile aside, for an operator; the bytes stay if there is room.

        What was in quarantine under this path with other content is cleared.
        """
        digest = tail_digest(fd)
        key = (folder.uuid, path.text, digest)
        with self._engine.reading() as state:
            rows = state.quarantine_table.at_path(folder.uuid, path.text)
            kept_bytes = sum(
                row.size
                for row in state.quarantine.values()
                if row.sender == folder.uuid and row.kept is not None
            )
        room = self._config.limits.max_unloaded_bytes // _QUARANTINE_SHARE
        kept = None
        if kept_bytes + size <= room:
            target = f"{folder.quarantine}/{digest}-{part.rpartition('/')[2][:8]}"
            with folder.beside("quarantine"):
                folder.tree.make_dirs(folder.quarantine)
                folder.tree.rename(part, target)
                kept = target
            crash.point("intake.quarantine_moved")
        ops: list[records.Op] = [
            records.QuarantineDrop(row.sender, row.path, row.digest)
            for row in rows
            if row.digest != digest
        ]
        ops.append(records.QuarantinePut(*key, size=size, hold=True, reason=reason, kept=kept))
        self._engine.commit(ops)
        crash.point("intake.quarantined")
        for row in rows:
            if row.kept is not None and row.kept != kept:
                with folder.beside("quarantine"):
                    folder.tree.unlink(row.kept, sync=False)
        log.warning("quarantined", extra={"path": path.text, "reason": reason})


def _compare(record: Verified, path: FilePath, planned: Planned) -> None:
    """See that a file is what was planned.

    Raises:
        DigestError: it is not.
    """
    if path.is_resource:
        known = planned.resource
        if known is not None and (known.size, known.md5) != (record.size, record.md5):
            raise DigestError(f"{path}: {record.size} bytes with MD5 {record.md5}, not as planned")
    elif (record.size, record.tail) != (planned.size, planned.tail):
        raise DigestError(
            f"{path}: {record.size} bytes, tail digest {record.tail}; planned were "
            f"{planned.size} bytes, {planned.tail}"
        )


def _read_back(fd: int, path: FilePath, md5: str, content: memoryview | None) -> TsFileOrigin:
    """See that a small file has the bytes that came, not only that these were the right ones.

    Returns:
        what to go on reading: the file, or its bytes if all of them were read at once.

    Raises:
        DigestError: a byte was lost between here and the file.
    """
    size = os.fstat(fd).st_size
    if content is not None and (there := os.pread(fd, size, 0)) == bytes(content):
        return there
    if size > _READ_BACK_BYTES:
        return fd
    found = md5_of_fd(fd)
    if found != md5:
        raise DigestError(f"{path}: came with MD5 {md5}, and is read back with MD5 {found}")
    return fd


def _place(folder: SenderFolder, files: list[VerifiedBytes]) -> None:
    directories = sorted({folder.at(f"data/{each.path.directory}") for each in files})
    with staying(folder.tree) as tree:
        for directory in directories:
            tree.make_dirs(directory)
        for each in files:
            tree.rename(each.part, folder.staged_at(each.path), sync=False)
            crash.point("intake.moved")
    for directory in [*directories, folder.uploads]:
        folder.tree.sync_dir(directory)
    crash.point("intake.synced")


def _take_back(folder: SenderFolder, files: list[VerifiedBytes]) -> None:
    """Undo `_place` as far as it came; what cannot be undone now is found at the next start."""
    for each in files:
        with suppress(TsferryError, OSError):
            if not folder.tree.exists(each.part):
                folder.tree.rename(folder.staged_at(each.path), each.part, sync=False)


def check_sender(who: Principal, sender: str) -> None:
    """Whether a principal may speak for a sender.

    Raises:
        ForbiddenError: it may not.
        ProtocolError: the uuid is none.
    """
    if not is_sender_uuid(sender):
        raise ProtocolError(f"{sender[:60]!a} is no sender uuid (32 lower-case hex digits)")
    who.must_send_for(sender)
