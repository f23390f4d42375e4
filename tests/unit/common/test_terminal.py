import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from common.terminal import display_width, printable, table


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
