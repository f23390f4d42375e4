"""The background task that sees to it that tablets are where they should be.

    for each tablet that is not placed, or not as it should be:
        choose nodes                      a function of what is known (`choosing_nodes`)
        commit where it is to be          a new generation of its placement
        ask these nodes to have it        again with each pass, until they report it
    when the leader reports it            it runs, which is committed

Nothing is asked for that is not committed. A node that does not answer within the time that it has
is left out of the next generation; what it makes all the same is dropped when it reports it, once
the tablet is whole elsewhere. A node that is silent loses nothing by that: what it has is there
when it comes back, and is dropped only if it is not needed any more. What the catalogue does not
know is never dropped: it is shown.

The same order, given again, tells a node what has changed of a table: again with each pass, until
it reports the version. One that reports a higher version than the catalogue has keeps what it
knows, and is shown.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from common import crash
from common.durable import Closing
from common.errors import TsferryError
from common.threads import PeriodicThread
from receiver.metadata.model import records
from receiver.placement.assigning.choosing_nodes import ChosenLoad, PlacementWish, wished_nodes
from receiver.placement.assigning.due_tablets import due_tablets
from receiver.placement.assigning.expected_load import ExpectedLoad, PlacedTablet
from receiver.placement.assigning.table_standing import note_standings
from receiver.placement.copies_there.copy_lists import attributes_of
from receiver.tablet_copies.copies_wire import CopyOrder, CopyOrders, DropOrder, DropOrders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from receiver.heartbeats.node_reports import ReportNews
    from receiver.heartbeats.node_wire import ReportedTablet
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow
    from receiver.placement.assigning.due_tablets import DueTablet
    from receiver.placement.copies_there.copy_lists import CopyLists
    from receiver.placement.copies_there.held_copies import HeldCopiesBook
    from receiver.placement.node_orders import GivesOrders
    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["Assignment", "AssignmentPass", "PlacementRules"]

log = logging.getLogger(__name__)

_PERIOD: Final = 2.0
"""Seconds between two passes."""
_AT_ONCE: Final = 500
"""Placements of a commit, and orders of a call."""
_ALL_EVERY: Final = 15
"""Passes in which all that nodes have is looked at once; else only what they report anew."""
_AGAIN: Final = 5.0
"""Seconds until a node that has not reported what it was asked for is asked again."""


class PlacementRules(NamedTuple):
    """What is configured.

    Attributes:
        copies: nodes that are to have each tablet, where its table does not say otherwise.
        timeout: seconds that a node has to make a replica.
        lost_after: seconds of silence until what a node has is made again elsewhere; 0 for never.
        apart: no two copies of a tablet on one host.
        evict_copies: nodes that have to have a file which has left the master's disks; 0 for as
            many as have proved it then.
    """

    copies: int
    timeout: float = 30.0
    lost_after: float = 900.0
    apart: bool = True
    evict_copies: int = 0

    def least(self, proved: int) -> int:
        """Nodes that have to have a tablet of which the master has let files go.

        Args:
            proved: nodes that have proved to have a file of it, of the one with most; 0 where it
                has let none go.
        """
        return min(proved, self.evict_copies or proved)


class AssignmentPass(NamedTuple):
    """What a pass has done.

    Attributes:
        placed: placements that were committed.
        running: those that came to run.
        dropped: replicas that were told to go.
        short: tablets that have fewer nodes than they should.
        strange: replicas that the catalogue knows nothing of, as (node, tablet).
        newer: replicas that know of their table what the catalogue does not, likewise.
    """

    placed: int = 0
    running: int = 0
    dropped: int = 0
    short: int = 0
    strange: frozenset[tuple[str, str]] = frozenset()
    newer: frozenset[tuple[str, str]] = frozenset()


class _Verdict(Enum):
    NEEDED = "needed"
    SOON = "over once the tablet is whole where it is placed"
    OVER = "over"
    STRANGE = "not known to the catalogue"


class Assignment(Closing):
    """See the module; in a thread of its own once it is started.

    Attributes:
        last: the last pass.
    """

    def __init__(
        self,
        engine: Engine,
        rules: PlacementRules,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        reported: Callable[[str, str], ReportedTablet | None],
        every: Callable[[str], Iterable[ReportedTablet]],
        lists: CopyLists,
        book: HeldCopiesBook,
        orders: GivesOrders,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            engine: of the master.
            rules: see there.
            nodes: the nodes as they are now, by uuid.
            reported: what a node has reported of a tablet.
            every: all that a node has reported.
            lists: says who this master is.
            book: of what nodes have.
            orders: calls nodes.
            monotonic: seconds that nobody sets.
        """
        self._engine = engine
        self._rules = rules
        self._nodes = nodes
        self._reported = reported
        self._every = every
        self._lists = lists
        self._book = book
        self._orders = orders
        self._monotonic = monotonic
        self.last = AssignmentPass()
        self._asked: dict[tuple[str, str, int, int], float] = {}
        self._told: dict[str, tuple[int, frozenset[str]]] = {}
        self._since: dict[tuple[str, int], float] = {}
        self._there: set[str] = set()
        self._to_clear: set[str] = set()
        self._strange: dict[str, frozenset[str]] = {}
        self._passes = 0
        self._calls = ThreadPoolExecutor(8, thread_name_prefix="orders")
        self._ended = threading.Condition()
        self._ended_passes = 0
        self._thread = PeriodicThread(
            "assignment", self._pass, log, "tablets cannot be placed now", retry=_PERIOD
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Something has changed: look now."""
        self._thread.wake()

    def wait_for_pass(self, after: int, seconds: float) -> int:
        """See `PlacesTablets`."""
        with self._ended:
            self._ended.wait_for(lambda: self._ended_passes > after, seconds)
            return self._ended_passes

    def close(self) -> None:
        """End behind the pass that is under way."""
        self._thread.close()
        self._calls.shutdown(wait=True, cancel_futures=True)

    def heard(self, news: ReportNews) -> None:
        """A node has reported something."""
        damaged = [each.id for each in news.tablets if each.state == "damaged"]
        self._book.not_complete(news.node, [*damaged, *news.removed])
        self._to_clear.add(news.node)
        self._thread.wake()

    def _pass(self) -> float:
        try:
            self.run_once()
        finally:
            with self._ended:
                self._ended_passes += 1
                self._ended.notify_all()
        return _PERIOD

    # -- a pass ------------------------------------------------------------------------------

    def run_once(self) -> AssignmentPass:
        """One pass; what it did.

        Raises:
            TsferryError: the engine takes no commits; nothing was asked of a node then.
        """
        nodes = self._nodes()
        self._forget_gone(nodes)
        now = self._monotonic()
        due = due_tablets(self._engine)
        placed, short = self._place(due, nodes, now)
        running = self._let_run()
        newer = self._ask(nodes, now)
        dropped, strange = self._clear(nodes)
        note_standings(self._engine, self.behind)
        self.last = AssignmentPass(placed, running, dropped, short, strange, newer)
        return self.last

    def behind(self, table: LoadedTableRow) -> frozenset[str] | None:
        """Nodes that have not confirmed what is known of a table; None: that is not looked at yet.

        As of the last pass.
        """
        if not table.version:
            return frozenset()
        version, nodes = self._told.get(table.id, (0, frozenset[str]()))
        return nodes if version == table.version else None

    def _forget_gone(self, nodes: Mapping[str, PlaceableNode]) -> None:
        """Nothing is known of nodes that are none any more."""
        for uuid in self._there - nodes.keys():
            self._book.forget(uuid)
        self._there = set(nodes)

    def _place(
        self, due: Sequence[DueTablet], nodes: Mapping[str, PlaceableNode], now: float
    ) -> tuple[int, int]:
        load = ChosenLoad(ExpectedLoad(lambda: map(_placed, due)))
        ops: list[records.Op] = []
        short = 0
        for each in due:
            before = each.placement
            generation = 1 if before is None else before.generation + 1
            copies = max(each.table.replicas or self._rules.copies, self._rules.least(each.proved))
            wish = PlacementWish(each.tablet.id, generation, each.size, copies, self._rules.apart)
            placed = () if before is None else _leader_first(before)
            gone = {uuid for uuid in placed if self._is_gone(before, nodes.get(uuid), copies, now)}
            wished = wished_nodes(wish, nodes, load, placed, gone=gone)
            short += len(wished) < copies
            if not wished or set(wished) == set(placed):
                continue
            if gone and not set(wished) - set(placed) and not self._is_hopeless(gone, nodes):
                continue  # nobody takes their place: they may come yet
            leader = self._leader(each, wished)
            ops.append(records.TabletPlaced(each.tablet.id, generation, wished, leader))
        for begin in range(0, len(ops), _AT_ONCE):
            self._engine.commit(ops[begin : begin + _AT_ONCE])
            crash.point("assignment.placed")
        return len(ops), short

    def _is_gone(
        self,
        placement: PlacementRow | None,
        node: PlaceableNode | None,
        copies: int,
        now: float,
    ) -> bool:
        """Whether a node of a placement is to be made up for."""
        assert placement is not None
        if node is None or node.is_lost:
            return True
        after = self._rules.lost_after
        if node.is_down and after and copies > 1 and node.age > after:
            return True
        found = self._reported(node.uuid, placement.tablet)
        key = placement.tablet, placement.generation
        if found is not None and found.generation >= placement.generation:
            return False
        since = self._since.setdefault(key, now)
        if found is not None and not node.is_down:
            return False  # it has an older generation of it, and is told of the new one
        return not placement.running and now - since > self._rules.timeout

    def _is_hopeless(self, gone: Iterable[str], nodes: Mapping[str, PlaceableNode]) -> bool:
        """Whether all of some nodes are known never to come back."""
        return all(each not in nodes or nodes[each].is_lost for each in gone)

    def _leader(self, due: DueTablet, wished: Sequence[str]) -> str:
        """Who leads: the one that does, or one that has it all, or the first."""
        before = due.placement
        if before is None:
            return wished[0]
        if before.leader in wished:
            return before.leader
        with self._engine.reading() as state:
            whole = self._book.complete(state, due.tablet, before)
        return next((each for each in wished if each in whole), wished[0])

    def _let_run(self) -> int:
        """Commit which placements run: those whose leaders have reported them."""
        with self._engine.reading() as state:
            creating = [row for row in state.placement_table.rows.values() if not row.running]
        ops: list[records.Op] = []
        for row in creating:
            found = self._reported(row.leader, row.tablet)
            if found is not None and found.generation == row.generation:
                ops.append(records.TabletRunning(row.tablet, row.generation))
                self._since.pop((row.tablet, row.generation), None)
        for begin in range(0, len(ops), _AT_ONCE):
            self._engine.commit(ops[begin : begin + _AT_ONCE])
            crash.point("assignment.running")
        return len(ops)

    # -- calls -------------------------------------------------------------------------------

    def _ask(self, nodes: Mapping[str, PlaceableNode], now: float) -> frozenset[tuple[str, str]]:
        """Ask nodes for what they have not reported; the replicas that know more of their table."""
        wanted: dict[str, list[CopyOrder]] = {}
        open_: dict[tuple[str, str, int, int], float] = {}
        newer: set[tuple[str, str]] = set()
        told: dict[str, tuple[int, set[str]]] = {}
        for each in due_tablets(self._engine):
            row, version = each.placement, each.table.version
            # A version that is raised while the pass goes on counts with the next one.
            behind = told.setdefault(each.table.id, (version, set()))[1] if version else set()
            for uuid in () if row is None else row.nodes:
                assert row is not None
                found = self._reported(uuid, row.tablet)
                if found is not None and found.version > version:
                    newer.add((uuid, row.tablet))
                if found is None or found.version < version:
                    behind.add(uuid)
                elif found.generation >= row.generation:
                    continue
                key = uuid, row.tablet, row.generation, version
                asked = open_[key] = self._asked.get(key, now - _AGAIN)
                node = nodes.get(uuid)
                if node is None or not node.url or node.is_down or now - asked < _AGAIN:
                    continue
                open_[key] = now
                wanted.setdefault(uuid, []).append(
                    CopyOrder(
                        tablet=row.tablet,
                        generation=row.generation,
                        table=each.table.name,
                        begin=each.tablet.begin,
                        end=each.tablet.end,
                        attributes=attributes_of(each.table),
                    )
                )
        self._asked = open_
        self._told = {table: (version, frozenset(some)) for table, (version, some) in told.items()}
        mark = self._lists.mark()
        calls = [
            (nodes[uuid], CopyOrders(master=mark, tablets=orders[begin : begin + _AT_ONCE]))
            for uuid, orders in wanted.items()
            for begin in range(0, len(orders), _AT_ONCE)
        ]
        wait([self._calls.submit(self._call_make, *each) for each in calls])
        return frozenset(newer)

    def _call_make(self, node: PlaceableNode, orders: CopyOrders) -> None:
        crash.point("assignment.make_call")
        try:
            self._orders.make(node, orders)
        except (TsferryError, OSError) as error:
            told = {"node": node.uuid, "tablets": len(orders.tablets), "error": str(error)}
            log.warning("a node does not make replicas", extra=told)

    def _clear(self, nodes: Mapping[str, PlaceableNode]) -> tuple[int, frozenset[tuple[str, str]]]:
        """Have dropped what nodes report and nobody needs there any more."""
        if self._passes % _ALL_EVERY == 0:
            self._to_clear.update(nodes)
        self._passes += 1
        count = 0
        for uuid in [*self._to_clear]:
            self._to_clear.discard(uuid)
            node = nodes.get(uuid)
            if node is None or not node.url or node.is_down:
                continue
            drops, waits = self._over(uuid, nodes)
            if drops or waits:
                self._to_clear.add(uuid)
            for begin in range(0, len(drops), _AT_ONCE):
                some = drops[begin : begin + _AT_ONCE]
                orders = DropOrders(master=self._lists.mark(), tablets=some)
                wait([self._calls.submit(self._call_drop, node, orders)])
            count += len(drops)
        there = {uuid: self._strange.get(uuid, frozenset()) for uuid in nodes}
        return count, frozenset((uuid, each) for uuid, some in there.items() for each in some)

    def _over(self, uuid: str, nodes: Mapping[str, PlaceableNode]) -> tuple[list[DropOrder], bool]:
        """What a node reports and is not needed there; whether more of it may be that later."""
        drops: list[DropOrder] = []
        strange: set[str] = set()
        waits = False
        every = list(self._every(uuid))
        for begin in range(0, len(every), _AT_ONCE):
            with self._engine.reading() as state:
                for each in every[begin : begin + _AT_ONCE]:
                    verdict = self._is_over(state, uuid, each, nodes)
                    if verdict is _Verdict.STRANGE:
                        strange.add(each.id)
                    elif verdict is _Verdict.OVER:
                        drops.append(DropOrder(tablet=each.id, generation=each.generation))
                    waits |= verdict is _Verdict.SOON
        self._strange[uuid] = frozenset(strange)
        return drops, waits

    def _is_over(
        self, state: State, uuid: str, reported: ReportedTablet, nodes: Mapping[str, PlaceableNode]
    ) -> _Verdict:
        """Whether a replica may go."""
        tablet = state.tablet_table.rows.get(reported.id)
        if tablet is None:
            return _Verdict.STRANGE
        if state.loaded_tables.rows[tablet.table].dropped:
            # What has left the master's disks is nowhere else: it stays as long as its row.
            is_last = bool(state.released_table.of_tablet(tablet.id))
            return _Verdict.SOON if is_last else _Verdict.OVER
        if tablet.dropped:
            # It was empty. What a node has of it was forgotten with its rows, or never known here.
            return _Verdict.STRANGE if reported.files else _Verdict.OVER
        row = state.placement_table.rows.get(reported.id)
        if row is None or reported.generation > row.generation:
            return _Verdict.STRANGE  # the master that asked for it knew more than this one
        if uuid in row.nodes:
            return _Verdict.NEEDED
        # Of a node that is silent now it is not known whether it still has what it said it has.
        there = {each for each, node in nodes.items() if node.counts}
        whole = there.intersection(self._book.complete(state, tablet, row))
        least = self._rules.least(state.released_table.copies(tablet.id))
        is_apart = len({nodes[each].host for each in whole}) >= least
        is_whole = len(whole) == len(row.nodes) and bool(row.running) and is_apart
        return _Verdict.OVER if is_whole else _Verdict.SOON

    def _call_drop(self, node: PlaceableNode, orders: DropOrders) -> None:
        crash.point("assignment.drop_call")
        try:
            self._orders.drop(node, orders)
        except (TsferryError, OSError) as error:
            told = {"node": node.uuid, "tablets": len(orders.tablets), "error": str(error)}
            log.warning("a node does not drop replicas", extra=told)


def _placed(due: DueTablet) -> PlacedTablet:
    nodes = () if due.placement is None else due.placement.nodes
    return PlacedTablet(due.tablet.id, due.table.id, due.tablet.begin, due.size, nodes)


def _leader_first(row: PlacementRow) -> tuple[str, ...]:
    return (row.leader, *(each for each in row.nodes if each != row.leader))
