"""The WSGI server inside the receiver's process: one loop for all sockets, workers for requests.

Why this one. A receiver is talked to over bad links, so reading must cost no thread: servers that
give each connection a thread stop answering when a hundred peers send a byte a second
(`scripts/bench/http_server.py` shows it). Of the servers that read without threads, waitress is
the one that lives in any process without a loop of its own kind, and lets us judge a request
before its body is read. We keep its parser, channels, tasks and workers, and replace its loop:
that one asks every connection on every turn, which costs most when many are idle. Ours asks only
those where something happened.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import select
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from waitress.adjustments import Adjustments

from common.errors import ConfigError
from receiver.web.server.channel import Channel
from receiver.web.server.host import READ_BYTES, BodyMemory, ServerOptions
from receiver.web.server.in_order import InOrder
from receiver.web.server.listen import BACKLOG, Address
from receiver.web.server.tls import TlsChannel
from receiver.web.server.whole_body import Spares
from receiver.web.server.workers import Workers

if TYPE_CHECKING:
    from receiver.web.server.head import Gate
    from receiver.web.server.tls_contexts import ServerTls

__all__ = ["Server", "raise_descriptor_limit"]

log = logging.getLogger(__name__)

_EVENTS_AT_ONCE = 256
_ACCEPTS_AT_ONCE = 64
_SWEEP_SECONDS = 1.0
_FULL_SECONDS = 0.1
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_DESCRIPTORS_KEPT = 256
"""For files: logs, uploads, and what libraries open."""


class Server:
    """Serves a WSGI application on sockets that are bound (`receiver.web.server.listen`).

    `run` serves until `stop`, in the thread that calls it; `stop` may be called from any thread or
    from a signal handler.
    """

    def __init__(
        self,
        application: Callable[..., Any],
        sockets: Sequence[socket.socket],
        *,
        gate: Gate,
        options: ServerOptions | None = None,
        tls: ServerTls | None = None,
        refused: Callable[[str, str], None] = lambda peer, why: None,
    ) -> None:
        """Listen to nobody yet.

        Args:
            application: by WSGI.
            sockets: that are bound.
            gate: judges requests by their heads.
            options: how much it takes on.
            tls: what connections are secured with; None: they are in clear.
            refused: hears of whose certificate is not taken: the address, and why.
        """
        self.options = options or ServerOptions()
        self.application = application
        self.gate = gate
        self.tls = tls
        self.refused = refused
        self.adj = _adjustments(self.options, tls is not None)
        self.memory = BodyMemory(self.options.max_buffered_bytes)
        self.spares = Spares()
        self.order = InOrder()
        self.channels: dict[int, Any] = {}
        self.active_channels = self.channels  # waitress' name; entries are the same
        self.busy: set[Channel] = set()
        self.addresses: list[Address] = [sock.getsockname()[:2] for sock in sockets]
        self.server_name = "tsferry.invalid"
        self.effective_port = self.addresses[0][1]
        self.stopping = threading.Event()
        self._listeners = {sock.fileno(): sock for sock in sockets}
        self._epoll = select.epoll()
        self._wakeup = _Wakeup()
        self._watched: dict[int, int] = {}
        self._touched: deque[Channel] = deque()
        self._grace = 10.0
        self._next_sweep = 0.0
        self._listening = False
        self._accept_again = 0.0
        self._epoll.register(self._wakeup.fd, select.EPOLLIN)
        self._workers = Workers()

    # -- life ----------------------------------------------------------------------------------

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`; then finish what is being worked on, and close everything.

        Whoever is connected by then, and whose request is there or on its way, gets an answer.

        Args:
            ready: called once connections are taken.

        Raises:
            ConfigError: another process has come to listen on the port.
        """
        try:
            self._begin_to_listen()
            self._workers.set_thread_count(self.options.threads)
            self._listen(True)
            ready()
            while not self.stopping.is_set():
                self._turn(_SWEEP_SECONDS if self._listening else _FULL_SECONDS)
            self._finish()
        finally:
            self._close()

    def _begin_to_listen(self) -> None:
        for sock in self._listeners.values():
            try:
                sock.listen(BACKLOG)
            except OSError as error:
                at = ":".join(map(str, sock.getsockname()[:2]))
                raise ConfigError(f"cannot listen on {at}: {error.strerror}") from error

    def stop(self, grace: float = 10.0) -> None:
        """Make `run` return; requests that are being worked on have `grace` seconds to end."""
        self._grace = grace
        self.stopping.set()
        self._wakeup.wake()

    def _finish(self) -> None:
        for _ in range(2):  # who has connected and asked already gets an answer
            self._turn(0.0)
        for sock in self._listeners.values():
            self._watch(sock.fileno(), 0)
            sock.close()
        self._listeners.clear()
        stopped = now = time.monotonic()
        while now < stopped + self._grace:
            for channel in list(self.channels.values()):
                if channel.may_end(now, stopped):
                    self._drop(channel)
            if not self.channels:
                return
            self._turn(0.1)
            now = time.monotonic()
        log.warning("%d requests were cut off at the end", len(self.busy))

    def _close(self) -> None:
        self._workers.shutdown(timeout=1)
        for sock in self._listeners.values():
            sock.close()
        for channel in list(self.channels.values()):
            self._drop(channel)
        self._epoll.close()

    # -- the loop --------------------------------------------------------------------------------

    def _turn(self, timeout: float) -> None:
        self._refresh()
        for fd, events in self._epoll.poll(timeout, _EVENTS_AT_ONCE):
            if fd == self._wakeup.fd:
                self._wakeup.clear()
            elif fd in self._listeners:
                self._accept(self._listeners[fd])
            elif (channel := self.channels.get(fd)) is not None:
                self._dispatch(channel, events)
        for channel in self.order.ready(self.channels.values()):
            self._workers.add_task(channel)
        now = time.monotonic()
        if not self._listening and now >= self._accept_again and not self.stopping.is_set():
            self._listen(True)
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_SECONDS
            self._sweep(now)

    def _refresh(self) -> None:
        """Watch what channels want now that were touched, or that workers are busy with."""
        changed = set(self.busy.copy())
        while self._touched:
            changed.add(self._touched.popleft())
        for channel in changed:
            fd = channel._fileno
            if fd is None:
                continue
            if channel.will_close and not channel.serving:
                self._drop(channel)
            else:
                self._watch(fd, channel.interest())

    def _dispatch(self, channel: Channel, events: int) -> None:
        try:
            if events & select.EPOLLIN:
                channel.handle_read()
            if events & select.EPOLLOUT and channel.connected:
                channel.handle_write()
            if events & (select.EPOLLHUP | select.EPOLLERR) and channel.connected:
                self._drop(channel)
        except Exception:
            log.exception("connection from %s", channel.addr[0])
            self._drop(channel)
        self._touched.append(channel)

    def _watch(self, fd: int, mask: int) -> None:
        before = self._watched.get(fd, 0)
        if mask == before:
            return
        if not mask:
            del self._watched[fd]
            self._epoll.unregister(fd)
            return
        if before:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._watched[fd] = mask

    def _sweep(self, now: float) -> None:
        for channel in list(self.channels.values()):
            if channel.overdue(now):
                self._drop(channel)
        self.spares.sweep()

    def _drop(self, channel: Channel) -> None:
        try:
            channel.handle_close()
        except Exception:
            log.exception("closing the connection from %s", channel.addr and channel.addr[0])

    # -- accepting -------------------------------------------------------------------------------

    def _listen(self, wanted: bool) -> None:
        self._listening = wanted
        for fd in self._listeners:
            self._watch(fd, select.EPOLLIN if wanted else 0)

    def _pause_accepting(self, seconds: float) -> None:
        self._listen(False)
        self._accept_again = time.monotonic() + seconds

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            full = len(self.channels) >= self.options.connection_limit
            if full and not any(channel.evictable for channel in self.channels.values()):
                self._pause_accepting(_FULL_SECONDS)
                return
            try:
                sock, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    log.warning("no connection can be taken: %s", error.strerror)
                    self._make_room()
                    self._pause_accepting(_SWEEP_SECONDS)
                return
            if full:  # and only now that somebody is really there
                self._make_room()
            self._welcome(sock, peer)

    def _welcome(self, sock: socket.socket, peer: tuple[Any, ...]) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kind = Channel if self.tls is None else TlsChannel
            self._touched.append(kind(self, sock, peer, self.adj))
        except (OSError, ValueError) as error:
            log.debug("connection from %s: %s", peer[0], error)
            sock.close()

    def _make_room(self) -> None:
        """Close the connection that is idle for the longest, of the peer that has most."""
        idle = [channel for channel in self.channels.values() if channel.evictable]
        if not idle:
            return
        most = Counter(channel.addr[0] for channel in idle).most_common(1)[0][0]
        theirs = (channel for channel in idle if channel.addr[0] == most)
        self._drop(min(theirs, key=lambda channel: channel.last_activity))

    # -- what channels call ------------------------------------------------------------------------

    def add_task(self, channel: Channel) -> None:
        """Give a channel with a complete request to a worker; with a block, when it is its turn."""
        if channel.requests[0].block is None:
            self._workers.add_task(channel)
        else:
            self.order.arrived(channel)
            self._wakeup.wake()

    def pull_trigger(self) -> None:
        """Look at the channels that workers are busy with (waitress' name)."""
        self._wakeup.wake()

    def touch(self, channel: Channel) -> None:
        """Look at this channel (from any thread)."""
        self._touched.append(channel)
        self._wakeup.wake()

    def forget(self, channel: Channel) -> None:
        """A channel is about to close its descriptor."""
        if channel._fileno is not None:
            self._watch(channel._fileno, 0)


class _Wakeup:
    """Ends the loop's wait from another thread.

    Closed with its last user and not before: a worker that was cut off may write to it late, when
    the number could be another file's.
    """

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.fd)


def _adjustments(options: ServerOptions, tls: bool) -> Any:
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # says each waiting request
    return Adjustments(
        sockets=[],
        ident=None,
        threads=options.threads,
        url_scheme="https" if tls else "http",
        recv_bytes=READ_BYTES,
        # Judged by the gate instead; pieces and small bodies never reach this.
        max_request_body_size=1 << 62,
        inbuf_overflow=1 << 62,
        max_request_header_size=options.max_header_bytes,
        channel_timeout=max(1, int(options.channel_timeout)),
        expose_tracebacks=False,
        log_socket_errors=False,
        clear_untrusted_proxy_headers=False,
    )


def raise_descriptor_limit(connections: int) -> int:
    """Allow this process that many connections beside its files, as far as the system lets it.

    Returns:
        how many connections it may take.
    """
    wanted = connections + _DESCRIPTORS_KEPT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return connections
    return max(16, min(connections, soft - _DESCRIPTORS_KEPT))
