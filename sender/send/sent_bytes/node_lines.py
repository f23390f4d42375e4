"""Lines to the storage nodes that a receiver names, and which of them are of no use from here.

A node is told the uuid of this sender and its ticket, and never a token. It is reached as the
receiver is: by TLS where the receiver is, and not in clear unless that is so as well; else a
receiver could have an edge speak to whatever listens around it.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from common import wire
from common.console.terminal import printable
from common.errors import ConfigError, TsferryError
from common.network.bandwidth import Bandwidth
from sender.send.calls import Client
from sender.send.connection.body_compression import BodyCompression
from sender.send.connection.transport import Endpoint

__all__ = ["NodeLines"]

_log = logging.getLogger(__name__)

_URL = re.compile(r"https?://[^/?#@\s]{1,300}\Z")
_SHUT = 600.0
"""Seconds for which a node that failed is left alone."""
_CONNECT = 5.0
"""Seconds that a node has to take a connection: without it the receiver takes the bytes."""
_MOST = 1000


class NodeLines:
    """The nodes of one receiver; threads may share it."""

    def __init__(
        self,
        like: Endpoint,
        bandwidth: Bandwidth,
        compression: Callable[[], BodyCompression],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Contact nobody yet.

        Args:
            like: how the receiver is reached, with the authorities for nodes; without a token.
            bandwidth: of the line.
            compression: makes what compresses the bodies for one node.
            monotonic: seconds.
        """
        self._like = msgspec.structs.replace(
            like, token=None, connect_timeout=min(like.connect_timeout, _CONNECT)
        )
        self._bandwidth = bandwidth
        self._compression = compression
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._clients: dict[str, Client] = {}
        self._shut: dict[str, float] = {}
        self.encodings: Iterable[str] = ()

    def client(self, node: wire.UploadNode) -> Client:
        """Calls to a node, with its ticket.

        Raises:
            ConfigError: its address is none that is used from here.
        """
        if not _URL.match(node.url):
            raise ConfigError(f"{printable(node.url[:200])}: is no address of a storage node")
        if node.url.startswith("http:") and self._like.url.startswith("https:"):
            raise ConfigError(
                f"{node.url}: plain HTTP; the receiver is reached by https, and so are its nodes"
            )
        with self._lock:
            known = self._clients.get(node.url)
            if known is None:
                if len(self._clients) >= _MOST:
                    self._clients.clear()
                compression = self._compression()
                compression.offered(self.encodings)
                known = self._clients[node.url] = Client(
                    msgspec.structs.replace(self._like, url=node.url),
                    bandwidth=self._bandwidth,
                    compression=compression,
                )
        return known.with_ticket(node.ticket)

    def avoided(self) -> list[str]:
        """Those that are left alone for now, by their uuids."""
        now = self._monotonic()
        with self._lock:
            self._shut = {each: until for each, until in self._shut.items() if until > now}
            return sorted(self._shut)

    def failed(self, node: wire.UploadNode, error: TsferryError) -> None:
        """A node was of no use: it is left alone for a while."""
        _log.warning(
            "storage node %s is left alone for %d minutes: %s",
            printable(node.url[:200]),
            _SHUT // 60,
            error.message,
        )
        with self._lock:
            if len(self._shut) < _MOST:
                self._shut[node.uuid] = self._monotonic() + _SHUT

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            clients = [*self._clients.values()]
        for each in clients:
            each.close()
