"""The tree of files in the store: behind the log, by its owner alone, read as the page says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common import crash
from common.crash import SimulatedCrash
from common.durable import Tree
from receiver.metadata.model import records
from receiver.metadata.model.errors import FencedError
from receiver.storage.objects.object_repair import examine_store, repair_store
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import next_incarnation
from receiver.storage.stores.object_store import StoreAwayError
from receiver.storage.tree import tree_merging
from receiver.storage.tree.tree_manifests import TreeManifest, newest_tree
from tests.support.tree_world import GRACE, Duck, TreeCentre, bucket, said


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[TreeCentre]:
    made = TreeCentre(tmp_path, DirectoryStore(bucket(tmp_path)))
    yield made
    made.stop()


def duck(centre: TreeCentre) -> Duck:
    return Duck(str(centre.root / "bucket"))


def test_duckdb_shows_the_tree_at_a_time_and_two_entries_of_one_commit_meet(
    centre: TreeCentre,
) -> None:
    old = centre.load_real(1)
    begun = centre.engine.newest_commit
    centre.ship()
    new = centre.loaded(2)
    replaced = centre.engine.commit([records.FileDeleted(old, "replaced"), new])
    centre.ship()
    found = duck(centre)
    then = {row[:4] for row in found.at(replaced - 1)}
    assert then == {
        ("database", "root", begun, 0),
        ("storage_group", "root.sg", begun, 0),
        ("partition", "root.sg/0/0", begun, 0),
        ("file", old, begun, replaced),
    }
    now = {row[:4] for row in found.at(replaced) if row[0] == "file"}
    assert now == {("file", new.physical, replaced, 0)}
    assert found.files(replaced - 1) == said(centre.engine, replaced - 1)


def test_the_chunks_of_a_file_lie_where_they_are_said_to(centre: TreeCentre) -> None:
    one, other = centre.load_real(1), centre.load_real(2)
    centre.ship()
    centre.uploader.run_once()
    centre.ship()
    found = duck(centre).chunks("root.sg.d1", 11, 12)
    ((key, measurement, offset, length, first, last),) = found
    assert (key, measurement, first, last) == (centre.key(one), "s1", 10, 12)
    content = (centre.root / "data" / one).read_bytes()
    assert content[offset] in (1, 5)  # the marker of a chunk of many pages, or of one
    assert b"s1" in content[offset : offset + length]
    assert content[offset + length] in (0, 2)  # the next group of chunks, or the index
    assert duck(centre).chunks("root.sg.d1", 13, 20) == []
    assert other not in {row[0] for row in found}


def test_files_that_were_uploaded_before_and_are_away_have_their_chunks_too(
    centre: TreeCentre,
) -> None:
    names = [centre.load_real(number) for number in range(5)]
    centre.uploader.run_once()
    (centre.root / "data" / names[1]).unlink()
    centre.ship()
    found = duck(centre)
    found.chunks("root.sg.d1", 0, 100)
    files = found.sql("SELECT file FROM read_parquet(getvariable('chunks'))")
    assert sorted(each for (each,) in files) == sorted(names)
    newest = centre.shipper.newest
    assert newest is not None
    assert newest.done is None


def test_many_files_that_were_there_before_do_not_hold_up_what_is_new(
    centre: TreeCentre,
) -> None:
    old = {centre.load_real(number) for number in range(6)}
    centre.uploader.run_once()
    centre.log_shipper.ship()
    assert centre.shipper.ship()
    ticks = itertools.count(step=2.0)
    centre.monotonic = lambda: next(ticks)  # as if each index took its time
    new: set[str] = set()
    count = 0
    while centre.shipper.ship():
        count += 1
        newest = centre.shipper.newest
        assert newest is not None
        assert new <= set(duck(centre).files(newest.ts))
        if newest.done is not None and len(new) < 3:
            new.add(centre.load_real(90 + len(new)))
            centre.log_shipper.ship()
    assert len(new) == 3
    assert count >= 3
    found = duck(centre)
    found.chunks("root.sg.d1", 0, 1)
    rows = found.sql("SELECT file FROM read_parquet(getvariable('chunks'))")
    assert sorted(row[0] for row in rows) == sorted(old)


def test_no_index_is_read_twice_and_what_is_no_tsfile_has_no_chunks(centre: TreeCentre) -> None:
    bad, good = centre.load(7), centre.load_real(8)
    centre.ship()
    centre.uploader.run_once()
    centre.ship()
    for name in (bad, good):
        (centre.root / "data" / name).unlink()
    centre.restart()
    reads: list[str] = []
    read = centre.store.read
    centre.store.read = lambda key, *more: reads.append(key) or read(key, *more)  # type: ignore[method-assign,func-returns-value]
    centre.load_real(9)
    centre.ship()
    assert not [key for key in reads if "/data/" in key]
    found = duck(centre)
    found.chunks("root.sg.d2", 0, 100)
    assert found.sql("SELECT file FROM read_parquet(getvariable('chunks'))") == [(good,)]


def test_the_tree_is_never_ahead_of_the_log_in_the_store(centre: TreeCentre) -> None:
    centre.load_real(1)
    centre.ships_log = False
    centre.ship()
    assert newest_tree(centre.store, centre.engine.uuid) is None
    centre.ships_log = True
    centre.ship()
    at = centre.engine.newest_commit
    centre.ships_log = False
    centre.load_real(2)
    centre.ship()
    newest = newest_tree(centre.store, centre.engine.uuid)
    assert newest is not None
    assert newest.ts == at


def test_nothing_new_is_no_manifest(centre: TreeCentre) -> None:
    centre.load_real(1)
    centre.ship()
    before = [each.key for each in TreeManifest.listed(centre.store, centre.engine.uuid)]
    centre.engine.commit([records.SenderSeen("6f" * 16, "", f"x_{'6f' * 16}")])
    centre.ship()
    assert [each.key for each in TreeManifest.listed(centre.store, centre.engine.uuid)] == before


def test_who_was_replaced_writes_nothing_and_the_next_one_begins_anew(centre: TreeCentre) -> None:
    centre.load_real(1)
    centre.ship()
    next_incarnation(centre.store, centre.home, centre.engine.uuid)
    centre.load_real(2)
    centre.ships_log = False
    folder = f"{centre.engine.uuid}/tree/"
    before = [each.key for each in centre.store.objects(folder)]
    centre.shipper._shipped = lambda: centre.engine.newest_commit
    with pytest.raises(FencedError):
        centre.ship()
    assert before == sorted(
        each.key for each in centre.store.objects(f"{centre.engine.uuid}/tree/")
    )
    centre.restart()
    centre.ship()
    newest = newest_tree(centre.store, centre.engine.uuid)
    assert newest is not None
    assert (newest.incarnation, newest.number > 0) == (2, True)
    assert duck(centre).files(newest.ts) == said(centre.engine, newest.ts)


@pytest.mark.parametrize("what", ["table", "manifest"])
def test_a_table_or_manifest_that_is_damaged_is_made_anew(centre: TreeCentre, what: str) -> None:
    centre.load_real(1)
    centre.ship()
    newest = centre.shipper.newest
    assert newest is not None
    key = newest.differences[0].key if what == "table" else newest.key
    place = centre.root / "bucket" / key
    place.chmod(0o600)
    place.write_bytes(place.read_bytes()[:-3] + b"???")
    centre.restart()
    two = centre.load_real(2)
    centre.ship()
    assert two in duck(centre).files(centre.engine.newest_commit)
    assert centre.shipper.newest is not None
    assert centre.shipper.newest.number > newest.number


def test_an_answer_that_was_lost_holds_nothing_up(centre: TreeCentre) -> None:
    centre.load_real(1)
    centre.ship()
    two = centre.load_real(2)

    def away(name: str) -> None:
        if name == "storage.tree.put":
            raise StoreAwayError("away")

    with crash.arm(away), pytest.raises(StoreAwayError):
        centre.ship()
    three = centre.load_real(3)
    centre.ship()
    assert {two, three} <= duck(centre).files(centre.engine.newest_commit)


def test_the_tables_stay_few(centre: TreeCentre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_merging, "_AT_ONCE", 3)
    monkeypatch.setattr(tree_merging, "_LEAST", 100)
    centre.load_real(0)
    centre.ship()
    for number in range(1, 20):
        centre.load_real(number)
        centre.uploader.run_once()
        centre.ship()
    newest = centre.shipper.newest
    assert newest is not None
    assert len(newest.differences) <= 8
    assert len(newest.chunks) <= 8
    assert len(duck(centre).files(newest.ts)) == 20


@pytest.mark.parametrize("at_most", [8, 1 << 19])
def test_chunks_of_forgotten_files_leave_the_tables(
    centre: TreeCentre, monkeypatch: pytest.MonkeyPatch, at_most: int
) -> None:
    monkeypatch.setattr(tree_merging, "_AT_ONCE", 2)
    monkeypatch.setattr(tree_merging, "_LEAST", 5)
    monkeypatch.setattr(tree_merging, "_CHUNKS_AT_MOST", at_most)
    names = [centre.load_real(number) for number in range(6)]
    centre.uploader.run_once()
    centre.ship()
    first = centre.shipper.newest
    centre.engine.commit([records.FileDeleted(name, "operator") for name in names[:4]])
    centre.ship()
    centre.engine.commit([records.FileForgotten(name) for name in names[:4]])
    more = []
    for number in range(10, 14):
        more.append(centre.load_real(number))
        centre.uploader.run_once()
        centre.ship()
    found = duck(centre)
    found.chunks("root.sg.d2", 0, 100)
    files = found.sql("SELECT file FROM read_parquet(getvariable('chunks'))")
    assert sorted(each for (each,) in files) == sorted([*names[4:], *more])
    newest = centre.shipper.newest
    assert first is not None
    assert newest is not None
    assert newest.begun == first.begun  # it was not made anew for that


def test_replaced_tables_go_after_the_grace_and_only_those(centre: TreeCentre) -> None:
    uuid = centre.engine.uuid
    centre.load_real(1)
    centre.ship()
    first = centre.shipper.newest
    assert first is not None
    stranger = f"{uuid}/tree/tables/00000001/000000000001-part.{'0' * 32}.parquet"
    centre.store.put(stranger, b"unknown")
    for number in range(2, 22):
        centre.load_real(number)
        centre.ship()
    newest = centre.shipper.newest
    assert newest is not None
    assert centre.remover.run_once() == 0
    centre.passed += 2 * GRACE  # within the life of the process: a jump at a start is no time
    count = len(list(TreeManifest.listed(centre.store, uuid)))
    assert centre.remover.run_once() == count - 1
    left = {each.key for each in centre.store.objects(f"{uuid}/tree/")}
    assert left == {newest.key, stranger, *(each.key for each in newest.tables)}
    assert len(duck(centre).files(newest.ts)) == 21


@pytest.mark.parametrize("point", ["storage.tree.tables", "storage.tree.put"])
@pytest.mark.parametrize("begun", [True, False])
def test_what_was_put_by_who_died_before_its_manifest_goes_after_the_grace(
    centre: TreeCentre, point: str, begun: bool
) -> None:
    centre.load_real(1)
    centre.uploader.run_once()
    if begun:
        centre.ship()
        centre.load_real(2)
    for number in range(3, 6):
        centre.load_real(number)
        with pytest.raises(SimulatedCrash), crash.arm(die_at(point)):
            centre.ship()
        centre.restart()
    centre.load_real(9)
    centre.ship()
    folder = f"{centre.engine.uuid}/tree/tables/"
    stranger = f"{folder}00000001/000000000001-part.{'0' * 32}.parquet"
    centre.store.put(stranger, b"unknown")

    def unnamed() -> set[str]:
        named = {
            each.key
            for found in TreeManifest.listed(centre.store, centre.engine.uuid)
            for each in TreeManifest.read(centre.store, found.key).tables
        }
        return {each.key for each in centre.store.objects(folder)} - named

    there = unnamed()
    assert (len(there) > 1) == (point == "storage.tree.tables")
    centre.remover.run_once()
    assert unnamed() == there  # one may have been read that is not there yet
    centre.passed += 2 * GRACE
    centre.remover.run_once()
    assert unnamed() == {stranger}
    newest = centre.shipper.newest
    assert newest is not None
    assert len(duck(centre).files(newest.ts)) == 5 + begun
    centre.restart()
    centre.load_real(10)
    centre.ship()
    assert centre.shipper.newest is not None
    assert centre.shipper.newest.begun == newest.begun  # it needed none of what went


def test_a_note_of_who_is_not_the_owner_any_more_removes_nothing(centre: TreeCentre) -> None:
    centre.load_real(1)
    with pytest.raises(SimulatedCrash), crash.arm(die_at("storage.tree.tables")):
        centre.ship()
    centre.stop()
    with Tree(centre.root / "schema") as home:
        next_incarnation(centre.store, home, centre.engine.uuid)
    centre.start()
    centre.ship()
    before = {each.key for each in centre.store.objects(f"{centre.engine.uuid}/tree/tables/")}
    centre.passed += 2 * GRACE
    centre.remover.run_once()
    after = {each.key for each in centre.store.objects(f"{centre.engine.uuid}/tree/tables/")}
    assert after == before


def die_at(point: str) -> Callable[[str], None]:
    def die(name: str) -> None:
        if name == point:
            raise SimulatedCrash(name)

    return die


def test_fsck_knows_the_objects_of_the_tree_and_misses_those_that_are_gone(
    centre: TreeCentre,
) -> None:
    centre.load_real(1)
    centre.uploader.run_once()
    centre.ship()
    report = examine_store(centre.engine, centre.store, [centre.tree], deep=True)
    assert report.found == []
    newest = centre.shipper.newest
    assert newest is not None
    centre.store.remove(newest.chunks[-1].key)
    report = examine_store(centre.engine, centre.store, [centre.tree], deep=False)
    (found,) = report.found
    assert (found.kind, found.key) == ("tree", newest.chunks[-1].key)
    assert not report.good
    report = repair_store(centre.engine, centre.store, centre.owner, [centre.tree], report)
    assert report.good
    centre.restart()
    centre.ship()
    assert examine_store(centre.engine, centre.store, [centre.tree], deep=False).found == []
    assert duck(centre).chunks("root.sg.d1", 0, 100)
