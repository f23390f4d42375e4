"""The way to a receiver: the server that runs, or the directories of one that does not.

A server writes where it listens, and a token of the day, into its schema directory, readable for
the user that it runs as. One on another machine is spoken to by `operator.url`, with a token of its
own; of several addresses by whichever leads. There no directories are opened in its place.
"""

from __future__ import annotations

import http.client
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from common import wire
from common.durable import Tree
from common.errors import (
    ForbiddenError,
    ProtocolError,
    UnauthorizedError,
    UnreachableError,
    UsageError,
)
from common.system_errors import owner_name, user_name
from receiver.operator.directories import look
from receiver.operator.paging import CursorPage, collect

if TYPE_CHECKING:
    from receiver.config import OperatorConfig, ReceiverConfig
    from receiver.operator.directories import ReceiverDirectories
    from receiver.storage.reading.reader_calls import ReaderCalls

__all__ = [
    "ADDRESS_FILE",
    "TOKEN_FILE",
    "NotRunningError",
    "OperatorClient",
    "RunningServer",
    "ServerAnswer",
    "ask",
    "ask_all",
    "running_server",
    "segment",
]

T = TypeVar("T")
P = TypeVar("P", bound=CursorPage)

ADDRESS_FILE = "operator.url"
TOKEN_FILE = "operator.token"  # noqa: S105  # a file name
TIMEOUT = 60.0
_MAX_ANSWER = 1 << 28
_WITHIN = 600.0
"""Seconds for a whole answer of a receiver elsewhere."""


class NotRunningError(UnreachableError):
    """No server answers for these directories."""

    def __init__(self, config: ReceiverConfig) -> None:
        super().__init__(
            f"no receiver is running for {config.schema_dir}; start it with: tsferry-receiver serve"
        )


class ServerAnswer(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RunningServer(NamedTuple):
    """How readers of this machine reach the server that runs for its directories.

    Attributes:
        url: where it listens, as it can be connected to.
        token: an operator's, of the day.
        ca_cert: PEM that it is checked against; None where it speaks no TLS.
    """

    url: str
    token: str
    ca_cert: str | None


class OperatorClient:
    """The running server, asked as an operator of this machine, or of another by `operator.url`.

    Args:
        config: of the server.
        keep: keep the connection open, for calls that follow; any thread may make them.
    """

    def __init__(self, config: ReceiverConfig, *, keep: bool = False) -> None:
        self._config = config
        self._distant = None if config.operator.url is None else _distant(config.operator)
        if self._distant is None:
            self._url = urlsplit(_read(config, ADDRESS_FILE))
            self._token = _read(config, TOKEN_FILE)
        self._keep = keep
        self._kept: http.client.HTTPConnection | None = None
        self._calling = threading.Lock()

    @property
    def is_connected(self) -> bool:
        """Whether the connection of the last call is still there."""
        return self._distant is not None or (self._kept is not None and _is_open(self._kept))

    def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Mapping[str, str | int | None] | None = None,
        body: wire.Struct | None = None,
    ) -> T:
        """Make a call that answers with a struct.

        Raises:
            NotRunningError: nobody listens there any more.
            TsferryError: as the server refused it.
        """
        return wire.decode(self._call(method, path, query, body), kind, f"answer to {path}")

    def ask_all(
        self,
        path: str,
        kind: type[P],
        items: Callable[[P], list[T]],
        query: Mapping[str, str | int | None] | None = None,
        limit: int | None = None,
    ) -> list[T]:
        """All entries of a list, page by page; see `collect`, and `ask` for what is raised."""
        return collect(
            lambda after, left: self.ask(
                "GET", path, kind, query={**(query or {}), "after": after, "limit": left}
            ),
            items,
            limit,
        )

    def tell(self, method: str, path: str, body: wire.Struct | None = None) -> None:
        """Make a call that has no answer but that it was done."""
        self._call(method, path, None, body)

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None] | None,
        body: wire.Struct | None,
    ) -> bytes:
        headers = {} if body is None else {"Content-Type": "application/json"}
        content = b"" if body is None else wire.encode(body)
        return self.exchange(method, path, query or {}, headers, content).body

    def exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None],
        headers: Mapping[str, str],
        body: bytes,
    ) -> ServerAnswer:
        """Make a call, and have its answer as it came; raises as `ask`."""
        if self._distant is not None:
            return ServerAnswer(*self._distant.ask(method, path, query, headers, body))
        while True:
            try:
                return self._exchange(method, path, query, headers, body)
            except UnauthorizedError:
                # A server that read its configuration again has another token of the day by now,
                # and the one that refused may be the last but one.
                token = _read(self._config, TOKEN_FILE)
                if token == self._token:
                    raise
                self._token = token

    def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None],
        headers: Mapping[str, str],
        body: bytes,
    ) -> ServerAnswer:
        given = {key: str(value) for key, value in query.items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        sent = {**headers, "Authorization": f"Bearer {self._token}"}
        with self._calling:
            connection = self._connection()
            done = False
            try:
                connection.request(method, target, body or None, sent)
                answer = connection.getresponse()
                got = answer.read(_MAX_ANSWER)
                done = True
            except (ConnectionRefusedError, FileNotFoundError) as error:
                raise NotRunningError(self._config) from error
            except ssl.SSLCertVerificationError as error:
                raise UnreachableError(
                    f"{self._url.geturl()} shows another certificate than listen.tls_cert = "
                    f"{self._config.listen.tls_cert} has: a reload takes that (systemctl reload "
                    "tsferry-receiver), or the log says why it does not"
                ) from error
            except (OSError, http.client.HTTPException) as error:
                raise UnreachableError(f"{self._url.geturl()} does not answer: {error}") from error
            finally:
                if done and self._keep:
                    self._kept = connection
                else:
                    connection.close()
        if answer.status >= 300:
            raise _refusal(answer.status, answer.getheader("Content-Type", ""), got)
        return ServerAnswer(answer.status, dict(answer.getheaders()), got)

    def _connection(self) -> http.client.HTTPConnection:
        kept, self._kept = self._kept, None
        if kept is not None:
            if _is_open(kept):
                return kept
            kept.close()
        return self._new_connection()

    def _new_connection(self) -> http.client.HTTPConnection:
        host, port = _reachable(self._url.hostname or "127.0.0.1"), self._url.port
        if self._url.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        if self._config.listen.tls_cert is None:
            raise UsageError(
                f"the server at {self._url.geturl()} speaks TLS, and this configuration does not "
                "name its certificate: give the listen.tls_cert that it was started with"
            )
        # Names do not matter: it is the very certificate of our own configuration, or nobody.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(self._config.listen.tls_cert)
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context)


