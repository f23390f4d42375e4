from __future__ import annotations

import os
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from common import crash
from common.durable import Tree
from common.errors import ConfigError, NoSpaceError
from receiver.config import EtcdConfig, MetadataConfig, ReceiverConfig
from receiver.datadirs import disks as disks_module
from receiver.datadirs.directory_finding import adopt, find_directories
from receiver.datadirs.directory_markers import (
    RECEIVER_MARKER,
    DirectoryMarker,
    read_marker,
    write_marker,
)
from receiver.datadirs.disks import AwayError, Disks
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.status import running_status
from receiver.operator.stored.files import list_files
from tests.support.node_world import (
    READER,
    A,
    B,
    Edge,
    World,
    epoch_of,
    path_of,
    plan_entry,
    results,
    tsfile,
)

FILES = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(3)}


@pytest.fixture
def filled(tmp_path: Path) -> World:
    world = World(tmp_path)
    with world.node() as node:
        Edge(node).round(FILES)
    return world


def marked(world: World) -> list[str]:
    places = (world.config.schema_dir, *world.config.data_dirs)
    return [each.name for each in places if (each / RECEIVER_MARKER).exists()]


def unmark(world: World) -> None:
    """As 0.1.0 left its directories."""
    for each in (world.config.schema_dir, *world.config.data_dirs):
        (each / RECEIVER_MARKER).unlink()


def standing(world: World, of: str = A) -> list[bool]:
    with world.node() as node:
        page = node.listing.inventory(Edge(node, of).who, of, None, 100, look=True)
        assert page.looked
        return [each.stands for each in page.entries]


