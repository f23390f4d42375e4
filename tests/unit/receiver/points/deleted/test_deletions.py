"""Deletions: read, matched and merged as a database does it."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from common.tsfile import Device, DeviceTotals
from common.tsfile.deletion_records import whole_records
from common.tsfile.primitives import Malformed
from receiver.points.deleted.deletion_entries import EVERY_CHUNK, PathPattern, names_of
from receiver.points.deleted.deletion_files import parse_binary, parse_text
from receiver.points.deleted.deletions import DeletionRecords, Deletions, deleted
from receiver.points.errors import DamagedData
from tests.support.expected_rows import FOLDER
from tests.support.tsfile_bytes import build

TOTALS = DeviceTotals(aligned=False, start=None, end=None, rows=0, series_count=0, point_count=0)
REAL = sorted(FOLDER.glob("*/*.mods*"))


def tree(path: str) -> Device:
    return Device(path, (path,), is_table=False, totals=TOTALS, index=b"", runs=())


def table(*segments: str | None) -> Device:
    name = f"{segments[0]}:{'.'.join(tag or 'null' for tag in segments[1:])}"
    return Device(name, segments, is_table=True, totals=TOTALS, index=b"", runs=())


# -- patterns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "device", "measurement", "expected"),
    [
        ("root.a.d.s", "root.a.d", "s", True),
        ("root.a.d.s", "root.a.d", "s1", False),
        ("root.a.d", "root.a.d", "s", False),  # a device alone is no series
        ("root.a.*.s", "root.a.d", "s", True),
        ("root.a.*.s", "root.a.d.e", "s", False),
        ("root.a.**", "root.a.d.e", "s", True),
        ("root.a.**", "root.a", "s", True),
        ("root.a.d.**", "root.a", "d", False),  # at least one node
        ("root.**.s", "root.a.d", "s", True),
        ("root.**.s", "root", "s", False),
        ("root.**.d.*", "root.a.d.d", "d", True),
        ("**", "root.a", "s", True),
        ("root.a.d*.s", "root.a.d17", "s", True),
        ("root.a.*7.s", "root.a.d17", "s", True),
        ("root.a.*1*.s", "root.a.d17", "s", True),
        ("root.a.d*.s", "root.a.e1", "s", False),
        ("root.a.d*d.s", "root.a.dxd", "s", False),  # a star inside is none to the databases
        ("root.a.d*d.s", "root.a.`d*d`", "s", True),
        ("root.a.`*`.s", "root.a.d", "s", False),
        ("root.a.`*`.s", "root.a.`*`", "s", True),
        ("root.a.`b.c`.s", "root.a.`b.c`", "s", True),
        ("root.a.`b.c`.s", "root.a.b.c", "s", False),
        ("root.a.d.`s.1`", "root.a.d", "s.1", True),  # a library writes names bare
        ("root.a.d.`s.1`", "root.a.d", "`s.1`", True),  # a database writes them quoted
        ("root.a.d.`x``y`", "root.a.d", "`x``y`", True),
        ("root.a.d.s", "root.a.d", "", False),  # the time column
        ("root.a.d.s*", "root.a.d", "", False),
        ("root.a.d.*", "root.a.d", "", True),
        ("root.a.**", "root.a.d", "", True),
    ],
)
def test_a_pattern_names_the_series_that_a_database_takes_it_for(
    pattern: str, device: str, measurement: str, expected: bool
) -> None:
    names = names_of(tree(device))
    assert PathPattern(pattern).matches_series(names, measurement) is expected


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    pattern = PathPattern("root." + "**." * 200 + "x" + ".*a*a*a*a*a*a*b" * 3)
    names = names_of(tree("root." + ".".join(["a" * 200] * 300)))
    assert not pattern.matches_series(names, "a" * 5000)


def test_a_deletion_of_a_tree_is_none_of_a_table() -> None:
    deletions = Deletions(parse_text(b"DELETION,**,9,0,9\n", "m").entries)
    assert deletions.ranges(tree("root.a"), "s", chunk=0) == [(0, 9)]
    assert deletions.ranges(table("t", "x"), "s", chunk=0) == []


# -- text ------------------------------------------------------------------------------------------


def test_a_deletion_leaves_chunks_alone_that_were_written_after_it() -> None:
    content = b"DELETION,root.a.s,500,10,20\nDELETION,root.a.s,9223372036854775807,40,50\n"
    deletions = Deletions(parse_text(content, "m").entries)
    assert deletions.ranges(tree("root.a"), "s", chunk=499) == [(10, 20), (40, 50)]
    assert deletions.ranges(tree("root.a"), "s", chunk=500) == [(40, 50)]
    assert deletions.ranges(tree("root.a"), "t", chunk=7) == []


def test_a_path_may_hold_commas() -> None:
    found = parse_text(b"DELETION,root.a.`x,1`.s,7,-5,5\r\n", "m")
    (entry,) = found.entries
    assert (entry.before, entry.start, entry.end) == (7, -5, 5)
    assert entry.series == PathPattern("root.a.`x,1`.s")


def test_the_oldest_form_deletes_all_before() -> None:
    (entry,) = parse_text(b"DELETION,root.a.s,3,500\n", "m").entries
    assert (entry.before, entry.start, entry.end) == (3, -(2**63), 500)


def test_a_torn_last_line_is_dropped_and_said() -> None:
    whole = b"DELETION,root.a.s,9,1,2\n"
    line = b"DELETION,root.a.s,9,30,40"
    for length in range(1, len(line) + 1):  # without its end nobody knows that a line is whole
        found = parse_text(whole + line[:length], "x.mods")
        assert len(found.entries) == 1
        assert str(length) in found.dropped
        assert "x.mods" in found.dropped
    assert not parse_text(whole, "x.mods").dropped


@pytest.mark.parametrize(
    "line",
    [
        b"DELETION",
        b"DELETION,1,2,3",
        b"DELETION,root.a,9,1,x",
        b"DELETION,root.a,9,9223372036854775808,2",
        b"DELETE,root.a,9,1,2",
        b"DELETION,root.\xff,9,1,2",
        b"\x01\x80\0\0\0\0",
    ],
)
def test_a_line_in_the_middle_that_is_no_deletion_is_damage(line: bytes) -> None:
    good = b"DELETION,root.a.s,9,1,2\n"
    with pytest.raises(DamagedData, match=r"x\.mods") as caught:
        parse_text(good + line + b"\n" + good, "x.mods")
    assert caught.value.place.offset == len(good)


# -- binary ----------------------------------------------------------------------------------------


def vstr(text: str | None) -> bytes:
    if text is None:
        return b"\x01"
    raw = text.encode()
    return varint(len(raw)) + raw


def varint(number: int) -> bytes:
    return uvarint(number * 2)


def uvarint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


def times(start: int, end: int) -> bytes:
    return struct.pack(">qq", start, end)


def of_tree(path: str, start: int, end: int) -> bytes:
    return b"\x01" + times(start, end) + vstr(path)


def of_table(name: str, tags: bytes, columns: tuple[str, ...], start: int, end: int) -> bytes:
    listed = varint(len(columns)) + b"".join(map(vstr, columns))
    return b"\x00" + times(start, end) + vstr(name) + tags + listed


ANY = b"\0"


def device(*segments: str | None) -> bytes:
    return uvarint(len(segments)) + b"".join(map(vstr, segments))


def tag(segment: int, value: str | None) -> bytes:
    return b"\x02" + vstr(value) + varint(segment)


@pytest.mark.parametrize(
    ("tags", "segments", "expected"),
    [
        (ANY, ("t", "x"), True),
        (ANY, ("u", "x"), False),
        (tag(1, "x"), ("t", "x", "y"), True),
        (tag(1, "x"), ("t", "y"), False),
        (tag(1, None), ("t", None, "y"), True),
        (tag(2, None), ("t", "x"), True),  # nulls at the end are left out
        (tag(2, None), ("t", "x", "y"), False),
        (b"\x01" + device("t", "x", None), ("t", "x"), True),
        (b"\x01" + device("t", "x"), ("t", "x", "y"), False),
        (b"\x03" + varint(2) + tag(1, "x") + tag(2, "y"), ("t", "x", "y"), True),
        (b"\x03" + varint(2) + tag(1, "x") + tag(2, "y"), ("t", "x", "z"), False),
        (b"\x04" + varint(2) + device("t", "a") + device("t", "b"), ("t", "b"), True),
        (b"\x04" + varint(2) + device("t", "a") + device("t", "b"), ("t", "c"), False),
        (b"\x05" + varint(1), ("t", "x"), True),
        (b"\x05" + varint(2), ("t", "x"), False),
    ],
)
def test_conditions_on_tags(tags: bytes, segments: tuple[str | None, ...], expected: bool) -> None:
    deletions = Deletions(parse_binary(of_table("t", tags, (), 5, 6), "m").entries)
    for measurement in ("temperature", ""):
        found = deletions.ranges(table(*segments), measurement, chunk=99)
        assert found == ([(5, 6)] if expected else [])


def test_a_deletion_of_columns_keeps_the_time() -> None:
    deletions = Deletions(parse_binary(of_table("t", ANY, ("a", "b"), 5, 6), "m").entries)
    assert deletions.ranges(table("t", "x"), "b", chunk=0) == [(5, 6)]
    assert deletions.ranges(table("t", "x"), "c", chunk=0) == []
    assert deletions.ranges(table("t", "x"), "", chunk=0) == []


RECORDS = [
    of_tree("root.a.**", -(2**63), 2**63 - 1),
    of_tree("root.größe.`x y`.s", 1700000000000, 1700000001000),
    of_table("t", ANY, (), 0, 1),
    of_table("t", b"\x03" + varint(2) + tag(1, "x" * 90) + tag(2, None), ("a", "b"), 3, 4),
    of_table("t", b"\x04" + varint(2) + device("t", "a") + device("t", None, "b"), (), 3, 4),
]


@pytest.mark.parametrize("last", RECORDS)
def test_a_torn_last_record_is_dropped_and_said(last: bytes) -> None:
    whole = b"".join(RECORDS)
    assert not parse_binary(whole, "m").dropped
    for length in range(1, len(last)):
        found = parse_binary(whole + last[:length], "x.mods2")
        assert len(found.entries) == len(RECORDS)
        assert f"last {length} bytes" in found.dropped
        assert whole_records(whole + last[:length], "mods2") == len(whole)


def test_a_sender_finds_the_ends_of_records_where_a_reader_does() -> None:
    ends = [len(b"".join(RECORDS[:count])) for count in range(len(RECORDS) + 1)]
    whole = b"".join(RECORDS)
    for length in range(len(whole) + 1):
        expected = max(end for end in ends if end <= length)
        assert whole_records(whole[:length], "mods2") == expected
    assert whole_records(b"DELETION,a,1,2,3\nDELETION,b", "mods") == 17
    with pytest.raises(Malformed):
        whole_records(RECORDS[0] + b"\x07" + bytes(40), "mods2")


@pytest.mark.parametrize(
    "record",
    [
        b"\x02" + times(0, 1) + vstr("root.a"),
        b"\x01" + times(0, 1) + vstr(None),
        b"\x01" + times(0, 1) + b"\x02\xff",
        b"\x01" + times(0, 1) + b"\xfe\xff\xff\xff\x0f" + b"root.a",  # a length of 2 GiB
        b"\x01" + times(0, 1) + b"\xff\xff\xff\xff\xff\x01",
        b"\x00" + times(0, 1) + vstr("t") + b"\x09" + varint(0),
        b"\x00" + times(0, 1) + vstr("t") + b"\x01\x00" + varint(0),
        b"\x00" + times(0, 1) + vstr("t") + ANY + b"\x03",  # -2 columns
        b"\x00" + times(0, 1) + vstr("t") + b"\x03\x02" * 100 + ANY + varint(0),
    ],
)
def test_a_record_in_the_middle_that_is_none_is_damage(record: bytes) -> None:
    content = RECORDS[0] + record + b"".join(RECORDS)
    with pytest.raises(Malformed):
        whole_records(content, "mods2")
    with pytest.raises(DamagedData, match=r"x\.mods2") as caught:
        parse_binary(content, "x.mods2")
    assert caught.value.place.offset is not None
    assert caught.value.place.offset >= len(RECORDS[0])


def test_a_flipped_bit_changes_deletions_but_never_loses_many_without_a_word() -> None:
    whole = b"".join(RECORDS * 2)
    for bit in range(0, 8 * len(whole), 3):
        broken = bytearray(whole)
        broken[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = parse_binary(bytes(broken), "m")
        except DamagedData:
            continue
        assert found.dropped or len(found.entries) >= len(RECORDS)


def test_garbage_ends_in_damage_or_in_deletions_at_both_ends() -> None:
    chance = random.Random(3)
    lines = b"".join(f"DELETION,root.{n},{n},-3,{n}\n".encode() for n in range(5))
    for form, parse, whole in (
        ("mods2", parse_binary, b"".join(RECORDS)),
        ("mods", parse_text, lines),
    ):
        for _ in range(2000):
            broken = bytearray(whole)
            for _ in range(chance.randrange(1, 5)):
                broken[chance.randrange(len(broken))] = chance.choice((0, 1, 2, 3, 127, 128, 255))
            content = bytes(broken[: chance.randrange(len(broken) + 1)])
            try:
                size = whole_records(content, form)
            except Malformed:
                if form == "mods" and b"\0" in content:
                    continue  # a reader goes over it, for what was taken before
                with pytest.raises(DamagedData):
                    parse(content, "m")
                continue
            found = parse(content, "m")
            assert bool(found.dropped) is (size < len(content))
            assert found.entries == parse(content[:size], "m").entries
            Deletions(found.entries).ranges(table("t", "x"), "s", chunk=1)


# -- ranges ----------------------------------------------------------------------------------------


def test_ranges_that_overlap_or_touch_are_one() -> None:
    entries = [
        entry
        for start, end in [(50, 60), (1, 4), (5, 9), (55, 70), (20, 10), (90, 90), (-(2**63), -5)]
        for entry in parse_binary(of_tree("root.a.s", start, end), "m").entries
    ]
    found = Deletions(entries).ranges(tree("root.a"), "s", chunk=0)
    assert found == [(-(2**63), -5), (1, 9), (50, 70), (90, 90)]
    times = np.array([-(2**63), -6, -4, 0, 1, 9, 10, 49, 50, 70, 71, 90, 2**63 - 1], np.int64)
    expected = [any(low <= each <= high for low, high in found) for each in times.tolist()]
    assert deleted(times, found).tolist() == expected
    assert not deleted(times, []).any()


def test_the_whole_of_time_can_be_deleted() -> None:
    entries = parse_binary(of_tree("root.a.s", -(2**63), 2**63 - 1), "m").entries
    found = Deletions([*entries, *entries]).ranges(tree("root.a"), "s", chunk=0)
    assert found == [(-(2**63), 2**63 - 1)]
    assert deleted(np.array([-(2**63), 0, 2**63 - 1], np.int64), found).all()


# -- where they stand ------------------------------------------------------------------------------


def test_a_file_without_deletions_has_none(tmp_path: Path) -> None:
    found = Deletions.beside(tmp_path / "x.tsfile")
    assert not found
    assert found.ranges(tree("root.a"), "s", chunk=0) == []


def test_of_an_old_and_a_new_file_the_new_one_counts(tmp_path: Path) -> None:
    (tmp_path / "x.tsfile.mods").write_bytes(b"DELETION,root.a.s,9,1,2\n")
    assert len(Deletions.beside(tmp_path / "x.tsfile").entries) == 1
    (tmp_path / "x.tsfile.mods2").write_bytes(b"".join(RECORDS) + RECORDS[0][:-2])
    found = Deletions.beside(str(tmp_path / "x.tsfile"))
    assert len(found.entries) == len(RECORDS)
    assert found.files == (str(tmp_path / "x.tsfile.mods2"),)
    assert len(found.dropped) == 1


def resource(shared: str | None, start: int = 0) -> bytes:
    tail = struct.pack(">i", -1)
    if shared is not None:
        tail = struct.pack(">i", len(shared)) + shared.encode() + struct.pack(">q", start)
    one = device("root.a", "d") + struct.pack(">i", 0)
    return b"\x01\x03" + struct.pack(">i", 1) + times(1, 2) + one + times(0, 0) + tail + b"\x00"


def test_a_shared_file_counts_from_the_offset_that_the_resource_names(tmp_path: Path) -> None:
    shared = b"".join(RECORDS)
    (tmp_path / "0-1.mods2").write_bytes(shared)
    name = tmp_path / "x.tsfile.resource"
    for first in range(len(RECORDS) + 1):
        start = len(b"".join(RECORDS[:first]))
        name.write_bytes(resource("/iotdb/data/sequence/root.a/1/0-1.mods2", start))
        found = Deletions.beside(tmp_path / "x.tsfile")
        assert len(found.entries) == len(RECORDS) - first
        assert found.files == (str(tmp_path / "0-1.mods2"),)
    name.write_bytes(resource(None))
    assert not Deletions.beside(tmp_path / "x.tsfile")


@pytest.mark.parametrize(
    ("shared", "start"),
    [("/d/0-2.mods2", 0), ("/d/0-1.mods2", 10**6), ("/d/0-1.mods2", -1), ("/d/..mods2", 0)],
)
def test_a_shared_file_that_is_not_there_is_never_none(
    tmp_path: Path, shared: str, start: int
) -> None:
    (tmp_path / "0-1.mods2").write_bytes(b"".join(RECORDS))
    (tmp_path / "x.tsfile.resource").write_bytes(resource(shared, start))
    with pytest.raises(DamagedData):
        Deletions.beside(tmp_path / "x.tsfile")


# -- the rule of 0.12 ------------------------------------------------------------------------------


def test_a_pattern_that_names_no_device_of_the_file_names_all_below_it(tmp_path: Path) -> None:
    points = {"s": [(1, 1)]}
    tsfile = tmp_path / "x.tsfile"
    tsfile.write_bytes(build({"root.a.d": points, "root.a.b.c": points}, version=3))
    lines = ["root.a.*", "root.a.b", "root.a.d.s", "root.a.d.t"]
    mods = "".join(f"DELETION,{line},999,{at},{at}\n" for at, line in enumerate(lines, 1))
    (tmp_path / "x.tsfile.mods").write_text(mods)
    found = Deletions.beside(tsfile)
    # root.a.* could only be a series of root.a, which is not there, so it is of 0.12
    assert found.ranges(tree("root.a.d"), "s", chunk=0) == [(1, 1), (3, 3)]
    assert found.ranges(tree("root.a.b.c"), "s", chunk=0) == [(1, 2)]
    assert found.ranges(tree("root.e.d"), "s", chunk=0) == []


def test_a_pattern_that_names_a_device_of_the_file_names_nothing_below_it(tmp_path: Path) -> None:
    points = {"s": [(1, 1)]}
    tsfile = tmp_path / "x.tsfile"
    tsfile.write_bytes(build({"root.a": points, "root.a.d": points, "root.a.d.e": points}))
    (tmp_path / "x.tsfile.mods").write_text(
        "DELETION,root.a.*,999,1,1\nDELETION,root.a.d.t,999,3,3\nDELETION,root.a.d.**,999,7,7\n"
    )
    found = Deletions.beside(tsfile)
    assert found.ranges(tree("root.a"), "s", chunk=0) == [(1, 1)]
    assert found.ranges(tree("root.a.d"), "s", chunk=0) == [(7, 7)]
    assert found.ranges(tree("root.a.d.e"), "s", chunk=0) == [(7, 7)]
    assert not any(entry.series.prefix for entry in found.entries)  # type: ignore[union-attr]


def test_a_record_of_2_x_names_nothing_below_it_though_one_of_1_x_stands_beside() -> None:
    """As of an edge that was upgraded between two deletions."""
    own = [
        DeletionRecords("x.mods", "mods", b"DELETION,root.a.*,999,1,1\n"),
        DeletionRecords("x.mods2", "mods2", of_tree("root.a.*", 5, 5)),
    ]
    found = Deletions.noted(own, [], [tree("root.a.d")])
    assert found.ranges(tree("root.a.d"), "s", chunk=0) == [(1, 1)]


def test_deletions_beside_a_broken_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.tsfile").write_bytes(b"no TsFile")
    (tmp_path / "x.tsfile.mods").write_bytes(b"DELETION,root.a.s,9,1,2\n")
    assert len(Deletions.beside(tmp_path / "x.tsfile").entries) == 1


# -- real ones -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_a_database_wrote_is_read_to_its_end(path: Path) -> None:
    tsfile = path.with_name(path.name.rpartition(".")[0])
    found = Deletions.beside(tsfile)
    assert found.entries
    assert not found.dropped
    if path.suffix == ".mods2":
        assert all(entry.before == EVERY_CHUNK for entry in found.entries)


def test_there_are_real_ones() -> None:
    assert {path.suffix for path in REAL} == {".mods", ".mods2"}


def test_a_resource_that_cannot_be_read_does_not_hide_shared_deletions(tmp_path: Path) -> None:
    (tmp_path / "x.tsfile.resource").write_bytes(resource("/d/0-1.mods2")[:30])
    assert not Deletions.beside(tmp_path / "x.tsfile")
    (tmp_path / "0-1.mods2").write_bytes(b"".join(RECORDS))
    with pytest.raises(DamagedData, match="not known whether the shared deletions"):
        Deletions.beside(tmp_path / "x.tsfile")


@pytest.mark.parametrize("content", [b"\0" * 40, b"DELETION,root.\0\0DELETION,root.a,1,2,3\n"])
def test_nuls_in_a_text_file_are_neither_a_record_nor_the_begin_of_one(content):
    with pytest.raises(Malformed, match="NULs"):
        whole_records(content, "mods")
