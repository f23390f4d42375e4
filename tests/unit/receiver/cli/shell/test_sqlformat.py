"""Answers on their way out, in each of the three forms."""

import csv
import io
import json

import pytest

from common.console.terminal import display_width
from receiver.cli.shell.sqlformat import output
from receiver.metadata.model.true_times import TrueTimes

COLUMNS = ("timeseries", "heat", "tags", "isAligned")
ROWS = [
    ("root.sg.d1.s1", 12, {"unit": "c"}, True),
    ('root.sg.`a,b "x"\r\n`', None, {}, False),
    ("root.sg.`\x1b[31m\u202e`.温", 123456, {"k": "\x1b]0;x\x07"}, False),
]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def written(form, pages, stream=None):
    stream = stream or io.StringIO(newline="")
    out = output(form, stream, TrueTimes())
    out.begin(COLUMNS)
    for page in pages:
        out.page(page)
    return stream.getvalue()


def test_a_table_lines_its_columns_up_and_shows_no_control_character():
    shown = written("table", [ROWS])
    header, rule, first, *_ = shown.splitlines()
    assert header.split() == list(COLUMNS)
    assert set(rule) == {"-", " "}
    assert first.index("12") + 2 == header.index("heat") + len("heat")
    assert all(ord(c) >= 32 or c == "\n" for c in shown)
    assert "\u202e" not in shown
    assert "\\x1b[31m" in shown
    assert len(shown.splitlines()) == 2 + len(ROWS)


def test_a_table_has_one_header_however_many_pages_come():
    shown = written("table", [[row] for row in ROWS])
    assert shown.count("timeseries") == 1
    assert len(shown.splitlines()) == 2 + len(ROWS)
    assert len(written("table", [[]]).splitlines()) == 2


def test_a_long_cell_does_not_make_the_others_wide():
    rows = [("x" * 1000, 1, {}, True), ("y", 2, {}, True)]
    assert len(written("table", [rows]).splitlines()[-1]) < 120


def test_json_is_an_object_a_line_and_ascii():
    lines = written("json", [ROWS[:1], ROWS[1:]]).splitlines()
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert [json.loads(line) for line in lines] == [
        dict(zip(COLUMNS, row, strict=True)) for row in ROWS
    ]


def test_csv_is_what_rfc_4180_says():
    text = written("csv", [ROWS])
    assert text.startswith("timeseries,heat,tags,isAligned\r\n")
    got = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert got[1] == ["root.sg.d1.s1", "12", '{"unit": "c"}', "true"]
    assert got[2] == [ROWS[1][0], "", "{}", "false"]
    assert got[3][0] == ROWS[2][0]


def test_csv_on_a_terminal_obeys_no_name():
    shown = written("csv", [ROWS], Terminal(newline=""))
    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_what_was_done_is_said(form):
    stream = io.StringIO()
    output(form, stream, TrueTimes()).done("2 timeseries created", 5 << 18)
    if form == "json":
        assert json.loads(stream.getvalue()) == {
            "message": "2 timeseries created",
            "commit": str(5 << 18),
        }
    elif form == "csv":
        assert stream.getvalue() == ""
    else:
        assert stream.getvalue().startswith("2 timeseries created (")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_row_is_wider_than_the_terminal_whichever_page_it_comes_in(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    long = [("x" * 300, 1, {"k": "漢" * 60}, True)]
    for pages in ([long, ROWS], [ROWS[:1], long, ROWS], [[("a", 1, {}, True)], ROWS, long]):
        shown = written("table", pages, Terminal())
        assert max(map(display_width, shown.splitlines())) <= columns
        assert "".join(shown.split()).count("x" * 300) == 1


def test_a_row_that_the_terminal_has_no_room_for_is_a_paragraph(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    shown = output("table", stream, TrueTimes())
    shown.begin(["path", "sender", "size"])
    shown.page([["root." + "a" * 60, "b" * 32, 1234567890], ["root.c", "d", 1]])
    assert stream.getvalue().splitlines() == [
        "path root." + "a" * 60,
        "  sender " + "b" * 32 + "  size 1234567890",
        "path root.c  sender d  size 1",
    ]


@pytest.mark.parametrize("column", ["created", "changed", "deleted"])
def test_a_commit_in_a_table_is_shown_as_its_time(column):
    stream = io.StringIO()
    writer = output("table", stream, TrueTimes())
    writer.begin([column])
    writer.page([[470846978435317760]])
    assert stream.getvalue().splitlines()[-1] == "2026-12-01 15:24:41+00:00"
