"""The threads that work on requests, and whose turn it is: short bodies go before long ones.

With many senders at once the long bodies that wait take seconds. A probe, an operator or the start
of somebody's round takes a few milliseconds and need not wait for all of them. Nobody is starved: a
long one is passed by some short ones at most.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from waitress.task import ThreadedTaskDispatcher

__all__ = ["WaitingRequests", "Workers"]

_SHORT = 64 * 2**10
"""Bytes of a body that is soon worked on: pages of plans and blocks have more."""
_PASSING = 8
"""Short ones for one long one, where both wait."""


class _Sized(Protocol):
    content_length: int


class _Asking(Protocol):
    requests: list[_Sized]


class WaitingRequests:
    """Connections whose next request waits for a worker; to waitress it is its deque."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._short: deque[_Asking] = deque()
        self._long: deque[_Asking] = deque()
        self._passed = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._short) + len(self._long)

    def append(self, channel: _Asking) -> None:
        """One more; its request is here whole."""
        is_short = all(each.content_length <= _SHORT for each in channel.requests[:1])
        (self._short if is_short else self._long).append(channel)

    def popleft(self) -> _Asking:
        """The next one.

        Raises:
            IndexError: nobody waits.
        """
        if self._long and (not self._short or self._passed >= _PASSING):
            self._passed = 0
            return self._long.popleft()
        self._passed = self._passed + 1 if self._long else 0
        return self._short.popleft()


class Workers(ThreadedTaskDispatcher):  # type: ignore[misc]  # waitress is untyped
    """The threads."""

    queue: Any

    def __init__(self) -> None:
        """Without any, at first."""
        super().__init__()
        self.queue = WaitingRequests()
