"""Foreign text on a terminal or in a log: nothing in a name may move a cursor or forge a line."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

__all__ = ["display_width", "padded", "printable", "size_text", "table"]

# Controls, invisible formats (bidirectional overrides), lone surrogates (names that are no UTF-8),
# and the two line breaks that are no controls.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_COLUMN_GAP = "  "


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


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Left-aligned columns, numbers right-aligned; every cell made `printable`.

    Args:
        headers: one name a column.
        rows: as many cells each; None is shown as ``-``.
    """
    cells = [[printable("-" if cell is None else str(cell)) for cell in row] for row in rows]
    lines = [list(headers), *cells]
    widths = [max(display_width(line[i]) for line in lines) for i in range(len(headers))]
    right = [_all_numbers(row[i] for row in rows) if rows else False for i in range(len(headers))]
    return "\n".join(_COLUMN_GAP.join(map(padded, line, widths, right)).rstrip() for line in lines)


def _all_numbers(column: object) -> bool:
    values = [value for value in column if value is not None]  # type: ignore[attr-defined]
    return bool(values) and all(isinstance(value, int | float) for value in values)


def padded(cell: str, width: int, right: bool) -> str:
    """A cell as wide as its column, at the left or the right of it."""
    padding = " " * (width - display_width(cell))
    return padding + cell if right else cell + padding


def size_text(size: int) -> str:
    """Bytes for people: `12.3 MiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} PiB"
