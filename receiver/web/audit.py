"""The audit log: who changed what, and who was refused; a line each, with fields that stay.

Records have the logger `audit` and the fields of `docs/operation.md` ("Audit"); nothing in them is
a secret. What operators, writers and workers do by a call that is no question is in it, whatever
call it is; what a sender does is in its tasks, and what committed it in the history.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Any, Final

import msgspec

from common import wire
from common.console.logs import AUDIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from receiver.principal import Principal
    from receiver.web.server import RequestHead

__all__ = ["AuditLog"]

_log = logging.getLogger(AUDIT)

_TOKEN_ID = re.compile(r"tsf_([0-9a-f]{8})_")
_LONGEST: Final = 400
"""Characters of a body that are told."""
_EVERY: Final = 60.0
"""Seconds between two lines about one address that is refused."""
_ADDRESSES: Final = 1000
_HANDSHAKE: Final = 0
"""In the place of a status of HTTP, which there is none of yet."""


class AuditLog:
    """Writes the lines; any thread may call.

    Args:
        clock: seconds that nobody sets.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._refused: dict[tuple[str, int], _Refused] = {}

    def done(
        self, who: Principal, event: str, status: int, target: Mapping[str, str], asked: object
    ) -> None:
        """Somebody did something, or it could not be done.

        Args:
            who: they are.
            event: name of the call or the action.
            status: of HTTP; from 400 on nothing was changed.
            target: what it was about, by names.
            asked: the body that came with it, as a text or something that JSON has a form for.
        """
        _log.info(
            "done" if status < 400 else "not done",
            extra={
                "event": event,
                "role": who.role,
                "token": who.token_id,
                "peer": who.peer,
                "target": ",".join(f"{key}={value}" for key, value in target.items()),
                "asked": _short(asked),
                "status": status,
            },
        )

    def refused(
        self,
        head: RequestHead,
        event: str | None,
        status: int,
        reason: str,
        token: str | None = None,
    ) -> None:
        """Somebody was not let in, or may not do what they asked for.

        A line a minute of each address, with how many there were; a thousand addresses a minute.

        Args:
            head: of the request.
            event: name of the call; None if there is none such.
            status: of HTTP, 401 or 403.
            reason: as they were told.
            token: id of the token, where it is known; else what the token says of itself.
        """
        more = self._more(head.peer, status)
        if more is None:
            return
        shown = None if head.certificate is None else ",".join(head.certificate.names)[:_LONGEST]
        claimed = _TOKEN_ID.search(head.header("Authorization") or "")
        _log.warning(
            "refused",
            extra={
                "event": event,
                "token": token or (claimed and claimed[1]),
                "sender": _uuid(head.header(wire.SENDER_HEADER)),
                "peer": head.peer,
                "status": status,
                "reason": reason,
                "certificate": shown,
                "more": more,
            },
        )

    def handshake_refused(self, peer: str, reason: str) -> None:
        """A connection ended before its first request, for its certificate; as often as others.

        Args:
            peer: address of the other end.
            reason: what is wrong with it.
        """
        more = self._more(peer, _HANDSHAKE)
        if more is not None:
            _log.warning(
                "certificate refused",
                extra={"event": "handshake", "peer": peer, "reason": reason, "more": more},
            )

    def _more(self, peer: str, status: int) -> int | None:
        """How many of the kind were not told of since the last line; None: this is not, either."""
        now = self._clock()
        with self._lock:
            found = self._refused.get((peer, status))
            if found is None:
                self._sweep(now)
                if len(self._refused) >= _ADDRESSES:
                    return None
                self._refused[peer, status] = _Refused(now)
                return 0
            if now - found.told < _EVERY:
                found.more += 1
                return None
            more, found.told, found.more = found.more, now, 0
            return more

    def _sweep(self, now: float) -> None:
        if len(self._refused) >= _ADDRESSES:
            self._refused = {
                key: each for key, each in self._refused.items() if now - each.told < _EVERY
            }


class _Refused:
    """When an address was told of last, and how often it was refused since."""

    __slots__ = ("more", "told")

    def __init__(self, told: float) -> None:
        self.told = told
        self.more = 0


def _short(asked: Any) -> str:
    if asked is None:
        return ""
    text = asked if isinstance(asked, str) else msgspec.json.encode(asked).decode()
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _uuid(text: str | None) -> str | None:
    return None if text is None else text[:32]
