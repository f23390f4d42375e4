from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from common.names import FilePath
from sender.select import known_digests
from sender.select.found import LocalFile
from sender.select.known_digests import KnownDigests

REL = "sequence/root.a/0/0/1-1-0-0.tsfile"
FILE = LocalFile(FilePath.parse(REL), Path("/data"), REL, 10, 20, 30)


def note(digests: KnownDigests, file: LocalFile, md5: str) -> None:
    digests.note(file.data_dir, file.rel, file.identity, md5)


def test_a_digest_counts_while_the_file_is_the_same():
    digests = KnownDigests()
    assert digests.of(FILE) is None
    note(digests, FILE, "a")
    assert digests.of(FILE) == "a"
    for other in ({"size": 11}, {"mtime_ns": 21}, {"inode": 31}, {"rel": "x"}):
        assert digests.of(replace(FILE, **other)) is None
    assert digests.of(replace(FILE, data_dir=Path("/other"))) is None
    digests.forget(FILE)
    assert digests.of(FILE) is None


def test_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(known_digests, "_MOST", 2)
    digests = KnownDigests()
    files = [replace(FILE, rel=str(number)) for number in range(3)]
    for each in (*files[:2], files[0], files[2]):
        note(digests, each, each.rel)
    assert [digests.of(each) for each in files] == ["0", None, "2"]
