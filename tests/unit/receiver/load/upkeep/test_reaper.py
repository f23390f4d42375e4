from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common import crash, wire
from common.digests import md5
from common.errors import NotATsFileError
from common.tsfile.tail_digest import tail_digest
from receiver.datadirs.directory_markers import RECEIVER_MARKER
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute
from receiver.node import Node
from receiver.operator.edges.owners import set_owner
from receiver.operator.edges.senders import remove_sender
from receiver.operator.status import running_status
from receiver.operator.stored.files import delete_files, undelete_files
from tests.support.node_world import (
    OPERATOR,
    B,
    Clock,
    Edge,
    World,
    fsck_of,
    manifest_entry,
    path_of,
    plan_entry,
    resource_entry,
    results,
    tsfile,
)
from tests.support.tsfile_bytes import build


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    return World(
        tmp_path,
        clock=clock,
        keep_deleted=100.0,
        limits={"upload_expiry": 1000.0},
        metadata={"history": 0.0},
    )


def delete_one(node: Node) -> Edge:
    edge = Edge(node)
    edge.round({path_of(1): tsfile(), path_of(2): tsfile(first=100)}, resources={path_of(1): b"r"})
    edge.round({}, [path_of(1)], propagate=wire.Propagate.ALL)
    return edge


def names(world: World) -> list[str]:
    return [each.rpartition("/")[2] for each in world.loaded()]


def test_deleted_bytes_leave_the_disk_when_their_time_has_come(
    node: Node, world: World, clock: Clock
) -> None:
    delete_one(node)
    clock.now += 99
    assert node.load.reaper.run_once() == 0
    assert len(world.loaded()) == 3
    clock.now += 2
    assert node.load.reaper.run_once() == 1
    assert list(world.loaded().values()) == [tsfile(first=100)]
    assert running_status(node.operator, node.problem()).deleted_files == 0


def test_nothing_is_forgotten_while_a_disk_is_away(node: Node, world: World, clock: Clock) -> None:
    delete_one(node)
    clock.now += 200
    marker = world.root / "data2" / RECEIVER_MARKER
    marker.rename(world.root / "kept")
    assert node.load.reaper.run_once() == 0
    (world.root / "kept").rename(marker)
    assert node.load.reaper.run_once() == 1


def test_a_death_between_unlink_and_commit_is_repeated_harmlessly(
    world: World, clock: Clock
) -> None:
    node = world.still_node()
    delete_one(node)
    clock.now += 200

    def die(name: str) -> None:
        if name == "reaper.unlinked":
            raise crash.SimulatedCrash(name)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        node.load.reaper.run_once()
    node.close()
    with world.node() as node:
        node.load.reaper.run_once()
        assert running_status(node.operator, node.problem()).deleted_files == 0
        assert fsck_of(node).found == []


def test_a_retired_file_is_never_removed(node: Node, world: World, clock: Clock) -> None:
    edge = Edge(node)
    edge.round({path_of(1): tsfile()})
    edge.round({}, [path_of(1)])
    clock.now += 10_000
    node.load.reaper.run_once()
    assert len(world.loaded()) == 1


def test_verified_files_that_nobody_asks_for_are_let_go(
    node: Node, world: World, clock: Clock
) -> None:
    edge = Edge(node)
    task = edge.start()
    edge.batch(task, {path_of(1): tsfile()})
    clock.now += 2000
    node.load.reaper.run_once()  # the task may still be resumed
    assert running_status(node.operator, node.problem()).staged_bytes > 0
    other = edge.start()
    edge.end(other, {})
    edge.outcome(other)
    node.load.reaper.run_once()
    assert running_status(node.operator, node.problem()).staged_bytes == 0
    assert not list((world.folder() / "data").rglob("*.tsfile"))


def test_kept_bytes_stay_as_long_as_their_entry(node: Node, world: World, clock: Clock) -> None:
    edge = Edge(node)
    task = edge.start()
    with pytest.raises(NotATsFileError):
        edge.upload(task, path_of(1), b"x" * 100)
    lost = world.folder() / "quarantine" / "lost"
    lost.write_bytes(b"y")
    import os

    for each in (world.folder() / "quarantine").iterdir():
        os.utime(each, (1, 1))
    node.load.reaper.run_once()
    assert [each.read_bytes() for each in (world.folder() / "quarantine").iterdir()] == [b"x" * 100]


