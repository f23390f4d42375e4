"""With `storage.before_ack` nothing is acknowledged that is not in the store too."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.durable import Tree
from common.errors import BusyError, ConflictError
from common.wire import Propagate, Result, TaskState
from receiver.load.upkeep.verdicts import Verdict, record_verdicts
from receiver.metadata.engine import Engine
from receiver.metadata.state.table_rows import FileState
from receiver.node import Node
from receiver.operator.views.load_wire import (
    AdoptionAnswer,
    AdoptionRequest,
    CentreLoadAnswer,
    CentreLoadRequest,
)
from receiver.storage.cache.file_restore import restore_files
from receiver.storage.log_copies.metadata_restore import restore_metadata
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.object_store import Fingerprint
from receiver.storage.stores.store_opening import open_store
from receiver.storage.uploading.uploader import Uploader
from receiver.transfer.receiving import uploads
from tests.support.node_world import B, Edge, World, path_of, tsfile
from tests.support.old_tool import OldReceiverTree, name_of
from tests.support.web import BOUND, until

ONE, TWO = path_of(1), path_of(2)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


@pytest.fixture
def world(tmp_path: Path, bucket: Path) -> World:
    # By itself the log would follow in an hour: who waits for it has it go on.
    storage = {"url": bucket.as_uri(), "lag": 3600.0, "before_ack": True}
    return World(tmp_path / "centre", storage=storage)


def state_of(node: Node, edge: Edge, task: str) -> TaskState:
    return node.tasks.answer(edge.who, edge.uuid, task).state


def begin(edge: Edge, content: bytes) -> str:
    """A whole task but for the wait for its outcome."""
    task = edge.start()
    edge.batch(task, {ONE: content})
    edge.end(task, {ONE: content})
    return task


def restored(
    bucket: Path, uuid: str, root: Path, *, take_over: bool = False
) -> tuple[set[str], list[tuple[str, str]]]:
    """Paths that a receiver has which is made of the store alone, and those that it lacks."""
    store = open_store(bucket.as_uri())
    restore_metadata(store, uuid, root / "schema", take_over=take_over)
    with (
        Engine.open(root / "schema", background=False) as engine,
        Tree(root / "data", create=True) as data,
    ):
        found = restore_files(store, engine, [data])
        with engine.reading() as state:
            paths = {row.path for row in state.files.values() if row.visible}
    store.close()
    return paths, found.lacking


def test_what_is_acknowledged_is_in_the_store(world: World, bucket: Path, tmp_path: Path) -> None:
    with world.node() as node:
        edge = Edge(node)
        outcomes = edge.round({ONE: tsfile(), TWO: tsfile(salt=2)}, resources={ONE: b"r"})
        assert {each.result for each in outcomes.values()} == {Result.LOADED}
        uuid = node.engine.uuid
        found = restored(bucket, uuid, tmp_path / "a")
        edge.round(
            {}, [TWO], propagate=Propagate.ALL
        )  # no file comes, and its commit has to be there all the same
        after = restored(bucket, uuid, tmp_path / "b")
    assert found == ({ONE, TWO}, [])
    assert after == ({ONE}, [])


def test_without_the_store_a_task_stays_loading_over_restarts(
    world: World, bucket: Path, tmp_path: Path
) -> None:
    bucket.rename(tmp_path / "away")
    with world.node() as node:
        edge = Edge(node)
        task = begin(edge, tsfile())
        until(lambda: len(node.load.folders.find(edge.uuid).staged.all()) == 0)
        assert state_of(node, edge, task) is TaskState.LOADING
        assert edge.check().busy == task
        with pytest.raises(BusyError, match="not in the object store yet"):
            edge.start()
        until(node.concerns)
        assert "no task is acknowledged before" in node.concerns()[0]
    with world.node() as node:
        edge.node = node
        assert state_of(node, edge, task) is TaskState.LOADING
        assert edge.check().busy == task
        (tmp_path / "away").rename(bucket)
        until(lambda: state_of(node, edge, task) is TaskState.DONE)
        assert edge.check().busy is None
        uuid = node.engine.uuid
    assert restored(bucket, uuid, tmp_path / "restored") == ({ONE}, [])


def test_a_file_without_a_task_is_acknowledged_when_it_is_there_too(
    world: World, bucket: Path, tmp_path: Path
) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.upload(None, ONE, tsfile())
        uuid = node.engine.uuid
        assert restored(bucket, uuid, tmp_path / "restored") == ({ONE}, [])


def is_committed(node: Node) -> bool:
    """Whether a file is; it has its name in the data directory before."""
    with node.engine.reading() as state:
        return any(row.visible for row in state.files.values())


@pytest.mark.parametrize("is_task", [True, False])
def test_what_a_restore_found_nowhere_is_not_told_to_be_loaded(
    world: World, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_task: bool
) -> None:
    """The commit had come to the store and its file had not, when the machine was lost."""
    with monkeypatch.context() as patch, world.node() as node:
        patch.setattr(uploads, "_PATIENCE", 0.1)
        patch.setattr(Uploader, "run_once", lambda _: 0)
        edge = Edge(node)
        if is_task:
            task = begin(edge, tsfile())
        else:
            edge.check()
            with pytest.raises(BusyError):
                edge.upload(None, ONE, tsfile())
        until(lambda: is_committed(node))
        uuid, newest = node.engine.uuid, node.engine.newest_commit
        assert node.storage is not None
        node.storage.hurry()
        until(lambda: node.storage is not None and node.storage.shipped() >= newest)
    found = restored(bucket, uuid, tmp_path / "restored", take_over=True)
    assert found == (set(), [(edge.uuid, ONE)])
    with World(tmp_path / "restored", storage=world.storage).node() as node:
        edge.node = node
        if is_task:
            until(lambda: state_of(node, edge, task) is TaskState.DONE)
            (told,) = node.tasks.answer(edge.who, edge.uuid, task).outcomes
            assert (told.path, told.result) == (ONE, Result.MISSING)
            edge.outcome(task)
        assert edge.round({ONE: tsfile()})[ONE].result is Result.LOADED
        if is_task:  # asked once more for the old one, its path has its file
            (told,) = node.tasks.answer(edge.who, edge.uuid, task).outcomes
            assert told.result is Result.LOADED
    assert restored(bucket, uuid, tmp_path / "again") == ({ONE}, [])


def test_a_resource_alone_is_waited_for_too(world: World, bucket: Path, tmp_path: Path) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.round({ONE: tsfile()}, resources={ONE: b"r"})
        edge.round({ONE: tsfile()}, resources={ONE: b"anew"})
        uuid = node.engine.uuid
        restored(bucket, uuid, tmp_path / "restored")
    (there,) = (tmp_path / "restored").rglob("*.resource")
    assert there.read_bytes() == b"anew"


@pytest.mark.slow
def test_what_is_waited_for_goes_before_a_backlog(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was switched on at a centre that had loaded much, or its store was away for long."""
    many = {path_of(number): tsfile(salt=number) for number in range(2, 62)}
    with World(tmp_path / "centre").node() as node:
        Edge(node).round(many)
    upload, first = DirectoryStore.upload, Uploader.first
    gone, asked = list[str](), threading.Event()

    def held(self: DirectoryStore, key: str, *given: Any, **more: Any) -> Fingerprint:
        if "/data/" in key:
            gone.append(key)
            assert len(gone) == 1 or asked.wait(BOUND)
        return upload(self, key, *given, **more)

    def wanted(self: Uploader, physicals: Sequence[str]) -> None:
        first(self, physicals)
        if physicals:
            asked.set()

    monkeypatch.setattr(DirectoryStore, "upload", held)
    monkeypatch.setattr(Uploader, "first", wanted)
    storage = {"url": bucket.as_uri(), "lag": 0.1, "before_ack": True, "parallel": 1}
    with World(tmp_path / "centre", storage=storage).node() as node:
        until(lambda: len(gone) == 2)
        path = path_of(sg="root.b")
        assert Edge(node, B).round({path: tsfile("root.b.d1")})[path].result is Result.LOADED
    assert "root.b" in gone[2], "behind that which was under way"


