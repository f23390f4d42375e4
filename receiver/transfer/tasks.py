"""Tasks as their sender sees them: start, plan, deletions, batches, the end, the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from common import crash
from common.errors import (
    BusyError,
    GoneError,
    NotFoundError,
    ProtocolError,
    TooLargeError,
)
from common.names import FilePath, is_task_id
from common.wire import (
    Action,
    BatchAnswer,
    DeletionsAnswer,
    Outcome,
    PlanAnswer,
    PlanDecision,
    Result,
    TaskAnswer,
    TaskState,
)
from receiver.datadirs.disks import whole_in
from receiver.load.deciding.delete_guard import held_records_of
from receiver.load.deciding.known_deletions import KnownDeletions
from receiver.load.deciding.origins import check_origins
from receiver.load.deciding.outlived_deletions import OutlivedDeletions
from receiver.load.folder.current_task import Planned, TaskRecord, start_task
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.state.placed_files import parts_elsewhere
from receiver.scope import Scope
from receiver.transfer import epochs
from receiver.transfer.batch import receive_batch
from receiver.transfer.intake import Intake, check_sender
from receiver.transfer.look_numbers import latest_look
from receiver.transfer.planning import Room, Situation, decide
from receiver.transfer.schema_blocks import check_end, position_of, receive_block
from receiver.transfer.task_checks import (
    check_floor,
    check_looks,
    check_manifest,
    check_part,
    is_tsfile_path,
    tsfile_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from common.wire import (
        DeletedPage,
        DeletionsPage,
        DeletionsPart,
        EndRequest,
        ManifestPage,
        PlanEntry,
        PlanPage,
        PullAnswer,
        PullRequest,
        SchemaAnswer,
        StartRequest,
        UploadNode,
    )
    from receiver.config import ReceiverConfig
    from receiver.load.folder.current_task import CurrentTask
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import SenderRow, TaskRow
    from receiver.principal import Principal
    from receiver.transfer.acknowledging import Acknowledging
    from receiver.transfer.node_pulls import NodePulls
    from receiver.transfer.uploads import Uploads

__all__ = ["OffersNodes", "Tasks"]

_REFUSED = {
    Action.CONFLICT: Result.CONFLICT,
    Action.REFUSED: Result.REFUSED,
    Action.EXPIRED: Result.EXPIRED,
}
_LOAD_PAUSE = 2.0


class OffersNodes(Protocol):
    """Knows which storage nodes take files of edges; see `receiver.placement.upload_nodes`."""

    def prepare(self, sender: str, entries: Iterable[PlanEntry]) -> None:
        """Have places at nodes for files that are going to be planned; a little is waited for."""

    def offer(
        self, sender: str, task: str, entry: PlanEntry, avoid: Collection[str]
    ) -> UploadNode | None:
        """A node that a file may be sent to, or None."""


class Tasks:
    """The calls of a task. All are safe from any thread, and can be made twice."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        load: LoadService,
        uploads: Uploads,
        acknowledging: Acknowledging,
        *,
        clock: Callable[[], float],
        nodes: OffersNodes | None = None,
        pulls: NodePulls | None = None,
    ) -> None:
        """Prepare.

        Args:
            config: of the receiver.
            engine: the metadata engine.
            load: loads what comes.
            uploads: the tus calls.
            acknowledging: when what is loaded may be told.
            clock: seconds since the epoch.
            nodes: storage nodes that edges may send files to; None: there are none.
            pulls: reads what they have.
        """
        self._nodes = nodes
        self._pulls = pulls
        self._config = config
        self._engine = engine
        self._load = load
        self._uploads = uploads
        self._acknowledging = acknowledging
        self._clock = clock
        self._intake = Intake(config, engine, load, clock=clock)

    # -- start -----------------------------------------------------------------------------

    def start(self, who: Principal, sender: str, task: str, request: StartRequest) -> TaskAnswer:
        """Start a task, or resume it; of one that is done, its outcome.

        Raises:
            BusyError: an earlier task of this sender is being loaded, or too few storage nodes are
                there to have what it brings.
            CloneError: two machines speak under this uuid.
            GoneError: the request is meant for another engine; check first.
            ProtocolError: it tells of a look that cannot have been.
        """
        if not is_task_id(task):
            raise ProtocolError(f"{task[:60]!a} is no task id (32 lower-case hex digits)")
        if request.engine != self._engine.uuid:
            raise GoneError(
                f"this receiver is engine {self._engine.uuid}, not {request.engine[:40]!a}; "
                "check first, and plan afresh"
            )
        check_sender(who, sender)
        if request.look and request.look >= latest_look(self._engine):
            raise ProtocolError(f"look {request.look} cannot have been: it is ahead of the time")
        early = self._early(sender, task, request.epoch)
        if early is not None:
            return early
        self._acknowledging.must_take()
        folder = self._intake.folder(who, sender)
        with folder.lock, self._load.noting_obstacles(folder.uuid, folder.root):
            early = self._early(sender, task, request.epoch)
            if early is not None:
                return early
            step = self._step(sender, task, request.epoch)
            self._make_way(folder, task)
            if folder.task is None:
                self._begin(who, folder, task, request)
            else:
                folder.task.judge_by(who.scope, who.token_id, request.propagate, request.look)
            if step.fresh:
                self._set_epoch(sender, step, task)
            crash.point("tasks.started")
            staged = folder.schema.staged()
            return TaskAnswer(
                task=task, state=TaskState.OPEN, epoch=step.current, schema_staged=staged
            )

    def _early(self, sender: str, task: str, given: str | None) -> TaskAnswer | None:
        """The answer for a task that is done or loading; no lock, as a load holds the folder's.

        The epoch is told only to one who may have it: a copy of the machine learns nothing.

        Raises:
            BusyError: another task of this sender is being loaded.
        """
        with self._engine.reading() as state:
            row = state.senders.get(sender)
            done = state.task_table.get(sender, task)
        started = row is not None and row.epoch_task == task and given in (row.epoch, row.previous)
        epoch = row.epoch if row is not None and started else None
        if done is not None:
            return self._outcome(done, epoch)
        if (untold := self._acknowledging.untold(sender)) is not None:
            raise BusyError(
                f"task {untold} is loaded, and not in the object store yet", retry_after=_LOAD_PAUSE
            )
        folder = self._load.folders.find(sender)
        current = folder.task if folder is not None else None
        if current is None or not current.loading or self._is_done(sender, current.id):
            return None
        if current.id == task:
            return TaskAnswer(task=task, state=TaskState.LOADING, epoch=epoch)
        why = f" ({current.trouble})" if current.trouble else ""
        raise BusyError(f"task {current.id} is being loaded{why}", retry_after=_LOAD_PAUSE)

    def _step(self, sender: str, task: str, given: str | None) -> epochs.Step:
        with self._engine.reading() as state:
            row = state.senders.get(sender)
        return epochs.start(row, given, task)

    def _make_way(self, folder: SenderFolder, task: str) -> None:
        """Recovery before a task: finish what is committed, drop what has no end."""
        current = folder.task
        if current is None:
            return
        if current.loading:
            self._load.settle(folder)
        elif current.id != task or current.half_ended:
            # Of one whose end found no space, the sender may bring other files by now.
            folder.forget_task()
            crash.point("tasks.dropped")

    def _begin(
        self, who: Principal, folder: SenderFolder, task: str, request: StartRequest
    ) -> None:
        record = TaskRecord(
            task=task,
            sender=folder.uuid,
            propagate=request.propagate,
            scope=list(who.scope),
            token=who.token_id,
            look=request.look,
            anew=request.anew and request.look > 0 and self._is_restored(folder.uuid),
            started=self._clock(),
        )
        start_task(folder, record)
        self._load.forget_shortage(folder.uuid)  # its plan will tell

    def _is_restored(self, sender: str) -> bool:
        """Whether an operator said so, and its list has not begun anew since."""
        with self._engine.reading() as state:
            row = state.senders.get(sender)
        return row is not None and row.restored > 0

    def _set_epoch(self, sender: str, step: epochs.Step, task: str) -> None:
        """Commit the epochs; the folder's lock keeps other starts away."""
        made = records.EpochSet(sender, step.current, step.previous, task, confirmed=False)
        self._engine.commit([made])

    def _confirm(self, row: SenderRow) -> None:
        """The new epoch has arrived: the one before is good for nothing any more."""
        while not row.confirmed:
            used = records.EpochSet(
                row.uuid, row.epoch, row.previous, row.epoch_task, confirmed=True
            )
            try:
                self._engine.commit([used], [Guard("sender", row.uuid, row.changed)])
            except GuardFailed:
                epoch = row.epoch
                with self._engine.reading() as state:
                    row = state.senders[row.uuid]
                epochs.must_be_current(row, epoch)
            else:
                return

    # -- in the task -----------------------------------------------------------------------

    def _enter(self, who: Principal, sender: str, task: str, epoch: str | None) -> SenderFolder:
        """The folder, after the epoch was found to be the current one."""
        check_sender(who, sender)
        with self._engine.reading() as state:
            row = state.senders.get(sender)
        epochs.must_be_current(row, epoch)
        assert row is not None
        self._confirm(row)
        return self._intake.folder(who, sender)

    def _enter_open(
        self, who: Principal, sender: str, task: str, epoch: str | None
    ) -> SenderFolder:
        """The same for a call of the task that is open.

        What comes too late is refused here: at the lock it would wait for the load, with a thread.
        """
        folder = self._enter(who, sender, task, epoch)
        self._intake.open_task(folder, task)
        return folder

    def _open_task(self, who: Principal, folder: SenderFolder, task: str) -> CurrentTask:
        """The task that is open, which may do what this call may; inside the folder's lock."""
        current = self._intake.open_task(folder, task)
        current.judge_by(who.scope, who.token_id)
        return current

    def plan(
        self, who: Principal, sender: str, task: str, epoch: str | None, page: PlanPage
    ) -> PlanAnswer:
        """What to do with each file of a page, in its order."""
        self._check_page(len(page.entries))
        folder = self._enter_open(who, sender, task, epoch)
        if page.nodes and self._nodes is not None:  # before the lock, for it may wait
            scope = Scope(who.scope)
            of_scope = [e for e in page.entries if scope.first_outside(e.devices) is None]
            self._nodes.prepare(folder.uuid, of_scope)
        with folder.lock:
            current = self._open_task(who, folder, task)
            fresh = {each.path for each in page.entries} - current.planned.keys()
            self._check_length(len(current.planned) + len(fresh))
            newest = self._engine.newest_commit
            decisions = self._decide(who, folder, current, page.entries)
            began = [
                self._began(who, folder, entry, decision) or newest
                for entry, decision in zip(page.entries, decisions, strict=True)
            ]
            if page.nodes and self._nodes is not None:
                decisions = [
                    self._with_node(folder.uuid, task, entry, decision, page.avoid)
                    for entry, decision in zip(page.entries, decisions, strict=True)
                ]
            current.add_plan(
                _planned(entry, decision, commit)
                for entry, decision, commit in zip(page.entries, decisions, began, strict=True)
                if is_tsfile_path(entry.path)
            )
        return PlanAnswer(decisions=decisions)

    def _began(
        self, who: Principal, folder: SenderFolder, entry: PlanEntry, decision: PlanDecision
    ) -> int:
        """The newest commit when an earlier task began to bring this content; 0 where none did."""
        if entry.retry:  # it is said anew that it is to come
            return 0
        if decision.action is Action.HAVE:
            staged = folder.staged.get(entry.path)
            return 0 if staged is None else staged.commit
        found = self._uploads.resumable(who, folder, entry)
        return 0 if found is None else found.commit

    def _with_node(
        self,
        sender: str,
        task: str,
        entry: PlanEntry,
        decision: PlanDecision,
        avoid: Sequence[str],
    ) -> PlanDecision:
        """The same, with the node that the bytes may go to."""
        if decision.action not in (Action.SEND, Action.RESUME) or self._nodes is None:
            return decision
        if self._pulls is not None:
            self._pulls.give_up(sender, entry.path)
        node = self._nodes.offer(sender, task, entry, avoid)
        return decision if node is None else msgspec.structs.replace(decision, node=node)

    def pull(
        self,
        who: Principal,
        sender: str,
        task: str,
        epoch: str | None,
        request: PullRequest,
        seconds: float,
    ) -> PullAnswer:
        """Read a planned file from the storage node that has it; how far that is.

        Raises:
            ProtocolError: the file was not planned, or edges send none to nodes here.
        """
        if self._pulls is None:
            raise ProtocolError("no files are taken from storage nodes here (nodes.uploads_from)")
        folder = self._enter_open(who, sender, task, epoch)
        current = self._intake.open_task(folder, task)
        return self._pulls.pull(who, folder, current, request, seconds)

    def _decide(
        self,
        who: Principal,
        folder: SenderFolder,
        current: CurrentTask,
        entries: Iterable[PlanEntry],
    ) -> list[PlanDecision]:
        limits = self._config.limits
        _, partial_bytes = self._uploads.numbers(folder.uuid)
        room = Room(
            quota=limits.max_unloaded_bytes - folder.staged.bytes - partial_bytes,
            free=self._load.room(folder),
            max_file=limits.max_file_bytes,
        )
        moment = self._load.ttl.moment()
        standing = self._load.disks.standing()
        with self._engine.reading() as state:
            here = Situation(
                state=state,
                sender=folder.uuid,
                scope=Scope(who.scope),
                staged=folder.staged,
                is_there=lambda each: each.is_still(folder.tree.stat(folder.staged.at(each.path))),
                resumable=lambda entry: self._uploads.resumable(who, folder, entry),
                room=room,
                reveal_owner=self._config.auth.reveal_owner,
                stands=lambda row: whole_in(standing, row, parts_elsewhere(state, row)),
                outlived=OutlivedDeletions(state, folder.uuid),
                expiry=self._load.ttl.expiry(state, moment),
            )
            decisions = [decide(entry, here) for entry in entries]
        self._load.note_shortage(
            folder.uuid, free=room.over_free, room=room.over_room, quota=room.over_quota
        )
        return decisions

    def deleted(
        self, who: Principal, sender: str, task: str, epoch: str | None, page: DeletedPage
    ) -> None:
        """Record paths that are gone or replaced: in sync.log when this returns."""
        self._check_page(len(page.paths))
        paths = [tsfile_path(each) for each in page.paths]
        folder = self._enter_open(who, sender, task, epoch)
        with folder.lock:
            current = self._open_task(who, folder, task)
            self._check_length(current.with_deleted(paths))
            current.add_deleted(paths)

    def deletions(
        self, who: Principal, sender: str, task: str, epoch: str | None, page: DeletionsPage
    ) -> DeletionsAnswer:
        """Take what is new in deletion files; what is taken is on the disk when this returns.

        Raises:
            ProtocolError: a part is no whole records, or tells of a look that is not over.
        """
        self._check_page(len(page.parts))
        for each in page.parts:
            check_part(each)
        folder = self._enter_open(who, sender, task, epoch)
        with folder.lock:
            current = self._open_task(who, folder, task)
            for each in page.parts:
                check_floor(each, current.record.look)
            self._check_length(current.told_parts + len(page.parts))
            taken: list[DeletionsPart] = []
            again: dict[str, None] = {}
            with self._engine.reading() as state:
                known = KnownDeletions(state, sender, anew=current.record.anew)
                for path in {each.path for each in page.parts}:
                    for told in current.deletions_of(path):
                        known.take(told)
                for each in page.parts:
                    if known.take(each):
                        taken.append(each)
                    else:
                        again[each.path] = None
            current.add_deletions(taken)
        return DeletionsAnswer(again=list(again))

    def batch(
        self, who: Principal, sender: str, task: str, epoch: str | None, body: bytes | memoryview
    ) -> BatchAnswer:
        """Take many small files in; what has no problem is on the disk, verified."""
        limit = self._config.limits.max_batch_bytes
        if len(body) > limit:
            raise TooLargeError(f"a batch of {len(body)} bytes, limits.max_batch_bytes is {limit}")
        folder = self._enter_open(who, sender, task, epoch)
        with folder.lock:
            current = self._open_task(who, folder, task)
        _, partial_bytes = self._uploads.numbers(sender)
        return receive_batch(self._intake, folder, current, body, partial_bytes)

    def schema(
        self, who: Principal, sender: str, task: str, epoch: str | None, body: bytes
    ) -> SchemaAnswer:
        """Take a block of the sender's schema log in; it is on the disk when this returns."""
        folder = self._enter_open(who, sender, task, epoch)
        with folder.lock:
            self._open_task(who, folder, task)
        _, partial_bytes = self._uploads.numbers(sender)
        return receive_block(
            self._intake,
            folder,
            task,
            body,
            limit=self._config.limits.max_chunk_bytes,
            partial_bytes=partial_bytes,
        )

    def _check_page(self, count: int) -> None:
        limit = self._config.limits.max_page_items
        if count > limit:
            raise TooLargeError(f"a page of {count} items, limits.max_page_items is {limit}")

    def _check_length(self, count: int) -> None:
        limit = self._config.limits.max_task_items
        if count > limit:
            raise TooLargeError(
                f"a task of {count} files or ends, limits.max_task_items is {limit}: cut the round "
                "into several"
            )

    # -- the end -----------------------------------------------------------------------------

    def manifest(
        self, who: Principal, sender: str, task: str, epoch: str | None, page: ManifestPage
    ) -> None:
        """Take a part of what the end will say: on the disk when this returns.

        Raises:
            ProtocolError: pages before it did not come, it names what is no file, or tells of a
                look that has not been.
        """
        check_manifest(page.manifest, set())
        for each in page.deleted:
            tsfile_path(each)
        check_origins(page)
        folder = self._enter_open(who, sender, task, epoch)
        with folder.lock:
            current = self._open_task(who, folder, task)
            check_looks(page.manifest, page.last_looks, current.record.look)
            before = current.pages[: page.number]
            self._check_length(sum(len(each.manifest) for each in (*before, page)))
            self._check_length(sum(len(each.deleted) for each in (*before, page)))
            current.add_page(page)

    def end(
        self, who: Principal, sender: str, task: str, epoch: str | None, request: EndRequest
    ) -> TaskAnswer:
        """Record the end, which is durable when this returns, then let the loader have the task."""
        seen: set[str] = set()
        check_manifest(request.manifest, seen)
        for each in request.deleted:
            tsfile_path(each)
        check_origins(request)
        check_end(request.schema)
        check_sender(who, sender)
        known = self._known(sender, task)
        if known is not None:
            return known
        folder = self._enter(who, sender, task, epoch)
        with folder.lock:
            if (known := self._known(sender, task)) is not None:
                return known
            current = self._open_task(who, folder, task)
            check_looks(request.manifest, request.last_looks, current.record.look)
            whole = current.whole_end(request)
            for page in current.pages if request.pages else ():
                check_manifest(page.manifest, seen)
            self._check_length(len(whole.manifest))
            self._check_length(len(whole.deleted))
            deleted = [tsfile_path(each) for each in whole.deleted]
            current.add_files(self._received(folder, seen))
            current.end(whole.manifest, deleted, request.schema, whole.last_looks, whole.below)
            crash.point("tasks.ended")
        self._load.loader.submit(folder, current)
        return TaskAnswer(task=task, state=TaskState.LOADING, epoch=epoch)

    def _received(self, folder: SenderFolder, paths: Iterable[str]) -> list[FilePath]:
        """The files of a manifest that were verified in an earlier task: sync.log lacks them."""
        return [FilePath.parse(each) for each in sorted(paths) if folder.staged.get(each)]

    def _known(self, sender: str, task: str) -> TaskAnswer | None:
        """The answer for a task that is loading or done."""
        here = self._here(sender, task)
        return here if here is None or here.state is not TaskState.OPEN else None

    def _here(self, sender: str, task: str) -> TaskAnswer | None:
        """The answer for a task that is open, loading or done; without a lock.

        A load commits first, then lets go of its folder's task. Who looks at the table first may
        find the task at neither place, so the folder comes first.
        """
        folder = self._load.folders.find(sender)
        current = folder.task if folder is not None else None
        with self._engine.reading() as state:
            done = state.task_table.get(sender, task)
        if done is not None:
            return self._outcome(done, None)
        if current is None or current.id != task:
            return None
        state_now = TaskState.LOADING if current.loading else TaskState.OPEN
        return TaskAnswer(task=task, state=state_now)

    # -- answers -----------------------------------------------------------------------------

    def answer(self, who: Principal, sender: str, task: str, wait: float = 0.0) -> TaskAnswer:
        """Where a task is; waits for its outcome, for `wait` seconds at most.

        Raises:
            NotFoundError: no such task is open, loading or committed here.
        """
        check_sender(who, sender)
        here = self._here(sender, task)
        if here is not None and here.state is TaskState.LOADING and wait > 0:
            self._load.loader.wait(lambda: self._is_told(sender, task), wait)
            here = self._here(sender, task)
        if here is None:
            raise NotFoundError(f"task {task[:40]!a} is not known here")
        return here

    def _is_done(self, sender: str, task: str) -> bool:
        with self._engine.reading() as state:
            return state.task_table.has(sender, task)

    def _is_told(self, sender: str, task: str) -> bool:
        with self._engine.reading() as state:
            row = state.task_table.get(sender, task)
        return row is not None and self._acknowledging.may_tell(row)

    def _outcome(self, row: TaskRow, epoch: str | None) -> TaskAnswer:
        if not self._acknowledging.may_tell(row):
            return TaskAnswer(task=row.task, state=TaskState.LOADING, epoch=epoch)
        reveal = self._config.auth.reveal_owner
        with self._engine.reading() as state:
            position = position_of(state.schema_positions.get(row.sender))
            held = held_records_of(state, row.sender)
        return TaskAnswer(
            task=row.task,
            state=TaskState.DONE,
            epoch=epoch,
            commit=row.commit,
            outcomes=[
                Outcome(
                    path=each.path,
                    result=each.result,
                    device=each.device,
                    reason=each.reason,
                    owner=each.owner if reveal else None,
                    hold=each.hold,
                )
                for each in self._acknowledging.outcomes(row)
            ],
            schema_position=position,
            untold=list(row.untold),
            held_records=held,
        )


def _planned(entry: PlanEntry, decision: PlanDecision, commit: int) -> Planned:
    return Planned(
        path=entry.path,
        size=entry.size,
        tail=entry.tail,
        md5=entry.md5,
        replaces=entry.replaces,
        resource=entry.resource,
        refused=_REFUSED.get(decision.action),
        device=decision.device,
        reason=decision.reason,
        origin=entry.origin,
        commit=commit,
    )
