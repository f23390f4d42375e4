"""Merges on another machine than the receiver's: files come, outputs go, nothing of both stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from common.console.step_progress import StepCounter
from common.durable import ScratchDirectory, free_bytes
from common.errors import (
    ConflictError,
    NoSpaceError,
    ProtocolError,
    StoppedError,
    Transient,
)
from receiver.background.side_process import ProcessDied
from receiver.compaction.merge_pace import MergePace
from receiver.compaction.merge_process import MergeProcess, MergeRefused, MergeReply
from receiver.compaction.worth_merging.merge_asked import MergeQuestion
from receiver.executor.executor_files import FetchFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.compaction.merge_process import MergesFiles
    from receiver.compaction.worth_merging.merge_asked import MergeAnswer, MergeAsked
    from receiver.executor.task_asked import TaskAsked
    from receiver.superseding.asking import FileAsked

__all__ = ["answer_merge"]

_BLOCK: Final = 4 << 20
_SLACK: Final = 64 << 20
"""Bytes that outputs may be larger than their inputs."""


def answer_merge(
    task: TaskAsked,
    process: Callable[[int], MergesFiles] = lambda memory: MergeProcess(memory=memory),
    pace: Callable[[int, Callable[[], bool]], MergePace] = MergePace,
) -> bytes:
    """Merge the files of a question, and send what comes out; a `MergeReply`, packed.

    Args:
        task: its question is a `MergeQuestion`, packed.
        process: gives what merges, in so many bytes of memory.
        pace: of fetching and sending, from bytes a second and what says that it is over.

    Raises:
        ConflictError: the task is somebody else's by now.
        NoSpaceError: this machine has no room for it.
        ProtocolError: it is no question.
        Transient: a file is not to be had now.
    """
    try:
        question = msgspec.msgpack.decode(task.question, type=MergeQuestion)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"no question of a merge: {error}") from error
    with ScratchDirectory("tsferry-work") as scratch:
        folder = Path(scratch.name)
        placed = msgspec.structs.replace(
            question.asked,
            files=tuple(task.files.placed(question.asked.files, folder)),
            directory=scratch.name,
            memory=min(question.asked.memory, task.memory // 3),
        )
        paced = pace(question.asked.bytes_per_second, task.is_lost)
        try:
            _fetch(task, placed.files, folder, paced)
            answer = _merged(task, placed, process(task.memory))
        except (ValueError, MergeRefused) as error:
            return msgspec.msgpack.encode(MergeReply(None, why=str(error)))
        except ProcessDied as error:
            return msgspec.msgpack.encode(MergeReply(None, why=str(error), died=True))
        _send(task, answer, min(_BLOCK, question.block), paced)
    # The receiver reads in the files themselves which devices they have.
    outputs = tuple(msgspec.structs.replace(each, path="", devices=()) for each in answer.outputs)
    return msgspec.msgpack.encode(MergeReply(msgspec.structs.replace(answer, outputs=outputs)))


def _fetch(task: TaskAsked, files: Sequence[FileAsked], folder: Path, pace: MergePace) -> None:
    missing = [each for each in files if not Path(each.path or "").exists()]
    size, total = sum(each.size for each in missing), sum(each.size for each in files)
    need, free = size + total + _SLACK, free_bytes(folder)
    if free < need:
        raise NoSpaceError(
            f"merging {len(files)} files may take {need} bytes in {folder.parent} of the "
            f"executor, and {free} are free"
        )
    counter = StepCounter("files are fetched", len(missing), size, task.told)
    try:
        task.files.fetch_all(missing, task.is_lost, counter.done, pace.take)
    except FetchFailed as error:
        raise Transient(str(error)) from error
    except FileNotFoundError as error:  # it has ended since: what is merged is chosen anew
        raise Transient(str(error)) from error


def _merged(task: TaskAsked, asked: MergeAsked, process: MergesFiles) -> MergeAnswer:
    StepCounter("files are merged", len(asked.files), 0, task.told)
    try:
        return process.ask(asked, task.is_lost, lambda: False)
    except ProcessDied as error:
        if task.is_lost():
            raise ConflictError("the task is somebody else's by now, or was stopped") from error
        raise
    except NoSpaceError as error:
        raise NoSpaceError(f"the disk of the executor: {error.message}") from error
    finally:
        process.close()


def _send(task: TaskAsked, answer: MergeAnswer, block: int, pace: MergePace) -> None:
    total = sum(each.size for each in answer.outputs)
    counter = StepCounter("merged files are sent", len(answer.outputs), total, task.told)
    for number, output in enumerate(answer.outputs, 1):
        fd = os.open(output.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            offset = 0
            while piece := os.pread(fd, block, offset):
                _wait(pace, len(piece))
                task.put(number, offset, piece)
                offset += len(piece)
                counter.done(len(piece), 0)
            counter.done(0)
        finally:
            os.close(fd)


def _wait(pace: MergePace, size: int) -> None:
    try:
        pace.take(size)
    except StoppedError as error:
        raise ConflictError("the task is somebody else's by now, or was stopped") from error
