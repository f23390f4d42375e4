"""What edges are told by masters that are parted, asleep, dead or late: a machine with its oracle.

Two masters over one log, nodes and edges, of which any may be parted from any, asleep, dead or
late. The oracle knows what edges were told (loaded; safe to delete), what the bytes are, and looks
at all disks; of what masters believe it knows nothing. Copies go by what the world does to nodes,
and by no order: neither of a master that leads, nor of one that does not know that it does no more.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from common.errors import TsferryError
from receiver.metadata.model import records
from receiver.metadata.model.ranks import LOWEST_LOOK
from receiver.metadata.state.table_rows import FileRow
from receiver.storage.reading.several_addresses import Failover
from tests.support import tiers
from tests.support.homed_nodes import HomedNode
from tests.support.spark_world import NORTH, SOUTH
from tests.support.tsfile_bytes import build
from tests.support.two_masters import LEASE, OneOfTwo, TwoMasters

__all__ = ["GROUP", "MASTER", "NODE", "MastersAndEdges"]

_NODES = 4
_OTHER = "other edge: "
"""Before the path of a file that another edge has."""
_HOSTS = tuple(f"host{each + 1}" for each in range(_NODES))
PLACES = st.sampled_from(("first", "second", "log", *_HOSTS))
MASTER, NODE = st.integers(0, 1), st.integers(0, _NODES - 1)
GROUP = st.sampled_from(("root.wind", "root.sun"))


class MastersAndEdges(RuleBasedStateMachine):
    """See the module.

    Attributes:
        made: what its masters are.
    """

    made: type[OneOfTwo] = OneOfTwo

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=tiers.MEMORY if tiers.MEMORY.is_dir() else None))
        self.there = TwoMasters(self.root, _NODES, self.made)
        self.edge = Failover(self.there.masters)
        self.contents: dict[str, bytes] = {}
        """Of each path that an edge has, or had."""
        self.physical: defaultdict[str, list[str]] = defaultdict(list)
        """Its names at the centre, of each load of it."""
        self.loaded: set[str] = set()
        self.safe: set[str] = set()
        self.deleted: set[str] = set()
        self.burnt: set[str] = set()
        """Hosts whose disks have burned since they spoke last: nobody can know of it yet."""
        self.is_turned_back = False
        """The log is, so edges are refused: what they know is of commits that are not there."""
        self.least: dict[str, int] = {}
        """Copies of what was said to be loaded (1) or safe (2), as the world has left them."""

    def teardown(self) -> None:
        try:
            self.all_is_well_in_the_end()
        finally:
            self.there.close()
            shutil.rmtree(self.root)

    @initialize()
    def begin(self) -> None:
        self.an_edge_sends(0)
        self.all_go_on(3)
        self.an_edge_asks()

    # -- edges ---------------------------------------------------------------------------------

    def _ask(self, call: Callable[[OneOfTwo], None]) -> None:
        """An edge asks whichever answers; nothing is learned of one that does not.

        Or an operator does, who is not refused.
        """
        try:
            self.edge.ask(lambda master: master.answer(lambda: call(master)))
        except TsferryError:
            return

    @rule(partition=st.integers(0, 1), rounds=st.integers(0, 2), group=GROUP)
    def an_edge_sends_and_asks(self, partition: int, rounds: int, group: str = "root.wind") -> None:
        self.an_edge_sends(partition, group)
        if rounds:
            self.all_go_on(rounds)
        self.an_edge_asks()

    @rule(partition=st.integers(0, 1), group=GROUP)
    def an_edge_sends(self, partition: int, group: str = "root.wind") -> None:
        if self.is_turned_back:
            return
        path = self.new_file(partition, group)
        self._ask(lambda master: self._load(master, path))

    def new_file(self, partition: int, group: str) -> str:
        """A file that an edge has from now on."""
        number = len(self.contents) + 1
        path = f"sequence/{group}/0/{partition}/{number}-{number}-0-0.tsfile"
        self.contents[path] = build({f"{group}.d1": {"s1": [(number, number)]}})
        return path

    def namesake(self, path: str) -> str:
        """A file that another edge has under the same path; of another device, as it has to be."""
        found = f"{_OTHER}{path}"
        if found not in self.contents:
            number, group = len(self.contents) + 1, path.split("/")[1]
            self.contents[found] = build({f"{group}.d2": {"s1": [(number, number)]}})
        return found

    @rule(pick=st.integers(0, 1 << 16))
    def another_edge_sends_a_file_of_the_same_path(self, pick: int) -> None:
        """To whichever master; nothing that becomes of one of them is of the other."""
        paths = sorted(each for each in self.contents if not each.startswith(_OTHER))
        if not self.is_turned_back:
            path = self.namesake(paths[pick % len(paths)])
            self._ask(lambda master: self._load(master, path))

    @staticmethod
    def at_edge(path: str) -> tuple[str, str]:
        """The edge that has a file, and the path that it has there."""
        is_other = path.startswith(_OTHER)
        return (SOUTH, path.removeprefix(_OTHER)) if is_other else (NORTH, path)

    @rule()
    def an_edge_sends_again_what_it_was_not_told_of(self) -> None:
        if self.is_turned_back:
            return
        for path in sorted(self.contents.keys() - self.loaded - self.deleted):
            self._ask(lambda master, path=path: self._load(master, path))  # type: ignore[misc]

    def _load(self, master: OneOfTwo, path: str) -> None:
        row = self._row(master, path)
        if row is not None:
            with master.engine.reading() as state:
                is_known = master.copies.condition.count(state, row) > 0
            if is_known or (master.world.data / row.physical).exists():
                return
            # It lay on the disks of a master that is gone, and its edge was told nothing.
            master.engine.commit([records.FileDeleted(row.physical, "operator")])
        if self._row(master, path) is None:
            self.there.tags += 1
            master.world._tag = self.there.tags
            look = 2 * LOWEST_LOOK + self.there.tags
            place = master.world.load(*self.at_edge(path), self.contents[path], look=look)
            self.physical[path].append(str(place.relative_to(master.world.data)))

    @rule()
    def an_edge_asks(self) -> None:
        """What is loaded, and what it may delete."""
        if self.is_turned_back:
            return
        told: dict[str, set[str]] = {}

        def ask(master: OneOfTwo) -> None:
            told.update(loaded=set(), safe=set(), here=set())
            for path in self.contents:
                row = self._row(master, path)
                if row is None:
                    continue
                told["here"].add(path)
                with master.engine.reading() as state:
                    if not master.copies.condition.lacks(state, row):
                        told["loaded"].add(path)
                    if master.copies.condition.is_safe(state, row):
                        told["safe"].add(path)

        try:
            self.edge.ask(lambda master: master.answer(lambda: ask(master)))
        except TsferryError:
            return
        assert told["here"] >= self.loaded - self.deleted, "what was told before is not here"
        assert not told["here"] & self.deleted, "what was deleted is here"
        for path in told["loaded"]:
            had = {*self.whole_at(path), *self.burnt}
            assert had, f"{path} is told to be loaded, and no node has it"
            self.least.setdefault(path, min(1, len(self.whole_at(path))))
        for path in told["safe"]:
            copies = self.whole_at(path)
            had = {*copies, *self.burnt}
            assert len(had) >= 2, f"{path} is told to be safe, and {copies} have it"
            self.least[path] = min(2, len(copies))
        self.loaded |= told["loaded"]
        self.safe |= told["safe"]

    @rule(at=MASTER)
    def an_edge_asks_one_of_them_first(self, at: int) -> None:
        """As another one does, or the same when it starts anew."""
        self.edge = Failover([self.there.masters[at], self.there.masters[1 - at]])
        self.an_edge_asks()

    def _row(self, master: OneOfTwo, path: str) -> FileRow | None:
        with master.engine.reading() as state:
            found = state.file_table.held(*self.at_edge(path))
        return found if found is not None and found.visible else None

    # -- masters -------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((1.0, 6.0, 16.0)))
    def time_passes(self, seconds: float) -> None:
        self.there.pass_time(seconds)

    @rule(at=MASTER)
    def a_master_sleeps_or_wakes(self, at: int) -> None:
        master = self.there.masters[at]
        master.is_paused = not master.is_paused

    @rule(at=MASTER)
    def a_master_dies(self, at: int) -> None:
        if self.there.masters[at].is_alive:
            self.there.masters[at].die()

    @rule(at=MASTER)
    def who_stands_by_takes_over_if_it_may(self, at: int) -> None:
        if not self.there.masters[at].is_alive:
            self.there.masters[at].take_over()

    @rule(at=MASTER, partition=st.integers(0, 1))
    def the_other_leads_while_a_master_sleeps(self, at: int, partition: int) -> None:
        """It wakes up with what it remembers, and is asked first."""
        master, other = self.there.masters[at], self.there.masters[1 - at]
        master.is_paused, other.is_paused = True, False
        self.there.pass_time(LEASE + 1)
        if not other.is_alive:
            other.take_over()
        self.an_edge_sends_and_asks(partition, 2)
        master.is_paused = False
        self.an_edge_asks_one_of_them_first(at)
        master.one_pass()
        self.nodes_report_and_pull()

    @rule()
    def somebody_leads(self) -> None:
        """The network of one heals, and time passes until it may be master."""
        master = next((it for it in self.there.masters if it.is_alive), self.there.masters[0])
        self.there.parted = {each for each in self.there.parted if master.name not in each}
        master.is_paused = False
        self.there.pass_time(1.0)
        if master.is_alive and self.there.place.owner is not master.remote:
            master.die()
        if not master.is_alive:
            self.there.pass_time(LEASE + 1)
            master.take_over()

    @rule(at=MASTER)
    def a_pass(self, at: int) -> None:
        self.there.masters[at].one_pass()

    @rule(at=MASTER)
    def a_pass_in_which_it_sleeps_past_its_lease(self, at: int) -> None:
        """Its orders go out behind what the other one has done since."""
        master = self.there.masters[at]

        def sleep() -> None:
            master.before_order = lambda: None
            master.is_paused = True
            self.there.pass_time(LEASE + 1)
            other = self.there.masters[1 - at]
            if not other.is_alive:
                other.take_over()
            for _ in range(2):
                self.nodes_report_and_pull()
                other.one_pass()
                self.there.pass_time(6.0)
            self.an_edge_asks()
            master.is_paused = False

        master.before_order = sleep
        master.one_pass()
        master.before_order = lambda: None

    # -- nodes and networks --------------------------------------------------------------------

    @rule(one=PLACES, other=PLACES)
    def two_are_parted(self, one: str, other: str) -> None:
        if one != other:
            self.there.parted.add(frozenset((one, other)))

    @precondition(lambda self: self.there.parted)
    @rule()
    def all_networks_heal(self) -> None:
        self.there.parted.clear()

    @rule(at=NODE)
    def a_node_reports_and_pulls(self, at: int) -> None:
        self._goes_on(self.there.nodes[at])

    @rule()
    def nodes_report_and_pull(self) -> None:
        for each in self.there.nodes:
            self._goes_on(each)

    def _goes_on(self, node: HomedNode) -> None:
        if node.goes_on():
            self.burnt.discard(node.host)

    @rule(rounds=st.integers(1, 3))
    def all_go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for master in self.there.masters:
                master.one_pass()
            self.nodes_report_and_pull()
            self.there.pass_time(6.0)
        for master in self.there.masters:
            master.one_pass()

    @rule(at=NODE)
    def a_node_stops_or_starts(self, at: int) -> None:
        node = self.there.nodes[at]
        if node.is_up:
            node.stop()
        else:
            node.start()

    @rule(at=NODE)
    def a_node_is_drained_or_not(self, at: int) -> None:
        """An operator says so of whoever leads."""
        uuid = self.there.nodes[at].uuid

        def say(master: OneOfTwo) -> None:
            with master.engine.reading() as state:
                row = state.node_table.rows.get(uuid)
            if row is not None:
                draining = not row.draining
                master.engine.commit([records.NodeDraining(uuid, draining=draining)])

        self._ask(say)

    @rule(at=NODE)
    def the_disks_of_a_node_burn(self, at: int) -> None:
        """It goes on with empty ones; of what was said to be safe another copy is there."""
        node = self.there.nodes[at]
        if self.alone_at(node.host):
            return
        node.burn()
        self.world_took(node.host)

    def alone_at(self, host: str) -> bool:
        """Whether something that was told to be loaded is at no other node."""
        return any(set(self.whole_at(path)) <= {host} for path in self.loaded - self.deleted)

    def world_took(self, host: str) -> None:
        """What was on a node's disks is not all there any more, and nobody can know of it yet."""
        self.burnt.add(host)
        for path in self.least:
            self.least[path] = min(self.least[path], len(self.whole_at(path)))

    @rule(pick=st.integers(0, 1 << 16))
    def an_operator_deletes_a_file(self, pick: int) -> None:
        left = sorted(self.loaded - self.deleted)
        if len(left) < 2:
            return
        path = left[pick % len(left)]

        def delete(master: OneOfTwo) -> None:
            row = self._row(master, path)
            if row is not None and row.physical in self.physical[path]:
                master.engine.commit([records.FileDeleted(row.physical, "operator")])
                self.deleted.add(path)
                self.least.pop(path, None)
                master.engine.commit([records.FileForgotten(row.physical)])

        self._ask(delete)

    # -- the oracle ----------------------------------------------------------------------------

    def whole_at(self, path: str) -> list[str]:
        """Hosts on whose disks a file is whole, whatever anybody says."""
        return sorted({node.host for node in self.there.nodes if self.found_at(node, path)})

    def found_at(self, node: HomedNode, path: str) -> Path | None:
        """Where a file lies whole at a node."""
        for root in node.paths:
            for tablet in node.tablets_in(root):
                for physical, content in self.names_of(path).items():
                    place = tablet / physical
                    if place.is_file() and place.read_bytes() == content:
                        return place
        return None

    def names_of(self, path: str) -> dict[str, bytes]:
        """Names at the centre of what has all that a file has, with their bytes."""
        return dict.fromkeys(self.physical[path], self.contents[path])

    def may_commit(self, master: OneOfTwo) -> bool:
        """Whether a master leads, and reaches its log."""
        return (
            master.works
            and master.engine.displaced() is None
            and self.there.place.owner is master.remote
            and self.there.may_speak(master.name, "log")
        )

    @invariant()
    def nothing_but_the_world_takes_copies(self) -> None:
        for path, before in self.least.items():
            copies = len(self.whole_at(path))
            assert copies >= before, f"{path}: {copies} copies, and {before} there were"

    @invariant()
    def whoever_leads_knows_what_was_told_and_has_it_once(self) -> None:
        for master in () if self.is_turned_back else self.there.masters:
            if not master.works or master.engine.displaced() is not None:
                continue
            if self.there.place.owner is not master.remote:
                continue  # it cannot commit, and does not lead for long
            for path in self.loaded - self.deleted:
                assert self._row(master, path) is not None, f"{path} is forgotten"
            with master.engine.reading() as state:
                visible = [(it.sender, it.path) for it in state.files.values() if it.visible]
            assert len(visible) == len(set(visible)), "something is loaded twice"

    def _drains_none(self, master: OneOfTwo) -> None:
        with master.engine.reading() as state:
            rows = [each for each in state.node_table.rows.values() if each.draining]
        if rows:
            ops = [records.NodeDraining(each.uuid, draining=False) for each in rows]
            master.engine.commit(ops)

    def all_is_well_in_the_end(self) -> None:
        self.there.parted.clear()
        self.there.pass_time(LEASE + 1)
        for node in self.there.nodes:
            node.lies = False
            if not node.is_up:
                node.start()
        for master in self.there.masters:
            master.is_paused = False
        for _ in range(3):
            self.there.pass_time(6.0)
            for master in self.there.masters:
                if master.is_alive and self.there.place.owner is not master.remote:
                    master.die()
                if not master.is_alive:
                    master.take_over()
            self.all_go_on(4)
        self._ask(self._drains_none)
        self.an_edge_sends_again_what_it_was_not_told_of()
        self.all_go_on(4)
        self.an_edge_asks()
        at_nodes = {path for path in self.loaded - self.deleted if self.whole_at(path)}
        assert at_nodes == self.loaded - self.deleted
        assert self.contents.keys() - self.deleted == self.loaded - self.deleted
