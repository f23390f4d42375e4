"""TLS on a connection that never blocks: handshake, reads and writes go on when the socket can.

A TLS read may have to wait until the socket takes output and the other way round; the channel
keeps track of that and tells the loop (`interest`). OpenSSL takes one record at a time off the
socket, and each read has room for a whole one (16 KiB): so what is left is always in the socket,
where the loop sees it, and never decrypted and forgotten.
"""

from __future__ import annotations

import contextlib
import hashlib
import select
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

from receiver.metadata.model.certificate_names import names_of
from receiver.web.server.channel import Channel, own_address
from receiver.web.server.head import PeerCertificate
from receiver.web.server.host import READ_BYTES

if TYPE_CHECKING:
    from receiver.web.server.host import Host

__all__ = ["TlsChannel"]

_RECORD_BYTES = 1 << 14
_NONE_SHOWN = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
_READS_AT_ONCE = 16
"""TLS records read before other connections have their turn."""


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
        self._generation = server.tls.generation
        secured = server.tls.wrap(sock, str(addr[0]), own_address(sock))
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
        if self.is_outdated and self.is_idle:
            return True
        return super().overdue(now)

    @property
    def is_outdated(self) -> bool:
        """Whether the peer's certificate was looked at by what has been read anew since."""
        tls = self.server.tls
        return self.certificate is not None and self._generation != tls.generation

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
                self.certificate = _certificate_of(self.socket)
        except ssl.SSLWantReadError:
            self._waits_for = select.EPOLLIN
        except ssl.SSLWantWriteError:
            self._waits_for = select.EPOLLOUT
        except (OSError, ValueError) as error:
            self._shake_off(error)
            return False
        else:
            self._shaking = False
            self.last_activity = time.monotonic()
            self._born = time.monotonic()
        return not self._shaking

    def _shake_off(self, error: Exception) -> None:
        """End a handshake that failed; whose certificate is not taken has time to read the alert.

        It may have sent its request already (TLS 1.3): closing at once would reset the connection.
        """
        self.logger.debug("TLS handshake with %s: %s", self.addr[0], error)
        why = _refused_for(error)
        if why is None:
            self.handle_close()
            return
        self.server.refused(str(self.addr[0]), why)
        self._shaking = False
        self._linger()

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


def _certificate_of(sock: ssl.SSLSocket) -> PeerCertificate | None:
    """The certificate that the peer showed, which the handshake has verified.

    Raises:
        ValueError: it has what cannot be read.
    """
    der = sock.getpeercert(binary_form=True)
    told = sock.getpeercert()
    if not der or not told:
        return None
    until = ssl.cert_time_to_seconds(str(told["notAfter"]))
    return PeerCertificate(names_of(told), until, hashlib.sha256(der).hexdigest())


def _refused_for(error: Exception) -> str | None:
    """What is wrong with the peer's certificate, where that ended the handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return "there is none" if error.reason == _NONE_SHOWN else None
    return f"it cannot be read: {error}" if isinstance(error, ValueError) else None
