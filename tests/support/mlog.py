"""A whole text log at once, as tests want it; the source reads and writes line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from receiver.metadata.model.paths import format_path
from receiver.metadata.text.mlog_text import (
    HEADER,
    BadLine,
    MlogLineError,
    MlogRecord,
    _is_plain,
    iter_lines,
    print_line,
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a log, or a piece of one, holds.

    Attributes:
        records: (offset of the line in the log, record) in order.
        bad: lines that are none.
        end: offset behind the last whole line; what follows never happened.
        lines: how many whole lines there are.
    """

    records: list[tuple[int, MlogRecord]]
    bad: list[BadLine]
    end: int
    lines: int


def parse(data: bytes, *, start: int = 0, wide: bool = False) -> Parsed:
    """Read the whole lines of a log.

    Args:
        data: of the log, from the beginning of a line on.
        start: offset of `data` in the log.
        wide: whether the log, which `data` is a later piece of, began with `HEADER`.
    """
    records: list[tuple[int, MlogRecord]] = []
    bad: list[BadLine] = []
    for at, found in iter_lines(data, start=start, wide=wide):
        if isinstance(found, BadLine):
            bad.append(found)
        else:
            records.append((at, found))
    return Parsed(records, bad, start + data.rfind(b"\n") + 1, data.count(b"\n"))


def dump(records: Iterable[MlogRecord], *, wide: bool = True) -> Iterator[str]:
    """The lines of a log, each with its end, in the wider form.

    Args:
        records: of the log.
        wide: False for the plain form; a record that it cannot say raises.

    Raises:
        MlogLineError: the plain form has no line for a record.
    """
    if wide:
        yield f"{HEADER}\n"
    for record in records:
        line = print_line(record, wide=wide)
        if not wide and not _is_plain(line, record):
            raise MlogLineError(f"{format_path(record.path)!a} cannot be said in the plain form")
        yield f"{line}\n"
