"""One thing in the way at the centre costs the files that have to go there their outcome, no more.

`sequence/<sg>` and the like are the receiver's own names; what is there was put there by somebody
else, and is neither removed nor followed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from common import wire
from common.errors import Transient
from common.names import FilePath
from receiver.load.deciding.known_files.candidates import physical_name
from receiver.node import Node
from receiver.operator.status import running_status
from receiver.web.app import close, create_app
from tests.support.node_world import A, B, Edge, World, path_of, plan_entry, results, tsfile

HINDERED, FREE = path_of(1, sg="root.one"), path_of(1, sg="root.two")
CONTENT = {HINDERED: tsfile("root.one.d1"), FREE: tsfile("root.two.d1")}


def put_file(at: Path, _elsewhere: Path) -> None:
    at.write_bytes(b"somebody's")


def put_link(at: Path, elsewhere: Path) -> None:
    at.symlink_to(elsewhere)


def put_dangling(at: Path, elsewhere: Path) -> None:
    at.symlink_to(elsewhere / "nothing")


def put_pipe(at: Path, _elsewhere: Path) -> None:
    os.mkfifo(at)


IN_THE_WAY = [put_file, put_link, put_dangling, put_pipe]


@pytest.mark.parametrize("place", ["", "/root.one", "/root.one/0", "/root.one/0/0"])
@pytest.mark.parametrize("put", IN_THE_WAY)
def test_what_stands_for_a_directory_stops_the_files_below_it_only(
    node: Node, world: World, tmp_path: Path, place: str, put: object
) -> None:
    free = FREE.replace("sequence/", "unsequence/")
    content = {HINDERED: CONTENT[HINDERED], free: CONTENT[FREE]}
    at = world.data / f"sequence{place}"
    at.parent.mkdir(parents=True, exist_ok=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    put(at, elsewhere)  # type: ignore[operator]
    before = os.lstat(at).st_ino
    edge = Edge(node)

    outcome = edge.round(content)

    assert results(outcome) == {HINDERED: "missing", free: "loaded"}
    assert f"sequence{place} is a" in (outcome[HINDERED].reason or "")
    assert os.lstat(at).st_ino == before
    assert list(elsewhere.iterdir()) == []
    later = path_of(2, sg="root.two")
    assert results(edge.round({later: tsfile("root.two.d1", first=50)}))[later] == (
        "loaded" if place else "missing"
    )


def test_it_is_retried_without_its_bytes_and_comes_once_the_way_is_free(
    node: Node, world: World
) -> None:
    (world.data / "sequence").mkdir()
    (world.data / "sequence/root.one").write_bytes(b"")
    edge = Edge(node)
    edge.round(CONTENT)
    assert results(edge.round({HINDERED: CONTENT[HINDERED]})) == {HINDERED: "missing"}
    (world.data / "sequence/root.one").unlink()
    task = edge.start()
    (decision,) = edge.plan(task, [plan_entry(HINDERED, CONTENT[HINDERED])])
    assert decision.action is wire.Action.HAVE
    edge.end(task, {HINDERED: CONTENT[HINDERED]})
    assert results(edge.outcome(task)) == {HINDERED: "loaded"}
    assert sorted(world.loaded().values()) == sorted(CONTENT.values())


def test_the_health_says_so_until_it_is_over(node: Node, world: World) -> None:
    (world.data / "sequence").mkdir()
    (world.data / "sequence/root.one").write_bytes(b"")
    edge = Edge(node)
    app = create_app(world.config, node)
    try:
        assert app.test_client().get("/readyz").get_json()["status"] == "ok"
        edge.round(CONTENT)
        answer = app.test_client().get("/readyz")
        assert answer.status_code == 200  # all others come through
        assert answer.get_json()["status"] == "degraded"
        assert answer.get_json()["concerns"][0].startswith("1 file cannot be put in place")
        assert "root.one" not in answer.get_data(as_text=True)  # it is told to anybody
        assert app.test_client().get("/healthz").get_json()["status"] == "degraded"
        (concern,) = running_status(node.operator, node.problem()).concerns
        assert HINDERED in concern
        assert "sequence/root.one is a file where a directory has to be" in concern
        (world.data / "sequence/root.one").unlink()
        edge.round({HINDERED: CONTENT[HINDERED]})
        assert app.test_client().get("/readyz").get_json() == {"status": "ok"}
        assert running_status(node.operator, node.problem()).concerns == ()
    finally:
        close(app)


@pytest.mark.parametrize("thing", ["directory", "full directory", "link", "pipe"])
def test_what_has_the_name_of_the_file_itself_stops_that_file(
    node: Node, world: World, tmp_path: Path, thing: str
) -> None:
    beside = path_of(2, sg="root.one")
    content = {HINDERED: CONTENT[HINDERED], beside: tsfile("root.one.d1", first=50)}
    task = "c" * 32
    at = world.data / physical_name(A, task, FilePath.parse(HINDERED)).text
    at.parent.mkdir(parents=True)
    if thing == "link":
        at.symlink_to(tmp_path / "victim")
    elif thing == "pipe":
        os.mkfifo(at)
    else:
        at.mkdir()
        if thing == "full directory":
            (at / "within").write_bytes(b"")
    before = os.lstat(at).st_ino

    outcome = Edge(node).round(content, task=task)

    assert results(outcome) == {HINDERED: "missing", beside: "loaded"}
    assert os.lstat(at).st_ino == before
    assert (world.folder() / "data" / HINDERED).is_file()


def test_a_resource_that_cannot_be_placed_takes_its_file_back(node: Node, world: World) -> None:
    task, path = "c" * 32, HINDERED
    physical = physical_name(A, task, FilePath.parse(path))
    at = world.data / physical.resource.text
    at.mkdir(parents=True)
    outcome = Edge(node).round(CONTENT, task=task, resources={path: b"resource"})
    assert results(outcome) == {path: "missing", FREE: "loaded"}
    assert not (world.data / physical.text).exists()
    assert (world.folder() / "data" / path).is_file()


def test_a_directory_that_may_not_be_entered_stops_its_files_only(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.mkdir

    def denied(path: object, *rest: object, **more: object) -> None:
        if path == "root.one" and _sequence(more.get("dir_fd")):
            raise PermissionError(13, "Permission denied", path)
        real(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "mkdir", denied)
    edge = Edge(node)
    outcome = edge.round(CONTENT)
    assert results(outcome) == {HINDERED: "missing", FREE: "loaded"}
    assert "Permission denied" in (outcome[HINDERED].reason or "")


def _sequence(fd: object) -> bool:
    """Whether a descriptor is that of the loaded files, not of the received ones."""
    return "sync-receiver" not in os.readlink(f"/proc/self/fd/{fd}")


def test_deletions_of_the_partition_wait_for_the_file(node: Node, world: World) -> None:
    old = path_of(7, sg="root.one")
    edge = Edge(node)
    edge.round({old: tsfile("root.one.d1")})
    new = path_of(8, sg="root.one", inner=1)
    physical = physical_name(A, "d" * 32, FilePath.parse(new))
    (world.data / physical.text).mkdir()
    outcome = edge.round({new: tsfile("root.one.d1", first=3)}, deleted=[old], task="d" * 32)
    assert results(outcome) == {new: "missing", old: "held"}


def test_other_senders_are_not_concerned(node: Node, world: World) -> None:
    (world.data / "sequence").mkdir()
    (world.data / "sequence/root.one").write_bytes(b"")
    Edge(node).round(CONTENT)
    other = path_of(1, sg="root.three")
    assert results(Edge(node, B).round({other: tsfile("root.three.d1")})) == {other: "loaded"}


def test_an_upload_without_a_task_is_told_and_leaves_nothing(node: Node, world: World) -> None:
    (world.data / "sequence").mkdir()
    (world.data / "sequence/root.one").write_bytes(b"")
    edge = Edge(node)
    with pytest.raises(Transient, match=r"sequence/root\.one is a file"):
        edge.upload(None, HINDERED, CONTENT[HINDERED])
    assert running_status(node.operator, node.problem()).staged_bytes == 0
    (world.data / "sequence/root.one").unlink()
    edge.upload(None, HINDERED, CONTENT[HINDERED])
    assert list(world.loaded().values()) == [CONTENT[HINDERED]]


@pytest.mark.parametrize("uploads", [False, True])
def test_what_is_in_the_way_of_a_received_file_stops_that_file(
    node: Node, world: World, uploads: bool
) -> None:
    edge = Edge(node)
    task = edge.start()
    (world.folder() / "data/sequence").mkdir()
    (world.folder() / "data/sequence/root.one").write_bytes(b"")
    if uploads:
        with pytest.raises(Exception, match=r"data/sequence/root\.one is a file") as caught:
            edge.upload(task, HINDERED, CONTENT[HINDERED])
        assert getattr(caught.value, "http_status", 500) == 409
        edge.upload(task, FREE, CONTENT[FREE])
    else:
        problems = {each.path: each.problem for each in edge.batch(task, CONTENT)}
        assert problems[FREE] is None
        problem = problems[HINDERED]
        assert problem is not None
        assert problem.status == 409
        assert "is a file where a directory has to be" in problem.detail
    edge.end(task, {FREE: CONTENT[FREE]})
    assert results(edge.outcome(task)) == {FREE: "loaded"}


def test_a_received_file_that_became_unreadable_stops_itself_only(node: Node, world: World) -> None:
    edge = Edge(node)
    task = edge.start()
    edge.batch(task, CONTENT)
    at = world.folder() / "data" / HINDERED
    at.unlink()
    at.mkdir()
    edge.end(task, CONTENT)
    assert results(edge.outcome(task)) == {HINDERED: "missing", FREE: "loaded"}
    assert edge.start() != task


def test_a_deleted_file_that_cannot_be_removed_lets_the_others_go(world: World) -> None:
    world.keep_deleted = 0
    world.metadata = {"history": 0}
    with world.node() as node:
        edge = Edge(node)
        edge.round(CONTENT)
        edge.round({}, deleted=list(CONTENT), propagate=wire.Propagate.ALL)
        directory = world.data / "sequence/root.one"
        shutil.move(directory, world.root / "moved")
        directory.symlink_to(world.root / "moved")
        world.clock.now += 10  # type: ignore[attr-defined]
        assert node.load.reaper.run_once() == 1
        assert len(list((world.root / "moved").rglob("*.tsfile"))) == 1
        directory.unlink()
        shutil.move(world.root / "moved", directory)
        assert node.load.reaper.run_once() == 1
        assert world.loaded() == {}
