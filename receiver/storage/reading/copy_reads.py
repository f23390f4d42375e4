"""Bytes of files from storage nodes: the receiver says which have one, and gives tickets for them.

Behind those that have a copy comes the one that keeps the file of the object store, if there is
one: it reads there what it has not, so that of all who read here one comes to the store.

Where it stands is asked for once a file and remembered for a while. A node that gives nothing is
left alone for a minute, and so is one that gave other bytes than it should: whoever reads a file
goes on to the next node, and then to the next tier.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from common.errors import ForbiddenError, NotFoundError, TsferryError, UnauthorizedError
from common.text_numbers import whole_number
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.tablet_copies.cached_files import CACHED_AT_NODE, SLOTS_HEADER
from receiver.tablet_copies.read_tickets import READ_TICKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.storage.reading.receiver_reads import ReceiverReads
    from receiver.tablet_copies.copies_wire import CachePlace, FilePlace, FilePlaces

__all__ = ["CONTENT_OF_NODE", "DOUBT_COPY", "CopyReads", "tell_doubt"]

log = logging.getLogger(__name__)

CONTENT_OF_NODE: Final = "/node/v1/content"
DOUBT_COPY: Final = "/node/v1/content/doubted"
_FRESH: Final = 120.0
"""Seconds for which an answer counts: tickets last longer."""
_SOON: Final = 10.0
"""Seconds until it is asked again for a file that no node has yet."""
_SHUT: Final = 60.0
_OF_A_NODE: Final = (3.0, 20.0)
"""Seconds to connect and to answer: other tiers give what a node that hangs does not."""
_MOST: Final = 10_000
"""Files that are remembered; then it begins anew."""


class _Known(NamedTuple):
    until: float
    places: tuple[FilePlace, ...]
    cache: CachePlace | None


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

        def of_copy(place: FilePlace) -> bytes:
            return self._read_of(place, physical, begin, length)

        def of_cache(place: CachePlace) -> bytes:
            return self._read_cached(place, physical, begin, length)

        return self._first(physical, of_copy, of_cache)

    def digests(self, physical: str) -> bytes | None:
        """Packed digests of the blocks of a file, of the node that keeps it; None for none."""
        found = self._first(physical, None, lambda place: self._read_cached(place, physical, 0, 0))
        return None if found is None else found[1]

    def _first(
        self,
        physical: str,
        of_copy: Callable[[FilePlace], bytes] | None,
        of_cache: Callable[[CachePlace], bytes],
    ) -> tuple[str, bytes] | None:
        """What the first node gives that gives something."""
        for asked in (False, True):
            known = self._places(physical, anew=asked)
            if known is None:
                return None
            calls: list[tuple[str, Callable[[], bytes]]] = []
            if of_copy is not None:
                calls += [(each.url, partial(of_copy, each)) for each in known.places]
            if known.cache is not None:
                calls.append((known.cache.url, partial(of_cache, known.cache)))
            refused = False
            for url, call in calls:
                if self._is_shut(url, physical):
                    continue
                try:
                    return url, call()
                except (ForbiddenError, UnauthorizedError):  # a ticket that is too old
                    refused = True
                except NotFoundError:
                    self._shut_until(url, physical)
                except (TsferryError, OSError):
                    self._shut_until(url, "")
            if not refused:
                return None
        return None

    def distrust(self, url: str, physical: str) -> None:
        """A node gave other bytes than the file has: it is told so, and reads its copy."""
        self._shut_until(url, physical)
        with self._lock:
            known = self._known.get(physical)
        for place in () if known is None else known.places:
            if place.url == url:
                tell_doubt(self._of(url), place, physical)

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

    def _is_shut(self, url: str, physical: str) -> bool:
        now = self._monotonic()
        with self._lock:
            return any(self._shut.get((url, name), 0.0) > now for name in ("", physical))

    def _places(self, physical: str, *, anew: bool) -> _Known | None:
        now = self._monotonic()
        with self._lock:
            known = self._known.get(physical)
            if now < self._none_until:
                return None
        if known is not None and not anew and known.until > now:
            return known
        found = self._asked(physical)
        if found is None:
            return None
        is_there = bool(found.places) or found.cache is not None
        known = _Known(now + (_FRESH if is_there else _SOON), tuple(found.places), found.cache)
        with self._lock:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[physical] = known
        return known

    def _asked(self, physical: str) -> FilePlaces | None:
        """Nodes that give a file; None where there are no nodes at all."""
        try:
            found = self._receiver.where(physical)
        except (TsferryError, OSError):
            found = None  # an older receiver, say; other tiers tell of what is wrong
        if found is None or not found.nodes:
            with self._lock:
                self._none_until = self._monotonic() + _SHUT
            return None
        return found

    def _read_cached(self, place: CachePlace, physical: str, begin: int, length: int) -> bytes:
        """Of what a node keeps; with length 0 the digests."""
        got: list[bytes] = []
        while length or not got:
            query: dict[str, str | int | None] = {"begin": begin, "length": length}
            answer = self._of(place.url).ask(
                "GET", CACHED_AT_NODE, query, {READ_TICKET: place.ticket}
            )
            said = whole_number(answer.headers.get(SLOTS_HEADER, ""))
            if said is not None and said > place.version:
                with self._lock:  # the slots have moved: it is asked anew whose this one is now
                    self._known.pop(physical, None)
            got.append(answer.body)
            if not length:
                break
            if not 0 < len(answer.body) <= length:
                raise NotFoundError(f"{place.url}: {len(answer.body)} bytes of {length}")
            begin, length = begin + len(answer.body), length - len(answer.body)
        return got[0] if len(got) == 1 else b"".join(got)

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
                    url,
                    token=None,
                    ca_cert=self._ca_cert,
                    what="the node's URL",
                    timeout=_OF_A_NODE,
                )
            return self._calls[url]


def tell_doubt(calls: ReaderCalls, place: FilePlace, physical: str) -> None:
    """Tell a node that it gave other bytes than a file has, by the ticket for reading it.

    The node reads its copy from the disk and goes by that, so nothing is destroyed on this word.
    """
    query: dict[str, str | int | None] = {"tablet": place.tablet, "path": physical}
    try:
        calls.ask("POST", DOUBT_COPY, query, {READ_TICKET: place.ticket})
    except (TsferryError, OSError) as error:  # an earlier release: its next round finds it
        told = {"file": physical, "node": place.url, "error": str(error)}
        log.info("a node does not hear that its copy is doubted", extra=told)
