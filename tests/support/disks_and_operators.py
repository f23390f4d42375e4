"""What becomes of disks, and what operators do: `DisksAndOperators`.

Beside what parts masters and nodes (`tests.support.masters_and_edges`): disks that are copied and
come back older, that fill up and rot, what leaves the master's disks, tables that go and come, and
operators who empty nodes and take them off the list; edges that send to nodes, merges that are
final, readers, and messages that come late, each in a module of its own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import rule

from common.errors import TsferryError
from receiver.metadata.model import records
from receiver.metadata.state.placed_files import placement_of
from receiver.metadata.state.table_rows import FileState
from receiver.operator.places.forgetting_nodes import forget_node
from receiver.operator.places.node_losses import lose_node
from receiver.operator.places.remote_nodes import declare_node_found
from receiver.operator.views.node_views import LossRequest
from tests.support.edges_with_tickets import EdgesWithTickets
from tests.support.homed_nodes import HomedNode
from tests.support.late_messages import LateMessages
from tests.support.masters_and_edges import GROUP, MASTER, NODE
from tests.support.merges_of_masters import MergesOfMasters
from tests.support.readers_of_nodes import ReadersOfNodes
from tests.support.two_masters import LEASE, OneOfTwo

__all__ = ["DisksAndOperators"]

_PICK = st.integers(0, 1 << 16)


class DisksAndOperators(EdgesWithTickets, MergesOfMasters, LateMessages, ReadersOfNodes):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[str, set[Path]] = {}
        self.copied = 0
        self.gone_from: dict[str, set[str]] = {"first": set(), "second": set()}
        self.log_kept: list[tuple[int, int, bytes]] | None = None

    @rule(partition=st.integers(0, 1), group=GROUP, evicts=st.booleans())
    def all_goes_well_for_a_while(self, partition: int, group: str, evicts: bool) -> None:
        """Else little comes to be true that could be lost."""
        self.there.parted.clear()
        self.somebody_leads()
        for node in self.there.nodes:
            if not node.is_up:
                node.start()
            node.free, node.lies = 1 << 40, False
        self.an_edge_sends(partition, group)
        self.all_go_on(2)
        self.an_edge_asks()
        if evicts:
            self.files_leave_the_disks_of_a_master(0)
            self.files_leave_the_disks_of_a_master(1)

    # -- a master's disks ----------------------------------------------------------------------

    @rule(at=MASTER)
    def files_leave_the_disks_of_a_master(self, at: int) -> None:
        """For nodes, each of which proves it: then two have them, or had a moment ago."""
        master = self.there.masters[at]
        if not master.works:
            return
        before = self._on_disk(master)
        master.evict()
        for path in before - self._on_disk(master):
            had = {*self.whole_at(path), *self.burnt}
            assert len(had) >= 2, f"{path} has left, and {self.whole_at(path)} have it"
            if path not in self.deleted:
                self.least[path] = min(2, len(self.whole_at(path)))

    def _on_disk(self, master: OneOfTwo) -> set[str]:
        return {
            path
            for path in self.physical
            if any((master.world.data / each).is_file() for each in self.names_of(path))
        }

    @rule(partition=st.integers(0, 1), group=GROUP, at=MASTER, burns=NODE)
    def a_file_that_went_to_a_node_leaves_its_master_which_dies(
        self, partition: int, group: str, at: int, burns: int
    ) -> None:
        """And so do the disks of a node, as long as another one has what is there."""
        self.all_goes_well_for_a_while(partition, group, False)
        self.an_edge_sends_to_a_node(partition, group, "", "", 0)
        self.all_go_on(2)
        self.an_edge_asks()
        for each in range(2):
            self.files_leave_the_disks_of_a_master(each)
        self.a_master_begins_anew(at, own=False)
        self.the_disks_of_a_node_burn(burns)

    @rule(at=MASTER)
    def a_file_that_left_is_read(self, at: int) -> None:
        """By whoever leads, or it says that it does not come."""
        master = self.there.masters[at]
        if not self._leads(master):
            return
        for path in sorted(self.loaded - self.deleted)[:2]:
            row = self._row(master, path)
            if row is None:
                continue
            try:
                assert master.fetched(row) == self.names_of(path)[row.physical]
            except (TsferryError, FileNotFoundError):
                continue

    @rule(at=MASTER, days=st.sampled_from((-30, -1, 0, 1, 30)))
    def the_clock_of_a_master_is_off(self, at: int, days: int) -> None:
        """From one moment to the next, or it is set right again."""
        self.there.masters[at].is_off_by = days * 86400.0

    @rule(at=MASTER, host=NODE, pick=_PICK, anew=st.booleans(), restarts=st.booleans())
    def a_master_finds_that_a_node_gives_other_bytes_and_an_edge_asks(
        self, at: int, host: int, pick: int, anew: bool, restarts: bool
    ) -> None:
        """From then on it counts for no master, whatever the node says of itself."""
        if not self._is_found_out(at, host, pick):
            return
        if restarts:
            self.there.nodes[host].stop()
            self.there.nodes[host].start()
        if anew:
            self.a_master_begins_anew(at, own=False)
        self.nodes_report_and_pull()
        self.an_edge_asks()

    def _is_found_out(self, at: int, host: int, pick: int) -> bool:
        master, node = self.there.masters[at], self.there.nodes[host]
        paths = [each for each in sorted(self.contents) if node.host in self.whole_at(each)]
        paths = [each for each in paths if len(self.whole_at(each)) > 1]
        if not paths or not self._leads(master):
            return False
        path = paths[pick % len(paths)]
        row, place = self._row(master, path), self.found_at(node, path)
        if row is None or place is None or place.name != Path(row.physical).name:
            return False
        with master.engine.reading() as state:
            found = placement_of(state, row.physical)
            if found is None or node.uuid not in state.node_table.rows:
                return False
        master.copies.doubts.doubt(node.uuid, found[0].id, row.physical)
        with master.engine.reading() as state:
            if (node.uuid, row.physical) not in state.doubted_table.rows:
                return False  # nobody will know it: then the disk may as well be sound
        content = bytearray(place.read_bytes())
        content[len(content) // 2] ^= 1
        place.write_bytes(content)
        for each in self.least:
            self.least[each] = min(self.least[each], len(self.whole_at(each)))
        return True

    @rule(at=MASTER, own=st.booleans())
    def a_master_begins_anew(self, at: int, own: bool) -> None:
        """On the disks that it had, or another machine in its place."""
        master = self.there.masters[at]
        if master.is_alive:
            master.die()
        self.there.pass_time(LEASE + 1)
        master.take_over(own=own and not self.is_turned_back)

    @rule(at=MASTER)
    def a_copy_is_made_of_the_disks_of_a_master(self, at: int) -> None:
        master = self.there.masters[at]
        if master.is_alive:
            self._save(master)

    @rule(at=MASTER)
    def a_master_comes_back_with_older_disks(self, at: int) -> None:
        master = self.there.masters[at]
        place = self._saved(master)
        if place is None or self.is_turned_back:
            return
        if master.is_alive:
            master.die()
        master.restored(place)
        self.there.pass_time(LEASE + 1)
        master.take_over(own=True)

    def _save(self, what: OneOfTwo | HomedNode) -> Path:
        name = what.name if isinstance(what, OneOfTwo) else what.host
        self.copied += 1
        place = self.root / "copies" / f"{name}-{self.copied}"
        what.saved(place)
        self.saved[name] = {place}
        return place

    def _saved(self, what: OneOfTwo | HomedNode) -> Path | None:
        name = what.name if isinstance(what, OneOfTwo) else what.host
        return next(iter(self.saved.get(name, ())), None)

    # -- a node's disks ------------------------------------------------------------------------

    @rule(at=NODE)
    def the_disks_of_a_node_are_full_or_not(self, at: int) -> None:
        node = self.there.nodes[at]
        node.free = 0 if node.free else 1 << 40

    @rule(at=NODE)
    def the_power_of_a_node_is_cut(self, at: int) -> None:
        node = self.there.nodes[at]
        if node.is_up:
            node.stop(power=True)
            node.start()

    @rule(at=NODE)
    def a_copy_is_made_of_the_disks_of_a_node(self, at: int) -> None:
        self._save(self.there.nodes[at])

    @rule(at=NODE, home=st.booleans())
    def a_node_comes_back_with_older_disks(self, at: int, home: bool) -> None:
        """Those of yesterday; with an older past it is refused until an operator accepts it."""
        node = self.there.nodes[at]
        place = self._saved(node)
        if place is None or self.alone_at(node.host):
            return
        node.restored(place, home=home)
        self._reads_through(node)
        self.world_took(node.host)

    @rule(at=NODE, is_slow=st.booleans())
    def a_node_comes_back_with_older_disks_and_an_edge_asks_at_once(
        self, at: int, is_slow: bool
    ) -> None:
        """No pass of a master comes by in between; what the node had said may come by later."""
        node = self.there.nodes[at]
        if not node.is_up or self.alone_at(node.host):
            return
        place = self._save(node)
        self.all_goes_well_for_a_while(0, "root.wind", False)
        if self.alone_at(node.host):
            return
        said, before = node.said, node.home.start
        node.restored(place, home=False)
        self._reads_through(node)
        self.world_took(node.host)
        try:
            node.report()
        except TsferryError:
            return
        self.burnt.discard(node.host)
        if is_slow and said is not None and said.start == before:
            node.late.append(said)
            node.arrive()
        self.an_edge_asks()

    @rule(at=MASTER, pick=_PICK)
    def a_stand_by_takes_over_and_an_operator_forgets_the_node_that_has_a_file_alone(
        self, at: int, pick: int
    ) -> None:
        """Its machine is lost, with its disks, and one of two nodes does not come back."""
        self.all_goes_well_for_a_while(pick % 2, "root.sun", False)
        self.a_master_begins_anew(at, own=False)
        holders = [each for each in range(4) if self.there.nodes[each].tablets_in_use()]
        if len(holders) < 2:
            return
        away, alone = holders[pick % len(holders)], holders[(pick + 1) % len(holders)]
        if self.alone_at(self.there.nodes[away].host):
            return
        self.there.nodes[away].burn()
        self.there.nodes[away].stop()
        self.world_took(self.there.nodes[away].host)
        self.burnt.discard(self.there.nodes[away].host)  # nobody has heard of it in this life
        self.nodes_report_and_pull()
        self.there.nodes[alone].stop()
        self.there.pass_time(6.0)
        self.there.pass_time(6.0)
        self.an_operator_forgets_a_node_and_wipes_it(alone)
        self.there.nodes[away].start()

    @rule(at=NODE, steps=st.lists(st.booleans(), min_size=1, max_size=4))
    def a_clone_of_a_node_runs_beside_it(self, at: int, steps: list[bool]) -> None:
        """Until somebody ends it; the node is accepted again if it is refused."""
        node = self.there.nodes[at]
        if not node.is_up or len(self.there.nodes) > 4:
            return
        clone = self.there.add(f"{node.host}clone", of=node)
        for is_clone in steps:
            self._goes_on(clone if is_clone else node)
        clone.stop()
        self.there.nodes.remove(clone)
        shutil.rmtree(clone.root)
        for path in self.loaded - self.deleted:
            if not self.whole_at(path) and not self.burnt:
                raise AssertionError(f"{path} was at the clone alone, and was told to be loaded")
        self.world_took(node.host)

    @rule(at=NODE, pick=_PICK, again=st.booleans())
    def bytes_of_a_node_rot(self, at: int, pick: int, again: bool) -> None:
        """And it finds that out, by itself; its master hears it later.

        Or at once, and then once more what the node had said before.
        """
        node = self.there.nodes[at]
        paths = [each for each in sorted(self.contents) if node.host in self.whole_at(each)]
        paths = [each for each in paths if len(self.whole_at(each)) > 1]
        if not paths or not node.is_up:
            return
        path = paths[pick % len(paths)]
        place = self.found_at(node, path)
        assert place is not None
        content = bytearray(place.read_bytes())
        content[len(content) // 2] ^= 1
        place.write_bytes(content)
        self._reads_through(node)
        self.world_took(node.host)
        if not again:
            return
        try:
            node.report()
        except TsferryError:
            return
        self.burnt.discard(node.host)
        if node.said is not None:
            node.late.append(node.said)
            node.arrive()
        self.an_edge_asks()

    def _reads_through(self, node: HomedNode) -> None:
        """It has found out what has rotted there, before it speaks: that nobody can know else."""
        for tablet in node.store.tablets():
            for name in [*node.store.replica(tablet).files()]:
                node.read_again(tablet, name)

    @rule(at=NODE)
    def a_node_is_slow_to_say_what_it_has(self, at: int) -> None:
        """What it says arrives behind what it says later."""
        node = self.there.nodes[at]
        if node.is_slow:
            node.is_slow = False
            node.arrive()
        else:
            node.is_slow = True

    # -- a log that is turned back -------------------------------------------------------------

    @rule()
    def a_copy_is_made_of_the_log(self) -> None:
        if not self.is_turned_back:
            self.log_kept = list(self.there.place.log)

    @rule(at=MASTER)
    def the_history_of_a_master_ends(self, at: int) -> None:
        """What was committed before cannot be looked up any more."""
        master = self.there.masters[at]
        if self._leads(master) and self.there.may_speak(master.name, "log"):
            master.engine.commit([records.KeysWritten((), {"k": "v"})])
            with master.engine.reading():
                master.engine._window.move(master.engine.newest_commit)

    @rule(
        power=st.booleans(),
        partition=st.integers(0, 1),
        group=GROUP,
        away=st.booleans(),
        drops=st.booleans(),
        trusts=st.booleans(),
        further=st.sampled_from((0, 40)),
    )
    def the_log_is_turned_back(
        self,
        power: bool,
        partition: int,
        group: str,
        away: bool = False,
        drops: bool = False,
        trusts: bool = False,
        further: int = 0,
    ) -> None:
        """Whoever leads then has never heard of what edges were told since.

        It makes so many commits more before it meets a node: where clocks were set back, some of
        its own have the numbers of some that it never had.

        Edges are refused from then on: what they know is of commits that are not there. Nodes may
        be away for longer than the history, while a table is dropped of which they have more.
        """
        if self.is_turned_back or self.log_kept is None:
            return
        self.all_goes_well_for_a_while(partition, group, evicts=False)
        self.is_turned_back = True
        for master in self.there.masters:
            if master.is_alive:
                master.die()
        for node in self.there.nodes if power or away else ():
            node.stop(power=power)
        self.there.place.log[:] = self.log_kept
        self.there.place.owner = None
        self.there.masters[0].take_over()
        for _ in range(further):
            self.there.masters[0].engine.commit([records.KeysWritten((), {"k": "v"})])
        if drops:
            self.an_operator_drops_a_table(group)
            self.what_was_deleted_is_forgotten()
        if away:
            self.the_history_of_a_master_ends(0)
        for node in self.there.nodes:
            if not node.is_up:
                node.start()
            if trusts:
                self._a_human_trusts_it_at_once(node)
        self.all_go_on(3)

    def _a_human_trusts_it_at_once(self, node: HomedNode) -> None:
        """Before the node has asked for any list, and it starts anew."""
        try:
            node.report()
        except TsferryError:
            return
        self.burnt.discard(node.host)
        if node.home.doubt:
            node.confirm_master()
            node.stop()
            node.start()

    # -- operators -----------------------------------------------------------------------------

    @rule(group=GROUP)
    def an_operator_drops_a_table(self, group: str) -> None:
        def drop(master: OneOfTwo) -> None:
            with master.engine.reading() as state:
                table = state.loaded_tables.named(group)
                rows = [row for row in state.files.values() if row.parsed.sg == group]
                rows = [row for row in rows if row.state is not FileState.DELETED]
                names = {row.physical for row in rows}
            if table is None:
                return
            ops: list[records.Op] = [
                records.FileDeleted(each.physical, "operator") for each in rows
            ]
            master.engine.commit([*ops, records.TableDropped(table.id)])
            for path in [*self.contents]:
                if names & self.names_of(path).keys():
                    self.deleted.add(path)
                    self.least.pop(path, None)

        self._ask(drop)

    @rule()
    def what_was_deleted_is_forgotten(self) -> None:
        """The history has ended, and the reaper has come by."""

        def forget(master: OneOfTwo) -> None:
            with master.engine.reading() as state:
                rows = [*state.files.values()]
                gone = [row.physical for row in rows if row.state is FileState.DELETED]
                tables = state.loaded_tables.dropped()
            for each in gone:
                (master.world.data / each).unlink(missing_ok=True)
                master.engine.commit([records.FileForgotten(each)])
            for table in tables:
                if master.copies.may_forget(table):
                    master.engine.commit([records.TableForgotten(table.id)])

        self._ask(forget)

    @rule(at=NODE)
    def an_operator_forgets_a_node_and_wipes_it(self, at: int) -> None:
        """Which is refused as long as something is known to be there alone."""
        node = self.there.nodes[at]
        wiped: list[str] = []
        if self.is_turned_back:
            return  # of what the master does not know it can warn nobody

        def forget(master: OneOfTwo) -> None:
            with master.engine.reading() as state:
                row = state.node_table.rows.get(node.uuid)
            if row is not None and row.lost:
                return  # a human has said already that nothing is there
            forget_node(master.operator(), node.uuid)
            wiped.append(node.uuid)

        self._ask(forget)
        if not wiped:
            return
        leader = next((each for each in self.there.masters if self._leads(each)), None)
        here = set() if leader is None else self._on_disk(leader)
        for path in self.loaded - self.deleted - here:
            had = {*self.whole_at(path), *self.burnt} - {node.host}
            assert had or self.is_kept_elsewhere(path), (
                f"{path} is at {node.host} alone, which was forgotten"
            )
        if self.alone_at(node.host):
            return  # the master has it on its own disks: who is careful waits for another node
        node.stop()
        shutil.rmtree(node.root)
        node.disks = ["disk0"]
        node.start()
        self.world_took(node.host)

    def is_kept_elsewhere(self, path: str) -> bool:
        """Whether a file is whole where neither nodes nor a master's disks are."""
        del path
        return False

    @rule(at=NODE)
    def an_operator_says_that_a_node_is_lost_or_found(self, at: int) -> None:
        uuid = self.there.nodes[at].uuid

        def say(master: OneOfTwo) -> None:
            with master.engine.reading() as state:
                row = state.node_table.rows.get(uuid)
            if row is None:
                return
            if row.lost:
                declare_node_found(master.operator(), uuid)
            else:
                lose_node(master.operator(), uuid, LossRequest(confirm=True))

        self._ask(say)

    # -- the end -------------------------------------------------------------------------------

    def _leads(self, master: OneOfTwo) -> bool:
        return (
            master.works
            and master.engine.displaced() is None
            and self.there.place.owner is master.remote
        )

    def all_is_well_in_the_end(self) -> None:
        for node in self.there.nodes:
            node.free = 1 << 40
            node.is_slow = node.lies = False
            node.arrive()
        self._humans_do_what_they_are_asked()
        if self.is_turned_back:
            self.what_a_turned_back_master_does_not_know_is_offered()
            return
        self.what_is_merged_and_lost_is_found_out()
        super().all_is_well_in_the_end()
        leader = next(each for each in self.there.masters if self._leads(each))
        for path in self.loaded - self.deleted:
            row = self._row(leader, path)
            assert row is not None
            assert leader.fetched(row) == self.names_of(path)[row.physical]

    def what_a_turned_back_master_does_not_know_is_offered(self) -> None:
        """Before and behind the word of a human that it is right all the same."""
        for _ in range(2):
            self.all_go_on(4)
            self.nodes_report_and_pull()  # the last pass may have dropped what they had told
            self.nothing_but_the_world_takes_copies()
            leader = next(each for each in self.there.masters if self._leads(each))
            offered, silent = leader.copies.offers.find(1000)
            assert not {*silent} & {each.uuid for each in self.there.nodes}
            names = {each.file.physical for each in offered}
            for path in self.loaded - self.deleted:
                is_here = bool(self.whole_at(path))
                assert is_here, f"{path} is nowhere"
                is_offered = bool(names & self.names_of(path).keys())
                assert self._row(leader, path) or is_offered, f"{path} is not offered"
            for node in self.there.nodes:
                if node.home.doubt:
                    assert "nodes confirm-master" in node.home.doubt
                    node.confirm_master()

    def _humans_do_what_they_are_asked(self) -> None:
        """A node that is refused says which command lets it go on; a lost one is found again."""
        self.there.parted.clear()
        self.there.pass_time(LEASE + 1)
        self.somebody_leads()
        for node in self.there.nodes:
            if not node.is_up:
                node.start()
            for _ in range(4):
                if not node.goes_on() and node.refused:
                    self._ask(lambda master, node=node: self._lets_go_on(master, node))  # type: ignore[misc]
            assert not node.refused, node.refused

    def _lets_go_on(self, master: OneOfTwo, node: HomedNode) -> None:
        if "nodes found" in node.refused:
            declare_node_found(master.operator(), node.uuid)
        else:
            assert "nodes accept" in node.refused, node.refused
            master.manager.accept(node.uuid)
