"""Tasks as their sender sees them: start, plan, deletions, batches, the end, the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from common import crash
from common.errors import ProtocolError, TooLargeError
from common.names import FilePath
from common.wire import (
    Action,
    BatchAnswer,
    DeletionsAnswer,
    PlanAnswer,
    PlanDecision,
    TaskAnswer,
    TaskState,
)
from receiver.load.deciding.known_files.origins import check_origins
from receiver.load.deciding.told_deletions.known_deletions import KnownDeletions
from receiver.scope import Scope
from receiver.transfer import epochs
from receiver.transfer.begun.schema_blocks import check_end, receive_block
from receiver.transfer.begun.task_answers import TaskAnswers
from receiver.transfer.begun.task_checks import (
    check_floor,
    check_looks,
    check_manifest,
    check_part,
    is_tsfile_path,
    tsfile_path,
)
from receiver.transfer.begun.task_planning import TaskPlanning, planned
from receiver.transfer.begun.task_starts import TaskStarts
from receiver.transfer.intake import Intake, check_sender
from receiver.transfer.receiving.batch import receive_batch

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
    from receiver.principal import Principal
    from receiver.transfer.acknowledging import Acknowledging
    from receiver.transfer.receiving.node_pulls import NodePulls
    from receiver.transfer.receiving.uploads import Uploads

__all__ = ["OffersNodes", "Tasks"]


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
        self._intake = Intake(config, engine, load, clock=clock)
        self._planning = TaskPlanning(config, engine, load, uploads)
        self._answers = TaskAnswers(config, engine, load, acknowledging)
        self._starts = TaskStarts(
            engine, load, self._intake, self._answers, acknowledging, clock=clock
        )

    # -- start and outcome -----------------------------------------------------------------

    def start(self, who: Principal, sender: str, task: str, request: StartRequest) -> TaskAnswer:
        """Start a task, or resume it; of one that is done, its outcome.

        Raises:
            BusyError: an earlier task of this sender is being loaded, or too few storage nodes are
                there to have what it brings.
            CloneError: two machines speak under this uuid.
            GoneError: the request is meant for another engine; check first.
            ProtocolError: it tells of a look that cannot have been.
        """
        return self._starts.start(who, sender, task, request)

    def answer(self, who: Principal, sender: str, task: str, wait: float = 0.0) -> TaskAnswer:
        """Where a task is; waits for its outcome, for `wait` seconds at most.

        Raises:
            NotFoundError: no such task is open, loading or committed here.
        """
        check_sender(who, sender)
        return self._answers.waited_for(sender, task, wait)

    # -- in the task -----------------------------------------------------------------------

    def _enter(self, who: Principal, sender: str, task: str, epoch: str | None) -> SenderFolder:
        """The folder, after the epoch was found to be the current one."""
        check_sender(who, sender)
        with self._engine.reading() as state:
            row = state.senders.get(sender)
        epochs.must_be_current(row, epoch)
        assert row is not None
        self._starts.confirm(row)
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
            decisions = self._planning.decisions(who, folder, page.entries)
            began = [
                self._planning.began(who, folder, entry, decision) or newest
                for entry, decision in zip(page.entries, decisions, strict=True)
            ]
            if page.nodes and self._nodes is not None:
                decisions = [
                    self._with_node(folder.uuid, task, entry, decision, page.avoid)
                    for entry, decision in zip(page.entries, decisions, strict=True)
                ]
            current.add_plan(
                planned(entry, decision, commit)
                for entry, decision, commit in zip(page.entries, decisions, began, strict=True)
                if is_tsfile_path(entry.path)
            )
        return PlanAnswer(decisions=decisions)

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
        known = self._answers.known(sender, task)
        if known is not None:
            return known
        folder = self._enter(who, sender, task, epoch)
        with folder.lock:
            if (known := self._answers.known(sender, task)) is not None:
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
