"""Loads at the centre, without an edge: looked at, copied in, and loaded as a task of their own.

First all files are read where they lie, and what would become of them is decided, as a dry run
does; if one is refused, nothing is written. Then what is new is copied into the folder of the
centre's own source (a link would let whoever writes to the original change what is loaded), checked
against what was read before, and handed to the loader, which decides once more on what is committed
by then. One commit has all of it. What is cut off before its end is swept at the next start.
"""

from __future__ import annotations

import logging
import secrets
import threading
from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.config.shared_rules import PER_MILLISECOND
from common.errors import (
    BusyError,
    ForbiddenError,
    NotFoundError,
    ReadOnlyError,
    Transient,
    TsferryError,
    UsageError,
)
from common.names import is_task_id
from common.step_progress import HeardStep, stepping
from common.wire import Propagate, Result
from receiver.datadirs.disks import disk_room
from receiver.load.folder.current_task import CentreMandate, TaskRecord, start_task
from receiver.metadata.model.centre_source import centre_uuid
from receiver.metadata.model.records import FileOutcome
from receiver.operator.centre_entries import (
    deletion_parts,
    entry_of,
    planned_as,
    resource_of_file,
    told,
)
from receiver.operator.centre_files import CentreFile, find_files, looked_at, size_of
from receiver.operator.copied_in import copy_in
from receiver.operator.load_judge import LoadJudge
from receiver.operator.load_owners import LoadOwners
from receiver.operator.load_wire import CentreLoadAnswer, StepNow
from receiver.shared_points.compare_process import CompareProcess
from receiver.transfer.acknowledging import ToldContent
from receiver.transfer.intake import Intake
from receiver.transfer.look_numbers import latest_look

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.names import FilePath
    from receiver.config import ReceiverConfig
    from receiver.load.deciding.candidates import Candidate
    from receiver.load.folder.current_task import CurrentTask
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.loader import LoadJob
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.operator.load_owners import LoadRights
    from receiver.operator.load_wire import CentreLoadRequest
    from receiver.transfer.acknowledging import Acknowledging
    from receiver.transfer.intake import VerifiedBytes

__all__ = ["ON_DUPLICATE", "CentreLoads"]

log = logging.getLogger(__name__)

ON_DUPLICATE = ("error", "keep", "replace", "skip")
"""What may become of points of a device and time that have points here already."""
_UNTOLD = "it is loaded, and not yet in the object store, or at as many nodes, as is waited for"
_WAITING = "waiting for copies elsewhere"
_LOOK_AGAIN = 0.1
"""Seconds between two looks at whether a load may be told."""
_AT_ONCE = 64
"""Files that are flushed into their directories together."""


