"""Files, directories and globs lead to TsFiles; what is on its way or in hiding is none.

The verification and the data source are both asked, through their own doors.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("numba")

from common.errors import UsageError
from receiver.spark.finder import DataFile, database_of, kind_of, list_files
from receiver.spark.source.inferring import list_sources
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.verify import running
from receiver.spark.verify.verify_options import VerifyOptions


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * len(name))


def names(root: Path, *paths: str, kind: str = "all") -> list[str]:
    """What the data source reads; without a kind the verification must see the same."""
    given = [str(root / each) for each in paths]
    options = {"paths": json.dumps(given), "kind": kind}
    found = list_sources(parse_options(options))
    if kind == "all" and found:
        assert verified(given) == found
    return [os.path.relpath(each.name, root) for each in found]


class SeenError(Exception):
    """What came to the verification; nothing is verified here."""


def verified(paths: list[str]) -> list[DataFile]:
    def verify_plain(_: object, files: list[DataFile]) -> None:
        raise SeenError(files)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "verify_plain", verify_plain)
        patch.setattr(running, "_session", lambda *_, **__: nullcontext())
        with pytest.raises(SeenError) as seen:
            running.verify_paths(paths, "ms", VerifyOptions(None, None, False, 1.0, False, False))
    files: list[DataFile] = seen.value.args[0]
    return files


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


LEFT_OUT = (
    "sync-receiver/x/data/sequence/root.a/0/0/3-3-0-0.tsfile",
    "sync-sender/h_1/snapshot/sequence/root.a/0/0/1-1-0-0.tsfile",
    ".tsferry/4.tsfile",
    "_temporary/5.tsfile",
    "sequence/.6.tsfile",
    "sequence/_7.tsfile",
)
SEQUENCE = "sequence/root.a/0/0/1-1-0-0.tsfile"


@pytest.mark.parametrize(
    "pattern", ["*", "**", "**/*", "*/**", "**/*.tsfile", "*/**/*.tsfile", "s*", "[s]*/**/?-*"]
)
def test_a_wildcard_means_no_more_than_a_directory_does(tmp_path: Path, pattern: str):
    touch(tmp_path, SEQUENCE, f"{SEQUENCE}.resource", f"{SEQUENCE}.mods", *LEFT_OUT)
    assert names(tmp_path, pattern) == [SEQUENCE]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        *[(each, each) for each in LEFT_OUT],
        ("sync-sender/h_1/snapshot", LEFT_OUT[1]),
        ("sync-sender", LEFT_OUT[1]),
        ("sync-sender/**/*.tsfile", LEFT_OUT[1]),
        ("*/../sync-sender/*/snapshot", LEFT_OUT[1]),
        ("sync-s*/**/*.tsfile", LEFT_OUT[1]),
        (".t*", LEFT_OUT[2]),
        ("_*/*", LEFT_OUT[3]),
        ("sequence/.*", LEFT_OUT[4]),
        ("*/_7.tsfile", LEFT_OUT[5]),
        (f"{SEQUENCE}.resource", f"{SEQUENCE}.resource"),
        ("**/*.resource", f"{SEQUENCE}.resource"),
    ],
)
def test_what_is_named_is_taken_whatever_it_is_called(tmp_path: Path, path: str, found: str):
    touch(tmp_path, SEQUENCE, f"{SEQUENCE}.resource", *LEFT_OUT)
    assert names(tmp_path, path) == [found]


def test_a_file_that_is_named_twice_or_by_links_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    touch(tmp_path, "data/a.tsfile", "data/b.tsfile")
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "data" / "_c.tsfile").symlink_to("a.tsfile")
    (tmp_path / "data" / "0.tsfile").symlink_to("a.tsfile")
    (tmp_path / "data" / "c.tsfile").symlink_to("b.tsfile")
    assert names(tmp_path, "data", "data/a.tsfile", "link", "link/b.tsfile", "data/../data") == [
        "data/a.tsfile", "data/b.tsfile",
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (found,) = verified(["data/a.tsfile", str(tmp_path / "data/a.tsfile")])
    assert found.locations == (str(tmp_path / "data/a.tsfile"),)


def test_a_link_that_leads_nowhere_is_for_the_reader_to_name(tmp_path: Path):
    """Its disk may be away: passed over in silence, all the rest would count as all."""
    touch(tmp_path, "a.tsfile")
    (tmp_path / "b.tsfile").symlink_to("/nowhere/b.tsfile")
    assert names(tmp_path, "") == ["a.tsfile", "b.tsfile"]
    with pytest.raises(UsageError, match=r"b\.tsfile': No such file"):
        names(tmp_path, "b.tsfile")


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    touch(tmp_path, "a/1.tsfile", "b/2.tsfile")
    real = os.scandir

    def refused(path: str) -> object:
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(UsageError, match=rf"option path = '{tmp_path}': {tmp_path}/b: Permission"):
        list_files([str(tmp_path)])


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
    with pytest.raises(UsageError, match="Invalid IPv6 URL"):
        list_files(["//[/a.tsfile"])


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
    with pytest.raises(UsageError, match=r"--path '.*': expected TsFiles there, there are none"):
        list_files([str(tmp_path)], option="--path", required=True)
    with pytest.raises(UsageError, match="option path = '': expected a directory"):
        list_files([""])


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


def test_braces_in_globs(tmp_path):
    touch(tmp_path, "a/1.tsfile", "b/2.tsfile", "c/3.tsfile", "a/4.other", "{x,y}/5.tsfile")
    assert names(tmp_path, "{a,b}/*") == ["a/1.tsfile", "b/2.tsfile"]
    assert names(tmp_path, "{a,nothing}") == ["a/1.tsfile"]
    assert names(tmp_path, "{a,{b,c}}/[123].tsfile") == ["a/1.tsfile", "b/2.tsfile", "c/3.tsfile"]
    assert names(tmp_path, "{a,a}/*") == ["a/1.tsfile"]
    assert names(tmp_path, "{x,y}/5.tsfile") == ["{x,y}/5.tsfile"]  # what is written out is taken
    with pytest.raises(UsageError, match="there are none"):
        names(tmp_path, "{p,q}/*")


def test_path_glob_filter_is_about_names(tmp_path):
    touch(tmp_path, "a/1-0.tsfile", "a/1-1.tsfile", "b/2-0.tsfile")

    def filtered(pattern):
        options = parse_options({"path": str(tmp_path), "pathGlobFilter": pattern})
        return [os.path.relpath(each.name, tmp_path) for each in list_sources(options)]

    assert filtered("*-0.tsfile") == ["a/1-0.tsfile", "b/2-0.tsfile"]
    assert filtered("{1,3}-*") == ["a/1-0.tsfile", "a/1-1.tsfile"]
    with pytest.raises(UsageError, match="no file has such a name"):
        filtered("*.parquet")


def test_an_empty_directory_is_said_to_be_one(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="expected TsFiles there, there are none"):
        names(tmp_path, "empty")
