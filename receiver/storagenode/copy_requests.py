"""What a node asks about its copies, over HTTP: the master, and other nodes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeAlias

from common import wire
from receiver.storage.reading.copy_reads import CONTENT_OF_NODE, tell_doubt
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.tablet_copies.copies_wire import (
    CopyNews,
    CopyPage,
    FilePlace,
    GoneSaid,
    HeldCopies,
)
from receiver.tablet_copies.read_tickets import READ_TICKET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from common.network.client_certificate import ClientCertificate
    from receiver.heartbeats.node_wire import NodeStart
    from receiver.tablet_copies.copies_wire import CopySource, GoneAsked, HeldCopy

__all__ = ["COPIES", "CopyRequests"]

COPIES: Final = "/v1/copies"
_OF_A_NODE: Final = (3.0, 20.0)
"""Seconds to connect and to answer: the master gives what a node that hangs does not."""
_OF_A_MASTER: Final = (5.0, 20.0)
"""The same of a master: another one may have taken its place."""
_Query: TypeAlias = "Mapping[str, str | int | None]"


class CopyRequests:
    """See `receiver.tablet_copies.copy_puller.CopyCalls`; any thread may call."""

    def __init__(
        self,
        masters: Sequence[str],
        start: Callable[[], NodeStart],
        *,
        token: str | None,
        ca_cert: str | None,
        certificate: ClientCertificate | None = None,
    ) -> None:
        """Ask nothing yet.

        Args:
            masters: addresses of those that may be the master, one at least.
            start: which start of which node asks.
            token: of the role node.
            ca_cert: PEM file that all are checked against.
            certificate: that all are shown.

        Raises:
            UsageError: the token would travel where others can read it.
        """
        self._start = start
        self._ca_cert, self._certificate = ca_cert, certificate
        self._master = ReaderCalls(
            ",".join(masters),
            token=token,
            ca_cert=ca_cert,
            certificate=certificate,
            what="node.master",
            timeout=_OF_A_MASTER,
        )
        self._lock = threading.Lock()
        self._nodes: dict[str, ReaderCalls] = {}

    def news(self, after: int) -> CopyNews:
        """See `CopyCalls`."""
        return wire.decode(self._get(COPIES, {"after": after}), CopyNews, "the master's news")

    def page(self, tablet: str, after: str | None, digest: str, since: int) -> CopyPage:
        """See `CopyCalls`."""
        query: _Query = {"after": after, "digest": digest or None, "since": since or None}
        got = self._get(f"{COPIES}/{tablet}/files", query)
        return wire.decode(got, CopyPage, "the master's list")

    def gone(self, tablet: str, asked: GoneAsked) -> GoneSaid:
        """See `CopyCalls`."""
        got = self._ask("POST", f"{COPIES}/{tablet}/gone", {}, wire.encode(asked))
        return wire.decode(got, GoneSaid, "the master's word")

    def held(self, copies: Sequence[HeldCopy]) -> None:
        """See `CopyCalls`."""
        said = HeldCopies(start=self._start(), copies=list(copies))
        self._ask("POST", f"{COPIES}/held", {}, wire.encode(said))

    def content(self, physical: str, begin: int, length: int) -> bytes:
        """See `CopyCalls`."""
        query: _Query = {"path": physical, "begin": begin, "length": length}
        return self._get(f"{COPIES}/content", query)

    def content_of(
        self, source: CopySource, tablet: str, physical: str, begin: int, length: int
    ) -> bytes:
        """See `CopyCalls`."""
        query: _Query = {"tablet": tablet, "path": physical, "begin": begin, "length": length}
        return self._of(source.url).get(CONTENT_OF_NODE, query, {READ_TICKET: source.ticket})

    def doubt(self, source: CopySource, tablet: str, physical: str) -> None:
        """See `CopyCalls`."""
        place = FilePlace(url=source.url, ticket=source.ticket, tablet=tablet)
        tell_doubt(self._of(source.url), place, physical)

    def close(self) -> None:
        """Let go of connections."""
        with self._lock:
            for each in (self._master, *self._nodes.values()):
                each.close()
            self._nodes.clear()

    def _of(self, url: str) -> ReaderCalls:
        with self._lock:
            if url not in self._nodes:
                # No token: the ticket is all that another node is to see.
                self._nodes[url] = ReaderCalls(
                    url,
                    token=None,
                    ca_cert=self._ca_cert,
                    certificate=self._certificate,
                    what="the node's URL",
                    timeout=_OF_A_NODE,
                )
            return self._nodes[url]

    def _get(self, path: str, query: _Query) -> bytes:
        return self._ask("GET", path, query)

    def _ask(self, method: str, path: str, query: _Query, body: bytes = b"") -> bytes:
        query = {**query, "node": self._start().uuid}
        headers = {"Content-Type": "application/json"} if body else {}
        return self._master.ask(method, path, query, headers, body).body
