"""Adoptions: files of an old receiver become files of the senders they came from.

First all is read where it lies, and what would become of each file is decided as if its sender had
sent it; a dry run ends there, and so does the rest if one file is refused. Then the files are
copied into their senders' folders, some at a time, and loaded by tasks of their own, which say that
they were adopted. Their owner comes with them. What a death cuts off is done again by the same
command: what is loaded is here already, and what was copied is not copied again. Files that are
moved are linked, and lose their old names when all is loaded: at each moment they have one. It is
told when copies are where a sender's task would wait for them too.

A sender that comes afterwards finds its files loaded, under its paths and with its contents: it
compares, and sends what is missing.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from common.config.shared_rules import PER_MILLISECOND
from common.console.step_progress import HeardStep, stepping
from common.errors import (
    BusyError,
    NotFoundError,
    ReadOnlyError,
    Transient,
    TsferryError,
    UsageError,
)
from common.names import is_sender_uuid, is_task_id
from common.wire import Propagate, Result
from receiver.load.folder.current_task import TaskRecord
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import centre_uuid, is_centre
from receiver.metadata.model.records import FileOutcome
from receiver.operator.adopting.adopted_files import Claims, look_at_files
from receiver.operator.adopting.adoption_judge import (
    TAKEN,
    decided_outcomes,
    devices_of_two,
    untaken_devices,
)
from receiver.operator.adopting.bringing_in import BringingIn
from receiver.operator.adopting.old_receiver import read_old_receiver
from receiver.operator.centre.centre_files import size_of
from receiver.operator.centre.load_owners import uuid_of
from receiver.operator.views.load_wire import AdoptionAnswer, AdoptionFile, AdoptionOddity
from receiver.operator.views.step_now import StepNow
from receiver.row_checks.check_process import CheckedRows, RowChecks
from receiver.transfer.acknowledging import ToldContent
from receiver.transfer.intake import Intake

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from receiver.config import ReceiverConfig
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.operator.adopting.adopted_files import AdoptableFile
    from receiver.operator.adopting.old_receiver import OldReceiver
    from receiver.operator.views.load_wire import AdoptionRequest
    from receiver.transfer.acknowledging import Acknowledging

__all__ = ["Adoptions"]

log = logging.getLogger(__name__)

_LOOK_AGAIN = 0.1
"""Seconds between two looks at whether what is loaded may be told."""


class Adoptions:
    """Adoptions: one at a time, each in a thread of its own, asked for by its id."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        load: LoadService,
        acknowledging: Acknowledging,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._engine = engine
        self._load = load
        self._acknowledging = acknowledging
        self._step = HeardStep()
        self._bringing = BringingIn(
            engine, load, Intake(config, engine, load, clock=clock), self._go_on, self._step
        )
        load_config = config.load
        self._rows = (
            RowChecks(
                load_config.constraints,
                memory=config.proofs.memory,
                seconds=load_config.constraint_time,
            )
            if load_config.check_adopted
            else None
        )
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
            self._step.forget()
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
        now = StepNow.of(self._step.now)
        return found or AdoptionAnswer(task=task, done=False, progress=now)

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
        if request.commit:
            self._acknowledging.must_take()
        old = read_old_receiver(paths, request.storage_group)
        good, odd = look_at_files(
            stepping("reading files", old.files, lambda each: size_of(each.file), self._step.told),
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
        self._step.begin("comparing with what is loaded")
        outcomes = self._judged(tasks, good)
        outcomes |= self._broken(good, outcomes)
        free, conflicts = untaken_devices(self._engine, old.owners, good)
        refused = bool(conflicts) or any(each.result not in TAKEN for each in outcomes.values())
        if request.commit and not refused:
            for record, files in tasks:
                fresh = [each for each in files if _is_fresh(outcomes, each)]
                outcomes |= self._bringing.taken(record, fresh, old.addresses, move=request.move)
            self._own(free)
            taken = [each for each in good if _is_taken(outcomes, each)]
            outcomes |= self._waited_for(taken)
            if request.move:
                self._bringing.let_go([each for each in taken if _is_taken(outcomes, each)])
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
            try:
                there = path.resolve()
            except (OSError, RuntimeError) as error:  # one or the other, by Python's version
                raise NotFoundError(
                    f"{path}: a link on the way leads to itself (namei {path} shows which)"
                ) from error
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
            look=(newest := self._engine.newest_commit) + 1,
            since=newest,
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

    def _broken(
        self, good: Sequence[AdoptableFile], outcomes: Mapping[str, FileOutcome]
    ) -> dict[str, FileOutcome]:
        """The first file that is fresh and has a row which does not pass the constraints."""
        if self._rows is None:
            return {}
        fresh = [each for each in good if _is_fresh(outcomes, each)]
        step = stepping(
            "checking rows", fresh, lambda each: each.candidate.staged.size, self._step.told
        )
        rows = (
            CheckedRows(str(each.file.source), str(each.file.source), each.candidate.path.sg)
            for each in step
        )
        found = self._rows.first_broken(rows, self._stopping.is_set)
        self._go_on()
        if found is None:
            return {}
        file, reason, device = found
        path = outcomes[file.name].path
        return {file.name: FileOutcome(path, Result.REFUSED, device=device, reason=reason)}

    def _waited_for(self, taken: Sequence[AdoptableFile]) -> dict[str, FileOutcome]:
        """Wait until it may be told: whoever asked removes what the old receiver has then.

        Returns:
            what became of those that are not to be relied on any more.
        """
        known = {
            str(each.file.source): ToldContent(each.candidate.staged, each.sender) for each in taken
        }
        may_tell = self._acknowledging.watch(known.values())
        while not may_tell():
            self._step.begin("waiting for copies elsewhere")
            self._go_on()
            self._stopping.wait(_LOOK_AGAIN)
        paths = {str(each.file.source): each.candidate.path.text for each in taken}
        return {
            source: FileOutcome(paths[source], Result.MISSING, reason=why)
            for source, content in known.items()
            if (why := self._acknowledging.why_missing(content)) is not None
        }

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise ReadOnlyError("the receiver is being stopped", retry_after=5)

    def _own(self, devices: Mapping[str, str]) -> None:
        """Let devices without files belong to whom they belonged to, if nobody took them since."""
        for device, uuid in devices.items():
            self._load.folder_of(uuid, "")
            guards = [Guard("owner", device, 0)]
            self._engine.commit([records.OwnerSet(device, uuid, "adopted")], guards)


def _by_sender(files: Sequence[AdoptableFile]) -> dict[str, list[AdoptableFile]]:
    found: dict[str, list[AdoptableFile]] = defaultdict(list)
    for each in files:
        found[each.sender].append(each)
    return dict(sorted(found.items()))


def _is_fresh(outcomes: Mapping[str, FileOutcome], file: AdoptableFile) -> bool:
    return outcomes[str(file.file.source)].result == "loaded"


def _is_taken(outcomes: Mapping[str, FileOutcome], file: AdoptableFile) -> bool:
    return outcomes[str(file.file.source)].result in ("loaded", "already")


def _told(file: AdoptableFile, outcome: FileOutcome) -> AdoptionFile:
    return AdoptionFile(
        source=str(file.file.source),
        path=outcome.path,
        sender=file.sender,
        size=file.candidate.staged.size,
        result=str(outcome.result),
        device=outcome.device,
        reason=outcome.reason,
        deletions=file.deletions,
    )
