from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from common.names import FilePath
from sender.config import StorageGroupFilter
from sender.select.found import Why
from sender.select.scan import Scanner
from tests.support.real_tsfiles import real_file
from tests.support.site import WEEK, Site, path, tsfile
from tests.support.tsfile_bytes import resource, vstr

P = path()
CLOSED_SIGNS = [
    ".modification",
    ".compaction.mods",
    ".compaction.mods2",
    ".merge",
    ".settle",
    ".resource.temp",
]


@pytest.fixture
def edge(tmp_path):
    return Site(tmp_path)


def only_waiting(scan):
    (waiting,) = scan.waiting
    return waiting


def test_a_closed_file_may_be_sent_with_its_resource(edge):
    where = edge.put(P)
    scan = edge.scan()
    file = scan.files[P]
    stat = where.stat()
    assert file.identity == (stat.st_size, stat.st_mtime_ns, stat.st_ino)
    assert file.rel == P.text
    assert file.resource is not None
    assert file.resource.size == len(b"resource of 1-1-0.tsfile")
    assert scan.waiting == ()


def test_unsequence_and_several_partitions_and_groups_are_found(edge):
    wanted = {
        FilePath.parse(f"{kind}/{sg}/{vsg}/{partition}/{name}")
        for kind in ("sequence", "unsequence")
        for sg in ("root.a", "root.b_c d", "root.ähre")
        for vsg in ("0", "1")
        for partition in ("0", "2800", "-3")
        for name in ("1-1-0.tsfile", "2-1-0-0.tsfile")
    }
    for each in wanted:
        edge.put(each)
    assert set(edge.scan().files) == wanted


def test_only_sequence_and_unsequence_are_looked_at(edge):
    edge.put(P)
    edge.put("backup/root.a/0/0/1-1-0.tsfile")
    edge.put("sync-sender/h_1/snapshot/sequence/root.a/0/0/9-1-0.tsfile")
    assert set(edge.scan().files) == {P}


@pytest.mark.parametrize("sign", CLOSED_SIGNS)
def test_a_file_that_is_being_changed_waits_and_is_not_gone(edge, sign):
    where = edge.put(P)
    edge.beside(where, sign).write_bytes(b"")
    scan = edge.scan()
    waiting = only_waiting(scan)
    assert waiting.why is Why.CHANGING
    assert f"1-1-0.tsfile{sign}" in waiting.reason
    assert scan.files == {}
    assert not scan.is_gone(P, edge.data_dirs[0])
    edge.beside(where, sign).unlink()
    assert set(edge.scan().files) == {P}


@pytest.mark.parametrize("form", ["mods", "mods2"])
def test_a_file_with_deletions_is_sent_with_them_unless_it_is_to_wait(tmp_path, form):
    for mode in ("apply", "keep"):
        edge = Site(tmp_path / mode, deletion_files=mode)
        where = edge.put(P)
        edge.beside(where, f".{form}").write_bytes(b"x")
        scan = edge.scan()
        assert set(scan.files) == {P}
        (found,) = scan.deletions
        assert (found.path, found.form, found.rel) == (P, form, f"{P.text}.{form}")
    edge = Site(tmp_path / "wait", deletion_files="wait")
    where = edge.put(P)
    edge.beside(where, f".{form}").write_bytes(b"x")
    scan = edge.scan()
    assert only_waiting(scan).why is Why.CHANGING
    assert scan.deletions == ()


def test_deletions_of_an_open_file_are_noted(edge):
    where = edge.put(P, resource=False)
    edge.beside(where, ".mods").write_bytes(b"x")
    scan = edge.scan()
    assert scan.files == {}
    assert [each.path for each in scan.deletions] == [P]


def shared(edge, *resources: tuple[FilePath, str | None, int], records: int = 3):
    """A shared deletion file, and files whose resources name a file from some byte on."""
    for at, name, begin in resources:
        where = edge.put(at)
        edge.beside(where, ".resource").write_bytes(
            resource({"root.a.d1": (1, 100)}, name and f"/old/place/{name}", begin)
        )
    (where.parent / "0-1.mods2").write_bytes(b"".join(map(record, range(records))))


