"""A load and its series are one commit: made, refused, put off, decided by an operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.tsfile import Compression, DataType, Encoding
from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_path, parse_pattern
from receiver.metadata.schema import SeriesRow
from receiver.node import Node
from receiver.operator.stored.files import list_files
from receiver.operator.stored.quarantine import list_quarantine, retry_quarantined
from tests.support.node_world import (
    A,
    B,
    Edge,
    World,
    manifest_entry,
    path_of,
    plan_entry,
    results,
    tsfile,
)
from tests.support.tsfile_bytes import build


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def series(node: Node, path: str = "root.**") -> list[SeriesRow]:
    with node.engine.reading() as state:
        rows = state.schema.series.match(parse_pattern(path))
        return [state.schema.series.describe(row) for row in rows]


def paths(node: Node) -> list[str]:
    return [each.path for each in series(node)]


def groups(node: Node) -> list[str]:
    with node.engine.reading() as state:
        return [each.path for each in state.schema.groups.rows()]


def typed(value: Any, device: str = "root.sg.d1", *, time: int = 1, name: str = "s1") -> bytes:
    return build({device: {name: [(time, value)]}})


# -- made ------------------------------------------------------------------------------------


def test_series_are_there_with_the_commit_that_loads_their_file(edge: Edge) -> None:
    edge.round({path_of(1): tsfile(first=5, points=3)})
    (row,) = series(edge.node)
    (file,) = list_files(edge.node.operator).files
    assert (row.path, row.storage_group, row.device) == (
        "root.sg.d1.s1",
        ("root", "sg"),
        ("root", "sg", "d1"),
    )
    assert (row.type, row.encoding, row.compression) == (
        DataType.INT64,
        Encoding.PLAIN,
        Compression.UNCOMPRESSED,
    )
    assert row.created == file.created
    assert row.heat == 7
    assert not row.aligned


def test_heat_is_the_newest_time_of_any_loaded_file(edge: Edge) -> None:
    edge.round({path_of(1): tsfile(first=100)})
    edge.round({path_of(2): tsfile(first=1)})
    assert [each.heat for each in series(edge.node)] == [104]
    edge.round({path_of(3): tsfile(first=200)})
    assert [each.heat for each in series(edge.node)] == [204]


def test_table_devices_stand_below_their_database(edge: Edge) -> None:
    table = build({("sensors", "west", None, "7"): {"t": [(3, 1.5)]}})
    edge.round({path_of(1, sg="plant"): table})
    assert groups(edge.node) == ["root.`/plant`"]
    (row,) = series(edge.node)
    assert row.nodes[:3] == ("root", "/plant", "sensors")
    assert row.aligned


def test_what_is_there_already_stays_as_it_is(edge: Edge) -> None:
    edge.round({path_of(1): tsfile()})
    (before,) = series(edge.node)
    edge.round({path_of(2): tsfile(first=50)})
    (after,) = series(edge.node)
    assert after == before._replace(heat=54)


def test_deleted_series_that_come_again_by_a_file_are_made_again(edge: Edge) -> None:
    edge.round({path_of(1): tsfile()})
    edge.node.engine.commit([records.SeriesDeleted("root.sg.d1.s1")])
    assert series(edge.node) == []
    edge.round({path_of(2): typed(2.5, time=90)})
    (row,) = series(edge.node)
    assert (row.type, row.heat) == (DataType.DOUBLE, 90)


def test_all_of_it_is_there_after_a_restart(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.round(
            {path_of(1): tsfile(), path_of(2, sg="plant"): build({("t", "x"): {"v": [(1, 2)]}})}
        )
        before = series(node)
    with world.node() as node:
        assert series(node) == before
        assert not node.load.registrar.waiting()


def test_the_level_of_a_new_storage_group_is_configured(tmp_path: Path) -> None:
    with World(tmp_path, metadata={"storage_group_level": 2}).node() as node:
        Edge(node).round({path_of(1): tsfile("root.sg.plant.d1")})
        assert groups(node) == ["root.sg.plant"]


# -- refused ---------------------------------------------------------------------------------


def test_a_series_of_another_type_holds_the_file_and_not_the_task(edge: Edge, world: World) -> None:
    edge.round({path_of(1): typed(1)})
    outcome = edge.round({path_of(2): typed("x", time=5), path_of(3): tsfile("root.sg.d2")})
    assert results(outcome) == {path_of(2): "quarantined", path_of(3): "loaded"}
    reason = "series root.sg.d1.s1 is INT64 in the schema, TEXT in the file"
    assert outcome[path_of(2)].reason == reason
    assert outcome[path_of(2)].hold
    (entry,) = list_quarantine(edge.node.engine)
    assert (entry.reason, entry.hold, entry.device) == (reason, True, "root.sg.d1")
    assert len(world.loaded()) == 2


def test_a_file_on_hold_does_not_travel_again(edge: Edge) -> None:
    edge.round({path_of(1): typed(1)})
    edge.round({path_of(2): typed("x")})
    (decision,) = edge.plan(edge.start(), [plan_entry(path_of(2), typed("x"))])
    assert (str(decision.action), decision.hold) == ("refused", True)


def test_of_two_files_of_a_task_that_disagree_the_first_is_loaded(edge: Edge) -> None:
    outcome = edge.round({path_of(1): typed(1), path_of(2): typed(2.5, time=9)})
    assert results(outcome) == {path_of(1): "loaded", path_of(2): "quarantined"}
    assert [each.type for each in series(edge.node)] == [DataType.INT64]


def test_the_operator_decides_by_deleting_the_series(edge: Edge) -> None:
    edge.round({path_of(1): typed(1)})
    edge.round({path_of(2): typed("x", time=5)})
    edge.node.engine.commit([records.SeriesDeleted("root.sg.d1.s1")])
    (entry,) = list_quarantine(edge.node.engine)
    retry_quarantined(edge.node.operator, A, entry.path, entry.digest)
    assert results(edge.round({path_of(2): typed("x", time=5)})) == {path_of(2): "loaded"}
    assert [(each.type, each.heat) for each in series(edge.node)] == [(DataType.TEXT, 5)]
    assert list_quarantine(edge.node.engine) == []


def test_without_that_the_file_is_held_again(edge: Edge) -> None:
    edge.round({path_of(1): typed(1)})
    edge.round({path_of(2): typed("x")})
    (entry,) = list_quarantine(edge.node.engine)
    retry_quarantined(edge.node.operator, A, entry.path, entry.digest)
    assert results(edge.round({path_of(2): typed("x")})) == {path_of(2): "quarantined"}


def test_two_sites_that_cut_the_tree_at_different_depths_are_both_loaded(edge: Edge) -> None:
    """Whichever comes first: `root.sg.a` as a storage group, or `root.sg`."""
    outcome = edge.round(
        {path_of(1, sg="root.sg.a"): tsfile("root.sg.a.d1"), path_of(2): tsfile("root.sg.b.d1")}
    )
    assert set(results(outcome).values()) == {"loaded"}
    assert groups(edge.node) == ["root.sg.a", "root.sg.b"]


def test_a_device_above_a_storage_group_holds_its_file(edge: Edge) -> None:
    edge.node.engine.commit([records.StorageGroupSet("root.sg.a.b")])
    outcome = edge.round({path_of(1): tsfile("root.sg.a"), path_of(2): tsfile("root.sg.a.b.d")})
    assert results(outcome) == {path_of(1): "quarantined", path_of(2): "loaded"}
    assert "lies in no storage group" in (outcome[path_of(1)].reason or "")


def test_a_replacement_that_contradicts_leaves_what_was_loaded(edge: Edge) -> None:
    edge.round({path_of(1): typed(1), path_of(2): typed(1, time=7)})
    outcome = edge.round({path_of(1): typed("x")}, replaces=[path_of(1)])
    assert results(outcome) == {path_of(1): "quarantined"}
    assert len(list_files(edge.node.operator).files) == 2


@pytest.mark.parametrize("device", ["root..d1", "root.sg.", "root." + "a." * 300 + "d1"])
def test_a_device_that_has_no_path_holds_its_file(edge: Edge, device: str) -> None:
    bad = build({device: {"s1": [(1, 2)]}}, version=3)
    outcome = edge.round({path_of(1): bad, path_of(2): tsfile()})
    assert results(outcome) == {path_of(1): "quarantined", path_of(2): "loaded"}
    assert "path" in (outcome[path_of(1)].reason or "")


def test_a_series_whose_name_cannot_be_kept_holds_its_file(edge: Edge) -> None:
    bad = build({"root.sg.d1": {"s" * 70_000: [(1, 2)]}})
    outcome = edge.round({path_of(1): bad, path_of(2): tsfile()})
    assert results(outcome) == {path_of(1): "quarantined", path_of(2): "loaded"}


# -- races -----------------------------------------------------------------------------------


def test_a_race_that_is_lost_is_decided_again(world: World, monkeypatch: Any) -> None:
    node = world.still_node()
    with node:
        edge = Edge(node)
        edge.check()
        commit, made = node.engine.commit, []

        def overtaken(ops: Any, guards: Any = ()) -> int:
            if not made and any(isinstance(op, records.SeriesLoaded) for op in ops):
                made.append(
                    commit(
                        [
                            records.StorageGroupSet("root.sg"),
                            records.SeriesCreated("root.sg.d1", ["s1"], b"\x03", b"\0", b"\0"),
                        ]
                    )
                )
            return commit(ops, guards)

        monkeypatch.setattr(node.engine, "commit", overtaken)
        outcome = edge.round({path_of(1): typed(1), path_of(2): tsfile("root.sg.d2")})
        assert results(outcome) == {path_of(1): "quarantined", path_of(2): "loaded"}
        assert "is FLOAT in the schema, INT64 in the file" in (outcome[path_of(1)].reason or "")


def test_two_senders_that_make_a_storage_group_at_once_both_get_through(edge: Edge) -> None:
    other = Edge(edge.node, B)
    mine, yours = edge.start(), other.start()
    edge.plan(mine, [plan_entry(path_of(1), tsfile("root.sg.a"))])
    other.plan(yours, [plan_entry(path_of(1), tsfile("root.sg.b"))])
    edge.batch(mine, {path_of(1): tsfile("root.sg.a")})
    other.batch(yours, {path_of(1): tsfile("root.sg.b")})
    edge.end(mine, {path_of(1): tsfile("root.sg.a")})
    other.end(yours, {path_of(1): tsfile("root.sg.b")})
    assert results(edge.outcome(mine)) == results(other.outcome(yours)) == {path_of(1): "loaded"}
    assert groups(edge.node) == ["root.sg"]


# -- memory ----------------------------------------------------------------------------------


def test_a_load_beyond_the_memory_limit_is_put_off_and_the_others_go_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    small, large = tsfile(), build({"root.sg.d2": {f"s{at}": [(1, 2)] for at in range(500)}})
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): small})
        with node.engine.reading() as state:
            limit = state.schema.memory.used + 1000
        tight = World(tmp_path, metadata={"max_memory": limit})
    with tight.node() as node:
        edge.node = node
        again = tsfile(first=500)
        outcome = edge.round({path_of(2): large, path_of(3): again})
        assert results(outcome) == {path_of(2): "missing", path_of(3): "loaded"}
        assert "max_memory" in (outcome[path_of(2)].reason or "")
        assert not outcome[path_of(2)].hold
        assert paths(node) == ["root.sg.d1.s1"]
    with world.node() as node:
        edge.node = node
        task = edge.start()
        (decision,) = edge.plan(task, [plan_entry(path_of(2), large)])
        assert str(decision.action) == "have"  # not a byte has to travel again
        edge.end(task, {path_of(2): large})
        assert results(edge.outcome(task)) == {path_of(2): "loaded"}
        assert manifest_entry(path_of(2), large).series == 500
        assert len(paths(node)) == 501


def test_a_device_that_is_an_alias_elsewhere_holds_the_file(edge: Edge) -> None:
    edge.round({path_of(1): tsfile()})
    edge.node.engine.commit([records.AliasSet("root.sg.d1.s1", "speed")])
    outcome = edge.round({path_of(2): typed(1, name="speed")})
    assert results(outcome) == {path_of(2): "quarantined"}
    with edge.node.engine.reading() as state:
        assert state.schema.series.find(parse_path("root.sg.d1.speed")) >= 0
