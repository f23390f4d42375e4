"""One receiver in the daemon: rounds by period, by hint and by request, in a thread of its own.

A receiver that is dead holds up nobody else. After a failure the next round comes sooner than the
period, with growing pauses, so that nothing has to be restarted once the receiver is back.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from common import wire
from common.allocated import give_back
from common.durable import Lock
from common.errors import LockedError, StoppedError, TsferryError
from common.system_errors import system_error
from sender.metrics.round_tallies import RoundTallies
from sender.metrics.rounds_seen import RoundsSeen
from sender.round.rested import Rested
from sender.round.round import Round, RoundOptions
from sender.round.round_words.round_report import RoundReport
from sender.round.round_words.said_of_itself import heartbeat_of
from sender.send.connection.backoff import Backoff, retry_helps
from sender.send.remote import Remote
from sender.send.sent_bytes.progress import Meter, Told

__all__ = ["ReceiverLoop", "Request"]

_log = logging.getLogger(__name__)

_FIRST_RETRY_S = 5.0
_LOCK_RETRY_S = 5.0
_IN_A_ROUND = "in a round"
_SOONEST_S = 1.0
_SHARE_OF_ROUNDS = 0.1
"""Of the time, at most, that rounds take which come before the period for files that rest: while
one is written to again and again, each of them finds that it has not rested yet."""
_GRACE_S = 20.0
"""How long the end of the process waits for a thread: for the block on its way."""


@dataclass
class Request:
    """A round that somebody asked for.

    Attributes:
        options: of the round.
        tell: hears of progress.
        events: whether it hears of each file as well.
        report: what came of it, once `done`.
        done: set at the end.
    """

    options: RoundOptions
    tell: Callable[[Told], None]
    events: bool = False
    report: RoundReport | None = None
    done: threading.Event = field(default_factory=threading.Event)


class ReceiverLoop:
    """The threads of one receiver."""

    def __init__(
        self,
        remote: Remote,
        *,
        watched: Callable[[], bool] = lambda: False,
        told: Callable[[RoundReport], None] = lambda report: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The threads of a receiver; none is started.

        Args:
            remote: to it.
            watched: whether `changed` is called for each change in the data directories.
            told: called with the report of each round.
            clock: seconds.
        """
        self.remote = remote
        self._watched = watched
        self._told = told
        self._clock = clock
        daemon = remote.config.daemon
        self._backoff = Backoff(min(_FIRST_RETRY_S, daemon.period), daemon.period)
        self._wake = threading.Condition()
        self._requests: deque[Request] = deque()
        self._changed_at: float | None = None
        self._due = clock()
        self._failures = 0
        self._rested: Rested | None = None
        self._looked = clock()
        self._meter = Meter(remote.name)
        self.state = "starting"
        self.last: RoundReport | None = None
        self.last_at = 0.0
        self._whole: RoundReport | None = None
        """The last round that looked at the files."""
        self._tallies = RoundTallies()
        self._rounds = threading.Thread(target=self._run, name=f"round-{remote.name}", daemon=True)
        self._beats = threading.Thread(target=self._beat, name=f"beat-{remote.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._rounds.start()
        self._beats.start()

    def join(self) -> None:
        """Wait for the threads; `remote.stop` is set."""
        with self._wake:
            self._wake.notify_all()
        end = time.monotonic() + _GRACE_S
        self._rounds.join(max(0.0, end - time.monotonic()))
        self.remote.close()

    # -- from other threads ----------------------------------------------------------------

    def changed(self) -> None:
        """Something changed in the data directories: a round, once it has come to rest."""
        with self._wake:
            self._changed_at = self._clock()
            self._wake.notify_all()

    def ask(self, request: Request) -> None:
        """Do a round for somebody as soon as the running one has ended."""
        with self._wake:
            self._requests.append(request)
            self._wake.notify_all()

    @property
    def now(self) -> dict[str, Any]:
        """For the control socket: what it does, and how far it is."""
        found = self._meter.now.as_event() | {"state": self.state}
        return found | {"last": None if self.last is None else self.last.as_json()}

    @property
    def seen(self) -> RoundsSeen:
        """For measures: what its rounds came to."""
        return RoundsSeen(
            self.remote.name,
            self.last,
            self._whole,
            self.last_at,
            busy=self.state == _IN_A_ROUND,
            tallies=self._tallies,
        )

    # -- rounds ----------------------------------------------------------------------------

    def _run(self) -> None:
        lock = self._take_lock()
        if lock is None:
            return
        try:
            while not self.remote.stop.is_set():
                self.state = "idle"
                request = self._wait_for_work()
                if self.remote.stop.is_set():
                    break
                self._round(request)
                gc.collect()
                give_back()  # a round with many files leaves the heap in pieces
        finally:
            lock.release()
            self.state = "stopped"
            self._refuse_the_rest()

    def _take_lock(self) -> Lock | None:
        told = False
        while not self.remote.stop.is_set():
            try:
                return self.remote.lock()
            except LockedError as error:
                if not told:
                    _log.warning("%s: waits: %s", self.remote.name, error.message)
                told = True
                self.state = "waiting for another sender to end"
            except TsferryError as error:
                _log.error("%s: %s", self.remote.name, error)
            except OSError as error:
                _log.error("%s: %s", self.remote.name, system_error(error) or error)
            self.remote.stop.wait(_LOCK_RETRY_S)
        return None

    def _wait_for_work(self) -> Request | None:
        """Until a round is due; the request that it is for, if any."""
        settle = self.remote.config.daemon.watch_settle
        with self._wake:
            while not self.remote.stop.is_set():
                if self._requests:
                    return self._requests.popleft()
                now = self._clock()
                at = self._due
                if self._changed_at is not None and not self._failures:
                    at = min(at, self._changed_at + settle)
                if now >= at:
                    return None
                self._wake.wait(min(at - now, 1.0))
        return None

    def _round(self, request: Request | None) -> None:
        begin = self._clock()
        with self._wake:  # a change that is told from here on is the next round's
            told, self._changed_at = self._changed_at is not None, None
        rested = None if told or request is not None else self._take_rested(begin)
        self._rested = None
        self.state = _IN_A_ROUND
        tell = request.tell if request else (lambda progress: None)
        self._meter = Meter(self.remote.name, tell, events=request is not None and request.events)
        options = request.options if request else RoundOptions()
        rests_at: float | None = None
        try:
            one = Round(self.remote, options, self._meter, rested, self._clock)
            report = one.run()
            self._rested, rests_at = one.rested, one.rests_at
            if one.rested is not rested or rested is None:
                self._looked = begin
        except Exception as error:
            _log.exception("%s: the round ended with an error nobody foresaw", self.remote.name)
            report = RoundReport(self.remote.name, error=TsferryError(f"internal: {error!r}"))
        self._finish(report, begin, rests_at)
        if request is not None:
            request.report = report
            request.done.set()

    def _take_rested(self, now: float) -> Rested | None:
        """What the last round left, if each change since would have been told of."""
        late = now - self._looked >= self.remote.config.daemon.look_period
        return None if self._failures or late or not self._watched() else self._rested

    def _finish(self, report: RoundReport, begin: float, rests_at: float | None = None) -> None:
        if not report.looked and self.last is not None:
            report.pending_files = self.last.pending_files
            report.pending_bytes = self.last.pending_bytes
        self.last, self.last_at = report, self.remote.clock()
        self._whole = report if report.looked else self._whole
        self._tallies.count(report, self.last_at)
        period = self.remote.config.daemon.period
        failed = report.error is not None and not isinstance(report.error, StoppedError)
        if failed and report.error is not None and retry_helps(report.error):
            self._failures += 1
            pause = self._backoff.pause(self._failures, report.error.retry_after)
            self._due = self._clock() + pause
        else:
            self._failures = 0
            now = self._clock()
            self._due = max(begin + period, now + min(period, 1.0))
            if rests_at is not None:
                pause = max(_SOONEST_S, (now - begin) * (1 / _SHARE_OF_ROUNDS - 1))
                self._due = min(self._due, max(rests_at, now + pause))
        _say(self.remote.name, report)
        self._told(report)

    def _refuse_the_rest(self) -> None:
        with self._wake:
            for request in self._requests:
                request.done.set()
            self._requests.clear()

    # -- heartbeats ------------------------------------------------------------------------

    def _beat(self) -> None:
        client = self.remote.heartbeat_client()
        try:
            while not self.remote.stop.wait(self.remote.config.daemon.heartbeat):
                if client.endpoint.url != self.remote.addresses.now:
                    client.close()
                    client = self.remote.heartbeat_client()
                with suppress(TsferryError):
                    answer = client.heartbeat(self._heartbeat())
                    if answer.wanted:
                        self.changed()
        finally:
            client.close()

    def _heartbeat(self) -> wire.Heartbeat:
        return heartbeat_of(self.remote, self.last, self._whole, state=self.state, at=self.last_at)


def _say(name: str, report: RoundReport) -> None:
    """One line for a round: of one that ended early its end, with what it had come to."""
    shown = {
        "sent": report.sent,
        "bytes": report.bytes,
        "deleted": report.deleted,
        "conflicts": len(report.conflicts),
        "quarantined": len(report.quarantined),
        "refused": len(report.refused),
        "failed": len(report.failed),
        "pending": report.pending_files,
    }
    if report.error is not None:
        level = logging.INFO if isinstance(report.error, StoppedError) else logging.ERROR
        said = report.error.message
        _log.log(level, "%s: the round ended early: %s", name, said, extra=_not_nothing(shown))
    elif report.quiet:
        _log.debug("%s: in sync", name)
    else:
        _log.info("%s: round done in %.1f s", name, report.seconds, extra=shown)


def _not_nothing(figures: dict[str, int]) -> dict[str, int]:
    return {name: figure for name, figure in figures.items() if figure}
