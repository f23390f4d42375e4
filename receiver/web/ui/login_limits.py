"""How many wrong logins are taken from an address, and how many of all are worth a line of log."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from common.errors import Transient

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LoginLimits", "TooManyLoginsError"]

_WINDOW: Final = 300.0
_OF_ONE: Final = 10
_TOLD: Final = 200
_KEPT: Final = 20_000


class TooManyLoginsError(Transient):
    """Wrong tokens came too often from an address."""

    slug = "too-many-logins"
    http_status = 429


class LoginLimits:
    """Counts wrong logins of the last minutes; any thread may call.

    Nobody is kept out by what comes from elsewhere: a token cannot be guessed, and whoever tries
    from many addresses would only have to go on.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with none; `clock` gives seconds that nobody sets."""
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: deque[tuple[float, str]] = deque()
        self._of: dict[str, int] = {}

    def check(self, peer: str) -> None:
        """See that an address may try.

        Raises:
            TooManyLoginsError: it tried too often.
        """
        with self._lock:
            now = self._clock()
            self._forget(now)
            if self._of.get(peer, 0) < _OF_ONE:
                return
            oldest = next(at for at, each in self._wrong if each == peer)
            wait = max(1.0, oldest + _WINDOW - now)
        raise TooManyLoginsError(
            f"too many wrong tokens; the next one is looked at in {wait:.0f} s", retry_after=wait
        )

    def wrong(self, peer: str) -> bool:
        """A wrong token came from an address; whether the log is still to hear of it."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            self._wrong.append((now, peer))
            self._of[peer] = self._of.get(peer, 0) + 1
            return len(self._wrong) <= _TOLD

    def _forget(self, now: float) -> None:
        while self._wrong and (now - self._wrong[0][0] >= _WINDOW or len(self._wrong) >= _KEPT):
            _, peer = self._wrong.popleft()
            self._of[peer] -= 1
            if not self._of[peer]:
                del self._of[peer]
