"""The thread that speaks to the master: every few seconds, and at once when something changed."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Final

from common.durable import Closing
from common.errors import NotTheWriterError, Transient, TsferryError
from common.threads import PeriodicThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.storagenode.heartbeat_talk import HeartbeatTalk
    from receiver.storagenode.master_calls import Masters

__all__ = ["HeartbeatsThread"]

log = logging.getLogger(__name__)

_JITTER: Final = 0.2
"""Part of the interval by which it is longer or shorter: a thousand nodes that were started at one
moment do not speak at one moment for ever."""
_PATIENCE: Final = 6
"""Intervals without an answer, until the node says that it has no master."""


class HeartbeatsThread(Closing):
    """See the module; begins with `begin`.

    Attributes:
        refused: why the master takes nothing from this node; empty if it does, or was not reached.
        unreached: why the last heartbeat came to no master; empty if it did.
    """

    def __init__(
        self,
        talk: HeartbeatTalk,
        masters: Masters,
        *,
        every: float,
        monotonic: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Say nothing yet.

        Args:
            talk: makes what is said.
            masters: hear it.
            every: seconds between two heartbeats, about.
            monotonic: seconds that nobody sets.
            uniform: draws a number between two.
        """
        self.refused = ""
        self.unreached = ""
        self._talk = talk
        self._masters = masters
        self._every = every
        self._monotonic = monotonic
        self._uniform = uniform
        self._began = monotonic()
        self._answered: float | None = None
        self._thread = PeriodicThread(
            "heartbeats", self.say, log, "a heartbeat failed", retry=every
        )

    def begin(self) -> None:
        """Speak from now on; once only."""
        self._thread.start()

    def changed(self) -> None:
        """Something has changed that the master should know."""
        self._thread.wake()

    @property
    def age(self) -> float | None:
        """Seconds since a master last took a heartbeat, None before the first."""
        return None if self._answered is None else self._monotonic() - self._answered

    def problem(self) -> str | None:
        """Why this node is of no use to a master now, None if it is."""
        if self.refused:
            return f"the master refuses this node: {self.refused}"
        age = self._monotonic() - (self._began if self._answered is None else self._answered)
        if not self._talk.is_registered or age > _PATIENCE * self._every:
            why = self.unreached or "it has not answered yet"
            return f"this node has no master ({self._masters.url}): {why}"
        return None

    def say(self) -> float:
        """Speak once; returns the seconds after which to speak again."""
        try:
            more = self._masters.say(self._talk.next, self._talk.answered)
        except (NotTheWriterError, Transient) as error:
            self._told("", error.message)
        except TsferryError as error:
            self._told(error.message, "")
            self._talk.begin_anew()
        else:
            self._told("", "")
            self._answered = self._monotonic()
            if more is not None:
                return more
        return self._every * self._uniform(1 - _JITTER, 1 + _JITTER)

    def _told(self, refused: str, unreached: str) -> None:
        if (refused and refused != self.refused) or (unreached and not self.unreached):
            log.warning("no master hears this node: %s", refused or unreached)
        self.refused, self.unreached = refused, unreached

    def close(self) -> None:
        """Say nothing any more; closing twice is harmless."""
        self._thread.close()
