"""Schema logs of Apache IoTDB 0.10 and 0.11, as text."""

from __future__ import annotations

import pytest

from receiver.metadata.text import mlog_text
from receiver.metadata.text.mlog_text import (
    AlignedDevice,
    ChangeAlias,
    ChangeOffset,
    CreateSeries,
    DeletePath,
    DeleteStorageGroup,
    MlogLineError,
    SetStorageGroup,
    TtlLine,
)
from tests.support import mlog

S1 = ("root", "turbine", "d1", "s1")


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("2,root.turbine", SetStorageGroup(("root", "turbine"))),
        (
            "0,root.turbine.d1.s1,3,2,1,,temperature,1400",
            CreateSeries(S1, 3, 2, 1, {}, "temperature", 1400),
        ),
        ("0,root.turbine.d1.s1,3,2,1,,,", CreateSeries(S1, 3, 2, 1)),
        ("0,root.turbine.d1.s1,3,2,1,,,-1", CreateSeries(S1, 3, 2, 1)),
        (
            "0,root.turbine.d1.s1,3,2,1,max_point_number=2&sdt=x,,",
            CreateSeries(S1, 3, 2, 1, {"max_point_number": "2", "sdt": "x"}),
        ),
        ("1,root.turbine.d1.s1", DeletePath(S1)),
        ("10,root.turbine,3600000", TtlLine(("root", "turbine"), 3_600_000)),
        ("10,root.turbine,9223372036854775807", TtlLine(("root", "turbine"), None)),
        ("11,root.turbine", DeleteStorageGroup(("root", "turbine"))),
        ("12,root.turbine.d1.s1,700", ChangeOffset(S1, 700)),
        ("13,root.turbine.d1.s1,newAlias", ChangeAlias(S1, "newAlias")),
        ("13,root.turbine.d1.s1,", ChangeAlias(S1, None)),
    ],
)
def test_each_operation_of_the_log_is_read(line: str, record: mlog_text.MlogRecord) -> None:
    assert mlog_text.parse_line(line) == record


def test_lines_of_version_0_8_had_fewer_fields() -> None:
    assert mlog_text.parse_line("0,root.turbine.d1.s1,3,2,1") == CreateSeries(S1, 3, 2, 1)
    assert mlog_text.parse_line("0,root.turbine.d1.s1,3,2,1,a=1,b=2") == CreateSeries(
        S1, 3, 2, 1, {"a": "1", "b": "2"}
    )


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("0,root.a.d,1.s,3,2,1,,alias,0", ("root", "a", "d,1", "s")),
        ('0,root.a."x,1,2,3,y.z".s,3,2,1,,,', ("root", "a", "x,1,2,3,y.z", "s")),
        ("1,root.a,b.c,d", ("root", "a,b", "c,d")),
        ("10,root.a,b,5", ("root", "a,b")),
        ("12,root.a,b.s,700", ("root", "a,b", "s")),
        ("13,root.a,b.s,x", ("root", "a,b", "s")),
    ],
)
def test_names_may_hold_commas(line: str, path: tuple[str, ...]) -> None:
    assert mlog_text.parse_line(line).path == path


def test_an_alias_with_a_comma_counts_if_the_line_can_be_cut_in_one_way_only() -> None:
    record = mlog_text.parse_line("0,root.a.d.s,3,2,1,,x,y,700")
    assert record == CreateSeries(("root", "a", "d", "s"), 3, 2, 1, {}, "x,y", 700)
    with pytest.raises(MlogLineError, match="more than one way"):
        mlog_text.parse_line("0,root.a.d.s,3,2,1,a=1,b=2,z,")


def test_names_without_quotes_may_be_anything_but_a_dot() -> None:
    assert mlog_text.parse_line("2,root.a-b.1.c d").path == ("root", "a-b", "1", "c d")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "x",
        "2",
        "2,",
        "2,turbine",
        "2,root..a",
        "0,root.a.d.s",
        "0,root.a.d.s,3,2",
        "0,root.a.d.s,300,2,1,,,",
        "0,root.a.d.s,3,2,1,,,12x",
        "0,root.a.d.s,3,2,1,,,99999999999999999999",
        "0,root.a.d.s,3,2,1,novalue,,",
        "10,root.a",
        "10,root.a,-5",
        "10,root.a,0",
        "12,root.a.s,x",
        "13,root.a",
        '2,root."open',
        "2,root.a\0b",
        "3,root.a.d,[s1],x",
        "14,cq,select,root.a",
    ],
)
def test_what_is_no_operation_is_said_to_be_none(line: str) -> None:
    with pytest.raises(MlogLineError):
        mlog_text.parse_line(line)


