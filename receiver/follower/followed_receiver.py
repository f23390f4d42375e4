"""A running receiver, or a node, as a source to follow: its log, with an operator's token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from common import wire
from common.errors import ConfigError, DamagedError, ProtocolError, UsageError
from receiver.follower.log_source import (
    FetchedBlock,
    LogSource,
    SourceCheckpoint,
    SourceLog,
    SourceSegment,
)
from receiver.operator.views.log_file_views import LogFilesView
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.storage.reading.several_addresses import Failover, addresses_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from common.network.client_certificate import ClientCertificate

__all__ = ["FollowedReceiver"]

_TIMEOUT: Final = (5.0, 30.0)
"""Seconds to connect, and between two pieces of an answer, until it counts as away."""
_WITHIN: Final = 600.0
"""The same for a whole block of the log, over a line that is slow."""


class FollowedReceiver(LogSource):
    """See `LogSource`. Of several, whichever leads says where the log is, and gives that itself."""

    waits = True

    def __init__(
        self,
        url: str,
        token: str | None,
        ca_cert: Path | None,
        certificate: ClientCertificate | None = None,
    ) -> None:
        """Prepare; nobody is spoken to yet.

        Args:
            url: of the receiver.
            token: of an operator.
            ca_cert: PEM file that it is checked against.
            certificate: that it is shown, in the place of the token.

        Raises:
            ConfigError: there is neither, or the token would travel where others can read it.
        """
        for each in addresses_in(url):
            parts = urlsplit(each)
            if parts.username or parts.password or parts.query or parts.fragment:
                raise ConfigError(
                    "follow.url: expected an address alone; the token has a key of its own"
                )
        if token is None and certificate is None:
            raise ConfigError(
                "follow.token: missing: a receiver is followed with an operator token, or "
                "follow.client_cert"
            )
        authorities = None if ca_cert is None else str(ca_cert)
        try:
            self._several = [
                ReaderCalls(
                    each,
                    token=token,
                    ca_cert=authorities,
                    certificate=certificate,
                    what="follow.url",
                    timeout=_TIMEOUT,
                    within=_WITHIN,
                )
                for each in addresses_in(url)
            ]
        except UsageError as error:
            raise ConfigError(error.message) from error
        self._leads = Failover(self._several)
        self.url = self._leads.current.url

    def look(self, *, lsn: int = 0, ts: int = 0, wait: float = 0.0) -> SourceLog:
        """See `LogSource`."""
        query: dict[str, str | int | None] = {"lsn": lsn, "ts": ts, "wait": f"{wait:g}"}

        def of(calls: ReaderCalls, soon: float | None) -> bytes:
            return calls.get("/v1/log", query, soon=None if soon is None else soon + wait)

        body = self._leads.ask_soon(of)
        self.url = self._leads.current.url
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
        """See `LogSource`; frames, sections and entries have checks of their own.

        Only the one is asked that said what there is: another one may have cut its log otherwise.
        """
        calls, at = self._leads.current, begin
        while at < end:
            block = calls.get(f"/v1/log/{name}", {"begin": at})[: end - at]
            if not block:
                raise DamagedError(f"{self.url}: {name} ends at {at}, {end} was said")
            at += len(block)
            yield FetchedBlock(block, at)

    def close(self) -> None:
        """See `LogSource`."""
        for each in self._several:
            each.close()
