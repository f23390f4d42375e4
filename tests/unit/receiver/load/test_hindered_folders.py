"""What is in the way of one sender's folder stops that sender at most, and health says so."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from common.durable.flushing import meaning
from common.errors import DigestError, NotATsFileError, Transient
from receiver.load import service
from receiver.node import Node
from receiver.operator.status import running_status
from tests.support.node_world import A, B, Edge, World, fsck_of, path_of, results, tsfile

OURS, OTHERS = path_of(1, sg="root.one"), path_of(1, sg="root.two")
CONTENT = {OURS: tsfile("root.one.d1")}
OTHER = {OTHERS: tsfile("root.two.d1")}

Put = Callable[[Path], None]


def put_file(at: Path) -> None:
    at.write_bytes(b"somebody's")


def put_link(at: Path) -> None:
    at.symlink_to(at.parent)


PUT = pytest.mark.parametrize("put", [put_file, put_link])


def concerns(node: Node) -> str:
    return "\n".join(running_status(node.operator, node.problem()).concerns)


def remove(at: Path) -> None:
    """What a test has put there, or a folder, out of the way."""
    if at.is_dir() and not at.is_symlink():
        at.rename(at.parent.parent / f"{at.name}.away")
    else:
        at.unlink()


@PUT
@pytest.mark.parametrize("below", ["", "/data", "/data/.uploads"])
def test_a_senders_folder_that_cannot_be_made_stops_that_sender_only(
    world: World, put: Put, below: str
) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(9, sg="root.one"): tsfile("root.one.d1", first=900)})
    at = Path(f"{world.folder()}{below}")
    remove(at)
    put(at)
    with world.node() as node:
        assert node.problem() is None
        assert "1 sender" in node.concerns()[0]
        assert at.relative_to(world.data).as_posix() in concerns(node)
        assert results(Edge(node, B).round(OTHER)) == {OTHERS: "loaded"}
        edge.node = node
        for _ in range(2):
            with pytest.raises(Transient, match=at.name.replace(".", r"\.")):
                edge.start()
        found = fsck_of(node).found
        assert any(each.path == at.relative_to(world.data).as_posix() for each in found), found
        at.unlink()
        assert results(edge.round(CONTENT)) == {OURS: "loaded"}
        assert node.concerns() == []


def test_a_directory_in_place_of_a_log_is_named(world: World, node: Node) -> None:
    edge = Edge(node)
    edge.round({path_of(9, sg="root.one"): tsfile("root.one.d1", first=900)})
    at = Path(f"{world.folder()}/deletions.log")
    at.mkdir()
    with pytest.raises(Transient, match=r"/deletions\.log is a directory"):
        edge.start()
    assert "deletions.log" in concerns(node)
    at.rmdir()
    assert results(edge.round(CONTENT)) == {OURS: "loaded"}


@PUT
def test_a_sender_that_is_not_known_yet_is_told_too(world: World, node: Node, put: Put) -> None:
    at = world.data / f"sync-receiver/10.0.0.7_{A}"
    put(at)
    edge = Edge(node)
    with pytest.raises(Transient, match="sync-receiver"):
        edge.start()
    assert "1 sender" in node.concerns()[0]
    at.unlink()
    assert results(edge.round(CONTENT)) == {OURS: "loaded"}
    assert node.concerns() == []


@PUT
@pytest.mark.parametrize("below", ["quarantine", "manifests"])
def test_what_is_in_the_way_of_what_one_file_has_beside_it_stops_no_file(
    world: World, put: Put, below: str
) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.start()
    at = world.folder() / below
    if at.exists():
        remove(at)
    put(at)
    with world.node() as node:
        edge.node = node
        assert results(edge.round(CONTENT)) == {OURS: "loaded"}
        with pytest.raises((NotATsFileError, DigestError)):
            edge.upload(None, path_of(2, sg="root.one"), b"none" * 30)
        assert at.relative_to(world.data).as_posix() in concerns(node)
        assert at.is_symlink() or at.read_bytes() == b"somebody's"
        at.unlink()
        third = path_of(3, sg="root.one")
        assert results(edge.round({third: tsfile("root.one.d1", first=300)})) == {third: "loaded"}
        assert concerns(node) == ""


def test_a_list_of_what_was_loaded_that_cannot_be_written_does_not_hold_the_next_task(
    world: World, node: Node
) -> None:
    edge = Edge(node)
    task = edge.start()
    edge.batch(task, CONTENT)
    (world.folder() / "load.log").mkdir()
    edge.end(task, CONTENT)
    assert results(edge.outcome(task)) == {OURS: "loaded"}
    assert "load.log" in concerns(node)
    third = path_of(3, sg="root.one")
    assert results(edge.round({third: tsfile("root.one.d1", first=300)})) == {third: "loaded"}


@PUT
def test_without_the_folder_of_all_senders_what_is_loaded_is_still_served(
    world: World, put: Put
) -> None:
    with world.node() as node:
        edge = Edge(node)
        assert results(edge.round(CONTENT)) == {OURS: "loaded"}
    at = world.data / "sync-receiver"
    kept = at.rename(world.data / "kept")
    put(at)
    with world.node() as node:
        assert len(node.engine.uuid) == 32
        assert "sync-receiver" in (node.problem() or "")
        edge.node = node
        with pytest.raises(Transient, match="sync-receiver"):
            edge.start()
        assert any(each.path == "sync-receiver" for each in fsck_of(node).found)
        at.unlink()
        kept.rename(at)
        assert node.problem() is None
        assert results(Edge(node, B).round(OTHER)) == {OTHERS: "loaded"}
        third = path_of(3, sg="root.one")
        assert results(edge.round({third: tsfile("root.one.d1", first=300)})) == {third: "loaded"}


def test_the_reaper_clears_the_other_folders(world: World) -> None:
    with world.node() as node:
        for uuid in (A, B):
            Edge(node, uuid).start()
        left = world.folder(B) / "quarantine/old"
        left.write_bytes(b"nobody's")
        os.utime(left, (0, 0))
        (world.folder(A) / "quarantine").rmdir()
        put_link(world.folder(A) / "quarantine")
        (world.folder(A) / "manifests").symlink_to(world.root)
        node.load.reaper.run_once()
        assert not left.exists()


def test_what_lies_among_the_uploads_is_left_alone(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.start()
    uploads = world.folder() / "data/.uploads"
    (uploads / "one.part").mkdir()
    (uploads / "two.part").write_bytes(b"")
    (uploads / "two.upload").symlink_to(world.root)
    (uploads / "three.part").write_bytes(b"")
    (uploads / "three.upload").write_bytes(b"")
    (uploads / "three.upload").chmod(0)
    with world.node() as node:
        edge.node = node
        assert node.concerns() == []
        assert results(edge.round(CONTENT)) == {OURS: "loaded"}


def test_a_data_directory_that_takes_no_writes_is_a_problem_and_one_line(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a fault of its disk: `status` said so of each sender, and that all was well."""
    with world.node() as node:
        Edge(node).round({path_of(9, sg="root.one"): tsfile("root.one.d1", first=900)})
    real = os.statvfs
    fault = OSError(errno.EROFS, "Read-only file system", "verified.log")

    def mounted_read_only(path: Path) -> os.statvfs_result:
        found = list(real(path))
        if Path(path) == world.data:
            found[8] |= os.ST_RDONLY
        return os.statvfs_result(found)

    def refuse(*_: object, **__: object) -> None:
        with meaning(str(world.data / "verified.log")):
            raise fault

    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", mounted_read_only)
        patched.setattr(service, "recover_folder", refuse)
        with world.node() as node:
            said = node.problem() or ""
            assert said.startswith(f"the file system of {world.data} is read-only: mount it")
            assert not running_status(node.operator, node.problem()).ready
        (waits,) = [each for each in caplog.records if "recovery has to wait" in each.message]
        assert waits.exc_info is None
        assert "read-only" in waits.__dict__["error"]
    with world.node() as node:
        assert node.problem() is None
