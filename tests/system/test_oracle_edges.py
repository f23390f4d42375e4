"""What happens to an edge's directories and files besides its database, judged by the oracle."""

from __future__ import annotations

import copy
import shutil
import subprocess

import pytest

from tests.support.edge_database import DatabaseFile
from tests.support.edge_shapes import EVERYWHERE, SPAN, DeletionLine
from tests.support.oracle import Oracle, oracle

MODES = ["replaced", "all", "never"]
pytestmark = pytest.mark.few(1)


@pytest.fixture(params=MODES)
def world(request, tmp_path):
    with oracle(tmp_path, request.param) as made:
        yield made


def ten_files(world: Oracle) -> None:
    """Ten files in order, each of several points."""
    database = world.database
    for number in range(10):
        database.write("a", number)
        database.write("b", number)
        for file in database.opened():
            database.close(file)


def in_step(world: Oracle) -> None:
    """A round, after which readers get what the database gives; another one does nothing."""
    report = world.round()
    assert report.error is None
    assert report.held == []
    assert world.answer() == world.database.answer(ttl=False)
    assert world.read() == world.answer()
    assert world.round().sent == 0


def states(world: Oracle) -> list[str]:
    return sorted(str(row.state) for row in world.view().rows)


# -- directories -------------------------------------------------------------------------------


def test_what_lies_behind_a_link_is_not_gone(world):
    ten_files(world)
    in_step(world)
    with world.linked(False):
        world.round()
        assert states(world) == ["live"] * 10
    in_step(world)


def test_a_data_directory_that_is_not_mounted_takes_nothing_with_it(world):
    ten_files(world)
    world.database.move(world.database.closed()[0], 1)
    in_step(world)
    with world.unmarked(1):
        world.round()
        assert states(world) == ["live"] * 10
    in_step(world)


@pytest.fixture
def mounted(world):
    """A file system of its own over the storage group's directory, until it is unmounted."""
    where = world.edge.data / "sequence" / "root.e"
    where.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "none", str(where)], check=False)
    if done.returncode:
        pytest.fail("a file system in memory cannot be mounted: this test needs root")
    yield where
    subprocess.run(["umount", str(where)], check=False)


def test_a_mount_over_a_storage_group_that_goes_takes_nothing_with_it(world, mounted):
    ten_files(world)
    in_step(world)
    subprocess.run(["umount", str(mounted)], check=True)
    for report in (world.round(), world.round()):
        assert report.exit_code == 3
        assert {each.file for each in report.unmounted} == {f"{mounted}/0/0"}
        assert report.complete_until is None
    assert states(world) == ["live"] * 10


def test_a_storage_group_that_moves_to_another_disk_with_a_link_in_its_place(world, tmp_path):
    ten_files(world)
    in_step(world)
    where = world.edge.data / "sequence" / "root.e"
    shutil.copytree(where, tmp_path / "disk")
    shutil.rmtree(where)
    where.symlink_to(tmp_path / "disk")
    world.round()
    world.round()
    assert states(world) == ["live"] * 10


# -- files -------------------------------------------------------------------------------------


def test_a_file_that_is_renamed_is_the_same_file(world):
    ten_files(world)
    in_step(world)
    file = world.database.closed()[3]
    before = world.database.where(file)
    file.name = (*file.name[:3], 1, 0)
    after = world.database.where(file)
    before.rename(after)
    before.with_name(f"{before.name}.resource").rename(after.with_name(f"{after.name}.resource"))
    assert world.round().bytes == 0
    in_step(world)
    assert states(world) == ["live"] * 10


def test_a_file_in_another_partition_directory_is_the_same_file(world):
    ten_files(world)
    in_step(world)
    before = world.database.closed()[3]
    where = world.database.where(before)
    before.partition = 1
    after = world.database.where(before)
    after.parent.mkdir(parents=True)
    where.rename(after)
    where.with_name(f"{where.name}.resource").rename(after.with_name(f"{after.name}.resource"))
    assert world.round().bytes == 0
    in_step(world)
    assert states(world) == ["live"] * 10


@pytest.mark.few(1, always="replaced")
def test_a_value_that_a_point_gets_again_stands_above_what_was_between(world):
    """A file of one point has the bytes of an earlier one with the same point, under its name."""
    for value in (7, 8, 7, 8, 9, 7):
        world.database.write("a", 3, value)
        for file in world.database.opened():
            world.database.close(file)
        in_step(world)
    world.database.remove(world.database.closed()[-1:])
    world.round()
    assert world.read() == world.database.answer(), "the name below is what is left"


def written(world: Oracle, *points: tuple[str, int, int]) -> DatabaseFile:
    for each in points:
        world.database.write(*each)
    (file,) = world.database.opened()
    world.database.close(file)
    return file


