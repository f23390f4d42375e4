"""The metadata engine: commits go in, a consistent state comes out.

    engine = Engine.open(Path("schema"))
    ts = engine.commit([records.SenderSeen(uuid, "edge 7", f"10.0.0.7_{uuid}")])
    with engine.reading() as state:
        print(state.senders[uuid].label)

What `commit` returned from is on the disk and visible, all of it. What it raised for is neither,
with one exception: after `FailedSyncError` the commit may be found when the engine is opened next,
or not; nothing can tell before that.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from common import crash
from common.durable import Tree, is_temporary
from common.errors import DamagedError, NotFoundError, ReadOnlyError
from receiver.metadata import records
from receiver.metadata.committer import Committer
from receiver.metadata.errors import GuardFailed
from receiver.metadata.guards import Guard
from receiver.metadata.journal import JOURNAL, OwnerJournal
from receiver.metadata.log import LOG_NAME, LogReader, LogWriter, create_log
from receiver.metadata.reading import Reading
from receiver.metadata.replay import Replay
from receiver.metadata.state import State
from receiver.metadata.timestamps import Allocator, hybrid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.durable import Lock

__all__ = ["Engine", "Guard", "GuardFailed"]

LOCK_NAME = "engine.lock"
_log = logging.getLogger(__name__)


class Engine:
    """One engine of a schema directory; see the module. Made by `open` and `read_only`."""

    def __init__(self, what: str, state: State, commits: array[int]) -> None:
        self._what = what
        self._reading = Reading(state)
        self._state = state
        self._commits = commits
        self._newest = state.newest
        self._published = threading.Condition()
        self._committer: Committer | None = None
        self._journal: OwnerJournal | None = None
        self._resources = ExitStack()

    # -- opening -----------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        clock: Callable[[], float] = time.time,
        allocate: Allocator | None = None,
    ) -> Self:
        """Open the engine of a directory, or make one; a torn tail of its log is cut.

        Args:
            directory: the schema directory; made if it is not there.
            clock: seconds since the epoch, for commit timestamps.
            allocate: gives the timestamps themselves, in place of a clock.

        Raises:
            LockedError: another process has it open (`extra["pid"]`).
            DamagedError: the log is damaged in the middle, or gone; it names file and offset.
            NewerLogError: a newer version of tsferry wrote the log.
        """
        allocate = allocate or hybrid(clock)
        with ExitStack() as stack:
            tree = stack.enter_context(Tree(directory, create=True))
            lock: Lock = tree.lock(LOCK_NAME)
            stack.callback(lock.release)
            _sweep(tree)
            if not tree.exists(LOG_NAME):
                _make(tree, allocate)
            engine, writer = cls._replay_to_write(tree)
            stack.callback(writer.close)
            engine._journal = OwnerJournal.open(tree, engine._state)
            stack.callback(engine._journal.close)
            engine._committer = Committer(
                engine._state,
                writer,
                allocate,
                publish=engine._publish,
                settled=engine._journal.write,
            )
            stack.callback(engine._committer.close)
            engine._resources = stack.pop_all()
        return engine

    @classmethod
    def read_only(cls, directory: Path) -> Self:
        """The engine as its log has it now, for reading beside a server that may be running.

        A commit that is being written just now may be seen before its caller is told.

        Raises:
            NotFoundError: there is no engine in this directory.
            DamagedError: the log is damaged.
            NewerLogError: a newer version of tsferry wrote the log.
        """
        try:
            tree = Tree(directory)
        except FileNotFoundError as error:
            raise NotFoundError(f"{directory}: there is no such directory") from error
        with tree:
            if not tree.exists(LOG_NAME):
                raise NotFoundError(f"{directory}: no metadata engine has been here")
            try:
                return cls._replay(tree)[0]
            except DamagedError:
                # The server may have cut back a failed write while we read: look once more.
                return cls._replay(tree)[0]

    @classmethod
    def _replay(cls, tree: Tree, *, from_disk: bool = False) -> tuple[Self, LogReader]:
        fd = tree.open_read(LOG_NAME)
        try:
            if from_disk:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            reader = LogReader(fd, str(tree.path / LOG_NAME))
            replay = Replay()
            replay.run(reader)
        finally:
            os.close(fd)
        return cls(str(tree.path), replay.state, replay.commits), reader

    @classmethod
    def _replay_to_write(cls, tree: Tree) -> tuple[Self, LogWriter]:
        # What the last process wrote and did not live to flush is flushed before anybody is told
        # of it. What a failed flush left in memory alone is forgotten: pages that are dropped now
        # are read from the disk, and show what is truly there.
        tree.sync_file(LOG_NAME)
        crash.point("mlog.open.flushed")
        engine, reader = cls._replay(tree, from_disk=True)
        file = tree.append_file(LOG_NAME)
        if reader.torn:
            _log.warning(
                "cut a torn tail off the log",
                extra={"file": reader.what, "offset": reader.good, "bytes": reader.torn},
            )
            crash.point("mlog.cut.before")
            file.truncate(reader.good)
            crash.point("mlog.cut.after")
        return engine, LogWriter(file, reader.salt, reader.next_lsn)

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
    def failed(self) -> str | None:
        """Why the engine takes no commits any more, None while it does."""
        return None if self._committer is None else self._committer.failed

    def reading(self) -> Reading:
        """`with engine.reading() as state`: committed state, which stands still meanwhile.

        Never waits for the disk. Keep it short, commits wait for its end; rows that were taken out
        stay valid. A commit from inside is refused (it would wait for itself).
        """
        return self._reading

    def has_commit(self, ts: int) -> bool:
        """Whether there is a commit with exactly this timestamp."""
        at = bisect_left(self._commits, ts)
        return at < len(self._commits) and self._commits[at] == ts

    def wait_past(self, ts: int, timeout: float) -> int:
        """Wait until there is a commit newer than `ts`, at most `timeout` seconds.

        Returns:
            the newest commit.
        """
        with self._published:
            self._published.wait_for(lambda: self._newest > ts, timeout)
        return self._newest

    # -- committing --------------------------------------------------------------------------

    def commit(self, ops: Sequence[records.Op], guards: Sequence[Guard] = ()) -> int:
        """Make operations true, all or none; returns the commit's timestamp once it is durable.

        Raises:
            GuardFailed: a row is not as a guard says.
            ConflictError: a file holds a device of another owner.
            RefusedCommitError: another rule is broken (`receiver.metadata.rules`).
            NoSpaceError: the disk is full; a later commit may succeed.
            FailedSyncError: the flush failed; whether the commit lasted shows at the next start.
            ReadOnlyError: the engine takes no commits (any more).
            TooLargeError: the commit does not fit into a frame.
        """
        if self._committer is None:
            raise ReadOnlyError(f"{self._what} was opened for reading only")
        if self._reading.is_mine():
            raise RuntimeError("commit() inside reading() would wait for itself")
        return self._committer.commit(ops, guards)

    def _publish(self, commits: Sequence[records.Commit]) -> None:
        with self._reading.writing() as state:
            for commit in commits:
                state.apply(commit)
                self._commits.append(commit.ts)
        with self._published:
            self._newest = state.newest
            self._published.notify_all()

    def close(self) -> None:
        """Finish what is being committed, refuse what comes later, give the lock back."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sweep(tree: Tree) -> None:
    # Only here: beneath sync/ the sender of this node may be writing just now.
    for name, _ in tree.listing():
        if is_temporary(name):
            tree.unlink(name)


def _make(tree: Tree, allocate: Allocator) -> None:
    if tree.exists(JOURNAL):
        raise DamagedError(
            f"{tree.path / LOG_NAME} is gone, although {JOURNAL} shows that an engine was here; "
            "restore it, or move what is in the directory away to begin anew",
            extra={"file": str(tree.path / LOG_NAME), "offset": 0},
        )
    made = records.encode_ops([records.EngineMade(secrets.token_hex(16))])
    create_log(tree, LOG_NAME, (allocate(0), made))
