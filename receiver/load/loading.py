"""Loading one task: collect, decide, move, commit, finish. Every step can be done again.

    collect   the verified files of the manifest, read once more by the receiver itself
    decide    `load.change`, on committed state
    move      files to their final names, directories synced
    commit    all of the task in one
    finish    load.log, clean-up of the folder

A crash before the commit leaves files under their final names without a row: the next attempt
finds them there. A crash after it leaves only the finish to do.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from common import crash
from common.errors import ConflictError, NotATsFileError, TooLargeError, TsferryError
from common.linelog import LoadLog
from common.names import FilePath
from common.tsfile import read_tail
from common.wire import Result
from receiver.load.change import Candidate, Change, decide_change, physical_name
from receiver.load.placing import move_back, move_in
from receiver.load.verify import hash_staged
from receiver.metadata import records
from receiver.metadata.errors import GuardFailed, RefusedCommitError
from receiver.metadata.rules import examine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from common.wire import ManifestEntry
    from receiver.load.folders import SenderFolder
    from receiver.load.staged import Verified
    from receiver.load.task import CurrentTask
    from receiver.metadata.engine import Engine

__all__ = ["finish", "load_task"]

log = logging.getLogger(__name__)

_ATTEMPTS = 20
"""Decisions that may be overtaken by an operator before the load waits a moment."""
_DROPPED = frozenset({Result.ALREADY, Result.REFUSED, Result.QUARANTINED, Result.EXPIRED})
Outcome = records.Outcome


def load_task(
    engine: Engine,
    folder: SenderFolder,
    current: CurrentTask,
    *,
    clock: Callable[[], float],
    keep_bytes: int,
) -> None:
    """Make one attempt to load a task and to clean up after it.

    Args:
        engine: the metadata engine.
        folder: of the sender.
        current: the task; its end is durable.
        clock: seconds since the epoch.
        keep_bytes: of files in conflict that may stay for a later round.

    Raises:
        TsferryError, OSError: it could not be done now; making another attempt is safe.
    """
    with folder.lock:
        with engine.reading() as state:
            done = state.has_task(folder.uuid, current.id)
        if not done:
            _commit(engine, folder, current, clock)
        finish(engine, folder, current, keep_bytes=keep_bytes)


def _commit(
    engine: Engine, folder: SenderFolder, current: CurrentTask, clock: Callable[[], float]
) -> None:
    collected = _Collected(folder, current, clock)
    collected.read()
    for _ in range(_ATTEMPTS):
        with engine.reading() as state:
            change = decide_change(
                state,
                current.record,
                current.planned,
                collected.candidates,
                collected.failed,
                data_dir=str(folder.tree.path),
            )
        crash.point("load.decided")
        _place(folder, current, change)
        try:
            engine.commit(change.ops, change.guards)
        except (GuardFailed, ConflictError):
            continue
        except TooLargeError:
            collected.put_off(change)
            continue
        except RefusedCommitError as error:
            collected.leave_out(engine, change, error)
            continue
        crash.point("load.committed")
        _tell(folder, current, change)
        for kept in change.kept_gone:
            folder.tree.unlink(kept, sync=False)
        return
    raise GuardFailed(f"task {current.id}: overtaken {_ATTEMPTS} times; tried again in a moment")


def _tell(folder: SenderFolder, current: CurrentTask, change: Change) -> None:
    done = [op for op in change.ops if isinstance(op, records.TaskDone)]
    counts = Counter(each.result.value for op in done for each in op.outcomes)
    log.info("a task is committed", extra={"sender": folder.uuid, "task": current.id, **counts})


def _place(folder: SenderFolder, current: CurrentTask, change: Change) -> None:
    """Move what is loaded in, and what an earlier decision had moved, and this does not, out."""
    loads = {load.candidate.path for load in change.loads}
    every = [FilePath.parse(entry.path) for entry in current.record.manifest or ()]
    move_back(
        folder.tree,
        [
            (folder.staged_at(each), physical_name(folder.uuid, current.id, each))
            for path in every
            if path not in loads
            for each in (path, path.resource)
        ],
    )
    moves = []
    for load in change.loads:
        moves.append((folder.staged_at(load.candidate.path), load.physical))
        if load.candidate.resource is not None:
            moves.append((folder.staged_at(load.candidate.path.resource), load.physical.resource))
    move_in(folder.tree, moves)


class _Collected:
    """The files of a manifest: those that can be loaded, and why the others cannot."""

    def __init__(
        self, folder: SenderFolder, current: CurrentTask, clock: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._current = current
        self._clock = clock
        self.candidates: dict[str, Candidate] = {}
        self.failed: dict[str, Outcome] = {}

    def read(self) -> None:
        """Look at each file of the manifest."""
        for entry in self._current.record.manifest or ():
            self._read(entry)

    def _read(self, entry: ManifestEntry) -> None:
        path = FilePath.parse(entry.path)
        found = self._locate(path)
        if found is None:
            self._fail(path, Result.MISSING, "not received")
            return
        staged, rel = found
        if (staged.size, staged.md5) != (entry.size, entry.md5):
            self._fail(
                path,
                Result.MISSING,
                f"received with {staged.size} bytes and MD5 {staged.md5}, the manifest has "
                f"{entry.size} bytes and MD5 {entry.md5}",
            )
            return
        resource = self._resource(path)
        if isinstance(resource, str):
            self._fail(path, Result.MISSING, resource)
            return
        self._candidate(path, staged, rel, resource, entry)

    def _candidate(
        self,
        path: FilePath,
        staged: Verified,
        rel: str,
        resource: Verified | None,
        entry: ManifestEntry,
    ) -> None:
        fd = self._folder.tree.open_read(rel)
        try:
            tail = read_tail(fd, structure=True)
        finally:
            os.close(fd)
        if not tail.complete:  # it was complete when it was verified: the disk has lost it
            self._fail(path, Result.QUARANTINED, f"{tail.status}: {tail.reason}")
            return
        self.candidates[path.text] = Candidate(
            path=path,
            staged=staged,
            resource=resource,
            version=tail.version or 0,
            devices=[
                records.DeviceRange(each.name_in(path.sg), each.start, each.end)
                for each in tail.devices
            ],
            first=tail.first_time,
            last=tail.last_time,
            series=tail.series_count,
            points=tail.point_count,
            # An upload without a task comes with no manifest: ours has no counts to compare with.
            manifest=None
            if self._current.record.single
            else records.ManifestMeta(entry.series, entry.points),
        )

    def _resource(self, path: FilePath) -> Verified | str | None:
        """The resource that was planned with a file; in words what is wrong with it."""
        planned = self._current.planned.get(path.text)
        if planned is None or planned.resource is None:
            return None
        found = self._locate(path.resource)
        if found is None:
            return "its .resource was not received"
        wanted = planned.resource
        if (found[0].size, found[0].md5) != (wanted.size, wanted.md5):
            return "its .resource was received with other content than planned"
        return found[0]

    def _locate(self, path: FilePath) -> tuple[Verified, str] | None:
        """A verified file of the task, where it was received or where an attempt has moved it.

        Without a record that fits what is there, it is hashed.
        """
        folder = self._folder
        record = folder.staged.get(path.text)
        physical = physical_name(folder.uuid, self._current.id, path).text
        for rel in (folder.staged_at(path), physical):
            found = folder.tree.stat(rel)
            if found is None:
                continue
            if record is not None and record.is_still(found):
                return record, rel
            with suppress(NotATsFileError):
                return hash_staged(folder.tree, rel, path, at=self._clock()), rel
        return None

    def put_off(self, change: Change) -> None:
        """Leave half of the loads for the next round: one commit cannot hold them all."""
        loads = change.loads
        keep = len(loads) // 2
        for load in loads[keep:]:
            path = load.candidate.path
            del self.candidates[path.text]
            if keep:
                self._fail(path, Result.MISSING, "too many devices for one commit; once more")
            else:
                self._fail(path, Result.REFUSED, "too many devices for one commit")

    def leave_out(self, engine: Engine, change: Change, error: RefusedCommitError) -> None:
        """Quarantine the files that the engine will never take, so that the others get through.

        Raises:
            RefusedCommitError: no single file is to blame.
        """
        blamed = False
        for op in change.ops:
            if not isinstance(op, records.FileLoaded):
                continue
            with engine.reading() as state:
                held = state.held(op.sender, op.path)
                before = [] if held is None else [records.FileDeleted(held.physical, "replaced")]
                try:
                    examine(state, [*before, op])
                except TsferryError as why:
                    blamed = True
                    del self.candidates[op.path]
                    self._fail(FilePath.parse(op.path), Result.QUARANTINED, why.message)
        if not blamed:
            raise error

    def _fail(self, path: FilePath, result: Result, reason: str) -> None:
        hold = result is Result.QUARANTINED
        self.failed[path.text] = Outcome(path.text, result, reason=reason, hold=hold)


# -- after the commit ----------------------------------------------------------------------------


def finish(engine: Engine, folder: SenderFolder, current: CurrentTask, *, keep_bytes: int) -> None:
    """Do what follows the commit of a task; the same again after a crash in the middle.

    Called late for a task whose folder is already at the next one, it does nothing.
    """
    with engine.reading() as state:
        row = state.task(folder.uuid, current.id)
    if row is None or not _is_there(folder, current):
        current.close()
        return
    outcomes = row.outcomes
    if not current.record.single:
        _write_load_log(folder, outcomes)
        crash.point("finish.load_log")
    _clear_staged(folder, outcomes, keep_bytes)
    crash.point("finish.staged")
    if not current.record.single:
        folder.forget_task()
    crash.point("finish.done")


def _is_there(folder: SenderFolder, current: CurrentTask) -> bool:
    """Whether the folder still holds what belongs to this task."""
    if not current.record.single:
        return folder.task is not None and folder.task.id == current.id
    paths = [entry.path for entry in current.record.manifest or ()]
    staged = [folder.staged.get(path) for path in paths]
    return all(each is not None and each.single == current.id for each in staged)


def _write_load_log(folder: SenderFolder, outcomes: Iterable[Outcome]) -> None:
    load_log = LoadLog.open(folder.tree, folder.at("load.log"))
    try:
        load_log.record(
            deleted=[FilePath.parse(each.path) for each in _with(outcomes, Result.DELETED)],
            loaded=[FilePath.parse(each.path) for each in _with(outcomes, Result.LOADED)],
        )
    finally:
        load_log.close()


def _clear_staged(folder: SenderFolder, outcomes: list[Outcome], keep_bytes: int) -> None:
    """Forget what has moved, remove what nobody wants.

    What is in conflict, or was left by a task that was dropped, stays for a later round, the
    oldest only as long as it does not take the room of what is to come.
    """
    staged = folder.staged
    staged.drop(_and_resources(_with(outcomes, Result.LOADED)))
    unwanted = [each for each in outcomes if each.result in _DROPPED]
    unwanted += _with(outcomes, Result.DELETED) + _with(outcomes, Result.RETIRED)
    staged.discard(_and_resources(unwanted))
    for old in sorted(staged.all(), key=lambda each: each.at):
        if staged.bytes <= keep_bytes:
            break
        if old.single is None:
            staged.discard([old.path])
    _remove_empty(folder, outcomes)


def _remove_empty(folder: SenderFolder, outcomes: Iterable[Outcome]) -> None:
    directories = {FilePath.parse(each.path).directory for each in outcomes}
    for directory in sorted(directories):
        while directory and folder.tree.remove_empty(folder.at(f"data/{directory}")):
            directory = directory.rpartition("/")[0]


def _with(outcomes: Iterable[Outcome], result: Result) -> list[Outcome]:
    return [each for each in outcomes if each.result is result]


def _and_resources(outcomes: Iterable[Outcome]) -> list[str]:
    paths = [FilePath.parse(each.path) for each in outcomes]
    return [text for path in paths for text in (path.text, path.resource.text)]
