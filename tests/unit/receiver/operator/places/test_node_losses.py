"""Directories whose disk does not come back: what is lost, and what takes their place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from common.errors import ConflictError
from receiver.datadirs import disks as disks_module
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.edges.lost import list_lost
from receiver.operator.places.node_lists import list_nodes
from receiver.operator.places.node_losses import lose_node
from receiver.operator.views.node_views import LossRequest, LossView
from receiver.storage.reading.reader_calls import ReaderCalls
from tests.support.heard_nodes import SpeakingNode
from tests.support.node_world import A, B, Edge, World, epoch_of, path_of, results, tsfile

ON_ONE = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(3)}
ON_OTHER = {path_of(7): tsfile("root.sg.d7")}
RETIRED = path_of(1)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two disks: A has files on the first, one retired, one with a resource; B on the second."""
    world = World(tmp_path)
    monkeypatch.setattr(disks_module, "device_of", lambda tree: hash(tree.path.name))
    free = {"data": 9, "data2": 5}
    monkeypatch.setattr(disks_module, "free_bytes", lambda path: free[path.name])
    with world.node() as node:
        Edge(node).round(ON_ONE, resources={path_of(2): b"resource"})
        free["data2"] = 50
        Edge(node, B).round(ON_OTHER)
        with node.engine.reading() as state:
            row = state.file_table.held(A, RETIRED)
        assert row is not None
        node.engine.commit([records.FileRetired(row.physical)])
    return world


def lose(node: Node, *, confirm: bool = False, replace: Path | None = None) -> LossView:
    name = str(node.config.data_dirs[0])
    request = LossRequest(confirm=confirm, replace=None if replace is None else str(replace))
    return lose_node(node.operator, name, request)


def states(node: Node) -> dict[str, str]:
    with node.engine.reading() as state:
        return {row.path: str(row.state) for row in state.files.values()}


def test_what_is_lost_is_told_and_nothing_is_done_before_that_is_confirmed(world: World):
    shutil.rmtree(world.data)
    with world.node() as node:
        before = states(node)
        view = lose(node)
        assert (view.wanted, view.gone, view.first_gone) == (2, 1, (RETIRED,))
        assert (view.elsewhere, view.done) == (0, False)
        assert states(node) == before
        assert [each.state for each in list_nodes(node.operator).nodes] == ["away", "standing"]


def test_what_is_lost_is_asked_for_again_and_what_the_sender_has_not_is_shown(world: World):
    shutil.rmtree(world.data)
    with world.node() as node:
        assert lose(node, confirm=True).done
        found = states(node)
        assert {path for path, state in found.items() if state == "quarantined"} == set(ON_ONE)
        assert found[path_of(7)] == "live"
        assert [each.path for each in list_lost(node.engine)] == [RETIRED]
        answer = Edge(node, epoch=epoch_of(node)).check()
        assert {each.path for each in answer.wanted} == set(ON_ONE) - {RETIRED}
        again = lose(node, confirm=True)
        assert (again.wanted, again.gone, again.done) == (0, 0, True), "said twice"
        assert [each.state for each in list_nodes(node.operator).nodes] == ["lost", "standing"]


def test_a_new_disk_comes_in_its_place_at_the_next_start(world: World):
    shutil.rmtree(world.data)
    world.data.mkdir()
    with world.node() as node:
        view = lose(node, confirm=True, replace=world.data)
        assert view.replaced == str(world.data)
        assert "data" in str(node.problem()), "it counts from the next start on"
    with world.node() as node:
        assert node.problem() is None
        edge = Edge(node, epoch=epoch_of(node))
        wanted = {path: content for path, content in ON_ONE.items() if path != RETIRED}
        edge.check()
        assert set(results(edge.round(wanted, replaces=wanted)).values()) == {"loaded"}
        names = [(Path(each.name).name, each.state) for each in list_nodes(node.operator).nodes]
        assert sorted(names) == [("data", "lost"), ("data", "standing"), ("data2", "standing")]


def test_the_disk_of_a_lost_directory_that_comes_back_does_not_count(world: World):
    shutil.move(world.data, world.root / "kept")
    with world.node() as node:
        lose(node, confirm=True)
    shutil.move(world.root / "kept", world.data)
    with world.node() as node:
        (away,) = node.load.disks.away()
        assert "declared lost" in away.reason


def test_a_directory_that_is_there_is_not_lost(world: World):
    with world.node() as node, pytest.raises(ConflictError, match="is there: drain it"):
        lose(node, confirm=True)


def test_nothing_is_called_lost_while_another_directory_is_away(world: World):
    for name in ("data", "data2"):
        shutil.rmtree(world.root / name)
    with world.node() as node, pytest.raises(ConflictError, match="data2 is away too"):
        lose(node, confirm=True)


@pytest.mark.parametrize("what", ["missing", "full", "unknown", "used"])
def test_only_an_empty_directory_of_the_configuration_comes_in_its_place(world: World, what: str):
    shutil.rmtree(world.data)
    path = world.data
    if what == "full":
        (world.data / "x").mkdir(parents=True)
    elif what == "unknown":
        path = world.root / "data9"
        path.mkdir()
    elif what == "used":
        path = world.root / "data2"
    with world.node() as node:
        with pytest.raises(ConflictError):
            lose(node, confirm=True, replace=path)
        assert "quarantined" not in states(node).values()
        assert list_nodes(node.operator).nodes[0].state == "away"


