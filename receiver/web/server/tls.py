"""TLS on a connection that never blocks: handshake, reads and writes go on when the socket can.

A TLS read may have to wait until the socket takes output and the other way round; the channel
keeps track of that and tells the loop (`interest`). OpenSSL takes one record at a time off the
socket, and each read has room for a whole one (16 KiB): so what is left is always in the socket,
where the loop sees it, and never decrypted and forgotten.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import ConfigError
from receiver.web.server.channel import Channel
from receiver.web.server.host import READ_BYTES

if TYPE_CHECKING:
    from receiver.web.server.host import Host

__all__ = ["TlsChannel", "server_context"]

_RECORD_BYTES = 1 << 14
_READS_AT_ONCE = 16
"""TLS records read before other connections have their turn."""


def server_context(cert: Path, key: Path) -> ssl.SSLContext:
    """What a server with this certificate (and chain) and key needs: TLS 1.2 or newer.

    Raises:
        ConfigError: they cannot be used; the message says why.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, cert, key)
    return context


def load_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Use this certificate for connections from now on.

    Raises:
        ConfigError: it cannot be used; the context keeps the one before.
    """
    # A context that has taken the certificate and not the key would serve neither.
    trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for each in (trial, context):
        try:
            each.load_cert_chain(cert, key, password=_no_password)
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise ConfigError(
                f"listen.tls_cert = {cert}, listen.tls_key = {key}: expected a PEM certificate "
                f"and its key without a passphrase: {why}"
            ) from error


def _no_password() -> str:
    raise ValueError("the key has a passphrase")


class TlsChannel(Channel):
    """A connection with TLS."""

    def __init__(self, server: Host, sock: socket.socket, addr: tuple[Any, ...], adj: Any) -> None:
        assert server.tls is not None
        # OpenSSL objects take one thread at a time: the loop reads while a worker may write.
        self._tls = threading.Lock()
        self._shaking = True
        self._waits_for = select.EPOLLIN
        self._read_wants_write = False
        self._write_wants_read = False
        sock.setblocking(False)
        secured = server.tls.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
        )
        try:
            super().__init__(server, secured, addr, adj)
        except BaseException:
            secured.close()
            raise

    def interest(self) -> int:
        """The epoll events that matter now, TLS' own wishes included."""
        if self._lingering is not None:
            return select.EPOLLIN
        if self._shaking:
            return self._waits_for
        mask = super().interest()
        if self._read_wants_write and mask & select.EPOLLIN:
            mask |= select.EPOLLOUT
        if self._write_wants_read and mask & select.EPOLLOUT:
            mask |= select.EPOLLIN
        return mask

    def overdue(self, now: float) -> bool:
        """Whether the peer had its time; a handshake counts as headers."""
        if self._shaking:
            return bool(now - self._born > self.server.options.header_timeout)
        return super().overdue(now)

    # -- events --------------------------------------------------------------------------------

    def handle_read(self) -> None:
        """Go on with the handshake, or take what has come."""
        if self._lingering is not None:
            self._discard()
            return
        if self._shaking and not self._shake():
            return
        for _ in range(_READS_AT_ONCE):
            if not self._read_once() or not self.connected or not self.readable():
                return

    def handle_write(self) -> None:
        """Go on with the handshake, or with what waits to be sent."""
        if self._shaking:
            if self.will_close:
                self.handle_close()
            elif self._shake():
                self.handle_read()
            return
        if self._read_wants_write and self.readable():
            self._read_once()
        if self.connected and (self.total_outbufs_len or self.writable()):
            super().handle_write()

    def _shake(self) -> bool:
        """Whether the handshake is done."""
        try:
            if self._speaks_plainly():
                self._shaking = False
                self.answer_foreign("this port speaks HTTPS: use https://")
                return False
            with self._tls:
                self.socket.do_handshake()
        except ssl.SSLWantReadError:
            self._waits_for = select.EPOLLIN
        except ssl.SSLWantWriteError:
            self._waits_for = select.EPOLLOUT
        except (OSError, ValueError) as error:
            self.logger.debug("TLS handshake with %s: %s", self.addr[0], error)
            self.handle_close()
        else:
            self._shaking = False
            self.last_activity = time.monotonic()
            self._born = time.monotonic()
        return not self._shaking

    def _speaks_plainly(self) -> bool:
        """Whether the peer took this for a port without TLS: a handshake begins with 0x16."""
        try:
            first = socket.socket.recv(self.socket, 1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        return first.isalpha()

    def _read_once(self) -> bool:
        """Read once; whether something came."""
        self._read_wants_write = False
        try:
            with self._tls:
                data = self._take()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self._read_wants_write = True
            return False
        except (OSError, ValueError):
            data = b""
        if not data:
            self.handle_close()
            return False
        self.last_activity = time.monotonic()
        self.received(data)
        return True

    def _take(self) -> bytes | memoryview:
        room = self.body_room(least=_RECORD_BYTES)
        if room is None:
            came: bytes = self.socket.recv(READ_BYTES)
            return came
        return room[: self.socket.recv_into(room)]

    # -- sending, also from workers --------------------------------------------------------------

    def send(self, data: bytes, do_close: bool = True) -> int:
        """Send what fits; 0 if nothing does, or if the connection is gone."""
        self._write_wants_read = False
        try:
            with self._tls:
                sent: int = self.socket.send(data)
        except ssl.SSLWantWriteError:
            return 0
        except ssl.SSLWantReadError:
            self._write_wants_read = True
            return 0
        except (OSError, ValueError):
            self.will_close = True
            if do_close:
                self.handle_close()
            return 0
        return sent

    def shut_down_sending(self) -> None:
        """Say goodbye in TLS, then in TCP."""
        with self._tls, contextlib.suppress(OSError, ValueError):
            self.socket.unwrap()
        socket.socket.shutdown(self.socket, socket.SHUT_WR)

    def handle_close(self) -> None:
        """Close; a peer that still listens learns that this was the end and no cut."""
        if self.connected and not self._shaking and self._lingering is None:
            with self._tls, contextlib.suppress(OSError, ValueError, AttributeError):
                self.socket.unwrap()
        super().handle_close()
