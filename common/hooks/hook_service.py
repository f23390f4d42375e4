"""The hooks of a program: its queues, its ways out, and what stands.

Nothing that is said here raises, or waits for more than the disk: hooks are in nobody's way.
"""

from __future__ import annotations

import datetime
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from common.durable import Closing, Lock, Tree
from common.errors import LockedError, TsferryError
from common.hooks.command_runner import run_command
from common.hooks.delivery_outcome import DeliveryOutcome
from common.hooks.event_content import TestEvent
from common.hooks.event_queue import EventQueue, QueueStanding, queue_standing
from common.hooks.hook_delivery import EventLog, HookDelivery
from common.hooks.hook_event import EventKind, EventState, HookEvent, HookSource, made_event
from common.hooks.hooks_config import HooksConfig, shown_address
from common.hooks.webhook import Webhook

__all__ = ["AskedHook", "HookService", "ask_hooks", "concerns_of", "hook_standings"]

_log = logging.getLogger(__name__)

DIRECTORY: Final = "hooks"
COMMAND: Final = "command"
WEBHOOK: Final = "webhook"
_Send = Callable[[HookEvent, Callable[[], bool]], DeliveryOutcome]
_LOCK: Final = "hooks.lock"
_ENDING_S: Final = 3.0
_LONG_S: Final = 600.0
"""Of failures, until that is a concern."""