def record(time: int) -> bytes:
    return b"\x01" + struct.pack(">qq", time, time) + vstr("root.a.d1.s1")


def test_a_shared_deletion_file_concerns_those_whose_resource_names_it(edge):
    size = len(record(0))
    named, other = P, path("2-2-0.tsfile")
    shared(edge, (named, "0-1.mods2", size), (other, None, 0))
    scan = edge.scan()
    assert set(scan.files) == {named, other}
    (found,) = scan.deletions
    assert (found.path, found.form, found.rel) == (named, "mods2", "")
    assert found.shared == (f"{named.directory}/0-1.mods2", size)
    with edge.place(named).with_name("0-1.mods2").open("ab") as file:
        file.write(record(4))
    (more,) = edge.scan().deletions
    assert more.identity != found.identity


def test_where_deletions_are_to_wait_shared_ones_make_only_theirs_wait(tmp_path):
    edge = Site(tmp_path, deletion_files="wait")
    other = path("2-2-0.tsfile")
    shared(edge, (P, "0-1.mods2", 0), (other, None, 0))
    scan = edge.scan()
    assert set(scan.files) == {other}
    assert "0-1.mods2 has deletions of it" in only_waiting(scan).reason


@pytest.mark.parametrize(
    ("name", "begin", "reason"),
    [
        ("0-2.mods2", 0, "names 0-2.mods2, which is not beside it"),
        ("0-1.mods2", 10_000, "from byte 10000 on"),
        ("0-1.mods2", -1, "from byte -1 on"),
    ],
)
def test_a_file_whose_shared_deletions_cannot_be_told_waits(edge, name, begin, reason):
    shared(edge, (P, name, begin))
    scan = edge.scan()
    assert reason in only_waiting(scan).reason
    assert only_waiting(scan).why is Why.CHANGING
    assert P in scan.others


def test_an_unreadable_resource_beside_shared_deletions_makes_its_file_wait(edge):
    where = edge.put(P)
    other = edge.put(path(partition=1))
    (where.parent / "0-1.mods2").write_bytes(b"")
    scan = edge.scan()
    assert "does not tell whether 0-1.mods2 concerns it" in only_waiting(scan).reason
    assert set(scan.files) == {path(partition=1)}
    assert other.exists()


def test_a_file_without_a_resource_waits_and_is_never_given_up(edge):
    where = edge.put(P, resource=False)
    for _ in range(20):
        edge.now += 3600
        scan = edge.scan()
        assert only_waiting(scan).why is Why.OPEN
        assert not scan.is_gone(P, edge.data_dirs[0])
    edge.beside(where, ".resource").write_bytes(b"")
    assert set(edge.scan().files) == {P}


def test_a_lost_resource_does_not_make_a_listed_file_gone(edge):
    where = edge.put(P)
    ledger = edge.load_all()
    edge.beside(where, ".resource").unlink()
    scan = edge.scan(ledger.entries)
    assert not scan.is_gone(P, edge.data_dirs[0])
    plan = edge.plan(ledger, propagate="all")
    assert plan.tasks == ()
    assert plan.held == ()


@pytest.mark.parametrize("cut", [0, 1, 5, 6, 7, 13, -1, -6, -10])
def test_an_unclosed_file_is_never_shipped(edge, cut):
    whole = tsfile()
    edge.put(P, whole[:cut] if cut else b"")
    scan = edge.scan()
    waiting = only_waiting(scan)
    assert waiting.why is Why.OPEN
    assert waiting.group == P.group
    edge.put(P, whole)
    assert set(edge.scan().files) == {P}


@pytest.mark.parametrize("name", ["legacy_v0.3.0.tsfile", "legacy_v0.7.0.tsfile"])
def test_a_legacy_file_waits_with_its_reason(edge, name):
    edge.put(P, real_file(name))
    waiting = only_waiting(edge.scan())
    assert waiting.why is Why.UNREADABLE
    assert "legacy" in waiting.reason