def _distant(operator: OperatorConfig) -> ReaderCalls:
    """Calls to the receiver on another machine.

    Raises:
        UsageError: there is nothing to come with, or it would travel where others can read it.
    """
    from receiver.storage.reading.reader_calls import ReaderCalls, shown_certificate

    token = None if operator.token is None else operator.token.reveal()
    authorities = None if operator.ca_cert is None else str(operator.ca_cert)
    names = ("operator.client_cert", "operator.client_key")
    certificate = shown_certificate(operator.client_cert, operator.client_key, authorities, names)
    if token is None and certificate is None:
        raise UsageError(
            f"operator.url = {operator.url}: expected with operator.token_file, which holds an "
            "operator's token of that receiver (`token create --role operator` there), or "
            "operator.client_cert"
        )
    return ReaderCalls(
        operator.url or "",
        token=token,
        ca_cert=authorities,
        certificate=certificate,
        what="operator.url",
        timeout=(10.0, TIMEOUT),
        within=_WITHIN,
        once=True,
    )


def _is_open(connection: http.client.HTTPConnection) -> bool:
    # Between two calls nothing comes from a server but the end of the connection. To see that
    # before the next call is better than after it: a statement must not be carried out twice.
    sock: socket.socket | None = connection.sock
    if sock is None:
        return False
    waiting = select.poll()  # takes any number of a descriptor, which `select` does not
    waiting.register(sock, select.POLLIN)
    return not waiting.poll(0)


def ask(
    config: ReceiverConfig,
    server: Callable[[OperatorClient], T],
    directories: Callable[[ReceiverDirectories], T],
) -> T:
    """The answer of the running server; of the directories, if none runs."""
    try:
        return server(OperatorClient(config))
    except NotRunningError:
        with look(config) as there:
            return directories(there)


def ask_all(
    config: ReceiverConfig,
    path: str,
    kind: type[P],
    items: Callable[[P], list[T]],
    query: Mapping[str, str | int | None],
    page: Callable[..., P],
    limit: int | None = None,
) -> list[T]:
    """All entries of a list of the running server; of the directories, if none runs.

    Args:
        config: of the receiver.
        path: of the call that gives a page.
        kind: of the page.
        items: of the page.
        query: of the call.
        page: gives a page of the directories, `after` a cursor, of `limit` entries at most.
        limit: entries that are enough.
    """
    return ask(
        config,
        lambda server: server.ask_all(path, kind, items, query, limit),
        lambda there: collect(
            lambda after, left: page(there, after=after, limit=left), items, limit
        ),
    )


def running_server(config: ReceiverConfig) -> RunningServer | None:
    """The server that runs for these directories, or ran last.

    None where none did, or where it runs as another user, who keeps its token.
    """
    try:
        url, token = urlsplit(_read(config, ADDRESS_FILE)), _read(config, TOKEN_FILE)
    except (ForbiddenError, NotRunningError):
        return None
    host = _reachable(url.hostname or "127.0.0.1")
    place = f"[{host}]" if ":" in host else host
    cert = config.listen.tls_cert if url.scheme == "https" else None
    return RunningServer(
        f"{url.scheme}://{place}:{url.port}", token, None if cert is None else str(cert)
    )


def segment(text: str) -> str:
    """Text as one segment of a path."""
    return quote(text, safe="")


def _read(config: ReceiverConfig, name: str) -> str:
    try:
        with Tree(config.schema_dir) as tree:
            return tree.read(name, limit=4096).decode().strip()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotRunningError(config) from error
    except PermissionError as error:
        place = config.schema_dir / name
        owner = owner_name(place)
        raise ForbiddenError(
            f"{place} may not be read by the user {user_name(os.geteuid())}: run this as the user "
            f"of the server (sudo -u {owner or 'USER'} ...)"
        ) from error


def _reachable(host: str) -> str:
    """Where to connect to for an address that is listened on."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _refusal(status: int, media: str, body: bytes) -> Exception:
    if media.partition(";")[0] == wire.PROBLEM_TYPE:
        return wire.from_problem(wire.decode(body, wire.Problem, "the server's refusal"))
    return ProtocolError(f"the server answered with HTTP status {status}")
