"""Calls of the master to its nodes: about replicas, and what edges sent there is read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

from common import wire
from receiver.tablet_copies.copies_wire import (
    CopyOrders,
    DropOrders,
    FilePlace,
    ProofAsked,
    ProofGiven,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.placement.placeable_nodes import PlaceableNode
    from receiver.storage.reading.reader_calls import ReaderCalls

__all__ = [
    "DROP_TABLETS",
    "KEPT_FILES",
    "MAKE_TABLETS",
    "PROVE_FILE",
    "STAGED_AT_NODE",
    "WITHIN",
    "GivesOrders",
    "NodeOrders",
]

MAKE_TABLETS: Final = "/node/v1/tablets"
DROP_TABLETS: Final = "/node/v1/tablets/drop"
PROVE_FILE: Final = "/node/v1/tablets/proof"
KEPT_FILES: Final = "/node/v1/tablets/files"
STAGED_AT_NODE: Final = "/node/v1/staged"
_TIMEOUT: Final = (3.0, 15.0)
"""Seconds to connect and to answer: a pass waits for all that it asks."""
WITHIN: Final = 60.0
"""Seconds that an answer of a node may take in all: one that trickles keeps no thread for good."""


class GivesOrders(Protocol):
    """Says to a node what it is to have; raises errors of the common tree."""

    def make(self, node: PlaceableNode, orders: CopyOrders) -> None:
        """It is to have replicas."""

    def drop(self, node: PlaceableNode, orders: DropOrders) -> None:
        """It is not to have replicas."""


class NodeOrders:
    """By HTTP, with the key that the node has told at its registration; any thread may call."""

    def __init__(
        self, ca_cert: str | None = None, ticket: Callable[[str, str], str | None] = lambda *_: None
    ) -> None:
        """Call nobody yet.

        Args:
            ca_cert: PEM file that nodes are checked against.
            ticket: for a node and a tablet; None where the node cannot read one.
        """
        self._ca_cert, self._ticket = ca_cert, ticket
        self._lock = threading.Lock()
        self._calls: dict[str, tuple[str, str, ReaderCalls]] = {}

    def make(self, node: PlaceableNode, orders: CopyOrders) -> None:
        """See `GivesOrders`."""
        self._of(node).post(MAKE_TABLETS, {}, wire.encode(orders))

    def drop(self, node: PlaceableNode, orders: DropOrders) -> None:
        """See `GivesOrders`."""
        self._of(node).post(DROP_TABLETS, {}, wire.encode(orders))

    def proof(self, node: PlaceableNode, asked: ProofAsked) -> str:
        """See `AsksForProofs`."""
        said = self._of(node).post(PROVE_FILE, {}, wire.encode(asked))
        return wire.decode(said.body, ProofGiven, "a node's proof").digest

    def doubt(self, node: PlaceableNode, tablet: str, physical: str) -> None:
        """See `AsksForProofs`."""
        from receiver.storage.reading.copy_reads import tell_doubt

        ticket = self._ticket(node.uuid, tablet)
        if ticket is not None:
            place = FilePlace(url=node.url, ticket=ticket, tablet=tablet)
            tell_doubt(self._of(node), place, physical)

    def staged(self, node: PlaceableNode, upload: str, begin: int, length: int) -> bytes:
        """Bytes of an upload of an edge, `length` at most; none where no more are there yet."""
        query: dict[str, str | int | None] = {"upload": upload, "begin": begin, "length": length}
        return self._of(node).get(STAGED_AT_NODE, query)

    def _of(self, node: PlaceableNode) -> ReaderCalls:
        from receiver.storage.reading.reader_calls import ReaderCalls

        with self._lock:
            known = self._calls.get(node.uuid)
            if known is not None and known[:2] == (node.url, node.call_key):
                return known[2]
            if known is not None:
                known[2].close()
            calls = ReaderCalls(
                node.url,
                token=node.call_key,
                ca_cert=self._ca_cert,
                what="the node's URL",
                timeout=_TIMEOUT,
                within=WITHIN,
            )
            self._calls[node.uuid] = (node.url, node.call_key, calls)
            return calls

    def close(self) -> None:
        """Let go of connections."""
        with self._lock:
            for _, _, calls in self._calls.values():
                calls.close()
            self._calls.clear()
