"""One HTTP request of the sender and its answer, or the error that tells what happened instead.

What holds for every request: a time-out on every wait, a bound on every answer, no redirect
followed, no credentials from `.netrc`, no proxy unless it was asked for, no token in clear to
another machine. Nothing is tried again here; `sender.send.connection.backoff` does that, around
calls that may be repeated.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import requests
import requests.utils
import urllib3.exceptions

import common
from common import wire
from common.config import Secret, is_loopback
from common.console.terminal import printable
from common.errors import (
    ConfigError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    ProtocolError,
    TooLargeError,
    TsferryError,
    UnauthorizedError,
    UnreachableError,
)
from common.network.bandwidth import Bandwidth
from common.network.client_certificate import ClientCertificate
from common.network.timed_http import NoHandshakeError, timed_session
from common.text_numbers import retry_after_seconds
from sender.send.connection.paced_body import Departure, PacedBody
from sender.send.connection.tls_refusals import not_accepted, refused_for_ours

__all__ = ["Endpoint", "HttpReply", "Transport", "media_type", "seen", "short"]

MAX_ANSWER = 64 << 20
"""Bytes of the largest answer that is read, unless a call says otherwise."""
MAX_OUTCOMES = 1 << 30
"""Of that of a task that is done: it has the outcome of each of its paths."""
_SHOWN = 120
_TCP_INFO = struct.Struct("=160xQ")
"""`struct tcp_info` of linux/tcp.h up to `tcpi_delivery_rate` (Linux 4.9)."""


class Endpoint(msgspec.Struct, frozen=True):
    """A receiver's address and how to speak to it.

    Attributes:
        url: scheme, host, port and any path before `/sync/v1`; no slash at its end.
        sender: uuid that stands in every request; empty for a reader.
        token: what the receiver knows us by.
        ca_file: PEM bundle for its certificate, instead of the system's.
        client_cert: PEM certificate that is shown to it; with `client_key`.
        client_key: PEM private key of that.
        insecure: plain HTTP to another machine is wanted.
        use_env_proxies: go through `HTTPS_PROXY` and the like.
        connect_timeout: seconds until it has taken a connection.
        read_timeout: seconds without a byte of an answer.
    """

    url: str
    sender: str = ""
    token: Secret | None = None
    ca_file: Path | None = None
    insecure: bool = False
    use_env_proxies: bool = False
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    client_cert: Path | None = None
    client_key: Path | None = None

    def refuse_plain(self) -> None:
        """Raise `ConfigError` if data and token would travel in clear and nobody allowed it."""
        parts = urlsplit(self.url)
        if parts.scheme == "http" and not self.insecure and not is_loopback(parts.hostname or ""):
            raise ConfigError(
                f"{self.url}: plain HTTP to another machine; use https:// or set insecure = true"
            )


class HttpReply(msgspec.Struct, frozen=True):
    """A whole answer that is a success."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    where: str
    """Method and path, for messages."""