def test_a_file_of_the_second_version_waits_with_its_reason(edge):
    edge.put(P, b"TsFile000002" + bytes(200) + b"TsFile")
    assert "legacy" in only_waiting(edge.scan()).reason


def test_what_is_no_tsfile_waits_with_its_reason_and_the_rest_goes_on(edge):
    edge.put(P, b"#!/bin/sh\necho hello\n")
    edge.put(path("2-1-0.tsfile"))
    scan = edge.scan()
    assert only_waiting(scan).why is Why.UNREADABLE
    assert "not_a_tsfile" in only_waiting(scan).reason
    assert set(scan.files) == {path("2-1-0.tsfile")}


def test_a_symlink_is_not_followed(edge, tmp_path):
    elsewhere = tmp_path / "elsewhere.tsfile"
    elsewhere.write_bytes(tsfile())
    where = edge.put(P)
    where.unlink()
    where.symlink_to(elsewhere)
    scan = edge.scan()
    assert "symlink" in only_waiting(scan).reason
    assert not scan.is_gone(P, edge.data_dirs[0])


def test_a_fifo_does_not_hold_up_the_scan(edge):
    where = edge.put(P)
    where.unlink()
    os.mkfifo(where)
    assert "no regular file" in only_waiting(edge.scan()).reason


def test_a_symlinked_directory_is_said_not_followed(edge, tmp_path):
    real = tmp_path / "big-disk"
    real.mkdir()
    (edge.data_dirs[0] / "sequence").mkdir()
    (edge.data_dirs[0] / "sequence" / "root.a").symlink_to(real)
    (away,) = edge.scan().unreadable
    assert (away.rel, "symlink" in away.reason) == ("sequence/root.a", True)


@pytest.mark.parametrize(
    "rel",
    [
        "sequence/root.a/0/0/bad\nname.tsfile",
        "sequence/root.a/0/0/\x1b[31m.tsfile",
        "sequence/root.a/0/0/.hidden.tsfile",
        "sequence/root.a/0/zero/1-1-0.tsfile",
        "sequence/root.a/0/007/1-1-0.tsfile",
        "sequence/root\u202e.a/0/0/1-1-0.tsfile",
        "sequence/root.a/1-1-0.tsfile",
        "sequence/root.a/0/1-1-0.tsfile",
        "sequence/root.a/0/0/" + "x" * 210 + ".tsfile",
    ],
)
def test_a_name_that_cannot_travel_waits_with_its_reason(edge, rel):
    edge.put(rel, resource=len(rel) < 200)
    edge.put(P)
    scan = edge.scan()
    assert only_waiting(scan).why is Why.REFUSED
    assert set(scan.files) == {P}


def test_a_name_that_is_no_utf8_waits(edge):
    where = edge.put(P)
    bad = os.fsencode(where.parent) + b"/\xff\xfe.tsfile"
    Path(os.fsdecode(bad)).write_bytes(tsfile())
    scan = edge.scan()
    assert only_waiting(scan).why is Why.REFUSED
    assert set(scan.files) == {P}


def test_a_narrowed_filter_makes_nothing_gone(edge, tmp_path):
    edge.put(P)
    edge.put(path(sg="root.b"))
    ledger = edge.load_all()
    narrowed = edge.config.__class__(
        **{
            **{name: getattr(edge.config, name) for name in edge.config.__struct_fields__},
            "storage_groups": StorageGroupFilter(include=("root.b",)),
        }
    )
    scan = Scanner(narrowed, clock=lambda: edge.now).scan(edge.dirs, [ledger.entries])
    assert set(scan.files) == {path(sg="root.b")}
    assert only_waiting(scan).why is Why.FILTERED
    assert not scan.is_gone(P, edge.data_dirs[0])
    assert scan.blocked() == {}
    edge.remove(P)  # and what one does not look at cannot be seen to go
    scan = Scanner(narrowed, clock=lambda: edge.now).scan(edge.dirs, [ledger.entries])
    assert not scan.is_gone(P, edge.data_dirs[0])


