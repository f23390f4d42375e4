"""Adoptions: files of an old receiver become files of the senders they came from.

First all is read where it lies, and what would become of each file is decided as if its sender had
sent it; a dry run ends there, and so does the rest if one file is refused. Then the files are
copied into their senders' folders, some at a time, and loaded by tasks of their own, which say that
they were adopted. Their owner comes with them. What a death cuts off is done again by the same
command: what is loaded is here already, and what was copied is not copied again.

A sender that comes afterwards finds its files loaded, under its paths and with its contents: it
compares, and sends what is missing.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from common import crash
from common.config.shared_rules import PER_MILLISECOND
from common.errors import (
    BusyError,
    NotFoundError,
    ReadOnlyError,
    Transient,
    TsferryError,
    UsageError,
)
from common.names import is_sender_uuid, is_task_id
from common.wire import Propagate
from receiver.disks import disk_room
from receiver.load.folder.current_task import TaskRecord, start_task
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import centre_uuid, is_centre
from receiver.operator.adopting.adopted_files import Claims, look_at_files
from receiver.operator.adopting.adoption_judge import (
    TAKEN,
    decided_outcomes,
    devices_of_two,
    untaken_devices,
)
from receiver.operator.adopting.old_receiver import read_old_receiver
from receiver.operator.centre_entries import entry_of, planned_as, resource_of_file
from receiver.operator.centre_files import CentreFile
from receiver.operator.copied_in import copy_in
from receiver.operator.load_owners import uuid_of
from receiver.operator.wire import AdoptionAnswer, AdoptionFile, AdoptionOddity
from receiver.transfer.intake import Intake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from common.wire import ResourceEntry
    from receiver.config import ReceiverConfig
    from receiver.load.folder.current_task import CurrentTask
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.loader import LoadJob
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.records import FileOutcome
    from receiver.operator.adopting.adopted_files import AdoptableFile
    from receiver.operator.adopting.old_receiver import OldReceiver
    from receiver.operator.wire import AdoptionRequest
    from receiver.transfer.intake import VerifiedBytes

__all__ = ["Adoptions"]

log = logging.getLogger(__name__)

_TASK_FILES: Final = 1000
_TASK_BYTES: Final = 4 << 30
"""Of a task: what has to be free while it goes on, and how long its sender is kept waiting."""
_AT_ONCE: Final = 64
"""Files that are flushed into their directories together."""


class Adoptions:
    """Adoptions: one at a time, each in a thread of its own, asked for by its id."""

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
        self._intake = Intake(config, engine, load, clock=clock)
        self._clock = clock
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._known: tuple[str, AdoptionAnswer | Exception | None] | None = None
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Stop what is being copied; what is handed to the loader is loaded."""
        self._stopping.set()
        with self._changed:
            thread = self._thread
        if thread is not None:
            thread.join()

    # -- asked for by its id -----------------------------------------------------------------

    def begin(self, request: AdoptionRequest) -> None:
        """Begin an adoption, or go on waiting for the one of this id.

        Raises:
            BusyError: another one is under way.
            UsageError: it asks for what there is not.
        """
        if not is_task_id(request.task):
            raise UsageError(f"{request.task[:60]!a} is no id (32 lower-case hex digits)")
        with self._changed:
            if self._known is not None:
                task, found = self._known
                if task == request.task and not isinstance(found, Transient):
                    return
                if found is None:
                    raise BusyError("another adoption is under way", retry_after=5)
            self._known = request.task, None
            self._thread = threading.Thread(
                target=self._run, args=(request,), name="adoption", daemon=True
            )
            self._thread.start()

    def answer(self, task: str, wait: float) -> AdoptionAnswer:
        """What became of the last adoption, or that it is under way, after `wait` seconds at most.

        Raises:
            NotFoundError: it is not the last one.
            TsferryError, OSError: it failed so.
        """
        with self._changed:
            if self._known is None or self._known[0] != task:
                raise NotFoundError(f"adoption {task[:40]!a} is not known here: say it again")
            self._changed.wait_for(lambda: self._known is None or self._known[1] is not None, wait)
            found = None if self._known is None else self._known[1]
        if isinstance(found, Exception):
            raise found
        return found or AdoptionAnswer(task=task, done=False)

    def _run(self, request: AdoptionRequest) -> None:
        found: AdoptionAnswer | Exception
        try:
            found = self.adopt(request)
        except Exception as error:
            if not isinstance(error, TsferryError | OSError):
                log.exception("an adoption failed", extra={"task": request.task})
            found = error
        with self._changed:
            self._known = request.task, found
            self._changed.notify_all()

    # -- the adoption ------------------------------------------------------------------------

    def adopt(self, request: AdoptionRequest) -> AdoptionAnswer:
        """Look at all files, and take them unless it is a dry run or one is refused.

        Raises:
            NotFoundError: there is no such directory or sender.
            UsageError: a directory is one of this receiver's.
            BusyError: one of the senders is at work.
            TsferryError, OSError: it cannot be done now; said again it goes on.
        """
        paths = [Path(each) for each in request.paths]
        self._must_be_others(paths)
        old = read_old_receiver(paths, request.storage_group)
        good, odd = look_at_files(
            old.files,
            self._claims(request, old),
            interval=self._config.partition_interval_ms * PER_MILLISECOND[self._config.time_unit],
            at=self._clock(),
            with_deleted=request.with_deleted,
            between=self._go_on,
        )
        source = ", ".join(request.paths)
        tasks = [
            (self._record(request, uuid, source), files) for uuid, files in _by_sender(good).items()
        ]
        outcomes = self._judged(tasks, good)
        free, conflicts = untaken_devices(self._engine, old.owners, good)
        refused = bool(conflicts) or any(each.result not in TAKEN for each in outcomes.values())
        if request.commit and not refused:
            for record, files in tasks:
                fresh = [each for each in files if _is_fresh(outcomes, each)]
                outcomes |= self._taken(record, fresh, old.addresses)
            self._own(free)
        notes = [
            AdoptionOddity(source=each.source, reason=each.reason) for each in (*old.odd, *odd)
        ]
        notes += [AdoptionOddity(source=source, reason=each) for each in conflicts]
        return AdoptionAnswer(
            task=request.task,
            done=True,
            committed=request.commit and not refused,
            files=[_told(each, outcomes[str(each.file.source)]) for each in good],
            odd=notes,
            devices=free,
        )

    def _must_be_others(self, paths: Sequence[Path]) -> None:
        for path in paths:
            there = path.resolve()
            for own in (self._config.schema_dir, *self._config.data_dirs):
                mine = own.resolve()
                if there == mine or there in mine.parents or mine in there.parents:
                    raise UsageError(
                        f"{path}: {own} is a directory of this receiver, and only another one's "
                        "can be adopted: give it directories of its own"
                    )

    def _claims(self, request: AdoptionRequest, old: OldReceiver) -> Claims:
        centre = centre_uuid(self._engine.uuid)
        with self._engine.reading() as state:

            def uuid(name: str) -> str:
                found = name if is_sender_uuid(name) else uuid_of(state, centre, name)
                if is_centre(found):
                    raise UsageError(f"{name}: what is adopted came from a sender")
                return found

            groups = {group: uuid(name) for group, name in request.groups.items()}
            default = uuid(request.owner) if request.owner else ""
        if not default and len(old.addresses) == 1:
            default = next(iter(old.addresses))
        return Claims(old.owners, groups, default)

    def _record(self, request: AdoptionRequest, sender: str, source: str) -> TaskRecord:
        ident = hashlib.sha256(f"{request.task}\n{sender}".encode()).hexdigest()[:32]
        return TaskRecord(
            task=ident,
            sender=sender,
            propagate=Propagate.NEVER,
            started=self._clock(),
            scope=[],
            look=self._engine.newest_commit + 1,
            adopted=source,
        )

    def _judged(
        self,
        tasks: Sequence[tuple[TaskRecord, Sequence[AdoptableFile]]],
        good: Sequence[AdoptableFile],
    ) -> dict[str, FileOutcome]:
        """What would become of each file, by where it lies."""
        outcomes: dict[str, FileOutcome] = {}
        for record, files in tasks:
            self._go_on()
            found = decided_outcomes(self._config, self._engine, self._load, record, files)
            outcomes |= {str(each.file.source): found[each.candidate.path.text] for each in files}
        return outcomes | devices_of_two(good)

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise ReadOnlyError("the receiver is being stopped", retry_after=5)

    def _own(self, devices: Mapping[str, str]) -> None:
        """Let devices without files belong to whom they belonged to, if nobody took them since."""
        for device, uuid in devices.items():
            self._load.folder_of(uuid, "")
            guards = [Guard("owner", device, 0)]
            self._engine.commit([records.OwnerSet(device, uuid, "adopted")], guards)

    # -- copied in, and loaded ---------------------------------------------------------------

    def _taken(
        self, record: TaskRecord, files: Sequence[AdoptableFile], addresses: Mapping[str, str]
    ) -> dict[str, FileOutcome]:
        """Take the files of a sender, in tasks that all tell of one look."""
        folder = self._load.folder_of(record.sender, addresses.get(record.sender, ""))
        found: dict[str, FileOutcome] = {}
        for number, part in enumerate(_parts(files)):
            ident = hashlib.sha256(f"{record.task}\n{number}".encode()).hexdigest()[:32]
            part_record = msgspec.structs.replace(record, task=ident)
            job = self._handed_in(folder, part_record, part)
            done = self._loaded(job)
            found |= {str(each.file.source): done[each.candidate.path.text] for each in part}
        return found

    def _handed_in(
        self, folder: SenderFolder, record: TaskRecord, files: Sequence[AdoptableFile]
    ) -> LoadJob:
        """Copy files in and end their task: durable when this returns."""
        with folder.lock:
            _make_way(folder)
            sizes = [each.candidate.staged.size for each in files]
            room = sum(map(disk_room, sizes))
            self._intake.check_room(folder, sum(sizes), 0, room=room)
            current = start_task(folder, record)
            crash.point("adoption.begun")
            resources = {each.candidate.path.text: resource_of_file(each.file) for each in files}
            current.add_plan(
                planned_as(each.candidate, resources[each.candidate.path.text]) for each in files
            )
            self._copy_all(folder, files, resources)
            crash.point("adoption.staged")
            current.end([entry_of(each.candidate, record.look, record.look) for each in files], [])
        return self._load.loader.submit(folder, current)

    def _copy_all(
        self,
        folder: SenderFolder,
        files: Sequence[AdoptableFile],
        resources: Mapping[str, ResourceEntry | None],
    ) -> None:
        staged: list[VerifiedBytes] = []
        for each in files:
            self._go_on()
            path = each.candidate.path
            resource = resources[path.text]
            if resource is not None and each.file.resource is not None:
                beside = CentreFile(each.file.resource, path.resource)
                staged.append(copy_in(self._intake, folder, beside, path.resource, resource.md5))
            if not _is_staged(folder, each):
                md5 = each.candidate.staged.md5
                staged.append(copy_in(self._intake, folder, each.file, path, md5))
            crash.point("adoption.copied")
            if len(staged) >= _AT_ONCE:
                self._intake.stage(folder, staged)
                staged = []
        self._intake.stage(folder, staged)

    def _loaded(self, job: LoadJob) -> dict[str, FileOutcome]:
        """What became of a task, once it is committed and cleared away, if that can be now."""
        while True:
            self._load.loader.wait(lambda: job.done, 1.0)
            with self._engine.reading() as state:
                row = state.task_table.get(job.folder.uuid, job.task.id)
            if row is not None and (job.done or job.error is not None):
                return {each.path: each for each in row.outcomes}
            self._go_on()


def _by_sender(files: Sequence[AdoptableFile]) -> dict[str, list[AdoptableFile]]:
    found: dict[str, list[AdoptableFile]] = defaultdict(list)
    for each in files:
        found[each.sender].append(each)
    return dict(sorted(found.items()))


def _is_fresh(outcomes: Mapping[str, FileOutcome], file: AdoptableFile) -> bool:
    return outcomes[str(file.file.source)].result == "loaded"


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


def _told(file: AdoptableFile, outcome: FileOutcome) -> AdoptionFile:
    return AdoptionFile(
        source=str(file.file.source),
        path=outcome.path,
        sender=file.sender,
        size=file.candidate.staged.size,
        result=str(outcome.result),
        device=outcome.device,
        reason=outcome.reason,
    )
