"""Many small files in one body: each is judged by itself, the good ones are put away together."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from common import crash
from common.digests import is_md5, md5
from common.errors import (
    ConflictError,
    NotATsFileError,
    ProtocolError,
    TsferryError,
    UnsafePathError,
)
from common.names import FilePath
from common.wire import BatchAnswer, BatchEntry, BatchResult, check_block, decode_batch, to_problem
from receiver.transfer.intake import VerifiedBytes

if TYPE_CHECKING:
    from receiver.load.folder.current_task import CurrentTask
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.transfer.intake import Intake

__all__ = ["receive_batch"]


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
    intake.check_room(folder, sum(entry.size for entry, _ in files), partial_bytes)
    results: list[BatchResult] = []
    good: dict[str, VerifiedBytes] = {}
    parts: list[str] = []
    try:
        for entry, content in files:
            part = f"{folder.uploads}/{secrets.token_hex(16)}.part"
            parts.append(part)
            try:
                received = _receive(intake, folder, current, entry, content, part)
                good[received.path.text] = received
                results.append(BatchResult(path=entry.path))
            except TsferryError as error:
                if error.retry:
                    raise
                results.append(_failed(entry.path, error))
        crash.point("batch.received")
        stuck = _stage(intake, folder, list(good.values()))
        results = [stuck.get(each.path, each) for each in results]
    finally:
        for part in parts:
            folder.tree.unlink(part, sync=False)
    return BatchAnswer(results=results)


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


def _receive(
    intake: Intake,
    folder: SenderFolder,
    current: CurrentTask,
    entry: BatchEntry,
    content: memoryview,
    part: str,
) -> VerifiedBytes:
    path = FilePath.parse(entry.path)
    intake.check_size(path, entry.size)
    if not is_md5(entry.md5):
        raise ProtocolError(f"{path}: {entry.md5[:40]!a} is no MD5 in hex")
    check_block(content, entry.xxh3, path.text)
    planned = current.planned.get(path.tsfile.text)
    if planned is not None and planned.refused is not None:
        raise ConflictError(f"{path}: the plan said {planned.refused}: {planned.reason}")
    with folder.tree.create(part) as file:
        file.write(content)
        file.sync()
        found = md5(content).hexdigest()
        try:
            record = intake.verify(
                file.fileno(), path, found, expected=(entry.md5,), planned=planned
            )
        except NotATsFileError as error:
            intake.quarantine(folder, part, path, file.fileno(), entry.size, error.message)
            raise
    return VerifiedBytes(path, part, record)


def _failed(path: str, error: TsferryError) -> BatchResult:
    return BatchResult(
        path=path,
        problem=to_problem(error, path=path),
        quarantined=isinstance(error, NotATsFileError),
    )
