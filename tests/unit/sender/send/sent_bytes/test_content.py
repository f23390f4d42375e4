"""A file that changes while it is read is seen: what travels is what was chosen."""

from __future__ import annotations

import os

import pytest

from common import wire
from sender.plan.additions import Addition
from sender.send.sent_bytes import content
from sender.send.sent_bytes.content import Prepared, prepare, small_file, small_resource
from sender.send.sent_bytes.proofs import Proofs
from tests.support.site import Site, path

A = path("1-1-0.tsfile")
LIMITS = wire.Limits(
    max_file_bytes=1 << 20, max_chunk_bytes=1 << 20, max_batch_bytes=1 << 20,
    max_page_items=100, max_page_bytes=1 << 20,
)  # fmt: skip


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    site.put(A)
    return site


def offered(site):
    """The file in the snapshot, ready to be offered, and the snapshot."""
    file, snapshot = site.scan().files[A], site.snapshot()
    (taken,) = snapshot.take([file]).files
    proofs = Proofs(snapshot, LIMITS)
    return prepare(snapshot, taken, Addition(file), None, proofs=proofs), snapshot


def touched(site, name):
    """As a writer through the other name does it, in place; the size stays."""
    where = site.sender_dir() / "snapshot" / name
    os.utime(where, ns=(1, where.stat().st_mtime_ns + 1))


@pytest.mark.parametrize(
    ("made", "name"), [(small_file, A.text), (small_resource, A.resource.text)]
)
def test_a_small_file_that_changes_while_it_is_read_is_not_sent(site, monkeypatch, made, name):
    prepared, snapshot = offered(site)
    file = made(snapshot, prepared)
    assert len(file.read(0, file.size)) == file.size
    assert file.unchanged()
    read = content.OpenFile.read

    def slowly(self, offset, length):
        data = read(self, offset, length)
        touched(site, name)
        return data

    monkeypatch.setattr(content.OpenFile, "read", slowly)
    assert len(file.read(0, file.size)) == file.size
    assert not file.unchanged()


def test_a_file_that_changes_while_its_tail_is_read_is_not_offered(site, monkeypatch):
    assert isinstance(offered(site)[0], Prepared)
    read_tail = content.read_tail

    def slowly(fd):
        tail = read_tail(fd)
        touched(site, A.text)
        return tail

    monkeypatch.setattr(content, "read_tail", slowly)
    found, _ = offered(site)
    assert not isinstance(found, Prepared)
    assert found.changed
