"""Answers of SQL on the way out: as a table, as JSON lines, as CSV.

All three write page by page, so an answer may be as long as it likes. On a terminal nothing in a
name can move a cursor: control characters are written out in each form.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

from common.console.json_form import json_form
from common.console.json_option import OpenForm
from common.console.terminal import (
    display_width,
    padded,
    paragraph,
    printable,
    screen_width,
    whole_width,
)
from common.errors import TsferryError
from common.wire import Struct
from common.wire.base import CommitTs
from receiver.cli.showing import commit_time

if TYPE_CHECKING:
    from receiver.cli.shell.sqlsource import SqlRow
    from receiver.metadata.model.true_times import TrueTimes

__all__ = ["Output", "OutputForm", "SqlDone", "SqlLine", "caret", "output"]

_AROUND = 100
"""Characters of a line that are shown on each side of a fault."""

OutputForm = Literal["table", "json", "csv"]

_GAP = "  "
_WIDEST = 100
"""Columns that a cell is padded to at most; a longer one pushes the rest of its line aside."""
_TIMES = frozenset({"created", "changed", "deleted"})
"""Columns with commits, which a table shows as times."""


class Output(Protocol):
    """Writes one answer."""

    def begin(self, columns: Sequence[str]) -> None:
        """Names of the columns."""

    def page(self, rows: Sequence[SqlRow]) -> None:
        """Some more rows."""

    def done(self, message: str, commit: int) -> None:
        """What a statement without an answer did, in which commit."""


def output(form: OutputForm, stream: TextIO, times: TrueTimes) -> Output:
    """The output of a form to a stream.

    Args:
        form: of it; people get times, programs the commits.
        stream: that it goes to.
        times: that commits stand for.
    """
    if form == "table":
        return _Table(stream, times)
    return _Lines(stream) if form == "json" else _Csv(stream)


class _Table:
    """Columns as wide as the first page wants them; wider ones later widen what follows.

    On a terminal that they do not fit, each row is a paragraph; so is a single row that is wider
    than the others, or comes later.
    """

    def __init__(self, stream: TextIO, times: TrueTimes) -> None:
        self._stream = stream
        self._times = times
        self._columns: Sequence[str] = ()
        self._widths: list[int] = []
        self._right: list[bool] = []
        self._screen = screen_width(stream)
        self._in_paragraphs = False

    def begin(self, columns: Sequence[str]) -> None:
        self._columns, self._widths = columns, []

    def page(self, rows: Sequence[SqlRow]) -> None:
        # A newer server may send more columns.
        cells = [list(map(self._cell, self._columns, row)) for row in rows]
        first = not self._widths
        if first:
            self._widths = [display_width(name) for name in self._columns]
            self._right = [
                name not in _TIMES and _all_numbers([row[i] for row in rows])
                for i, name in enumerate(self._columns)
            ]
        for line in cells:
            for i, cell in enumerate(line):
                self._widths[i] = max(self._widths[i], min(display_width(cell), _WIDEST))
        if first and self._screen is not None:
            self._in_paragraphs = whole_width(self._widths) > self._screen
        if self._in_paragraphs and self._screen is not None:
            for line in cells:
                self._write_paragraph(line, self._screen)
            return
        if first:
            self._write([printable(name) for name in self._columns])
            self._write(["-" * width for width in self._widths])
        for line in cells:
            self._write(line)

    def done(self, message: str, commit: int) -> None:
        when = f"{commit_time(commit, self._times.seconds(commit))}, commit {commit}"
        self._stream.write(f"{printable(message)} ({when if commit else 'in the transaction'})\n")

    def _cell(self, column: str, value: Any) -> str:
        if value is None or value == {}:
            return "-"
        if column in _TIMES and isinstance(value, int):
            return commit_time(value, self._times.seconds(value))
        return printable(_text(value))

    def _write(self, line: Sequence[str]) -> None:
        text = _GAP.join(map(padded, line, self._widths, self._right)).rstrip()
        if self._screen is not None and display_width(text) > self._screen:
            self._write_paragraph(line, self._screen)
        else:
            self._stream.write(text + "\n")

    def _write_paragraph(self, line: Sequence[str], screen: int) -> None:
        self._stream.write(paragraph(list(map(printable, self._columns)), line, screen) + "\n")


def _all_numbers(values: Sequence[Any]) -> bool:
    there = [value for value in values if value is not None]
    return bool(there) and all(type(value) is int for value in there)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


class SqlLine(OpenForm):
    """A row: a member for each column of the statement, named as it is.

    What a column has is in `docs/sql.md`; whole numbers above 2^53 are text, and commits and times
    of data in columns of those names always.
    """


class SqlDone(Struct, frozen=True, kw_only=True):
    """What a statement did.

    Attributes:
        message: in words.
        commit: by which it is so; 0 for none, as in a transaction before its commit.
    """

    message: str
    commit: CommitTs


class _Lines:
    """An object a line, pure ASCII."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._columns: Sequence[str] = ()

    def begin(self, columns: Sequence[str]) -> None:
        self._columns = columns

    def page(self, rows: Sequence[SqlRow]) -> None:
        for row in rows:
            self._write(dict(zip(self._columns, row)))  # noqa: B905  # see above

    def done(self, message: str, commit: int) -> None:
        self._write(SqlDone(message=message, commit=commit))

    def _write(self, value: object) -> None:
        self._stream.write(json.dumps(json_form(value), ensure_ascii=True) + "\n")


class _Csv:
    """RFC 4180: a header, CRLF, quotes where needed; null is an empty field, maps are JSON."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._to_people = stream.isatty()

    def begin(self, columns: Sequence[str]) -> None:
        self._write([columns])

    def page(self, rows: Sequence[SqlRow]) -> None:
        self._write(rows)

    def done(self, message: str, commit: int) -> None:
        """A table in a file says nothing of what was done."""

    def _write(self, rows: Sequence[SqlRow]) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\r\n")
        for row in rows:
            writer.writerow(["" if value is None else self._field(value) for value in row])
        self._stream.write(text.getvalue())

    def _field(self, value: Any) -> str:
        text = _text(value)
        return printable(text) if self._to_people else text


def caret(statement: str, error: TsferryError) -> Iterator[str]:
    """The line of a statement that an error is about, and below it a mark under the place."""
    line, column = error.extra.get("line"), error.extra.get("column")
    if not isinstance(line, int) or not isinstance(column, int):
        return
    lines = statement.split("\n")
    if not 1 <= line <= len(lines):
        return
    text = lines[line - 1]
    begin = max(0, column - 1 - _AROUND)
    before = printable(("..." if begin else "") + text[begin : column - 1])
    after = text[column - 1 :]
    yield before + printable(after if len(after) <= _AROUND else f"{after[:_AROUND]}...")
    yield " " * display_width(before) + "^"
