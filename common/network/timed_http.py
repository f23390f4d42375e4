"""Connections whose answers come to an end, for whoever speaks HTTP to a server that may hang."""

from __future__ import annotations

import http.client
import io
import socket
import time
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import requests
import requests.adapters
import urllib3.connection
import urllib3.connectionpool

if TYPE_CHECKING:
    import ssl

    from _typeshed import WriteableBuffer

__all__ = ["NoHandshakeError", "timed_session"]

_WAITS = 2
"""Times the longest wait for a byte, until an answer has to be whole."""
_UNSENT = 1 << 17
"""Bytes that the kernel may hold unsent: else megabytes wait in its buffer on a slow line, and the
time-out for the answer runs while the question is still here."""


class _InTime(io.RawIOBase):
    """What a server sends, for as long as one answer may take in all, head and body.

    Each wait has a time-out already; a server that sends a byte now and then, or `100 Continue`
    without end, would keep us waiting for ever nevertheless.
    """

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, end: float) -> None:
        self._raw = raw
        self._sock = sock
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer does not come to its end")
        wait = self._sock.gettimeout()
        self._sock.settimeout(left if wait is None else min(wait, left))
        try:
            return self._raw.readinto(buffer)
        finally:
            self._sock.settimeout(wait)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedAnswer(http.client.HTTPResponse):
    """An answer that has so many seconds to come whole; without, twice the time of one wait."""

    within: ClassVar[float | None] = None

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        wait = sock.gettimeout()
        if wait is not None:
            end = time.monotonic() + (self.within or _WAITS * wait)
            self.fp = io.BufferedReader(_InTime(self.fp.detach(), sock, end))


class _Connection(urllib3.connection.HTTPConnection):
    response_class = _TimedAnswer


class NoHandshakeError(OSError):
    """The other end took the connection and says nothing to the begin of TLS."""


class _SecureConnection(urllib3.connection.HTTPSConnection):
    response_class = _TimedAnswer

    def connect(self) -> None:
        """Connect; a handshake that gets no answer is no answer that is late."""
        try:
            super().connect()
        except TimeoutError as error:
            raise NoHandshakeError(f"no TLS handshake within {self.timeout:g} s") from error


class _Pool(urllib3.connectionpool.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(urllib3.connectionpool.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


@cache
def _pools(within: float | None) -> dict[str, type]:
    """By scheme; of answers that have so many seconds."""
    answer = {"response_class": type("_Answer", (_TimedAnswer,), {"within": within})}
    plain = {"ConnectionCls": type("_Plain", (_Connection,), answer)}
    secure = {"ConnectionCls": type("_Secure", (_SecureConnection,), answer)}
    return {"http": type("_Pools", (_Pool,), plain), "https": type("_S", (_SecurePool,), secure)}


class _Adapter(requests.adapters.HTTPAdapter):
    """Never retries by itself, keeps little in the kernel's send buffer, and waits with an end."""

    def __init__(self, secured: ssl.SSLContext | None, within: float | None) -> None:
        self._secured = secured
        self._within = within
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        options = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        ]
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            options.append((socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT))
        if self._secured is not None:
            kwargs["ssl_context"] = self._secured
        super().init_poolmanager(*args, socket_options=options, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _pools(self._within)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        if self._secured is not None:  # for the server behind it
            kwargs["ssl_context"] = self._secured
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = _pools(self._within)
        return manager


def timed_session(
    secured: ssl.SSLContext | None = None, *, within: float | None = None
) -> requests.Session:
    """Connections whose answers come to an end, and that take nothing from the environment.

    Args:
        secured: what TLS begins with (`common.network.client_certificate`). Then `verify` of each
            request has to be a path: with True some versions of requests take a context of their
            own.
        within: seconds that an answer may take in all, head and body, from when it was asked for;
            None for twice the time of one wait.
    """
    session = requests.Session()
    session.trust_env = False  # no .netrc, no proxies, no CA bundle
    session.mount("http://", _Adapter(None, within))
    session.mount("https://", _Adapter(secured, within))
    return session
