"""Bytes of files from storage nodes: the receiver says which have one, and gives tickets for them.

Where it stands is asked for once a file and remembered for a while. A node that gives nothing is
left alone for a minute, and so is one that gave other bytes than it should: whoever reads a file
goes on to the next node, and then to the next tier.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from common.errors import ForbiddenError, NotFoundError, TsferryError, UnauthorizedError
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.tablet_copies.read_tickets import READ_TICKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.storage.reading.receiver_reads import ReceiverReads
    from receiver.tablet_copies.copies_wire import FilePlace

__all__ = ["CONTENT_OF_NODE", "CopyReads"]

CONTENT_OF_NODE: Final = "/node/v1/content"
_FRESH: Final = 120.0
"""Seconds for which an answer counts: tickets last longer."""
_SOON: Final = 10.0
"""Seconds until it is asked again for a file that no node has yet."""
_SHUT: Final = 60.0
_MOST: Final = 10_000
"""Files that are remembered; then it begins anew."""


class _Known(NamedTuple):
    until: float
    places: tuple[FilePlace, ...]


class CopyReads:
    """Reads of the nodes of one receiver; any thread may call."""

    def __init__(
        self,
        receiver: ReceiverReads,
        ca_cert: str | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nothing yet.

        Args:
            receiver: says where files are.
            ca_cert: PEM file that the nodes are checked against.
            monotonic: seconds.
        """
        self._receiver = receiver
        self._ca_cert = ca_cert
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._shut: dict[tuple[str, str], float] = {}
        self._none_until = 0.0
        self._calls: dict[str, ReaderCalls] = {}

    def read(self, physical: str, begin: int, length: int) -> tuple[str, bytes] | None:
        """So many bytes of a file, and the node that gave them; None where no node does."""
        for asked in (False, True):
            places = self._places(physical, anew=asked)
            refused = False
            for place in places:
                try:
                    return place.url, self._read_of(place, physical, begin, length)
                except (ForbiddenError, UnauthorizedError):  # a ticket that is too old
                    refused = True
                except NotFoundError:
                    self.distrust(place.url, physical)
                except (TsferryError, OSError):
                    self._shut_until(place.url, "")
            if not refused:
                return None
        return None

    def distrust(self, url: str, physical: str) -> None:
        """A node gave other bytes than the file has, or none of it."""
        self._shut_until(url, physical)

    def close(self) -> None:
        """Let go of connections."""
        with self._lock:
            for each in self._calls.values():
                each.close()
            self._calls.clear()

    def _shut_until(self, url: str, physical: str) -> None:
        with self._lock:
            if len(self._shut) >= _MOST:
                self._shut.clear()
            self._shut[url, physical] = self._monotonic() + _SHUT

    def _places(self, physical: str, *, anew: bool) -> list[FilePlace]:
        now = self._monotonic()
        with self._lock:
            known = self._known.get(physical)
            if now < self._none_until:
                return []
        if known is None or anew or known.until <= now:
            places = self._asked(physical)
            if places is None:
                return []
            known = _Known(now + (_FRESH if places else _SOON), places)
            with self._lock:
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[physical] = known
        with self._lock:
            return [
                each
                for each in known.places
                if all(self._shut.get((each.url, name), 0.0) <= now for name in ("", physical))
            ]

    def _asked(self, physical: str) -> tuple[FilePlace, ...] | None:
        """Nodes that give a file; None where there are no nodes at all."""
        try:
            found = self._receiver.where(physical)
        except (TsferryError, OSError):
            found = None  # an older receiver, say; other tiers tell of what is wrong
        if found is None or not found.nodes:
            with self._lock:
                self._none_until = self._monotonic() + _SHUT
            return None
        return tuple(found.places)

    def _read_of(self, place: FilePlace, physical: str, begin: int, length: int) -> bytes:
        got: list[bytes] = []
        while length:
            query: dict[str, str | int | None] = {
                "tablet": place.tablet,
                "path": physical,
                "begin": begin,
                "length": length,
            }
            piece = self._of(place.url).get(CONTENT_OF_NODE, query, {READ_TICKET: place.ticket})
            if not 0 < len(piece) <= length:
                raise NotFoundError(f"{place.url}: {len(piece)} bytes of {length} of {physical}")
            got.append(piece)
            begin, length = begin + len(piece), length - len(piece)
        return got[0] if len(got) == 1 else b"".join(got)

    def _of(self, url: str) -> ReaderCalls:
        with self._lock:
            if url not in self._calls:
                # The ticket is all that a node is to see.
                self._calls[url] = ReaderCalls(
                    url, token=None, ca_cert=self._ca_cert, what="the node's URL"
                )
            return self._calls[url]