@pytest.mark.few(1, always="replaced")
def test_of_the_names_of_a_content_the_highest_that_is_left_counts(world):
    database = world.database
    kept = copy.deepcopy(written(world, ("b", 0, 1)))
    in_step(world)
    lower = database.load(kept)
    database.write("b", 0, 2)
    higher = database.load(kept)
    in_step(world)
    database.close(*database.opened())
    for each in (higher, lower):
        database.rename(each, (*each.name[:3], 1, 0))
    in_step(world)
    assert world.read() == {("b", 0): 1}


def test_what_is_loaded_once_more_is_not_hidden_by_what_was_deleted_before(world):
    """The file that had the content is renamed, and its deletion told, with the other one."""
    database = world.database
    file = written(world, ("a", 0, 2), ("a", 1, 2))
    kept = copy.deepcopy(file)
    in_step(world)
    database.rename(file, (*file.name[:3], 1, 0))
    database.delete("a", 1, 4)
    database.load(kept)
    for _ in range(2):
        world.round()
    in_step(world)
    assert world.read() == {("a", 0): 2, ("a", 1): 2}


def test_a_content_that_gets_two_names_at_once_with_deletions_beside_both_comes(world):
    """Its own file ends in that look, and neither name is told from the other one's by a plan."""
    database = world.database
    file = written(world, ("a", 0, 2), ("a", 1, 2))
    kept = copy.deepcopy(file)
    in_step(world)
    for _ in range(2):
        database.load(kept)
    database.delete("a", 1, 4)
    database.remove([file])
    for _ in range(2):
        world.round()
    in_step(world)
    assert world.read() == {("a", 0): 2}


def test_what_a_new_box_deletes_of_two_files_is_deleted_of_the_one_that_the_old_had(world):
    database = world.database
    for value in (7, 8, 7):
        database.write("a", 3, value)
        database.close(*database.opened())
        in_step(world)
    old = world.exchange()
    world.round()
    world.host.adopt(old, world.edge.uuid)
    in_step(world)
    for _ in range(2):
        database.delete("a", 3, 3)
        in_step(world)
    assert world.read() == {}


# -- compactions, TTL, deletions ---------------------------------------------------------------


@pytest.mark.parametrize("mode", ["replaced", "never"])
def test_a_late_product_that_spans_what_expired_deletes_nothing(mode, tmp_path):
    with oracle(tmp_path, mode) as world:
        database = world.database
        ten_files(world)
        for time in (0, 9):
            database.write("a", time)
            database.close(database.opened()[0])
        in_step(world)
        database.inner(0, late=True)
        in_step(world)
        before = world.answer()
        database.expire(SPAN)
        assert database.closed() == []
        world.round()
        assert len(before) == 20
        assert world.answer() == before


@pytest.mark.few(1, always="all")
def test_compactions_beside_an_open_file_four_times_over(world):
    database = world.database
    for _ in range(4):
        for number in range(5):
            database.write("a", number)
            for file in database.opened():
                database.close(file)
        in_step(world)
        database.write("b", 1)
        database.write("b", 0)
        assert database.opened()
        database.inner(0, late=False)
        database.inner(0, late=True)
        in_step(world)
        assert len(world.answer()) == len(database.answer())


def test_updates_are_given_once(world):
    database = world.database
    for time in range(10):
        database.write("a", time)
    database.close(database.opened()[0])
    for time in (5, 6):
        database.write("a", time)
    database.close(database.opened()[0])
    in_step(world)
    assert len(world.answer()) == 10
    database.cross(0)
    in_step(world)


def test_a_series_that_is_deleted_and_compacted_is_gone(world):
    database = world.database
    ten_files(world)
    in_step(world)
    database.delete("a", 0, SPAN)
    in_step(world)
    database.inner(0, late=False)
    in_step(world)
    assert {series for series, _ in world.answer()} == {"b"}


def test_what_went_before_a_list_was_thrown_away_was_last_seen_when_it_was_there(tmp_path):
    with oracle(tmp_path) as world:
        database = world.database
        for time in (0, 1):
            database.write("a", time)
            database.close(database.opened()[0])
            world.round()
        first, second = world.view().rows
        database.remove(database.closed()[:1])
        world.edge.round(forget=True)
        world.round()
        ended = next(row for row in world.view().rows if row.physical == first.physical)
        assert (ended.retired, ended.last_look) == (True, second.first_look)


# -- another box -------------------------------------------------------------------------------


def exchanged(world: Oracle) -> None:
    """Another box goes on with the database, as the manual says."""
    old = world.exchange()
    world.round()
    world.host.adopt(old, world.edge.uuid)


