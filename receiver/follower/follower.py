"""Keeps a copy up to its source, in a thread: by period, on demand, or as soon as there is news.

Whatever does not go on from the copy (a fork, a log that is gone, damage) has the next copy made
beside it; when that one is proven to open, `anew` is told, and whoever reads begins with it. Until
then the old one answers, and says how old it is.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from common.durable import Closing
from common.errors import DamagedError, ReadOnlyError, TsferryError
from common.threads import PeriodicThread
from receiver.follower.log_copy import LogCopy
from receiver.follower.log_source import CircleError, NotContinuedError, ReplacedSourceError
from receiver.metadata.following_engine import FollowingEngine
from receiver.metadata.model.timestamps import from_seconds
from receiver.operator.views.log_file_views import LogOrigin

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.follower.log_source import LogSource, SourceLog
    from receiver.follower.node_directory import NodeDirectory
    from receiver.metadata.model.engine_options import EngineOptions

__all__ = ["FollowProgress", "Follower", "begin_copy", "check_source"]

_log = logging.getLogger(__name__)

_WAIT = 0.8
"""Seconds that a source which waits for news is asked to: so old may be what is said of it."""
_SOONEST, _LATEST = 0.5, 5.0
"""Seconds between two tries while the source fails, doubled each time."""
_COLLECT_EVERY = 60.0


class FollowProgress(NamedTuple):
    """Where a copy stands.

    Attributes:
        url: of the source.
        incarnation: of the owner whose log it is, 0 for none.
        source_commit: the newest commit that the source was seen to have.
        level_at: when the copy last had all that the source had, seconds since the epoch; None if
            it never did since the start.
        behind: seconds since then; None before.
        problem: what is in the way, None if nothing is.
    """

    url: str
    incarnation: int
    source_commit: int
    level_at: float | None
    behind: float | None
    problem: str | None


def check_source(found: SourceLog, directory: NodeDirectory, url: str) -> None:
    """See that a source is the one that was followed before, or goes on from it.

    Raises:
        CircleError: it follows this node.
        ReplacedSourceError: it is another engine, or an owner that was replaced.
    """
    if found.origin is not None and directory.ident in found.origin.through:
        raise CircleError(
            f"{url} follows this node, by {len(found.origin.through) - 1} others; one of them has "
            "to follow the receiver or its object store (follow.url)"
        )
    engine, incarnation = directory.engine, directory.incarnation
    if engine and found.engine != engine:
        raise ReplacedSourceError(
            f"{url} is the engine {found.engine}, and {engine} was followed here; a node that is "
            "to follow another one begins with an empty schema_dir"
        )
    if found.incarnation < incarnation:
        raise ReplacedSourceError(
            f"{url} is incarnation {found.incarnation} of the engine, and incarnation "
            f"{incarnation} has taken over since; it is not followed"
        )


def begin_copy(
    directory: NodeDirectory,
    source: LogSource,
    found: SourceLog,
    options: EngineOptions,
    *,
    beyond: int = 0,
    clock: Callable[[], float] = time.time,
) -> FollowingEngine:
    """Make the next copy, see that it opens, and take it; returns its engine.

    Args:
        directory: of the node.
        source: where it is made from.
        found: there.
        options: of the engine.
        beyond: LSN that it has to reach beyond.
        clock: seconds since the epoch.

    Raises:
        DamagedError: nothing at the source makes a state, or none that reaches so far.
        UnreachableError: of the source.
    """
    place = directory.next_copy()
    LogCopy(place, source).make(found)
    engine = FollowingEngine.follow(place, options=options, clock=clock)
    try:
        reached = engine.published().lsn
        if reached <= beyond:
            raise DamagedError(f"{source.url}: nothing there reaches beyond commit {reached}")
        directory.take(found.engine, found.incarnation)
    except BaseException:
        engine.close()
        raise
    return engine


class Follower(Closing):
    """See the module.

    Attributes:
        ready_anew: the next copy is there, and this one is not advanced any more.
    """

    def __init__(
        self,
        directory: NodeDirectory,
        source: LogSource,
        engine: FollowingEngine,
        *,
        poll: float,
        options: EngineOptions,
        anew: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            directory: of the node.
            source: closed with this.
            engine: of the copy.
            poll: seconds between two looks at a source that does not wait.
            options: of the engine, for the next one.
            anew: called once, when the next copy is to be read.
            clock: seconds since the epoch.
            monotonic: seconds.
        """
        self.ready_anew = False
        self._directory = directory
        self._source = source
        self._engine = engine
        assert directory.copy is not None
        self._incarnation = directory.incarnation
        self._copy = LogCopy(directory.copy, source)
        self._poll = poll
        self._options = options
        self._anew = anew
        self._clock = clock
        self._monotonic = monotonic
        self._problem: str | None = None
        self._source_commit = engine.newest_commit
        self._origin: LogOrigin | None = None
        self._level: tuple[float, float] | None = None
        self._heard = threading.Condition()
        self._stepping = threading.Lock()
        self._tried = 0
        self._stuck_at = 0
        self._next_collection = monotonic() + _COLLECT_EVERY
        self._wait = 0.0
        self._patience = _SOONEST
        self._thread = PeriodicThread("following", self._turn, _log, "following failed")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop; closing twice is harmless."""
        self._thread.stopping.set()
        self._source.close()  # ends the look that is under way
        self._thread.close()

    def progress(self) -> FollowProgress:
        """Where it stands."""
        level = self._level
        return FollowProgress(
            url=self._source.url,
            incarnation=self._incarnation,
            source_commit=self._source_commit,
            level_at=None if level is None else level[0],
            behind=None if level is None else max(0.0, self._monotonic() - level[1]),
            problem=self._problem,
        )

    @property
    def is_live(self) -> bool:
        """Whether what is known of the source tells of all commits, and not of copies of them."""
        return self._source.waits and (self._origin is None or self._origin.is_live)

    def origin(self) -> LogOrigin:
        """Where this node has its copy from, for those that follow it."""
        before = self._origin
        return LogOrigin(
            through=[self._directory.ident, *(before.through if before is not None else ())],
            behind=self.progress().behind,
            is_live=self.is_live,
            writer=None if before is None else before.writer,
        )

    def reach(self, ts: int, seconds: float) -> bool:
        """Wait until everything up to a time is here; whether it is.

        Of a source that tells its newest commit itself, it is also known when there is nothing
        newer; a store may have what was committed only later.

        Args:
            ts: the time.
            seconds: to wait at most.
        """
        if self._has(ts):
            return True
        self._thread.wake()
        with self._heard:
            return self._heard.wait_for(lambda: self._has(ts), seconds)

    def _has(self, ts: int) -> bool:
        if ts <= self._engine.newest_commit:
            return True
        level = self._level
        return self.is_live and level is not None and from_seconds(level[0]) > ts

    # -- the thread --------------------------------------------------------------------------

    def _turn(self) -> float | None:
        """A step, and seconds until the next; None where this copy is not advanced any more."""
        pause = 0.0
        try:
            self.step(self._wait)
            pause, self._wait = 0.0 if self._source.waits else self._poll, _WAIT
            self._patience = _SOONEST
        except Exception as error:
            if self._thread.stopping.is_set():
                return None
            self._wait = 0.0
            if isinstance(error, TsferryError | OSError):
                self._tell(str(error))
            else:
                self._tell(repr(error))
                _log.exception("following failed")
        if self.ready_anew:
            return None
        if self._problem is not None:
            pause = max(pause, self._patience)
            self._patience = min(2 * self._patience, _LATEST)
        return pause

    def _tell(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            _log.warning("following has to wait", extra={"reason": problem})
        self._problem = problem

    def step(self, wait: float = 0.0) -> None:
        """Look at the source once, and take what is new.

        Args:
            wait: seconds that the source may wait for news.

        Raises:
            ReplacedSourceError: this is not the source that was followed.
            UnreachableError: it does not answer.
        """
        with self._stepping:
            if not self.ready_anew:
                self._step(wait)

    def _step(self, wait: float) -> None:
        engine = self._engine
        lsn = engine.published().lsn
        now = (self._clock(), self._monotonic())
        found = self._source.look(lsn=lsn, ts=engine.newest_commit, wait=wait)
        if self._source.waits:
            now = (self._clock(), self._monotonic())
        check_source(found, self._directory, self._source.url)
        self._origin, self._source_commit = found.origin, found.ts
        problem = None
        try:
            if found.taken_by > found.incarnation:
                problem = f"incarnation {found.taken_by} has taken over and has put nothing yet"
            else:
                problem = self._go_on(found, lsn, now)
        except (NotContinuedError, DamagedError, ReadOnlyError) as error:
            _log.warning("the copy is made anew", extra={"reason": error.message})
            self._problem = error.message
            beyond, self._stuck_at = self._stuck_at, 0
            begin_copy(self._directory, self._source, found, self._options, beyond=beyond).close()
            self.ready_anew = True
            self._anew()
            return
        self._tell(problem)
        with self._heard:
            self._heard.notify_all()
        self._look_after(found)

    def _go_on(self, found: SourceLog, lsn: int, now: tuple[float, float]) -> str | None:
        """Take what is new; what is in the way of the rest."""
        engine = self._engine
        if engine.damage is not None:
            raise NotContinuedError(engine.damage)
        if found.incarnation != self._incarnation:
            raise NotContinuedError(
                f"{self._source.url}: incarnation {found.incarnation} has taken over"
            )
        is_known = found.goes_on if self._source.waits else found.goes_on is not False
        if not is_known or found.lsn < lsn:
            raise NotContinuedError(
                f"{self._source.url} has another log than the one that was followed: commit {lsn} "
                "is not in it"
            )
        if found.lsn > lsn:
            self._copy.grow(found, lsn)
            engine.advance()
        reached = engine.published().lsn
        if reached >= found.lsn:
            age = 0.0 if found.origin is None else found.origin.behind
            if age is None:
                return f"{self._source.url} itself does not follow; its status says why"
            self._level = (now[0] - age, now[1] - age)
            return None
        problem = f"the log ends here with commit {reached}: {self._copy.cut}"
        newest = max((each.lsn for each in found.checkpoints), default=0)
        if newest <= max(reached, self._tried):
            return problem
        # One try for each checkpoint: it may be damaged too, and all of it would be fetched again.
        self._tried, self._stuck_at = newest, reached
        raise NotContinuedError(problem)

    def _look_after(self, found: SourceLog) -> None:
        """What nobody waits for: older log, a newer checkpoint, history that is over."""
        self._copy.renew(found, self._engine.published().lsn)
        if self._copy.fetch_older(found) and not self._source.waits:
            self._thread.wake()
        if self._monotonic() >= self._next_collection:
            self._engine.collect_history()
            self._next_collection = self._monotonic() + _COLLECT_EVERY
