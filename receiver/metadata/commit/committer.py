"""Group commit: the commits that wait are flushed together, by one of their callers.

queue -> validate -> allocate timestamps -> append -> fdatasync once -> publish -> wake the callers.

There is no thread for it. A caller that finds nobody writing leads: it writes what waits, its own
commit among it, and hands over to the first that came meanwhile. So a lone commit costs no change
of threads, and each of many costs one wake-up.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from common import crash
from common.errors import (
    BusyError,
    FailedSyncError,
    NoSpaceError,
    ReadOnlyError,
    TsferryError,
    UnreachableError,
)
from receiver.metadata.commit.commit_request import Build, CommitRequest
from receiver.metadata.commit.draft import examine
from receiver.metadata.commit.guards import Guard, check_guards, note_guard
from receiver.metadata.commit.judging.rules import check_txn
from receiver.metadata.commit.judging_beside import JudgeBeside, OvertakenError
from receiver.metadata.commit.recent_commits import JudgedBeside, JudgedOps, RecentCommits
from receiver.metadata.commit.replaced.becoming_final import with_fallbacks, with_finals
from receiver.metadata.commit.replaced.coming_back import with_revivals
from receiver.metadata.commit.replaced.dissolving import with_dissolutions
from receiver.metadata.commit.tablet_making import with_tablets
from receiver.metadata.commit.touched import Touched
from receiver.metadata.model.errors import (
    TimestampRefusedError,
    UnknownOutcomeError,
)
from receiver.metadata.model.records import Commit, Op, TxnCommitted
from receiver.metadata.model.tag_layout import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.log.appending import Appender
    from receiver.metadata.model.timestamps import Allocator
    from receiver.metadata.state.lock import Reading
    from receiver.metadata.state.state import State

__all__ = ["Committer", "Publish"]

MAX_BATCH_COMMITS = 1024
MAX_BATCH_BYTES = 16 << 20
"""A batch is one frame; a commit larger than this is a batch of its own."""
_TRIES = 4
"""Times that a large commit is judged beside the line before it is judged in it."""
_log = logging.getLogger(__name__)

T = TypeVar("T")
Publish = tuple[Commit, "Sequence[Sequence[int] | None] | None", int]
"""A commit that is on the disk; where its tags are (`Layout.offsets`), and their bytes."""


class Committer:
    """Group commit; see the module.

    Attributes:
        failed: why it takes no more commits.
        recent: what the last batches touched.
    """

    def __init__(
        self,
        state: State,
        appender: Appender,
        allocate: Allocator,
        *,
        publish: Callable[[Sequence[Publish]], None],
        settled: Callable[[], None],
        tag_bytes: int | None = None,
        reading: Reading | None = None,
        first: Callable[[], Op | None] = lambda: None,
    ) -> None:
        """Make it.

        Args:
            state: committed state. Only who leads changes it, so there it is read without a lock.
            appender: takes the batches.
            allocate: gives timestamps.
            publish: makes a batch visible; it is on the disk.
            settled: called after the callers of a batch were woken.
            tag_bytes: tags and attributes of one series, at most.
            reading: lets threads that do not lead read the state; without, all is judged by who
                leads.
            first: gives what is to be committed before anything else is; None once that is so.
        """
        self.failed: str | None = None
        self._state = state
        self._appender = appender
        self._allocate = allocate
        self._publish = publish
        self._settled = settled
        self._first = first
        self._tag_bytes = tag_bytes
        self._high = state.newest
        self.recent = RecentCommits(state.newest)
        self._reading = reading
        self._beside = None if reading is None else JudgeBeside(reading, self.recent)
        self._unknown: list[CommitRequest] = []
        self._waiting: deque[CommitRequest] = deque()
        self._entering = threading.Lock()
        self._holder: CommitRequest | None = None
        self._leader = 0
        self._closed = False
        self._is_written = False
        """Whether the round is so far that something of it may be in the log."""

    def commit(self, ops: Sequence[Op], guards: Sequence[Guard]) -> int:
        """See `Engine.commit`."""
        request = CommitRequest(ops, tuple(guards))
        if request.is_large and self._beside is not None:
            return self._commit_large(request, self._beside)
        return self._submit(request)

    def commit_judged(self, judged: JudgedOps, committed: TxnCommitted) -> int:
        """See `Engine.commit_judged`."""
        request = CommitRequest.of_txn(judged, committed)
        if request.is_large and self._beside is not None:
            with suppress(OvertakenError):
                return self._submit(request)
            return self._commit_large(request.again(), self._beside)
        return self._submit(request)

    def _commit_large(self, request: CommitRequest, beside: JudgeBeside) -> int:
        """Judge it beside the line first; where it is overtaken again and again, in the line."""
        for _ in range(_TRIES):
            if request.settled:
                request = request.again()
            request.beside = beside.judge(request, self._bring_back)
            crash.point("mlog.commit.judged")
            if request.beside is not None:
                with suppress(OvertakenError):
                    return self._submit(request)
        request = request.again()
        return self._submit(request)

    def commit_with(self, build: Build, guards: Sequence[Guard]) -> int:
        """See `Engine.commit_with`."""
        return self._submit(CommitRequest(None, tuple(guards), build=build))

    def between_batches(self, work: Callable[[], T]) -> T:
        """Do something while nothing is being committed; what it raises is raised here.

        It is done by whichever thread leads.
        """
        results: list[T] = []
        self._submit(CommitRequest(None, work=lambda: results.append(work())))
        return results[0]

    def stop(self, why: str) -> None:
        """Take no more commits."""
        self.failed = self.failed or why
        _log.critical("the metadata engine takes no more commits", extra={"reason": why})

    def close(self) -> None:
        """Finish what waits, take nothing more; closing twice is harmless."""
        with self._entering:
            if self._closed:
                return
            self._closed = True
        with suppress(TsferryError):
            self._submit(CommitRequest(None, work=_nothing), last=True)

    # -- whose turn it is --------------------------------------------------------------------

    def _submit(self, request: CommitRequest, *, last: bool = False) -> int:
        if self._leader == threading.get_ident():
            raise RuntimeError("a commit from inside a commit would wait for itself")
        try:
            with self._entering:
                if self._closed and not last:
                    raise ReadOnlyError("the metadata engine is closed")
                if request.work is None:
                    self._put_first(request)
                self._waiting.append(request)
                if self._holder is None:
                    request.leads = True
                    self._holder = request
            if not request.leads:
                request.turn.acquire()
            if not request.settled:
                self._lead(request)
        except BaseException:  # a signal: the commit goes its way without us
            self._leave(request)
            raise
        if request.error is not None:
            raise request.error
        return request.ts

    def _put_first(self, request: CommitRequest) -> None:
        """Have what comes before all else of this process stand in the line before a commit."""
        op = self._first()
        if op is not None and not any(type(each) is type(op) for each in request.ops):
            first = CommitRequest([op])
            first.abandoned = True  # nobody waits for it
            self._waiting.append(first)

    def _lead(self, request: CommitRequest) -> None:
        self._leader = threading.get_ident()
        while not request.settled:
            self._round()
        self._leader = 0
        self._hand_over(request)

    def _leave(self, request: CommitRequest) -> None:
        """Its thread goes, wherever that was in the line; others go on."""
        with self._entering:
            request.abandoned = True
        if self._holder is request:
            self._leader = 0
            self._hand_over(request)

    def _hand_over(self, request: CommitRequest) -> None:
        """Have another one lead, if this one does; once more where a signal came in between."""
        with self._entering:
            if self._holder is not request:
                return
            others = (each for each in self._waiting if not (each.settled or each.abandoned))
            heir = next(others, None)
            if heir is None:
                self._holder = None
            else:
                heir.leads = True
                self._holder = heir  # no signal is heard before the release
                heir.turn.release()

    # -- a batch -----------------------------------------------------------------------------

    def _round(self) -> None:
        batch: list[CommitRequest] = []
        deferred: list[CommitRequest] = []
        self._is_written = False
        try:
            self._settle_unknown()
            together = self._admit(batch, deferred)
            if batch:
                self._write(batch, together)
        except BaseException as error:
            try:
                self._break_off(batch, deferred, error)
            except BaseException:
                self._break_off(batch, deferred, error)
                raise
            if not isinstance(error, Exception):
                raise  # a signal is for this thread, whosever commits it was writing
            return
        try:
            self._tell(batch, deferred)
        except BaseException:  # a signal: others wait for what is known
            self._tell(batch, deferred)
            raise
        if batch:
            self._after()

    def _break_off(
        self, batch: list[CommitRequest], deferred: list[CommitRequest], error: BaseException
    ) -> None:
        """A round ends by an error, or by a signal; twice is harmless."""
        if self._is_written or isinstance(error, Exception):
            self._abort([*batch, *deferred], error)
            return
        # Nothing was written: others go on with these, and with that of who goes, in their order.
        for request in (*reversed(deferred), *reversed(batch)):
            if not request.settled and request not in self._waiting:
                self._waiting.appendleft(request)

    def _tell(self, batch: Sequence[CommitRequest], deferred: list[CommitRequest]) -> None:
        """Wake the callers of a batch, and have what was put off come next; twice is harmless."""
        waiting = self._waiting
        while deferred:
            if not (waiting and waiting[0] is deferred[-1]):
                waiting.appendleft(deferred[-1])
            deferred.pop()
        for request in batch:
            request.settle()

    def _admit(self, batch: list[CommitRequest], deferred: list[CommitRequest]) -> Touched:
        """Take what can go into one frame from the queue; what is deferred goes back to its head.

        Returns what they touch.

        What is looked at leaves the queue last, so that an interrupt loses nothing.
        """
        waiting = self._waiting
        together = Touched()
        size, tags_end = 0, self._appender.tags_end
        while waiting and len(batch) < MAX_BATCH_COMMITS:
            request = waiting[0]
            if batch and (request.work or size + len(request.encoded) > MAX_BATCH_BYTES):
                break
            touched = self._examine(request, together.cost)
            if touched is None:
                waiting.popleft()
                continue
            if batch and not together.allows(touched):
                deferred.append(request)
                waiting.popleft()
                continue
            if self._place(request, tags_end):
                together.add(touched)
                size += len(request.encoded)
                tags_end += len(request.tags)
                batch.append(request)
            waiting.popleft()
            if touched.exclusive:
                break
        return together

    def _examine(self, request: CommitRequest, pending: int) -> Touched | None:
        """What a commit touches, None if it is settled: refused, or work that is done."""
        if request.settled:
            return None
        try:
            if request.work is not None:
                try:
                    request.work()
                finally:
                    self._see_whole()
                request.settle()
                return None
            self._see_whole()
            if self.failed is not None:
                raise ReadOnlyError(f"the metadata engine takes no commits: {self.failed}")
            if request.judged is not None:
                touched = self._standing(request, request.judged)
                if touched is not None:
                    return touched
            if request.beside is not None:
                check_guards(self._state, request.beside.guards)
                return self._standing_beside(request, request.beside, pending)
            check_guards(self._state, request.guards)
            if request.build is not None:
                request.asked = None
                request.ts = self._next_timestamp()
                request.encode(request.build(request.ts))
            self._bring_back(request)
            touched = examine(self._state, request.ops, pending=pending)
        except OvertakenError as error:  # its caller judges it anew
            request.settle(error)
            return None
        except Exception as error:
            _refuse(request, error)
            return None
        for guard in request.guards:
            note_guard(touched, guard, self._state)
        return touched

    def _see_whole(self) -> None:
        """Nothing is built on a state of which work was cut off in the middle, by whatever."""
        broken = None if self._reading is None else self._reading.broken
        if broken is not None and self.failed is None:
            self.stop(broken)

    def _standing(self, request: CommitRequest, judged: JudgedOps) -> Touched | None:
        """What a commit touches that was judged already; None where that may not hold any more.

        Raises:
            OvertakenError: the same, of a large one: it is judged beside the line.
        """
        touched = judged.touched
        if judged.ts != self._state.newest and not self.recent.leave_alone(judged.ts, touched):
            request.judged = None  # nor will it later: what was committed since stays
            request.guards = tuple(judged.guards())
            if request.is_large and self._beside is not None:
                raise OvertakenError
            return None
        committed = request.ops[-1]
        assert isinstance(committed, TxnCommitted)
        check_txn(self._state, committed)
        touched.written.add(("txn", committed.id))
        return touched

    def _standing_beside(
        self, request: CommitRequest, beside: JudgedBeside, pending: int
    ) -> Touched:
        """What a commit touches that was judged beside the line, if that still holds.

        Raises:
            OvertakenError: it may not.
        """
        state, limit, cost = self._state, self._state.max_memory, beside.touched.cost
        fits = limit is None or state.schema.memory.used + pending + cost <= limit
        if not fits or not self.recent.leave_alone(beside.ts, beside.touched):
            raise OvertakenError
        asked = request.ops if request.asked is None else request.asked
        if list(map(type, self._brought_back(asked))) != list(map(type, request.ops)):
            raise OvertakenError
        return beside.touched

    def _brought_back(self, asked: Sequence[Op]) -> Sequence[Op]:
        """Operations with what comes back, is dissolved or made by them."""
        ops = with_revivals(self._state, with_fallbacks(self._state, asked))
        ops = with_finals(self._state, with_dissolutions(self._state, ops))
        return with_tablets(self._state, ops)

    def _bring_back(self, request: CommitRequest) -> None:
        """Add what comes back, is dissolved or made by it; anew each time it is put off."""
        asked = request.ops if request.asked is None else request.asked
        ops = self._brought_back(asked)
        if ops is not asked or request.asked is not None:
            request.encode(ops)
            request.asked = asked

    def _place(self, request: CommitRequest, tags_end: int) -> bool:
        """Give a commit its timestamp, and its tags their place; False if it is refused."""
        try:
            laid = layout(request.ops, tags_end, limit=self._tag_bytes)
            if laid is not None:
                request.tags, request.offsets = laid.content, laid.offsets
                request.tags_at = tags_end
            if request.build is None:
                request.ts = self._next_timestamp()
        except Exception as error:
            _refuse(request, error)
            return False
        return True

    def _next_timestamp(self) -> int:
        ts = self._allocate(self._high)
        if not self._high < ts < 1 << 63:
            raise TimestampRefusedError(
                f"commit timestamp {ts} does not follow {self._high}; nothing was committed"
            )
        self._high = ts
        return ts

    def _write(self, batch: list[CommitRequest], together: Touched) -> None:
        self._is_written = True
        crash.point("mlog.commit.before")
        commits = [(request.ts, request.encoded, request.tags_at) for request in batch]
        tags = b"".join([request.tags for request in batch])
        try:
            self._appender.append(commits, tags)
        except UnknownOutcomeError:
            self._unknown = list(batch)
            raise
        self.recent.add(batch[-1].ts, together)
        self._make_visible(batch)

    def _make_visible(self, batch: list[CommitRequest]) -> None:
        crash.point("mlog.commit.durable")
        try:
            self._publish(
                [
                    (Commit(each.ts, each.ops, each.tags_at), each.offsets, len(each.tags))
                    for each in batch
                ]
            )
        except Exception as error:
            raise FailedSyncError(
                "the commit is in the log and could not be made visible, so whether it lasts shows "
                f"at the next start: {error!r}"
            ) from error
        crash.point("mlog.commit.published")

    def _settle_unknown(self) -> None:
        """A batch that the remote log did not answer for is there now, or never will be."""
        if not self._unknown:
            return
        self._is_written = True
        kept = self._appender.settle()
        batch, self._unknown = self._unknown, []
        if kept:
            self.recent.forget(batch[-1].ts)
            self._make_visible(batch)
        self._is_written = False

    def _abort(self, requests: list[CommitRequest], error: BaseException) -> None:
        """Nothing of the batch is visible. What can heal may; after all else it is the end.

        Where nothing was written there is nothing to heal.
        """
        if self._is_written and not _heals(error):
            self.failed = str(error) or repr(error)
            _log.critical("the metadata engine takes no more commits", exc_info=error)
        if not requests:
            with self._entering:
                requests = list(self._waiting)
        for request in requests:
            if not request.settled:
                request.settle(_for_caller(error, is_written=self._is_written))

    def _after(self) -> None:
        try:
            self._settled()
        except Exception:
            _log.exception("what follows a commit failed; the commit stands")


def _nothing() -> None:
    pass


def _refuse(request: CommitRequest, error: Exception) -> None:
    """A commit that goes no further: a fault of its values, or of the rules, is its own alone."""
    if not isinstance(error, TsferryError):
        _log.error("checking a commit failed", exc_info=error)
    request.settle(error)


def _heals(error: BaseException) -> bool:
    return isinstance(error, NoSpaceError | UnreachableError | UnknownOutcomeError)


def _for_caller(error: BaseException, *, is_written: bool) -> Exception:
    """An exception of its own for each caller: they are raised in several threads."""
    if isinstance(error, TsferryError):
        return type(error)(error.message, retry_after=error.retry_after, extra=dict(error.extra))
    if isinstance(error, OSError):
        return FailedSyncError(f"writing the log of the metadata engine failed: {error}")
    if isinstance(error, Exception) and not is_written:
        return BusyError(f"nothing of it was committed: {error!r}; try again", retry_after=1.0)
    if isinstance(error, Exception):
        return ReadOnlyError(f"the metadata engine failed: {error!r}")
    return FailedSyncError(f"writing the log of the metadata engine was interrupted: {error!r}")
