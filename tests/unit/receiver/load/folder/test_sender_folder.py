from __future__ import annotations

from pathlib import Path

import pytest

from common.durable import Tree
from receiver.load.folder.sender_folder import Folders, folder_name, uuid_of
from tests.support.node_world import A, B


@pytest.mark.parametrize("peer", ["10.0.0.7", "fe80::1%eth0", "unknown", "a_b", "::ffff:10.0.0.7"])
def test_a_folder_is_found_by_its_uuid_whatever_its_label(peer: str) -> None:
    assert uuid_of(folder_name(peer, A)) == A


@pytest.mark.parametrize("name", ["", A, f"_{A}", f"x_{A[:-1]}", f"x_{A}y", "../x", f"a/b_{A}"])
def test_other_names_are_no_folders(name: str) -> None:
    assert uuid_of(name) is None


def test_an_address_that_changes_keeps_the_folder(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        folders = Folders([tree])
        folders.scan({})
        first = folders.make(A, folder_name("10.0.0.7", A), tree)
        assert folders.make(A, folder_name("192.168.1.1", A), tree) is first
        again = Folders([tree])
        assert [each.directory for each in again.scan({})] == [first.directory]
        found = again.find(A)
        assert found is not None
        assert found.directory == first.directory
        assert again.find(B) is None


def test_of_two_folders_of_one_uuid_the_engines_is_taken(tmp_path: Path) -> None:
    for label in ("1.1.1.1", "2.2.2.2"):
        (tmp_path / "sync-receiver" / f"{label}_{A}" / "data").mkdir(parents=True)
    with Tree(tmp_path) as tree:
        (found,) = Folders([tree]).scan({A: f"2.2.2.2_{A}"})
        assert found.directory == f"2.2.2.2_{A}"


def test_half_uploads_and_temporaries_are_swept_and_nothing_else(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        folders = Folders([tree])
        folders.scan({})
        folder = folders.make(A, folder_name("10.0.0.7", A), tree)
        uploads = tmp_path / folder.uploads
        for name in ("1.part", "2.upload", "3.part", "3.upload"):
            (uploads / name).write_bytes(b"x")
        root = tmp_path / folder.root
        (root / ".0123456789abcdef.tmp").write_bytes(b"x")
        (root / "task.json").write_bytes(b"x")
        folder.sweep()
        assert sorted(each.name for each in uploads.iterdir()) == ["3.part", "3.upload"]
        assert (root / "task.json").exists()
        assert not list(root.glob(".*.tmp"))
