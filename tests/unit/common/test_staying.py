"""A tree whose directories stay open: what it promises is what the tree promises."""

from __future__ import annotations

import os

import pytest

from common.durable import Tree, staying
from common.errors import NameRefusedError, UnsafePathError
from tests.support.disk import Faults, no_leak


@pytest.fixture
def tree(tmp_path):
    with Tree(tmp_path / "tree", create=True) as tree:
        yield tree


def test_a_directory_is_opened_once_for_all_its_files(tree, monkeypatch):
    tree.make_dirs("a/b")
    faults = Faults(monkeypatch)
    with no_leak(), staying(tree) as here:
        faults.watch("open")
        for number in range(5):
            with here.create(f"a/b/{number}") as file:
                file.write(b"x")
        assert all(here.stat(f"a/b/{number}").st_size == 1 for number in range(5))
    assert len(faults.calls) == 6


def test_no_more_than_a_few_stay_open_and_a_rename_has_both_of_its_own(tree):
    for number in range(40):
        tree.make_dirs(f"from/{number}")
        tree.make_dirs(f"to/{number}")
        tree.write_atomic(f"from/{number}/x", str(number).encode())
    with no_leak(), staying(tree) as here:
        before = len(os.listdir("/proc/self/fd"))
        for number in range(40):
            here.rename(f"from/{number}/x", f"to/{number}/x", sync=False)
            here.link(f"to/{number}/x", f"to/{(number * 7) % 40}/y{number}", sync=False)
        assert len(os.listdir("/proc/self/fd")) <= before + 8
    assert [tree.read(f"to/{number}/x") for number in range(40)] == [
        str(number).encode() for number in range(40)
    ]


def test_the_directories_of_a_rename_stay_whatever_was_used_before(tree):
    tree.make_dirs("to")
    for number in range(8):
        tree.make_dirs(f"{number}")
    tree.write_atomic("0/x", b"x")
    with no_leak(), staying(tree) as here:
        for number in range(8):
            here.exists(f"{number}/x")
        here.rename("0/x", "to/x", sync=False)
    assert tree.read("to/x") == b"x"


@pytest.mark.parametrize(
    "rel", ["a/..", "a/.", "a/", "a//x", "../x", "/x", "a/\0", "a/" + "n" * 256]
)
def test_no_path_leads_out_of_it(tree, rel):
    tree.make_dirs("a")
    tree.write_atomic("a/x", b"x")
    with no_leak(), staying(tree) as here:
        assert here.exists("a/x")
        with pytest.raises(NameRefusedError):
            here.open_read(rel)
        with pytest.raises(NameRefusedError):
            here.create(rel)
        assert here.read("a/x") == b"x"


def test_neither_a_link_nor_what_is_no_file_is_opened(tree, tmp_path):
    (tmp_path / "outside").write_bytes(b"outside")
    tree.make_dirs("a")
    tree.write_atomic("a/x", b"x")
    (tree.path / "a" / "link").symlink_to(tmp_path / "outside")
    (tree.path / "away").symlink_to(tmp_path)
    os.mkfifo(tree.path / "a" / "fifo")
    with no_leak(), staying(tree) as here:
        assert here.read("a/x") == b"x"
        for rel in ("a/link", "a/fifo", "away/outside"):
            with pytest.raises(UnsafePathError):
                here.open_read(rel)
        with pytest.raises(FileExistsError):
            here.create("a/link")
        with pytest.raises(UnsafePathError):
            here.create("away/new")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["outside", "tree"]


def test_a_directory_that_it_removes_is_not_used_any_more(tree):
    tree.make_dirs("a")
    with no_leak(), staying(tree) as here:
        here.create("a/x").close()
        here.unlink("a/x", sync=False)
        assert here.remove_empty("a")
        here.make_dirs("a")
        here.create("a/y").close()
    assert os.listdir(tree.path / "a") == ["y"]


def test_what_it_was_made_of_stays_open(tree):
    with staying(tree) as here:
        here.write_atomic("x", b"1")
    assert tree.read("x") == b"1"
