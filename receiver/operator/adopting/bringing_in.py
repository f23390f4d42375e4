"""Files of an old receiver come into their senders' folders, and are loaded there.

They are copied, or the files themselves are linked in: those lose their old names when all is
loaded, so that each has one at any moment, and is nobody else's in the end.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

import msgspec

from common import crash
from common.console.step_progress import StepCounter
from common.durable import Tree
from common.errors import BusyError, UsageError
from common.names import RESOURCE
from receiver.datadirs.disks import disk_room
from receiver.load.folder.current_task import start_task
from receiver.load.placing import tree_of
from receiver.operator.centre.centre_entries import (
    deletion_parts,
    entry_of,
    planned_as,
    resource_of_file,
)
from receiver.operator.centre.centre_files import CentreFile
from receiver.operator.centre.copied_in import copy_in, drop_parts, link_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from common.console.step_progress import HeardStep
    from common.wire import ResourceEntry
    from receiver.load.folder.current_task import CurrentTask, TaskRecord
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.loader import LoadJob
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.records import FileOutcome
    from receiver.operator.adopting.adopted_files import AdoptableFile
    from receiver.transfer.intake import Intake, VerifiedBytes

__all__ = ["BringingIn"]

_TASK_FILES: Final = 1000
_TASK_BYTES: Final = 4 << 30
"""Of a task: what has to be free while it goes on, and how long its sender is kept waiting."""
_AT_ONCE: Final = 64
"""Files that are flushed into their directories together."""


class BringingIn:
    """Takes files that were judged."""

    def __init__(
        self,
        engine: Engine,
        load: LoadService,
        intake: Intake,
        go_on: Callable[[], None],
        step: HeardStep,
    ) -> None:
        """Prepare.

        Args:
            engine: metadata.
            load: the loader.
            intake: verifies.
            go_on: called between two files; what it raises ends this.
            step: hears how far this is.
        """
        self._engine = engine
        self._load = load
        self._intake = intake
        self._go_on = go_on
        self._step = step

    def taken(
        self,
        record: TaskRecord,
        files: Sequence[AdoptableFile],
        addresses: Mapping[str, str],
        *,
        move: bool,
    ) -> dict[str, FileOutcome]:
        """Take the files of a sender, in tasks that all tell of one look."""
        folder = self._load.folder_of(record.sender, addresses.get(record.sender, ""))
        if move:
            _must_be_on_one_disk(folder, files)
        found: dict[str, FileOutcome] = {}
        # Of all its tasks: what they need to be loaded is in the rate, and in the time left.
        size = sum(each.candidate.staged.size for each in files)
        step = f"files of {record.sender[:8]}"
        counter = StepCounter(step, len(files), size, self._step.told)
        for number, part in enumerate(_parts(files)):
            ident = hashlib.sha256(f"{record.task}\n{number}".encode()).hexdigest()[:32]
            part_record = msgspec.structs.replace(record, task=ident)
            job = self._handed_in(folder, part_record, part, counter, move=move)
            done = self._loaded(job)
            found |= {str(each.file.source): done[each.candidate.path.text] for each in part}
        return found

    def _handed_in(
        self,
        folder: SenderFolder,
        record: TaskRecord,
        files: Sequence[AdoptableFile],
        counter: StepCounter,
        *,
        move: bool,
    ) -> LoadJob:
        """Bring files in and end their task: durable when this returns."""
        with folder.lock:
            _make_way(folder)
            sizes = [0 if move else each.candidate.staged.size for each in files]
            room = sum(map(disk_room, sizes))
            self._intake.check_room(folder, sum(sizes), 0, room=room, is_asked=True)
            current = start_task(folder, record)
            crash.point("adoption.begun")
            current.add_deletions(
                part
                for each in files
                if each.deletions
                for part in deletion_parts(each.file, each.candidate.path)
            )
            resources = {each.candidate.path.text: resource_of_file(each.file) for each in files}
            current.add_plan(
                planned_as(each.candidate, resources[each.candidate.path.text]) for each in files
            )
            self._bring_all(folder, files, resources, counter, move=move)
            crash.point("adoption.staged")
            current.end([entry_of(each.candidate, record.look, record.look) for each in files], [])
        return self._load.loader.submit(folder, current)

    def _bring_all(
        self,
        folder: SenderFolder,
        files: Sequence[AdoptableFile],
        resources: Mapping[str, ResourceEntry | None],
        counter: StepCounter,
        *,
        move: bool,
    ) -> None:
        staged: list[VerifiedBytes] = []
        try:
            for each in files:
                self._go_on()
                staged += self._brought(folder, each, resources[each.candidate.path.text], move)
                crash.point("adoption.brought")
                counter.done(each.candidate.staged.size)
                if len(staged) >= _AT_ONCE:
                    self._intake.stage(folder, staged)
                    staged = []
            self._intake.stage(folder, staged)
        except Exception:
            # A link that stays would be another name of an old file, and keep it from being moved.
            drop_parts(folder, (each.part for each in staged))
            raise

    def _brought(
        self,
        folder: SenderFolder,
        each: AdoptableFile,
        resource: ResourceEntry | None,
        move: bool,
    ) -> Iterator[VerifiedBytes]:
        """A file with what belongs to it, each under a temporary name; what is staged is not."""
        path = each.candidate.path
        if resource is not None and each.file.resource is not None:
            beside = CentreFile(each.file.resource, path.resource)
            yield copy_in(self._intake, folder, beside, path.resource, resource.md5)
        if not _is_staged(folder, each):
            bring = link_in if move else copy_in
            yield bring(self._intake, folder, each.file, path, each.candidate.staged.md5)

    def let_go(self, files: Sequence[AdoptableFile]) -> None:
        """End the old names of files that are loaded themselves, and not copies of them."""
        standing = self._load.disks.standing()
        for each in files:
            with self._engine.reading() as state:
                row = state.file_table.held(each.sender, each.candidate.path.text)
            tree = None if row is None else tree_of(standing, row)
            ours = None if row is None or tree is None else tree.stat(row.physical)
            source = each.file.source
            with Tree(source.parent) as there:
                old = there.stat(source.name)
                if ours is None or old is None or not os.path.samestat(ours, old):
                    continue
                there.unlink(source.name + RESOURCE)  # alone it would be forgotten
                for _, beside in each.file.deletions if each.deletions else ():
                    there.unlink(beside.name)
                crash.point("adoption.let_go")
                there.unlink(source.name, identity=(old.st_size, old.st_mtime_ns, old.st_ino))

    def _loaded(self, job: LoadJob) -> dict[str, FileOutcome]:
        """What became of a task, once it is committed and cleared away, if that can be now."""
        while True:
            self._load.loader.wait(lambda: job.done, 1.0)
            with self._engine.reading() as state:
                row = state.task_table.get(job.folder.uuid, job.task.id)
            if row is not None and (job.done or job.error is not None):
                return {each.path: each for each in row.outcomes}
            self._go_on()


def _must_be_on_one_disk(folder: SenderFolder, files: Sequence[AdoptableFile]) -> None:
    """See that files can be moved.

    Raises:
        UsageError: one cannot, or is somebody else's as well.
    """
    mine = folder.tree.path.stat().st_dev
    for each in files:
        found = each.file.source.lstat()
        if found.st_dev != mine:
            raise UsageError(
                f"{each.file.source}: not on the file system of {folder.tree.path}, where the "
                f"files of sender {folder.uuid} go: without --move it is copied"
            )
        if found.st_nlink > 1 and not _is_staged(folder, each):
            raise UsageError(
                f"{each.file.source}: has another name (hard link), under which it could be "
                "written to: without --move it is copied"
            )


def _parts(files: Sequence[AdoptableFile]) -> Iterator[list[AdoptableFile]]:
    """Files in the numbers and sizes that a task may have."""
    part: list[AdoptableFile] = []
    size = 0
    for each in files:
        if part and (len(part) >= _TASK_FILES or size + each.candidate.staged.size > _TASK_BYTES):
            yield part
            part, size = [], 0
        part.append(each)
        size += each.candidate.staged.size
    if part:
        yield part


def _make_way(folder: SenderFolder) -> None:
    """See that nothing is under way in a folder; what an adoption left there goes, not its files.

    Raises:
        BusyError: something is.
    """
    current: CurrentTask | None = folder.task
    if current is None:
        return
    if current.loading or not current.record.adopted:
        raise BusyError(
            f"sender {folder.uuid} has a task that is not over: adopt when it is, and nothing of "
            "that sender runs",
            retry_after=5,
        )
    folder.forget_task()


def _is_staged(folder: SenderFolder, file: AdoptableFile) -> bool:
    """Whether a file was copied by a try before this one, and lies there as it was verified."""
    path, wanted = file.candidate.path, file.candidate.staged
    known = folder.staged.get(path.text)
    return (
        known is not None
        and (known.size, known.md5) == (wanted.size, wanted.md5)
        and known.is_still(folder.tree.stat(folder.staged_at(path)))
    )
