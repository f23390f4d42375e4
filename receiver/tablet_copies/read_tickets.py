"""Tickets by which a node gives the files of a tablet, and takes files, from whom its master sends.

    to read   <ident of the key>.<HMAC-SHA256 of "read <tablet>" by the key, hex>
    to send   <ident of the key>.<HMAC-SHA256 of "upload <what>" by the key, hex>.<what>
    kept      <ident of the key>.<HMAC-SHA256 of "cached <what>" by the key, hex>.<what>

What the latter two are for stands in them: see `upload_tickets` and `cached_files`.

The master makes a key for each node and hands it over in its answer to a heartbeat. At the node a
key lasts so many seconds, by the clock that nobody sets, since the heartbeat that brought it first;
so no clock of two machines is compared. The master makes no ticket by a key of which half of that
has passed, and none by one that the node may not have yet.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from common import wire
from common.errors import ForbiddenError
from receiver.heartbeats.node_wire import TicketKey

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["READ_TICKET", "TicketKeys", "TicketMaker"]

READ_TICKET: Final = wire.TICKET_HEADER
"""Header that a ticket comes in."""
_TICKET: Final = re.compile(r"(?P<ident>[0-9a-f]{32})\.(?P<mac>[0-9a-f]{64})\Z")
_WRITTEN_TICKET: Final = re.compile(
    r"(?P<ident>[0-9a-f]{32})\.(?P<mac>[0-9a-f]{64})\.(?P<what>[A-Za-z0-9_-]{1,12000})\Z"
)
_KEPT: Final = 4
"""Keys that a node knows at a time."""


def _mac(key: str, what: str) -> str:
    return hmac.new(bytes.fromhex(key), what.encode(), "sha256").hexdigest()


def _written(key: TicketKey, purpose: str, what: str) -> str:
    return f"{key.ident}.{_mac(key.key, f'{purpose} {what}')}.{what}"


class TicketKeys:
    """The keys that a node knows; any thread may call."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[str, float]] = {}

    def take(self, key: TicketKey) -> None:
        """A heartbeat's answer has brought a key; one that is known grows no younger."""
        with self._lock:
            if key.ident not in self._keys:
                self._keys[key.ident] = key.key, self._monotonic() + key.lasts
            while len(self._keys) > _KEPT:
                del self._keys[next(iter(self._keys))]

    def check(self, ticket: str, tablet: str) -> None:
        """See that a ticket is for a tablet.

        Raises:
            ForbiddenError: it is for another one, of another node, or too old.
        """
        self._check(_TICKET.match(ticket), f"read {tablet}")

    def check_upload(self, ticket: str) -> str:
        """What a ticket lets its bearer send, as the master wrote it.

        Raises:
            ForbiddenError: the master did not, or it is of another node, or too old.
        """
        return self._check_written(ticket, "upload")

    def check_cached(self, ticket: str) -> str:
        """What a ticket lets its bearer read of what is kept here; raises as `check_upload`."""
        return self._check_written(ticket, "cached")

    def _check_written(self, ticket: str, purpose: str) -> str:
        found = _WRITTEN_TICKET.match(ticket)
        what = "" if found is None else found["what"]
        self._check(found, f"{purpose} {what}")
        return what

    def _check(self, found: re.Match[str] | None, what: str) -> None:
        with self._lock:
            key, until = self._keys.get(found["ident"] if found else "", ("", 0.0))
        if found is None or not key or self._monotonic() > until:
            raise ForbiddenError("the ticket is none of this node, or too old: ask for another one")
        if not hmac.compare_digest(_mac(key, what), found["mac"]):
            raise ForbiddenError("the ticket is for something else")


@dataclass
class _MadeKey:
    key: TicketKey
    made: float
    given: int = 0


@dataclass
class _OfNode:
    boot: str
    keys: list[_MadeKey] = field(default_factory=list)


class TicketMaker:
    """The keys that a master has made, and tickets by them; any thread may call."""

    def __init__(
        self, *, lasts: float = 900.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Make none yet; `lasts` is for how many seconds a node takes tickets by a key."""
        self._lasts = lasts
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._nodes: dict[str, _OfNode] = {}

    def key_for(self, node: str, boot: str) -> TicketKey:
        """The newest key of a start of a node, to be handed over in an answer to its heartbeat."""
        with self._lock:
            known = self._nodes.get(node)
            if known is None or known.boot != boot:
                known = self._nodes[node] = _OfNode(boot)
            now = self._monotonic()
            if not known.keys or now - known.keys[-1].made > self._lasts / 4:
                made = TicketKey(
                    ident=secrets.token_hex(16), key=secrets.token_hex(32), lasts=self._lasts
                )
                known.keys = [*known.keys[-1:], _MadeKey(made, now)]
            known.keys[-1].given += 1
            return known.keys[-1].key

    def ticket(self, node: str, tablet: str) -> str | None:
        """A ticket for the files of a tablet at a node; None where it has no key that counts."""
        best = self._best(node)
        return None if best is None else f"{best.key.ident}.{_mac(best.key.key, f'read {tablet}')}"

    def upload_ticket(self, node: str, what: str) -> tuple[str, float] | None:
        """A ticket to send something to a node, and for how many seconds at least it is good.

        None where the node has no key that counts.
        """
        best = self._best(node)
        if best is None:
            return None
        ticket = _written(best.key, "upload", what)
        return ticket, self._lasts - (self._monotonic() - best.made)

    def cache_ticket(self, node: str, what: str) -> str | None:
        """A ticket to read something that a node keeps; None where it has no key that counts."""
        best = self._best(node)
        return None if best is None else _written(best.key, "cached", what)

    def _best(self, node: str) -> _MadeKey | None:
        """Who speaks again has had the answer before: only then its key is used."""
        with self._lock:
            known = self._nodes.get(node)
            now = self._monotonic()
            usable = [
                each
                for each in (known.keys if known is not None else ())
                if now - each.made < self._lasts / 2
            ]
            if not usable:
                return None
            return next((each for each in reversed(usable) if each.given > 1), usable[-1])