@pytest.mark.parametrize("before_ack", [True, False])
def test_what_rots_before_it_is_copied_is_wanted_again_and_holds_up_no_task(
    tmp_path: Path, bucket: Path, before_ack: bool
) -> None:
    storage = {"url": bucket.as_uri(), "lag": 0.1, "before_ack": before_ack}
    world = World(tmp_path / "centre", storage=storage)
    bucket.rename(tmp_path / "away")
    with world.node() as node:
        edge = Edge(node)
        task = begin(edge, tsfile())
        until(lambda: world.loaded())
        (place,) = (tmp_path / "centre" / "data").rglob("*.tsfile")
        place.write_bytes(place.read_bytes()[:-9] + b"?" + place.read_bytes()[-8:])
        (tmp_path / "away").rename(bucket)
        until(lambda: edge_wants(node, edge))
        until(lambda: state_of(node, edge, task) is TaskState.DONE)
        uuid = node.engine.uuid
        if before_ack:  # what was told is known there: who is restored asks for it again as well
            assert restored(bucket, uuid, tmp_path / "one") == (set(), [])
        edge.outcome(task)
        assert edge.round({ONE: tsfile()})[ONE].result is Result.LOADED
        until(lambda: node.storage is not None and node.storage.progress().files.waiting_files == 0)
        assert not edge_wants(node, edge)


