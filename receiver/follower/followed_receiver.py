"""A running receiver, or a node, as a source to follow: its log, with an operator's token."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import requests
import urllib3

from common import wire
from common.config import is_loopback
from common.errors import ConfigError, DamagedError, ProtocolError, UnreachableError
from receiver.follower.log_source import (
    FetchedBlock,
    LogSource,
    SourceCheckpoint,
    SourceLog,
    SourceSegment,
)
from receiver.operator.log_file_views import LogFilesView

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["FollowedReceiver"]

_CONNECT, _ANSWER = 5.0, 30.0
"""Seconds, until it counts as away."""
_MOST = 1 << 26


class FollowedReceiver(LogSource):
    """See `LogSource`."""

    waits = True

    def __init__(self, url: str, token: str | None, ca_cert: Path | None) -> None:
        """Prepare; nobody is spoken to yet.

        Raises:
            ConfigError: there is no token, or it would travel where others can read it.
        """
        parts = urlsplit(url)
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigError(
                "follow.url: expected an address alone; the token has a key of its own"
            )
        if token is None:
            raise ConfigError(
                "follow.token: missing: a receiver is followed with an operator token"
            )
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise ConfigError(
                f"follow.url = {url!r}: expected https, since others can read a token on http"
            )
        self.url = url.rstrip("/")
        self._session = requests.Session()
        self._session.trust_env = False  # no .netrc, no proxy: the token is for this server alone
        self._session.headers["Authorization"] = f"Bearer {token}"
        if ca_cert is not None:
            self._session.verify = str(ca_cert)

    def look(self, *, lsn: int = 0, ts: int = 0, wait: float = 0.0) -> SourceLog:
        """See `LogSource`."""
        body = self._get("/v1/log", {"lsn": lsn, "ts": ts, "wait": wait})
        view = wire.decode(body, LogFilesView, f"answer of {self.url}")
        if not view.segments:
            raise ProtocolError(f"{self.url} says of no log")
        return SourceLog(
            engine=view.engine,
            incarnation=view.incarnation,
            lsn=view.lsn,
            ts=view.ts,
            checkpoints=tuple(SourceCheckpoint(each.lsn, each.size) for each in view.checkpoints),
            segments=tuple(
                SourceSegment(each.first_lsn, each.next_lsn, each.size) for each in view.segments
            ),
            tags_end=view.tags_end,
            goes_on=view.goes_on,
            taken_by=view.incarnation,
            origin=view.origin,
        )

    def read(self, found: SourceLog, name: str, begin: int, end: int) -> Iterator[FetchedBlock]:
        """See `LogSource`; frames, sections and entries have checks of their own."""
        at = begin
        while at < end:
            block = self._get(f"/v1/log/{name}", {"begin": at})[: end - at]
            if not block:
                raise DamagedError(f"{self.url}: {name} ends at {at}, {end} was said")
            at += len(block)
            yield FetchedBlock(block, at)

    def close(self) -> None:
        """See `LogSource`."""
        self._session.close()

    def _get(self, what: str, query: Mapping[str, float]) -> bytes:
        url = self.url + what
        try:
            with self._session.get(
                url,
                params=query,
                timeout=(_CONNECT, _ANSWER),
                allow_redirects=False,
                stream=True,
            ) as answer:
                body: bytes = answer.raw.read(_MOST, decode_content=True)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError(f"{url} does not answer: {error}") from error
        media = answer.headers.get("Content-Type", "").partition(";")[0]
        if answer.status_code >= 300:
            if media == wire.PROBLEM_TYPE:
                raise wire.from_problem(wire.decode(body, wire.Problem, "the server's refusal"))
            raise ProtocolError(f"{url} answered with HTTP status {answer.status_code}")
        return body
