"""Copies of tablets at nodes: they come, follow, survive the loss of a node, and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import BusyError, NotFoundError
from common.wire import Result
from receiver.metadata.model import records
from receiver.placement.assigning.choosing_nodes import ChosenLoad, PlacementWish, chosen_nodes
from receiver.placement.assigning.replica_condition import ReplicaCondition
from receiver.placement.placeable_nodes import PlaceableNode
from receiver.transfer.acknowledging import Acknowledging
from tests.support.copy_nodes import CopyCentre
from tests.support.spark_world import World


@pytest.fixture
def centre(tmp_path: Path):
    centre = CopyCentre(tmp_path, lost_after=60.0)
    yield centre
    centre.close()


def test_a_file_comes_to_as_many_nodes_as_are_wanted_and_is_whole_there(centre: CopyCentre):
    first, second, third = centre.add(), centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    having = [each for each in (first, second, third) if each.names() == [physical]]
    assert len(having) == 2
    assert centre.has(physical) == sorted(each.uuid for each in having)
    content = (centre.world.data / physical).read_bytes()
    for node in having:
        [tablet] = node.store.tablets()
        [path] = (each / "tablets" / tablet / physical for each in node.paths)
        assert path.read_bytes() == content
    assert centre.assignment.last.short == 0


def test_a_placement_runs_once_its_leader_has_reported_it_and_not_before(centre: CopyCentre):
    centre.add(), centre.add()
    centre.load()
    centre.assignment.run_once()
    [tablet] = centre.tablets()

    def row():
        with centre.engine.reading() as state:
            return state.placement_table.rows[tablet]

    leader = next(each for each in centre.nodes if each.uuid == row().leader)
    follower = next(each for each in centre.nodes if each is not leader)
    centre.report(follower)
    centre.assignment.run_once()
    assert not row().running
    centre.report(leader)
    centre.assignment.run_once()
    assert row().running


def test_new_files_come_by_a_delta_and_what_is_forgotten_goes(centre: CopyCentre):
    centre.add(), centre.add()
    old = [centre.load() for _ in range(5)]
    centre.settle()
    for node in centre.nodes:
        node.pulled.clear()
    new = centre.load()
    centre.end(old[0])
    centre.end(old[1], forget=False)
    centre.settle(1)
    for node in centre.nodes:
        assert node.names() == sorted([*old[1:], new])  # deleted and not forgotten: it stays
        assert [each for _, each in node.pulled] == [new]
    assert len(centre.has(new)) == 2


def test_a_file_is_counted_only_where_it_is_and_only_by_a_list_that_was_given(centre: CopyCentre):
    first, second = centre.add(), centre.add()
    centre.load()
    centre.settle()
    new = centre.load()
    assert centre.has(new) == []
    centre.pull(first)
    assert centre.has(new) == [first.uuid]
    [tablet] = centre.tablets()
    newest = centre.engine.newest_commit
    assert not centre.book.said(second.uuid, tablet, 1, newest)
    assert centre.has(new) == [first.uuid]
    centre.pull(second)
    assert centre.has(new) == sorted([first.uuid, second.uuid])


def test_a_node_that_is_lost_is_made_up_for_by_another(centre: CopyCentre):
    centre.add(), centre.add()
    files = [centre.load(), centre.load(3)]
    centre.settle()
    gone, left = centre.nodes
    gone.stop()
    centre.lost.add(gone.uuid)
    centre.settle()
    assert centre.assignment.last.short == 2
    assert centre.has(files[0]) == [left.uuid]
    late = centre.add()
    new = centre.load()
    centre.settle()
    assert centre.assignment.last.short == 0
    for each in (*files, new):
        assert centre.has(each) == sorted([left.uuid, late.uuid])


def test_a_silent_node_is_made_up_for_after_its_time_and_not_before(centre: CopyCentre):
    for _ in range(3):
        centre.add()
    physical = centre.load()
    centre.settle()
    before = centre.placed()
    silent = next(each for each in centre.nodes if each.uuid in before)
    silent.is_silent = True
    centre.silence[silent.uuid] = 59.0
    centre.settle()
    assert centre.placed() == before
    centre.silence[silent.uuid] = 61.0
    centre.settle()
    assert silent.uuid not in centre.placed()
    assert len(centre.has(physical)) == 2
    assert silent.names() == [physical]  # nothing is deleted for silence

    silent.is_silent = False  # it comes back, and what it has is not needed any more
    del centre.silence[silent.uuid]
    centre.settle()
    assert silent.names() == []
    assert ("drop", silent.uuid, centre.tablets()[0], 1) in centre.orders


def test_with_one_copy_silence_moves_nothing(tmp_path: Path):
    centre = CopyCentre(tmp_path, 1, lost_after=60.0)
    centre.add(), centre.add()
    centre.load()
    centre.settle()
    before = centre.placed()
    node = next(each for each in centre.nodes if each.uuid in before)
    node.is_silent = True
    centre.silence[node.uuid] = 1e6
    centre.settle()
    assert centre.placed() == before
    centre.close()


def test_a_node_that_is_emptied_keeps_all_until_another_has_it(centre: CopyCentre):
    centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    emptied = centre.nodes[0]
    centre.draining.add(emptied.uuid)
    centre.settle()
    assert emptied.names() == [physical]
    other = centre.add()
    centre.assignment.run_once()
    centre.report()
    centre.assignment.run_once()
    assert emptied.names() == [physical]  # placed elsewhere, and not there yet
    centre.settle()
    assert emptied.names() == []
    assert other.names() == [physical]
    assert len(centre.has(physical)) == 2


def test_two_copies_never_lie_on_one_host(centre: CopyCentre):
    centre.add(), centre.add(), centre.add()
    centre.nodes[1].host = centre.nodes[0].host
    for partition in range(6):
        centre.load(partition)
    centre.settle()
    third = centre.nodes[2].uuid
    for tablet in centre.tablets():
        assert third in centre.placed(tablet)
        assert len(centre.placed(tablet)) == 2


def test_tablets_are_spread_over_nodes(centre: CopyCentre):
    for _ in range(4):
        centre.add()
    for partition in range(40):
        centre.load(partition)
    centre.assignment.run_once()
    counts = [sum(n.uuid in centre.placed(t) for t in centre.tablets()) for n in centre.nodes]
    assert sum(counts) == 80
    assert min(counts) >= 12


def test_the_same_nodes_give_the_same_placement():
    nodes = {f"{n}": PlaceableNode(f"{n}", f"h{n}", url="http://x", free=1 << 30) for n in range(9)}
    wish = PlacementWish("t", 1, 10, 3)
    found = [chosen_nodes(wish, nodes, ChosenLoad()) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 3


def test_a_node_without_room_is_given_nothing(centre: CopyCentre):
    full, other = centre.add(), centre.add()
    full.free = dict.fromkeys(full.paths, 0)
    centre.load()
    centre.settle()
    assert centre.placed() == (other.uuid,)
    assert centre.assignment.last.short == 1


def test_a_file_that_a_node_loses_is_not_counted_there_until_it_has_come_again(centre: CopyCentre):
    first, second = centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    [tablet] = centre.tablets()
    (first.paths[0] / "tablets" / tablet / physical).unlink()
    with pytest.raises(NotFoundError):
        first.store.replica(tablet).open_file(physical)
    centre.report()
    assert centre.has(physical) == [second.uuid]
    centre.settle(1)
    assert centre.has(physical) == sorted([first.uuid, second.uuid])
    assert first.names() == [physical]


def test_after_a_restart_of_the_master_nothing_is_fetched_again(centre: CopyCentre):
    centre.add(), centre.add()
    files = [centre.load() for _ in range(7)]
    centre.settle()
    for node in centre.nodes:
        node.pulled.clear()
    centre.assignment.close()
    centre.engine.close()
    centre.world = World.reopened(centre.world.root)
    centre.live()
    assert centre.has(files[0]) == []
    centre.settle(1)
    for each in files:
        assert len(centre.has(each)) == 2
    assert [each.pulled for each in centre.nodes] == [[], []]


def test_other_bytes_of_a_master_do_not_count_and_are_told(centre: CopyCentre):
    centre.add(), centre.add()
    physical = centre.load()
    centre.replaced[physical] = b"other bytes"
    centre.settle()
    assert centre.has(physical) == []
    for node in centre.nodes:
        assert node.names() == []
        assert any(physical in each for each in node.store.troubles.values())
    centre.replaced.clear()
    centre.settle(1)
    assert len(centre.has(physical)) == 2


def condition_of(centre: CopyCentre, copies: int) -> ReplicaCondition:
    nodes = {each.uuid: each for each in centre.nodes}
    return ReplicaCondition(
        centre.book, lambda: {uuid: node.view() for uuid, node in nodes.items()}, copies, safe=2
    )


def test_a_task_is_told_when_as_many_nodes_have_its_files_and_not_before(centre: CopyCentre):
    first, second = centre.add(), centre.add()
    physical = centre.load()
    condition = condition_of(centre, 2)
    told = Acknowledging(centre.engine, lacks_copies=condition.lacks, busy=condition.busy)
    with centre.engine.reading() as state:
        sender, path = state.files[physical].sender, state.files[physical].path
    outcome = records.FileOutcome(path, Result.LOADED)
    centre.engine.commit([records.TaskDone(sender, "f" * 32, [outcome])])
    with centre.engine.reading() as state:
        [task] = [each for each in state.task_table if each.task == "f" * 32]
    assert not told.may_tell(task)
    centre.assignment.run_once()
    centre.report()
    centre.pull(first)
    assert not told.may_tell(task)
    second.is_silent = True
    with pytest.raises(BusyError, match="1 storage node"):
        told.must_take()
    second.is_silent = False
    told.must_take()
    centre.pull(second)
    assert told.may_tell(task)


def test_what_is_safe_is_counted_at_the_moment_by_nodes_that_are_heard(centre: CopyCentre):
    first, second = centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    condition = condition_of(centre, 1)

    def is_safe() -> bool:
        with centre.engine.reading() as state:
            return condition.is_safe(state, state.files[physical])

    assert is_safe()
    second.is_silent = True
    assert not is_safe()
    second.is_silent = False
    assert is_safe()
    second.is_hurt = True
    assert not is_safe(), "a directory of it is away, and the file may be there"
    second.is_hurt = False
    first.restart()
    centre.assignment.run_once()  # another start of it: it has said nothing yet
    assert not is_safe()
    centre.settle(1)
    assert is_safe()


def test_without_a_history_files_go_all_the_same(centre: CopyCentre):
    centre.add(), centre.add()
    old, new = centre.load(), centre.load()
    centre.settle()
    centre.end(old)
    with centre.engine.reading():
        centre.engine.window.move(centre.engine.newest_commit)
    centre.settle(1)
    assert [each.names() for each in centre.nodes] == [[new], [new]]


@pytest.mark.parametrize("number", [0, 1])
def test_a_replica_whose_journal_is_damaged_is_whole_again_without_a_byte_from_elsewhere(
    tmp_path: Path, number: int
) -> None:
    """Its first line, which says what it is, or that of a file."""
    centre = CopyCentre(tmp_path)
    try:
        one, two = centre.add(), centre.add()
        names = sorted(centre.load() for _ in range(3))
        centre.settle()
        one.stop()
        two.stop()
        (journal,) = one.paths[0].glob("tablets/*/copies.log")
        lines = journal.read_bytes().splitlines(keepends=True)
        lines[number] = b"?" + lines[number][1:]
        journal.write_bytes(b"".join(lines))
        for each in names:
            (centre.world.data / each).unlink()  # nobody else has it
        one.pulled.clear()
        one.start()
        centre.settle()
        assert one.names() == names
        assert one.pulled == []
        assert all(one.uuid in centre.has(each) for each in names)
        assert not one.store.replica(centre.tablets()[0]).is_unlisted
    finally:
        centre.close()
