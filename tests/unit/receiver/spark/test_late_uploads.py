"""A file whose upload is newer than the snapshot is found, and what is nowhere is told truly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.durable import Tree
from receiver.config import ReceiverConfig, StorageConfig
from receiver.follower import store_view
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.spark import late_uploads
from receiver.spark.finder import DataFile
from receiver.spark.late_uploads import FileWaitsError
from receiver.spark.report.results import Severity
from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
from receiver.spark.source.read_plans.slicing import Slice
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from receiver.spark.verify.committed import CommittedFiles
from receiver.spark.verify.examining.file_checks import check_part
from receiver.spark.verify.examining.parts import FilePart
from receiver.spark.verify.file_scope import FileScope
from receiver.storage.log_copies.log_shipping import LogShipper
from receiver.storage.reading import open_stores
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import own_incarnation
from receiver.storage.stores.object_keys import data_key
from receiver.storage.stores.object_store import ObjectMissingError
from receiver.storage.stores.owned_prefix import own_prefix
from receiver.storage.stores.store_opening import open_store
from tests.support.spark_world import NORTH
from tests.support.stored_world import StoredWorld, large
from tests.support.tsfile_bytes import build

PATH = "sequence/root.wind/0/0/{0}-{0}-0-0.tsfile"


@pytest.fixture(autouse=True)
def fresh() -> None:
    """A process of its own."""
    open_stores.of_process.__init__()  # type: ignore[misc]
    late_uploads._looks.__init__()  # type: ignore[misc]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    (tmp_path / "bucket").mkdir()
    made = StoredWorld(tmp_path)
    made.configure((tmp_path / "bucket").as_uri())
    yield made
    made.engine.close()


def small(number: int) -> bytes:
    return build({"root.wind.d1": {"s1": [(number * 100 + n, n) for n in range(50)]}})


def ship(world: StoredWorld) -> None:
    """Copy the log as it is now."""
    store = open_store(world.url)
    own_prefix(store, world.engine.uuid)
    with Tree(world.root / "schema") as home:
        owner = own_incarnation(store, home, world.engine.uuid)
        LogShipper(world.engine.published, home, store, owner).ship()
    store.close()


def upload(world: StoredWorld) -> None:
    world.upload()
    assert not any(world.data.rglob("*.tsfile"))


def planned(world: StoredWorld) -> tuple[list[DataFile], Callable[[], int]]:
    """The files of a query as its driver sees them now, and its rows when it is worked on."""
    options = parse_options({"catalog": world.url, "form": "long"})
    files = list_sources(options)
    plan = plan_of(options, columns_of(options))
    slices = [Slice(each.for_worker(), plan.selection.span) for each in files]
    return files, lambda: sum(batch.num_rows for batch in read_slices(slices, plan))


@pytest.mark.parametrize("content", [small(1), large()[0]], ids=["small", "large"])
def test_a_row_that_is_known_and_whose_object_comes_later_is_read(
    world: StoredWorld, content: bytes
) -> None:
    world.load(NORTH, PATH.format(1), content)
    ship(world)
    files, rows = planned(world)
    upload(world)
    (file,) = files
    assert file.place is not None
    assert not file.place.key
    assert rows() > 0
    assert read_tail_of(file) is not None


def test_what_lies_under_its_key_has_to_be_its_bytes(world: StoredWorld) -> None:
    world.load(NORTH, PATH.format(1), small(1))
    ship(world)
    _, rows = planned(world)
    upload(world)
    there = world.object(world.physicals()[0])
    there.write_bytes(small(2))
    with pytest.raises(Exception, match="other bytes than were uploaded"):
        rows()


def test_one_that_waits_is_named_with_the_others_that_wait(world: StoredWorld) -> None:
    world.load(NORTH, PATH.format(1), small(1))
    ship(world)
    upload(world)
    for number in range(2, 10):
        world.load(NORTH, PATH.format(number), small(number))
    ship(world)
    for each in world.data.rglob("*.tsfile"):
        each.unlink()
    _, rows = planned(world)
    with pytest.raises(FileWaitsError, match=r"not in file:.* yet; nor are 7 others") as told:
        rows()
    assert "option receiver" in str(told.value)


def test_a_thousand_that_wait_are_looked_up_once(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 9):
        world.load(NORTH, PATH.format(number), small(number))
    ship(world)
    for each in world.data.rglob("*.tsfile"):
        each.unlink()
    options = parse_options({"catalog": world.url, "form": "long", "onError": "row"})
    files = list_sources(options)
    plan = plan_of(options, columns_of(options))
    looks = []

    class Counted(store_view.StoreView):
        def __init__(self, store: DirectoryStore) -> None:
            looks.append(store.url)
            super().__init__(store)

    monkeypatch.setattr(store_view, "StoreView", Counted)
    late_uploads._looks.__init__()  # type: ignore[misc]
    slices = [Slice(each.for_worker(), plan.selection.span) for each in files]
    assert sum(batch.num_rows for batch in read_slices(slices, plan)) == 8
    assert len(looks) == 1


def test_one_that_was_put_there_once_more_is_read_under_its_new_key(world: StoredWorld) -> None:
    world.load(NORTH, PATH.format(1), small(1))
    upload(world)
    ship(world)
    _, rows = planned(world)
    (physical,) = world.physicals()
    with world.engine.reading() as state:
        told = state.uploaded_table.rows[physical]
    world.object(physical).rename(
        world.root / "bucket" / data_key(world.engine.uuid, told.incarnation, physical, 1)
    )
    world.engine.commit([records.FileUploaded(physical, told.incarnation, told.size, "", again=1)])
    ship(world)
    assert rows() == 50


def test_one_that_is_forgotten_since_is_a_moment_that_is_gone(world: StoredWorld) -> None:
    world.load(NORTH, PATH.format(1), small(1))
    upload(world)
    ship(world)
    _, rows = planned(world)
    (physical,) = world.physicals()
    world.object(physical).unlink()
    world.engine.commit([records.FileDeleted(physical, "gone")])
    world.engine.commit([records.FileForgotten(physical)])
    ship(world)
    with pytest.raises(HistoryGoneError, match="forgotten since it was listed"):
        rows()


def test_those_that_were_hidden_before_they_came_there_are_gone_and_looked_up_once(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an earlier time has them, after a restore from the store: nobody will ever upload them."""
    for number in range(1, 5):
        world.load(NORTH, PATH.format(number), small(number))
    then = world.engine.newest_commit
    for physical in world.physicals()[:3]:
        world.engine.commit([records.FileDeleted(physical, "gone")])
    upload(world)
    ship(world)
    options = parse_options({"catalog": world.url, "form": "long", "asOf": str(then)})
    files = list_sources(options)
    plan = plan_of(options, columns_of(options))
    looks = []

    class Counted(store_view.StoreView):
        def __init__(self, store: DirectoryStore) -> None:
            looks.append(store.url)
            super().__init__(store)

    monkeypatch.setattr(store_view, "StoreView", Counted)
    late_uploads._looks.__init__()  # type: ignore[misc]
    rows = 0
    for file in files:
        part = [Slice(file.for_worker(), plan.selection.span)]
        if file.name in world.physicals()[:3]:
            with pytest.raises(HistoryGoneError, match="never had it: it was deleted"):
                list(read_slices(part, plan))
        else:
            rows += sum(batch.num_rows for batch in read_slices(part, plan))
    assert rows == 50
    assert len(looks) == 1


