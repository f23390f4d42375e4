"""Where the records of a deletion file end: what of it can travel.

A database appends to `X.tsfile.mods` (text, a record a line) and `X.tsfile.mods2` (binary, records
back to back; the receiver's `receiver.points.deletion_files` has the format). What is read while it
writes, or after a crash, may end within a record: that part is left for later.

What passes here is what readers can read: a record that is none would stop each of them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from common.tsfile.primitives import Malformed, read_uvarint, read_vstr

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DELETION_FORMS", "deleted_times", "text_record", "whole_records"]

DELETION_FORMS: Final = ("mods", "mods2")
"""The endings of deletion files behind `X.tsfile.`, each a form of its own."""

_TIMES: Final = 17
_START_AND_END: Final = struct.Struct(">qq")
_MOST_NESTED: Final = 32


def whole_records(content: bytes, form: str) -> int:
    """The bytes of a deletion file up to the end of its last whole record.

    Args:
        content: of the file, from its begin.
        form: one of `DELETION_FORMS`.

    Raises:
        Malformed: something in it is no record.
    """
    if form == "mods":
        return _whole_lines(content)
    at = 0
    while at < len(content):
        try:
            at = _record(content, at)
        except IndexError:
            break
    return at


def deleted_times(content: bytes, form: str) -> tuple[int, int]:
    """The first and the last time that records delete, of any series; (0, -1) of no record.

    Args:
        content: whole records.
        form: one of `DELETION_FORMS`.

    Raises:
        Malformed: something in it is no record, or the last one is not whole.
    """
    spans: list[tuple[int, int]] = []
    at = 0
    if form == "mods":
        for line in content.splitlines():
            if line:
                spans.append(text_record(line, at)[1:3])
        at = _whole_lines(content)
    else:
        try:
            while at < len(content):
                spans.append(_START_AND_END.unpack_from(content, at + 1))
                at = _record(content, at)
        except (IndexError, struct.error):
            at = -1
    if at != len(content):
        raise Malformed("a record that is not whole", at)
    starts, ends = zip(*spans, strict=True) if spans else ((0,), (-1,))
    return min(starts), max(ends)


def text_record(line: bytes, at: int) -> tuple[str, int, int, int]:
    """Path, begin, end and offset of a line of a `.mods`, without its newline.

    Args:
        line: it.
        at: where it begins, for people.

    Raises:
        Malformed: it is no deletion.
    """
    try:
        fields = line.removesuffix(b"\r").decode().split(",")
    except UnicodeDecodeError:
        raise Malformed("a deletion that is not UTF-8", at) from None
    if fields[0] != "DELETION" or len(fields) < 4:
        raise Malformed("a line that is no deletion", at)
    offset, start, end = (_int64(field) for field in fields[-3:])
    if offset is None:  # the field is the end of the path
        offset, start, path = start, -(2**63), fields[1:-2]
    else:
        path = fields[1:-3]
    if offset is None or start is None or end is None or not path:
        raise Malformed("a deletion without its times or its path", at)
    return ",".join(path), start, end, offset


def _int64(field: str) -> int | None:
    """A number as Java reads one; None for anything else."""
    digits = field[1:] if field[:1] in ("+", "-") else field
    if not (0 < len(digits) <= 20 and digits.isascii() and digits.isdigit()):
        return None
    number = int(field)
    return number if -(2**63) <= number < 2**63 else None


def _whole_lines(content: bytes) -> int:
    if (nul := content.find(b"\0")) >= 0:  # of a power cut: a record behind it would pass as one
        raise Malformed("NULs, which no record has", nul)  # of another path, or as not whole yet
    at = 0
    while (end := content.find(b"\n", at)) >= 0:
        line = content[at:end]
        if line not in (b"", b"\r"):
            text_record(line, at)
        at = end + 1
    return at


# Each takes a position and gives the one behind what it skips, or an `IndexError`: it is torn.


def _record(buf: bytes, pos: int) -> int:
    kind, at = buf[pos], pos + _TIMES
    if kind == 1:
        return _name(buf, at)
    if kind == 0:
        return _several(buf, _condition(buf, _name(buf, at), 0), _name)
    raise Malformed(f"a deletion of the unknown kind {kind}", pos)


def _condition(buf: bytes, pos: int, depth: int) -> int:
    if depth > _MOST_NESTED:
        raise Malformed("conditions nested too deep", pos)
    kind, at = buf[pos], pos + 1
    match kind:
        case 0:
            return at
        case 1:
            return _device(buf, at)
        case 2:
            return _count(buf, _string(buf, at))[1]
        case 3:
            return _several(buf, at, lambda buf, pos: _condition(buf, pos, depth + 1))
        case 4:
            return _several(buf, at, _device)
        case 5:
            return _count(buf, at)[1]
    raise Malformed(f"a condition of the unknown kind {kind}", pos)


def _several(buf: bytes, pos: int, skip: Callable[[bytes, int], int]) -> int:
    number, at = _count(buf, pos)
    return _items(buf, at, number, skip)


def _device(buf: bytes, pos: int) -> int:
    number, at = read_uvarint(buf, pos)
    if number == 0:
        raise Malformed("a device without segments", pos)
    return _items(buf, at, number, _string)


def _items(buf: bytes, pos: int, number: int, skip: Callable[[bytes, int], int]) -> int:
    for _ in range(number):  # each takes a byte or raises
        pos = skip(buf, pos)
    return pos


def _count(buf: bytes, pos: int) -> tuple[int, int]:
    zigzag, at = read_uvarint(buf, pos)
    if zigzag & 1:
        raise Malformed("a negative number", pos)
    return zigzag >> 1, at


def _name(buf: bytes, pos: int) -> int:
    end = _string(buf, pos)
    if read_uvarint(buf, pos)[0] < 2:  # the lengths 0 and -1
        raise Malformed("a deletion without a name", pos)
    return end


def _string(buf: bytes, pos: int) -> int:
    zigzag, at = read_uvarint(buf, pos)
    if not zigzag & 1 and at + (zigzag >> 1) > len(buf):
        if b"\0" in buf[at:]:  # it is no text, so what is wrong is the length
            raise Malformed("a deletion with a string that spans others", pos)
        raise IndexError
    return read_vstr(buf, pos)[1]
