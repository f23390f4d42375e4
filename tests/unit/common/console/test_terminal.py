import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.console.terminal import counted, display_width, folded, printable, shortened, table


@given(st.text())
def test_nothing_that_a_terminal_obeys_gets_through(text):
    categories = {unicodedata.category(character) for character in printable(text)}
    assert not categories & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    printable(text).encode()


def test_names_of_people_stay_as_they_are():
    text = "Größe 数据 root.turbine.d1 \\x1b 🚂"
    assert printable(text) == text


def test_what_is_taken_out_can_be_seen():
    assert printable("a\x1b[2J\r\n\u202eb\udc80\x7f") == r"a\x1b[2J\r\n\u202eb\udc80\x7f"


def test_wide_and_combining_characters_are_counted_as_a_terminal_draws_them():
    assert [display_width(t) for t in ("abc", "数据", "e\u0301", "ﾊﾝ")] == [3, 4, 1, 2]


def test_columns_stand_below_each_other():
    rows = [["数据", 5, None], ["root.d1", 1000, "x\ny"]]
    assert table(["name", "files", "state"], rows) == (
        "name     files  state\n数据         5  -\nroot.d1   1000  x\\ny"
    )


def test_a_table_without_rows_is_its_header():
    assert table(["name", "files"], []) == "name  files"


cells = st.text(max_size=8) | st.integers(0, 10**6)


@given(st.lists(st.tuples(cells, cells), max_size=5))
def test_a_row_is_a_line_whatever_stands_in_it(rows):
    lines = table(["a", "b"], rows).split("\n")
    assert len(lines) == len(rows) + 1
    assert all(printable(line) == line for line in lines)


def test_what_is_too_wide_breaks_its_last_column_at_blanks():
    text = table(
        ["PATH", "REASON"], [["a" * 20, "the words of a reason " * 3], ["b", "x"]], width=60
    )
    assert text.splitlines() == [
        "PATH                  REASON",
        "aaaaaaaaaaaaaaaaaaaa  the words of a reason the words of a",
        "                      reason the words of a reason",
        "b                     x",
    ]


def test_what_is_much_too_wide_is_a_paragraph_a_row():
    rows = [["a" * 30, "b" * 32, None, 1234567890, ""], ["c", "d", "-", 1, "e" * 90]]
    shown = table(["PATH", "SENDER", "VERIFIED", "SIZE", "NOTE"], rows, width=60).splitlines()
    assert shown == [
        "PATH " + "a" * 30,
        "  SENDER " + "b" * 32 + "  SIZE 1234567890",
        "PATH c  SENDER d  SIZE 1",
        "  NOTE " + "e" * 53,
        "    " + "e" * 37,
    ]


def test_words_of_a_paragraph_stay_apart_where_it_is_broken():
    words = [f"word{n}" * (1 + n % 3) for n in range(60)]
    shown = table(["NAME", "STATE"], [["a", " ".join(words)], ["b" * 70, "-"]], width=80)
    assert shown.split("\n")[0].startswith("NAME a")
    assert shown.split()[3 : 3 + len(words)] == words


@pytest.mark.parametrize(("text", "shown"), [("", ""), ("a" * 9, "a" * 9), ("a" * 10, "aaaaaa...")])
def test_a_text_that_was_cut_shows_it(text, shown):
    assert shortened(text, 9) == shown


wide = st.text(max_size=300) | st.integers(0, 10**10) | st.none()


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.lists(st.lists(wide, min_size=n, max_size=n), min_size=1, max_size=4)
    ),
    st.sampled_from((40, 80)),
)
def test_every_table_fits_40_and_80_columns(rows, columns):
    headers = [f"HEADER{n}" for n in range(len(rows[0]))]
    for line in table(headers, rows, width=columns).split("\n"):
        assert display_width(line) <= columns
        assert printable(line) == line


def test_nothing_of_a_cell_is_left_out():
    rows = [["x" * 100, "y" * 100, "z" * 100]]
    shown = table(["A", "B", "C"], rows, width=40)
    assert [shown.count(each) for each in "xyz"] == [100, 100, 100]


def test_without_a_terminal_a_row_is_a_line_as_wide_as_it_is(capsys):
    assert table(["A", "B"], [["x" * 200, "y"]]).split("\n")[1] == "x" * 200 + "  y"


def test_the_width_is_that_of_the_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    assert max(map(len, table(["A", "B"], [["x" * 200, "y"]]).split("\n"))) <= 50


@given(st.text(), st.sampled_from((0, 2, 4)), st.sampled_from((0, 14, 18)), st.integers(30, 100))
def test_a_line_that_is_folded_fits_and_lacks_nothing(text, indent, hang, columns):
    line = " " * indent + printable(text)
    lines = folded(line, hang, width=columns).split("\n")
    assert all(display_width(each) <= columns for each in lines)
    assert "".join("".join(lines).split(" ")) == "".join(line.split(" "))


def test_what_is_said_of_a_name_stays_in_its_column_where_there_is_room():
    line = "concerns:         the clock was set back, and nobody has confirmed that"
    assert folded(line, 18, width=60).split("\n") == [
        "concerns:         the clock was set back, and nobody has",
        "                  confirmed that",
    ]
    assert folded(line, 18, width=40).split("\n") == [
        "concerns:         the clock was set",
        "  back, and nobody has confirmed that",
    ]
    assert folded(line, 18) == line


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 entries are"), (1, "1 entry is"), (1_234, "1,234 entries are")]
)
def test_what_is_counted_is_one_or_more(number, said):
    assert counted(number, "entry is", "entries are", form=",") == said
    assert counted(number, "file") == f"{number} file{'s' * (number != 1)}"
