"""Who is logged in: sessions in memory, known by the hash of a secret that a cookie carries."""

from __future__ import annotations

import hashlib
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PageSession", "PageSessions"]

_MOST: Final = 1000
"""Sessions at a time; one more ends the one that was idle longest."""
_MESSAGES: Final = 5


@dataclass
class PageSession:
    """One browser of one person.

    Attributes:
        digest: of the token that it was begun with, as tokens are stored; looked up with each
            request, so the end of the token is the end of the session.
        token_id: of that token, for the log.
        csrf: goes with every form, and comes back with it.
        begun: seconds that nobody sets.
        touched: when it was used last.
        messages: what was done, for the next page that is shown.
    """

    digest: str
    token_id: str
    csrf: str
    begun: float
    touched: float
    messages: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Have the next page say so."""
        self.messages = [*self.messages, text][-_MESSAGES:]

    def said(self) -> list[str]:
        """What is to be said; it is said once."""
        said, self.messages = self.messages, []
        return said


class PageSessions:
    """All sessions; any thread may call. They end with the process."""

    def __init__(self, life: float, idle: float, clock: Callable[[], float]) -> None:
        """Begin with none.

        Args:
            life: seconds after which a session ends.
            idle: seconds without a use after which it does.
            clock: seconds that nobody sets.
        """
        self._life = life
        self._idle = idle
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, PageSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, digest: str, token_id: str) -> str:
        """Begin a session; its secret, which is kept nowhere else."""
        secret, now = secrets.token_urlsafe(32), self._clock()
        made = PageSession(digest, token_id, secrets.token_urlsafe(24), now, now)
        with self._lock:
            self._sweep(now)
            while len(self._sessions) >= _MOST:
                idle = min(self._sessions.items(), key=lambda each: each[1].touched)
                del self._sessions[idle[0]]
            self._sessions[_hash(secret)] = made
        return secret

    def find(self, secret: str) -> PageSession | None:
        """The session of a secret, which is used by this; None if there is none any more."""
        now, key = self._clock(), _hash(secret)
        with self._lock:
            found = self._sessions.get(key)
            if found is None:
                return None
            if self._is_over(found, now):
                del self._sessions[key]
                return None
            found.touched = now
            return found

    def end(self, secret: str) -> None:
        """End a session; ending none is harmless."""
        with self._lock:
            self._sessions.pop(_hash(secret), None)

    def _sweep(self, now: float) -> None:
        for key in [key for key, each in self._sessions.items() if self._is_over(each, now)]:
            del self._sessions[key]

    def _is_over(self, session: PageSession, now: float) -> bool:
        return now - session.begun >= self._life or now - session.touched >= self._idle


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
