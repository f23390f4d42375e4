from __future__ import annotations

import pytest

from common.wire import CatalogueEntry
from sender.kept.loaded_list.ledger import Ledger
from sender.plan.plan import plan
from sender.plan.plan_options import PlanOptions
from sender.select.data_dirs import DataDirs
from sender.select.entry import Entry
from sender.select.found import Why
from sender.select.upstream import Beneath, catalogue_dirs, scan_catalogue
from tests.support.site import ENDPOINT, digest, path, rebuild, tsfile

TAG = "0123456789abcdef"
P = path().physical(TAG)


def an_entry(data_dir, at=P, content=None, **more):
    content = tsfile() if content is None else content
    fields = {
        "path": at.text,
        "original": path().text,
        "sender": "a" * 32,
        "size": len(content),
        "md5": digest(content),
        "data_dir": str(data_dir),
        "commit": 5,
        "first_time": 1,
        "last_time": 100,
    }
    return CatalogueEntry(**(fields | more))


def put(data_dir, at=P, content=None, resource=b""):
    where = data_dir / at.text
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_bytes(tsfile() if content is None else content)
    if resource:
        where.with_name(where.name + ".resource").write_bytes(resource)
    return where


@pytest.fixture
def data_dir(tmp_path):
    where = tmp_path / "receiver" / "data"
    where.mkdir(parents=True)
    return where


def scanned(data_dir, *entries, includes=lambda sg: True, listed=None):
    dirs = DataDirs.unmarked([data_dir])
    return scan_catalogue(entries, dirs, includes, 604_800_000, None, listed)


def test_a_committed_file_may_be_forwarded_without_reading_it(data_dir):
    where = put(data_dir, resource=b"r")
    found = scanned(data_dir, an_entry(data_dir, resource=True))
    file = found.scan.files[P]
    assert file.inode == where.stat().st_ino
    assert file.resource.size == 1
    assert found.facts.md5(file) == digest(tsfile())
    assert found.facts.span(file) == (1, 100)


def test_files_that_the_catalogue_does_not_name_are_not_forwarded(data_dir):
    put(data_dir)
    put(data_dir, path("9-9-9.tsfile"))
    assert set(scanned(data_dir, an_entry(data_dir)).scan.files) == {P}


def test_a_file_is_gone_when_the_catalogue_has_it_no_more(data_dir):
    put(data_dir)  # it may still lie there, until no reader needs it
    scan = scanned(data_dir).scan
    assert scan.is_gone(P, data_dir)


def test_a_listed_file_in_the_object_store_is_as_it_was_and_another_waits(data_dir):
    put(data_dir, resource=b"r")
    entry = an_entry(data_dir, resource=True, stored=True)
    file = scanned(data_dir, entry).scan.files[P]
    listed = {P: Entry.of(file, entry.md5, None, file.resource_mark)}
    (data_dir / P.text).unlink()
    (data_dir / f"{P.text}.resource").unlink()
    found = scanned(data_dir, entry, listed=listed).scan
    assert listed[P].is_of(found.files[P])
    assert found.files[P].resource_mark == file.resource_mark
    assert not found.waiting
    unsure = {P: Entry.unknown(P, data_dir)}
    found = scanned(data_dir, entry, listed=unsure).scan
    assert (not found.files, not found.waiting, found.is_gone(P, data_dir)) == (True, True, False)
    found = scanned(data_dir, entry).scan
    assert "storage fetch" in found.waiting[0].reason
    assert not found.is_gone(P, data_dir)


def test_a_listed_file_in_the_object_store_that_is_told_anew_is_fetched(data_dir):
    put(data_dir)
    entry = an_entry(data_dir, stored=True, first_look=1, closed_look=1, changed=9)
    file = scanned(data_dir, entry).scan.files[P]
    listed = {P: Entry.of(file, entry.md5, None, file.resource_mark)}
    (data_dir / P.text).unlink()
    dirs = DataDirs.unmarked([data_dir])
    for is_told in (False, True):
        beneath = Beneath("e" * 32, listed, lambda *_, told=is_told: told, {})
        found = scan_catalogue([entry], dirs, lambda _: True, 604_800_000, beneath, listed)
        assert [each.path for each in found.remote] == ([] if is_told else [P.text])
        assert P in found.scan.files


def test_a_file_that_is_missing_on_disk_waits_and_is_not_gone(data_dir):
    scan = scanned(data_dir, an_entry(data_dir)).scan
    assert scan.waiting[0].why is Why.UNREADABLE
    assert "fsck" in scan.waiting[0].reason
    assert not scan.is_gone(P, data_dir)


def test_a_file_of_another_size_is_not_forwarded(data_dir):
    put(data_dir, content=b"short")
    scan = scanned(data_dir, an_entry(data_dir)).scan
    assert scan.files == {}
    assert "5 bytes on disk" in scan.waiting[0].reason


def test_what_the_filter_leaves_out_is_not_gone(data_dir):
    put(data_dir)
    scan = scanned(data_dir, an_entry(data_dir), includes=lambda sg: False).scan
    assert scan.files == {}
    assert not scan.is_gone(P, data_dir)


def test_a_directory_that_is_away_makes_nothing_gone(data_dir):
    away = data_dir / "unmounted"
    scan = scan_catalogue(
        [an_entry(away)], DataDirs.unmarked([away]), lambda sg: True, 604_800_000
    ).scan
    assert not scan.is_gone(P, away)
    assert scan.waiting[0].lower_bound == 1


def test_a_path_that_is_none_waits(data_dir):
    entry = an_entry(data_dir, path="../../etc/passwd")
    assert scanned(data_dir, entry).scan.waiting[0].why is Why.REFUSED


def test_lists_of_directories_without_files_are_not_forgotten(tmp_path):
    found = catalogue_dirs([an_entry(tmp_path / "a")], [str(tmp_path / "b")])
    assert found == [tmp_path / "a", tmp_path / "b"]


def test_a_forwarded_file_is_new_then_unchanged_then_gone(data_dir):
    put(data_dir)
    dirs = DataDirs.unmarked([data_dir])
    ledger = Ledger.open(dirs, ENDPOINT)
    rebuild(ledger, (), {})
    found = scanned(data_dir, an_entry(data_dir))
    first = plan(found.scan, ledger.entries, {}, PlanOptions(), found.facts)
    (addition,) = first.tasks[0].additions
    ledger.fold([Entry.of(addition.file, digest(tsfile()), found.facts.span(addition.file))])
    second = plan(found.scan, ledger.entries, {}, PlanOptions(), found.facts)
    assert (second.tasks, second.unchanged) == ((), 1)
    found = scanned(data_dir)
    third = plan(found.scan, Ledger.open(dirs, ENDPOINT).entries, {}, PlanOptions(), found.facts)
    assert [each.path for each in third.tasks[0].deletions] == [P]
