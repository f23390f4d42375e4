"""Data directories that are drained: what is moved, what is read meanwhile, and what stays."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from common import crash
from common.durable import Tree
from common.errors import ConflictError, NoSpaceError, NotFoundError
from receiver.datadirs import disks as disks_module
from receiver.load.folder.manifests import read_table
from receiver.load.moving import mover as mover_module
from receiver.load.placing import tree_of
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.directories import RunningReceiver
from receiver.operator.places.forgetting_nodes import forget_node
from receiver.operator.places.node_lists import drain_node, list_nodes, undrain_node
from receiver.operator.views.node_views import DrainView, NodeView
from receiver.storage.copying import StorageService
from tests.support.copy_nodes import place_tablets
from tests.support.node_world import A, B, Edge, World, fsck_of, path_of, results, tsfile

FILES = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(3)}
RESOURCE = b"resource of the first"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, keep_deleted=0.0)


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    node = world.still_node()
    yield node
    node.close()


@pytest.fixture
def filled(node: Node) -> Edge:
    edge = Edge(node)
    edge.round(FILES, resources={path_of(0): RESOURCE})
    return edge


def drain(node: Node, name: str = "data") -> str:
    return drain_node(node.operator, str(node.config.data_dirs[0].with_name(name))).uuid


def seen(node: Node, name: str = "data") -> NodeView:
    (found,) = (each for each in list_nodes(node.operator).nodes if Path(each.name).name == name)
    return found


def drained(node: Node, name: str = "data") -> DrainView:
    found = seen(node, name).drain
    assert found is not None
    return found


def homes(node: Node) -> dict[str, str]:
    """Data directory of each file, by path, as the catalogue has it."""
    with node.engine.reading() as state:
        return {row.path: Path(row.data_dir).name for row in state.files.values()}


def read(node: Node) -> dict[str, bytes]:
    """What readers get of each visible file."""
    with node.engine.reading() as state:
        rows = [row for row in state.files.values() if row.visible]
    found = {}
    for row in rows:
        tree = tree_of(node.load.disks.trees, row)
        assert tree is not None, row.path
        found[row.path] = tree.read(row.physical)
    return found


def on_disk(world: World, name: str) -> list[str]:
    place = world.root / name
    return sorted(
        each.relative_to(place).as_posix()
        for kind in ("sequence", "unsequence")
        for each in (place / kind).rglob("*")
        if each.is_file()
    )


def test_files_of_a_drained_directory_move_and_it_is_empty(world: World, node: Node, filled: Edge):
    assert seen(node).state == "standing"
    assert (seen(node).files, seen(node).tablets) == (3, 1)
    drain(node)
    assert seen(node).state == "draining"
    before = on_disk(world, "data")
    assert node.load.mover.run_once()
    assert homes(node) == dict.fromkeys(FILES, "data2")
    assert on_disk(world, "data2") == before
    assert read(node) == FILES
    assert fsck_of(node).found == []
    while node.load.mover.run_once():
        pass
    assert on_disk(world, "data") == []
    assert on_disk(world, "data2") == before
    assert read(node) == FILES
    assert drained(node).empty
    assert (drained(node).moved, drained(node).files, drained(node).copies) == (3, 0, 0)
    assert (seen(node).files, seen(node, "data2").files) == (0, 3)
    assert fsck_of(node).found == []
    assert not (world.root / "data2" / "moving").is_dir() or not list(
        (world.root / "data2" / "moving").iterdir()
    )


def test_the_resource_of_a_file_that_is_at_nodes_only_leaves_a_drained_directory(
    world: World, node: Node, filled: Edge
):
    place_tablets(node.engine)
    with node.engine.reading() as state:
        (row,) = [each for each in state.files.values() if each.path == path_of(0)]
        (placed,) = state.placement_table.rows.values()
    released = records.FileReleased(row.physical, placed.tablet, 1, placed.nodes)
    node.engine.commit([released])
    (world.root / "data" / row.physical).unlink()
    drain(node)
    while node.load.mover.run_once():
        pass
    assert on_disk(world, "data") == []
    assert f"{row.physical}.resource" in on_disk(world, "data2")
    assert drained(node).empty
    assert fsck_of(node).found == []


def test_nothing_new_comes_to_it_and_its_folders_leave(world: World, node: Node, filled: Edge):
    drain(node)
    assert results(filled.round({path_of(7): tsfile("root.sg.d7")})) == {path_of(7): "loaded"}
    assert homes(node)[path_of(7)] == "data2"
    Edge(node, B).round({path_of(8): tsfile("root.sg.d8")})
    assert homes(node)[path_of(8)] == "data2"
    folder = node.load.folders.find(A)
    assert folder is not None
    assert folder.tree.path.name == "data2"


def test_the_folder_of_a_sender_that_never_comes_again_leaves_with_what_is_kept_in_it(
    world: World, node: Node, filled: Edge
):
    task = filled.start()
    bad = {path_of(9): b"TsFile no more" * 20}
    assert all(each.quarantined for each in filled.batch(task, bad))
    filled.end(task, {})
    filled.outcome(task)
    with node.engine.reading() as state:
        (kept,) = (row.kept for row in state.quarantine.values())
        rows = {row.path: row for row in state.files.values()}
        directory = state.senders[A].directory
    assert kept is not None
    drain(node)
    while node.load.mover.run_once():
        pass
    assert drained(node).empty, drained(node)
    assert (world.root / "data2" / kept).read_bytes() == bad[path_of(9)]
    assert not (world.root / "data" / kept).exists()
    assert read_table([world.root / "data2"], directory, rows[path_of(1)]) is not None
    assert fsck_of(node).found == []


def test_a_resource_goes_along_and_a_later_one_comes_to_where_the_file_is(
    world: World, node: Node, filled: Edge
):
    drain(node)
    node.load.mover.run_once()
    (row,) = (r for r in _rows(node) if r.path == path_of(0))
    resource = f"{row.physical}.resource"
    assert (world.root / "data2" / resource).read_bytes() == RESOURCE
    task = filled.start()
    content = FILES[path_of(0)]
    anew = b"another resource"
    _send_resource(filled, task, path_of(0), content, anew)
    assert (world.root / "data2" / resource).read_bytes() == anew
    assert not (world.root / "data" / resource).exists(), "it would be another one there"
    while node.load.mover.run_once():
        pass
    assert (world.root / "data2" / resource).read_bytes() == anew
    assert fsck_of(node).found == []


def _send_resource(edge: Edge, task: str, path: str, content: bytes, resource: bytes) -> None:
    from tests.support.node_world import plan_entry, resource_entry

    edge.plan(task, [plan_entry(path, content, resource=resource_entry(resource))])
    edge.batch(task, {f"{path}.resource": resource})
    edge.end(task, {path: content})
    edge.outcome(task)


def _rows(node: Node):
    with node.engine.reading() as state:
        return list(state.files.values())


def test_a_resource_that_is_lost_keeps_its_file_for_a_while_and_not_for_ever(
    world: World, node: Node, filled: Edge, monkeypatch: pytest.MonkeyPatch
):
    (resource,) = (world.root / "data").rglob("*.resource")
    resource.unlink()
    drain(node)
    node.load.mover.run_once()
    assert homes(node)[path_of(0)] == "data"
    (stuck,) = drained(node).stuck
    assert "its resource" in stuck.why
    now = node.load.mover._monotonic()
    monkeypatch.setattr(node.load.mover, "_monotonic", lambda: now + 1000)
    node.load.mover.run_once()
    assert homes(node) == dict.fromkeys(FILES, "data2")
    while node.load.mover.run_once():
        pass
    assert drained(node).empty


def test_a_file_with_other_bytes_than_were_loaded_stays_and_is_named(
    world: World, node: Node, filled: Edge
):
    (bad,) = (r for r in _rows(node) if r.path == path_of(1))
    place = world.root / "data" / bad.physical
    place.write_bytes(b"x" + place.read_bytes()[1:])
    drain(node)
    while node.load.mover.run_once():
        pass
    assert homes(node) == {path_of(0): "data2", path_of(1): "data", path_of(2): "data2"}
    view = drained(node)
    assert not view.empty
    assert (view.files, [each.file for each in view.stuck]) == (1, [bad.physical])
    assert on_disk(world, "data") == [bad.physical]
    assert bad.physical not in on_disk(world, "data2")


def test_a_file_that_the_disk_does_not_read_stops_no_other(
    world: World, node: Node, filled: Edge, monkeypatch: pytest.MonkeyPatch
):
    (bad,) = (r for r in _rows(node) if r.path == path_of(1))
    ours = os.stat(world.root / "data" / bad.physical)
    pread = os.pread

    def dying(fd: int, size: int, at: int) -> bytes:
        if os.path.samestat(os.fstat(fd), ours):
            raise OSError(5, "Input/output error")
        return pread(fd, size, at)

    monkeypatch.setattr(os, "pread", dying)
    drain(node)
    node.load.mover.run_once()
    assert homes(node) == {path_of(0): "data2", path_of(1): "data", path_of(2): "data2"}
    assert "Input/output error" in drained(node).stuck[0].why


def test_a_copy_that_was_damaged_since_is_made_again_before_the_file_goes(
    world: World, node: Node, filled: Edge
):
    drain(node)
    node.load.mover.run_once()
    (row,) = (r for r in _rows(node) if r.path == path_of(1))
    copy = world.root / "data2" / row.physical
    copy.write_bytes(b"x" + copy.read_bytes()[1:])
    node.load.mover.run_once()
    assert (world.root / "data" / row.physical).read_bytes() == FILES[path_of(1)]
    assert copy.read_bytes() == FILES[path_of(1)]


def test_copies_stay_for_those_who_read_them_and_go_in_their_time(
    world: World, node: Node, filled: Edge, monkeypatch: pytest.MonkeyPatch
):
    mover = node.load.mover
    monkeypatch.setattr(mover, "_keep", 3600.0)
    drain(node)
    mover.run_once()
    assert mover.run_once() == 0
    assert len(on_disk(world, "data")) == 4
    assert drained(node).copies == 3
    now = mover._monotonic()
    monkeypatch.setattr(mover, "_monotonic", lambda: now + 3601)
    used = []

    @contextmanager
    def letting_go(physical: str) -> Iterator[bool]:
        used.append(physical)
        yield len(used) > 1

    monkeypatch.setattr(mover, "letting_go", letting_go)
    assert mover.run_once() == 2
    assert {each.removesuffix(".resource") for each in on_disk(world, "data")} == {used[0]}


def test_a_file_that_is_deleted_or_replaced_while_it_is_copied_is_no_move(
    world: World, node: Node, filled: Edge
):
    (gone,) = (r for r in _rows(node) if r.path == path_of(1))

    def deleted(point: str) -> None:
        if point == "move.named":
            node.engine.commit([records.FileDeleted(gone.physical, "operator")])
            node.engine.commit([records.FileForgotten(gone.physical)])

    drain(node)
    with crash.arm(deleted):
        node.load.mover.run_once()
    assert homes(node) == {path_of(0): "data2", path_of(2): "data2"}
    assert gone.physical not in on_disk(world, "data2")


def test_a_directory_that_is_not_drained_any_more_keeps_its_files(
    world: World, node: Node, filled: Edge
):
    drain(node)

    def kept(point: str) -> None:
        if point == "move.named":
            undrain_node(node.operator, str(world.data))

    with crash.arm(kept):
        node.load.mover.run_once()
    assert homes(node) == dict.fromkeys(FILES, "data")
    assert on_disk(world, "data2") == []
    assert read(node) == FILES
    assert seen(node).state == "standing"


@pytest.mark.parametrize("restarted", [False, True])
def test_copies_go_of_a_directory_that_is_not_drained_any_more(
    world: World, node: Node, filled: Edge, monkeypatch: pytest.MonkeyPatch, restarted: bool
):
    monkeypatch.setattr(node.load.mover, "_keep", 60.0)
    drain(node)
    node.load.mover.run_once()
    before = on_disk(world, "data2")
    assert on_disk(world, "data") == before, "they stay for those who read them here"
    undrain_node(node.operator, str(world.data))
    if restarted:
        node.load.mover._progress.clear()  # as a start does
        node.load.mover.run_once()
        assert on_disk(world, "data") == before
        node.load.checks.run_once()
    node.load.mover.run_once()
    assert on_disk(world, "data") == before, "as long as they would have"
    monkeypatch.setattr(node.load.mover, "_keep", 0.0)
    while node.load.mover.run_once():
        pass
    assert (on_disk(world, "data"), on_disk(world, "data2")) == ([], before)
    assert read(node) == FILES
    assert homes(node) == dict.fromkeys(FILES, "data2")
    assert (seen(node).state, fsck_of(node).found) == ("standing", [])


def test_a_copy_stays_whose_file_is_damaged_where_the_catalogue_has_it(
    world: World, node: Node, filled: Edge, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(node.load.mover, "_keep", 60.0)
    drain(node)
    node.load.mover.run_once()
    undrain_node(node.operator, str(world.data))
    (row,) = (each for each in _rows(node) if each.path == path_of(1))
    place = Path(row.data_dir) / row.physical
    content = bytearray(place.read_bytes())
    content[9] ^= 1
    place.write_bytes(content)
    monkeypatch.setattr(node.load.mover, "_keep", 0.0)
    node.load.mover.run_once()
    assert row.physical in on_disk(world, "data"), "the only whole one"


def test_what_was_committed_before_a_cut_is_not_taken_back(world: World, node: Node, filled: Edge):
    def cut(point: str) -> None:
        if point == "move.committed":
            raise crash.SimulatedCrash

    drain(node)
    with crash.arm(cut), pytest.raises(crash.SimulatedCrash):
        node.load.mover.run_once()
    moved = [path for path, home in homes(node).items() if home == "data2"]
    assert moved
    node.load.mover.recover()
    assert len(on_disk(world, "data2")) >= len(moved)
    for row in _rows(node):
        assert (Path(row.data_dir) / row.physical).read_bytes() == FILES[row.path]


def test_the_last_directory_that_takes_files_is_not_drained(world: World, node: Node):
    drain(node, "data2")
    with pytest.raises(ConflictError, match="no other data directory"):
        drain(node)
    undrain_node(node.operator, str(world.root / "data2"))
    drain(node)
    drain(node)


def test_without_room_elsewhere_files_stay(
    world: World, node: Node, filled: Edge, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mover_module, "free_bytes", lambda _: 10)
    drain(node)
    node.load.mover.run_once()  # what the sender said of its series goes with its folder
    assert node.load.mover.run_once() == 0
    assert "room" in drained(node).stuck[0].why
    assert homes(node) == dict.fromkeys(FILES, "data")


def test_a_disk_that_gets_full_while_a_file_comes_to_it_has_nothing_of_it(
    world: World, node: Node, filled: Edge, monkeypatch: pytest.MonkeyPatch
):
    drain(node)

    def full(point: str) -> None:
        if point == "move.copied":
            raise NoSpaceError("no space")

    with crash.arm(full), pytest.raises(NoSpaceError):
        node.load.mover.run_once()
    assert list((world.root / "data2" / "moving").rglob("*")) == []
    assert homes(node) == dict.fromkeys(FILES, "data")


def test_files_that_readers_do_not_see_move_too(world: World, node: Node, filled: Edge):
    rows = {row.path: row.physical for row in _rows(node)}
    node.engine.commit([records.FileQuarantined(rows[path_of(0)], "bad")])
    node.engine.commit([records.FileDeleted(rows[path_of(1)], "operator")])
    drain(node)
    while node.load.mover.run_once():
        pass
    assert homes(node) == dict.fromkeys(FILES, "data2")
    assert drained(node).empty


def test_a_file_that_nobody_knows_stays_and_is_shown(world: World, node: Node, filled: Edge):
    stranger = world.root / "data" / "sequence" / "root.sg" / "0" / "0" / "9-9-0-0.tsfile"
    stranger.write_bytes(b"whose?")
    drain(node)
    while node.load.mover.run_once():
        pass
    assert stranger.read_bytes() == b"whose?"
    view = drained(node)
    assert (view.unknown, view.empty) == (1, False)
    assert view.stuck[0].why == "the catalogue does not have it"


def test_what_is_drained_is_forgotten_once_it_is_empty_and_out_of_the_configuration(
    world: World, node: Node, filled: Edge
):
    uuid = drain(node)
    with pytest.raises(ConflictError, match="is in the configuration"):
        forget_node(node.operator, uuid)
    while node.load.mover.run_once():
        pass
    node.close()
    rest = msgspec.structs.replace(world.config, data_dirs=(world.root / "data2",))
    with Node.open(rest) as again:
        assert again.problem() is None
        assert read(again) == FILES
        (gone, _) = list_nodes(again.operator).nodes
        assert (gone.uuid, gone.state, gone.why) == (uuid, "away", "it is not in the configuration")
        forget_node(again.operator, uuid[:8])
        assert [each.uuid for each in list_nodes(again.operator).nodes] != [uuid]
        with pytest.raises(NotFoundError):
            forget_node(again.operator, uuid)


def test_a_directory_with_files_is_not_forgotten(world: World, node: Node, filled: Edge):
    uuid = seen(node).uuid
    node.close()
    rest = msgspec.structs.replace(world.config, data_dirs=(world.root / "data2",))
    with Node.open(rest) as again, pytest.raises(ConflictError, match="has 3 files in"):
        forget_node(again.operator, uuid)


@pytest.mark.parametrize("kind", ["live", "deleted"])
def test_an_emptied_directory_is_forgotten_when_a_store_has_what_left_it(
    world: World, node: Node, filled: Edge, kind: str
):
    rows = list(_rows(node))
    stored = [
        records.FileUploaded(
            each.physical, 1, each.size, "", each.resource.md5 if each.resource else ""
        )
        for each in rows
    ]
    node.engine.commit(stored[1:])
    for each in rows:
        (world.root / "data" / each.physical).unlink()
        if kind == "deleted":
            node.engine.commit([records.FileDeleted(each.physical, "operator")])
    with _without_the_first(world, node) as (again, uuid):
        with pytest.raises(ConflictError, match="has 3 files in"):  # no store can be asked for them
            forget_node(again.operator, uuid)
        there = _with_store(again)
        with pytest.raises(ConflictError, match=f"has 1 files in .*, as {rows[0].physical}"):
            forget_node(there, uuid)
        again.engine.commit(stored[:1])
        with pytest.raises(ConflictError, match="has 3 files in"):  # it does not answer
            forget_node(_with_store(again, is_reached=False), uuid)
        forget_node(there, uuid)
        assert uuid not in {each.uuid for each in list_nodes(again.operator).nodes}


def test_a_directory_is_not_forgotten_that_has_the_resource_of_a_file_that_left_it(
    world: World, node: Node, filled: Edge
):
    """Nobody else has it: the store had the file before its resource came."""
    for each in _rows(node):
        node.engine.commit([records.FileUploaded(each.physical, 1, each.size, "")])
        (world.root / "data" / each.physical).unlink()
    with_resource = next(each.physical for each in _rows(node) if each.resource)
    (resource,) = (world.root / "data").rglob("*.resource")
    with _without_the_first(world, node) as (again, uuid):
        there = _with_store(again)
        with pytest.raises(ConflictError, match=f"has 1 files in .*, as {with_resource}"):
            forget_node(there, uuid)
        to = world.root / "data2" / resource.relative_to(world.root / "data")
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(resource.read_bytes())
        forget_node(there, uuid)


def test_an_emptied_directory_is_forgotten_when_nodes_are_known_to_have_what_left_it(
    world: World, node: Node, filled: Edge, monkeypatch: pytest.MonkeyPatch
):
    place_tablets(node.engine)
    with node.engine.reading() as state:
        (placed,) = state.placement_table.rows.values()
    rows = list(_rows(node))
    node.engine.commit(
        [records.FileReleased(each.physical, placed.tablet, 1, placed.nodes) for each in rows]
    )
    for each in rows:
        (world.root / "data" / each.physical).unlink()
    with _without_the_first(world, node) as (again, uuid):
        with pytest.raises(ConflictError, match="wait for who else has them"):
            forget_node(again.operator, uuid)
        monkeypatch.setattr(again.copies.released, "_holders", lambda tablet: set(placed.nodes))
        forget_node(again.operator, uuid)
        assert uuid not in {each.uuid for each in list_nodes(again.operator).nodes}


def _with_store(node: Node, *, is_reached: bool = True) -> RunningReceiver:
    store = cast("StorageService", SimpleNamespace(is_reached=is_reached))
    return dataclasses.replace(node.operator, storage=store)


@contextmanager
def _without_the_first(world: World, node: Node) -> Iterator[tuple[Node, str]]:
    """The first directory is drained, and out of the configuration."""
    uuid = drain(node)
    while node.load.mover.run_once():
        pass
    node.close()
    rest = msgspec.structs.replace(world.config, data_dirs=(world.root / "data2",))
    with Node.open(rest) as again:
        yield again, uuid


def test_draining_goes_on_in_the_next_life(world: World, node: Node, filled: Edge):
    drain(node)
    node.close()
    with world.node() as again:
        assert seen(again).state == "draining"
        Edge(again, B).round({path_of(8): tsfile("root.sg.d8")})
        assert homes(again)[path_of(8)] == "data2"


def test_no_directory_is_full_beside_a_directory_on_another_disk(
    world: World, node: Node, filled: Edge, monkeypatch: pytest.MonkeyPatch
):
    """The roomiest that takes files, whichever that is."""
    monkeypatch.setattr(disks_module, "device_of", lambda tree: hash(tree.path.name))
    monkeypatch.setattr(disks_module, "free_bytes", lambda path: 9 if path.name == "data" else 5)
    assert node.load.disks.roomiest().path.name == "data"
    drain(node)
    assert node.load.disks.roomiest().path.name == "data2"


def test_a_read_is_of_the_same_bytes_at_each_step_of_a_move(world: World, node: Node, filled: Edge):
    steps: list[str] = []

    def looked(point: str) -> None:
        if point.startswith("move."):
            steps.append(point)
            assert read(node) == FILES
            with Tree(world.root / "data2") as tree:
                for row in _rows(node):
                    if Path(row.data_dir).name == "data2":
                        content = tree.read(row.physical)
                        assert hashlib.md5(content).hexdigest() == row.md5

    drain(node)
    with crash.arm(looked):
        while node.load.mover.run_once():
            pass
    assert {"move.copied", "move.named", "move.committed", "move.half_gone"} <= set(steps)