def test_the_resource_goes_with_its_file(node: Node, world: World, clock: Clock) -> None:
    delete_one(node)
    assert resource_entry(b"r").size == 1
    assert len([each for each in names(world) if each.endswith(".resource")]) == 1
    clock.now += 200
    node.load.reaper.run_once()
    assert not [each for each in names(world) if each.endswith(".resource")]


def test_bytes_stay_as_long_as_the_past_can_be_asked_about(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, clock=clock, keep_deleted=100.0, metadata={"history": 5000.0})
    with world.still_node() as node:
        delete_one(node)
        deleted = node.engine.newest_commit
        clock.now += 4000
        assert node.load.reaper.run_once() == 0
        assert node.engine.oldest_answerable < deleted
        clock.now += 2000
        Edge(node, "b" * 32).check()
        assert node.load.reaper.run_once() == 1
        assert node.engine.oldest_answerable >= deleted
        assert running_status(node.operator, node.problem()).deleted_files == 0


def test_a_history_of_commits_keeps_bytes_too(tmp_path: Path, clock: Clock) -> None:
    world = World(
        tmp_path, clock=clock, keep_deleted=0.0, metadata={"history": 0.0, "history_commits": 20}
    )
    with world.still_node() as node:
        delete_one(node)
        clock.now += 10_000
        assert node.load.reaper.run_once() == 0
        for number in range(20):
            node.load.make_known("b" * 32, "x_" + "b" * 32, f"label {number}")
        clock.now += 1
        assert node.load.reaper.run_once() == 1


@pytest.mark.parametrize(("pattern", "stays"), [("root.*", 1), ("root.sg.d1.*", 0)])
def test_the_row_of_a_file_that_tells_what_older_records_name_stays(
    node: Node, world: World, clock: Clock, pattern: str, stays: int
) -> None:
    edge = delete_one(node)
    with node.engine.reading() as state:
        (row,) = state.file_table.deleted()
    content = f"DELETION,{pattern},{2**63 - 1},0,9\n".encode()
    node.engine.commit([
        records.DeletionsNoted(edge.uuid, row.path, row.physical, "mods", 0, content, 5)
    ])  # fmt: skip
    clock.now += 200
    node.load.reaper.run_once()
    assert len(world.loaded()) == 1
    with node.engine.reading() as state:
        assert len(state.file_table.deleted()) == stays


def told(edge: Edge, since: int) -> set[str]:
    """What the sender of a list that differs is told, by either of its questions."""
    request = wire.ListedRequest(files=9, digest="", since=since)
    found = {each.path for each in edge.node.listed.compare(edge.who, edge.uuid, request).ended}
    page = wire.ListedPage(files=[wire.ListedFile(path=path_of(1), md5=md5(tsfile()).hexdigest())])
    ended = edge.node.listed.ended(edge.who, edge.uuid, page).ended
    assert {each.path for each in ended} == found
    return found


def loaded_and_deleted(node: Node) -> tuple[Edge, int]:
    """An edge whose first file an operator has deleted, and the commit that it knew before."""
    edge = Edge(node)
    edge.round({path_of(1): tsfile()})
    heard = node.engine.newest_commit
    with node.engine.reading() as state:
        (physical,) = (row.physical for row in state.files.values())
    node.engine.commit([records.FileDeleted(physical, "operator")])
    return edge, heard


def notes(node: Node) -> int:
    with node.engine.reading() as state:
        assert state.file_table.deleted() == []
        return len([*state.let_go])


def planned_again(edge: Edge, path: str = path_of(1), **more: Any) -> wire.PlanDecision:
    [decision] = edge.plan(edge.start(), [plan_entry(path, tsfile(), **more)])
    return decision


def test_what_an_operator_deleted_is_told_to_its_sender_whatever_that_has_told_of_it(
    world: World, clock: Clock
) -> None:
    """A sender that was silent for longer would send it again, and it would be live once more."""
    with world.still_node() as node:
        edge, heard = loaded_and_deleted(node)
        assert told(edge, heard) == {path_of(1)}
        clock.now += 10_000
        assert node.load.reaper.run_once() == 1
        assert (world.loaded(), notes(node)) == ({}, 1)
        assert told(edge, heard) == {path_of(1)}
        node.engine.checkpoint()
    with world.still_node() as node:
        edge.node = node
        assert told(edge, heard) == {path_of(1)}
        request = wire.ListedRequest(files=9, digest="", since=node.engine.newest_commit)
        assert node.listed.compare(edge.who, edge.uuid, request).ended == []
        edge.round({}, [path_of(1)])  # it may be restored from a copy that lists it
        assert (told(edge, heard), notes(node)) == ({path_of(1)}, 1)


