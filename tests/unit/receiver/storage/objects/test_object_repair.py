"""What is missing or damaged in the store is found, named, and put right; nothing is deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import crash
from common.console.step_progress import untold
from common.digests import md5
from common.durable import Tree
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.storage.objects.object_adoption import adopt_objects
from receiver.storage.objects.object_check import CopiesReport
from receiver.storage.objects.object_repair import OF_NODES, examine_store, repair_store
from receiver.storage.objects.scrubbing import Scrubber, note_bad
from receiver.storage.reading.block_digests import WHOLE_BYTES, blocks_key
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.object_keys import data_key
from receiver.storage.uploading.pulled_files import PulledFiles
from tests.support.copy_nodes import place_tablets
from tests.support.uploading import Centre


class Checked(Centre):
    def examine(self, *, deep: bool = False) -> CopiesReport:
        return examine_store(self.engine, self.store, [self.tree], deep=deep)

    def kinds(self, *, deep: bool = False) -> list[tuple[str, str]]:
        return sorted((each.kind, each.physical) for each in self.examine(deep=deep).found)

    def repair(self) -> CopiesReport:
        report = self.examine(deep=True)
        return repair_store(self.engine, self.store, self.owner, [self.tree], report)

    def place(self, physical: str, again: int = 0) -> Path:
        key = data_key(self.engine.uuid, self.owner.number, physical, again)
        return self.root / "bucket" / key

    def damage(self, physical: str) -> None:
        place = self.place(physical)
        place.write_bytes(place.read_bytes()[:-1] + b"?")

    def states(self) -> dict[str, FileState]:
        with self.engine.reading() as state:
            return {name: row.state for name, row in state.files.items()}


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Checked]:
    (tmp_path / "bucket").mkdir()
    made = Checked(tmp_path, DirectoryStore(tmp_path / "bucket"))
    yield made
    made.end()


def test_a_good_store_is_good(centre: Checked) -> None:
    centre.load(1, resource=b"one")
    centre.uploader.run_once()
    centre.load(2)
    report = centre.examine(deep=True)
    assert (report.found, report.files, report.good) == ([], 1, True)


def test_what_is_bad_there_is_named(centre: Checked) -> None:
    one, two, three = centre.load(1, resource=b"one"), centre.load(2), centre.load(3)
    centre.uploader.run_once()
    centre.damage(one)
    centre.place(two).unlink()
    centre.place(three).write_bytes(b"short")
    assert centre.kinds() == [("damaged", three), ("missing", two)]
    assert centre.kinds(deep=True) == [("damaged", one), ("damaged", three), ("missing", two)]
    assert not centre.examine().good
    assert [centre.examine(deep=deep).sizes_only for deep in (False, True)] == [True, False]


def test_it_is_put_once_more_from_the_copy_here_and_nothing_is_replaced(centre: Checked) -> None:
    one, two = centre.load(1, resource=b"one"), centre.load(2)
    centre.uploader.run_once()
    centre.damage(one)
    damaged = centre.place(one).read_bytes()
    centre.place(two).unlink()
    report = centre.repair()
    assert report.good
    assert [each.repaired for each in report.found] == [True, True]
    assert centre.kinds(deep=True) == []
    assert centre.place(one).read_bytes() == damaged
    for each in (one, two):
        whole = (centre.root / "data" / each).read_bytes()
        assert centre.place(each, 1).read_bytes() == whole
    centre.engine.checkpoint()
    centre.restart()
    assert centre.uploader.run_once() == 0
    assert centre.kinds(deep=True) == []


def test_an_object_that_is_damaged_again_is_put_under_the_next_number(centre: Checked) -> None:
    one = centre.load(1)
    centre.uploader.run_once()
    centre.damage(one)
    centre.repair()
    again = centre.place(one, 1)
    again.write_bytes(again.read_bytes()[:-1] + b"?")
    assert centre.repair().good
    assert centre.place(one, 2).exists()
    assert centre.kinds(deep=True) == []


def test_a_repair_that_was_cut_off_goes_on_with_what_it_put(centre: Checked) -> None:
    one = centre.load(1)
    centre.uploader.run_once()
    centre.damage(one)

    def die(name: str) -> None:
        if name == "storage.repair.put":
            raise crash.SimulatedCrash

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        centre.repair()
    assert ("orphan", one) in centre.kinds(deep=True)
    assert centre.repair().good
    assert centre.kinds(deep=True) == []
    assert not centre.place(one, 2).exists()


def test_where_the_copy_here_is_bad_too_the_file_is_wanted_again(centre: Checked) -> None:
    one, two = centre.load(1), centre.load(2)
    centre.uploader.run_once()
    centre.place(one).unlink()
    (centre.root / "data" / one).write_bytes(b"bad")
    (found,) = centre.examine().found
    assert "its sender sends it again" in found.repair
    assert centre.repair().good
    assert centre.states() == {one: FileState.QUARANTINED, two: FileState.LIVE}


def superseded(centre: Checked) -> tuple[str, str]:
    """One that was superseded by a file that was loaded before it, and that file."""
    two, one = centre.load(1), centre.load(2)
    centre.uploader.run_once()
    centre.engine.commit([records.FileRetired(one, 1)])
    centre.engine.commit([records.FileSuperseded(one, [two])])
    return one, two


def test_a_superseded_file_that_is_bad_there_is_put_once_more(centre: Checked) -> None:
    one, two = superseded(centre)
    centre.damage(one)
    assert centre.kinds(deep=True) == [("damaged", one)]
    assert centre.repair().good
    assert centre.kinds(deep=True) == []
    assert centre.states() == {one: FileState.SUPERSEDED, two: FileState.LIVE}


@pytest.mark.parametrize("upper_is_bad", [False, True])
def test_a_superseded_file_that_is_bad_everywhere_never_comes_back_without_its_bytes(
    centre: Checked, upper_is_bad: bool
) -> None:
    one, two = superseded(centre)
    for each in (two, one) if upper_is_bad else (one,):
        centre.damage(each)
        (centre.root / "data" / each).unlink()
    assert centre.repair().good
    upper = FileState.QUARANTINED if upper_is_bad else FileState.LIVE
    assert centre.states() == {one: FileState.DELETED, two: upper}


def test_a_resource_that_is_bad_there_is_put_once_more_with_its_file(centre: Checked) -> None:
    one = centre.load(1, resource=b"one")
    centre.uploader.run_once()
    beside = next(each for each in centre.place(one).parent.iterdir() if len(each.suffix) == 33)
    beside.write_bytes(b"?ne")
    assert centre.kinds(deep=True) == [("resource", one)]
    assert centre.repair().good
    assert centre.kinds(deep=True) == []


def test_what_no_row_names_is_told_of_with_what_it_says_and_stays(centre: Checked) -> None:
    one = centre.load(1)
    centre.uploader.run_once()
    centre.engine.commit([records.FileDeleted(one, "operator")])
    centre.engine.commit([records.FileForgotten(one)])
    centre.engine.commit([records.ObjectRemoved(one)])
    centre.store.put("mine", b"x")
    report = centre.repair()
    found = {each.kind: each for each in report.found}
    assert found.keys() == {"orphan", "foreign"}
    assert found["orphan"].physical == one
    assert "5e5e5e" in found["orphan"].detail
    assert report.good, "it is nobody's to put right"
    assert centre.place(one).exists()
    assert centre.store.read("mine", 0, 9) == b"x"


def test_a_lower_number_or_another_owners_object_is_not_taken_for_a_repair(
    centre: Checked,
) -> None:
    one = centre.load(1)
    centre.uploader.run_once()
    centre.damage(one)
    centre.repair()
    size = (centre.root / "data" / one).stat().st_size
    for told in (
        records.FileUploaded(one, 1, size, "", "", 0),
        records.FileUploaded(one, 2, size, "", "", 0),
        records.FileUploaded(one, 1, size, "", "", 1),
    ):
        with pytest.raises(RefusedCommitError):
            centre.engine.commit([told])


def turned_back(centre: Checked) -> tuple[str, str, str]:
    """Three uploaded files, two not here any more, and a schema directory of before that."""
    one, two, three = centre.load(1, resource=b"one"), centre.load(2), centre.load(3)
    schema = centre.root / "schema"
    centre.stop()
    shutil.copytree(schema, centre.root / "copy")
    centre.start()
    centre.uploader.run_once()
    centre.stop()
    shutil.rmtree(schema)
    (centre.root / "copy").rename(schema)
    for each in (one, two):
        (centre.root / "data" / each).unlink()
    (centre.root / "data" / f"{one}.resource").unlink()
    centre.start()
    return one, two, three


def adopted(centre: Checked) -> CopiesReport:
    return adopt_objects(centre.engine, centre.store, centre.owner, centre.examine(), untold)


def test_what_no_commit_tells_of_and_is_not_here_is_taken_back(centre: Checked) -> None:
    one, two, three = turned_back(centre)
    assert centre.kinds() == [("untold", one), ("untold", two)]
    assert not centre.examine().good
    report = adopted(centre)
    assert report.good
    assert centre.uploaded() == {one, two}
    assert centre.resources()[one] == md5(b"one").hexdigest()
    assert centre.examine(deep=True).found == []
    before = centre.objects()
    centre.uploader.run_once()
    assert (centre.uploaded(), centre.objects()) == ({one, two, three}, before)


def turned_back_from_a_resource(centre: Checked) -> tuple[str, str]:
    """A file that was uploaded with two resources, and the schema knows of the first upload."""
    one = centre.load(1, resource=b"one")
    centre.uploader.run_once()
    digest = centre.note_resource(one, b"new")
    schema = centre.root / "schema"
    centre.stop()
    shutil.copytree(schema, centre.root / "copy")
    centre.start()
    centre.write_resource(one, b"new")
    centre.uploader.run_once()
    centre.stop()
    shutil.rmtree(schema)
    (centre.root / "copy").rename(schema)
    for each in (one, f"{one}.resource"):
        (centre.root / "data" / each).unlink()
    centre.start()
    return one, digest


def test_a_resource_that_no_commit_tells_of_and_is_not_here_is_taken_back(
    centre: Checked,
) -> None:
    one, digest = turned_back_from_a_resource(centre)
    assert centre.kinds() == [("untold", one)]
    assert centre.resources()[one] == md5(b"one").hexdigest()
    assert adopted(centre).good
    assert centre.resources()[one] == digest == md5(b"new").hexdigest()
    assert centre.examine(deep=True).found == []
    assert centre.uploader.progress().waiting_files == 0


def test_a_resource_with_other_bytes_is_not_taken_back(centre: Checked) -> None:
    one, digest = turned_back_from_a_resource(centre)
    (place,) = centre.place(one).parent.glob(f"*.{digest}")
    place.write_bytes(b"???")
    assert not adopted(centre).good
    assert centre.resources()[one] == md5(b"one").hexdigest()


def test_what_has_other_bytes_is_not_taken_back(centre: Checked) -> None:
    one, two, _ = turned_back(centre)
    centre.damage(one)
    report = adopted(centre)
    assert sorted((each.physical, each.repaired) for each in report.found) == sorted(
        [(one, False), (two, True)]
    )
    assert not report.good
    assert centre.uploaded() == {two}


@pytest.mark.parametrize("are_there", [True, False])
def test_a_large_object_that_is_taken_back_has_digests_of_its_blocks(
    centre: Checked, *, are_there: bool
) -> None:
    one = centre.load(1, size=WHOLE_BYTES + 1)
    centre.stop()
    shutil.copytree(centre.root / "schema", centre.root / "copy")
    centre.start()
    centre.uploader.run_once()
    centre.stop()
    shutil.rmtree(centre.root / "schema")
    (centre.root / "copy").rename(centre.root / "schema")
    (centre.root / "data" / one).unlink()
    centre.start()
    if not are_there:
        centre.store.remove(blocks_key(centre.key(one)))
    assert adopted(centre).good
    with centre.engine.reading() as state:
        assert "blocks=" in state.uploaded_table.rows[one].digests
    assert centre.examine(deep=True).found == []


@pytest.mark.parametrize("state", [FileState.LIVE, FileState.SUPERSEDED])
def test_what_is_lost_there_and_nodes_are_to_have_is_left_until_a_server_asks_them(
    centre: Checked, state: FileState
) -> None:
    """It was hidden, or forgotten, though two nodes had it whole and its edge had freed it."""
    one, two = centre.load(1, resource=b"one"), centre.load(2)
    centre.uploader.run_once()
    place_tablets(centre.engine)
    if state is FileState.SUPERSEDED:
        centre.engine.commit([records.FileRetired(one, 1)])
        centre.engine.commit([records.FileSuperseded(one, [two])])
    here = centre.root / "data" / one
    content = here.read_bytes()
    for each in (here, here.with_name(f"{here.name}.resource")):
        each.unlink()
    centre.place(one).unlink()
    report = centre.repair()
    assert [(each.repair, each.repaired) for each in report.found] == [(OF_NODES, False)]
    assert centre.states()[one] is state

    def fetch(row: FileRow, tree: Tree) -> str | None:
        assert row.physical == one
        tree.write_atomic("fetched", content)
        return "fetched"

    note_bad(centre.home, [one])
    for gives, left in ((None, True), (fetch, False)):
        pulled = PulledFiles(lambda: [centre.tree], gives or (lambda row, tree: None))
        scrubber = Scrubber(
            centre.engine,
            centre.store,
            centre.owner,
            centre.home,
            lambda: [centre.tree],
            days=10,
            pulled=pulled,
        )
        scrubber.work()
        assert (scrubber.problem is not None) == left
        assert centre.states()[one] is state
    assert centre.kinds(deep=True) == []
    assert centre.resources()[one] == md5(b"one").hexdigest()
    assert not (centre.root / "data" / "fetched").exists()


def test_where_nodes_do_not_count_what_gives_way_to_what_is_lost_is_left_to_them(
    centre: Checked,
) -> None:
    """Both were given up in one run: what gave the points, and what nodes might have had of it."""
    one, two = centre.load(1), centre.load(2)
    centre.uploader.run_once()
    place_tablets(centre.engine)
    centre.engine.commit([records.FileRetired(one, 1)])
    centre.engine.commit([records.FileSuperseded(one, [two])])
    for each in (one, two):
        (centre.root / "data" / each).unlink()
        centre.place(each).unlink()
    report = examine_store(
        centre.engine, centre.store, [centre.tree], deep=True, without_nodes=True
    )
    repair_store(centre.engine, centre.store, centre.owner, [centre.tree], report)
    assert centre.states() == {one: FileState.RETIRED, two: FileState.QUARANTINED}