class AskedHook(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a test event.

    Attributes:
        id: of the event.
        to: the program, or the address without what is behind the host.
        ok: whether it was taken.
        text: what was answered, in words.
    """

    id: str
    to: str
    ok: bool
    text: str


class HookService(Closing):
    """What a program tells its hooks; any thread may call."""

    def __init__(
        self,
        config: HooksConfig,
        who: HookSource,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Hooks that tell nobody: see `open`."""
        self._config = config
        self._who = who
        self._clock = clock
        self._resources = ExitStack()
        self._ways: list[HookDelivery] = []
        self.problem: str | None = None
        """Why nobody is told, although somebody should be."""

    @classmethod
    def open(
        cls,
        config: HooksConfig,
        above: Path,
        who: HookSource,
        *,
        log: EventLog | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        tries: Iterable[float] = (),
        sleep: Callable[[float], object] = time.sleep,
    ) -> HookService:
        """Open the queues in `<above>/hooks`; the threads are not started.

        What keeps it from that is a `problem`, and no error.

        Args:
            config: of the hooks.
            above: directory of the program's own.
            who: tells.
            log: whose commits are told.
            clock: seconds since the epoch.
            monotonic: seconds that nobody sets.
            chance: a number in [0, 1).
            tries: pauses between tries for the lock, where another process may have it for a while.
            sleep: waits so many seconds.
        """
        service = cls(config, who, clock=clock)
        if not config.are_any:
            return service
        for problem in config.problems():
            _log.error("%s", problem)
        try:
            with ExitStack() as stack:
                tree = stack.enter_context(Tree(above / DIRECTORY, create=True))
                stack.enter_context(_locked(tree, tries, sleep))
                tree.sweep_temporaries(deep=False)
                for way, send in _ways_of(config, clock).items():
                    queue = EventQueue.open(tree, way, limit=config.queue_limit, clock=clock)
                    stack.enter_context(queue)
                    made = HookDelivery(
                        queue,
                        who,
                        send,
                        wants=config.wants,
                        give_up_after=config.give_up_after,
                        log=log,
                        clock=clock,
                        monotonic=monotonic,
                        chance=chance,
                    )
                    made.begin()
                    service._ways.append(made)
                service._resources = stack.pop_all()
        except LockedError as error:
            service._fail(f"another process tells the hooks: {error.message}")
        except (TsferryError, OSError) as error:
            service._fail(str(error))
        return service

    def _fail(self, problem: str) -> None:
        self._ways.clear()
        self.problem = problem
        _log.error("hooks: nobody is told anything: %s", problem)

    def start(self) -> None:
        """Start the threads."""
        for each in self._ways:
            each.start()

    def linger(self, seconds: float) -> None:
        """Wait until all is delivered that waits; not for a way out that takes nothing.

        Args:
            seconds: at most.
        """
        end = time.monotonic() + seconds
        for each in self._ways:
            each.idle.wait(max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """End the threads; what was not delivered is, after the next start."""
        for each in self._ways:
            each.close()
        self._ways.clear()
        self._resources.close()

    def drain(self, seconds: float) -> None:
        """Deliver what waits, for a program that ends: all ways at once; see `HookDelivery.drain`.

        Args:
            seconds: for which that goes on. What is on its way then has three seconds more to end,
                and is left where it does not: a host name that nobody answers for has no limit.
        """
        threads = [
            threading.Thread(target=each.drain, args=(seconds,), daemon=True) for each in self._ways
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds + _ENDING_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    # -- what happens ------------------------------------------------------------------------------

    def tells(self, kind: EventKind) -> bool:
        """Whether anybody is told events of a kind."""
        return bool(self._ways) and self._config.wants(kind)

    def happened(self, kind: EventKind, what: msgspec.Struct) -> None:
        """Something happened."""
        if self.tells(kind):
            event = self._event(kind, what, "happened")
            for each in self._ways:
                self._put(each, event)

    def stands(self, kind: EventKind, key: str, standing: str, what: msgspec.Struct) -> None:
        """Something stands, or stands no more: told where that is not what was told last.

        Args:
            kind: of what stands.
            key: names it among all that stands.
            standing: in which way; empty if it is over.
            what: stands, or is over.
        """
        if not self.tells(kind):
            return
        changed = [each for each in self._ways if each.queue.stands(key) != standing]
        if changed:
            event = self._event(kind, what, "raised" if standing else "resolved")
            for each in changed:
                self._put(each, event, key=key, standing=standing)

    def standing(self, prefix: str) -> set[str]:
        """The keys under which something was told to stand, of those that begin so."""
        return {key for each in self._ways for key in each.queue.keys(prefix)}

    def _event(self, kind: EventKind, what: msgspec.Struct, state: EventState) -> HookEvent:
        return made_event(self._who, kind, what, now=self._clock(), state=state)

    def _put(self, way: HookDelivery, event: HookEvent, **more: str) -> None:
        way.queue.put(event, **more)
        way.wake()

    # -- how it stands -----------------------------------------------------------------------------

    def standings(self) -> list[QueueStanding]:
        """How it stands with each way out."""
        return [
            msgspec.structs.replace(each.queue.standing, waiting=each.waiting)
            for each in self._ways
        ]

    def concerns(self) -> list[str]:
        """What is wrong with the hooks for long."""
        found = [] if self.problem is None else [f"Hooks are told nothing: {self.problem}"]
        now = self._clock()
        for each in self._ways:
            found += concerns_of(each.queue.standing, now)
            if each.gone:
                found.append("Hooks: the webhook wants no events any more (HTTP 410)")
        return found


def concerns_of(standing: QueueStanding, now: float) -> Iterator[str]:
    """What is to be said of a way out by which nothing came through for long.

    Args:
        standing: of it.
        now: seconds since the epoch.
    """
    since = standing.failing_since
    if since is not None and now - since >= _LONG_S:
        moment = datetime.datetime.fromtimestamp(since, datetime.UTC)
        yield (
            f"Hooks: the {standing.way} has taken nothing since "
            f"{moment:%Y-%m-%d %H:%M:%S} UTC: {standing.error}"
        )


def _ways_of(config: HooksConfig, clock: Callable[[], float]) -> Mapping[str, _Send]:
    ways: dict[str, _Send] = {}
    if config.command:
        ways[COMMAND] = partial(_by_command, config)
    if config.webhook is not None:
        ways[WEBHOOK] = partial(_by_webhook, Webhook(config, clock))
    return ways


def _by_command(
    config: HooksConfig, event: HookEvent, stopped: Callable[[], bool]
) -> DeliveryOutcome:
    return run_command(config.command, event, timeout=config.timeout, stopped=stopped)


def _by_webhook(webhook: Webhook, event: HookEvent, stopped: Callable[[], bool]) -> DeliveryOutcome:
    del stopped  # its time limits are short
    return webhook.post(event)


def _locked(tree: Tree, tries: Iterable[float], sleep: Callable[[float], object]) -> Lock:
    for pause in tries:
        try:
            return tree.lock(_LOCK)
        except LockedError:
            sleep(pause)
    return tree.lock(_LOCK)


# -- for commands ----------------------------------------------------------------------------------


def hook_standings(config: HooksConfig, above: Path) -> list[QueueStanding]:
    """How it stands with each way out that is configured, by the files; whoever has them open.

    Args:
        config: of the hooks.
        above: directory of the program's own.
    """
    wanted = [way for way, given in ((COMMAND, config.command), (WEBHOOK, config.webhook)) if given]
    found: list[QueueStanding] = []
    try:
        with Tree(above / DIRECTORY) as tree:
            read = [queue_standing(tree, way) for way in wanted]
            found = [each for each in read if each is not None]
    except FileNotFoundError:
        pass
    return found


def ask_hooks(
    config: HooksConfig, who: HookSource, clock: Callable[[], float] = time.time
) -> dict[str, AskedHook]:
    """Send a test event by each way out now, beside the queue; what came of it, by way.

    Args:
        config: of the hooks.
        who: tells.
        clock: seconds since the epoch.
    """
    found = {}
    for way, send in _ways_of(config, clock).items():
        text = "A test of this hook: nothing happened."
        event = made_event(who, "test", TestEvent(text=text), now=clock())
        outcome = send(event, lambda: False)
        to = config.command[0] if way == COMMAND else shown_address(config.webhook or "")
        found[way] = AskedHook(id=event.id, to=to, ok=outcome.ok, text=outcome.text)
    return found