def test_a_word_that_was_said_before_the_last_deletion_does_not_take_it_back(
    world: World,
) -> None:
    with world.still_node() as node:
        edge, _ = loaded_and_deleted(node)
        refused = planned_again(edge)
        assert refused.action is wire.Action.EXPIRED
        again: dict[str, Any] = {"retry": True, "answered": refused.commit}
        assert planned_again(edge, **again).action is wire.Action.SEND
        task = edge.start()
        edge.plan(task, [plan_entry(path_of(2), tsfile(), **again)])
        edge.batch(task, {path_of(2): tsfile()})
        edge.end(task, {path_of(2): tsfile()})
        edge.outcome(task)
        with node.engine.reading() as state:
            (row,) = (row for row in state.files.values() if row.visible)
        node.engine.commit([records.FileDeleted(row.physical, "operator")])
        assert planned_again(edge, **again).action is wire.Action.EXPIRED
        assert planned_again(edge, retry=True).action is wire.Action.SEND


def test_content_that_another_sender_has_visible_is_that_ones_though_a_copy_was_deleted(
    world: World,
) -> None:
    with world.still_node() as node:
        edge, _ = loaded_and_deleted(node)
        task = edge.start()
        edge.plan(task, [plan_entry(path_of(2), tsfile(), retry=True)])
        edge.batch(task, {path_of(2): tsfile()})
        edge.end(task, {path_of(2): tsfile()})
        edge.outcome(task)
        edge.round({}, [path_of(2)])
        with node.engine.reading() as state:
            (first,) = (row.physical for row in state.files.values() if not row.visible)
            (second,) = (row.physical for row in state.files.values() if row.visible)
        assert undelete_files(node.operator, [first]).back == [first]
        node.engine.commit([records.FileDeleted(second, "operator")])
        other = Edge(node, B)
        other.check()
        assert planned_again(other).action is wire.Action.CONFLICT


def test_a_compaction_of_deleted_files_is_told_as_one_with_a_value_that_nobody_deleted(
    world: World,
) -> None:
    """So it is taken: names, devices, times, counts cannot say that only deleted points are in it.

    A third file was written and merged between two looks, and had another value for one time.
    """
    path = "sequence/root.a/0/0/1-1-1-0.tsfile"
    whole = build({"root.a.d1": {"s1": [(1, 1), (2, 2), (3, 3)]}})
    mixed = build({"root.a.d1": {"s1": [(1, 1), (2, 7), (3, 3)]}})
    told, proved = zip(
        *((plan_entry(path, each), manifest_entry(path, each)) for each in (whole, mixed)),
        strict=True,
    )
    known = ("path", "size", "devices", "first_time", "last_time", "replaces", "deletes")
    assert len({tuple(str(getattr(each, name)) for name in known) for each in told}) == 1
    assert len({(each.series, each.points, each.size) for each in proved}) == 1
    with world.still_node() as node:
        edge, _ = loaded_and_deleted(node)
        outcomes = edge.round({path: mixed}, [path_of(1)])
        assert outcomes[path].result is wire.Result.LOADED


@pytest.mark.parametrize("forgotten", [True, False])
@pytest.mark.parametrize("ended", ["never", "before", "since"])
@pytest.mark.parametrize("md5_known", [True, False])
def test_what_an_operator_deleted_does_not_come_from_an_edge_that_has_forgotten_it(
    world: World, clock: Clock, forgotten: bool, ended: str, md5_known: bool
) -> None:
    """It lost its list, or its disk is a copy of one from before, or another box has the disk."""
    with world.still_node() as node:
        edge, other = Edge(node), Edge(node, "b" * 32)
        edge.round({path_of(1): tsfile()})
        if ended == "before":
            edge.round({}, [path_of(1)])
        with node.engine.reading() as state:
            (physical,) = (row.physical for row in state.files.values())
        node.engine.commit([records.FileDeleted(physical, "operator")])
        if ended == "since":
            edge.round({}, [path_of(1)])
        if forgotten:
            clock.now += 10_000
            assert node.load.reaper.run_once() == 1
            node.engine.checkpoint()
    with world.still_node() as node:
        edge.node = other.node = node
        more = {} if md5_known else {"md5": None}
        for each, path in ((edge, path_of(1)), (edge, path_of(1, inner=1)), (other, path_of(1))):
            decision = planned_again(each, path, **more)
            assert (decision.action, decision.hold) == (wire.Action.EXPIRED, True)
            assert "an operator of the receiver deleted" in (decision.reason or "")
        assert results(edge.round({path_of(1): tsfile()})) == {path_of(1): "expired"}
        assert world.loaded() == {} or not forgotten
        # What is in no way the same comes as ever, and the same once somebody says so.
        edge.round({path_of(2): tsfile(first=100), path_of(1): tsfile(salt=1)})
        assert planned_again(edge, path_of(3), retry=True).action is wire.Action.SEND