def test_an_unmounted_directory_makes_nothing_gone(tmp_path):
    edge = Site(tmp_path, dirs=2)
    edge.put(P, data_dir=0)
    edge.put(path("2-1-0.tsfile"), data_dir=1)
    ledger = edge.load_all()
    assert len(ledger.entries) == 2
    for each in sorted(edge.data_dirs[1].rglob("*"), reverse=True):  # an empty mount point
        each.rmdir() if each.is_dir() else each.unlink()
    edge.reopen()
    scan = edge.scan(ledger.entries)
    assert set(scan.files) == {P}
    assert [each.data_dir for each in scan.unmounted] == [edge.data_dirs[1]]
    assert not scan.is_gone(path("2-1-0.tsfile"), edge.data_dirs[1])
    assert edge.plan(edge.ledger(), propagate="all").tasks == ()


def test_a_missing_sequence_directory_is_a_missing_mount(edge):
    edge.put(P)
    ledger = edge.load_all()
    (edge.data_dirs[0] / "sequence").rename(edge.root / "taken-away")
    scan = edge.scan(ledger.entries)
    (away,) = scan.unreadable
    assert away.rel == "sequence"
    assert "mkdir" in away.reason  # of a box that was replaced, where nothing writes yet
    assert not scan.is_gone(P, edge.data_dirs[0])


def test_a_directory_that_cannot_be_listed_makes_nothing_gone(edge, monkeypatch):
    edge.put(P)
    edge.put(path(sg="root.b"))
    ledger = edge.load_all()
    real = os.scandir

    def broken(fd):
        if os.readlink(f"/proc/self/fd/{fd}").endswith("root.a"):
            raise OSError(5, "Input/output error")
        return real(fd)

    monkeypatch.setattr(os, "scandir", broken)
    scan = edge.scan(ledger.entries)
    assert [(each.rel, each.reason) for each in scan.unreadable] == [
        ("sequence/root.a", "Input/output error")
    ]
    assert set(scan.files) == {path(sg="root.b")}
    assert not scan.is_gone(P, edge.data_dirs[0])


def test_a_deleted_file_is_gone(edge):
    edge.put(P)
    ledger = edge.load_all()
    edge.remove(P)
    assert edge.scan(ledger.entries).is_gone(P, edge.data_dirs[0])


def test_the_same_file_in_two_directories_is_one_file(tmp_path):
    edge = Site(tmp_path, dirs=2)
    edge.put(P, data_dir=0)
    edge.put(P, data_dir=1)
    scan = edge.scan()
    assert set(scan.files) == {P}
    assert scan.files[P].data_dir == edge.data_dirs[0]
    assert scan.clashes == ()


@pytest.mark.parametrize("value", [7, 10**30])
def test_one_path_with_two_contents_is_shown_and_neither_is_sent(tmp_path, value):
    edge = Site(tmp_path, dirs=2)
    edge.put(P, tsfile(value=1), data_dir=0)
    other = tsfile(value=value) if value == 7 else tsfile(device="root.a.longer.name", value=1)
    edge.put(P, other, data_dir=1)
    scan = edge.scan()
    assert scan.files == {}
    (clash,) = scan.clashes
    assert clash.path == P
    for each in edge.data_dirs:
        assert str(each) in clash.reason
        assert not scan.is_gone(P, each)
    assert P.group in scan.blocked()
    edge.remove(P, data_dir=1)
    assert set(edge.scan().files) == {P}


def test_a_copy_under_way_to_another_tier_does_not_hide_the_file(tmp_path):
    edge = Site(tmp_path, dirs=2)
    edge.put(P, data_dir=0)
    edge.put(P, tsfile()[:40], data_dir=1, resource=False)
    scan = edge.scan()
    assert scan.files[P].data_dir == edge.data_dirs[0]
    assert only_waiting(scan).data_dir == edge.data_dirs[1]


def test_a_directory_that_changes_during_the_scan_is_noticed(edge, monkeypatch):
    edge.put(P)
    late = FilePath.parse("unsequence/root.a/0/0/2-1-0.tsfile")
    edge.put(late)
    real = os.listdir

    def listdir(fd):
        names = real(fd)
        if os.readlink(f"/proc/self/fd/{fd}").endswith("/unsequence/root.a/0/0"):
            edge.put(path("1-1-1.tsfile"))  # a compaction ends in the directory listed before
        return names

    monkeypatch.setattr(os, "listdir", listdir)
    scan = edge.scan()
    assert P.group in scan.changing
    assert P.group in scan.blocked()


