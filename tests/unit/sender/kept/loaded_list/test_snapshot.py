from __future__ import annotations

import errno
import logging
import os

import pytest

from common.digests import md5_of_fd
from common.durable import Tree, temporary_name
from sender.kept.loaded_list.snapshot import still_same
from tests.support.site import ENDPOINT, Site, digest, path, tsfile

A, B = path("1-1-0.tsfile"), path("2-1-0.tsfile")


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def scanned(site, at=A):
    return site.scan().files[at]


def content(snapshot, taken):
    fd = snapshot.open(taken)
    try:
        return md5_of_fd(fd)
    finally:
        os.close(fd)


def test_a_file_and_its_resource_are_held_by_hard_links(site):
    where = site.put(A)
    snapshot = site.snapshot()
    taken = snapshot.take([scanned(site)])
    assert taken.dropped == ()
    (one,) = taken.files
    link = site.sender_dir() / "snapshot" / A.text
    assert link.stat().st_ino == where.stat().st_ino
    assert link.with_name(link.name + ".resource").exists()
    site.remove(A)
    assert content(snapshot, one) == digest(tsfile())
    fd = snapshot.open_resource(one)
    assert os.read(fd, 100) == b"resource of 1-1-0.tsfile"
    os.close(fd)


def test_taking_a_file_twice_is_harmless(site):
    site.put(A)
    file = scanned(site)
    snapshot = site.snapshot()
    assert snapshot.take([file]).files == snapshot.take([file]).files
    assert snapshot.take([file, file]).files == 2 * snapshot.take([file]).files


@pytest.mark.parametrize("change", ["content", "replaced", "deleted", "resource", "symlink"])
def test_a_file_that_changes_between_selection_and_opening_is_dropped(site, change):
    where = site.put(A)
    site.put(B)
    files = list(site.scan().files.values())
    if change == "content":
        with where.open("ab") as out:
            out.write(b"more")
    elif change == "replaced":
        site.put(A, tsfile(value=5))
    elif change == "deleted":
        where.unlink()
    elif change == "resource":
        site.beside(where, ".resource").unlink()
    else:
        where.rename(site.root / "elsewhere")
        where.symlink_to(site.root / "elsewhere")
    snapshot = site.snapshot()
    taken = snapshot.take(files)
    assert [each.path for each in taken.files] == [B]
    assert [each.path for each in taken.dropped] == [A]
    assert not (site.sender_dir() / "snapshot" / A.text).exists()
    assert not (site.sender_dir() / "snapshot" / f"{A.text}.resource").exists()


def test_a_write_into_the_file_is_seen_before_the_last_byte(site):
    where = site.put(A)
    snapshot = site.snapshot()
    (one,) = snapshot.take([scanned(site)]).files
    fd = snapshot.open(one)
    assert still_same(fd, one)
    with where.open("ab") as out:
        out.write(b"x")
    assert not still_same(fd, one)
    os.close(fd)


def test_a_stale_link_of_an_older_content_is_replaced(site):
    site.put(A)
    snapshot = site.snapshot()
    snapshot.take([scanned(site)])
    site.put(A, tsfile(value=5))
    (one,) = snapshot.take([scanned(site)]).files
    assert content(snapshot, one) == digest(tsfile(value=5))


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_links_are_impossible_a_copy_stands_in_with_one_warning(
    site, code, monkeypatch, caplog
):
    def refuse(self, source, target, *, sync=True):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Tree, "link", refuse)
    site.put(A)
    site.put(B)
    snapshot = site.snapshot()
    with caplog.at_level(logging.WARNING):
        taken = snapshot.take(site.scan().files.values())
    assert [each.copied for each in taken.files] == [True, True]
    assert len(caplog.records) == 1
    assert os.strerror(code) in caplog.text
    one = taken.files[0]
    fd = snapshot.open(one)
    assert still_same(fd, one)
    os.close(fd)
    site.remove(A)
    site.remove(B)
    assert content(snapshot, one) == digest(tsfile())


def test_a_copy_of_a_file_that_changes_meanwhile_is_dropped(site, monkeypatch):
    where = site.put(A)

    def refuse(self, source, target, *, sync=True):
        raise OSError(errno.EXDEV, "cross-device")

    real = Tree.copy

    def copy(self, source, target, **more):
        real(self, source, target, **more)
        with where.open("ab") as out:
            out.write(b"x")

    monkeypatch.setattr(Tree, "link", refuse)
    monkeypatch.setattr(Tree, "copy", copy)
    taken = site.snapshot().take([scanned(site)])
    assert taken.files == ()
    assert len(taken.dropped) == 1


def test_a_flat_file_lies_under_its_path(tmp_path):
    site = Site(tmp_path, layout="flat", storage_group="root.a", closed_by="tail")
    site.put("x.tsfile", resource=False)
    (file,) = site.scan().files.values()
    snapshot = site.snapshot()
    (one,) = snapshot.take([file]).files
    assert one.rel == f"sync-sender/{ENDPOINT}/snapshot/sequence/root.a/0/0/x.tsfile"
    assert content(snapshot, one) == digest(tsfile())
    assert one.resource_rel is None


def test_a_last_copy_is_taken_as_it_is_and_never_removed_by_taking(site):
    site.put(A)
    snapshot = site.snapshot()
    snapshot.take([scanned(site)])
    site.remove(A)
    (last,) = snapshot.leftovers()
    (one,) = snapshot.take([last]).files
    assert one.identity == last.identity
    link = site.sender_dir() / "snapshot" / A.text
    with link.open("ab") as out:
        out.write(b"x")
    taken = snapshot.take([last])
    assert taken.files == ()
    assert link.exists()


def test_leftovers_name_every_link_and_sweep_what_is_none(site):
    site.put(A)
    site.put(B)
    snapshot = site.snapshot()
    snapshot.take(site.scan().files.values())
    base = site.sender_dir() / "snapshot" / A.directory
    (base / "9-9-9.tsfile.resource").write_bytes(b"alone")
    (base / temporary_name()).write_bytes(b"half")
    (base / "notes.txt").write_bytes(b"of an operator")
    found = snapshot.leftovers()
    snapshot.sweep()
    assert [each.path for each in found] == [A, B]
    assert all(each.resource is not None for each in found)
    assert sorted(each.name for each in base.iterdir()) == [
        "1-1-0.tsfile",
        "1-1-0.tsfile.resource",
        "2-1-0.tsfile",
        "2-1-0.tsfile.resource",
        "notes.txt",
    ]


def test_dropping_and_pruning_leave_nothing(site):
    site.put(A)
    snapshot = site.snapshot()
    snapshot.take([scanned(site)])
    (link,) = snapshot.leftovers()
    snapshot.drop([link, link])
    snapshot.sweep()
    assert not (site.sender_dir() / "snapshot").exists()
    assert site.place(A).exists()
    snapshot.sweep()