@pytest.mark.parametrize("forgotten", [True, False])
@pytest.mark.parametrize("everywhere", [True, False])
def test_what_an_operator_deleted_here_or_everywhere_does_not_come_again(
    world: World, clock: Clock, everywhere: bool, forgotten: bool
) -> None:
    with world.still_node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        heard = node.engine.newest_commit
        edge.round({}, [path_of(1)])
        with node.engine.reading() as state:
            (one,) = state.files
        assert delete_files(node.operator, [one], everywhere=everywhere).deleted == [one]
        if forgotten:
            clock.now += 10_000
            assert node.load.reaper.run_once() == 1
            assert (notes(node), told(edge, heard)) == (1, {path_of(1)})
        assert planned_again(edge).action is wire.Action.EXPIRED


@pytest.mark.parametrize("forgotten", [True, False])
def test_what_was_deleted_comes_again_once_that_is_said_and_then_as_any_file(
    world: World, clock: Clock, forgotten: bool
) -> None:
    with world.still_node() as node:
        edge, _ = loaded_and_deleted(node)
        if forgotten:
            clock.now += 10_000
            node.load.reaper.run_once()
        task = edge.start()
        edge.plan(task, [plan_entry(path_of(1), tsfile(), retry=True)])
        edge.batch(task, {path_of(1): tsfile()})
        edge.end(task, {path_of(1): tsfile()})
        assert results(edge.outcome(task)) == {path_of(1): "loaded"}
        edge.round({}, [path_of(1)], propagate=wire.Propagate.ALL)  # the edge's own word now
        clock.now += 10_000
        node.load.reaper.run_once()
        assert notes(node) == 0
        assert planned_again(edge).action is wire.Action.SEND


@pytest.mark.parametrize("forgotten", [True, False])
def test_right_bytes_come_in_the_task_in_which_bad_ones_of_the_same_end_were_meant(
    world: World, clock: Clock, forgotten: bool
) -> None:
    right = tsfile(points=20_000)
    bad = right[:40] + bytes([right[40] ^ 1]) + right[41:]
    assert tail_digest(right) == tail_digest(bad)
    with world.still_node() as node:
        edge = Edge(node)
        edge.round({path_of(1): bad})
        with node.engine.reading() as state:
            (physical,) = state.files
        node.engine.commit([records.FileDeleted(physical, "operator")])
        if forgotten:
            clock.now += 10_000
            assert node.load.reaper.run_once() == 1
        task = edge.start()
        [decision] = edge.plan(task, [plan_entry(path_of(1), right, md5=None)])
        assert decision.action is wire.Action.EXPIRED
        [decision] = edge.plan(task, [plan_entry(path_of(1), right)])
        assert decision.action is wire.Action.SEND
        edge.batch(task, {path_of(1): right})
        edge.end(task, {path_of(1): right})
        assert results(edge.outcome(task)) == {path_of(1): "loaded"}


@pytest.mark.parametrize("forgotten", [True, False])
def test_a_file_that_is_loaded_comes_again_though_its_like_under_another_path_was_deleted(
    world: World, clock: Clock, forgotten: bool
) -> None:
    """Its bytes are bad, or gone: they are its sender's to bring, which lists it."""
    other = path_of(2, inner=1)
    with world.still_node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        with node.engine.reading() as state:
            (one,) = state.files
        (world.data / one).rename(world.root / "kept")
        edge.round({other: tsfile()})  # what is known of it does not stand just then
        (world.root / "kept").rename(world.data / one)
        edge.round({}, [other])
        with node.engine.reading() as state:
            (two,) = (row.physical for row in state.files.values() if row.path == other)
        assert delete_files(node.operator, [two], everywhere=False).deleted == [two]
        if forgotten:
            clock.now += 10_000
            assert node.load.reaper.run_once() == 1
        # Under its own path, and no other: nobody lists the one that was deleted.
        (world.data / one).rename(world.root / "kept")
        assert planned_again(edge, other).action is wire.Action.EXPIRED
        assert planned_again(edge).action is wire.Action.SEND
        assert results(edge.round({path_of(1): tsfile()})) == {path_of(1): "loaded"}


