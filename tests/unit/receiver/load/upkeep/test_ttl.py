"""TTL in a running receiver: what is wholly past goes, what is not stays, a bad clock stops it."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import crash
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.status import running_status
from receiver.operator.stored.files import list_files
from receiver.operator.stored.quarantine import list_quarantine
from tests.support.node_world import (
    Clock,
    Edge,
    World,
    epoch_of,
    path_of,
    plan_entry,
    results,
    tsfile,
)
from tests.support.procs import wait_until
from tests.support.tsfile_bytes import build

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
DAY = 86400.0
HOUR = 3600.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    return World(tmp_path, clock=clock, keep_deleted=100.0)


@pytest.fixture
def edge(world: World) -> Edge:
    with world.still_node() as node:
        edge = Edge(node)
        edge.check()
        yield edge


def aged(hours: float, device: str = "root.sg.d1") -> bytes:
    """A file whose newest point is so old."""
    return tsfile(device, first=NOW_MS - int(hours * HOUR_MS) - 4, points=5)


def set_ttl(node: Node, hours: float | None, path: str = "root.sg") -> None:
    ttl = None if hours is None else int(hours * HOUR_MS)
    node.engine.commit([records.TtlSet(path, ttl)])


def visible(node: Node) -> list[str]:
    return [each.path for each in list_files(node.operator).files]


def expired(node: Node) -> list[str]:
    return [each.path for each in list_files(node.operator, state="expired").files]


# -- the job ---------------------------------------------------------------------------------


def test_files_wholly_past_the_ttl_go_and_the_others_stay(edge: Edge) -> None:
    partly = tsfile(first=NOW_MS - 10 * HOUR_MS, points=2)
    partly = build({"root.sg.d1": {"s1": [(NOW_MS - 10 * HOUR_MS, 1), (NOW_MS - 10, 2)]}})
    empty = build({"root.sg.d1": {"s1": []}}, types={"s1": "INT64"})
    edge.round({path_of(1): aged(3), path_of(2): aged(1), path_of(3): partly, path_of(4): empty})
    assert edge.node.load.ttl.run_once() == 0
    set_ttl(edge.node, 2)
    assert edge.node.load.ttl.run_once() == 1
    assert visible(edge.node) == [path_of(2), path_of(3), path_of(4)]
    assert expired(edge.node) == [path_of(1)]
    (row,) = list_files(edge.node.operator, state="deleted").files
    assert row.reason == "expired"
    status = running_status(edge.node.operator, edge.node.problem())
    assert (status.schema.ttl_groups, status.schema.expired_files) == (1, 1)


def test_time_that_passes_lets_more_expire(edge: Edge, clock: Clock) -> None:
    edge.round({path_of(1): aged(0)})
    set_ttl(edge.node, 2)
    assert edge.node.load.ttl.run_once() == 0
    clock.now += 2 * 3600 + 1
    assert edge.node.load.ttl.run_once() == 1


def test_a_ttl_that_is_lifted_keeps_what_is_left(edge: Edge) -> None:
    edge.round({path_of(1): aged(3)})
    set_ttl(edge.node, 2)
    set_ttl(edge.node, None)
    assert edge.node.load.ttl.run_once() == 0


def test_a_ttl_that_is_lifted_meanwhile_stops_the_deletion(edge: Edge) -> None:
    edge.round({path_of(1): aged(3)})
    set_ttl(edge.node, 2)

    def lift(name: str) -> None:
        if name == "ttl.found":
            set_ttl(edge.node, None)

    with crash.arm(lift):
        assert edge.node.load.ttl.run_once() == 0
    assert visible(edge.node) == [path_of(1)]


def test_many_files_expire_in_bounded_commits(edge: Edge) -> None:
    for start in range(0, 500, 100):
        edge.round({path_of(start + at): aged(3, f"root.sg.d{start + at}") for at in range(100)})
    set_ttl(edge.node, 2)
    before = edge.node.engine.newest_commit
    deletions: list[int] = []
    with crash.arm(lambda name: deletions.append(1) if name == "ttl.deleted" else None):
        assert edge.node.load.ttl.run_once() == 500
    assert len(deletions) == 3
    assert edge.node.engine.newest_commit > before
    assert visible(edge.node) == []


def test_a_death_in_between_goes_on_where_it_was(world: World) -> None:
    node = world.still_node()
    edge = Edge(node)
    edge.round({path_of(at): aged(3, f"root.sg.d{at}") for at in range(300)})
    set_ttl(node, 2)

    def die(name: str) -> None:
        if name == "ttl.deleted":
            raise crash.SimulatedCrash(name)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        node.load.ttl.run_once()
    node.close()
    with world.still_node() as node:
        assert len(visible(node)) == 100
        assert node.load.ttl.run_once() == 100
        assert visible(node) == []


def test_a_file_found_bad_expires_and_is_not_wanted_for_ever(edge: Edge) -> None:
    edge.round({path_of(1): aged(3)})
    (row,) = list_files(edge.node.operator).files
    edge.node.engine.commit([records.FileQuarantined(row.physical, "md5: found bad")])
    assert len(edge.check().wanted) == 1
    set_ttl(edge.node, 2)
    assert edge.node.load.ttl.run_once() == 1
    assert edge.check().wanted == []


def test_the_space_comes_back_after_history_and_keep_deleted(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, clock=clock, keep_deleted=100.0, metadata={"history": 1000.0})
    with world.still_node() as node:
        edge = Edge(node)
        edge.round({path_of(1): aged(3)})
        set_ttl(node, 2)
        node.load.ttl.run_once()
        for passed, there in ((500, 1), (400, 1), (101, 0)):
            clock.now += passed
            set_ttl(node, 2)  # the newest commit is what history reaches back from
            node.load.reaper.run_once()
            assert len(world.loaded()) == there
        assert list_files(node.operator, state="deleted").files == []


# -- at the door -----------------------------------------------------------------------------


def test_an_expired_file_is_not_taken_in(edge: Edge) -> None:
    edge.round({path_of(1): aged(1)})
    set_ttl(edge.node, 2)
    task = edge.start()
    old, young = aged(3), aged(1, "root.sg.d2")
    entries = [
        plan_entry(path_of(2), old, last_time=NOW_MS - 3 * HOUR_MS),
        plan_entry(path_of(3), young, last_time=NOW_MS - HOUR_MS),
        plan_entry(path_of(4), old),  # a sender that does not say how old it is
    ]
    decisions = edge.plan(task, entries)
    assert [str(each.action) for each in decisions] == ["expired", "send", "send"]
    assert "TTL" in (decisions[0].reason or "")
    edge.batch(task, {path_of(3): young, path_of(4): old})
    edge.end(task, {path_of(3): young, path_of(4): old})
    outcome = edge.outcome(task)
    assert results(outcome) == {path_of(3): "loaded", path_of(4): "expired"}
    assert running_status(edge.node.operator, edge.node.problem()).staged_bytes == 0
    assert list_quarantine(edge.node.engine) == []


def test_an_expired_file_holds_up_no_deletion_of_its_partition(edge: Edge) -> None:
    edge.round({path_of(1): aged(1)})
    set_ttl(edge.node, 2)
    task = edge.start()
    edge.plan(task, [plan_entry(path_of(2), aged(3), last_time=NOW_MS - 3 * HOUR_MS)])
    edge.deleted(task, [path_of(1)])
    edge.end(task, {}, [path_of(1)])
    assert results(edge.outcome(task)) == {path_of(1): "retired"}


# -- the clock -------------------------------------------------------------------------------


def test_a_clock_that_jumps_ahead_takes_no_file_along_and_is_told(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, clock=clock, steady=Clock(0.0))
    with world.still_node() as node:
        edge = Edge(node)
        edge.round({path_of(1): aged(1)})
        set_ttl(node, 2)
        assert node.load.ttl.run_once() == 0
        clock.now += 400 * DAY
        assert node.load.ttl.run_once() == 0
        assert visible(node) == [path_of(1)]
        told = running_status(node.operator, node.problem()).clock
        assert "was expected" in (told.doubt or "")
        assert "clock confirm" in (told.doubt or "")
        assert round(told.ahead) == 400 * DAY
        assert any("do not follow the clock" in each for each in node.concerns())
        node.engine.collect()
        assert "timestamps do not follow the clock" in caplog.text
        # Nothing is turned away either, by a clock that nobody believes.
        (decision,) = edge.plan(
            edge.start(), [plan_entry(path_of(2), aged(1.5), last_time=NOW_MS - HOUR_MS)]
        )
        assert str(decision.action) == "send"
        clock.now -= 400 * DAY
        node.load.ttl.run_once()
        assert running_status(node.operator, node.problem()).clock.doubt is None
        assert node.concerns() == []


def test_while_the_clock_is_in_doubt_files_expire_by_the_time_that_passes(
    tmp_path: Path, clock: Clock
) -> None:
    steady = Clock(0.0)
    world = World(tmp_path, clock=clock, steady=steady)
    with world.still_node() as node:
        Edge(node).round({path_of(1): aged(1)})
        set_ttl(node, 2)
        clock.now += 400 * DAY
        steady.now += 0.9 * HOUR
        assert node.load.ttl.run_once() == 0
        steady.now += 0.2 * HOUR
        assert node.load.ttl.run_once() == 1


def test_an_operator_confirms_the_clock(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, clock=clock, steady=Clock(0.0))
    with world.still_node() as node:
        Edge(node).round({path_of(1): aged(1)})
        set_ttl(node, 2)
        node.load.ttl.run_once()
        clock.now += 400 * DAY
        assert node.load.ttl.run_once() == 0
        assert "was expected" in (node.engine.confirm_clock() or "")
        assert node.engine.confirm_clock() is None
        assert node.load.ttl.run_once() == 1


def test_a_first_start_with_a_wrong_clock_deletes_nothing(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, clock=clock, steady=Clock(0.0))
    with world.still_node() as node:
        Edge(node).round({path_of(1): aged(1)})
        set_ttl(node, 2)
    (tmp_path / "schema" / "clock.json").unlink(missing_ok=True)
    clock.now += 400 * DAY
    with world.still_node() as node:
        assert node.load.ttl.run_once() == 0
        Edge(node, epoch=epoch_of(node)).check()  # commits by the wrong clock make it no better
        assert node.load.ttl.run_once() == 0
    with world.still_node() as node:
        assert node.load.ttl.run_once() == 0
        assert visible(node) == [path_of(1)]


def test_the_thread_does_it_by_itself(tmp_path: Path) -> None:
    world = World(tmp_path, metadata={"ttl_every": 1.0})
    with world.node() as node:
        Edge(node).round({path_of(1): aged(3)})
        ts = node.engine.newest_commit
        set_ttl(node, 2)
        assert node.engine.newest_commit > ts
        wait_until(lambda: expired(node) == [path_of(1)], "the file expires")
