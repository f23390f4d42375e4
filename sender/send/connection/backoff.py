"""Pauses between tries: growing, jittered, bounded, and cut short when the process is to stop."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import msgspec

from common.errors import DigestError, StoppedError, Transient, TsferryError

__all__ = ["Backoff", "Sleep", "Tries", "retry_helps", "retrying"]

T = TypeVar("T")

Sleep = Callable[[float], bool]
"""Wait that many seconds; True if the process was told to stop meanwhile (`Event.wait`)."""


class Backoff(msgspec.Struct, frozen=True):
    """How long to pause before the n-th retry.

    Half of each pause is fixed and half is chance: senders that lost one receiver together do not
    come back together.

    Attributes:
        first: seconds before the first retry; each further pause doubles.
        longest: no pause is longer, whatever the receiver asks for.
        chance: a number in [0, 1).
    """

    first: float = 0.5
    longest: float = 30.0
    chance: Callable[[], float] = random.random

    def pause(self, retry: int, asked: float | None = None) -> float:
        """Seconds before retry number `retry` (from 1), and no less than the receiver `asked`."""
        whole = min(self.longest, self.first * 2.0 ** min(retry - 1, 60))
        jittered = whole / 2 + whole / 2 * self.chance()
        return min(self.longest, max(jittered, asked or 0.0))


def retry_helps(error: TsferryError) -> bool:
    """Whether the same call may succeed: transient errors, damaged bytes, a server's own fault."""
    return isinstance(error, Transient | DigestError) or type(error) is TsferryError


def retrying(
    call: Callable[[], T],
    *,
    retries: int,
    backoff: Backoff,
    sleep: Sleep,
    tell: Callable[[TsferryError, float], None] = lambda error, pause: None,
) -> T:
    """Call until it succeeds, fails for good, or has failed `retries` times after the first.

    Args:
        call: may be repeated without harm.
        retries: tries after the first.
        backoff: the pauses between.
        sleep: carries them out.
        tell: hears of each failure and the pause that follows.

    Raises:
        TsferryError: the last failure.
        StoppedError: told to stop during a pause.
    """
    failures = 0
    while True:
        try:
            return call()
        except TsferryError as error:
            failures += 1
            if failures > retries or not retry_helps(error) or isinstance(error, StoppedError):
                raise
            pause = backoff.pause(failures, error.retry_after)
            tell(error, pause)
        if sleep(pause):
            raise StoppedError("told to stop")


class Tries(msgspec.Struct, frozen=True):
    """How often and how fast to try again.

    Attributes:
        retries: failures in a row that are forgiven.
        backoff: the pauses.
        sleep: carries them out; True when told to stop.
        tell: hears of each failure.
    """

    retries: int
    backoff: Backoff
    sleep: Sleep
    tell: Callable[[str, TsferryError, float], None] = lambda path, error, pause: None
