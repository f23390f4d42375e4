"""Proofs on another machine than the receiver's: files are fetched whole, for each question."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from common.durable import ScratchDirectory
from common.errors import ProtocolError, Transient
from receiver.executor.executor_files import FetchFailed
from receiver.superseding.asking import PartitionAsked
from receiver.superseding.partition_proof import ReadBytes, prove

if TYPE_CHECKING:
    from receiver.executor.executor_files import ExecutorFiles
    from receiver.executor.task_asked import TaskAsked
    from receiver.superseding.asking import FileAsked

__all__ = ["answer_proofs"]


class _FetchedBytes(ReadBytes):
    """Files of a receiver, which come when they are needed, and are compared with their MD5."""

    def __init__(self, files: ExecutorFiles) -> None:
        super().__init__()
        self._files = files

    def check(self, file: FileAsked) -> int:
        """Have a file, and compare it; see `ReadBytes.check`.

        Raises:
            FetchFailed: the receiver does not give it now, or there is no room for it here.
        """
        self._files.fetch(file)
        return super().check(file)


def answer_proofs(task: TaskAsked) -> bytes:
    """What is found of the candidates of a question.

    Args:
        task: its question is a `PartitionAsked`, packed, without paths.

    Raises:
        ProtocolError: it is no question.
        Transient: a file is not to be had now.
    """
    try:
        asked = msgspec.msgpack.decode(task.question, type=PartitionAsked)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"no question of proofs: {error}") from error
    with ScratchDirectory("tsferry-work") as scratch:
        files = task.files.placed(asked.files, Path(scratch.name))
        placed = msgspec.structs.replace(asked, files=files)
        try:
            return msgspec.msgpack.encode(prove(placed, _FetchedBytes(task.files)))
        except FetchFailed as error:
            raise Transient(str(error)) from error
