"""Brings the events of one queue, and what a log has to tell, to one way out: one after the other.

A failure is tried again, behind a pause that doubles, until the event is given up. So one event at
a time is on its way, those behind it wait, and those of a kind keep their order.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from common.errors import TsferryError
from common.hooks.delivery_outcome import DeliveryOutcome
from common.hooks.event_content import DroppedEvents
from common.hooks.event_queue import EventQueue
from common.hooks.hook_event import EventKind, HookEvent, HookSource, made_event
from common.hooks.queue_lines import LogPlace
from common.threads import join_begun

__all__ = ["EventLog", "HookDelivery", "LogPiece"]

_log = logging.getLogger(__name__)

_FIRST_S: Final = 1.0
_LONGEST_S: Final = 600.0
_LONGEST_ASKED_S: Final = 3600.0
_IDLE_S: Final = 0.5
"""Between two looks for commits; what is put into the queue is seen at once."""
_NOTED_S: Final = 60.0
"""How often it is written how far a log has nothing to tell."""
_JOIN_S: Final = 5.0


class LogPiece(NamedTuple):
    """What a log has to tell behind a place.

    Attributes:
        commits: the place behind each commit that has something to tell, and its events.
        reached: the place up to which that is all.
        missing: commits that were to be told of, and are no more known.
    """

    commits: Sequence[tuple[LogPlace, Sequence[HookEvent]]]
    reached: LogPlace
    missing: int = 0


class EventLog(Protocol):
    """A log that events come of."""

    def after(self, place: LogPlace | None, wants: Callable[[EventKind], bool]) -> LogPiece:
        """A piece of what is behind a place; begins with what is to come where there is none.

        Args:
            place: how far it was told of.
            wants: whether a kind is told.

        Raises:
            TsferryError: it cannot be read now.
        """
        ...


class _Item(NamedTuple):
    """What is delivered next, and what is written when it was."""

    event: HookEvent
    seq: int = 0
    place: LogPlace | None = None
    told: dict[str, int] | None = None


class HookDelivery:
    """One way out; its thread, unless a test calls `step`."""

    def __init__(
        self,
        queue: EventQueue,
        who: HookSource,
        send: Callable[[HookEvent, Callable[[], bool]], DeliveryOutcome],
        *,
        wants: Callable[[EventKind], bool],
        give_up_after: float,
        log: EventLog | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """The thread is not started.

        Args:
            queue: of this way out.
            who: tells.
            send: brings one event there, unless told to stop.
            wants: whether a kind is told.
            give_up_after: seconds of tries, until an event is dropped.
            log: what else is to be told.
            clock: seconds since the epoch.
            monotonic: seconds that nobody sets.
            chance: a number in [0, 1).
        """
        self.queue = queue
        self.gone = False
        """Whether the other side wants no event any more; only a new start tries again."""
        self.idle = threading.Event()
        """Set while nothing waits, or nothing comes through."""
        self._who = who
        self._send = send
        self._wants = wants
        self._give_up_after = give_up_after
        self._events = log
        self._clock = clock
        self._monotonic = monotonic
        self._chance = chance
        self._ahead: deque[_Item] = deque()
        self._read_to: LogPlace | None = None
        self._noted = monotonic()
        self._tries = 0
        self._trying: str | None = None
        self._failed_first = 0.0
        self._end = math.inf
        self._said = ""
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"hooks-{queue.way}", daemon=True)

    # -- the thread --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Note where a log begins to be told of: what is committed from here on is told."""
        if self._events is not None and self.queue.place is None:
            self.queue.reached(self._events.after(None, self._wants).reached)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End: a command on its way is ended, an answer is waited for shortly."""
        self._stop.set()
        self._wake.set()
        join_begun(self._thread, _JOIN_S)

    def wake(self) -> None:
        """Something was put into the queue."""
        self.idle.clear()
        self._wake.set()

    @property
    def waiting(self) -> int:
        """Events that wait, of the log only those that were read."""
        return self.queue.standing.waiting + len(self._ahead)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                pause = self.step()
            except Exception:
                # A fault of ours in telling is no reason to tell nothing ever after.
                _log.exception("hooks: %s: an error nobody foresaw", self.queue.way)
                pause = _LONGEST_S
            if pause != 0.0 and not self._wake.is_set():
                self.idle.set()
            if pause is None:
                self._wake.wait(_IDLE_S)
            elif pause:
                self._stop.wait(pause)

    def drain(self, seconds: float) -> None:
        """Deliver what waits, up to the first failure, in the caller's thread.

        Args:
            seconds: after which nothing more is begun, and a command that runs is ended: for it
                that is a failure.
        """
        self._end = self._monotonic() + seconds
        try:
            while not self._is_to_end() and self.step() == 0.0:
                pass
        except Exception:
            _log.exception("hooks: %s: an error nobody foresaw", self.queue.way)
        self._end = math.inf

    def _is_to_end(self) -> bool:
        return self._stop.is_set() or self._monotonic() >= self._end

    # -- one step ----------------------------------------------------------------------------------

    def step(self) -> float | None:
        """Deliver one event; seconds until the next, None: nothing waits."""
        if self.gone:
            return _LONGEST_S
        try:
            item = self._next()
        except (TsferryError, OSError) as error:
            return self._failed(f"the log cannot be read: {error}")
        if item is None:
            self._note()
            return None
        outcome = self._sent(item.event)
        if self._stop.is_set() and not outcome.ok:
            return None  # it was cut off by us
        if outcome.ok:
            self._delivered(item)
            return 0.0
        # More may be dropped while that is tried to be told: it is the same try all the same.
        trying = item.event.id if item.told is None else ""
        if self._trying != trying:
            self._trying, self._tries = trying, 0
            self._failed_first = self._monotonic() - self._tried_before(trying)
        pause = self._failed(outcome.text, outcome.retry_after, trying)
        if outcome.gone:
            self.gone = True
        elif self._monotonic() - self._failed_first >= self._give_up_after:
            self._give_up(item)
        return pause

    def _sent(self, event: HookEvent) -> DeliveryOutcome:
        try:
            return self._send(event, self._is_to_end)
        except Exception as error:  # whatever a library makes of an address, or of an answer
            # Without its words: an address may be in them.
            name = type(error).__name__
            return DeliveryOutcome(ok=False, text=f"an error nobody foresaw: {name}")

    def _tried_before(self, trying: str) -> float:
        """Seconds for which an event has been tried before this process did."""
        since = self.queue.tried_since(trying) if trying else None
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def _next(self) -> _Item | None:
        while not self._stop.is_set():
            untold = self.queue.untold
            if untold:
                return self._of_dropped(untold)
            head = self.queue.head()
            if head is not None:
                return _Item(head.event, seq=head.seq)
            if self._ahead:
                return self._ahead[0]
            if self._events is None or not self._read(self._events):
                break
        return None

    def _of_dropped(self, untold: dict[str, int]) -> _Item:
        kinds = {kind or "commits": count for kind, count in sorted(untold.items())}
        what = DroppedEvents(events=sum(kinds.values()), kinds=kinds, since=self.queue.untold_since)
        # The sum only grows: what says the same has the same id.
        ident = f"evt_{self._who.uuid}_{self.queue.way}_dropped_{self.queue.standing.dropped}"
        event = made_event(self._who, "dropped", what, now=self._clock(), ident=ident)
        return _Item(event, told=untold)

    def _read(self, log: EventLog) -> bool:
        """Read a piece of the log; whether there was anything behind what was read."""
        before = self._read_to or self.queue.place
        piece = log.after(before, self._wants)
        if piece.missing:
            self.queue.drop(None, place=piece.reached, count=piece.missing)
        for place, events in piece.commits:
            *first, last = events
            self._ahead += [_Item(each) for each in first]
            self._ahead.append(_Item(last, place=place))
        reached = piece.reached
        if before is not None and (reached.log != before.log or reached.ts < before.ts):
            # The log is another one, or older: what comes from here on is behind this place, also
            # for the next process, however soon this one ends.
            self.queue.reached(piece.reached)
        self._read_to = piece.reached
        return piece.reached != before

    def _note(self) -> None:
        """Write now and then how far the log has nothing to tell: a start reads less."""
        reached, now = self._read_to, self._monotonic()
        if reached is not None and reached != self.queue.place and now - self._noted >= _NOTED_S:
            self.queue.reached(reached)
            self._noted = now

    # -- what came of it ---------------------------------------------------------------------------

    def _delivered(self, item: _Item) -> None:
        self.queue.delivered(seq=item.seq, place=item.place, told=item.told or {})
        if not item.seq and item.told is None:
            self._ahead.popleft()
        if self._said:
            _log.info("hooks: the %s takes events again", self.queue.way)
        self._trying, self._tries, self._said = None, 0, ""

    def _failed(self, text: str, asked: float | None = None, trying: str = "") -> float:
        self.queue.failed(text, trying)
        self._tries += 1
        level = logging.DEBUG if text == self._said else logging.WARNING
        _log.log(level, "hooks: the %s took no event: %s", self.queue.way, text)
        self._said = text
        whole = min(_LONGEST_S, _FIRST_S * 2.0 ** min(self._tries - 1, 60))
        pause = whole / 2 + whole / 2 * self._chance()
        return max(pause, min(asked or 0.0, _LONGEST_ASKED_S))

    def _give_up(self, item: _Item) -> None:
        _log.error("hooks: the %s: an event is given up", self.queue.way)
        if item.told is None:
            self.queue.drop(item.event.kind, seq=item.seq, place=item.place)
            if not item.seq:
                self._ahead.popleft()
        self._trying = None
