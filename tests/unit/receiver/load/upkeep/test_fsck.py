from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from common.errors import LockedError, NotFoundError
from receiver.datadirs.directory_finding import adopt
from receiver.datadirs.disks import AwayError
from receiver.load.upkeep.fsck import fsck
from receiver.load.upkeep.fsck_findings import Found
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute
from receiver.node import Node
from receiver.operator.edges.senders import accept_sender
from receiver.operator.stored.files import list_files
from tests.support.node_world import A, Edge, World, fsck_of, path_of, results, tsfile
from tests.support.proving import Site, in_this_process
from tests.support.schema_commits import series

FILES = {path_of(number): tsfile(first=number * 100) for number in (1, 2, 3)}


@pytest.fixture
def filled(world: World) -> World:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round(FILES, resources={path_of(1): b"resource"})
    return world


def physical(world: World, number: int) -> Path:
    (found,) = (world.data / "sequence").rglob(f"*-{number}-0.*.tsfile")
    return found


def kinds(found: list[Found]) -> list[str]:
    return sorted(each.kind for each in found)


def snapshot(world: World) -> dict[str, bytes]:
    return {
        str(each.relative_to(world.root)): each.read_bytes()
        for each in world.root.rglob("*")
        if each.is_file()
    }


def test_a_sound_receiver_has_nothing_to_report(filled: World) -> None:
    report = fsck(filled.config)
    assert report.found == []
    assert (report.files, report.bytes) == (3, sum(map(len, FILES.values())))
    assert report.good


def test_where_no_receiver_was_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        fsck(World(tmp_path).config)


def damage_missing(world: World) -> None:
    physical(world, 1).unlink()


def damage_size(world: World) -> None:
    with physical(world, 1).open("ab") as file:
        file.write(b"x")


def damage_md5(world: World) -> None:
    data = bytearray(physical(world, 1).read_bytes())
    data[20] ^= 1
    physical(world, 1).write_bytes(data)


def damage_structure(world: World) -> None:
    data = physical(world, 1).read_bytes()
    physical(world, 1).write_bytes(data[:-1] + b"x")


def damage_link(world: World) -> None:
    target = physical(world, 1)
    target.unlink()
    target.symlink_to("/etc/passwd")


