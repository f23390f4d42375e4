"""The metadata engine: commits go in, a consistent state comes out, as of now or of any time kept.

    engine = Engine.open(Path("schema"))
    ts = engine.commit([records.SenderSeen(uuid, "edge 7", f"10.0.0.7_{uuid}")])
    with engine.reading() as state:
        print(state.senders[uuid].label)

What `commit` returned from is on the disk and visible, all of it. What it raised for is neither,
with one exception: after `FailedSyncError` (`UnknownOutcomeError`, with a remote log) the commit
may be found when the engine is opened next, or not; nothing can tell before that.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from common.durable import Tree
from common.errors import ConflictError, ReadOnlyError, UsageError
from receiver.metadata.answering_engine import AnsweringEngine
from receiver.metadata.checkpointing import Snapshots
from receiver.metadata.clock.machine_clock import MachineClock
from receiver.metadata.commit.commit_request import Build
from receiver.metadata.commit.committer import Committer, Publish
from receiver.metadata.commit.guards import Guard
from receiver.metadata.commit.operations import Operations
from receiver.metadata.engine_upkeep import Setting, Upkeep
from receiver.metadata.log.appending import Appender
from receiver.metadata.log.follower_mark import refuse_copy
from receiver.metadata.log.following import follow, hand_in
from receiver.metadata.log.frames import LOCK_NAME, LOG_NAME, create_log, encode_payload
from receiver.metadata.log.journal import OwnerJournal
from receiver.metadata.log.recovering import Opened, is_empty, open_for_writing
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.timestamps import Allocator, from_seconds
from receiver.metadata.state.history_window import Horizon

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.durable import Lock
    from common.errors import TsferryError
    from receiver.metadata.commit.recent_commits import JudgedOps
    from receiver.metadata.commit.touched import Touched
    from receiver.metadata.model.remote_log import RemoteLog, RemoteNotes

__all__ = ["Engine", "Published"]


class Published(NamedTuple):
    """How far an engine's files reach.

    Attributes:
        lsn: of the newest commit that all can see.
        ts: its timestamp.
        oldest_lsn: of the first commit behind the begin of the kept history.
        tags_end: bytes of the tlog that belong to commits.
        segment: first LSN of the segment of the log that the newest commit is in.
        log_end: bytes of that segment that belong to commits.
    """

    lsn: int
    ts: int
    oldest_lsn: int
    tags_end: int
    segment: int = 0
    log_end: int = 0


class Engine(AnsweringEngine, Operations):
    """One engine of a schema directory; see the module. Made by `open` and `read_only`.

    Attributes:
        begins: transactions; set by their manager, which is above all of this.
        opened_at: the newest commit when this process opened it.
        life: random id of this process, of which nodes hear; see `records.MasterLifeBegun`.
    """

    def __init__(
        self, what: str, opened: Opened, options: EngineOptions, machine: MachineClock
    ) -> None:
        super().__init__(what, opened, options, machine)
        self._committer: Committer | None = None
        self._journal: OwnerJournal | None = None
        self._snapshots: Snapshots | None = None
        self._setting: Setting | None = None
        self._upkeep: Upkeep | None = None
        self._remote: RemoteLog | None = None
        self.opened_at = self._state.newest
        self.life = secrets.token_hex(16)
        self.begins: Callable[[str], AbstractContextManager[Any]] | None = None

    # -- opening -----------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        options: EngineOptions | None = None,
        clock: Callable[[], float] = time.time,
        boot: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        allocate: Allocator | None = None,
        remote: RemoteLog | None = None,
        may_make: Callable[[], None] = lambda: None,
        background: bool = True,
    ) -> Self:
        """Open the engine of a directory, or make one; a torn tail of its log is cut.

        Args:
            directory: the schema directory; made if it is not there.
            options: limits, history, checkpoints.
            clock: seconds since the epoch, or a `MachineClock`, for commit timestamps and history.
            boot: seconds that nobody sets, what the clock is judged by; without, this machine's,
                or the clock itself where one is handed in.
            monotonic: seconds, for what is due by itself.
            allocate: gives the timestamps themselves, in place of a clock.
            remote: where commits are kept first; the directory is a cache of it then. The engine
                closes it.
            may_make: asked before an engine is made where there is none; what it raises refuses.
            background: whether checkpoints and the collection of history come by themselves.

        Raises:
            ConfigError: it is the directory of a node that follows another engine.
            LockedError: another process has it open (`extra["pid"]`), or the remote log.
            DamagedError: files are damaged, or gone, and nothing stands in for them; they are
                named, with the offset.
            NewerLogError: a newer version of tsferry wrote a file.
        """
        options = options or EngineOptions()
        machine = MachineClock.of(clock, boot)
        with ExitStack() as stack:
            if remote is not None:
                stack.callback(remote.close)  # from here on, whatever fails
            tree = stack.enter_context(Tree(directory, create=True))
            refuse_copy(tree)
            lock: Lock = tree.lock(LOCK_NAME)
            stack.callback(lock.release)
            # Only here: beneath sync/ the sender of this node may be writing just now.
            tree.sweep_temporaries(deep=False)
            if remote is not None:
                remote.acquire()
                stack.callback(remote.close)  # before the lock goes: who gets it need not wait
                follow(tree, remote)
            if is_empty(tree):
                may_make()
                _make(tree, allocate, machine)
            opened, log = open_for_writing(tree)
            stack.callback(log.close)
            if remote is not None:
                hand_in(tree, remote, opened)
            engine = cls(str(tree.path), opened, options, machine)
            engine._remote = remote
            stack.callback(engine._resources.close)
            engine._journal = OwnerJournal.open(tree, engine._state)
            stack.callback(engine._journal.close)
            appender = Appender(tree, log, opened.tlog, remote, flushed=opened.base)
            judged = allocate or engine.clock.allocate
            engine._go_live(stack, tree, appender, opened, judged, remote)
            engine._look_after(
                stack, machine, monotonic, background=background, sets_time=allocate is None
            )
            engine._resources = stack.pop_all()
        return engine

    def _go_live(
        self,
        stack: ExitStack,
        tree: Tree,
        appender: Appender,
        opened: Opened,
        allocate: Allocator,
        remote: RemoteLog | None,
    ) -> None:
        assert self._journal is not None
        self._committer = Committer(
            self._state,
            appender,
            allocate,
            publish=self._publish,
            settled=self._journal.write,
            tag_bytes=self.options.tag_bytes,
            reading=self._reading,
            first=self._ends_a_life,
        )
        stack.callback(self._committer.close)
        self._snapshots = Snapshots(
            tree,
            self._reading,
            self._window,
            self._committer,
            appender,
            newest=opened.base,
            tags_end=opened.replay.tags_end,
            remote=remote,
        )

    def _look_after(
        self,
        stack: ExitStack,
        machine: MachineClock,
        monotonic: Callable[[], float],
        *,
        background: bool,
        sets_time: bool,
    ) -> None:
        assert self._committer is not None
        assert self._snapshots is not None
        horizon = Horizon(self.options, self._state.clock, clock=self.clock.cautious)
        if sets_time:
            self._setting = Setting(self.clock, machine.boot_id, self._state.clock, self._window)
            self._setting.settle(self._committer)
        # Before anybody asks: the log tells of more than was answered before the start.
        self._window.move(horizon.now(self._window))
        self._upkeep = Upkeep(
            self.options,
            self._reading,
            self._window,
            horizon,
            self._committer,
            self._snapshots,
            self._setting,
            monotonic=monotonic,
        )
        self.clock.changed = self._upkeep.wake
        stack.callback(self._upkeep.close)
        if background:
            self._upkeep.start()

    def _ends_a_life(self) -> records.Op | None:
        """That this process has a life of its own, where nodes have heard of one before.

        Whatever else it commits, and though no node may ever hear of it: else that would count as
        the life before, which a copy of the engine may never have had to its end.
        """
        lives = self._state.master_lives.rows
        if not lives or self.life in lives:
            return None
        return records.MasterLifeBegun(self.life, self.opened_at)

    # -- how it stands ------------------------------------------------------------------------

    @property
    def notes(self) -> RemoteNotes | None:
        """What outlives this machine beside the commits; None where they are kept here alone."""
        return self._remote

    @property
    def failed(self) -> str | None:
        """Why the engine takes no commits any more, None while it does."""
        return None if self._committer is None else self._committer.failed

    @property
    def trouble(self) -> str | None:
        """Why no commit can be made now, None while one can; it may pass."""
        away = None if self._remote is None else self._remote.trouble
        return self.failed or away

    def displaced(self) -> TsferryError | None:
        """Why another process may commit by now, and this one not know of it; None: none can."""
        return None if self._remote is None else self._remote.displaced()

    def published(self) -> Published:
        """How far the files of the directory are committed and flushed, for who copies them."""
        with self._reading:
            return Published(
                lsn=self._window.lsn,
                ts=self._newest,
                oldest_lsn=self._window.lsn_after(self._window.oldest),
                tags_end=self._tags_end if self._snapshots is None else self._snapshots.tags_end,
                segment=self._log_end[0],
                log_end=self._log_end[1],
            )

    # -- upkeep -----------------------------------------------------------------------------

    def collect(self) -> None:
        """Let go of what is before the kept history now; it is done by itself once a minute.

        Raises:
            ReadOnlyError: the engine takes no commits.
        """
        if self._upkeep is None:
            raise ReadOnlyError(f"{self._what} was opened for reading only")
        self._upkeep.collect()

    def confirm_clock(self) -> str | None:
        """An operator says that the machine's clock is right; why it was not believed before.

        That is committed, with the correction that it stands for.

        Raises:
            ConflictError: the clock shows nothing that could be a time.
            ReadOnlyError: the engine takes no commits.
        """
        if self._setting is None:
            raise ReadOnlyError(f"{self._what} does not go by a clock, or was opened for reading")
        try:
            doubt = self.clock.confirm()
        except ValueError as error:
            raise ConflictError(str(error)) from error
        self._setting.settle(self._writer())
        return doubt

    # -- checkpoints -------------------------------------------------------------------------

    def checkpoint(self) -> int:
        """Take a checkpoint now, if anything is new; returns the LSN that it stands for.

        Raises:
            NoSpaceError: the disk is full; what was there stays.
            ReadOnlyError: the engine takes no commits, so no checkpoints either.
        """
        if self._snapshots is None:
            raise ReadOnlyError(f"{self._what} was opened for reading only")
        if self._reading.is_mine():
            raise RuntimeError("checkpoint() inside reading() would wait for itself")
        return self._snapshots.take()

    @property
    def entries_since_checkpoint(self) -> int:
        """Commits that the newest checkpoint does not have."""
        if self._snapshots is None:
            return self._window.lsn - self._base
        return self._snapshots.entries

    # -- committing --------------------------------------------------------------------------

    def commit(self, ops: Sequence[records.Op], guards: Sequence[Guard] = ()) -> int:
        """Make operations true, all or none; returns the commit's timestamp once it is durable.

        Raises:
            GuardFailed: a row is not as a guard says.
            ConflictError: a file holds a device of another owner.
            RefusedCommitError: another rule is broken (`receiver.metadata.commit.judging.rules`).
            TimestampRefusedError: the allocator gave a time that does not follow the newest.
            NoSpaceError: the disk is full; a later commit may succeed.
            FailedSyncError: the flush failed; whether the commit lasted shows at the next start.
            UnknownOutcomeError: the same, of a remote log; the next commit settles it.
            ReadOnlyError: the engine takes no commits (any more).
            TooLargeError: the commit does not fit into a frame.
        """
        return self._writer().commit(ops, guards)

    def commit_judged(self, judged: JudgedOps, committed: records.TxnCommitted) -> int:
        """Like `commit`, of a transaction whose operations were judged as they were written.

        They are judged again only where something that has to do with them was committed since.

        Args:
            judged: its operations, and what is known of them.
            committed: says whose they are; the last operation of the commit.

        Raises:
            see `commit`.
        """
        return self._writer().commit_judged(judged, committed)

    def transaction(self, who: str = "") -> AbstractContextManager[Any]:
        """`with engine.transaction() as txn`: see `TxnManager.transaction`, of its one manager.

        Args:
            who: is shown to have begun it.

        Raises:
            UsageError: nobody has made a `receiver.txn.txn_manager.TxnManager` of this engine.
        """
        if self.begins is None:
            raise UsageError(f"{self._what}: make a TxnManager of the engine first")
        return self.begins(who)

    def left_alone(self, since: int, touched: Touched) -> bool:
        """Whether no commit since one had to do with what is touched; False where nobody knows.

        For who is `reading`.
        """
        return self._committer is not None and self._committer.recent.leave_alone(since, touched)

    def commit_with(self, build: Build, guards: Sequence[Guard] = ()) -> int:
        """Like `commit`, with operations that need to know the timestamp.

        Args:
            build: gives the operations. Called while nothing else is committed, so it has to be
                quick and must not commit; perhaps more than once, each time with another
                timestamp, of which the last counts. What it raises refuses this commit alone.
            guards: rows that must be as they were seen.

        Raises:
            see `commit`.
        """
        return self._writer().commit_with(build, guards)

    def settle(self) -> None:
        """See whether a commit is there whose outcome was unknown, as the next commit would.

        Raises:
            UnreachableError: the remote log does not say.
            ReadOnlyError: the engine takes no commits; only the next start tells.
        """
        if self.failed is not None:
            raise ReadOnlyError(f"what became of the last commit shows at the start: {self.failed}")
        self._writer().between_batches(lambda: None)

    def _writer(self) -> Committer:
        if self._committer is None:
            raise ReadOnlyError(f"{self._what} was opened for reading only")
        if self._reading.is_mine():
            raise RuntimeError("commit() inside reading() would wait for itself")
        return self._committer

    def _publish(self, commits: Sequence[Publish]) -> None:
        assert self._snapshots is not None
        with self._reading.writing() as state:
            for commit, offsets, tags_size in commits:
                state.apply(commit, offsets)
                self._window.add(commit.ts)
                if tags_size:
                    self._snapshots.tags_end = commit.tags_at + tags_size
            self._newest = state.newest  # who reads sees the state and its commit together
            self._log_end = self._snapshots.log_place
        with self._advanced:
            self._advanced.notify_all()
        if self._upkeep is not None:
            self._upkeep.committed()


def _make(tree: Tree, allocate: Allocator | None, machine: MachineClock) -> None:
    made = records.encode_ops([records.EngineMade(secrets.token_hex(16), judged=True)])
    ts = max(1, from_seconds(machine.wall())) if allocate is None else allocate(0)
    create_log(tree, LOG_NAME, 1, encode_payload([(ts, made)]))
