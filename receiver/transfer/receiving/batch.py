"""Many small files in one body: each is judged by itself, the good ones are put away together.

The disk flushes many files for little more than one. So some are open at once, and the flush of the
first is waited for when all of them are on their way.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from common import crash
from common.digests import is_md5, md5
from common.durable import staying
from common.errors import (
    ConflictError,
    NotATsFileError,
    ProtocolError,
    TsferryError,
    UnsafePathError,
)
from common.names import FilePath
from common.wire import BatchAnswer, BatchEntry, BatchResult, check_block, decode_batch, to_problem
from receiver.datadirs.disks import disk_room
from receiver.transfer.intake import VerifiedBytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.durable import Tree, WriteFile
    from receiver.load.folder.current_task import CurrentTask, Planned
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.transfer.intake import Intake

__all__ = ["receive_batch"]

_OPEN: Final = 64
"""Files of one body that are open at once."""
_VERIFYING: Final = threading.Lock()
"""Held by the one thread that verifies: a file takes half a dozen calls of the system, and at each
of them several threads hand the interpreter to each other, which cost a fifth of the server's time.
Nobody waits for anything else in it, neither a disk nor a lock."""


def receive_batch(
    intake: Intake,
    folder: SenderFolder,
    current: CurrentTask,
    body: bytes | memoryview,
    partial_bytes: int,
) -> BatchAnswer:
    """Take a batch in; a file without a problem in the answer is on the disk and verified.

    Raises:
        ProtocolError: the body is no batch; nothing of it was taken.
        NoSpaceError: there is no room for it.
    """
    files = list(decode_batch(body))
    sizes = [entry.size for entry, _ in files]
    intake.check_room(folder, sum(sizes), partial_bytes, room=sum(map(disk_room, sizes)))
    with staying(folder.tree) as tree:
        return _receive(_Receiving(intake, folder, current, tree), files)


def _receive(receiving: _Receiving, files: Sequence[tuple[BatchEntry, memoryview]]) -> BatchAnswer:
    intake, folder = receiving.intake, receiving.folder
    results: list[BatchResult] = []
    try:
        for begin in range(0, len(files), _OPEN):
            results += receiving.take(files[begin : begin + _OPEN])
        crash.point("batch.received")
        stuck = _stage(intake, folder, list(receiving.good.values()))
        results = [stuck.get(each.path, each) for each in results]
        placed = (each.part for path, each in receiving.good.items() if path not in stuck)
        receiving.parts.difference_update(placed)
    finally:
        for part in receiving.parts:
            receiving.tree.unlink(part, sync=False)
    return BatchAnswer(results=results)


class _Written(msgspec.Struct, frozen=True):
    """A file that is on its way to the disk under the temporary name `part`."""

    entry: BatchEntry
    content: memoryview
    path: FilePath
    planned: Planned | None
    part: str
    file: WriteFile


_Judged = tuple[_Written, VerifiedBytes | TsferryError]


@dataclass
class _Receiving:
    """Takes the files of a body in, some at a time.

    Attributes:
        tree: that of the folder.
        good: those that are flushed and verified, by path.
        parts: temporary names that may be left.
    """

    intake: Intake
    folder: SenderFolder
    current: CurrentTask
    tree: Tree
    good: dict[str, VerifiedBytes] = field(default_factory=dict, init=False)
    parts: set[str] = field(default_factory=set, init=False)

    def take(self, files: Sequence[tuple[BatchEntry, memoryview]]) -> list[BatchResult]:
        """Write some files, flush them, then verify each."""
        with ExitStack() as opened:
            begun = [self._write(entry, content, opened) for entry, content in files]
            flushed = [
                self._flushed(each) if isinstance(each, _Written) else each for each in begun
            ]
            with _VERIFYING:
                judged = [self._judged(each) for each in flushed]
            return [
                each if isinstance(each, BatchResult) else self._settled(*each) for each in judged
            ]

    def _write(
        self, entry: BatchEntry, content: memoryview, opened: ExitStack
    ) -> _Written | BatchResult:
        try:
            path, planned = self._expected(entry, content)
            part = f"{self.folder.uploads}/{secrets.token_hex(16)}.part"
            self.parts.add(part)
            file = opened.enter_context(self.tree.create(part))
            file.write(content, at=0)
            file.begin_sync()
        except TsferryError as error:
            return _failed(entry.path, error)
        return _Written(entry, content, path, planned, part, file)

    def _expected(self, entry: BatchEntry, content: memoryview) -> tuple[FilePath, Planned | None]:
        """Where a file belongs, and what was planned, if it may come and is whole."""
        path = FilePath.parse(entry.path)
        self.intake.check_size(path, entry.size)
        if not is_md5(entry.md5):
            raise ProtocolError(f"{path}: {entry.md5[:40]!a} is no MD5 in hex")
        check_block(content, entry.xxh3, path.text)
        planned = self.current.planned.get(path.tsfile.text)
        if planned is not None and planned.refused is not None:
            raise ConflictError(f"{path}: the plan said {planned.refused}: {planned.reason}")
        return path, planned

    def _flushed(self, each: _Written) -> _Written | BatchResult:
        try:
            each.file.sync()
        except TsferryError as error:
            return _failed(each.entry.path, error)
        return each

    def _judged(self, each: _Written | BatchResult) -> _Judged | BatchResult:
        if isinstance(each, BatchResult):
            return each
        found = md5(each.content).hexdigest()
        try:
            return each, self.intake.verify(
                each.file.fileno(),
                each.path,
                each.part,
                found,
                expected=(each.entry.md5,),
                planned=each.planned,
                content=each.content,
            )
        except TsferryError as error:
            return each, error

    def _settled(self, each: _Written, found: VerifiedBytes | TsferryError) -> BatchResult:
        path = each.path.text
        if isinstance(found, VerifiedBytes):
            self.good[path] = found
            return BatchResult(path=path)
        if isinstance(found, NotATsFileError):
            fd, size = each.file.fileno(), each.entry.size
            try:
                self.intake.quarantine(self.folder, each.part, each.path, fd, size, found.message)
            except TsferryError as error:
                return _failed(path, error)
        return _failed(path, found)


def _stage(
    intake: Intake, folder: SenderFolder, files: list[VerifiedBytes]
) -> dict[str, BatchResult]:
    """Put the files in their places; what became of those in whose way something is, by path."""
    try:
        intake.stage(folder, files)
    except UnsafePathError:
        stuck = {}
        for each in files:
            try:
                intake.stage(folder, [each])
            except UnsafePathError as error:
                stuck[each.path.text] = _failed(each.path.text, error)
        return stuck
    return {}


def _failed(path: str, error: TsferryError) -> BatchResult:
    """What becomes of one file; an error that passes concerns all of the body."""
    if error.retry:
        raise error
    return BatchResult(
        path=path,
        problem=to_problem(error, path=path),
        quarantined=isinstance(error, NotATsFileError),
    )
