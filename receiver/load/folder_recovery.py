"""Putting a sender's folder in order: at start, and before each task.

1. Half-written files go; verified files that lost their record are verified again.
2. Without sync.log, what else is there of a task is stale and goes.
3. With it: is the task's outcome committed, the rest of its finish is done. Otherwise, with a
   durable `sync end`, it is loaded again. Without `sync end` nothing is loaded; the task stays open
   for its sender, who resumes it, or drops it by starting another.
4. Uploads without a task that were verified and not loaded are loaded.

Each step can be cut off anywhere and done again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from common import crash
from common.errors import NameRefusedError, NotATsFileError
from common.names import FilePath
from common.wire import ManifestEntry, Propagate
from receiver.load.deciding.known_files.candidates import physical_name
from receiver.load.folder.content_checks import hash_staged
from receiver.load.folder.current_task import CurrentTask, TaskRecord, open_task
from receiver.load.folder.obstacles import is_of_one_path
from receiver.load.loading import finish
from receiver.metadata.model.centre_source import centre_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.durable import Tree
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.folder.staged import Verified
    from receiver.metadata.engine import Engine

__all__ = ["recover_folder", "single_task"]

log = logging.getLogger(__name__)


def recover_folder(
    engine: Engine,
    trees: Sequence[Tree],
    folder: SenderFolder,
    *,
    clock: Callable[[], float],
    keep_bytes: int,
) -> list[CurrentTask]:
    """Put a folder in order; returns the tasks in it that are to be loaded."""
    with folder.lock:
        folder.make()
        folder.sweep()
        crash.point("recovery.swept")
        _verify_strays(folder, folder.staged.open(), clock())
        crash.point("recovery.staged")
        pending = _recover_task(engine, trees, folder, keep_bytes)
        pending += _singles(folder)
        folder.recovered = True
        return pending


def _recover_task(
    engine: Engine, trees: Sequence[Tree], folder: SenderFolder, keep_bytes: int
) -> list[CurrentTask]:
    if folder.task is not None:
        folder.task.close()
    task = open_task(folder)
    if task is None or (task.record.centre is not None and not task.loading):
        folder.forget_task()
        if task is not None:
            log.warning(
                "a load at the centre was cut off before its files were whole, and nothing of it "
                "is loaded",
                extra={"task": task.id},
            )
        if folder.uuid == centre_uuid(engine.uuid):  # who said it says it again, and copies anew
            folder.staged.discard([each.path for each in folder.staged.all()])
            crash.point("recovery.centre_swept")
        return []
    with engine.reading() as state:
        done = state.task_table.has(folder.uuid, task.id)
    if done:
        finish(engine, trees, folder, task, keep_bytes=keep_bytes)
        return []
    return [task] if task.loading else []


def _singles(folder: SenderFolder) -> list[CurrentTask]:
    """Uploads without a task that are verified, where they were received or already moved."""
    found = []
    for staged in folder.staged.all():
        if staged.single is None:
            continue
        path = FilePath.parse(staged.path)
        moved = physical_name(folder.uuid, staged.single, path).text
        if folder.tree.exists(folder.staged_at(path)) or folder.tree.exists(moved):
            found.append(single_task(folder, staged))
        else:
            folder.staged.drop([staged.path])
    return found


def _verify_strays(folder: SenderFolder, strays: list[str], at: float) -> None:
    """Take files without a record for verified only if they are, as far as can be told."""
    good = []
    for text in strays:
        try:
            path = FilePath.parse(text)
            good.append(hash_staged(folder.tree, folder.staged_at(path), path, at=at))
        except OSError as error:
            if not is_of_one_path(error):
                raise
            log.warning("a received file cannot be read: %s: %s", text, error)
        except (NameRefusedError, NotATsFileError) as error:
            log.warning("a received file cannot be used", extra={"error": str(error)})
            name = text.replace("/", "_")[-200:]
            with folder.beside("quarantine"):
                folder.tree.rename(folder.at(f"data/{text}"), f"{folder.quarantine}/{name}")
    for directory in sorted({folder.staged.at(each.path).rpartition("/")[0] for each in good}):
        folder.tree.sync_dir(directory)
    folder.staged.put(good)


def single_task(folder: SenderFolder, staged: Verified) -> CurrentTask:
    """The task of one file that an upload without a task is."""
    assert staged.single is not None
    record = TaskRecord(
        task=staged.single,
        sender=folder.uuid,
        propagate=Propagate.NEVER,
        scope=staged.scope,
        token=staged.token,
        started=staged.at,
        manifest=[
            ManifestEntry(path=staged.path, size=staged.size, md5=staged.md5, series=0, points=0)
        ],
        single=True,
        since=staged.commit,
    )
    return CurrentTask(folder, record, {}, None)