@pytest.mark.parametrize("name", ["1-1-1.inner", "1-1-0-1.cross", "1.compaction.log", "merge.log"])
def test_a_running_compaction_keeps_its_partition_from_deletions(edge, name):
    where = edge.put(P)
    (where.parent / name).write_bytes(b"")
    scan = edge.scan()
    assert set(scan.files) == {P}
    assert name in scan.blocked()[P.group]


# -- closed_by = "tail" ----------------------------------------------------------------------------


def test_by_tail_a_file_counts_after_it_has_rested(tmp_path):
    edge = Site(tmp_path, closed_by="tail", quiet_seconds=10.0)
    edge.put(P, resource=False, age=3)
    assert "less than 10 s ago" in only_waiting(edge.scan()).reason
    edge.now += 7
    assert set(edge.scan().files) == {P}


def test_by_tail_an_incomplete_file_is_never_sent_however_long_it_rests(tmp_path):
    edge = Site(tmp_path, closed_by="tail", quiet_seconds=10.0)
    edge.put(P, tsfile()[:-1], resource=False, age=10**7)
    for _ in range(12):
        edge.now += 10**6
        assert only_waiting(edge.scan()).why is Why.OPEN


def test_by_tail_a_file_from_the_future_is_sent_once_it_was_seen_at_rest(tmp_path):
    edge = Site(tmp_path, closed_by="tail", quiet_seconds=10.0)
    edge.put(P, resource=False, age=-86400)
    assert edge.scan().files == {}
    edge.now += 9
    assert edge.scan().files == {}
    edge.now += 1
    assert set(edge.scan().files) == {P}


def test_by_tail_a_scan_says_when_the_first_file_will_have_rested(tmp_path):
    edge = Site(tmp_path, closed_by="tail", quiet_seconds=10.0)
    assert edge.scan().rests_in is None
    edge.put(P, resource=False, age=3)
    edge.put(path("2-1-0.tsfile"), resource=False, age=-86400)
    assert edge.scan().rests_in == pytest.approx(7, abs=0.01)
    edge.now += 7
    assert edge.scan().rests_in == pytest.approx(3, abs=0.01)
    edge.now += 3
    assert edge.scan().rests_in is None
    edge.put(P, tsfile()[:-1], resource=False, age=3)
    assert edge.scan().rests_in is None, "no rest makes it whole"


# -- flat ------------------------------------------------------------------------------------------


@pytest.fixture
def flat(tmp_path):
    return Site(tmp_path, layout="flat", storage_group="root.a", closed_by="tail")


def flat_path(name="x.tsfile", partition=0):
    return FilePath.parse(f"sequence/root.a/0/{partition}/{name}")


@pytest.mark.parametrize(
    ("first", "partition"),
    [(0, 0), (WEEK - 1, 0), (WEEK, 1), (-1, -1), (-WEEK, -1), (-WEEK - 1, -2)],
)
def test_a_flat_files_partition_comes_from_its_first_time(flat, first, partition):
    flat.put("x.tsfile", tsfile(first, first + 10), resource=False)
    (file,) = flat.scan().files.values()
    assert file.path == flat_path(partition=partition)
    assert file.rel == "x.tsfile"


@pytest.mark.parametrize(("unit", "factor"), [("us", 1000), ("ns", 10**6)])
def test_a_flat_files_partition_knows_the_time_unit(tmp_path, unit, factor):
    edge = Site(tmp_path, layout="flat", storage_group="root.a", closed_by="tail", time_unit=unit)
    edge.put("x.tsfile", tsfile(5 * WEEK * factor, 5 * WEEK * factor + 1), resource=False)
    assert set(edge.scan().files) == {flat_path(partition=5)}