def edge_wants(node: Node, edge: Edge) -> bool:
    """Whether a file is in quarantine, and wanted again for it."""
    with node.engine.reading() as state:
        return any(row.state is FileState.QUARANTINED for row in state.files.values())


def test_a_load_at_the_centre_is_told_when_it_is_there_too(
    world: World, bucket: Path, tmp_path: Path
) -> None:
    """Whoever loads without an edge removes the originals then."""
    place = tmp_path / "old" / ONE
    place.parent.mkdir(parents=True)
    place.write_bytes(tsfile())
    request = CentreLoadRequest(task="5" * 32, paths=[str(tmp_path / "old")])
    with world.node() as node:
        (file,) = node.operator.centre.load(request).files
        assert file.result == "loaded"
        uuid = node.engine.uuid
        assert restored(bucket, uuid, tmp_path / "a") == ({file.path}, [])


def test_a_load_at_the_centre_is_not_done_while_the_store_is_away(
    world: World, bucket: Path, tmp_path: Path
) -> None:
    bucket.rename(tmp_path / "away")
    place = tmp_path / "old" / ONE
    place.parent.mkdir(parents=True)
    place.write_bytes(tsfile())
    request = CentreLoadRequest(task="5" * 32, paths=[str(tmp_path / "old")])
    with world.node() as node:
        node.operator.centre.begin(request)
        centre = node.operator.centre
        until(lambda: "elsewhere" in _step_of(centre.answer(request.task, 0.0)))
        assert centre.is_done(request.task)
        answer = centre.answer(request.task, 0.3)
        assert not answer.done
        assert "it is loaded, and not yet in the object store" in (answer.trouble or "")
    with world.node() as node:
        answer = node.operator.centre.answer(request.task, 0.0)
        assert (answer.done, answer.trouble is not None) == (False, True), "after a restart too"
        (tmp_path / "away").rename(bucket)
        until(lambda: node.operator.centre.answer(request.task, 0.0).done)


def test_a_load_that_waits_for_the_store_keeps_no_other_from_being_loaded(
    world: World, bucket: Path, tmp_path: Path
) -> None:
    bucket.rename(tmp_path / "away")
    requests = []
    for name in "123":
        place = tmp_path / name / ONE
        place.parent.mkdir(parents=True)
        place.write_bytes(tsfile(f"root.sg.d{name}"))
        requests.append(CentreLoadRequest(task=name * 32, paths=[str(tmp_path / name)]))
    with world.node() as node:
        centre = node.operator.centre
        for each in requests:
            centre.begin(each)
        until(
            lambda: all("elsewhere" in _step_of(centre.answer(each.task, 0.0)) for each in requests)
        )
        assert [each.committed for each in centre.under_way()] == [True] * 3
        with pytest.raises(ConflictError, match="is loaded already, and its files stay visible"):
            centre.cancel(requests[1].task, "enough")
        assert [each.task[0] for each in centre.under_way()] == ["1", "3"]
        answer = centre.answer(requests[1].task, 0.0)
        assert not answer.done, "it is told when it is there, though nobody waits"
        assert "not yet in the object store" in (answer.trouble or "")
        (tmp_path / "away").rename(bucket)
        for each in requests:
            until(lambda each=each: centre.answer(each.task, 0.0).done)  # type: ignore[misc]
        (paths, lacking) = restored(bucket, node.engine.uuid, tmp_path / "a")
        assert (len(paths), lacking) == (3, [])


