"""Questions to a running Apache IoTDB, over its REST service (`enable_rest_service`).

`POST /rest/v1/query` takes a statement and gives columns; it is the same from 0.13 to 2.0, but for
the names of its members. The session protocol would need its client, with thrift, numpy and pandas:
160 MB on a disk for what `requests` does, which is here anyway.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
import requests

import common
from common.config import is_loopback
from common.console.terminal import printable
from common.decoders import from_json
from common.errors import (
    ConfigError,
    Permanent,
    ProtocolError,
    StoppedError,
    UnauthorizedError,
    UnreachableError,
)
from common.network.timed_http import timed_session

if TYPE_CHECKING:
    from sender.config import SchemaConfig

__all__ = ["DatabaseServer", "ServerRow", "StatementError"]

PAGE: Final = 5000
"""Rows of a question: half of what the service gives by default (rest_query_default_row_size_limit)
before it gives an error instead."""
_MAX_ANSWER: Final = 64 << 20
_SHOWN: Final = 200
_CONNECT_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 60.0
_LONGEST_SECONDS: Final = 900.0
"""All questions of a round: files wait for them."""
_WRONG_LOGIN: Final = frozenset({600, 801, 802, 822})

ServerRow = dict[str, Any]
"""Value by the name of its column, in lower case and without blanks."""


class StatementError(Permanent):
    """The database does not know a statement, or refuses it."""

    slug = "statement-refused"


class DatabaseServer:
    """One server, for one round."""

    def __init__(
        self,
        config: SchemaConfig,
        stop: threading.Event,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is asked yet.

        Args:
            config: with the address of the server.
            stop: set when the process is to end.
            clock: seconds, from any begin.

        Raises:
            ConfigError: the password would travel in clear.
        """
        assert config.server is not None
        self.url = config.server
        parts = urlsplit(self.url)
        if parts.scheme == "http" and not (config.insecure or is_loopback(parts.hostname or "")):
            raise ConfigError(
                f"{self.url}: plain HTTP to another machine; use https:// or schema.insecure = true"
            )
        password = "root" if config.password is None else config.password.reveal()
        login = base64.b64encode(f"{config.user}:{password}".encode()).decode()
        self._headers = {
            "User-Agent": f"tsferry-sender/{common.__version__}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "Authorization": f"Basic {login}",
        }
        self._verify: str | bool = True if config.ca_file is None else str(config.ca_file)
        self._stop = stop
        self._clock = clock
        self._end = clock() + _LONGEST_SECONDS
        self._session = timed_session()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def rows(self, statement: str) -> Iterator[ServerRow]:
        """The rows of an answer that has not more than a page.

        Raises:
            StatementError: the database does not carry it out.
            UnauthorizedError: user or password are wrong.
            UnreachableError: it does not answer, or not in time.
            ProtocolError: what answers is not its REST service.
            StoppedError: the process is to end.
        """
        if self._stop.is_set():
            raise StoppedError("told to stop")
        if self._clock() > self._end:
            raise UnreachableError(f"{self.url}: it takes too long; the next round asks again")
        answer = _decoded(self._posted(statement), self.url)
        names, columns = _columns(answer, statement, self.url)
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))

    def pages(self, statement: str) -> Iterator[ServerRow]:
        """All rows of an answer of any length; as `rows`."""
        offset = 0
        while True:
            count = 0
            for row in self.rows(f"{statement} limit {PAGE} offset {offset}"):
                count += 1
                yield row
            offset += count
            if count < PAGE:
                return

    def _posted(self, statement: str) -> bytes:
        try:
            with self._session.post(
                f"{self.url}/rest/v1/query",
                data=msgspec.json.encode({"sql": statement}),
                headers=self._headers,
                timeout=(_CONNECT_SECONDS, _ANSWER_SECONDS),
                verify=self._verify,
                allow_redirects=False,
                stream=True,
            ) as response:
                content = bytearray()
                end = self._clock() + 2 * _ANSWER_SECONDS
                for piece in response.iter_content(1 << 16):
                    content += piece
                    if len(content) > _MAX_ANSWER or self._clock() > end:
                        raise ProtocolError(f"{self.url}: the answer does not come to its end")
        except (requests.RequestException, OSError) as error:
            why = printable(str(error))[:_SHOWN]
            raise UnreachableError(f"{self.url} does not answer: {why}") from error
        if response.status_code in (401, 403):
            raise UnauthorizedError(f"{self.url}: user or password are not taken")
        if response.status_code != 200:
            raise ProtocolError(
                f"{self.url}: status {response.status_code}; is it the REST service of a database "
                "(enable_rest_service, rest_service_port)?"
            )
        return bytes(content)


def _decoded(content: bytes, url: str) -> dict[str, Any]:
    try:
        return from_json(content, dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{url}: the answer is not that of a database") from error


def _columns(answer: dict[str, Any], statement: str, url: str) -> tuple[list[str], list[list[Any]]]:
    names = answer.get("column_names", answer.get("columnNames"))
    columns = answer.get("values")
    if names is None and isinstance(answer.get("code"), int):
        message = printable(str(answer.get("message")))[:_SHOWN]
        if answer["code"] in _WRONG_LOGIN:
            raise UnauthorizedError(f"{url}: {message}")
        raise StatementError(f"{url}: `{statement}`: {message} (code {answer['code']})")
    if (
        not isinstance(names, list)
        or not isinstance(columns, list)
        or not all(isinstance(each, str) for each in names)
        or not all(isinstance(each, list) for each in columns)
        or len({len(each) for each in columns}) > 1
        or (columns and len(columns) != len(names))
    ):
        raise ProtocolError(f"{url}: the answer is not that of a database")
    short = [each.lower().replace(" ", "") for each in names]
    return short, columns or [[] for _ in names]
