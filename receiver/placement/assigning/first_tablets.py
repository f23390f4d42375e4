"""Tablets of files that are only planned: made and placed ahead, so that these can go to a node.

Else the first files of a tablet, every midnight, would come to the master. A tablet is made here
for a partition of a table that is there; the first file of a table comes to the master, which sees
by its content whether there is to be one. What takes too long is not waited for: then the file
comes to the master as well, and for a while nobody waits for that tablet again.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import uuid4

from common.errors import TsferryError
from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.placement.assigning.assignment import AssignmentPass
    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["FirstTablets", "PlacesTablets"]

log = logging.getLogger(__name__)

_AT_ONCE: Final = 4
"""Tablets that are made for one question: an edge that was away for weeks has as many of them."""
_EMPTY: Final = 100
"""Tablets that were made here, and nothing has come to: who plans files and sends none makes no
more than this."""
_NOT_AGAIN: Final = 60.0
"""Seconds for which a tablet that took too long is not waited for."""


class PlacesTablets(Protocol):
    """Places tablets in passes; see `Assignment`.

    Attributes:
        last: the last pass.
    """

    last: AssignmentPass

    def wake(self) -> None:
        """Something has changed: look now."""

    def wait_for_pass(self, after: int, seconds: float) -> int:
        """Wait until more passes than these have ended, but not longer; how many have."""


class _Wanted(NamedTuple):
    table: str
    partition: int


class FirstTablets:
    """Makes them; any thread may call."""

    def __init__(
        self,
        engine: Engine,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        assignment: PlacesTablets,
        *,
        patience: float = 2.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            engine: of the master.
            nodes: gives those that there are.
            assignment: places tablets.
            patience: seconds that a question waits at most.
            monotonic: seconds that nobody sets.
        """
        self._engine = engine
        self._nodes = nodes
        self._assignment = assignment
        self._patience = patience
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._made: dict[str, _Wanted] = {}
        self._late: dict[_Wanted, float] = {}

    def prepare(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Have tablets of partitions run at nodes, as far as that is done soon.

        Args:
            partitions: (storage group, number) of each.
        """
        now = self._monotonic()
        with self._lock:
            self._late = {each: at for each, at in self._late.items() if now - at < _NOT_AGAIN}
            wanted = {_Wanted(*each) for each in partitions} - self._late.keys()
        passes = self._assignment.wait_for_pass(-1, 0.0)
        left = self._not_running(wanted)
        if not left or not any(each.takes for each in self._nodes().values()):
            return
        try:
            self._make(left[:_AT_ONCE])
        except TsferryError as error:  # it is planned all the same
            log.info("a tablet is not made ahead", extra={"reason": str(error)})
        left = self._placeable(left)
        self._assignment.wake()
        while left and (rest := now + self._patience - self._monotonic()) > 0:
            passes = self._assignment.wait_for_pass(passes, rest)
            left = self._not_running(left)
        with self._lock:
            self._late.update(dict.fromkeys(left, now))

    def _not_running(self, wanted: Iterable[_Wanted]) -> list[_Wanted]:
        """Those whose table is there, and whose tablet does not run."""
        with self._engine.reading() as state:
            return sorted(each for each in wanted if _stands(state, each) in ("", "made"))

    def _placeable(self, wanted: Iterable[_Wanted]) -> list[_Wanted]:
        """Those that have a tablet by now."""
        with self._engine.reading() as state:
            return [each for each in wanted if _stands(state, each) == "made"]

    def _make(self, wanted: Iterable[_Wanted]) -> None:
        """Make tablets where there are none, unless nodes have some that were forgotten here."""
        if self._assignment.last.strange:
            return
        for each in wanted:
            with self._engine.reading() as state:
                self._forget_filled(state)
                table = state.loaded_tables.named(each.table)
                if table is None or _stands(state, each) != "":
                    continue
            if len(self._made) >= _EMPTY:
                return
            ident = uuid4().hex
            self._engine.commit(
                [records.TabletMade(ident, table.id, each.partition, each.partition + 1)]
            )
            with self._lock:
                self._made[ident] = each

    def _forget_filled(self, state: State) -> None:
        totals = state.file_table.by_partition
        with self._lock:
            for ident, each in list(self._made.items()):
                number = each.partition
                row = state.tablet_table.rows.get(ident)
                if row is None or row.dropped or totals.of(each.table, number, number + 1).files:
                    del self._made[ident]


def _stands(state: State, wanted: _Wanted) -> str | None:
    """`running`, `made` or nothing; None where there is no such table."""
    table = state.loaded_tables.named(wanted.table)
    if table is None:
        return None
    tablet = state.tablet_table.holding(table.id, wanted.partition)
    if tablet is None:
        return ""
    row = state.placement_table.rows.get(tablet.id)
    return "running" if row is not None and row.running else "made"
