"""Digests of files that were closed."""

from __future__ import annotations

import hashlib
import os

import pytest

from sender.daemon.digests_ahead import DigestsAhead
from sender.select.found import stat_identity
from sender.select.known_digests import KnownDigests
from tests.support.procs import wait_until

REL = "sequence/root.a/0/0/1-1-0-0.tsfile"


class Noted(KnownDigests):
    def __init__(self):
        super().__init__()
        self.seen = {}

    def note(self, data_dir, rel, identity, md5):
        self.seen[data_dir, rel] = (identity, md5)


@pytest.fixture
def digests():
    return Noted()


@pytest.fixture
def ahead(tmp_path, digests):
    made = DigestsAhead([tmp_path / "other", tmp_path / "data"], 1000, digests)
    made.start()
    yield made
    made.close()


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data" / REL).parent.mkdir(parents=True)
    return tmp_path / "data"


def test_a_large_file_that_was_closed_is_digested(data, ahead, digests):
    file = data / REL
    file.write_bytes(b"x" * 5_000_000)
    ahead.closed(file)
    wait_until(lambda: digests.seen, "the digest")
    expected = (stat_identity(file.stat()), hashlib.md5(file.read_bytes()).hexdigest())
    assert digests.seen == {(data, REL): expected}


def test_small_ones_links_and_strangers_are_left(data, ahead, digests, tmp_path):
    outside = tmp_path / "outside.tsfile"
    outside.write_bytes(b"x" * 2000)
    link, small, last = (data / REL.replace("1-1", each) for each in ("2-2", "3-3", "4-4"))
    link.symlink_to(outside)
    small.write_bytes(b"x" * 999)
    last.write_bytes(b"x" * 1000)
    for each in (link, small, outside, data / "gone.tsfile", last):
        ahead.closed(each)
    wait_until(lambda: digests.seen, "the digest")
    assert [rel for _, rel in digests.seen] == [REL.replace("1-1", "4-4")]


def test_what_changes_under_way_is_not_known(data, ahead, digests, monkeypatch):
    first, last = data / REL, data / REL.replace("1-1", "2-2")
    first.write_bytes(b"x" * 1000)
    last.write_bytes(b"y" * 1000)

    def blocks(fd):
        block = os.pread(fd, 1000, 0)
        yield block
        if block.startswith(b"x"):
            first.write_bytes(b"z" * 1000)

    monkeypatch.setattr("sender.daemon.digests_ahead.read_blocks", blocks)
    ahead.closed(first)
    ahead.closed(last)
    wait_until(lambda: digests.seen, "the digest")
    assert [rel for _, rel in digests.seen] == [REL.replace("1-1", "2-2")]
