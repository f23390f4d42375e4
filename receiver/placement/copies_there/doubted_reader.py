"""Reads what is doubted at nodes that say that they have it, so that it counts again.

A node that has read its own copy, found it rotten and pulled a whole one counts by its bytes.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from common.digests import md5
from common.durable import Closing
from common.errors import TsferryError, UnreachableError
from common.threads import PeriodicThread
from receiver.placement.node_orders import WITHIN
from receiver.tablet_copies.copies_wire import FilePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.place_tables.doubted import DoubtedCopyRow
    from receiver.placement.copies_there.doubted_copies import DoubtedCopies
    from receiver.placement.copies_there.held_copies import HeldCopiesBook
    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["DoubtedReader"]

log = logging.getLogger(__name__)

_EVERY: Final = 10.0
"""Seconds between two looks at what is doubted."""
_AGAIN: Final = 600.0
"""Seconds until a copy that had other bytes once more is read again: it may be a large one."""
_RANGE: Final = 8 << 20


class DoubtedReader(Closing):
    """Reads what is doubted, in a thread of its own once it is started."""

    def __init__(
        self,
        engine: Engine,
        doubts: DoubtedCopies,
        book: HeldCopiesBook,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        ticket: Callable[[str, str], str | None],
        ca_cert: str | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            engine: of the master.
            doubts: what is doubted.
            book: of what nodes have.
            nodes: as they are now, by uuid.
            ticket: for a node and a tablet; None where the node cannot read one.
            ca_cert: PEM file that nodes are checked against.
            monotonic: seconds that nobody sets.
        """
        self._engine = engine
        self._doubts = doubts
        self._book = book
        self._nodes = nodes
        self._ticket = ticket
        self._ca_cert = ca_cert
        self._monotonic = monotonic
        self._read: dict[tuple[str, str], tuple[float, int]] = {}
        self._silent: set[str] = set()
        """Urls of nodes that did not answer in this pass: what others have does not wait for them
        once more."""
        self._thread = PeriodicThread(
            "doubted",
            self._pass,
            log,
            "doubted copies are not read now",
            first=_EVERY,
            retry=_EVERY,
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End behind the range that is under way."""
        self._thread.close()

    def _pass(self) -> float:
        self.run_once()
        return _EVERY

    def run_once(self) -> int:
        """Read what it is time for; how many copies count again."""
        self._doubts.say()
        with self._engine.reading() as state:
            rows = list(state.doubted_table.rows.values())
        keys = {(row.node, row.physical) for row in rows}
        self._read = {key: at for key, at in self._read.items() if key in keys}
        self._silent.clear()
        return sum(self._look(row) for row in rows if not self._thread.stopping.is_set())

    def _look(self, row: DoubtedCopyRow) -> bool:
        node = self._nodes().get(row.node)
        losses = self._book.losses(row.node, row.tablet)
        at, before = self._read.get((row.node, row.physical), (-_AGAIN, losses))
        # One that has said meanwhile that it lost something may have replaced it.
        is_due = before != losses or self._monotonic() - at >= _AGAIN
        if node is None or not node.counts or not node.url or not is_due:
            return False
        if node.url in self._silent:
            return False
        with self._engine.reading() as state:
            file = state.files.get(row.physical)
            placed = state.placement_table.rows.get(row.tablet)
        generation = 0 if placed is None else placed.generation
        ticket = self._ticket(row.node, row.tablet)
        if file is None or ticket is None:
            return False
        if not self._book.commit(row.node, row.tablet, generation):
            return False  # it does not say that it has it
        self._read[row.node, row.physical] = self._monotonic(), losses
        place = FilePlace(url=node.url, ticket=ticket, tablet=row.tablet)
        if not self._is_right(place, file):
            return False
        self._doubts.trust(row.node, row.physical)
        log.info("a copy counts again", extra={"node": row.node, "file": row.physical})
        return True

    def _is_right(self, place: FilePlace, file: FileRow) -> bool:
        """Whether a node gives the bytes of a file; it is told if it gives others."""
        from receiver.storage.reading.copy_reads import CONTENT_OF_NODE, tell_doubt
        from receiver.storage.reading.reader_calls import ReaderCalls
        from receiver.tablet_copies.read_tickets import READ_TICKET

        calls = ReaderCalls(
            place.url, token=None, ca_cert=self._ca_cert, what="the node's URL", within=WITHIN
        )
        found, at = md5(), 0
        try:
            while at < file.size and not self._thread.stopping.is_set():
                length = min(_RANGE, file.size - at)
                query: dict[str, str | int | None] = {
                    "tablet": place.tablet,
                    "path": file.physical,
                    "begin": at,
                    "length": length,
                }
                block = calls.get(CONTENT_OF_NODE, query, {READ_TICKET: place.ticket})
                if len(block) != length:
                    break
                found.update(block)
                at += length
            if at == file.size and found.hexdigest() == file.md5:
                return True
            if at == file.size:
                tell_doubt(calls, place, file.physical)
        except (TsferryError, OSError) as error:
            if isinstance(error, UnreachableError):
                self._silent.add(place.url)
            told = {"file": file.physical, "node": place.url, "error": str(error)}
            log.info("a node does not give what is doubted", extra=told)
        finally:
            calls.close()
        return False