class CentreLoads:
    """Loads at the centre: one at a time, each in a thread of its own, asked for by its id."""

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
        self._intake = Intake(config, engine, load, clock=clock)
        self._judge = LoadJudge(config, engine, load, CompareProcess(memory=config.proofs.memory))
        self._clock = clock
        self._step = HeardStep()
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._known: tuple[str, CentreLoadAnswer | Exception | None] | None = None
        self._thread: threading.Thread | None = None

    @property
    def source(self) -> str:
        """The uuid that these loads have where senders have theirs."""
        return centre_uuid(self._engine.uuid)

    def close(self) -> None:
        """Stop what is being copied; what is handed to the loader is loaded."""
        self._stopping.set()
        with self._changed:
            thread = self._thread
        if thread is not None:
            thread.join()

    # -- asked for by its id -----------------------------------------------------------------

    def begin(
        self,
        request: CentreLoadRequest,
        staged: Sequence[CentreFile] = (),
        *,
        rights: LoadRights | None = None,
        since: int = 0,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin a load, or go on with the one of this id.

        Args:
            request: what is asked for.
            staged: files that came for it, in place of paths of this machine.
            rights: of a writer; None of an operator.
            since: the newest commit when the files began to come; 0: that of now.
            ended: called when it is over, before anybody is told.

        Raises:
            BusyError: another one is under way.
            UsageError: it asks for what there is not.
        """
        _check(request)
        with self._changed:
            if self._known is not None:
                task, found = self._known
                if task == request.task and not isinstance(found, Transient):
                    return
                if found is None:
                    raise BusyError("another load at the centre is under way", retry_after=5)
            self._known = request.task, None
            self._step.forget()
            self._thread = threading.Thread(
                target=self._run,
                args=(request, staged, rights, since, ended),
                name="centre-load",
                daemon=True,
            )
            self._thread.start()

    def mandate(
        self, request: CentreLoadRequest, rights: LoadRights | None = None
    ) -> CentreMandate:
        """What a load may do.

        Args:
            request: what is asked for.
            rights: of a writer; None of an operator.

        Raises:
            NotFoundError, UsageError: it asks for what there is not.
            ForbiddenError: it asks for what that writer may not.
        """
        _check(request)
        may_overlap = request.on_duplicate != "error"
        is_below = request.on_duplicate == "skip"
        if rights is not None and not rights.may_overwrite and may_overlap and not is_below:
            raise ForbiddenError(
                f"this token may load nothing above points that are there, and on_duplicate is "
                f"{request.on_duplicate}: expected error or skip"
            )
        with self._engine.reading() as state:
            uuid = self._engine.uuid
            owners = LoadOwners.of(state, uuid, request.owner, request.others, rights)
        return CentreMandate(
            owner=owners.owner,
            others=list(owners.others),
            anyone=owners.anyone,
            own=owners.own,
            may_overlap=may_overlap,
            is_below=is_below,
        )

    def is_under_way(self, task: str) -> bool:
        """Whether a load is neither done nor refused."""
        with self._changed:
            return self._known == (task, None)

    def has_begun(self, task: str) -> bool:
        """Whether an answer is there or comes; not where it has to be asked for once more."""
        with self._changed:
            known = self._known
        return known is not None and known[0] == task and not isinstance(known[1], Transient)

    def is_done(self, task: str) -> bool:
        """Whether a load is committed, or refused in a commit of its own."""
        with self._engine.reading() as state:
            return state.task_table.has(self.source, task)

    def answer(self, task: str, wait: float) -> CentreLoadAnswer:
        """What became of the last load, or that it is under way, after `wait` seconds at most.

        Raises:
            NotFoundError: it is not the last one.
            TsferryError, OSError: it failed so.
        """
        with self._changed:
            if self._known is None or self._known[0] != task:
                return self._remembered(task)
            self._changed.wait_for(lambda: self._known is None or self._known[1] is not None, wait)
            found = None if self._known is None else self._known[1]
        if isinstance(found, Exception):
            raise found
        return found or CentreLoadAnswer(
            task=task, done=False, trouble=self._trouble(), progress=StepNow.of(self._step.now)
        )

    def _remembered(self, task: str) -> CentreLoadAnswer:
        """What became of a load that another process began, or that others came behind."""
        with self._engine.reading() as state:
            row = state.task_table.get(self.source, task)
        if row is None:
            raise NotFoundError(f"load {task[:40]!a} is not known here: say it again")
        if not self._acknowledging.may_tell(row):
            return CentreLoadAnswer(task=task, done=False, trouble=_UNTOLD)
        files = [told(each, each.path, 0) for each in self._acknowledging.outcomes(row)]
        return CentreLoadAnswer(task=task, done=True, files=files)

    def _run(
        self,
        request: CentreLoadRequest,
        staged: Sequence[CentreFile],
        rights: LoadRights | None,
        since: int,
        ended: Callable[[], None],
    ) -> None:
        found: CentreLoadAnswer | Exception
        try:
            found = self.load(request, staged, rights, since)
        except Exception as error:
            if not isinstance(error, TsferryError | OSError):
                log.exception("a load at the centre failed", extra={"task": request.task})
            found = error
        if not isinstance(found, Transient):  # which may be asked once more
            ended()
        with self._changed:
            self._known = request.task, found
            self._changed.notify_all()

    # -- the load ----------------------------------------------------------------------------

    def load(
        self,
        request: CentreLoadRequest,
        staged: Sequence[CentreFile] = (),
        rights: LoadRights | None = None,
        since: int = 0,
    ) -> CentreLoadAnswer:
        """Look at files, and load them unless it is a dry run or one is refused.

        Args:
            request: what is asked for.
            staged: files that came for it, in place of paths of this machine.
            rights: of a writer; None of an operator.
            since: see `begin`.

        Raises:
            NotFoundError: there is nothing to load, or no such sender.
            NotATsFileError: a file is none, or not closed.
            UsageError: as the request or the layout has it.
            TsferryError, OSError: it cannot be done now; nothing of it is left.
        """
        since = since or self._engine.newest_commit
        mandate = self.mandate(request, rights)
        if not request.dry_run:
            self._acknowledging.must_take()
        files = staged or find_files(request.paths, request.storage_group)
        looked: dict[str, tuple[CentreFile, Candidate]] = {}
        seen: dict[str, str] = {}
        outcomes: dict[str, FileOutcome] = {}
        sources: dict[str, str] = {}
        for number, file in enumerate(stepping("reading files", files, size_of, self._step.told)):
            self._go_on()
            candidate = looked_at(
                file, request.task, number, interval=self._interval(), at=self._clock()
            )
            path, content = candidate.path.text, candidate.staged.md5
            sources[path] = str(file.source)
            if content in seen:
                why = f"as {seen[content]}"
                outcomes[path] = FileOutcome(path, Result.ALREADY, reason=why)
            else:
                seen[content] = str(file.source)
                looked[path] = file, candidate
        record = TaskRecord(
            task=request.task,
            sender=self.source,
            propagate=Propagate.NEVER,
            scope=[] if rights is None else list(rights.scope),
            token=None if rights is None else rights.token,
            started=self._clock(),
            look=latest_look(self._engine),
            centre=mandate,
            since=since,
            manifest=[],
        )
        self._step.begin("comparing with what is loaded")
        record, found = self._judge.outcomes(
            record, looked, among_new=bool(staged), stopped=self._stopping.is_set
        )
        self._go_on()
        outcomes |= found
        sizes = {path: each.staged.size for path, (_, each) in looked.items()}
        fresh = {path: looked[path] for path in looked if outcomes[path].result is Result.LOADED}
        refused = any(each.result is Result.REFUSED for each in outcomes.values())
        if not refused and not request.dry_run:
            if fresh:
                outcomes |= self._carry_out(record, list(fresh.values()))
            # They came by another task, which may not be told yet.
            known = {
                path: ToldContent(each.staged)
                for path, (_, each) in looked.items()
                if outcomes[path].result is Result.ALREADY
            }
            self._wait_for(self._acknowledging.watch(known.values()))
            for path, told_of in known.items():
                if (bad := self._acknowledging.why_missing(told_of)) is not None:
                    outcomes[path] = FileOutcome(path, Result.MISSING, reason=bad)
        return CentreLoadAnswer(
            task=request.task,
            done=True,
            dry_run=request.dry_run,
            files=[
                told(outcomes[path], source, sizes.get(path, 0)) for path, source in sources.items()
            ],
        )

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise ReadOnlyError("the receiver is being stopped", retry_after=5)

    def _interval(self) -> int:
        return self._config.partition_interval_ms * PER_MILLISECOND[self._config.time_unit]

    # -- copied in, and loaded ---------------------------------------------------------------

    def _carry_out(
        self, record: TaskRecord, files: Sequence[tuple[CentreFile, Candidate]]
    ) -> dict[str, FileOutcome]:
        folder = self._load.centre_folder()
        with folder.lock:
            if folder.task is not None:
                raise BusyError("the load before this one is not over", retry_after=5)
            sizes = [each.staged.size for _, each in files]
            room = sum(map(disk_room, sizes))
            self._intake.check_room(folder, sum(sizes), 0, room=room)
            try:
                current = self._copied(folder, record, files)
            except BaseException:
                self._sweep(folder)
                raise
        return self._outcomes(self._load.loader.submit(folder, current))

    def _copied(
        self,
        folder: SenderFolder,
        record: TaskRecord,
        files: Sequence[tuple[CentreFile, Candidate]],
    ) -> CurrentTask:
        """Copy files in and end the task: durable when this returns."""
        current = start_task(folder, msgspec.structs.replace(record, manifest=None))
        crash.point("centre.begun")
        current.add_deletions(
            part for file, each in files for part in deletion_parts(file, each.path)
        )
        resources = {each.path.text: resource_of_file(file) for file, each in files}
        current.add_plan(planned_as(each, resources[each.path.text]) for _, each in files)
        first = self._judge.first_look(record)
        staged: list[VerifiedBytes] = []
        told = self._step.told
        for file, candidate in stepping("copying", files, lambda each: each[1].staged.size, told):
            self._go_on()
            path, resource = candidate.path, resources[candidate.path.text]
            if resource is not None and file.resource is not None:
                beside = CentreFile(file.resource, path.resource)
                staged.append(self._copy(folder, beside, path.resource, resource.md5))
            take = self._move if file.staged else self._copy
            staged.append(take(folder, file, path, candidate.staged.md5))
            crash.point("centre.copied")
            if len(staged) >= _AT_ONCE:
                self._intake.stage(folder, staged)
                staged = []
        self._intake.stage(folder, staged)
        crash.point("centre.staged")
        current.end([entry_of(each, first, record.look) for _, each in files], [])
        return current

    def _move(
        self, folder: SenderFolder, file: CentreFile, path: FilePath, expected: str
    ) -> VerifiedBytes:
        """A file that is nobody else's, under a temporary name, flushed and verified."""
        part = f"{folder.uploads}/{secrets.token_hex(16)}.part"
        with folder.tree.open_write(file.staged) as moved:
            moved.sync()
            folder.tree.rename(file.staged, part)
            return self._intake.verify(
                moved.fileno(), path, part, expected, expected=(expected,), planned=None
            )

    def _copy(
        self, folder: SenderFolder, file: CentreFile, path: FilePath, expected: str
    ) -> VerifiedBytes:
        return copy_in(self._intake, folder, file, path, expected)

    def _sweep(self, folder: SenderFolder) -> None:
        """Remove what was copied, and the task; what cannot be now is at the next start."""
        try:
            folder.forget_task()
            folder.staged.discard([each.path for each in folder.staged.all()])
            folder.sweep()
        except (TsferryError, OSError) as error:
            log.warning("what a load has left is swept later", extra={"error": str(error)})

    def _outcomes(self, job: LoadJob) -> dict[str, FileOutcome]:
        """What became of the task, once it is committed, cleared away, and may be told."""
        self._step.begin("loading")
        while True:
            self._load.loader.wait(lambda: job.done, 1.0)
            with self._engine.reading() as state:
                row = state.task_table.get(self.source, job.task.id)
            if row is not None and (job.done or job.error is not None):
                break
            self._go_on()
        self._wait_for(lambda: self._acknowledging.may_tell(row))
        return {each.path: each for each in self._acknowledging.outcomes(row)}

    def _wait_for(self, may_tell: Callable[[], bool]) -> None:
        while not may_tell():
            self._step.begin(_WAITING)
            self._go_on()
            self._stopping.wait(_LOOK_AGAIN)

    def _trouble(self) -> str | None:
        """Why what is copied in, or loaded, has to wait, None while it goes on."""
        now = self._step.now
        if now is not None and now.step == _WAITING:
            return _UNTOLD
        folder = self._load.folders.find(self.source)
        task = None if folder is None else folder.task
        return None if task is None else task.trouble


def _check(request: CentreLoadRequest) -> None:
    if not is_task_id(request.task):
        raise UsageError(f"{request.task[:60]!a} is no id of a load (32 lower-case hex digits)")
    if request.on_duplicate not in ON_DUPLICATE:
        raise UsageError(f"on_duplicate: expected one of {', '.join(ON_DUPLICATE)}")
