"""Files under way while their storage group is deleted: they come to be of no table."""

from __future__ import annotations

import pytest

from common import crash, wire
from receiver.metadata.sql.executing import execute
from receiver.node import Node
from receiver.operator.files import list_files
from tests.support.node_world import Edge, World, path_of, plan_entry, results, tsfile

GONE = "delete storage group root.sg with data"


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    assert results(edge.round({path_of(1): tsfile(first=1)})) == {path_of(1): "loaded"}
    return edge


def live(node: Node) -> list[str]:
    return sorted(each.path for each in list_files(node.operator, state="live").files)


def under_way(edge: Edge, path: str, content: bytes) -> str:
    task = edge.start()
    assert [each.action for each in edge.plan(task, [plan_entry(path, content)])] == ["send"]
    assert [each.problem for each in edge.batch(task, {path: content})] == [None]
    return task


def test_a_file_under_way_for_a_group_that_is_deleted_is_held_and_goes_once_it_is_said(
    edge: Edge,
) -> None:
    path, content = path_of(2), tsfile(first=100)
    task = under_way(edge, path, content)
    execute(edge.node.engine, GONE)
    edge.end(task, {path: content})
    outcome = edge.outcome(task)[path]
    assert (outcome.result, outcome.hold) == (wire.Result.QUARANTINED, True), outcome
    assert "deleted" in (outcome.reason or "")
    assert live(edge.node) == []
    again = edge.start()  # the next round: not by itself
    [decision] = edge.plan(again, [plan_entry(path, content)])
    assert (decision.action, decision.hold) == (wire.Action.REFUSED, True)
    [decision] = edge.plan(again, [plan_entry(path, content, retry=True)])
    assert decision.action is wire.Action.SEND
    assert [each.problem for each in edge.batch(again, {path: content})] == [None]
    edge.end(again, {path: content})
    assert results(edge.outcome(again)) == {path: "loaded"}
    assert live(edge.node) == [path]


def test_what_is_planned_once_more_was_under_way_and_other_content_was_not(edge: Edge) -> None:
    path, content, other = path_of(2), tsfile(first=100), path_of(3)
    task = under_way(edge, path, content)
    execute(edge.node.engine, GONE)
    entries = [plan_entry(path, content), plan_entry(other, tsfile(first=200))]
    assert [each.action for each in edge.plan(task, entries)] == ["have", "send"]
    edge.batch(task, {other: tsfile(first=200)})
    edge.end(task, {path: content, other: tsfile(first=200)})
    assert results(edge.outcome(task)) == {path: "quarantined", other: "loaded"}


def test_a_group_that_is_deleted_between_decision_and_commit_takes_the_file_along(
    edge: Edge,
) -> None:
    path, content = path_of(2), tsfile(first=100)
    task = under_way(edge, path, content)
    deleted = []

    def delete(place: str) -> None:
        if place == "load.decided" and not deleted:
            deleted.append(place)
            execute(edge.node.engine, GONE)
            execute(edge.node.engine, "set storage group to root.sg")  # so nothing is amiss

    with crash.arm(delete):
        edge.end(task, {path: content})
        assert results(edge.outcome(task)) == {path: "quarantined"}
    assert deleted
    assert live(edge.node) == []


def test_a_receiver_that_starts_anew_knows_what_was_under_way(world: World) -> None:
    path, content = path_of(2), tsfile(first=100)
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round({path_of(1): tsfile(first=1)})
        task = under_way(edge, path, content)
        execute(node.engine, GONE)
        node.engine.checkpoint()
    with world.node() as node:
        edge.node = node
        edge.end(task, {path: content})
        assert results(edge.outcome(task)) == {path: "quarantined"}


def test_files_of_other_groups_and_of_one_that_had_none_are_loaded(edge: Edge) -> None:
    other = "sequence/root.other/0/0/1600000000005-5-0.tsfile"
    content = tsfile("root.other.d1")
    task = under_way(edge, other, content)
    execute(edge.node.engine, GONE)
    edge.end(task, {other: content})
    assert results(edge.outcome(task)) == {other: "loaded"}


def test_a_table_below_the_group_that_is_deleted_goes_with_it(edge: Edge) -> None:
    engine = edge.node.engine
    execute(engine, "set storage group to root.e1")
    path = "sequence/root.e1.x/0/0/1600000000005-5-0.tsfile"
    content = tsfile("root.e1.x.d1")
    assert results(edge.round({path: content})) == {path: "loaded"}
    execute(engine, "delete storage group root.e1 with data")
    with engine.reading() as state:
        assert state.loaded_tables.named("root.e1.x") is None