def test_one_that_the_store_lost_is_missing_whatever_else_is_asked(world: StoredWorld) -> None:
    world.load(NORTH, PATH.format(1), small(1))
    upload(world)
    ship(world)
    _, rows = planned(world)
    world.object(world.physicals()[0]).unlink()
    with pytest.raises(ObjectMissingError, match="is not there"):
        rows()


def test_a_verification_of_the_copies_proves_what_came_later(world: StoredWorld) -> None:
    world.load(NORTH, PATH.format(1), small(1))
    world.load(NORTH, PATH.format(2), small(2))
    ship(world)
    config = ReceiverConfig(
        schema_dir=Path("/nowhere"), data_dirs=[], storage=StorageConfig(url=world.url)
    )
    with CommittedFiles(config, FileScope(), lambda: 1.7e9, copies=True) as copies:
        parts = [FilePart(at, 0, 0, 0, each.expected) for at, each in enumerate(copies.files)]
        before = [check_part(each).result for each in parts]
        assert [[each.severity for each in part.findings] for part in before] == [
            [Severity.UNPROVED],
            [Severity.UNPROVED],
        ]
        assert "yet" in before[0].findings[0].detail
        upload(world)
        after = [check_part(each).result for each in parts]
    assert not any(part.findings for part in after)
    assert [part.points for part in after] == [50, 50]
