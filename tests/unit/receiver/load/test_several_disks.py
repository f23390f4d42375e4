"""Data directories on several disks: where senders' folders stand, and when they move."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from common import crash
from common.crash import SimulatedCrash
from common.durable import Tree
from common.errors import NoSpaceError, Transient
from receiver.datadirs import disks as disks_module
from receiver.datadirs.disks import AwayError
from receiver.load import incoming_space as space_module
from receiver.load.folder.manifests import read_table
from receiver.load.folder.sender_folder import Folders, SenderFolder, folder_name
from receiver.node import Node
from receiver.operator import status as status_module
from receiver.operator.status import running_status
from receiver.operator.stored.quarantine import drop_quarantined, list_quarantine, retry_quarantined
from tests.support.node_world import A, B, Edge, World, fsck_of, path_of, results, tsfile

MIB = 1 << 20


@dataclass
class Room:
    """Each data directory is a disk with so many free bytes."""

    free: dict[str, int] = field(default_factory=lambda: {"data": 9 * MIB, "data2": 5 * MIB})

    def __call__(self, path: Path) -> int:
        return self.free[path.name]


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    room = Room()
    for module in (disks_module, space_module, status_module):
        monkeypatch.setattr(module, "free_bytes", room)
    monkeypatch.setattr(disks_module, "device_of", lambda tree: hash(tree.path.name))
    return room


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, limits={"min_free_bytes": MIB})


@pytest.fixture
def node(world: World, room: Room) -> Iterator[Node]:
    with world.node() as node:
        yield node


def homes(node: Node) -> dict[str, str]:
    """Data directory of each visible file, by path."""
    with node.engine.reading() as state:
        return {row.path: Path(row.data_dir).name for row in state.files.values() if row.visible}


def test_a_new_senders_folder_stands_where_most_is_free(node: Node, room: Room):
    assert results(Edge(node).round({path_of(1): tsfile()})) == {path_of(1): "loaded"}
    room.free["data2"] = 20 * MIB
    Edge(node, uuid=B).round({path_of(2): tsfile("root.sg.d2")})
    assert homes(node) == {path_of(1): "data", path_of(2): "data2"}
    assert fsck_of(node).found == []
    view = running_status(node.operator, None)
    assert [(Path(each.path).name, each.free_bytes, each.senders) for each in view.directories] == [
        ("data", 9 * MIB, 1),
        ("data2", 20 * MIB, 1),
    ]
    assert view.free_bytes == 20 * MIB


def test_of_directories_on_one_disk_the_first_is_taken(world: World, room: Room, monkeypatch):
    monkeypatch.setattr(disks_module, "device_of", lambda _: 1)
    room.free["data2"] = 20 * MIB
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
        assert homes(node) == {path_of(1): "data"}


def test_a_folder_goes_on_where_there_is_room_when_nothing_is_under_way(
    node: Node, room: Room, world: World
):
    edge = Edge(node)
    edge.round({path_of(1): tsfile()})
    room.free["data"] = MIB + 1
    edge.check()
    edge.round({path_of(2): tsfile("root.sg.d2")})
    assert homes(node) == {path_of(1): "data", path_of(2): "data2"}
    assert fsck_of(node).found == []
    with node.engine.reading() as state:
        rows = {row.path: row for row in state.files.values()}
        directory = state.senders[A].directory
    roots = [world.root / "data", world.root / "data2"]
    for path in (path_of(1), path_of(2)):
        assert read_table(roots, directory, rows[path]) is not None, "what the sender said of it"
    room.free |= {"data": 50 * MIB, "data2": 3 * MIB}
    edge.round({path_of(3): tsfile("root.sg.d3")})
    assert homes(node)[path_of(3)] == "data2", "it stays while there is room"


def test_it_is_found_there_by_the_next_life(world: World, room: Room):
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        room.free["data"] = 0
        edge.round({path_of(2): tsfile("root.sg.d2")})
        task = edge.start()
        edge.batch(task, {path_of(3): tsfile("root.sg.d3")})
    room.free["data"] = 90 * MIB
    with world.node() as node:
        edge.node = node
        edge.start(task)
        edge.end(task, {path_of(3): tsfile("root.sg.d3")})
        assert results(edge.outcome(task)) == {path_of(3): "loaded"}
        assert homes(node)[path_of(3)] == "data2"
        assert fsck_of(node).found == []


@pytest.mark.parametrize("what", ["task", "upload", "staged", "schema"])
def test_what_is_under_way_stays_where_it_is(node: Node, room: Room, what: str):
    edge = Edge(node)
    edge.round({path_of(1): tsfile()})
    folder = node.load.folders.find(A)
    assert folder is not None
    task = edge.start()
    content = tsfile("root.sg.d2", points=2000)
    edge.plan(task, [])
    if what == "upload":
        view = node.uploads.create(edge.who, A, len(content), {"path": path_of(2), "task": task})
        node.uploads.patch(edge.who, view.id, 0, content[:100], at_once=True)
    elif what == "staged":
        edge.batch(task, {path_of(2): content})
    elif what == "schema":
        folder.tree.write_atomic(folder.at("schema.stage"), b"x")
    if what != "task":
        with folder.lock:
            folder.forget_task()
    room.free["data"] = 0
    node.load.folder_of(A, "10.0.0.7")
    assert folder.tree.path.name == "data"
    if what == "task":
        with pytest.raises(NoSpaceError):
            edge.batch(task, {path_of(2): content})


def test_a_known_sender_gets_no_second_folder_while_a_directory_is_away(world: World, room: Room):
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
    (world.root / "data").rename(world.root / "elsewhere")
    (world.root / "data").mkdir()
    with world.node() as node:
        with pytest.raises(AwayError, match="data is away"):
            node.load.folder_of(A, "10.0.0.7")
        Edge(node, uuid=B).round({path_of(2): tsfile("root.sg.d2")})
        assert homes(node)[path_of(2)] == "data2"
    shutil.rmtree(world.root / "data")
    (world.root / "elsewhere").rename(world.root / "data")
    with world.node() as node:
        edge.node = node
        edge.round({path_of(3): tsfile("root.sg.d3")})
        assert homes(node) == {path_of(1): "data", path_of(2): "data2", path_of(3): "data"}


def test_where_folders_cannot_be_looked_for_nobody_gets_another_one(world: World, room: Room):
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
    (world.root / "data" / "sync-receiver").rename(world.root / "aside")
    (world.root / "data" / "sync-receiver").write_bytes(b"")
    with world.node() as node:
        assert "sync-receiver" in (node.problem() or "")
        with pytest.raises(Transient, match="sync-receiver"):
            node.load.folder_of(A, "10.0.0.7")


@pytest.mark.parametrize("point", ["folder.made", "folder.left"])
def test_a_move_that_is_cut_off_leaves_one_folder(world: World, room: Room, point: str):
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        room.free["data"] = 0

        def dies(name: str) -> None:
            if name == point:
                raise SimulatedCrash

        with crash.arm(dies), pytest.raises(SimulatedCrash):
            node.load.folder_of(A, "10.0.0.7")
    with world.node() as node:
        edge.node = node
        edge.round({path_of(2): tsfile("root.sg.d2")})
        standing = [
            each
            for each in (world.root / "data", world.root / "data2")
            if next((each / "sync-receiver").glob(f"*_{A}/data"), None)
        ]
        assert len(standing) == 1
        assert homes(node)[path_of(2)] == standing[0].name
        assert fsck_of(node).found == []


def test_a_folder_that_was_left_is_not_taken_where_the_other_is_away(world: World, room: Room):
    """What is under way is on the disk that is away; nothing of it is begun anew elsewhere."""
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        room.free["data"] = 0
        edge.check()
        task = edge.start()
        edge.batch(task, {path_of(2): tsfile("root.sg.d2")})
    (world.root / "data2").rename(world.root / "elsewhere")
    (world.root / "data2").mkdir()
    room.free["data"] = 90 * MIB
    with world.node() as node:
        assert node.load.folders.find(A) is None
        with pytest.raises(AwayError, match="data2 is away"):
            node.load.folder_of(A, "10.0.0.7")


def test_bytes_in_quarantine_are_found_behind_a_move(node: Node, room: Room):
    edge = Edge(node)
    edge.round({path_of(1): tsfile()})
    task = edge.start()
    good = tsfile("root.sg.d2")
    bad = {path_of(8): b"TsFile no more" * 20, path_of(9): b"TsFile neither" * 20}
    assert all(each.quarantined for each in edge.batch(task, bad))
    edge.end(task, {})
    edge.outcome(task)
    room.free["data"] = 0
    edge.round({path_of(2): good})
    assert homes(node)[path_of(2)] == "data2"
    entries = {each.path: each for each in list_quarantine(node.engine)}
    kept = [row.kept for row in _quarantine(node)]
    tree = Tree(node.config.data_dirs[0])
    assert all(each is not None and tree.exists(each) for each in kept)
    drop_quarantined(node.operator, A, path_of(8), entries[path_of(8)].digest)
    (row,) = _quarantine(node)
    assert row.kept is not None
    assert [each for each in kept if each is not None and tree.exists(each)] == [row.kept]
    said = retry_quarantined(node.operator, A, path_of(9), row.digest)
    assert "the next round of the sender" in said, "what is kept is where nothing is received"
    assert list_quarantine(node.engine) == []
    tree.close()


def _quarantine(node: Node):
    with node.engine.reading() as state:
        return list(state.quarantine.values())


def test_the_folder_in_which_something_is_under_way_stands(tmp_path: Path):
    with Tree(tmp_path / "one", create=True) as one, Tree(tmp_path / "two", create=True) as two:
        name = folder_name("10.0.0.7", A)
        for tree in (one, two):
            SenderFolder(tree, A, name).make()
        two.write_atomic(f"sync-receiver/{name}/task.json", b"{}")
        folders = Folders([one, two])
        (found,) = folders.scan({A: name})
        assert found.tree is two
        assert not one.exists(f"sync-receiver/{name}/data")
        assert [each.tree for each in folders.left()] == [one]