def exchange(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


def markers(world: World) -> list[DirectoryMarker]:
    """Of the data directories."""
    found = []
    for each in world.config.data_dirs:
        with Tree(each) as tree:
            marker = read_marker(tree)
        assert marker is not None
        found.append(marker)
    return found


def nodes(node: Node) -> dict[str, tuple[str, int]]:
    """Uuid and number of the start of each data directory, as the catalogue has them."""
    with node.engine.reading() as state:
        rows = state.node_table.of_kind("directory")
    return {Path(row.name).name: (row.uuid, row.instance) for row in rows}


def test_every_directory_gets_the_engines_marker_and_a_data_directory_a_uuid(
    filled: World,
) -> None:
    assert marked(filled) == ["schema", "data", "data2"]
    before = markers(filled)
    assert [each.instance for each in before] == [1, 1]
    assert len({each.directory for each in before}) == 2
    with filled.node() as node:
        assert {each.engine for each in before} == {node.engine.uuid}
        assert node.problem() is None
    assert [(each.directory, each.instance) for each in markers(filled)] == [
        (each.directory, 2) for each in before
    ]


def test_each_start_of_a_directory_is_on_its_disk_before_the_catalogue_has_it(
    filled: World,
) -> None:
    for start in (2, 3):
        seen: list[int] = []

        def look(point: str, seen: list[int] = seen) -> None:
            if point == "disks.marked":
                seen += [each.instance for each in markers(filled)]

        with crash.arm(look), filled.node() as node:
            own = {
                Path(path).name: each
                for path, each in zip(filled.config.data_dirs, markers(filled), strict=True)
            }
            assert nodes(node) == {
                name: (each.directory, each.instance) for name, each in own.items()
            }
        assert seen == [start, start]


def test_markers_of_earlier_versions_get_a_uuid(filled: World) -> None:
    for each, marker in zip(filled.config.data_dirs, markers(filled), strict=True):
        with Tree(each) as tree:
            write_marker(tree, DirectoryMarker(marker.engine))
    with filled.node() as node:
        assert node.problem() is None
        assert len(list_files(node.operator).files) == 3
    assert [each.instance for each in markers(filled)] == [1, 1]


def test_a_full_disk_leaves_the_number_of_the_start_before(
    filled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise NoSpaceError("no space")

    before = markers(filled)
    monkeypatch.setattr(disks_module, "write_marker", full)
    with filled.node() as node:
        assert node.problem() is None
        assert {instance for _, instance in nodes(node).values()} == {1}
    assert markers(filled) == before


def test_of_two_directories_with_one_uuid_the_copy_is_refused(filled: World) -> None:
    shutil.rmtree(filled.root / "data2")
    shutil.copytree(filled.data, filled.root / "data2")
    with filled.node() as node:
        (away,) = node.load.disks.away()
        assert away.path.name == "data2"
        assert f"the uuid {markers(filled)[0].directory} of {filled.data}" in away.reason
    assert [each.instance for each in markers(filled)] == [2, 1], "it is left as it is"
    with Engine.read_only(filled.config.schema_dir) as engine:
        with engine.reading() as state:
            rows = dict(state.node_table.rows)
        assert adopt(filled.config, engine.uuid, rows) == [filled.root / "data2"]
    with filled.node() as node:
        assert node.load.disks.away() == []


def test_an_older_copy_of_a_directory_is_refused(filled: World) -> None:
    shutil.copytree(filled.data, filled.root / "copy")
    filled.node().close()
    shutil.rmtree(filled.data)
    (filled.root / "copy").rename(filled.data)
    with filled.node() as node:
        (away,) = node.load.disks.away()
        assert away.path == filled.data
        assert "start 1, and there were 2" in away.reason


def test_an_empty_directory_that_is_added_is_taken_while_all_others_are_there(
    filled: World,
) -> None:
    more = msgspec.structs.replace(
        filled.config, data_dirs=(*filled.config.data_dirs, filled.root / "data3")
    )
    with Node.open(more) as node:
        assert [each.path.name for each in node.load.disks.away()] == ["data3"], "not there"
    (filled.root / "data3").mkdir()
    (filled.root / "data2").rename(filled.root / "elsewhere")
    with Node.open(more) as node:
        away = [each.path.name for each in node.load.disks.away()]
        assert away == ["data2", "data3"], "it may be where data2 is going to be mounted"
    (filled.root / "elsewhere").rename(filled.root / "data2")
    with Node.open(more) as node:
        assert node.problem() is None
        assert sorted(nodes(node)) == ["data", "data2", "data3"]


def _standing_by(world: World, root: Path, *names: str) -> ReceiverConfig:
    """The configuration of a stand-by of that receiver, with directories of its own."""
    for name in ("schema", *names):
        (root / name).mkdir(parents=True)
    return msgspec.structs.replace(
        world.config,
        schema_dir=root / "schema",
        data_dirs=tuple(root / name for name in names),
        metadata=MetadataConfig(backend="etcd", etcd=EtcdConfig(standby=True)),
    )


def _taken(config: ReceiverConfig, engine: Engine) -> list[str]:
    with ExitStack() as stack:
        found, _ = find_directories(config, engine, stack)
        return [each.path.name for each in found if each.is_taken]


def test_a_stand_by_takes_its_own_empty_directories_at_its_first_start(
    filled: World, tmp_path: Path
) -> None:
    config = _standing_by(filled, tmp_path / "other", "one", "full")
    (tmp_path / "other" / "full" / "x").touch()
    with Engine.read_only(filled.config.schema_dir) as engine:
        assert _taken(config, engine) == ["one"]
        alone = msgspec.structs.replace(config, metadata=MetadataConfig())
        assert _taken(alone, engine) == [], "it may be where a disk is going to be mounted"


def test_a_stand_by_takes_no_empty_directory_at_the_path_of_one_that_this_machine_had(
    filled: World, tmp_path: Path
) -> None:
    config = _standing_by(filled, tmp_path / "other", "one")
    data = filled.config.data_dirs[0]
    exchange(data)
    config = msgspec.structs.replace(config, data_dirs=(data,))
    with Engine.read_only(filled.config.schema_dir) as engine:
        assert _taken(config, engine) == []


def test_a_stand_by_takes_what_is_added_though_another_machines_directories_are_not_here(
    filled: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _standing_by(filled, tmp_path / "other", "mine", "added")
    uuid = "c" * 32
    mine = str(tmp_path / "other" / "mine")
    with filled.node() as node:
        node.engine.commit([records.NodeRegistered(uuid, "directory", mine, "another", 1)])
    with Engine.read_only(filled.config.schema_dir) as engine:
        with Tree(config.schema_dir) as schema, Tree(Path(mine)) as tree:
            write_marker(schema, DirectoryMarker(engine.uuid))
            write_marker(tree, DirectoryMarker(engine.uuid, uuid, 1))
        assert _taken(config, engine) == [], "other directories of this machine are not here"
        monkeypatch.setattr(socket, "gethostname", lambda: "another")
        assert _taken(config, engine) == ["added"]
        alone = msgspec.structs.replace(config, metadata=MetadataConfig())
        assert _taken(alone, engine) == []


def test_a_marker_of_a_later_version_says_so(filled: World) -> None:
    (filled.data / RECEIVER_MARKER).write_text("tsferry receiver directory 3\nengine x\n")
    with filled.node() as node:
        assert "of a later version" in str(node.problem())


def test_directories_without_markers_open_once_and_get_them(filled: World) -> None:
    unmark(filled)
    with filled.node() as node:
        assert node.problem() is None
        assert len(list_files(node.operator).files) == 3
    assert marked(filled) == ["schema", "data", "data2"]


def test_directories_without_markers_that_moved_open_too(filled: World) -> None:
    unmark(filled)
    os.rename(filled.root, filled.root.with_name("elsewhere"))
    moved = World(filled.root.with_name("elsewhere"))
    assert standing(moved) == [True] * 3
    assert marked(moved) == ["schema", "data", "data2"]


def test_an_empty_disk_in_the_place_of_one_without_a_marker_gets_none(filled: World) -> None:
    unmark(filled)
    exchange(filled.data)
    with filled.node() as node:
        assert str(filled.data) in str(node.problem())
    assert "data" not in marked(filled)
    assert "schema" not in marked(filled)


def test_a_file_that_was_lost_before_does_not_make_its_directory_a_strange_one(
    filled: World,
) -> None:
    unmark(filled)
    next(
        each for each in filled.data.rglob("*.tsfile") if "sync-receiver" not in str(each)
    ).unlink()
    assert sorted(standing(filled)) == [False, True, True]
    assert marked(filled) == ["schema", "data", "data2"]


@pytest.mark.parametrize("loss", ["empty", "gone", "marker", "foreign", "damaged"])
def test_a_directory_that_lost_its_marker_is_away(filled: World, loss: str) -> None:
    marker = filled.data / RECEIVER_MARKER
    if loss in ("empty", "gone"):
        shutil.rmtree(filled.data)
    if loss == "empty":
        filled.data.mkdir()
    if loss == "marker":
        marker.unlink()
    if loss == "foreign":
        marker.write_text(f"tsferry receiver directory 1\nengine {'e' * 32}\n")
    if loss == "damaged":
        marker.write_text("tsferry")
    with filled.node() as node:
        assert str(filled.data) in str(node.problem())
        status = running_status(node.operator, node.problem())
        assert not status.ready
        assert [each.path for each in status.away] == [str(filled.data)]
        edge = Edge(node, epoch=epoch_of(node))
        edge.check()
        with pytest.raises(AwayError):
            edge.start()
        with pytest.raises(AwayError):
            node.listing.catalogue(READER, None, 10)
        entries = node.listing.inventory(edge.who, A, None, 10, look=True).entries
        assert [each.stands for each in entries] == [False] * 3
    if loss in ("empty", "gone"):
        assert not (filled.data / "sequence").exists()
    assert not marker.exists() or loss in ("foreign", "damaged")


def test_a_load_waits_while_its_directory_is_away(filled: World) -> None:
    node = filled.still_node()
    edge = Edge(node, B)
    edge.check()
    task = edge.start()
    name, content = path_of(7), tsfile("root.sg.d7")
    edge.plan(task, [plan_entry(name, content)])
    edge.batch(task, {name: content})
    marker = filled.data / RECEIVER_MARKER
    kept = marker.read_bytes()
    edge.end(task, {name: content})
    marker.unlink()
    node.load.loader.run_due()
    assert node.load.loader.waiting == 1
    folder = node.load.folders.find(B)
    assert folder is not None
    assert folder.task is not None
    assert "away" in str(folder.task.trouble)
    marker.write_bytes(kept)
    node.close()
    with filled.node() as again:
        assert results(Edge(again, B).outcome(task)) == {name: "loaded"}


def test_a_directory_that_is_exchanged_under_a_running_server_is_away(filled: World) -> None:
    with filled.node() as node:
        os.rename(filled.data, filled.root / "old")
        shutil.copytree(filled.root / "old", filled.data)
        assert "another directory" in str(node.problem())
        entries = node.listing.inventory(Edge(node).who, A, None, 10, look=True).entries
        assert not any(each.stands for each in entries)


@pytest.mark.parametrize("loss", ["empty", "gone", "marker"])
def test_where_the_schema_directory_went_under_a_running_server_nothing_is_safe(
    filled: World, loss: str
) -> None:
    """What is committed now is not there after the next start, and what was loaded neither."""
    with filled.node() as node:
        edge = Edge(node, epoch=epoch_of(node))
        schema = filled.config.schema_dir
        if loss == "marker":
            (schema / RECEIVER_MARKER).unlink()
        else:
            schema.rename(schema.with_name("moved"))
        if loss == "empty":
            schema.mkdir()
        assert f"the schema directory {schema} is away" in str(node.problem())
        status = running_status(node.operator, node.problem())
        assert [each.path for each in status.away] == [str(schema)]
        with pytest.raises(AwayError):
            edge.start()
        entries = node.listing.inventory(edge.who, A, None, 10, look=True).entries
        assert [each.stands for each in entries] == [False] * 3
        assert len(node.listing.catalogue(READER, None, 10).entries) == 3, "it still is read"


def test_what_lies_at_its_path_counts_only_as_a_file_of_its_size(filled: World) -> None:
    files = sorted(each for each in (filled.data / "sequence").rglob("*.tsfile"))
    os.truncate(files[0], 10)
    files[1].rename(filled.root / "kept")
    files[1].symlink_to(filled.root / "kept")
    assert standing(filled).count(True) == 1


def test_a_file_without_its_resource_does_not_stand(filled: World) -> None:
    name, content = path_of(8), tsfile("root.sg.d8")
    with filled.node() as node:
        edge = Edge(node, B)
        edge.check()
        edge.round({name: content}, resources={name: b"resource"})
    assert standing(filled, B) == [True]
    (resource,) = (filled.data / "sequence").rglob("*.resource")
    resource.unlink()
    assert standing(filled, B) == [False]


def test_nobody_is_looked_at_who_is_not_asked_for(filled: World) -> None:
    with filled.node() as node:
        page = node.listing.inventory(Edge(node).who, A, None, 10)
        assert not page.looked
        assert not any(each.stands for each in page.entries)


@pytest.mark.parametrize("markers", [True, False])
def test_a_lost_schema_directory_is_no_first_start(filled: World, markers: bool) -> None:
    if not markers:
        unmark(filled)
    exchange(filled.config.schema_dir)
    with pytest.raises(ConfigError, match="init --adopt"):
        filled.node()
    assert not list(filled.config.schema_dir.glob("mlog*"))


def test_a_lost_log_beside_its_marker_is_no_first_start(filled: World) -> None:
    marker = filled.config.schema_dir / RECEIVER_MARKER
    kept = marker.read_bytes()
    exchange(filled.config.schema_dir)
    marker.write_bytes(kept)
    for each in filled.config.data_dirs:
        exchange(each)
    with pytest.raises(ConfigError, match="belongs to the engine"):
        filled.node()


def test_the_schema_directory_of_another_engine_is_refused(filled: World) -> None:
    (filled.config.schema_dir / RECEIVER_MARKER).write_text(
        f"tsferry receiver directory 1\nengine {'e' * 32}\n"
    )
    with pytest.raises(ConfigError, match="e" * 32):
        filled.node()


def test_a_second_directory_that_is_away_leaves_the_first_at_work(filled: World) -> None:
    exchange(filled.root / "data2")
    with filled.node() as node:
        assert "data2" in str(node.problem())
        edge = Edge(node, B)
        edge.check()
        assert results(edge.round({path_of(9): tsfile("root.sg.d9")})) == {path_of(9): "loaded"}
        assert len(node.listing.catalogue(READER, None, 10).entries) == 4


def test_an_adopted_directory_counts_and_its_lost_files_do_not_stand(filled: World) -> None:
    exchange(filled.data)
    with Engine.read_only(filled.config.schema_dir) as engine:
        assert adopt(filled.config, engine.uuid) == [filled.data]
    assert standing(filled) == [False] * 3
    with filled.node() as node:
        assert node.problem() is None


def test_a_look_marks_nothing(filled: World) -> None:
    unmark(filled)
    with (
        Engine.read_only(filled.config.schema_dir) as engine,
        Disks.look(filled.config, engine) as disks,
    ):
        assert disks.away() == []
    assert marked(filled) == []
