"""A receiver with a store copies what it loads, and says what is in the way."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from common.durable import Tree
from common.errors import NoSpaceError
from common.network.bandwidth import Bandwidth
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.records.commits_encoded import Commit
from receiver.metadata.sql.executing import execute
from receiver.operator.status import running_status
from receiver.operator.stored.storage import running_storage, storage_in_catalogue
from receiver.storage import copying
from receiver.storage.cache.file_restore import restore_files
from receiver.storage.cache.store_place import StoreSource
from receiver.storage.log_copies.metadata_restore import DeletionsBehind, restore_metadata
from receiver.storage.reading.block_digests import WHOLE_BYTES
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import next_incarnation
from receiver.storage.stores.object_store import Fingerprint
from receiver.storage.stores.store_opening import open_store
from tests.support.node_world import A, Clock, Edge, World, epoch_of, path_of, tsfile
from tests.support.tsfile_bytes import build
from tests.support.web import BOUND, until

HELD = "Copies into the object store are held up:"


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "bucket").mkdir()
    url = (tmp_path / "bucket").as_uri()
    return World(tmp_path / "centre", storage={"url": url, "lag": 0.1})


def test_what_is_loaded_comes_to_the_store_and_a_receiver_is_made_of_it(
    world: World, tmp_path: Path
) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile(), path_of(2): tsfile(salt=2)}, resources={path_of(1): b"r"})

        def is_there() -> bool:
            view = running_storage(node.operator)
            is_shipped = view.shipped == node.engine.newest_commit
            return view.uploaded_files == 2 and view.waiting_files == 0 and is_shipped

        until(is_there)
        assert node.concerns() == []
        assert storage_in_catalogue(node.operator).uploaded_files == 2
        uuid, loaded = node.engine.uuid, world.loaded()
    store = open_store(str(world.storage["url"]))
    restored = tmp_path / "restored"
    restore_metadata(store, uuid, restored / "schema")
    with (
        Engine.open(restored / "schema", background=False) as engine,
        Tree(restored / "data", create=True) as data,
    ):
        found = restore_files(store, engine, [data])
    store.close()
    assert (found.fetched, found.lacking) == (2, [])
    assert {name: (restored / "data" / name).read_bytes() for name in loaded} == loaded


def test_a_store_that_is_not_there_holds_up_the_copies_alone_and_is_told_of(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "bucket").rmdir()
    with world.node() as node:
        until(lambda: running_storage(node.operator).problem)
        Edge(node).round({path_of(1): tsfile()})
        assert node.problem() is None
        assert node.concerns() == [f"{HELD} the bucket or directory is not there."]
        (said,) = running_status(node.operator, None).concerns
        assert "No such file" in said
        assert running_storage(node.operator).trouble == "store-missing"
        (tmp_path / "bucket").mkdir()
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        until(lambda: node.concerns() == [])


def test_who_is_told_of_the_store_gets_files_from_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that asks just then would be told that the store was not reached yet."""
    made, told = copying.StoreSource, []

    def observed(*given: Any) -> StoreSource:
        told.append(running_storage(node.operator).incarnation)
        return made(*given)

    monkeypatch.setattr(copying, "StoreSource", observed)
    with world.node() as node:
        until(lambda: running_storage(node.operator).incarnation)
    assert told == [0]