@pytest.mark.parametrize("forgotten", [True, False])
@pytest.mark.parametrize("under", [1, 2])
def test_what_has_turned_out_bad_comes_again_though_its_like_was_deleted_before(
    world: World, clock: Clock, forgotten: bool, under: int
) -> None:
    """When an operator deleted one of two with a content, that was not gone; nobody deleted it."""
    other = path_of(2, inner=1)
    with world.still_node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        with node.engine.reading() as state:
            (one,) = state.files
        (world.data / one).rename(world.root / "kept")
        edge.round({other: tsfile()})
        (world.root / "kept").rename(world.data / one)
        edge.round({}, [path_of(1), other])
        with node.engine.reading() as state:
            (two,) = (row.physical for row in state.files.values() if row.path == other)
        delete_files(node.operator, [two], everywhere=False)
        if forgotten:
            clock.now += 10_000
            assert node.load.reaper.run_once() == 1
        node.engine.commit([records.FileQuarantined(one, "bad")])
        path = path_of(1) if under == 1 else other
        assert planned_again(edge, path).action is wire.Action.SEND
        assert results(edge.round({path: tsfile()})) == {path: "loaded"}


@pytest.mark.parametrize("forgotten", [True, False])
@pytest.mark.parametrize("under", [1, 2])
def test_what_was_brought_for_bad_bytes_and_deleted_does_not_come_for_them_once_more(
    world: World, clock: Clock, forgotten: bool, under: int
) -> None:
    """A bad file that had ended stays in quarantine; an edge without its list brought it again."""
    path = path_of(1) if under == 1 else path_of(2)
    with world.still_node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        with node.engine.reading() as state:
            (bad,) = state.files
        edge.round({}, [path_of(1)])
        node.engine.commit([records.FileQuarantined(bad, "bad")])
        assert planned_again(edge, path).action is wire.Action.SEND
        assert results(edge.round({path: tsfile()})) == {path: "loaded"}
        with node.engine.reading() as state:
            (good,) = (row.physical for row in state.files.values() if row.visible)
        node.engine.commit([records.FileDeleted(good, "operator")])
        if forgotten:
            clock.now += 10_000
            assert node.load.reaper.run_once() == 1
        assert planned_again(edge, path).action is wire.Action.EXPIRED
        if under == 2:  # under its own name it is wanted as before: the other was another file
            assert planned_again(edge).action is wire.Action.SEND


def test_what_an_operator_deletes_between_plan_and_load_is_not_loaded(world: World) -> None:
    with world.still_node() as node:
        edge, other = Edge(node), Edge(node, "b" * 32)
        edge.round({path_of(2): tsfile(first=100)})  # it owns the device
        task = edge.start()
        edge.plan(task, [plan_entry(path_of(1), tsfile())])
        edge.batch(task, {path_of(1): tsfile()})
        other.check()
        set_owner(node.engine, OPERATOR, "root.sg.d1", other.uuid)
        other.round({path_of(1): tsfile()})
        with node.engine.reading() as state:
            [physical] = [row.physical for row in state.files.values() if row.sender == other.uuid]
        node.engine.commit([records.FileDeleted(physical, "operator")])
        edge.end(task, {path_of(1): tsfile()})
        assert results(edge.outcome(task)) == {path_of(1): "expired"}


def test_what_was_deleted_and_is_forgotten_is_not_lost(world: World, clock: Clock) -> None:
    with world.still_node() as node:
        edge, _ = loaded_and_deleted(node)
        clock.now += 10_000
        node.load.reaper.run_once()
        gone = wire.LostFile(
            path=path_of(1), md5=md5(tsfile()).hexdigest(), size=len(tsfile()), reason="no more"
        )
        assert node.lost.tell(edge.who, edge.uuid, wire.LostPage(files=[gone])).lost == []