DAMAGE = {
    "missing": damage_missing,
    "size": damage_size,
    "md5": damage_md5,
    "structure": damage_structure,
    "unreadable": damage_link,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_bad_file_is_found_and_a_repair_makes_its_sender_send_it_again(
    filled: World, kind: str
) -> None:
    DAMAGE[kind](filled)
    before = snapshot(filled)
    report = fsck(filled.config)
    assert kinds(report.found)[:1] == [kind] or kind in kinds(report.found)
    assert not report.good
    assert snapshot(filled) == before  # looking changes nothing
    assert fsck(filled.config, repair=True).good
    with filled.node() as node:
        edge = Edge(node)
        with node.engine.reading() as state:
            edge.epoch, edge.engine = state.senders[A].epoch, node.engine.uuid
        (wanted,) = edge.check().wanted
        assert wanted.path == path_of(1)
        outcome = edge.round(FILES, resources={path_of(1): b"resource"})
        assert sorted(results(outcome).values()) == ["already", "already", "loaded"]
        assert len(list_files(node.operator).files) == 3


def test_a_bad_resource_is_told_of_and_left(filled: World) -> None:
    (resource,) = filled.data.rglob("sequence/**/*.resource")
    resource.write_bytes(b"RESOURCE")
    assert kinds(fsck(filled.config).found) == ["resource"]
    fsck(filled.config, repair=True)
    assert resource.read_bytes() == b"RESOURCE"


def test_a_stray_file_is_moved_aside_and_never_deleted(filled: World) -> None:
    stray = filled.data / path_of(77)
    stray.write_bytes(tsfile(salt=9))
    assert kinds(fsck(filled.config).found) == ["stray"]
    assert fsck(filled.config, repair=True).good
    assert not stray.exists()
    assert (filled.data / "stray" / path_of(77)).read_bytes() == tsfile(salt=9)
    assert fsck(filled.config).found == []


def test_a_file_that_a_task_is_about_to_commit_is_no_stray(world: World) -> None:
    from common import crash

    node = world.still_node()
    edge = Edge(node)
    task = edge.start()
    edge.batch(task, FILES)
    edge.end(task, FILES)

    def die(name: str) -> None:
        if name == "placing.synced":
            raise crash.SimulatedCrash(name)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        node.load.loader.run_due()
    node.engine.close()
    assert len(world.loaded()) == 3
    assert fsck(world.config).found == []


@pytest.mark.parametrize("name", ["sync.log", "plan.log", "verified.log"])
def test_a_torn_log_is_cut_where_its_sound_part_ends(filled: World, name: str) -> None:
    with filled.node() as node:
        edge = Edge(node)
        accept_sender(node.engine, A)
        task = edge.start()
        from tests.support.node_world import plan_entry

        edge.plan(task, [plan_entry(path_of(5), tsfile(first=900))])
        edge.batch(task, {path_of(5): tsfile(first=900)})
    log = filled.folder() / name
    whole = log.read_bytes()
    log.write_bytes(whole + b"\0\0garbage")
    (found,) = fsck(filled.config).found
    assert (found.kind, found.path.rpartition("/")[2]) == ("log", name)
    assert fsck(filled.config, repair=True).good
    assert log.read_bytes() == whole


def test_a_stale_load_log_is_taken_away(filled: World) -> None:
    (filled.folder() / "load.log").write_text(f"load {path_of(1)}\n")
    assert kinds(fsck(filled.config).found) == ["log"]
    fsck(filled.config, repair=True)
    assert not (filled.folder() / "load.log").exists()


def test_a_journal_that_is_behind_is_brought_up(filled: World) -> None:
    journal = filled.root / "schema" / "sync" / "device_owner.log"
    journal.write_text(journal.read_text().splitlines()[0] + "\n")
    assert kinds(fsck(filled.config).found) == ["journal"]
    assert fsck(filled.config, repair=True).good
    assert "root.sg.d1" in journal.read_text()
    assert fsck(filled.config).found == []


def test_damage_in_the_middle_of_the_engines_log_is_reported(filled: World) -> None:
    (log,) = (filled.root / "schema").glob("mlog*")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    (found,) = fsck(filled.config).found
    assert found.kind == "engine"
    assert "mlog" in found.detail


@pytest.mark.parametrize("mount_point_is_there", [True, False])
def test_a_disk_that_is_not_mounted_makes_nothing_lost(
    filled: World, mount_point_is_there: bool
) -> None:
    os.rename(filled.data, filled.root / "unmounted")
    if mount_point_is_there:
        filled.data.mkdir()
    for repair in (False, True):
        report = fsck(filled.config, repair=repair)
        assert kinds(report.found) == ["folder"]
        assert not report.good
    with filled.node() as node:
        assert "mounted" in str(node.problem())
        with pytest.raises(AwayError):
            Edge(node).start()
    if mount_point_is_there:
        filled.data.rmdir()
    os.rename(filled.root / "unmounted", filled.data)
    assert fsck(filled.config).found == []
    with filled.node() as node:
        assert len(list_files(node.operator).files) == 3


def test_files_of_a_lost_disk_are_asked_for_again(filled: World) -> None:
    shutil.rmtree(filled.data)
    assert kinds(fsck(filled.config, repair=True).found) == ["folder"]
    with Engine.read_only(filled.config.schema_dir) as engine:
        assert adopt(filled.config, engine.uuid) == [filled.data]
    report = fsck(filled.config, repair=True)
    assert kinds(report.found) == ["missing"] * 3
    with filled.node() as node:
        accept_sender(node.engine, A)
        edge = Edge(node)
        assert len(edge.check().wanted) == 3
        assert set(results(edge.round(FILES)).values()) == {"loaded"}


def test_lost_bytes_of_a_quarantined_file_are_reported(filled: World) -> None:
    from common.errors import NotATsFileError

    with filled.node() as node:
        accept_sender(node.engine, A)
        edge = Edge(node)
        with pytest.raises(NotATsFileError):
            edge.upload(edge.start(), path_of(8), b"x" * 50)
    (kept,) = (filled.folder() / "quarantine").iterdir()
    kept.unlink()
    assert kinds(fsck(filled.config).found) == ["quarantine"]


def test_what_is_superseded_and_lost_does_not_come_back_when_what_gives_its_points_is_bad(
    world: World,
) -> None:
    late, ordered = path_of(2).replace("sequence", "unsequence"), path_of(1)
    with world.node() as node:
        in_this_process(node)
        site = Site(node)
        site.round({late: {"a": {1: 1, 2: 2}}})
        site.round({ordered: {"a": {1: 1}}})
        site.round({}, [ordered])
        assert node.prover.run_once() == 1
        upper, lower = site.row(late).physical, site.row(ordered).physical
    for each in (upper, lower):
        (world.data / each).unlink()
    report = fsck(world.config, repair=True)
    assert [(each.path, each.repaired) for each in report.found] == [(lower, True), (upper, True)]
    with world.node() as node, node.engine.reading() as state:
        assert state.file_table.lost() == []
        assert [row.physical for row in state.file_table.wanted(A)] == [upper]


def test_a_repair_needs_the_server_down_and_a_look_does_not(filled: World) -> None:
    with filled.node() as node:
        assert fsck(filled.config).good
        assert fsck_of(node).good
        with pytest.raises(LockedError):
            fsck(filled.config, repair=True)


def test_a_report_is_json(filled: World, node: Node) -> None:
    (filled.data / path_of(77)).write_bytes(b"x")
    report = msgspec.json.decode(msgspec.json.encode(fsck_of(node)))
    assert report["found"][0]["kind"] == "stray"


# -- the engine's own files ----------------------------------------------------------------------


def tagged(world: World, checkpoints: int) -> Path:
    """Series with tags, so many checkpoints; returns the schema directory."""
    with Engine.open(world.config.schema_dir, background=False) as engine:
        engine.commit([records.StorageGroupSet("root.tagged")])
        for number in range(max(2, checkpoints)):
            engine.commit([series(f"root.tagged.d{number}", "s", tags=[{"n": str(number)}])])
            if number < checkpoints:
                engine.checkpoint()
    return world.config.schema_dir


def test_damage_that_a_start_does_not_look_at_is_found_and_put_aside(filled: World) -> None:
    schema = tagged(filled, 2)
    older = min(schema.glob("mtree*"), key=lambda each: int(each.stem.partition("-")[2]))
    older.write_bytes(b"decayed")
    (found,) = fsck(filled.config).found
    assert (found.kind, found.path) == ("metadata", older.name)
    assert older.exists(), "looking changes nothing"
    assert fsck(filled.config, repair=True).good
    assert not older.exists()
    assert fsck(filled.config).found == []


def test_tags_that_cannot_be_read_are_named_and_come_back_from_the_index(filled: World) -> None:
    schema = tagged(filled, 2)
    content = bytearray((schema / "tlog-1.tsf").read_bytes())
    content[-3] ^= 1
    (schema / "tlog-1.tsf").write_bytes(bytes(content))
    (found,) = fsck(filled.config).found
    assert (found.kind, found.path) == ("tags", "tlog-1.tsf")
    assert "1 series" in found.detail
    assert "root.tagged.d1.s" in found.detail
    assert fsck(filled.config, repair=True).good
    assert fsck(filled.config).found == []
    with Engine.read_only(schema) as engine:
        rows = execute(engine, "show timeseries root.tagged.** where n = 1").fetch()
    assert len(rows) == 1


def test_a_lost_tlog_is_told_of_and_given_up_only_when_asked(filled: World) -> None:
    schema = tagged(filled, 2)
    for each in schema.glob("mlog-*"):
        if each.name == "mlog-1.tsf":
            each.unlink()  # so that the log cannot bring the tags back
    (schema / "tlog-1.tsf").unlink()
    (found,) = fsck(filled.config).found
    assert found.kind == "engine"
    assert "tlog-1.tsf" in found.detail
    assert not fsck(filled.config, repair=True).good
    assert fsck(filled.config, repair=True, cut_log=True).good
    assert fsck(filled.config).found == []