def test_a_torn_last_line_never_happened() -> None:
    data = b"2,root.a\n2,root.b\n0,root.a.d.s,3,2,1,,"
    parsed = mlog.parse(data)
    assert [record.path for _, record in parsed.records] == [("root", "a"), ("root", "b")]
    assert parsed.end == len(b"2,root.a\n2,root.b\n")
    assert not parsed.bad


def test_a_bad_line_is_reported_and_the_others_count() -> None:
    data = b"2,root.a\r\nrubbish\r\n\r\n2,root.\xff\r\n2,root.b\r\n"
    parsed = mlog.parse(data, start=100)
    assert [(at, record.path[-1]) for at, record in parsed.records] == [(100, "a"), (131, "b")]
    assert [(bad.number, bad.offset, bad.text) for bad in parsed.bad] == [
        (2, 110, "rubbish"),
        (4, 121, "2,root.\\xff"),
    ]


def test_a_line_of_endless_commas_is_given_up_soon() -> None:
    with pytest.raises(MlogLineError):
        mlog_text.parse_line("0,root.a" + ",1" * 100_000 + ",x")


def test_the_plain_form_is_what_iotdb_writes() -> None:
    records = [
        SetStorageGroup(("root", "turbine")),
        CreateSeries(S1, 3, 2, 1, {"k": "v", "l": "w"}, "temperature", 0),
        TtlLine(("root", "turbine"), 10),
        TtlLine(("root", "turbine"), None),
        ChangeOffset(S1, 10),
        ChangeAlias(S1, "x"),
        DeletePath(S1),
        DeleteStorageGroup(("root", "turbine")),
    ]
    assert "".join(mlog.dump(records, wide=False)).splitlines() == [
        "2,root.turbine",
        "0,root.turbine.d1.s1,3,2,1,k=v&l=w,temperature,0",
        "10,root.turbine,10",
        "10,root.turbine,9223372036854775807",
        "12,root.turbine.d1.s1,10",
        "13,root.turbine.d1.s1,x",
        "1,root.turbine.d1.s1",
        "11,root.turbine",
    ]


@pytest.mark.parametrize(
    "record",
    [
        CreateSeries(("root", "a", "d", "s"), 3, 2, 1, {}, "a,b\nc"),
        CreateSeries(("root", "a", "d", "s"), 3, 2, 1, {"k&": "a=b,c"}, "x"),
        SetStorageGroup(("root", "line\nbreak\\x41")),
        AlignedDevice(("root", "a", "d")),
    ],
)
def test_what_the_plain_form_cannot_say_the_wider_one_says(record: mlog_text.MlogRecord) -> None:
    assert mlog_text.needs_wide(record)
    with pytest.raises(MlogLineError):
        list(mlog.dump([record], wide=False))
    text = "".join(mlog.dump([record]))
    assert [each for _, each in mlog.parse(text.encode()).records] == [record]


def test_a_plain_reader_takes_the_lines_of_the_wider_form_for_comments() -> None:
    lines = "".join(mlog.dump([AlignedDevice(S1[:-1]), SetStorageGroup(S1[:2])]))
    assert [line[0] for line in lines.splitlines()] == ["#", "#", "2"]


def test_an_escape_counts_only_in_the_wider_form() -> None:
    assert mlog_text.parse_line("2,root.a\\x41").path == ("root", "a\\x41")
    assert mlog_text.parse_line("2,root.a\\x41", wide=True).path == ("root", "aA")
    with pytest.raises(MlogLineError, match="no escape"):
        mlog_text.parse_line("2,root.a\\q", wide=True)


@pytest.mark.parametrize(
    ("path", "why"), [("root.a..s", "the node is empty"), ("a.b.s", "begins with root")]
)
def test_a_line_whose_path_alone_is_wrong_says_what_is_wrong_with_it(path, why):
    with pytest.raises(MlogLineError, match=why):
        mlog_text.parse_line(f"0,{path},1,0,1,,,")
