"""The one thread that writes: it takes all commits that wait, and flushes them together.

queue -> validate -> allocate timestamps -> append -> fdatasync once -> publish -> wake the callers.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.errors import FailedSyncError, NoSpaceError, ReadOnlyError, TooLargeError, TsferryError
from receiver.metadata.errors import RefusedCommitError
from receiver.metadata.guards import Guard, check_guards
from receiver.metadata.log import MAX_PAYLOAD
from receiver.metadata.records import Commit, Op, decode_ops, encode_ops
from receiver.metadata.rules import Touched, examine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.log import LogWriter
    from receiver.metadata.state import State
    from receiver.metadata.timestamps import Allocator

__all__ = ["Committer"]

MAX_BATCH_COMMITS = 1024
MAX_BATCH_BYTES = 16 << 20
"""A batch is one frame; a commit larger than this is a batch of its own."""
_MAX_COMMIT = MAX_PAYLOAD - 64
_log = logging.getLogger(__name__)


class _Request:
    """A commit that waits."""

    __slots__ = ("_done", "encoded", "error", "guards", "ops", "ts")

    def __init__(self, ops: Sequence[Op], guards: Sequence[Guard]) -> None:
        self.guards = guards
        try:
            self.encoded = encode_ops(ops)
            # Read back: what is applied now is what the next start will read, and a value that it
            # could not read never gets into the log.
            self.ops = decode_ops(self.encoded)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise RefusedCommitError(f"operations that cannot be stored: {error}") from error
        self.ts = 0
        self.error: BaseException | None = None
        # A bare lock, taken twice, is the cheapest way to wait: an Event costs three times that.
        self._done = threading.Lock()
        self._done.acquire()

    def wait(self) -> int:
        self._done.acquire()
        if self.error is not None:
            raise self.error
        return self.ts

    def settle(self, ts: int) -> None:
        self.ts = ts
        self._done.release()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self._done.release()


class Committer:
    """Group commit; see the module.

    Attributes:
        failed: why it takes no more commits.
    """

    def __init__(
        self,
        state: State,
        log: LogWriter,
        allocate: Allocator,
        *,
        publish: Callable[[Sequence[Commit]], None],
        settled: Callable[[], None],
    ) -> None:
        """Start the thread.

        Args:
            state: committed state. Only this thread changes it, so here it is read without a lock.
            log: takes the frames.
            allocate: gives timestamps.
            publish: makes a batch visible; it is on the disk.
            settled: called after the callers of a batch were woken.
        """
        self.failed: str | None = None
        self._state = state
        self._log = log
        self._allocate = allocate
        self._publish = publish
        self._settled = settled
        self._high = state.newest
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="metadata-commit", daemon=True)
        self._entering = threading.Lock()
        self._closed = False
        self._thread.start()

    def commit(self, ops: Sequence[Op], guards: Sequence[Guard]) -> int:
        """See `Engine.commit`."""
        request = _Request(ops, tuple(guards))
        if len(request.encoded) > _MAX_COMMIT:
            raise TooLargeError(
                f"a commit of {len(request.encoded)} bytes; at most {_MAX_COMMIT} are allowed"
            )
        with self._entering:
            if self._closed:
                raise ReadOnlyError("the metadata engine is closed")
            self._queue.put(request)
        return request.wait()

    def close(self) -> None:
        """Finish what waits and end the thread; closing twice is harmless."""
        with self._entering:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    # -- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        waiting: deque[_Request] = deque()
        open_for_more = True
        while open_for_more or waiting:
            if open_for_more:
                open_for_more = self._gather(waiting)
            batch: list[_Request] = []
            try:
                batch = self._admit(waiting)
                if batch:
                    self._write(batch)
            except BaseException as error:
                self._abort(batch, error)
                continue
            for request in batch:
                request.settle(request.ts)
            if batch:
                self._after()

    def _gather(self, waiting: deque[_Request]) -> bool:
        """Move what is queued behind what waits; sleeps while there is nothing at all."""
        while not waiting or self._queue.qsize():
            request = self._queue.get()
            if request is None:
                return False
            waiting.append(request)
        return True

    def _admit(self, waiting: deque[_Request]) -> list[_Request]:
        """Take from `waiting` what can go into one frame; the rest keeps its place in the queue."""
        batch: list[_Request] = []
        written: set[tuple[object, ...]] = set()
        deferred: list[_Request] = []
        size = 0
        while waiting and len(batch) < MAX_BATCH_COMMITS:
            request = waiting[0]
            if batch and size + len(request.encoded) > MAX_BATCH_BYTES:
                break
            waiting.popleft()
            touched = self._examine(request)
            if touched is None:
                continue
            if not written.isdisjoint(touched.read) or not written.isdisjoint(touched.written):
                deferred.append(request)
                continue
            written |= touched.written
            size += len(request.encoded)
            batch.append(request)
        waiting.extendleft(reversed(deferred))
        return batch

    def _examine(self, request: _Request) -> Touched | None:
        """What a commit touches, None if it breaks a rule (its caller knows then)."""
        try:
            if self.failed is not None:
                raise ReadOnlyError(f"the metadata engine takes no commits: {self.failed}")
            check_guards(self._state, request.guards)
            touched = examine(self._state, request.ops)
        except TsferryError as error:
            request.fail(error)
            return None
        except Exception as error:
            # A fault of the caller's values or of the rules: it is this commit's alone.
            _log.exception("checking a commit failed")
            request.fail(error)
            return None
        for guard in request.guards:
            touched.read.update(guard.keys(self._state))
        return touched

    def _write(self, batch: list[_Request]) -> None:
        for request in batch:
            request.ts = self._next_timestamp()
        crash.point("mlog.commit.before")
        self._log.append([(request.ts, request.encoded) for request in batch])
        crash.point("mlog.commit.durable")
        self._publish([Commit(request.ts, request.ops) for request in batch])
        crash.point("mlog.commit.published")

    def _next_timestamp(self) -> int:
        ts = self._allocate(self._high)
        if not self._high < ts < 1 << 63:
            raise ReadOnlyError(f"commit timestamp {ts} does not follow {self._high}")
        self._high = ts
        return ts

    def _abort(self, batch: list[_Request], error: BaseException) -> None:
        """Nothing of the batch is visible. A full disk may heal; after all else it is the end."""
        if not isinstance(error, NoSpaceError):
            self.failed = str(error) or repr(error)
            _log.critical("the metadata engine takes no more commits", exc_info=error)
        for request in batch:
            request.fail(_for_caller(error))

    def _after(self) -> None:
        try:
            self._settled()
        except Exception:
            _log.exception("what follows a commit failed; the commit stands")


def _for_caller(error: BaseException) -> BaseException:
    """An exception of its own for each caller: they are raised in several threads."""
    if isinstance(error, TsferryError):
        return type(error)(error.message, retry_after=error.retry_after, extra=dict(error.extra))
    if isinstance(error, OSError):
        return FailedSyncError(f"writing the log of the metadata engine failed: {error}")
    if isinstance(error, Exception):
        return ReadOnlyError(f"the metadata engine failed: {error!r}")
    return error
