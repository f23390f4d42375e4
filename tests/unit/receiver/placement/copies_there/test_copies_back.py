"""What a disk of the master has lost comes back from nodes, checked."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from common import crash
from common.durable import Tree
from common.errors import (
    DiskError,
    NoSpaceError,
    NotFoundError,
    ReadOnlyDiskError,
    TsferryError,
)
from receiver.metadata.model import records
from receiver.placement.node_place import NodeSource
from receiver.storage.cache.disk_cache import DiskCache
from receiver.storage.cache.file_fetching import FileFetcher
from tests.support.losing_master import Losing


@pytest.fixture
def losing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    losing = Losing(tmp_path, monkeypatch)
    yield losing
    losing.close()


def test_a_lost_directory_is_made_up_for(losing: Losing):
    shutil.rmtree(losing.data / "sequence")
    found = losing.back.bring_all()
    assert (found.files, found.failed) == (3, [])
    assert {each: (losing.data / each).read_bytes() for each in losing.files} == losing.contents
    assert losing.back.bring_all().files == 0


def test_where_the_directory_is_gone_it_comes_to_another_one(losing: Losing):
    losing.trees = losing.trees[1:]
    found = losing.back.bring_all()
    assert found.files == 3
    other = losing.trees[0].path
    assert {each: (other / each).read_bytes() for each in losing.files} == losing.contents


def test_a_node_that_lies_or_is_away_is_passed_over(losing: Losing):
    physical = losing.files[0]
    (losing.data / physical).unlink()
    losing.wrong[losing.nodes[0].host] = b"\0" * 100_000
    assert losing.back.bring(losing.row(physical))
    assert (losing.data / physical).read_bytes() == losing.contents[physical]
    (losing.data / physical).unlink()
    losing.wrong[losing.nodes[0].host], losing.asked = b"\0", 0  # in crumbs
    assert losing.back.bring(losing.row(physical))
    assert losing.asked == 2
    (losing.data / physical).unlink()
    losing.nodes[1].stop()
    assert not losing.back.bring(losing.row(physical))
    assert not (losing.data / physical).exists()
    assert list((losing.data / ".fetching").iterdir()) == []


def test_what_was_deleted_meanwhile_does_not_come_back(losing: Losing):
    physical = losing.files[0]
    row = losing.row(physical)
    (losing.data / physical).unlink()
    losing.centre.engine.commit([records.FileDeleted(physical, "operator")])
    with pytest.raises(NotFoundError):
        losing.back.bring(row)
    assert not (losing.data / physical).exists()


def test_what_comes_back_has_its_name_on_the_disk(losing: Losing, monkeypatch: pytest.MonkeyPatch):
    physical = losing.files[0]
    (losing.data / physical).unlink()
    seen: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)

    def hook(name: str) -> None:
        if name == "copies.back_named":
            seen.clear()

    with crash.arm(hook):
        losing.back.bring(losing.row(physical))
    assert str((losing.data / physical).parent) in seen


def test_files_are_there_while_they_are_worked_on(losing: Losing):
    rows = [losing.row(each) for each in losing.files]
    for each in losing.files:
        (losing.data / each).unlink()
    source = NodeSource(losing.centre.engine, losing.back)
    fetcher = FileFetcher(losing.centre.engine, [source], lambda: losing.trees, DiskCache(None))
    with fetcher.pinned(rows):
        assert all((losing.data / each).exists() for each in losing.files)


def test_a_node_that_does_not_come_to_an_end_with_a_file_keeps_nobody_from_others(
    losing: Losing, monkeypatch: pytest.MonkeyPatch
):
    slow, other = losing.files[:2]
    for each in (slow, other):
        (losing.data / each).unlink()
    asked, go_on = threading.Event(), threading.Event()
    real = losing.content

    def content(url: str, query: dict) -> bytes:
        if query["path"] == slow and not asked.is_set():
            asked.set()
            assert go_on.wait(60)
        return real(url, query)

    monkeypatch.setattr(losing, "content", content)
    came: list[bool] = []

    def bring(physical: str) -> threading.Thread:
        row = losing.row(physical)
        thread = threading.Thread(target=lambda: came.append(losing.back.bring(row)), daemon=True)
        thread.start()
        return thread

    first = bring(slow)
    assert asked.wait(60)
    second = bring(slow)  # waits for the first, and finds it
    third = bring(other)
    third.join(60)
    assert came == [True]
    assert not (losing.data / slow).exists()
    go_on.set()
    for each in (first, second, third):
        each.join(60)
    assert came == [True] * 3
    assert {each: (losing.data / each).read_bytes() for each in losing.files} == losing.contents


def test_a_node_that_lacks_a_file_is_passed_over(losing: Losing, monkeypatch: pytest.MonkeyPatch):
    physical = losing.files[0]
    (losing.data / physical).unlink()
    places = losing.places(physical)
    [tablet] = {each.tablet for each in places}
    (losing.nodes[0].paths[0] / "tablets" / tablet / physical).unlink()
    assert places[0].url.endswith(losing.nodes[0].host)
    assert losing.back.bring(losing.row(physical))
    assert (losing.data / physical).read_bytes() == losing.contents[physical]


def test_a_damaged_file_is_mended_by_a_node_that_has_it_whole(losing: Losing):
    physical = losing.files[0]
    good = losing.contents[physical]
    row = losing.row(physical)
    for bad in (good[:-1] + b"?", good[:-1], good + b"?", b""):
        (losing.data / physical).write_bytes(bad)
        losing.wrong[losing.nodes[0].host] = bad
        assert losing.back.mend(row)
        assert (losing.data / physical).read_bytes() == good
    (losing.data / physical).unlink()
    assert losing.back.mend(row)
    assert (losing.data / physical).read_bytes() == good


def test_what_is_whole_is_not_fetched_and_what_no_node_gives_stays_as_it_is(losing: Losing):
    physical = losing.files[0]
    row = losing.row(physical)
    for each in losing.nodes:
        each.stop()
    assert losing.back.mend(row)
    (losing.data / physical).write_bytes(b"damaged")
    assert not losing.back.mend(row)
    assert (losing.data / physical).read_bytes() == b"damaged"


def test_a_file_is_mended_in_the_directory_where_it_is_found(losing: Losing):
    physical = losing.files[0]
    other = losing.trees[1].path / physical
    other.parent.mkdir(parents=True)
    (losing.data / physical).rename(other)
    other.write_bytes(b"damaged")
    assert losing.back.mend(losing.row(physical))
    assert other.read_bytes() == losing.contents[physical]
    assert not (losing.data / physical).exists()


@pytest.mark.parametrize(
    "error", [NoSpaceError("full"), ReadOnlyDiskError("read-only"), DiskError("it fails")]
)
def test_a_disk_here_that_takes_nothing_is_no_word_of_a_node(
    losing: Losing, monkeypatch: pytest.MonkeyPatch, error: TsferryError
):
    """Else a node was said not to have what it has, and the file to be lost."""
    physical = losing.files[0]
    (losing.data / physical).unlink()

    def create(tree: Tree, rel: str) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "create", create)
        with pytest.raises(type(error)):
            losing.back.bring(losing.row(physical))
        found = losing.back.bring_all()
    assert found.failed == [(physical, str(error))]
    assert losing.back.bring(losing.row(physical))


@pytest.mark.parametrize(
    "error", [NoSpaceError("full"), ReadOnlyDiskError("read-only"), DiskError("it fails")]
)
def test_a_node_whose_disk_fails_is_passed_over(
    losing: Losing, monkeypatch: pytest.MonkeyPatch, error: TsferryError
):
    physical = losing.files[0]
    (losing.data / physical).unlink()
    given = losing.content

    def content(url: str, query: dict) -> bytes:
        if url.endswith(losing.nodes[0].host):
            raise error
        return given(url, query)

    monkeypatch.setattr(losing, "content", content)
    assert losing.places(physical)[0].url.endswith(losing.nodes[0].host)
    assert losing.back.bring(losing.row(physical))
    assert (losing.data / physical).read_bytes() == losing.contents[physical]
