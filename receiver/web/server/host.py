"""What a connection knows of the server that it belongs to: its limits, and what it tells it."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from receiver.web.server.head import Gate
    from receiver.web.server.in_order import InOrder
    from receiver.web.server.tls_contexts import ServerTls
    from receiver.web.server.whole_body import Spares

__all__ = ["READ_BYTES", "BodyMemory", "Host", "ServerOptions"]

READ_BYTES = 1 << 18


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """How much the server takes on.

    Attributes:
        threads: requests worked on at a time.
        connection_limit: open connections; a further one takes the place of an idle one. Half of
            them at most are at work for one token, or without any for one address.
        channel_timeout: seconds without a byte until a connection is closed.
        header_timeout: seconds for the headers of a request, and for a TLS handshake.
        body_grace: seconds before a body must have come at `min_body_rate` (bytes a second, since
            its request began).
        body_time: seconds that a body, or a piece of one, may take in all, whatever its rate.
        arrival_grace: seconds that the end of the server waits for a request that is on its way.
        max_buffered_bytes: bodies in memory, of all requests together; half of it at most for
            those that come with one token, or without any from one address.
        piece_bytes: a longer PATCH below `split_below` is worked on in pieces of this size.
        split_below: a path with a trailing slash.
        refusal_headers: go with every answer that the server gives without the application.
    """

    threads: int = 16
    connection_limit: int = 500
    channel_timeout: float = 60.0
    header_timeout: float = 30.0
    body_grace: float = 60.0
    min_body_rate: float = 64.0
    body_time: float = 21600.0
    arrival_grace: float = 2.0
    max_header_bytes: int = 32 * 2**10
    max_buffered_bytes: int = 512 * 2**20
    piece_bytes: int = 4 * 2**20
    split_below: str = "/sync/v1/files/"
    refusal_headers: tuple[tuple[str, str], ...] = ()


class BodyMemory:
    """Counts the bytes of bodies that wait in memory, over all threads.

    Nobody gets more than half of it: bodies that are let trickle, and blocks that wait for one that
    trickles, stay for hours, and with all of it one sender would keep out the others.
    """

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._limit = limit
        self._of: Counter[str] = Counter()
        self.used = 0

    def take(self, size: int, whose: str = "") -> None:
        """Count `size` bytes more (less, where negative) as somebody's."""
        if not size:
            return
        with self._lock:
            self.used += size
            self._of[whose] += size
            if not self._of[whose]:
                del self._of[whose]

    def has_room(self, size: int, whose: str = "") -> bool:
        """Whether `size` bytes more of somebody are within the limit and their share of it."""
        with self._lock:
            theirs = self._of.get(whose, 0)
        return self.used + size <= self._limit and theirs + size <= self._limit // 2


class Host(Protocol):
    """The server, as its connections see it; waitress wants more, which only it may know.

    Attributes:
        options: how much it takes on.
        gate: judges a request by its head.
        memory: counts the bodies that wait.
        spares: where bodies lie.
        order: of blocks that come by several connections.
        tls: None where it speaks in clear.
        channels: all connections, by descriptor.
        busy: those with a request that a worker has.
        stopping: set when it is to end.
    """

    options: ServerOptions
    gate: Gate
    memory: BodyMemory
    spares: Spares
    order: InOrder
    tls: ServerTls | None
    channels: dict[int, Any]
    busy: set[Any]
    stopping: threading.Event

    def refused(self, peer: str, why: str) -> None:
        """The certificate of somebody at this address is not taken."""

    def touch(self, channel: Any) -> None:
        """A worker is done with a connection: it is to be looked at again."""

    def forget(self, channel: Any) -> None:
        """A connection is closed."""
