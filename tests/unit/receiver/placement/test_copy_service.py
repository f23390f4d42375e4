"""The copies of a real receiver: places for readers, sources for nodes, tickets by heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common.errors import CloneError, NotFoundError
from receiver.heartbeats.node_wire import DirectoryRoom, ReportedTablet
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.namespace.table_lists import list_tablets
from receiver.operator.places.copies import copies_view
from receiver.operator.places.remote_nodes import node_totals, remote_node_concerns
from receiver.tablet_copies.copies_wire import HeldCopies, HeldCopy
from receiver.tablet_copies.read_tickets import TicketKeys
from tests.support.heard_nodes import SpeakingNode
from tests.support.node_world import Edge, World, path_of, tsfile


class Copied:
    """A receiver with a loaded file whose tablet is placed at two nodes."""

    def __init__(self, node: Node, root: Path) -> None:
        self.node = node
        edge = Edge(node)
        edge.check()
        edge.round({path_of(1): tsfile()})
        self.nodes = [SpeakingNode(root / name) for name in ("one", "two")]
        for each in self.nodes:
            each.settle(node.nodes)
        with node.engine.reading() as state:
            [self.physical] = state.files
            [self.tablet] = state.tablet_table.rows
        self.uuids = [each.uuid for each in self.nodes]
        node.engine.commit([records.TabletPlaced(self.tablet, 1, self.uuids, self.uuids[0])])

    def complete(self, each: SpeakingNode) -> None:
        lists = self.node.copies.lists
        lists.news(each.uuid, 0)
        page = lists.page(each.uuid, self.tablet, None, "", 0)
        copy = HeldCopy(tablet=self.tablet, generation=1, commit=page.commit, digest="0" * 32)
        self.node.copies.held(HeldCopies(start=each.home.start, copies=[copy]))

    def hand_over(self, each: SpeakingNode) -> TicketKeys:
        keys = TicketKeys()
        for _ in range(2):
            answer = each.say(self.node.nodes)
            assert answer.ticket_key is not None
            keys.take(answer.ticket_key)
        return keys


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Copied]:
    with World(tmp_path).node() as node:
        made = Copied(node, tmp_path)
        yield made
        for each in made.nodes:
            each.close()


def test_readers_are_sent_to_nodes_that_have_a_file_with_tickets_that_these_take(copied: Copied):
    one, two = copied.nodes
    service = copied.node.copies
    keys = copied.hand_over(one)
    assert service.places(copied.physical) == []
    copied.complete(one)
    [place] = service.places(copied.physical)
    assert (place.url, place.tablet) == (one.url, copied.tablet)
    keys.check(place.ticket, copied.tablet)
    copied.hand_over(two)
    copied.complete(two)
    assert [each.url for each in service.places(copied.physical)] == [one.url, two.url]
    with pytest.raises(NotFoundError):
        service.places("sequence/root.x/0/0/1-1-0-0.tsfile")


def test_a_follower_pulls_from_the_leader_once_that_has_it_and_never_from_itself(copied: Copied):
    one, two = copied.nodes
    lists = copied.node.copies.lists

    def source(uuid: str) -> str | None:
        found = lists.page(uuid, copied.tablet, None, "", 0).source
        return None if found is None else found.url

    copied.hand_over(one)
    assert source(two.uuid) is None
    copied.complete(one)
    assert source(two.uuid) == one.url
    assert source(one.uuid) is None


def test_what_another_start_has_said_does_not_count(copied: Copied):
    one = copied.nodes[0]
    copied.hand_over(one)
    copied.complete(one)
    assert len(copied.node.copies.places(copied.physical)) == 1
    old = one.home.start
    one.restart()
    one.settle(copied.node.nodes)
    copied.hand_over(one)
    said = HeldCopies(start=old, copies=[])
    with pytest.raises(CloneError):
        copied.node.copies.held(said)
    assert copied.node.copies.places(copied.physical) == []
    copied.complete(one)
    assert len(copied.node.copies.places(copied.physical)) == 1


def test_a_node_that_comes_back_on_an_older_disk_counts_for_nothing_from_its_registration_on(
    copied: Copied,
):
    """No pass has to come by first: an edge that asks in between may delete by the answer."""
    one, service = copied.nodes[0], copied.node.copies
    copied.hand_over(one)
    copied.complete(one)
    with copied.node.engine.reading() as state:
        assert service.condition.count(state, state.files[copied.physical]) == 1
    one.restart()
    one.settle(copied.node.nodes)
    with copied.node.engine.reading() as state:
        assert service.condition.count(state, state.files[copied.physical]) == 0


def test_a_tablet_is_shown_with_its_nodes_and_runs_when_the_leader_reports_it(copied: Copied):
    def shown():
        [view] = list_tablets(copied.node.operator, "root.sg").tablets
        return view.nodes, view.placed, view.generation

    assert shown() == (tuple(copied.uuids), "creating", 1)
    one, two = copied.nodes
    for each, expected in ((two, "creating"), (one, "running")):
        each.store.put(ReportedTablet(id=copied.tablet, generation=1))
        each.settle(copied.node.nodes)
        copied.node.copies.assignment.run_once()
        assert shown()[1] == expected
    assert msgspec.json.decode(msgspec.json.encode(shown()))[2] == 1


@pytest.mark.parametrize("end", ["it has none", "it is lost"])
def test_a_dropped_table_is_remembered_past_the_history_while_a_node_that_was_offline_may_have_it(
    copied: Copied, end: str
):
    """Else what it has would be unknown when it comes, and stay for ever."""
    one, two = copied.nodes
    for each in copied.nodes:
        each.store.put(ReportedTablet(id=copied.tablet, generation=1))
        each.settle(copied.node.nodes)
    with copied.node.engine.reading() as state:
        [table] = state.loaded_tables.there()
    gone = [records.FileDeleted(copied.physical, "operator"), records.TableDropped(table.id)]
    copied.node.engine.commit(gone)
    service = copied.node.copies
    assert not service.may_forget(table)
    _drops(one, copied)
    assert not service.may_forget(table)  # the other one has been silent for a day, say
    copied.node.nodes._heard.pop(two.uuid)  # and was not heard since a restart of the master
    assert not service.may_forget(table)
    if end == "it is lost":
        copied.node.engine.commit([records.NodeLost(two.uuid, lost=True)])
        service._looked = None  # a moment later
    else:
        _drops(two, copied)
    assert service.may_forget(table)


def _drops(node: SpeakingNode, copied: Copied) -> None:
    del node.store.tablets[copied.tablet]
    node.restart()  # the next report is a full one
    node.settle(copied.node.nodes)


def test_a_copy_comes_back_though_another_file_of_its_tablet_is_nowhere(copied: Copied):
    one, two = copied.nodes
    copied.hand_over(one)
    copied.hand_over(two)
    copied.complete(two)
    service = copied.node.copies
    assert [each.url for each in service.places(copied.physical)] == [two.url]
    found = service.back._places(copied.physical)
    assert [each.url for each in found] == [two.url, one.url]
    two.restart()
    two.settle(copied.node.nodes)
    copied.hand_over(two)
    service.assignment.run_once()
    assert service.places(copied.physical) == []  # it lists what it cannot pull
    assert {each.url for each in service.back._places(copied.physical)} == {one.url, two.url}


@pytest.mark.parametrize("end", ["it has none", "it is lost"])
def test_a_tablet_is_empty_when_all_nodes_say_so(copied: Copied, end: str):
    """What is not known of a node is the worst: it may be of a master that knew more."""
    one, two = copied.nodes
    service = copied.node.copies
    with copied.node.engine.reading() as state:
        tablet = state.tablet_table.rows[copied.tablet]
    for each in copied.nodes:
        each.store.put(ReportedTablet(id=copied.tablet, generation=1, files=1))
        each.settle(copied.node.nodes)
    assert not service.is_empty(tablet)
    for each in copied.nodes:
        each.store.put(ReportedTablet(id=copied.tablet, generation=1))
        each.settle(copied.node.nodes)
    assert service.is_empty(tablet)
    assert not service.has_gone(tablet)
    copied.node.nodes._heard.pop(two.uuid)  # it was not heard since a restart of the master
    assert not service.is_empty(tablet)
    if end == "it is lost":
        copied.node.engine.commit([records.NodeLost(two.uuid, lost=True)])
        service._looked = None  # a moment later
    else:
        _drops(two, copied)
    assert service.is_empty(tablet)
    assert not service.has_gone(tablet)
    _drops(one, copied)
    assert service.has_gone(tablet)


def test_a_tablet_is_kept_while_a_node_that_another_one_stands_in_for_may_have_files_of_it(
    copied: Copied,
):
    one, two = copied.nodes
    service, engine = copied.node.copies, copied.node.engine
    with engine.reading() as state:
        tablet = state.tablet_table.rows[copied.tablet]
        placed = state.placement_table.rows[copied.tablet]
    one.store.put(ReportedTablet(id=copied.tablet, generation=1))
    two.store.put(ReportedTablet(id=copied.tablet, generation=1, files=1))
    for each in copied.nodes:
        each.settle(copied.node.nodes)
    alone = records.TabletPlaced(copied.tablet, placed.generation + 1, (one.uuid,), one.uuid)
    engine.commit([alone])  # the other one is away
    assert not service.is_empty(tablet)
    _drops(two, copied)
    assert service.is_empty(tablet)


@pytest.mark.parametrize("away", ["it is silent", "a directory is away", "it began without one"])
def test_the_last_word_of_a_node_that_is_away_is_no_reason_to_forget_what_it_may_have(
    copied: Copied, away: str
):
    """A file may have come behind it; or what lay in that directory is not reported any more."""
    two, service = copied.nodes[1], copied.node.copies
    with copied.node.engine.reading() as state:
        tablet = state.tablet_table.rows[copied.tablet]
    assert service.is_empty(tablet)
    assert service.has_gone(tablet)
    heard = copied.node.nodes.heard(two.uuid)
    assert heard is not None
    if away == "it is silent":
        heard.heard -= copied.node.config.nodes.timeout + 1
    else:
        begun = away == "a directory is away"
        heard.directories = [DirectoryRoom(path="/d", problem="x", begun=begun)]
    service._looked = None  # a moment later
    assert not service.is_empty(tablet)
    assert not service.has_gone(tablet)


@pytest.mark.parametrize("away", ["it is silent", "a directory is away"])
def test_a_tablet_is_not_shown_as_whole_while_one_of_its_nodes_counts_for_nothing(
    copied: Copied, away: str
):
    for each in copied.nodes:
        copied.complete(each)
    assert copies_view(copied.node.operator).whole == 1
    service = copied.node.copies
    heard = copied.node.nodes.heard(copied.uuids[1])
    assert heard is not None
    if away == "it is silent":
        heard.heard -= copied.node.config.nodes.timeout + 1
    else:
        heard.directories = [DirectoryRoom(path="/d", problem="x", begun=True)]
    service._looked = None  # a moment later
    assert copies_view(copied.node.operator).whole == 0


@pytest.mark.parametrize("begun", [True, False])
def test_a_node_that_misses_a_directory_is_told_of_at_the_master(copied: Copied, begun: bool):
    there = copied.node.operator
    assert remote_node_concerns(node_totals(there)) == []
    heard = copied.node.nodes.heard(copied.uuids[1])
    assert heard is not None
    heard.directories = [DirectoryRoom(path="/d", problem="x", begun=begun)]
    totals = node_totals(there)
    assert (totals.down, totals.partial) == (0, 1)
    assert "1 of 2 storage nodes miss a directory" in " ".join(remote_node_concerns(totals))
    heard.heard -= copied.node.config.nodes.timeout + 1
    assert (node_totals(there).down, node_totals(there).partial) == (1, 0)
