"""Events, queues and ways out for tests of hooks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from common.durable import Tree
from common.hooks.delivery_outcome import DeliveryOutcome
from common.hooks.event_content import StandingTrouble
from common.hooks.event_queue import EventQueue
from common.hooks.hook_delivery import HookDelivery, LogPiece
from common.hooks.hook_event import EventKind, HookEvent, HookSource, made_event
from common.hooks.queue_lines import LogPlace

WHO = HookSource(program="receiver", uuid="ab" * 16, label="centre")
LOG = "log"
TAKEN = DeliveryOutcome(ok=True, text="taken")
REFUSED = DeliveryOutcome(ok=False, text="HTTP 500")


def event(text: str = "", kind: EventKind = "disk", *, ident: str = "") -> HookEvent:
    return made_event(WHO, kind, StandingTrouble(problem=text), now=1_700_000_000.5, ident=ident)


def queue(root: Path, *, limit: int = 100, clock: Callable[[], float] = lambda: 5.0) -> EventQueue:
    return EventQueue.open(Tree(root, create=True), "command", limit=limit, clock=clock)


def said(event: HookEvent) -> str:
    return str(event.what.get("problem", event.what))


class Way:
    """A way out that says what it is told to say, and keeps what it took."""

    def __init__(self, *outcomes: DeliveryOutcome) -> None:
        self.outcomes = deque(outcomes)
        self.seen: list[HookEvent] = []
        self.taken: list[HookEvent] = []

    def __call__(self, event: HookEvent, stopped: Callable[[], bool]) -> DeliveryOutcome:
        outcome = self.outcomes.popleft() if self.outcomes else TAKEN
        self.seen.append(event)
        if outcome.ok:
            self.taken.append(event)
        return outcome

    @property
    def texts(self) -> list[str]:
        return [said(each) for each in self.taken]


class Commits:
    """A log: each commit has its events; those up to `oldest` are known no more."""

    def __init__(self, commits: Sequence[Sequence[HookEvent]] = ()) -> None:
        self.commits = list(commits)
        self.oldest = 0

    def after(self, place: LogPlace | None, wants: Callable[[EventKind], bool]) -> LogPiece:
        newest = LogPlace(LOG, len(self.commits), len(self.commits))
        if place is None:
            return LogPiece((), newest)
        if place.ts < self.oldest:
            at = LogPlace(LOG, self.oldest, self.oldest)
            return LogPiece((), at, self.oldest - place.ts)
        found = []
        for ts in range(place.ts + 1, len(self.commits) + 1):
            events = [each for each in self.commits[ts - 1] if wants(each.kind)]
            if events:
                found.append((LogPlace(LOG, ts, ts), events))
        return LogPiece(found[:3], found[2][0] if len(found) > 2 else newest)


class Ticks:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def delivery(
    queue: EventQueue,
    way: Way,
    *,
    log: Commits | None = None,
    ticks: Callable[[], float] | None = None,
    wants: Callable[[EventKind], bool] = lambda kind: True,
    give_up_after: float = 100.0,
    clock: Callable[[], float] = lambda: 7.0,
) -> HookDelivery:
    made = HookDelivery(
        queue,
        WHO,
        way,
        wants=wants,
        give_up_after=give_up_after,
        log=log,
        clock=clock,
        monotonic=ticks or Ticks(),
        chance=lambda: 0.0,
    )
    made.begin()
    return made
