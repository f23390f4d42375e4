"""One connection: waitress' channel with an end to everything that a slow or odd peer can do.

A channel costs a socket and what it has received, never a thread: only a complete request goes to
a worker. What is added here:

* deadlines (`overdue`): for headers, for a body that trickles, for a reader that does not read,
  for idle connections;
* a lingering close: when an answer goes out before its request was read, the rest is read and
  thrown away for a while, since closing at once would reset the connection and take the answer
  with it;
* bodies in pieces (`receiver.web.server.request_parser`);
* a stop of its own for each state, so no descriptor stays behind.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import TYPE_CHECKING, Any

from waitress.channel import HTTPChannel
from waitress.task import WSGITask

from receiver.web.server.head import CERTIFICATE_KEY
from receiver.web.server.host import READ_BYTES
from receiver.web.server.refusal import RefusalTask, ServerRefusal
from receiver.web.server.request_parser import Parser, Rest

if TYPE_CHECKING:
    from receiver.web.server.head import PeerCertificate
    from receiver.web.server.host import Host

__all__ = ["Channel", "own_address"]

LINGER_SECONDS = 5.0
LINGER_BYTES = 1 << 27
_HANDSHAKE = b"\x16"
"""A record of TLS that begins a handshake (RFC 8446, 5.1); no request begins with it."""


class Task(WSGITask):  # type: ignore[misc]  # waitress is untyped
    """Calls the application for one request, or for one piece of a body."""

    _stay_open = False

    def get_environment(self) -> dict[str, Any]:
        """The WSGI environment, with our own end of the connection."""
        environ: dict[str, Any] = super().get_environment()
        environ["tsferry.local"] = self.channel.local
        environ[CERTIFICATE_KEY] = self.channel.certificate
        return environ

    def build_response_header(self) -> bytes:
        """Status line and headers; an answer without a body ends no connection.

        waitress closes after each 204, which would cost a handshake for every block of a file.
        """
        wants_close = self.request.headers.get("CONNECTION", "").lower() == "close"
        self._stay_open = self.version == "1.1" and not (
            self.has_body or self.close_on_finish or wants_close
        )
        if self.channel.is_last_answer:
            self.set_close_on_finish()
        header: bytes = super().build_response_header()
        self._stay_open = False
        return header

    def set_close_on_finish(self) -> None:
        """Close the connection behind this answer."""
        if not self._stay_open:
            super().set_close_on_finish()

    def write(self, data: bytes) -> None:
        """Write a part of the answer; that of a piece only if it ends the request."""
        if self.request.more:
            if self.status.startswith("204"):
                return
            self.channel.unread = True
            self.set_close_on_finish()
        super().write(data)


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress is untyped
    """A connection without TLS."""

    task_class = Task
    error_task_class = RefusalTask

    addr: tuple[Any, ...]
    connected: bool
    request: Parser | None
    requests: list[Parser]
    total_outbufs_len: int
    will_close: bool

    owner = ""
    unread = False
    """Whether the peer may still be sending a body that nobody will read."""
    rest: Rest | None = None
    rest_digest: str | None = None
    certificate: PeerCertificate | None = None
    """That the peer has shown, verified."""
    serving = 0
    """Workers that are busy with a request of this connection."""

    def __init__(self, server: Host, sock: socket.socket, addr: tuple[Any, ...], adj: Any) -> None:
        self.local = own_address(sock)
        self._lingering: float | None = None
        self._discarded = 0
        self._born = time.monotonic()
        self._asked = False
        super().__init__(server, sock, addr, adj, map=server.channels)

    def parser_class(self, adj: Any) -> Parser:
        """A parser for the next request, or for the next piece of this one."""
        rest, self.rest = self.rest, None
        return Parser(adj, self) if rest is None else Parser.piece(adj, self, rest)

    @property
    def last_activity(self) -> float:
        """When something last came or went, by `time.monotonic`."""
        return self._active

    @last_activity.setter
    def last_activity(self, _: float) -> None:
        # waitress gives the wall clock, which may be set: that would end every connection at once.
        self._active = time.monotonic()

    # -- what the loop asks ------------------------------------------------------------------

    def interest(self) -> int:
        """The epoll events that matter now; 0 while a worker is busy with a request."""
        mask = 0
        if self.readable():
            mask |= select.EPOLLIN
        if self.writable():
            mask |= select.EPOLLOUT
        return mask

    def readable(self) -> bool:
        """Whether input is wanted."""
        return self._lingering is not None or bool(super().readable())

    def writable(self) -> bool:
        """Whether there is something to send, or the connection is to be closed."""
        return self._lingering is None and bool(super().writable())

    def overdue(self, now: float) -> bool:
        """Whether the peer had its time (`now` as of `time.monotonic`)."""
        if self._lingering is not None:
            return bool(now > self._lingering)
        if self.requests:
            return bool(self.total_outbufs_len) and self._quiet(self.adj.channel_timeout)
        if self._quiet(self.adj.channel_timeout):
            return True
        if self.request is None:
            return False
        spent = now - self.request.began
        options = self.server.options
        if not self.request.headers_finished:
            return bool(spent > options.header_timeout)
        if spent > options.body_time:
            return True
        wanted = (spent - options.body_grace) * options.min_body_rate
        return bool(self.request.body_bytes_received < wanted)

    def _quiet(self, seconds: float) -> bool:
        return time.monotonic() - self.last_activity > seconds

    @property
    def is_outdated(self) -> bool:
        """Whether the peer's certificate would have to be verified again."""
        return False

    @property
    def is_idle(self) -> bool:
        """Whether nothing was asked that is not answered, and nothing is being asked."""
        return not (self.requests or self.serving or self.total_outbufs_len or self.request)

    @property
    def evictable(self) -> bool:
        """Whether nothing of value is lost when this connection makes room for another."""
        if self._lingering is not None:
            return True  # all was said
        if self.requests or self.serving or self.total_outbufs_len:
            return False
        return self.request is None or not self.request.headers_finished

    def may_end(self, now: float, stopped: float) -> bool:
        """Whether a server that was stopped at a time may close this connection.

        A peer that has only just connected is about to ask: to close would reset it, as would
        closing one whose request has come and was not read.
        """
        if self.requests or self.serving or self.total_outbufs_len:
            return False
        grace = self.server.options.arrival_grace
        if self.request is not None or self._lingering is not None:
            return bool(now >= stopped + grace)
        if not self._asked and now < self._born + grace:
            return False
        return not self._has_come()

    def _has_come(self) -> bool:
        try:
            # Also under TLS the bytes off the wire: what they are is seen when they are read.
            return bool(socket.socket.recv(self.socket, 1, socket.MSG_PEEK))
        except OSError:
            return False

    @property
    def is_last_answer(self) -> bool:
        """Whether the peer is told to connect anew for its next request: the server ends."""
        alone = len(self.requests) == 1 and self.request is None
        return bool(self.server.stopping.is_set() and alone)

    # -- events --------------------------------------------------------------------------------

    def handle_read(self) -> None:
        """Take what has come."""
        if self._lingering is not None:
            self._discard()
        else:
            super().handle_read()

    def received(self, data: bytes | memoryview) -> bool:
        """Go on with what has come; who begins with TLS hears at once that this is no port for it.

        Most handshakes have no end of a line, which the parser would wait for until the peer gives
        up.
        """
        if data[:1] == _HANDSHAKE and self.request is None and not self.requests:
            self.answer_foreign("this port speaks plain HTTP: use http://")
            return False
        return bool(super().received(data))

    def answer_foreign(self, detail: str) -> None:
        """Say in plain HTTP what this port speaks, to a peer that speaks something else."""
        status, headers, body = ServerRefusal.of_status(400, detail).to_response()
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
        lines += ["Connection: close", f"Content-Length: {len(body)}", "", ""]
        with contextlib.suppress(OSError):
            socket.socket.send(self.socket, "\r\n".join(lines).encode() + body)
        self._linger()

    def recv(self, buffer_size: int) -> bytes | memoryview:
        """What has come; of a body whose length is known, where it belongs."""
        room = self.body_room()
        if room is None:
            came: bytes = super().recv(buffer_size)
            return came
        size = self.socket.recv_into(room)
        if not size:
            self.handle_close()
        return room[:size]

    def body_room(self, least: int = 1) -> memoryview | None:
        """Where what comes next belongs, if it is of a body that so much is missing of."""
        room = self.request.room() if self.request is not None else None
        return room if room is not None and len(room) >= least else None

    def handle_write(self) -> None:
        """Send what can be sent; close when all is."""
        if self.close_when_flushed and self.unread and not self.will_close:
            self._flush_exception(self._flush_some)
            if self.connected and not self.total_outbufs_len and not self.will_close:
                self._linger()
                return
            if not self.will_close:
                return
        super().handle_write()

    def _linger(self) -> None:
        with contextlib.suppress(OSError):
            self.shut_down_sending()
        self._lingering = time.monotonic() + LINGER_SECONDS

    def shut_down_sending(self) -> None:
        """Tell the peer that nothing more comes."""
        self.socket.shutdown(socket.SHUT_WR)

    def _discard(self) -> None:
        try:
            # Also under TLS the bytes off the wire: nobody will look at them.
            data = socket.socket.recv(self.socket, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._discarded += len(data)
        if not data or self._discarded > LINGER_BYTES:
            self.handle_close()

    def handle_close(self) -> None:
        """Close, whatever state this is in."""
        request, self.request = self.request, None
        if request is not None:
            request.close()
        super().handle_close()

    def del_channel(self, map: Any = None) -> None:
        """Leave the loop, while the descriptor is still ours."""
        self.server.forget(self)
        super().del_channel(map)

    # -- in worker threads -----------------------------------------------------------------------

    def service(self) -> None:
        """Work on the request that is complete."""
        # Pipelined requests: the next may be with another worker before this call is over.
        self._asked = True
        with self.requests_lock:
            self.serving += 1
            self.server.busy.add(self)
            block = self.requests[0].block if self.requests else None
        try:
            super().service()
        finally:
            if block is not None:
                self.server.order.done(block.upload)
            with self.requests_lock:
                self.serving -= 1
                if not self.serving:
                    self.server.busy.discard(self)
            self.server.touch(self)

    def cancel(self) -> None:
        """Drop what waits for a worker."""
        for request in self.requests:
            request.close()
        super().cancel()
        self.server.touch(self)


def own_address(sock: socket.socket) -> str:
    """Our own end of a connection; empty where that is not known."""
    try:
        return str(sock.getsockname()[0])
    except (OSError, IndexError):
        return ""
