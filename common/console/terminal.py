"""Foreign text on a terminal or in a log: nothing in a name may move a cursor or forge a line."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import TextIO

__all__ = [
    "counted",
    "display_width",
    "folded",
    "padded",
    "paragraph",
    "printable",
    "screen_width",
    "shortened",
    "size_text",
    "table",
    "whole_width",
]

# Controls, invisible formats (bidirectional overrides), lone surrogates (names that are no UTF-8),
# and the two line breaks that are no controls.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_COLUMN_GAP = "  "
_NARROWEST = 24
"""Columns that a text is broken into at least."""


def printable(text: str) -> str:
    r"""The text on one line, with what a terminal would obey written out: ``\x1b``, ``\u202e``."""
    if text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _ESCAPED else c for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def display_width(text: str) -> int:
    """Columns that printable text takes: East Asian wide characters two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def screen_width(stream: TextIO | None = None) -> int | None:
    """Columns of a terminal, of standard output unless told otherwise; None where it is none."""
    stream = sys.stdout if stream is None else stream
    return shutil.get_terminal_size().columns if stream.isatty() else None


def table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], *, width: int | None = None
) -> str:
    """Left-aligned columns, numbers right-aligned; every cell made `printable`.

    What is wider than the terminal has its last column broken into lines; if that does not do, each
    row is a paragraph of names and values. Where there is no terminal a row is a line, as wide as
    it is.

    Args:
        headers: one name a column.
        rows: as many cells each; None is shown as ``-``.
        width: columns that there are, in place of those of the terminal.
    """
    width = screen_width() if width is None else width
    cells = [[printable("-" if cell is None else str(cell)) for cell in row] for row in rows]
    lines = [list(headers), *cells]
    widths = [max(display_width(line[i]) for line in lines) for i in range(len(headers))]
    right = [_all_numbers(row[i] for row in rows) if rows else False for i in range(len(headers))]
    if width is not None and whole_width(widths) > width:
        left = width - whole_width([*widths[:-1], 0])
        if right[-1] or left < max(_NARROWEST, display_width(headers[-1])):
            return "\n".join(paragraph(headers, row, width) for row in cells)
        widths[-1] = left
        lines = [line for each in lines for line in _broken(each, left)]
    return "\n".join(_COLUMN_GAP.join(map(padded, line, widths, right)).rstrip() for line in lines)


def folded(line: str, hang: int, *, width: int | None = None) -> str:
    """A line, made `printable`; where a terminal is narrower it goes on in lines below.

    Args:
        line: of any length.
        hang: column that these begin in, if the terminal leaves room enough behind it; 0 for a
            little behind where the line begins.
        width: columns that there are, in place of those of the terminal.
    """
    width = screen_width() if width is None else width
    line = printable(line)
    if width is None or display_width(line) <= width:
        return line
    indent = len(line) - len(line.lstrip())
    if hang <= indent or width - hang < _NARROWEST:
        hang = indent + len(_COLUMN_GAP)
    # What is cut off is no blank of the indent, nor of the gap behind a name.
    first, *_ = _pieces(line[indent:], max(width - indent, 1))
    rest = line[indent + len(first) :].lstrip(" ")
    below = _pieces(rest, max(width - hang, 1)) if rest else []
    return "\n".join([line[:indent] + first.rstrip(), *(" " * hang + each for each in below)])


def whole_width(widths: Sequence[int]) -> int:
    """Columns of a row of these columns, with the gaps between them."""
    return sum(widths) + len(_COLUMN_GAP) * (len(widths) - 1)


def _broken(line: Sequence[str], left: int) -> list[list[str]]:
    """A row as lines: what does not fit of its last cell stands below, in that column."""
    first, *others = _pieces(line[-1], left)
    return [[*line[:-1], first], *([*[""] * (len(line) - 1), each] for each in others)]


def paragraph(headers: Sequence[str], row: Sequence[str], width: int) -> str:
    """A row that is too wide as `NAME value` one after the other; what is empty is left out."""
    pairs = [f"{name} {cell}" for name, cell in zip(headers, row, strict=True) if cell.strip("-")]
    lines, room = [""], width
    for pair in pairs:
        gap = _COLUMN_GAP if lines[-1].strip() else ""
        if gap and display_width(lines[-1]) + len(gap) + display_width(pair) > room:
            lines.append(_COLUMN_GAP)
            gap = ""
        first, *_ = _pieces(pair, room - display_width(lines[-1]) - len(gap))
        lines[-1] += gap + first
        rest = pair[len(first) :].lstrip(" ")
        below = _pieces(rest, width - 2 * len(_COLUMN_GAP)) if rest else []
        lines += [_COLUMN_GAP * 2 + each for each in below]
    return "\n".join(lines)


def _pieces(text: str, width: int) -> list[str]:
    """A text cut so that each piece fits, at a blank where there is one in its second half."""
    pieces = []
    while display_width(text) > width:
        end = len(text)
        while display_width(text[:end]) > width:
            end -= max(1, (display_width(text[:end]) - width) // 2)
        blank = text.rfind(" ", end // 2, end + 1)
        end = blank if blank > 0 else max(1, end)
        pieces.append(text[:end])
        text = text[end:].lstrip(" ")
    return [*pieces, text]


def _all_numbers(column: object) -> bool:
    values = [value for value in column if value is not None]  # type: ignore[attr-defined]
    return bool(values) and all(isinstance(value, int | float) for value in values)


def padded(cell: str, width: int, right: bool) -> str:
    """A cell as wide as its column, at the left or the right of it."""
    padding = " " * (width - display_width(cell))
    return padding + cell if right else cell + padding


def shortened(text: str, most: int) -> str:
    """A text of so many characters at most, which shows where it was cut."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def counted(number: int, one: str, many: str | None = None, *, form: str = "") -> str:
    """A number of things for people: `1 file`, `2 files`, `1 file is`, `0 entries`.

    Args:
        number: of them.
        one: what stands behind a one.
        many: what stands behind any other number; None: the same with an s.
        form: of the number, as in a format string: `,` groups its digits.
    """
    return f"{number:{form}} {one if number == 1 else many or f'{one}s'}"


def size_text(size: int) -> str:
    """Bytes for people: `12.3 MiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} PiB"