def test_what_hinders_the_copies_at_their_begin_hinders_them_no_longer_than_it_lasts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies of the log would go on, those of files never begin, and nobody be told."""
    made, failed = copying.Uploader, []

    def failing_once(*given: Any, **more: Any) -> copying.Uploader:
        if not failed:
            failed.append(OSError(errno.EIO, "the disk does not answer"))
            raise failed[0]
        return made(*given, **more)

    monkeypatch.setattr(copying, "Uploader", failing_once)
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).uploaded_files == 1)
    assert failed


def test_the_log_is_no_more_than_the_lag_behind_whatever_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it is for its rest and half for its way; files that are on theirs do not matter."""
    upload, go_on = DirectoryStore.upload, threading.Event()
    ship, rests = copying.StorageService._ship, list[float]()

    def held(self: DirectoryStore, key: str, *given: Any, **more: Any) -> Fingerprint:
        if "/data/" in key:
            assert go_on.wait(BOUND)
        return upload(self, key, *given, **more)

    def noted(self: copying.StorageService) -> float:
        rests.append(ship(self))
        return rests[-1]

    monkeypatch.setattr(DirectoryStore, "upload", held)
    monkeypatch.setattr(copying.StorageService, "_ship", noted)
    with world.node() as node:
        try:
            Edge(node).round({path_of(number): tsfile(salt=number) for number in range(1, 4)})
            for number in range(3):
                op = records.SenderSeen(f"{number:032x}", "", f"x{number}")
                ts = node.engine.commit([op])
                until(lambda ts=ts: running_storage(node.operator).shipped >= ts)
            assert running_storage(node.operator).uploaded_files == 0
        finally:
            go_on.set()
    assert 0 < max(rests) <= world.storage["lag"] / 2


def test_copies_of_files_keep_to_the_limit_of_the_line(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(Bandwidth, "take", lambda _, size: taken.append(size))
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).uploaded_files == 1)
    assert sum(taken) == len(tsfile())


def test_a_receiver_that_was_replaced_copies_nothing_any_more(world: World, tmp_path: Path) -> None:
    with world.node() as node:
        until(lambda: running_storage(node.operator).shipped)
        store = open_store(str(world.storage["url"]))
        with Tree(tmp_path / "other", create=True) as home:
            next_incarnation(store, home, node.engine.uuid)
        Edge(node).round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).fenced)
        assert "taken over" in str(running_storage(node.operator).problem)
        assert running_storage(node.operator).trouble == "fenced"
        (said,) = node.concerns()
        assert "another receiver has taken over" in said
        assert list(store.objects(f"{node.engine.uuid}/data/")) == []
        store.close()


def test_a_second_centre_that_is_given_the_same_prefix_says_whose_it_is(
    world: World, tmp_path: Path
) -> None:
    with world.node() as node:
        until(lambda: running_storage(node.operator).shipped)
    second = World(tmp_path / "second", storage=world.storage)
    with second.node() as node:
        until(lambda: running_storage(node.operator).trouble == "foreign-prefix")
        assert node.concerns() == [f"{HELD} the place in the store is another centre's."]
        Edge(node).round({path_of(1): tsfile()})
        assert running_storage(node.operator).uploaded_files == 0
        assert node.problem() is None, "it takes files all the same"


def test_what_is_forgotten_for_long_goes_from_the_store(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_REMOVE", 0.05)
    clock = world.clock = Clock(time.time())
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile(), path_of(2): tsfile(salt=2)})
        until(lambda: running_storage(node.operator).uploaded_files == 2)
        with node.engine.reading() as state:
            gone = next(iter(state.files))
        node.engine.commit([records.FileDeleted(gone, "operator")])
        node.engine.commit([records.FileForgotten(gone)])
        assert running_storage(node.operator).ended_files == 1
        clock.now += 30 * 86_400
        node.engine.collect()
        until(lambda: running_storage(node.operator).ended_files == 0)
        assert running_storage(node.operator).staying is None
        store = open_store(str(world.storage["url"]))
        assert len(list(store.objects(f"{node.engine.uuid}/data/"))) == 1
        store.close()


