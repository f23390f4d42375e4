"""Loads at the centre, without an edge: looked at, copied in, and loaded as a task of their own.

First all files are read where they lie, and what would become of them is decided, as a dry run
does; if one is refused, nothing is written. Then what is new is copied into the folder of the
centre's own source (a link would let whoever writes to the original change what is loaded), checked
against what was read before, and handed to the loader, which decides once more on what is committed
by then. One commit has all of it. What is cut off before its end is swept at the next start.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from common.errors import (
    BusyError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    Transient,
    UsageError,
)
from common.names import is_task_id
from common.wire import Propagate, Result
from receiver.load.deciding.decision_pauses import pauses
from receiver.load.folder.current_task import CentreMandate, TaskRecord
from receiver.metadata.model.centre_source import centre_uuid
from receiver.metadata.model.records import FileOutcome
from receiver.operator.centre.centre_entries import told
from receiver.operator.centre.centre_files import CentreFile, find_files, name_prefix
from receiver.operator.centre.centre_looks import CentreLooks, LookedFiles
from receiver.operator.centre.centre_runs import LOOK_AGAIN, CentreRuns
from receiver.operator.centre.load_carrier import LoadCarrier
from receiver.operator.centre.load_judge import LoadJudge
from receiver.operator.centre.load_owners import LoadOwners
from receiver.operator.views.load_views import CentreLoadView
from receiver.operator.views.load_wire import CentreLoadAnswer
from receiver.operator.views.step_now import StepNow
from receiver.shared_points.compare_process import CompareProcess
from receiver.transfer.acknowledging import ToldContent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.config import ReceiverConfig
    from receiver.load.folder.current_task import CurrentTask
    from receiver.load.loader import LoadJob
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import TaskRow
    from receiver.operator.centre.centre_runs import LoadRun
    from receiver.operator.centre.load_owners import LoadRights
    from receiver.operator.views.load_wire import CentreLoadRequest
    from receiver.transfer.acknowledging import Acknowledging

__all__ = ["ON_DUPLICATE", "CentreLoads"]

log = logging.getLogger(__name__)

ON_DUPLICATE = ("error", "keep", "replace", "skip")
"""What may become of points of a device and time that have points here already."""
_UNTOLD = "it is loaded, and not yet in the object store, or at as many nodes, as is waited for"
_WAITING = "waiting for copies elsewhere"
_LOADING = "loading"
_ENDS_WITHIN = 10.0
"""Seconds for which the end of a load that is cancelled is waited for."""


class CentreLoads:
    """Loads at the centre: each in a thread of its own, asked for by its id."""

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
        judge = LoadJudge(config, engine, load, CompareProcess(memory=config.proofs.memory))
        self._looks = CentreLooks(config, engine, judge, clock=clock)
        self._carrier = LoadCarrier(config, engine, load, judge.first_look, clock=clock)
        self._clock = clock
        self._runs = CentreRuns(clock, self.is_done)

    @property
    def source(self) -> str:
        """The uuid that these loads have where senders have theirs."""
        return centre_uuid(self._engine.uuid)

    def close(self) -> None:
        """Stop what is being copied; what is handed to the loader is loaded."""
        self._runs.close()

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
            BusyError: too many are under way.
            UsageError: it asks for what there is not.
        """
        _check(request)
        if self._runs.get(request.task) is None and self._is_known(request.task):
            return  # by an earlier process, which had handed it over
        self._runs.begin(request, lambda run: self.load(request, staged, rights, since, run), ended)

    def _is_known(self, task: str) -> bool:
        return self._handed_over(task) is not None or self.is_done(task)

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
        run = self._runs.get(task)
        if run is None:
            return self._handed_over(task) is not None and not self.is_done(task)
        return run.found is None

    def has_begun(self, task: str) -> bool:
        """Whether an answer is there or comes; not where it has to be asked for once more."""
        run = self._runs.get(task)
        if run is None:
            return self._handed_over(task) is not None  # by an earlier process
        return not isinstance(run.found, Transient)

    def is_done(self, task: str) -> bool:
        """Whether a load is committed, or refused in a commit of its own."""
        with self._engine.reading() as state:
            return state.task_table.has(self.source, task)

    def is_visible(self, task: str) -> bool:
        """Whether a load has a visible file, of which the outcome may not be kept any more."""
        with self._engine.reading() as state:
            finals = state.compacted_table.finals.all()
        merged = (path for each in finals if each.sender == self.source for _, path in each.made_of)
        if any(f"/{name_prefix(task)}" in path for path in merged):
            return True
        with self._engine.reading() as state:
            table = state.file_table
            between = pauses(self._engine.reading(), commits=True)
            for directory in table.directories():
                between()
                found = table.catalogue(f"{directory}/{name_prefix(task)}", 1)
                if any(each.task == task for each in found):
                    return True
        return False

    def answer(self, task: str, wait: float) -> CentreLoadAnswer:
        """What became of a load, or that it is under way, after `wait` seconds at most.

        Raises:
            NotFoundError: nothing is known of it.
            ConflictError: it is loaded, and what became of each file is not kept any more.
            TsferryError, OSError: it failed so.
        """
        run = self._runs.answer(task, wait)
        if run is None:
            return self._remembered(task, wait)
        if isinstance(run.found, Exception):
            raise run.found
        return run.found or CentreLoadAnswer(
            task=task, done=False, trouble=self._trouble(run), progress=StepNow.of(run.step.now)
        )

    def _remembered(self, task: str, wait: float) -> CentreLoadAnswer:
        """What became of a load that another process began, or that many others came behind."""
        for _ in range(int(wait / LOOK_AGAIN)):
            if self._told_of(task) is not None or self._runs.stopping.wait(LOOK_AGAIN):
                break
        row = self._row_of(task)
        if row is None:
            current = self._handed_over(task)
            if current is None and self.is_visible(task):
                raise ConflictError(
                    f"load {task} is over, and its files are visible; so many came behind it that "
                    "what became of each is not kept any more: tsferry-receiver files"
                )
            if current is None:
                raise NotFoundError(
                    f"load {task[:40]!a} is not known here, and nothing of it is loaded: say it "
                    "again"
                )
            return CentreLoadAnswer(
                task=task, done=False, trouble=current.trouble, progress=StepNow(step=_LOADING)
            )
        if not self._acknowledging.may_tell(row):
            return CentreLoadAnswer(task=task, done=False, trouble=_UNTOLD)
        files = [told(each, each.path, 0) for each in self._acknowledging.outcomes(row)]
        return CentreLoadAnswer(task=task, done=True, files=files)

    def _told_of(self, task: str) -> bool | None:
        """Whether a load is known; None while it is, and is not over."""
        row = self._row_of(task)
        if row is None:
            return False if self._handed_over(task) is None else None
        return True if self._acknowledging.may_tell(row) else None

    def _row_of(self, task: str) -> TaskRow | None:
        with self._engine.reading() as state:
            return state.task_table.get(self.source, task)

    def _handed_over(self, task: str | None = None) -> CurrentTask | None:
        """The load that the loader has now, whichever process handed it over; or this one."""
        folder = self._load.folders.find(self.source)
        current = None if folder is None else folder.task
        if current is None or not current.loading or task not in (None, current.id):
            return None
        return current

    def under_way(self) -> list[CentreLoadView]:
        """The loads that are not over, the oldest first."""
        runs = self._runs.all()
        found = [
            CentreLoadView(
                task=run.task,
                paths=run.request.paths,
                dry_run=run.request.dry_run,
                begun_at=run.at,
                committed=self.is_done(run.task),
                trouble=self._trouble(run),
                progress=StepNow.of(run.step.now),
            )
            for run in runs
        ]
        left = self._handed_over()
        if left is not None and self._runs.get(left.id) is None and not self.is_done(left.id):
            now = StepNow(step=_LOADING)
            began = left.record.started
            found.insert(
                0, CentreLoadView(task=left.id, begun_at=began, trouble=left.trouble, progress=now)
            )
        return found

    def cancel(self, task: str, reason: str) -> None:
        """Have nothing more be done of a load; what is not committed is not loaded.

        Args:
            task: its id.
            reason: for people.

        Raises:
            NotFoundError: nothing is known of it.
            ConflictError: it is loaded; if it waited for copies elsewhere, it does so no more.
            BusyError: it is to load nothing more, and that is not committed yet.
        """
        run = self._runs.get(task)
        current = self._handed_over(task) if run is None else run.current
        if run is None or run.found is not None:
            if self.is_done(task) or (run is not None and current is None):
                raise ConflictError(f"load {task} is over: GET /v1/loads/{task} says how it ended")
            if current is None:
                raise NotFoundError(f"no load {task[:40]!a} is under way here")
        if run is not None:
            run.cancel(reason)
            current = run.current
        elif current is not None:
            current.withdrawn = f"cancelled: {reason}"
        if current is not None:
            self._load.loader.hurry(current)
        if run is not None:
            self._runs.ended(run, _ENDS_WITHIN)
        else:
            self._committed_within(task, _ENDS_WITHIN)
        row = self._row_of(task)
        may_load = run is not None and run.may_load and run.found is None
        if row is None and (may_load or self._handed_over(task) is not None):
            raise BusyError(
                f"load {task} is to load nothing more, which is not committed yet, and does not "
                f"outlast this process before it is: tsferry-receiver load --wait {task} says how "
                "it ends",
                retry_after=5,
            )
        if row is not None and any(each.result is Result.LOADED for each in row.outcomes):
            raise ConflictError(
                f"load {task} is loaded already, and its files stay visible; nobody waits any more "
                f"for their copies elsewhere: tsferry-receiver load --wait {task} says when these "
                "are there, and files delete takes a file back"
            )

    def _committed_within(self, task: str, wait: float) -> None:
        """Wait until a load is committed that another process began."""
        for _ in range(max(1, int(wait / LOOK_AGAIN))):
            if self.is_done(task) or self._runs.stopping.wait(LOOK_AGAIN):
                return

    # -- the load ----------------------------------------------------------------------------

    def load(
        self,
        request: CentreLoadRequest,
        staged: Sequence[CentreFile] = (),
        rights: LoadRights | None = None,
        since: int = 0,
        run: LoadRun | None = None,
    ) -> CentreLoadAnswer:
        """Look at files, and load them unless it is a dry run or one is refused.

        Args:
            request: what is asked for.
            staged: files that came for it, in place of paths of this machine.
            rights: of a writer; None of an operator.
            since: see `begin`.
            run: of it, if others ask how far it is.

        Raises:
            NotFoundError: there is nothing to load, or no such sender.
            NotATsFileError: a file is none, or not closed.
            UsageError: as the request or the layout has it.
            ConflictError: it was cancelled; nothing of it is loaded.
            TsferryError, OSError: it cannot be done now; nothing of it is left.
        """
        run = run or self._runs.made(request)
        since = since or self._engine.newest_commit
        mandate = self.mandate(request, rights)
        if not request.dry_run:
            self._acknowledging.must_take()
        files = staged or find_files(request.paths, request.storage_group)
        looked = self._looks.read(run, files)
        record = TaskRecord(
            task=request.task,
            sender=self.source,
            propagate=Propagate.NEVER,
            scope=[] if rights is None else list(rights.scope),
            token=None if rights is None else rights.token,
            started=self._clock(),
            centre=mandate,
            since=since,
            manifest=[],
        )
        if request.dry_run:
            outcomes = (
                looked.outcomes | self._looks.judged(run, record, looked, among_new=bool(staged))[1]
            )
        else:
            outcomes = self._loaded(run, record, looked, staged)
        return CentreLoadAnswer(
            task=request.task,
            done=True,
            dry_run=request.dry_run,
            files=[
                told(outcomes[path], source, looked.size(path))
                for path, source in looked.sources.items()
            ],
        )

    def _loaded(
        self, run: LoadRun, record: TaskRecord, looked: LookedFiles, staged: Sequence[CentreFile]
    ) -> dict[str, FileOutcome]:
        """Load files in their turn; what became of them once that may be told."""
        outcomes, row = dict(looked.outcomes), None
        with self._runs.turn(run):
            record, found = self._looks.judged(run, record, looked, among_new=bool(staged))
            outcomes |= found
            if any(each.result is Result.REFUSED for each in outcomes.values()):
                return outcomes
            fresh = [
                each
                for path, each in looked.files.items()
                if outcomes[path].result is Result.LOADED
            ]
            if fresh:
                row = self._committed(run, self._carrier.carry_out(run, record, fresh))
        if row is not None:
            loaded = row
            run.wait_for(lambda: self._acknowledging.may_tell(loaded), _WAITING)
            outcomes |= {each.path: each for each in self._acknowledging.outcomes(row)}
        # They came by another task, which may not be told yet.
        known = {
            path: ToldContent(each.staged)
            for path, (_, each) in looked.files.items()
            if outcomes[path].result is Result.ALREADY
        }
        run.wait_for(self._acknowledging.watch(known.values()), _WAITING)
        for path, told_of in known.items():
            if (bad := self._acknowledging.why_missing(told_of)) is not None:
                outcomes[path] = FileOutcome(path, Result.MISSING, reason=bad)
        return outcomes

    def _committed(self, run: LoadRun, job: LoadJob) -> TaskRow:
        """The row of a task that is handed over, once it is committed; it is told by that."""
        while True:
            self._load.loader.wait(lambda: job.done, 1.0)
            row = self._row_of(run.task)
            if row is not None and (job.done or job.error is not None):
                return row
            run.must_run()  # what was cancelled is refused by a commit of its own

    def _trouble(self, run: LoadRun) -> str | None:
        """Why a load has to wait, None while it goes on."""
        if run.behind is not None:
            return f"load {run.behind} was begun before, and is not committed yet"
        now = run.step.now
        if now is not None and now.step == _WAITING:
            return _UNTOLD
        return None if run.current is None else run.current.trouble


def _check(request: CentreLoadRequest) -> None:
    if not is_task_id(request.task):
        raise UsageError(f"{request.task[:60]!a} is no id of a load (32 lower-case hex digits)")
    if request.on_duplicate not in ON_DUPLICATE:
        raise UsageError(f"on_duplicate: expected one of {', '.join(ON_DUPLICATE)}")