class Transport:
    """Requests to one receiver; threads may share it, each has its own connection."""

    def __init__(
        self, endpoint: Endpoint, bandwidth: Bandwidth, clock: Callable[[], float] = time.monotonic
    ) -> None:
        endpoint.refuse_plain()
        self.endpoint = endpoint
        self.bandwidth = bandwidth
        self._clock = clock
        self._local = threading.local()
        self._sessions: list[requests.Session] = []
        self._lock = threading.Lock()
        self._certificate: ClientCertificate | None = None
        if endpoint.client_cert is not None and endpoint.client_key is not None:
            self._certificate = ClientCertificate(
                endpoint.client_cert, endpoint.client_key, endpoint.ca_file
            )

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            for session in self._sessions:
                session.close()
            self._sessions.clear()
            self._local = threading.local()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        epoch: str | None = None,
        headers: Mapping[str, str] | None = None,
        longer: float = 0.0,
        outcomes: bool = False,
        departure: Departure | None = None,
    ) -> HttpReply:
        """One request and its whole answer; an answer that is no success is raised.

        Args:
            method: of HTTP.
            path: below `/sync/v1`.
            body: of the request.
            epoch: of the task it belongs to.
            headers: beside those of every request.
            longer: seconds that the answer may take beyond the usual.
            outcomes: whether the answer may have the outcome of each path of a task.
            departure: hears how far the body has gone.
        """
        most = MAX_OUTCOMES if outcomes else MAX_ANSWER
        url = f"{self.endpoint.url}{wire.BASE}{path}"
        where = f"{method} {url.partition('?')[0]}"
        with (
            _explained(self.endpoint, where),
            self.bandwidth.travelling(len(body or b"")) as heard,
            self._session().request(
                method,
                url,
                headers=self._headers(epoch, body) | dict(headers or {}),
                data=PacedBody(body, self.bandwidth, departure) if body else None,
                timeout=(self.endpoint.connect_timeout, self.endpoint.read_timeout + longer),
                verify=self._authorities(),
                proxies=self._proxies(url),
                allow_redirects=False,
                stream=True,
            ) as response,
        ):
            heard(_delivery_rate(response))
            content = self._content(response, where, longer, most)
            reply = HttpReply(response.status_code, response.headers, content, where)
        if not 200 <= reply.status < 300:
            raise _refusal(reply)
        return reply

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        secured = None if self._certificate is None else self._certificate.context()
        if session is not None and secured is not self._local.secured:
            session.close()  # a connection goes on with the certificate that it began with
            with self._lock:
                self._sessions = [each for each in self._sessions if each is not session]
            session = None
        if session is None:
            session = self._local.session = timed_session(secured)
            self._local.secured = secured
            with self._lock:
                self._sessions.append(session)
        return session

    def _authorities(self) -> str | bool:
        if self.endpoint.ca_file is not None:
            return str(self.endpoint.ca_file)
        return True if self._certificate is None else requests.utils.DEFAULT_CA_BUNDLE_PATH

    def _headers(self, epoch: str | None, body: bytes | None) -> dict[str, str]:
        headers = {
            "User-Agent": f"tsferry-sender/{common.__version__}",
            "Accept": f"application/json, {wire.PROBLEM_TYPE}",
            "Accept-Encoding": "identity",  # a packed answer could unpack to any size
        }
        if self.endpoint.sender:
            headers[wire.SENDER_HEADER] = self.endpoint.sender
        if self.endpoint.token is not None:
            headers["Authorization"] = f"Bearer {self.endpoint.token.reveal()}"
        if epoch is not None:
            headers[wire.EPOCH_HEADER] = epoch
        if body is not None:
            headers["Content-Type"] = "application/json"
        return headers

    def _proxies(self, url: str) -> dict[str, str]:
        if not self.endpoint.use_env_proxies:
            return {}
        return dict(requests.utils.get_environ_proxies(url, no_proxy=None))

    def _content(self, response: requests.Response, where: str, longer: float, most: int) -> bytes:
        """The body of an answer, bounded in size and in the time that it may trickle in."""
        patience = self._clock() + 2 * self.endpoint.read_timeout + longer
        out = bytearray()
        for piece in response.iter_content(1 << 16):
            out += piece
            if len(out) > most:
                raise ProtocolError(f"{where}: the answer is longer than {most} bytes")
            if self._clock() > patience:
                raise UnreachableError(f"{where}: the answer does not come to its end")
        return bytes(out)


def _delivery_rate(response: requests.Response) -> float:
    """Bytes a second that the peer's kernel took lately of what was sent; 0 where nobody knows.

    What ours took would say less: it swallows a body of a megabyte at once, whatever the line does.
    """
    sock = getattr(getattr(response.raw, "_connection", None), "sock", None)
    if sock is None:
        return 0.0
    try:
        known = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        return float(_TCP_INFO.unpack(known)[0])
    except (OSError, struct.error):  # an older kernel tells less
        return 0.0


def short(text: str) -> str:
    """Foreign text as a message may show it."""
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def media_type(reply: HttpReply) -> str:
    """The content type, without its parameters."""
    return reply.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def seen(reply: HttpReply) -> str:
    """What an unexpected answer looks like."""
    kind = printable(media_type(reply)[:40]) or "no content type"
    start = reply.body[:_SHOWN].decode("utf-8", "replace")
    return f"status {reply.status}, {kind}, {short(start)}"


# -- answers that are no success ---------------------------------------------------------------