def test_a_clock_that_is_set_ahead_makes_nothing_due_and_time_that_passes_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where an operator says that the clock is right: then it was wrong before."""
    monkeypatch.setattr(copying, "_REMOVE", 0.05)
    wall, steady = Clock(time.time()), Clock(1000.0)
    world.clock, world.steady = wall, steady
    month = 30 * 86_400
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        with node.engine.reading() as state:
            (gone,) = state.files
        node.engine.commit([records.FileDeleted(gone, "operator")])
        node.engine.commit([records.FileForgotten(gone)])
        wall.now += month
        assert node.engine.clock.doubt() is not None
        node.engine.clock.confirm()
        until(lambda: node.engine.clock.pending() is None)
        assert node.engine.clock() == wall.now
        node.engine.collect()
        newest = node.engine.newest_commit
        until(lambda: running_storage(node.operator).shipped >= newest)
        assert node.storage is not None
        assert node.storage._removers is not None
        assert node.storage._removers[0].run_once() == 0
        assert running_storage(node.operator).ended_files == 1
        wall.now += month
        steady.now += month
        node.engine.collect()
        until(lambda: running_storage(node.operator).ended_files == 0)


def test_an_empty_directory_where_the_store_was_is_none(world: World, tmp_path: Path) -> None:
    """As a mount that is away leaves it: nothing is put there, and believed to be copied."""
    bucket, away = tmp_path / "bucket", tmp_path / "away"
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).uploaded_files == 1)
    bucket.rename(away)
    bucket.mkdir()
    with world.node() as node:
        until(lambda: running_storage(node.operator).problem)
        assert running_storage(node.operator).trouble == "other-store"
        assert node.concerns() == [f"{HELD} it is not the store that copies were put in."]
        Edge(node, epoch=epoch_of(node, A)).round({path_of(2): tsfile(salt=2)})
        assert running_storage(node.operator).uploaded_files <= 1
        assert list(bucket.iterdir()) == []
        bucket.rmdir()
        away.rename(bucket)
        until(lambda: running_storage(node.operator).uploaded_files == 2)


def test_what_was_put_and_not_told_of_yet_is_found(world: World, tmp_path: Path) -> None:
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()}, resources={path_of(1): b"r"})
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        uuid, loaded = node.engine.uuid, world.loaded()
        with node.engine.reading() as state:
            (row,) = state.files.values()
            when = row.created
        until(lambda: running_storage(node.operator).shipped > when)
    store = open_store(str(world.storage["url"]))
    restore_metadata(store, uuid, tmp_path / "schema", at=when)
    with (
        Engine.open(tmp_path / "schema", background=False) as engine,
        Tree(tmp_path / "data", create=True) as data,
    ):
        with engine.reading() as state:
            assert not state.uploaded_table.rows
        found = restore_files(store, engine, [data])
    store.close()
    assert (found.fetched, found.lacking) == (1, [])
    assert {name: (tmp_path / "data" / name).read_bytes() for name in loaded} == loaded


def test_a_restore_as_of_a_moment_names_what_an_operator_deleted_since(
    world: World, tmp_path: Path
) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(n): tsfile(f"root.sg.d{n}") for n in range(1, 4)})
        with node.engine.reading() as state:
            rows = sorted(state.files.values(), key=lambda row: row.path)
        first, second, third = (row.physical for row in rows)
        when = node.engine.newest_commit
        edge.round({path_of(4): tsfile("root.sg.d4")})
        with node.engine.reading() as state:
            (new,) = (each for each in state.files if each not in {first, second, third})
        node.engine.commit([records.FileDeleted(each, "operator") for each in (first, second)])
        node.engine.commit([records.FileUndeleted(second, [])])
        node.engine.commit([records.FileDeleted(new, "operator")])
        node.engine.commit([records.FileDeleted(third, "expired")])
        last = node.engine.newest_commit
        until(lambda: running_storage(node.operator).shipped >= last)
        uuid = node.engine.uuid
    store = open_store(str(world.storage["url"]))
    assert restore_metadata(store, uuid, tmp_path / "then", at=when).deleted == [first]
    assert not restore_metadata(store, uuid, tmp_path / "now").deleted
    store.close()


def test_what_was_within_what_an_operator_deleted_later_is_named_too() -> None:
    ops: list[records.Op] = [
        records.FileSuperseded("a", ["m1"]),
        records.FileSuperseded("b", ["m1", "m2"]),
        records.FileSuperseded("m1", ["n"]),
        records.FileDeleted("n", "operator"),
    ]
    found = DeletionsBehind()
    found.take([Commit(1, ops)])
    assert found.found() == ["a", "m1", "n"]


def test_nothing_waits_for_a_resource_that_is_nowhere(world: World, tmp_path: Path) -> None:
    """The machine was lost between an object and that of its resource."""
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()}, resources={path_of(1): b"r"})
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        newest = node.engine.newest_commit
        until(lambda: running_storage(node.operator).shipped >= newest)
        uuid = node.engine.uuid
        with node.engine.reading() as state:
            (row,) = state.files.values()
    store = open_store(str(world.storage["url"]))
    digest = row.resource.md5 if row.resource else ""
    for each in list(store.objects(f"{uuid}/data/")):
        if each.key.endswith(digest):
            store.remove(each.key)
    restore_metadata(store, uuid, tmp_path / "schema")
    with (
        Engine.open(tmp_path / "schema", background=False) as engine,
        Tree(tmp_path / "data", create=True) as data,
    ):
        found = restore_files(store, engine, [data])
        with engine.reading() as state:
            (row,) = state.files.values()
            assert row.visible
            assert row.resource is None
            assert not state.uploaded_table.lacks(row)
    store.close()
    assert (found.fetched, found.lacking) == (1, [])


def test_files_are_restored_where_there_is_room(world: World, tmp_path: Path) -> None:
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile(), path_of(2): tsfile(salt=2)})
        until(lambda: running_storage(node.operator).uploaded_files == 2)
        newest = node.engine.newest_commit
        until(lambda: running_storage(node.operator).shipped >= newest)
        uuid, loaded = node.engine.uuid, world.loaded()
    store = open_store(str(world.storage["url"]))
    restore_metadata(store, uuid, tmp_path / "schema")

    class Full(Tree):
        def create(self, *_arguments: Any, **_options: Any) -> Any:
            raise NoSpaceError("no space left")

    with (
        Engine.open(tmp_path / "schema", background=False) as engine,
        Full(tmp_path / "full", create=True) as full,
        Tree(tmp_path / "data", create=True) as data,
    ):
        assert restore_files(store, engine, [full, data]).fetched == 2
        assert restore_files(store, engine, [full, data]).there == 2
        with pytest.raises(NoSpaceError):
            restore_files(store, engine, [full])
    store.close()
    assert {name: (tmp_path / "data" / name).read_bytes() for name in loaded} == loaded


def test_what_an_operator_said_of_a_storage_group_is_shown_and_done(world: World) -> None:
    with world.node() as node:
        execute(node.engine, "set storage group to root.sg")
        execute(node.engine, "set upload to root.sg never")
        Edge(node).round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).kept_files == 1)
        view = running_storage(node.operator)
        assert (view.upload, view.waiting_files, view.uploaded_files) == ({"root.sg": -1}, 0, 0)
        execute(node.engine, "set upload to root.sg at once")
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        assert storage_in_catalogue(node.operator).upload == {"root.sg": 0}


def test_what_came_without_digests_of_its_blocks_gets_them_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = build({"root.sg.d1": {"s1": [(1, 1)]}}, pad_to=WHOLE_BYTES + 1)
    monkeypatch.setattr("receiver.storage.uploading.uploader.put_block_digests", lambda *_: {})
    with world.node() as node:
        Edge(node).round({path_of(1): large})
        until(lambda: running_storage(node.operator).uploaded_files == 1)

        def has_digests() -> bool:
            with node.engine.reading() as state:
                (row,) = state.uploaded_table.rows.values()
            return "blocks=" in row.digests

        assert not has_digests()
    with world.node() as node:
        until(has_digests)
        assert node.concerns() == []
