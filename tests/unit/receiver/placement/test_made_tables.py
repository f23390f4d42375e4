"""Tables made by hand: placed ahead of their files, with as many replicas as they are to have."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import crash, wire
from receiver.load.upkeep.table_upkeep import TableUpkeep
from receiver.metadata.commit.table_creation import TableAlteration, alter_table, create_table
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.placement.assigning.replica_condition import ReplicaCondition
from receiver.placement.node_orders import NodeOrders
from receiver.placement.upload_nodes import UploadNodes
from receiver.tablet_copies.read_tickets import TicketMaker
from tests.support.copy_nodes import CopyCentre
from tests.support.spark_world import World


@pytest.fixture
def centre(tmp_path: Path):
    centre = CopyCentre(tmp_path, lost_after=60.0)
    yield centre
    centre.close()


def states(centre: CopyCentre) -> list[tuple[int, int, bool]]:
    """(first partition, nodes, whether it runs) of each tablet that is placed."""
    with centre.engine.reading() as state:
        rows = [
            (state.tablet_table.rows[row.tablet].begin, len(row.nodes), bool(row.running))
            for row in state.placement_table.rows.values()
        ]
    return sorted(rows)


def test_the_first_file_of_a_tablet_that_was_made_goes_to_its_leader_at_once(centre: CopyCentre):
    for _ in range(3):
        centre.add()
    maker = TicketMaker()
    uploads = UploadNodes(
        centre.engine,
        lambda: {each.uuid: each.view() for each in centre.nodes},
        maker,
        NodeOrders(),
        least=1000,
    )
    for each in centre.nodes:
        maker.key_for(each.uuid, "boot")
    entry = wire.PlanEntry(
        path="sequence/root.wind/0/7/9-9-0-0.tsfile", size=5000, tail="t" * 32, md5="m" * 32
    )
    create_table(centre.engine, "root.wind", [4, 8, 12])
    assert uploads.offer("e" * 32, "1" * 32, entry, ()) is None  # it does not run yet
    centre.settle(1)
    assert states(centre) == [(4, 2, True), (8, 2, True)]
    offered = uploads.offer("e" * 32, "1" * 32, entry, ())
    assert offered is not None
    with centre.engine.reading() as state:
        [(tablet, row)] = [
            (each, state.placement_table.rows[each.id])
            for each in state.tablet_table.rows.values()
            if each.begin == 4
        ]
    assert offered.uuid == row.leader
    physical = centre.load(7)
    centre.settle()
    assert sorted(row.nodes) == centre.has(physical)
    [there] = [each for each in centre.nodes if each.uuid == row.leader]
    assert there.files(tablet.id) == [physical]


def test_a_table_has_as_many_replicas_as_it_says_and_others_as_many_as_configured(
    centre: CopyCentre,
):
    for _ in range(4):
        centre.add()
    create_table(centre.engine, "root.wind", [0, 1], replicas=3)
    physical = centre.load(0)
    other = centre.load(0, "root.sun")
    centre.settle()
    assert (len(centre.has(physical)), len(centre.has(other))) == (3, 2)
    nodes = {each.uuid: each.view() for each in centre.nodes}
    condition = ReplicaCondition(centre.book, lambda: nodes, 0, safe=2)
    centre.draining.clear()
    with centre.engine.reading() as state:
        assert condition.is_safe(state, state.files[physical])
        nodes[centre.has(physical)[0]] = nodes[centre.has(physical)[0]]._replace(is_down=True)
        assert not condition.is_safe(state, state.files[physical])  # two of three


def test_fewer_replicas_go_once_the_others_have_all_and_more_come(centre: CopyCentre):
    for _ in range(3):
        centre.add()
    create_table(centre.engine, "root.wind", [0, 1], replicas=3)
    physical = centre.load(0)
    centre.settle()
    alter_table(centre.engine, "root.wind", TableAlteration(replicas=1))
    centre.settle()
    assert [each.names() for each in centre.nodes].count([physical]) == 1
    alter_table(centre.engine, "root.wind", TableAlteration(is_as_configured=True))
    centre.settle()
    assert len(centre.has(physical)) == 2


def test_with_more_replicas_than_nodes_those_there_are_have_it_and_it_is_told(centre: CopyCentre):
    centre.add(), centre.add()
    create_table(centre.engine, "root.wind", [0, 2], replicas=3)
    centre.settle()
    assert states(centre) == [(0, 2, True)]
    assert centre.assignment.last.short == 1
    centre.add()
    centre.settle()
    assert states(centre) == [(0, 3, True)]
    assert centre.assignment.last.short == 0


@pytest.mark.parametrize("is_silent", [False, True])
def test_an_empty_tablet_leaves_a_node_that_is_emptied_or_silent_for_good(
    centre: CopyCentre, is_silent: bool
):
    for _ in range(3):
        centre.add()
    create_table(centre.engine, "root.wind", [0, 2])
    centre.settle()
    [tablet] = centre.tablets()
    node = next(each for each in centre.nodes if each.uuid in centre.placed())
    if is_silent:
        node.is_silent = True
        centre.silence[node.uuid] = 61.0
        centre.settle()
        node.is_silent = False
        centre.silence.clear()
    else:
        centre.draining.add(node.uuid)
    centre.settle()
    assert node.uuid not in centre.placed()
    assert node.store.tablets() == []
    assert sum(tablet in each.store.tablets() for each in centre.nodes) == 2


def test_a_tablet_that_was_replaced_by_time_out_and_reports_late_is_dropped_though_it_is_empty(
    centre: CopyCentre,
):
    centre.add(), centre.add()
    create_table(centre.engine, "root.wind", [0, 2])
    centre.assignment.run_once()
    slow = centre.nodes[0]
    assert slow.store.tablets() == centre.tablets()
    slow.is_silent = True  # its report does not come
    centre.add()
    centre.settle()
    centre.now += 31
    centre.settle()
    assert slow.uuid not in centre.placed()
    slow.is_silent = False
    centre.settle()
    assert slow.store.tablets() == []
    assert states(centre) == [(0, 2, True)]


def test_a_master_that_restarts_while_a_made_table_is_being_created_goes_on(centre: CopyCentre):
    centre.add(), centre.add()
    create_table(centre.engine, "root.wind", [0, 2, 4], replicas=2)
    centre.assignment.run_once()
    assert states(centre) == [(0, 2, False), (2, 2, False)]
    before = dict.fromkeys(centre.tablets(), ()) | {
        each: centre.placed(each) for each in centre.tablets()
    }
    centre.assignment.close()
    centre.engine.close()
    centre.world = World.reopened(centre.world.root)
    centre.live()
    centre.settle()
    assert states(centre) == [(0, 2, True), (2, 2, True)]
    assert {each: centre.placed(each) for each in centre.tablets()} == before


@pytest.mark.parametrize(
    "place", ["assignment.placed", "assignment.make_call", "assignment.running", "copies.made"]
)
def test_a_table_that_is_deleted_at_any_step_of_its_creation_leaves_nothing_at_a_node(
    centre: CopyCentre, place: str
):
    centre.add(), centre.add()
    create_table(centre.engine, "root.wind", [0, 2, 4], replicas=2)
    gone: list[str] = []

    def delete(here: str) -> None:
        if here == place and not gone:
            gone.append(here)
            centre.engine.delete_storage_group("root.wind")

    with crash.arm(delete):
        centre.settle()
    assert gone == [place]
    centre.settle()
    assert [each.on_disk() for each in centre.nodes] == [[], []]
    assert centre.assignment.last.strange == frozenset()
    with centre.engine.reading() as state:
        assert not list(state.loaded_tables.there())


def test_a_deleted_table_of_empty_tablets_is_forgotten_with_all_of_these(centre: CopyCentre):
    """Those by hand and those that were made for a plan, at the nodes and here."""
    centre.add(), centre.add()
    ident, _ = create_table(centre.engine, "root.wind", [0, 2, 4], replicas=2)
    centre.engine.commit([records.TabletMade("e" * 32, ident, 9, 10)])
    centre.settle()
    assert [len(each.store.tablets()) for each in centre.nodes] == [3, 3]
    centre.engine.delete_storage_group("root.wind")
    centre.settle()
    assert [each.on_disk() for each in centre.nodes] == [[], []]
    with centre.engine.reading() as state:
        assert len(state.tablet_table.rows) == 3
        centre.engine.window.move(centre.engine.newest_commit)
    assert TableUpkeep(centre.engine).forget() == 1
    with centre.engine.reading() as state:
        assert state.tablet_table.rows == state.placement_table.rows == {}


def test_a_table_that_goes_before_its_placement_is_committed_costs_others_one_pass(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
):
    centre.add(), centre.add()
    create_table(centre.engine, "root.wind", [0, 2])
    create_table(centre.engine, "root.sun", [0, 2])
    commit = centre.engine.commit

    def late(ops, guards=()):  # type: ignore[no-untyped-def]
        monkeypatch.undo()
        centre.engine.delete_storage_group("root.wind")
        return commit(ops, guards)

    monkeypatch.setattr(centre.engine, "commit", late)
    with pytest.raises(RefusedCommitError, match="there is no tablet"):
        centre.assignment.run_once()
    assert centre.orders == []  # nothing is asked for that is not committed
    centre.settle()
    assert states(centre) == [(0, 2, True)]


def test_no_node_is_alive_and_the_tablets_come_when_one_is(centre: CopyCentre):
    node = centre.add()
    node.is_silent = True
    create_table(centre.engine, "root.wind", [0, 2, 4])
    centre.settle()
    assert states(centre) == []
    assert centre.assignment.last.short == 2
    node.is_silent = False
    centre.settle()
    assert states(centre) == [(0, 1, True), (2, 1, True)]