@pytest.mark.parametrize("forgotten", [True, False])
def test_what_was_deleted_while_its_device_was_another_senders_does_not_come_back_with_it(
    world: World, clock: Clock, forgotten: bool
) -> None:
    with world.still_node() as node:
        edge, other = Edge(node), Edge(node, "b" * 32)
        edge.round({path_of(1): tsfile()})
        other.round({path_of(1): tsfile("root.sg.other")})
        heard = node.engine.newest_commit
        with node.engine.reading() as state:
            [row] = [each for each in state.files.values() if each.sender == edge.uuid]
            device = next(iter(row.devices))
        set_owner(node.engine, OPERATOR, device, other.uuid)
        node.engine.commit([records.FileDeleted(row.physical, "operator")])
        if forgotten:
            clock.now += 10_000
            assert node.load.reaper.run_once() == 1
        set_owner(node.engine, OPERATOR, device, edge.uuid)
        assert told(edge, heard) == {path_of(1)}


@pytest.mark.parametrize("forgotten", [True, False])
def test_other_content_under_the_path_of_what_was_deleted_is_not_told_as_deleted(
    world: World, clock: Clock, forgotten: bool
) -> None:
    with world.still_node() as node:
        edge, heard = loaded_and_deleted(node)
        for step in (0, 1) if forgotten else (1, 0):
            if step:
                edge.round({path_of(1): tsfile(first=500)})
            else:
                clock.now += 10_000
                node.load.reaper.run_once()
        request = wire.ListedRequest(files=9, digest="", since=heard)
        ended = node.listed.compare(edge.who, edge.uuid, request).ended
        assert {each.md5 for each in ended} == {md5(tsfile()).hexdigest()}


@pytest.mark.parametrize("forgotten", [True, False])
def test_what_an_operator_deleted_of_a_removed_sender_does_not_come_by_another_one(
    world: World, clock: Clock, forgotten: bool
) -> None:
    with world.still_node() as node:
        edge, _ = loaded_and_deleted(node)
        for step in (0, 1) if forgotten else (1, 0):
            if step:
                remove_sender(node.operator, OPERATOR, edge.uuid)
            else:
                clock.now += 10_000
                node.load.reaper.run_once()
        other = Edge(node, "b" * 32)
        assert planned_again(other).action is wire.Action.EXPIRED


def is_remembered(node: Node) -> bool:
    node.load.reaper.run_once()
    with node.engine.reading() as state:
        return bool(state.loaded_tables.dropped())


@pytest.mark.parametrize("begun", ["planned", "brought", "half brought"])
def test_that_a_table_was_dropped_is_remembered_while_something_is_under_way_from_before(
    world: World, clock: Clock, begun: str
) -> None:
    """Else it would be loaded, however long its sender was silent, as if nothing was deleted."""
    path, content = path_of(2), tsfile(first=100)
    with world.still_node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        task = edge.start()
        edge.plan(task, [plan_entry(path, content)])
        if begun == "brought":
            edge.batch(task, {path: content})
        elif begun == "half brought":
            metadata = {"path": path, "task": task}
            upload = node.uploads.create(edge.who, edge.uuid, len(content), metadata)
            node.uploads.patch(edge.who, upload.id, 0, content[:9], at_once=True)
        execute(node.engine, "delete storage group root.sg with data")
        clock.now += 900
        assert is_remembered(node)
    with world.still_node() as node:
        edge.node = node
        assert is_remembered(node)
        if begun != "planned":
            task = edge.start()  # what came of the task before counts still
            assert is_remembered(node)
            [decision] = edge.plan(task, [plan_entry(path, content)])
            assert decision.action is not wire.Action.SEND
            if decision.upload is not None:
                edge.send(decision.upload, content, offset=9)
        else:
            edge.batch(task, {path: content})
        edge.end(task, {path: content})
        assert results(edge.outcome(task)) == {path: "quarantined"}
        assert not is_remembered(node)


def test_of_freed_files_those_are_told_that_nothing_is_known_of(world: World, clock: Clock) -> None:
    with world.still_node() as node:
        edge = delete_one(node)  # of path 1; path 2 ends, and is there still
        edge.round({}, [path_of(2)])
        contents = {path_of(1): tsfile(), path_of(2): tsfile(first=100), path_of(3): b"lost"}
        op = records.FileLost(edge.uuid, path_of(3), md5(b"lost").hexdigest(), 4)
        node.engine.commit([op])

        def unknown() -> list[str]:
            files = [
                wire.ListedFile(path=path, md5=md5(content).hexdigest())
                for path, content in contents.items()
            ]
            page = wire.ListedPage(files=files, freed=True)
            return [each.path for each in node.listed.ended(edge.who, edge.uuid, page).ended]

        assert unknown() == []
        clock.now += 10_000
        node.load.reaper.run_once()
        assert unknown() == [path_of(1)]
