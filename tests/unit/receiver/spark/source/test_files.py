"""Files, directories and globs lead to TsFiles; what is on its way or in hiding is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common.errors import UsageError
from receiver.spark.source.files import database_of, kind_of, list_files


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * len(name))


def names(root: Path, *paths: str, kind: str = "all") -> list[str]:
    found = list_files([str(root / each) for each in paths], kind)
    return [os.path.relpath(each.name, root) for each in found]


def test_a_directory_means_all_that_is_loaded_below_it(tmp_path: Path):
    touch(
        tmp_path,
        "sequence/root.a/0/0/1-1-0-0.tsfile",
        "sequence/root.a/0/0/1-1-0-0.tsfile.resource",
        "unsequence/root.a/0/0/2-2-0-0.tsfile",
        "sync-receiver/1.2.3.4_x/data/sequence/root.a/0/0/3-3-0-0.tsfile",
        "sync-sender/h_1/snapshot/sequence/root.a/0/0/1-1-0-0.tsfile",
        ".tsferry/4.tsfile",
        "_temporary/5.tsfile",
        "sequence/.6.tsfile",
    )
    assert names(tmp_path, "") == [
        "sequence/root.a/0/0/1-1-0-0.tsfile",
        "unsequence/root.a/0/0/2-2-0-0.tsfile",
    ]
    assert names(tmp_path, "", kind="unsequence") == ["unsequence/root.a/0/0/2-2-0-0.tsfile"]


def test_files_and_globs_are_taken_once_each(tmp_path: Path):
    touch(tmp_path, "a.tsfile", "b/c.tsfile", "d[1].tsfile", "odd.name")
    assert names(tmp_path, "*.tsfile", "a.tsfile", "b") == [
        "a.tsfile", "b/c.tsfile", "d[1].tsfile",
    ]  # fmt: skip
    assert names(tmp_path, "**/*.tsfile") == ["a.tsfile", "b/c.tsfile", "d[1].tsfile"]
    assert names(tmp_path, "d[1].tsfile") == ["d[1].tsfile"]
    assert names(tmp_path, "odd.name") == ["odd.name"]


def test_a_file_url_is_a_path_and_other_file_systems_are_refused(tmp_path: Path):
    touch(tmp_path, "a b.tsfile")
    (found,) = list_files([f"file://{tmp_path}/a%20b.tsfile"])
    assert found.locations == (str(tmp_path / "a b.tsfile"),)
    assert found.size == len("a b.tsfile")
    with pytest.raises(UsageError, match="expected a path on this machine"):
        list_files(["s3://bucket/a.tsfile"])


def test_a_path_that_leads_to_nothing_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match=r"option path = '.*gone\.tsfile': No such file"):
        list_files([str(tmp_path / "gone.tsfile")])
    with pytest.raises(UsageError, match=r"option path = '.*\*\.tsfile': .* there are none"):
        list_files([str(tmp_path / "*.tsfile")])
    assert list_files([str(tmp_path)]) == []
    os.mkfifo(tmp_path / "fifo.tsfile")
    assert list_files([str(tmp_path)]) == []
    with pytest.raises(UsageError, match="expected a file, it is something else"):
        list_files([str(tmp_path / "fifo.tsfile")])


def test_kind_and_database_are_told_by_the_directories():
    path = "/data/sequence/root.a/0/0/1-1-0-0.tsfile"
    assert (kind_of(path), database_of(path)) == ("sequence", "root.a")
    assert (kind_of("/data/a.tsfile"), database_of("/data/a.tsfile")) == (None, None)
    assert database_of("/sequence/a.tsfile") is None


def test_links_to_directories_are_followed_and_no_file_comes_twice(tmp_path: Path):
    touch(tmp_path, "disk/data/a.tsfile", "here/b.tsfile")
    (tmp_path / "here" / "more").symlink_to(tmp_path / "disk" / "data")
    (tmp_path / "here" / "again").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "data" / "round").symlink_to(tmp_path / "here")
    found = list_files([str(tmp_path / "here")])
    assert sorted(Path(each.name).name for each in found) == ["a.tsfile", "b.tsfile"]


def test_a_name_that_is_not_utf8_is_shown_as_text(tmp_path: Path):
    raw = os.fsencode(tmp_path) + b"/\xff.tsfile"
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
    (found,) = list_files([str(tmp_path)])
    assert found.name == f"{tmp_path}/\\xff.tsfile"
    assert os.fsencode(found.locations[0]) == raw