def test_files_that_were_moved_off_it_before_are_not_lost(world: World):
    with world.node() as node:
        with node.engine.reading() as state:
            row = state.file_table.held(A, path_of(0))
        assert row is not None
        copy = world.root / "data2" / row.physical
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(ON_ONE[path_of(0)])
    shutil.rmtree(world.data)
    with world.node() as node:
        view = lose(node, confirm=True)
        assert (view.elsewhere, view.wanted) == (1, 1)
        assert states(node)[path_of(0)] == "live"


def _swapped(world: World) -> None:
    """The two disks are mounted the other way round, from the next start on."""
    shutil.move(world.data, world.root / "between")
    shutil.move(world.root / "data2", world.data)
    shutil.move(world.root / "between", world.root / "data2")


def test_what_a_disk_has_that_was_mounted_elsewhere_before_is_lost_with_it(world: World):
    _swapped(world)
    with world.node():
        pass
    shutil.rmtree(world.root / "data2")
    with world.node() as node:
        request = LossRequest(confirm=True)
        view = lose_node(node.operator, str(world.root / "data2"), request)
        assert (view.wanted, view.gone, view.first_gone) == (2, 1, (RETIRED,))
        found = states(node)
        assert {path for path, state in found.items() if state == "quarantined"} == set(ON_ONE)
        assert found[path_of(7)] == "live"


def test_what_may_be_on_a_directory_that_is_known_and_not_configured_is_not_called_lost(
    world: World,
):
    _swapped(world)
    with world.node() as node:
        uuid = "c" * 32
        node.engine.commit([records.NodeRegistered(uuid, "directory", "/elsewhere", "here", 1)])
    shutil.rmtree(world.root / "data2")
    with world.node() as node:
        view = lose_node(node.operator, str(world.root / "data2"), LossRequest(confirm=True))
        assert (view.wanted, view.gone) == (0, 0)


def _copied_to(node: Node, speaking: SpeakingNode) -> None:
    speaking.settle(node.nodes)
    speaking.say(node.nodes)
    with node.engine.reading() as state:
        tablets = list(state.tablet_table.rows)
    node.engine.commit(
        [records.TabletPlaced(each, 1, [speaking.uuid], speaking.uuid) for each in tablets]
    )


def test_what_storage_nodes_have_comes_back_and_is_not_lost(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kept = {each.name: each.read_bytes() for each in world.data.rglob("*.tsfile")}
    shutil.rmtree(world.data)
    speaking = SpeakingNode(tmp_path / "speaking")

    def get(calls: object, path: str, query: dict, headers: object = None) -> bytes:
        begin = query["begin"]
        return kept[Path(query["path"]).name][begin : begin + query["length"]]

    monkeypatch.setattr(ReaderCalls, "get", get)
    with world.node() as node:
        _copied_to(node, speaking)
        view = lose(node)
        assert (view.wanted, view.gone, view.copied, view.perhaps) == (0, 0, 0, 3)
        monkeypatch.setattr(node.copies.book, "nodes_with", lambda state, row: [speaking.uuid])
        view = lose(node)
        assert (view.wanted, view.gone, view.copied, view.perhaps) == (0, 0, 3, 0)
        assert view.first_gone == ()
        view = lose(node, confirm=True)
        assert (view.wanted, view.gone, view.elsewhere) == (0, 0, 3)
        assert "quarantined" not in states(node).values()
        assert list_lost(node.engine) == []
    there = {each.name: each.read_bytes() for each in (world.root / "data2").rglob("*.tsfile")}
    assert kept.items() <= there.items()
    speaking.close()


def test_nothing_is_called_lost_while_a_storage_node_is_silent_that_may_have_it(
    world: World, tmp_path: Path
):
    shutil.rmtree(world.data)
    speaking = SpeakingNode(tmp_path / "speaking")
    with world.node() as node:
        _copied_to(node, speaking)
    speaking.close()
    with world.node() as node:
        view = lose(node)
        assert (view.wanted, view.gone, view.perhaps) == (0, 0, 3)
        with pytest.raises(ConflictError, match="is silent, and may have copies"):
            lose(node, confirm=True)
        assert "quarantined" not in states(node).values()


def test_what_only_a_lost_storage_node_had_is_lost(world: World, tmp_path: Path):
    shutil.rmtree(world.data)
    speaking = SpeakingNode(tmp_path / "speaking")
    with world.node() as node:
        _copied_to(node, speaking)
        node.engine.commit([records.NodeLost(speaking.uuid)])
        view = lose(node)
        assert (view.wanted, view.gone, view.perhaps) == (2, 1, 0)
    speaking.close()


def test_what_the_store_has_is_not_lost_though_its_resource_is(world: World):
    with world.node() as node:
        with node.engine.reading() as state:
            row = state.file_table.held(A, path_of(2))
        assert row is not None
        assert row.resource is not None
        node.engine.commit([records.FileUploaded(row.physical, 1, row.size, "")])
    shutil.rmtree(world.data)
    with world.node() as node:
        view = lose(node, confirm=True)
        assert (view.stored, view.wanted, view.gone) == (1, 1, 1)
        assert states(node)[path_of(2)] == "live"
