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

import datetime
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from common.durable import Closing, Tree
from common.errors import ConflictError, DamagedError, NotFoundError, ReadOnlyError, UsageError
from receiver.metadata.checkpointing import Snapshots
from receiver.metadata.clock.judged_clock import JudgedClock, LoggedClock
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
from receiver.metadata.log.recovering import Opened, is_empty, open_for_writing, recover
from receiver.metadata.log.segments import Places, commits_since
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.timestamps import Allocator, from_seconds
from receiver.metadata.state.history_window import HistoryWindow, Horizon
from receiver.metadata.state.lock import Reading
from receiver.metadata.state.tables.clock_corrections import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from common.durable import Lock
    from common.errors import TsferryError
    from receiver.metadata.commit.recent_commits import JudgedOps
    from receiver.metadata.commit.touched import Touched
    from receiver.metadata.model.remote_log import RemoteLog, RemoteNotes
    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.state import State

__all__ = ["Engine", "Published"]

_LOOKS = 5
"""Times that a reader beside a running server begins anew when files vanish under it."""


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


class Engine(Operations, Closing):
    """One engine of a schema directory; see the module. Made by `open` and `read_only`.

    Attributes:
        options: as it was opened with.
        clock: the time that timestamps go by; for who compares with them.
        begins: transactions; set by their manager, which is above all of this.
    """

    def __init__(
        self, what: str, opened: Opened, options: EngineOptions, machine: MachineClock
    ) -> None:
        replay = opened.replay
        self.options = options
        self.clock = _judged(Path(what), replay.state, options, machine)
        self._what = what
        self._state = replay.state
        self._state.max_memory = options.max_memory
        self._reading = Reading(replay.state)
        self._window = HistoryWindow(replay.commits, replay.lsn, opened.oldest)
        self._base = opened.base
        self._tlog = opened.tlog
        self._tags_end = replay.tags_end
        self._log_end = (opened.last.first_lsn, opened.last.good)
        self._advanced = threading.Condition()
        self._newest = replay.state.newest
        self._places = Places()
        self._committer: Committer | None = None
        self._journal: OwnerJournal | None = None
        self._snapshots: Snapshots | None = None
        self._setting: Setting | None = None
        self._upkeep: Upkeep | None = None
        self._remote: RemoteLog | None = None
        self.begins: Callable[[str], AbstractContextManager[Any]] | None = None
        self._resources = ExitStack()
        self._resources.callback(opened.tlog.close)

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

    @classmethod
    def read_only(cls, directory: Path, *, options: EngineOptions | None = None) -> Self:
        """The engine as its files have it now, for reading beside a server that may be running.

        A commit that is being written just now may be seen before its caller is told.

        Args:
            directory: the schema directory.
            options: how far back questions may go, as a server with them has it; without, all that
                the files hold can be asked about.

        Raises:
            NotFoundError: there is no engine in this directory.
            DamagedError: as `open`.
            NewerLogError: a newer version of tsferry wrote a file.
        """
        try:
            tree = Tree(directory)
        except FileNotFoundError as error:
            raise NotFoundError(f"{directory}: there is no such directory") from error
        with tree:
            opened, options_now = _look(tree), options or EngineOptions()
            engine = cls(str(tree.path), opened, options_now, MachineClock.of(time.time))
        if options is not None:
            horizon = Horizon(options, engine._state.clock, clock=engine.clock.cautious)
            engine._window.move(horizon.now(engine._window))
        return engine

    # -- reading -----------------------------------------------------------------------------

    @property
    def uuid(self) -> str:
        """Identity of this engine, 32 hex digits; another engine has another."""
        return self._state.uuid

    @property
    def newest_commit(self) -> int:
        """Timestamp of the newest commit."""
        return self._newest

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

    def reading(self) -> Reading:
        """`with engine.reading() as state`: committed state, which stands still meanwhile.

        Never waits for the disk. Keep it short, commits wait for its end; rows that were taken out
        stay valid. A commit from inside is refused (it would wait for itself).
        """
        return self._reading

    def tags_of(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        """Tags and attributes of a series, by their place in the tlog (`SeriesRow.tags_at`).

        Reads the disk; no lock is needed.

        Raises:
            DamagedError: the tlog is damaged there.
        """
        return self._tlog.read(offset)

    # -- the past ----------------------------------------------------------------------------

    @property
    def times(self) -> TrueTimes:
        """The moments that timestamps stand for; they differ where a clock was wrong."""
        return self._state.clock.times

    @property
    def window(self) -> HistoryWindow:
        """The commits that can be asked about; for reading alone."""
        return self._window

    @property
    def oldest_answerable(self) -> int:
        """The oldest timestamp that can be asked about; see `HistoryWindow`.

        It only grows while the engine is open. After a start it may be lower than it was before.
        """
        return self._window.oldest

    def check_answerable(self, ts: int) -> None:
        """See that a time can be asked about; inside `reading` that holds to its end.

        Raises:
            HistoryGoneError: it is before the kept history; `extra["oldest"]`.
        """
        self._window.check(ts, self.times)

    def at(self, when: int | datetime.datetime | None = None) -> int:
        """The timestamp that a question is about: a commit's, a moment's, or the newest.

        A time to come is the newest commit: what is answered now does not change later.

        Raises:
            HistoryGoneError: it is before the kept history; `extra["oldest"]`.
        """
        newest = self._newest
        ts = self.timestamp_at(when)
        if ts is None:
            return newest
        self._window.check(ts, self.times)
        return min(ts, newest)

    def timestamp_at(self, when: int | datetime.datetime | None) -> int | None:
        """The timestamp of a moment; one that is given, or none, stays as it is."""
        if isinstance(when, datetime.datetime):
            return self.times.first(from_seconds(when.timestamp()))
        return when

    def log_since(self, ts: int) -> Iterator[records.Commit]:
        """The commits after a time, as the log has them, up to the newest one of this moment.

        Raises:
            HistoryGoneError: the log does not reach back that far.
            DamagedError: a segment that a checkpoint stands for is damaged.
        """
        with self._reading:
            self._window.check(ts, self.times)
            lsn, newest = self._window.lsn_after(ts), self._newest
            oldest = self._window.oldest
        return commits_since(Path(self._what), lsn, newest, oldest, self._places)

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

    def timestamp_of(self, lsn: int) -> int | None:
        """Timestamp of a commit; None if it is none yet, or is before the kept history."""
        with self._reading:
            at = lsn - self._window.lsn - 1
            commits = self._window.commits
            return commits[at] if -len(commits) <= at < 0 else None

    def wait_behind(self, ts: int, seconds: float) -> bool:
        """Wait for a commit after a time; whether there is one.

        Args:
            ts: the time.
            seconds: at most.
        """
        with self._advanced:
            return self._advanced.wait_for(lambda: self._newest > ts, seconds)

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
            RefusedCommitError: another rule is broken (`receiver.metadata.commit.rules`).
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

    def close(self) -> None:
        """Finish what is being committed, refuse what comes later, give the lock back."""
        self._resources.close()


def _make(tree: Tree, allocate: Allocator | None, machine: MachineClock) -> None:
    made = records.encode_ops([records.EngineMade(secrets.token_hex(16), judged=True)])
    ts = max(1, from_seconds(machine.wall())) if allocate is None else allocate(0)
    create_log(tree, LOG_NAME, 1, encode_payload([(ts, made)]))


def _judged(
    directory: Path, state: State, options: EngineOptions, machine: MachineClock
) -> JudgedClock:
    row = state.clock.row
    logged = LoggedClock(
        newest=state.newest,
        times=state.clock.times,
        corrected=row.changed,
        boot=row.boot,
        offset=row.offset,
        is_judged=row.judged_since < NEVER,
    )
    return JudgedClock(
        machine,
        directory,
        logged,
        jump=options.clock_jump,
        times=lambda: state.clock.times,
        senders_known=lambda: len(state.senders),
    )


def _look(tree: Tree) -> Opened:
    for left in reversed(range(_LOOKS)):
        try:
            return recover(tree)
        except FileNotFoundError:  # a checkpoint has just replaced it
            if not left:
                raise
        except DamagedError:
            # The server may have cut back a failed write while we read: look once more.
            if left < _LOOKS - 1:
                raise
    raise AssertionError
