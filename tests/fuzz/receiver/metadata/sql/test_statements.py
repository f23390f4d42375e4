"""Any text as a statement: a statement, or an error that names a place in it."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from receiver.metadata.model.errors import (
    SqlError,
    UnknownCompressionError,
    UnknownEncodingError,
    UnknownTypeError,
)
from receiver.metadata.model.paths import IllegalPathError
from receiver.metadata.sql.lexing import statements
from receiver.metadata.sql.parser import keywords, next_words, parse
from tests.support import tiers
from tests.support.sql_printing import format_statement

OWN = (
    SqlError,
    IllegalPathError,
    UnknownTypeError,
    UnknownEncodingError,
    UnknownCompressionError,
)
MARKS = list(",;=()'\"`*.\n\\/-+#@$&|~^<>[]{}?!%: \t\r\x00\x1b\u2028\ud800\u00e9\u6e29")
WORDS = st.sampled_from(
    [
        *sorted(keywords()),
        *MARKS,
        *("root", "root.a", "root.a.**", "root.`a b`.*", "a", "INT32", "RLE", "SNAPPY"),
        *("1", "0", "-1", "9" * 30, "1d", "2026-01-31T08:00:00Z", "'x'", '"y"', "--", "/*", "*/"),
    ]
)


def judge(text):
    try:
        statement = parse(text)
    except OWN as error:
        wrong = error
    else:
        assert parse(format_statement(statement)) == statement
        return
    line, column = wrong.extra["line"], wrong.extra["column"]
    lines = text.split("\n")
    assert 1 <= line <= len(lines)
    assert 1 <= column <= len(lines[line - 1]) + 1
    assert wrong.message.startswith(f"line {line}, column {column}: ")


@settings(max_examples=tiers.examples(500))
@given(st.text(max_size=60))
@example("")
@example("show timeseries where a = '" + "''" * 1000)
@example("show timeseries limit " + "9" * 5000)
@example("show timeseries root" + ".a" * 1000)
@example("show timeseries at 9999-12-31T23:59:59-23:59")
@example("show timeseries at 0001-01-01T00:00:00+23:59")
@example("show timeseries at 2026-W01-1")
@example("set ttl to root.a 999999999999999w")
def test_any_text(text):
    judge(text)


@settings(max_examples=tiers.examples(1000))
@given(st.lists(WORDS, max_size=20), st.sampled_from(["", " "]))
def test_any_words(words, gap):
    judge(gap.join(words))


@settings(max_examples=tiers.examples(300))
@given(st.lists(WORDS, max_size=20).map(" ".join))
def test_any_text_can_be_cut_into_statements_and_completed(text):
    cut = [each.text for each in statements(text)]
    assert all(each.strip() for each in cut)
    for each in cut:
        judge(each)
    next_words(text)