@pytest.mark.few(1, always="replaced")
def test_what_the_box_deletes_that_took_over_is_deleted_of_what_the_old_one_listed(world):
    ten_files(world)
    in_step(world)
    exchanged(world)
    in_step(world)
    world.database.delete("a", 0, 4)
    in_step(world)
    assert ("a", 0) not in world.answer()


@pytest.mark.few(1, always="replaced")
@pytest.mark.parametrize("world", ["replaced"], indirect=True)
def test_what_is_deleted_before_a_box_is_adopted_is_deleted_of_what_the_old_one_listed(world):
    ten_files(world)
    in_step(world)
    old = world.exchange()
    world.round()
    world.database.delete("a", 0, 4)
    world.round()
    world.database.inner(0, late=False, count=10)
    world.host.adopt(old, world.edge.uuid)
    world.host.adopt(old, world.edge.uuid)  # said twice is said once
    in_step(world)
    assert ("a", 0) not in world.answer()


@pytest.mark.few(1, always="replaced")
@pytest.mark.parametrize("world", ["replaced"], indirect=True)
def test_what_is_deleted_while_a_box_is_replaced_is_deleted_of_what_the_old_one_listed(world):
    ten_files(world)
    in_step(world)
    world.database.delete("a", 0, 4)
    exchanged(world)
    in_step(world)
    assert ("a", 0) not in world.answer()


@pytest.mark.parametrize("world", ["replaced"], indirect=True)
def test_what_is_deleted_beside_a_file_whose_deletions_were_written_anew_meanwhile(world):
    ten_files(world)
    for low in (0, 5):
        world.database.delete("a", low, low)
    world.database.delete("a", 0, 9)
    in_step(world)
    old = world.exchange()
    for file in world.database.closed():
        world.database.rewrite_deletions(file)
    world.round()
    world.host.adopt(old, world.edge.uuid)
    in_step(world)
    for time in (0, 5):
        world.database.delete("b", time, time)
        in_step(world)


@pytest.mark.parametrize("world", ["replaced"], indirect=True)
def test_what_is_loaded_once_more_with_a_deletion_is_another_file(world):
    ten_files(world)
    in_step(world)
    file = world.database.load(world.database.closed()[0])
    line = DeletionLine(77, "b", 0, 0, EVERYWHERE)
    world.database.beside(file).write_bytes(world.database.shape.record(line))
    report = world.round()
    assert (report.sent, report.failed) == (1, [])
    assert world.round().pending_files == 0


def another_name(world: Oracle, name: str) -> None:
    """The lowest file has a second name, and a round has seen it."""
    where = world.database.where(world.database.closed()[0])
    for suffix in ("", ".resource"):
        shutil.copy(f"{where}{suffix}", f"{where.with_name(name)}{suffix}")
    assert world.round().error is None


@pytest.mark.parametrize("world", ["replaced"], indirect=True)
def test_what_is_deleted_beside_two_names_of_a_content_that_the_old_box_had_as_well(world):
    ten_files(world)
    in_step(world)
    first, *_ = world.database.closed()
    name = first.path("root.e").rpartition("/")[2].replace("-1-0-0.", "-99-0-0.")
    another_name(world, name)
    assert len(states(world)) == 10
    old = world.exchange()
    world.database.where(first).with_name(name).unlink()
    world.round()
    world.host.adopt(old, world.edge.uuid)
    in_step(world)
    another_name(world, name)
    world.database.delete("a", 0, 0)
    line = DeletionLine(77, "b", 0, 0, EVERYWHERE)
    mods = world.database.where(first).with_name(f"{name}.mods")
    mods.write_bytes(world.database.shape.record(line))
    assert world.round().error is None
    assert world.read().keys() == world.answer().keys()
    assert {("a", 0), ("b", 0)}.isdisjoint(world.answer())


@pytest.mark.few(2)
@pytest.mark.parametrize("world", ["all"], indirect=True)
@pytest.mark.parametrize("compacted", [False, True])
def test_what_a_mirror_lets_expire_that_took_over_is_gone(world, compacted):
    ten_files(world)
    in_step(world)
    if compacted:
        world.database.inner(0, late=False, count=10)
    exchanged(world)
    in_step(world)
    world.host.prove()
    world.database.expire(SPAN)
    world.round()
    assert world.answer() == world.read() == {}


@pytest.mark.parametrize("world", ["all"], indirect=True)
def test_a_mirror_that_took_over_with_an_empty_disk_deletes_nothing(world):
    ten_files(world)
    in_step(world)
    before = world.answer()
    world.database.remove(world.database.closed())
    world.database.write("a", 10)
    world.database.close(world.database.opened()[0])
    exchanged(world)
    world.round()
    world.host.prove()
    world.database.expire(SPAN)
    world.round()
    assert world.answer() == before
