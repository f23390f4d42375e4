"""What the version before the schema left is taken over, file by file."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import crash
from common.errors import ConflictError
from common.tsfile import DataType
from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_pattern
from receiver.node import Node
from receiver.operator.status import running_status
from receiver.operator.stored.files import list_files
from receiver.operator.stored.quarantine import list_quarantine, retry_quarantined
from tests.support.node_world import A, Edge, World, fsck_of, path_of, results, tsfile
from tests.support.previous_version import unpack
from tests.support.tsfile_bytes import build

REASON = "series root.sg.d1.s1 is INT64 in the schema, DOUBLE in the file"
PATHS = [
    "root.`/plant`.sensors.`:west.``7```.temperature",
    "root.sg.d1.s1",
    "root.sg.d2.s1",
    "root.sg.d2.s2",
    "root.sg.d3.s1",
    "root.sg.d3.s2",
    "root.sg.retired.s1",
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(unpack(tmp_path))


def paths(node: Node) -> list[str]:
    with node.engine.reading() as state:
        schema = state.schema
        rows = schema.series.match(parse_pattern("root.**"))
        return [schema.series.describe(row).path for row in rows]


def wait_until_done(node: Node) -> None:
    thread = node.load.registrar._thread
    if thread is not None:
        thread.join(60)
        assert not thread.is_alive()


def test_files_of_before_are_readable_at_once_and_registered_behind_the_scenes(
    world: World,
) -> None:
    with world.node() as node:
        wait_until_done(node)
        assert paths(node) == PATHS
        with node.engine.reading() as state:
            d3 = state.schema.devices.find(("root", "sg", "d3"))
            assert d3 is not None
            assert d3.aligned
            row = state.schema.series.find(("root", "sg", "d2", "s1"))
            assert state.schema.series.heat(row) == 9
            assert [each.path for each in state.schema.groups.rows()] == [
                "root.`/plant`",
                "root.sg",
            ]
        assert running_status(node.operator, node.problem()).schema.unregistered == 0
        assert len(list_files(node.operator).files) == 5  # of six, one contradicts
        assert fsck_of(node).found == []


def test_a_file_that_contradicts_is_quarantined_with_the_reason(world: World) -> None:
    with world.node() as node:
        wait_until_done(node)
        bad = {each.path: each.reason for each in list_quarantine(node.engine)}
        assert bad == {path_of(4): REASON, path_of(8): "md5: found bad"}


def test_the_operator_decides_about_it(world: World) -> None:
    with world.node() as node:
        wait_until_done(node)
        (entry,) = (each for each in list_quarantine(node.engine) if each.path == path_of(4))
        with pytest.raises(ConflictError, match="is INT64 in the schema"):
            retry_quarantined(node.operator, A, entry.path, entry.digest)
        node.engine.commit([records.SeriesDeleted("root.sg.d1.s1")])
        retry_quarantined(node.operator, A, entry.path, entry.digest)
        with node.engine.reading() as state:
            row = state.schema.series.find(("root", "sg", "d1", "s1"))
            assert state.schema.series.type_of(row) == DataType.DOUBLE
            assert state.schema.series.heat(row) == 100
        assert path_of(4) in [each.path for each in list_files(node.operator).files]


def test_a_file_found_good_again_is_registered_too(world: World) -> None:
    with world.node() as node:
        wait_until_done(node)
        (entry,) = (each for each in list_quarantine(node.engine) if each.path == path_of(8))
        retry_quarantined(node.operator, A, entry.path, entry.digest)
        assert "root.sg.bad.s1" in paths(node)


def test_a_second_start_has_nothing_to_do(world: World) -> None:
    with world.node() as node:
        wait_until_done(node)
    with world.still_node() as node:
        newest = node.engine.newest_commit
        assert node.load.registrar.run_once() == 0
        assert node.engine.newest_commit == newest


@pytest.mark.parametrize("point", ["registrar.read", "registrar.committed"])
@pytest.mark.parametrize("at", [0, 2, 3])
def test_it_may_be_cut_off_anywhere_and_goes_on(world: World, point: str, at: int) -> None:
    seen = []

    def die(name: str) -> None:
        if name == point:
            seen.append(name)
            if len(seen) > at:
                raise crash.SimulatedCrash(name)

    node = world.still_node()
    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        node.load.registrar.run_once()
    node.close()
    with world.still_node() as node:
        node.load.registrar.run_once()
        assert paths(node) == PATHS
        assert len(list_quarantine(node.engine)) == 2


def test_a_file_whose_bytes_are_gone_does_not_keep_the_others(world: World) -> None:
    (gone,) = (world.data / "sequence" / "root.sg" / "0" / "0").glob("*-2-0.*.tsfile")
    gone.unlink()
    with world.still_node() as node:
        node.load.registrar.run_once()
        assert paths(node) == [each for each in PATHS if ".d2." not in each]
        assert running_status(node.operator, node.problem()).schema.unregistered == 1
        assert [each.kind for each in fsck_of(node).found] == ["missing"]


def test_loads_go_on_meanwhile_and_decide_what_comes_first(world: World) -> None:
    with world.still_node() as node:
        edge = Edge(node, "c" * 32)
        new = tsfile("root.sg.d9")
        assert results(edge.round({path_of(9): new})) == {path_of(9): "loaded"}
        node.load.registrar.run_once()
        assert sorted([*PATHS, "root.sg.d9.s1"]) == sorted(paths(node))


def test_what_came_again_and_contradicts_still_is_wanted_no_more(world: World) -> None:
    with world.still_node() as node:
        node.load.registrar.run_once()
        with node.engine.reading() as state:
            epoch = state.senders[A].epoch
        edge = Edge(node, epoch=epoch)
        assert [each.path for each in edge.check().wanted] == [path_of(8), path_of(4)]
        content = build({"root.sg.d1": {"s1": [(100, 0.5)]}})
        assert results(edge.round({path_of(4): content})) == {path_of(4): "quarantined"}
        assert [each.path for each in edge.check().wanted] == [path_of(8)]