def test_a_flat_directory_is_not_searched_deeper(flat):
    flat.put("x.tsfile", resource=False)
    flat.put("deeper/y.tsfile", resource=False)
    assert set(flat.scan().files) == {flat_path()}


def test_a_flat_file_that_only_waits_is_not_gone(flat):
    where = flat.put("x.tsfile", tsfile(WEEK, WEEK + 1), resource=False)
    ledger = flat.load_all()
    assert set(ledger.entries) == {flat_path(partition=1)}
    flat.beside(where, ".mods").write_bytes(b"")
    scan = flat.scan(ledger.entries)
    assert scan.files == {}
    assert not scan.is_gone(flat_path(partition=1), flat.data_dirs[0])
    flat.put("x.tsfile", b"", resource=False)
    assert not flat.scan(ledger.entries).is_gone(flat_path(partition=1), flat.data_dirs[0])
    flat.remove("x.tsfile")
    flat.beside(where, ".mods").unlink()
    assert flat.scan(ledger.entries).is_gone(flat_path(partition=1), flat.data_dirs[0])


def test_a_flat_file_that_moved_to_another_partition_is_gone_from_the_old_one(flat):
    flat.put("x.tsfile", tsfile(1, 5), resource=False)
    ledger = flat.load_all()
    flat.put("x.tsfile", tsfile(WEEK, WEEK + 5), resource=False)
    scan = flat.scan(ledger.entries)
    assert set(scan.files) == {flat_path(partition=1)}
    assert scan.is_gone(flat_path(partition=0), flat.data_dirs[0])


def test_a_flat_file_with_a_broken_index_waits(flat):
    content = bytearray(tsfile())
    content[len(content) // 2 : -30] = b"\xff" * (len(content) - 30 - len(content) // 2)
    flat.put("x.tsfile", bytes(content), resource=False)
    waiting = only_waiting(flat.scan())
    assert waiting.why is Why.UNREADABLE
    assert "corrupt" in waiting.reason


# -- cost ------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    import sender.select.file_verdicts

    seen = []
    real = sender.select.file_verdicts.open_regular

    def counted(fd, name):
        seen.append(name)
        return real(fd, name)

    monkeypatch.setattr(sender.select.file_verdicts, "open_regular", counted)
    return seen


def test_an_unchanged_file_is_read_once(edge, reads):
    edge.put(P)
    edge.scan()
    edge.scan()
    assert reads == ["1-1-0.tsfile"]
    edge.put(P, tsfile(value=9))
    edge.scan()
    assert reads == ["1-1-0.tsfile"] * 2


def test_a_listed_file_is_not_read_even_after_a_restart(edge, reads):
    edge.put(P)
    ledger = edge.load_all()
    reads.clear()
    scan = Scanner(edge.config, clock=lambda: edge.now).scan(edge.dirs, [ledger.entries])
    assert set(scan.files) == {P}
    assert reads == []


def test_a_verdict_on_a_file_that_just_changed_is_not_kept(edge, reads):
    edge.put(P, tsfile()[:-1], age=0.5)
    edge.scan()
    edge.scan()
    assert len(reads) == 2


@pytest.mark.parametrize("layout", ["iotdb", "flat"])
def test_what_was_read_of_a_file_is_forgotten_once_it_is_listed(tmp_path, layout):
    edge = Site(tmp_path, layout=layout, storage_group="root.a", closed_by="tail")
    for name in ("1-1-0.tsfile", "2-1-0.tsfile"):
        edge.put(path(name) if layout == "iotdb" else name, resource=False)
    scan = edge.scan()
    first, second = scan.files.values()
    assert len(edge.scanner._cache) == 2
    edge.scanner.forget(scan.files, {first.path: edge.entry(first)})
    assert len(edge.scanner._cache) == 1
    edge.scanner.forget(scan.files, {each.path: edge.entry(each) for each in (first, second)})
    assert len(edge.scanner._cache) == 0


def test_what_is_remembered_of_files_goes_with_them(edge):
    edge.put(P)
    edge.put(path("2-1-0.tsfile"))
    edge.scan()
    edge.remove(P)
    edge.scan()
    assert len(edge.scanner._cache) == 1