_BARE: Mapping[int, type[TsferryError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    408: UnreachableError,
    410: GoneError,
    413: TooLargeError,
    429: UnreachableError,
}
"""Answers without a problem document: a proxy's, or those to HEAD, which have no body."""


def _refusal(reply: HttpReply) -> TsferryError:
    """The error that an answer stands for; `extra["status"]` has its HTTP status."""
    if 300 <= reply.status < 400:
        to = short(reply.headers.get("Location", ""))
        return ProtocolError(
            f"{reply.where}: redirects to {to}; redirects are not followed, for the token would "
            "go along: put the right address into the configuration",
            extra={"status": reply.status},
        )
    after = retry_after_seconds(reply.headers.get("Retry-After"), time.time())
    error = _problem(reply)
    if error is None:
        hint = ""
        kind = _BARE.get(reply.status, UnreachableError if reply.status >= 500 else ProtocolError)
        if reply.status == 413:
            hint = " (a proxy before the receiver may limit bodies: see chunk_bytes)"
        error = kind(f"{reply.where}: {seen(reply)}{hint}")
    if after is not None and (error.retry_after is None or after > error.retry_after):
        error.retry_after = after
    error.extra["status"] = reply.status
    return error


def _problem(reply: HttpReply) -> TsferryError | None:
    if media_type(reply) != wire.PROBLEM_TYPE:
        return None
    try:
        return wire.from_problem(wire.decode(reply.body, wire.Problem, reply.where))
    except ProtocolError:
        return None


# -- no answer ---------------------------------------------------------------------------------


@contextmanager
def _explained(endpoint: Endpoint, where: str) -> Iterator[None]:
    """Turn what requests raises into an error of ours that says what to look at."""
    try:
        yield
    except requests.exceptions.ConnectTimeout as error:
        raise UnreachableError(
            f"{endpoint.url}: no connection within {endpoint.connect_timeout:g} s"
        ) from error
    except requests.exceptions.ReadTimeout as error:
        raise UnreachableError(f"{where}: no answer within {endpoint.read_timeout:g} s") from error
    except requests.exceptions.SSLError as error:
        raise _tls_error(endpoint, error) from error
    except requests.exceptions.ProxyError as error:
        raise UnreachableError(f"{endpoint.url}: the proxy: {_cause(error)}") from error
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
        raise ConfigError(f"{endpoint.url}: {printable(str(error))}") from error
    except OSError as error:
        # Of requests' own errors all are OSErrors. Without a CA bundle it raises a bare one.
        if endpoint.ca_file is not None and not endpoint.ca_file.is_file():
            raise ConfigError(f"ca_file {endpoint.ca_file}: no such file") from error
        raise _broken(endpoint, where, error) from error


def _tls_error(endpoint: Endpoint, error: Exception) -> TsferryError:
    reason = _cause(error)
    chain = list(_chain(error))
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            return not_accepted(endpoint.url, endpoint.ca_file, each)
    ours = refused_for_ours(endpoint.url, endpoint.client_cert, chain)
    if ours is not None:
        return ours
    if any(isinstance(each, ssl.SSLEOFError | ssl.SSLZeroReturnError) for each in chain):
        return UnreachableError(f"{endpoint.url}: the TLS connection broke: {reason}")
    plain = any("WRONG_VERSION_NUMBER" in str(each) for each in chain)
    hint = "; a port that speaks plain HTTP answers like that (is it http://?)" if plain else ""
    return ProtocolError(f"{endpoint.url}: does not speak TLS there: {reason}{hint}")


def _broken(endpoint: Endpoint, where: str, error: Exception) -> TsferryError:
    chain = list(_chain(error))
    lost = any(isinstance(each, http.client.RemoteDisconnected) for each in chain)
    foreign = any(
        isinstance(each, http.client.BadStatusLine | http.client.LineTooLong) for each in chain
    )
    ours = refused_for_ours(endpoint.url, endpoint.client_cert, chain)
    if ours is not None:
        return ours
    silent = next((each for each in chain if isinstance(each, NoHandshakeError)), None)
    if silent is not None:
        return UnreachableError(f"{endpoint.url}: {silent} (does the port speak TLS at all?)")
    hint = " (is it https://?)" if endpoint.url.startswith("http:") else ""
    if foreign and not lost:
        return ProtocolError(f"{endpoint.url}: does not speak HTTP there: {_cause(error)}{hint}")
    if any(isinstance(each, urllib3.exceptions.NameResolutionError) for each in chain):
        return UnreachableError(f"{endpoint.url}: the host name cannot be resolved")
    if not any(isinstance(each, ConnectionResetError | BrokenPipeError) for each in chain):
        hint = ""  # a TLS port may hang up on plain HTTP, and its alert be lost with that
    return UnreachableError(f"{where}: {_cause(error)}{hint}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those inside it; requests and urllib3 wrap in arguments, `reason` and causes."""
    pending: list[object] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if not isinstance(each, BaseException) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        pending += [each.__context__, each.__cause__, getattr(each, "reason", None), *each.args]


def _cause(error: BaseException) -> str:
    """The words of the innermost error that has any."""
    words = ""
    for each in _chain(error):
        text = getattr(each, "strerror", None) or getattr(each, "verify_message", None)
        if isinstance(each, http.client.RemoteDisconnected):
            return "closed the connection without an answer"
        if isinstance(text, str) and text:
            words = text
    return printable((words or str(error))[:_SHOWN])
