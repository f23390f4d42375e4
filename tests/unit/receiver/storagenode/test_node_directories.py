"""Data directories of a storage node: which are its own, and what a master is told of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from receiver.storagenode.node_directories import NODE_DIRECTORY_MARKER, NodeDirectories

NODE, OTHER = "a" * 32, "b" * 32


def problems(found: NodeDirectories) -> list[str]:
    return [each.problem for each in found.rooms()]


def test_an_empty_directory_becomes_the_nodes_and_is_known_again(tmp_path: Path):
    paths = [tmp_path / "1", tmp_path / "2"]
    paths[0].mkdir()
    (paths[0] / "lost+found").mkdir()
    with NodeDirectories.open(paths, NODE, {}) as found:
        assert problems(found) == ["", ""]
        uuids = found.uuids
        room = found.rooms()[0]
        assert room.capacity > room.free > 0
        assert room.device == paths[0].stat().st_dev
    with NodeDirectories.open(paths, NODE, uuids) as again:
        assert again.uuids == uuids


def test_a_directory_that_holds_something_or_is_anothers_is_away(tmp_path: Path):
    full, other = tmp_path / "full", tmp_path / "other"
    full.mkdir()
    (full / "x").touch()
    NodeDirectories.open([other], OTHER, {}).close()
    with NodeDirectories.open([full, other], NODE, {}) as found:
        assert "holds 'x' and has no marker" in problems(found)[0]
        assert f"names the node {OTHER}" in problems(found)[1]
        assert found.uuids == {}
    assert not (full / NODE_DIRECTORY_MARKER).exists()


def test_an_empty_disk_in_the_place_of_a_known_one_is_no_new_directory(tmp_path: Path):
    path = tmp_path / "1"
    with NodeDirectories.open([path], NODE, {}) as found:
        known = found.uuids
    shutil.rmtree(path)
    with NodeDirectories.open([path], NODE, known) as found:
        assert "is its disk mounted?" in problems(found)[0]
        assert not found.rooms()[0].begun, "nothing was told of what is on it"
    assert not (path / NODE_DIRECTORY_MARKER).exists()


def test_a_disk_that_is_read_only_at_the_start_is_away_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its journals could not be opened, and the node did not start, whatever the others had."""
    paths = [tmp_path / "1", tmp_path / "2"]
    with NodeDirectories.open(paths, NODE, {}) as found:
        known = found.uuids
    real = os.statvfs

    def statvfs(path: str | Path) -> object:
        is_sick = str(path).endswith("/1")
        return SimpleNamespace(f_flag=os.ST_RDONLY) if is_sick else real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", statvfs)
        with NodeDirectories.open(paths, NODE, known) as found:
            first, second = problems(found)
            assert "/1 is read-only: mount it for writing" in first
            assert "start the node anew" in first
            assert second == ""
            assert found.uuids == {str(paths[1]): known[str(paths[1])]}
    with NodeDirectories.open(paths, NODE, known) as found:
        assert problems(found) == ["", ""]


def test_a_disk_in_the_place_of_another_is_away(tmp_path: Path):
    one, two = tmp_path / "1", tmp_path / "2"
    with NodeDirectories.open([one, two], NODE, {}) as found:
        known = found.uuids
    shutil.rmtree(one)
    two.rename(one)
    with NodeDirectories.open([one], NODE, known) as found:
        assert "name it by another path" in problems(found)[0]


def test_a_copy_of_a_directory_is_named_twice(tmp_path: Path):
    one, two = tmp_path / "1", tmp_path / "2"
    NodeDirectories.open([one], NODE, {}).close()
    shutil.copytree(one, two)
    with NodeDirectories.open([one, two], NODE, {}) as found:
        assert problems(found)[0] == ""
        assert "is named twice, or was copied" in problems(found)[1]


def test_a_disk_that_goes_while_the_node_runs_is_away(tmp_path: Path):
    path = tmp_path / "1"
    with NodeDirectories.open([path], NODE, {}) as found:
        path.rename(tmp_path / "gone")
        assert "cannot be read" in problems(found)[0]
        path.mkdir()
        assert "is gone: is its disk mounted?" in problems(found)[0]
        assert found.rooms()[0].begun, "what was told of its files is not certain now"


def test_a_damaged_marker_says_nothing(tmp_path: Path):
    (tmp_path / NODE_DIRECTORY_MARKER).write_bytes(b"\xff" * 100)
    with NodeDirectories.open([tmp_path], NODE, {}) as found:
        assert "it is damaged" in problems(found)[0]