def test_what_is_here_already_is_told_by_a_load_at_the_centre_when_it_is_there_too(
    world: World, bucket: Path, tmp_path: Path
) -> None:
    """Whoever says a load again, as nothing was told the first time, removes the originals too."""
    bucket.rename(tmp_path / "away")
    place = tmp_path / "old" / ONE
    place.parent.mkdir(parents=True)
    place.write_bytes(tsfile())
    first, again = (
        CentreLoadRequest(task=each * 32, paths=[str(tmp_path / "old")]) for each in "56"
    )
    with world.node() as node:
        node.operator.centre.begin(first)
        until(lambda: node.operator.centre.is_done(first.task))
    with world.node() as node:
        centre = node.operator.centre
        centre.begin(again)
        until(lambda: "elsewhere" in _step_of(centre.answer(again.task, 0.0)))
        assert not centre.answer(again.task, 0.5).done
        (tmp_path / "away").rename(bucket)
        until(lambda: centre.answer(again.task, 0.0).done)
        (file,) = centre.answer(again.task, 0.0).files
        assert file.result == "already"
        paths, lacking = restored(bucket, node.engine.uuid, tmp_path / "a")
        assert (len(paths), lacking) == (1, [])


def test_a_load_of_what_a_sender_has_just_loaded_waits_for_it(
    world: World, bucket: Path, tmp_path: Path
) -> None:
    bucket.rename(tmp_path / "away")
    place = tmp_path / "old" / ONE
    place.parent.mkdir(parents=True)
    place.write_bytes(tsfile())
    request = CentreLoadRequest(task="5" * 32, paths=[str(tmp_path / "old")])
    with world.node() as node:
        edge = Edge(node)
        begin(edge, tsfile())
        until(lambda: len(node.load.folders.find(edge.uuid).staged.all()) == 0)
        centre = node.operator.centre
        centre.begin(request)
        until(lambda: "elsewhere" in _step_of(centre.answer(request.task, 0.0)))
        assert not centre.answer(request.task, 0.5).done
        (tmp_path / "away").rename(bucket)
        until(lambda: centre.answer(request.task, 0.0).done)
        assert [each.result for each in centre.answer(request.task, 0.0).files] == ["already"]


@pytest.mark.parametrize("is_again", [False, True])
def test_what_is_found_bad_while_a_load_at_the_centre_waits_is_told_to_be_missing(
    world: World, bucket: Path, tmp_path: Path, is_again: bool
) -> None:
    """Who hears that it is loaded removes the original."""
    bucket.rename(tmp_path / "away")
    place = tmp_path / "old" / ONE
    place.parent.mkdir(parents=True)
    place.write_bytes(tsfile())
    request = CentreLoadRequest(task="5" * 32, paths=[str(tmp_path / "old")])
    with world.node() as node:
        if is_again:
            edge = Edge(node)
            begin(edge, tsfile())
            until(lambda: len(node.load.folders.find(edge.uuid).staged.all()) == 0)
        centre = node.operator.centre
        centre.begin(request)
        until(lambda: "elsewhere" in _step_of(centre.answer(request.task, 0.0)))
        with node.engine.reading() as state:
            (row,) = state.files.values()
        record_verdicts(node.engine, [Verdict(row.physical, row.md5, "its pages are bad")])
        (tmp_path / "away").rename(bucket)
        until(lambda: centre.answer(request.task, 0.0).done)
        (file,) = centre.answer(request.task, 0.0).files
        assert file.result == "missing"


def test_an_adoption_is_told_when_it_is_there_too(
    world: World, bucket: Path, tmp_path: Path
) -> None:
    """Whoever adopts removes the old receiver's directories then; what is moved goes then."""
    bucket.rename(tmp_path / "away")
    old = OldReceiverTree(tmp_path / "iotdb")
    old.loaded({ONE: tsfile()})
    old.owners({"root.sg.d1": name_of()})
    request = AdoptionRequest(task="5" * 32, paths=[str(old.root)], commit=True, move=True)
    again = msgspec.structs.replace(request, task="6" * 32)
    with world.node() as node:
        adoptions = node.operator.adoptions
        adoptions.begin(request)
        until(lambda: "elsewhere" in _step_of(adoptions.answer(request.task, 0.0)))
        assert not adoptions.answer(request.task, 0.5).done
    assert len(list(old.root.rglob("*.tsfile"))) == 1
    with world.node() as node:
        adoptions = node.operator.adoptions
        adoptions.begin(again)
        until(lambda: "elsewhere" in _step_of(adoptions.answer(again.task, 0.0)))
        (tmp_path / "away").rename(bucket)
        until(lambda: adoptions.answer(again.task, 0.0).done)
        (file,) = adoptions.answer(again.task, 0.0).files
        assert restored(bucket, node.engine.uuid, tmp_path / "a") == ({file.path}, [])
    assert list(old.root.rglob("*.tsfile")) == []


def _step_of(answer: CentreLoadAnswer | AdoptionAnswer) -> str:
    assert not answer.done, "it is told while nothing is in the store"
    return "" if answer.progress is None else answer.progress.step
