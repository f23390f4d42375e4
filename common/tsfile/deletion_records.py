"""The records of deletion files: `.mods` of 1.x (text) and `.mods2` of 2.x (binary).

Text, a record a line, as of 0.12 to 1.3; a path may hold commas, so the numbers are counted from
the right:

    DELETION,<path>,<file offset>,<start>,<end>
    DELETION,<path>,<file offset>,<end>           the oldest form: all times up to the end

The offset is the size that the file had when the deletion came, 2^63 - 1 if it was closed: chunks
behind it were written later and are not touched. (In the oldest form it is a version number; the
databases compare it just so.)

Binary, big-endian, records back to back, without head or checksum:

    byte 1, int64 start, int64 end, vstr path pattern
    byte 0, int64 start, int64 end, vstr table, condition, varint n, n x vstr column
    condition = byte 0                                  none
              | byte 1, device                          this very device
              | byte 2, vstr value or null, varint i    segment i is it
              | byte 3, varint n, n x condition         all of them
              | byte 4, varint n, n x device            one of them
              | byte 5, varint i                        segment i is not null
    device    = uvarint n, n x vstr or null

Both are only ever appended to, so what is read while a database writes, or after a crash, may end
within a record. Anything else that cannot be read is damage. A torn binary record and one whose
length is damaged both run off the end; it is torn if what is there of its last string is text, as
no string spans a record (every one has zero bytes). Source: apache/iotdb,
`LocalTextModificationAccessor`, `ModificationFile`, `ModEntry`, `IDPredicate` (in newer ones
`TagPredicate`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from common.tsfile.primitives import TIMES, Malformed, read_uvarint, read_vstr

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "DELETION_FORMS",
    "DeletionCondition",
    "DeletionRecord",
    "binary_record",
    "deleted_times",
    "text_record",
    "whole_records",
]

_Item = TypeVar("_Item")

DELETION_FORMS: Final = ("mods", "mods2")
"""The endings of deletion files behind `X.tsfile.`, each a form of its own."""

_TIMES: Final = 17
_MOST_NESTED: Final = 32


class DeletionCondition(NamedTuple):
    """What a device has to be.

    Attributes:
        kind: the byte that it begins with; see the module.
        content: by kind nothing, a device, segment and value, conditions, devices, or a segment.
    """

    kind: int
    content: Any


class DeletionRecord(NamedTuple):
    """A record of a `.mods2`.

    Attributes:
        start: the first time that it deletes.
        end: the last one.
        name: a path pattern, or a table.
        condition: of devices of that table; None behind a path pattern.
        columns: of that table; none for all.
    """

    start: int
    end: int
    name: str
    condition: DeletionCondition | None
    columns: list[str]


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
            _, at = binary_record(content, at)
        except (IndexError, struct.error):
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
                record, at = binary_record(content, at)
                spans.append(record[:2])
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


# Each takes a position and gives what is there, and the one behind it, or an `IndexError`: it is
# torn.


def binary_record(buf: bytes, pos: int) -> tuple[DeletionRecord, int]:
    """The record of a `.mods2` at a position, and the position behind it.

    Raises:
        IndexError: it is not whole; or the struct.error of that.
        Malformed: it is none.
    """
    kind, at = buf[pos], pos + _TIMES
    if kind not in (0, 1):
        raise Malformed(f"a deletion of the unknown kind {kind}", pos)
    start, end = TIMES(buf, pos + 1)
    name, at = _name(buf, at)
    if kind == 1:
        return DeletionRecord(start, end, name, None, []), at
    condition, at = _condition(buf, at, 0)
    columns, at = _several(buf, at, _name)
    return DeletionRecord(start, end, name, condition, columns), at


def _condition(buf: bytes, pos: int, depth: int) -> tuple[DeletionCondition, int]:
    if depth > _MOST_NESTED:
        raise Malformed("conditions nested too deep", pos)
    kind, at = buf[pos], pos + 1
    content: object = None
    match kind:
        case 0:
            pass
        case 1:
            content, at = _device(buf, at)
        case 2:
            value, at = _string(buf, at)
            segment, at = _count(buf, at)
            content = segment, value
        case 3:
            content, at = _several(buf, at, lambda buf, pos: _condition(buf, pos, depth + 1))
        case 4:
            content, at = _several(buf, at, _device)
        case 5:
            content, at = _count(buf, at)
        case _:
            raise Malformed(f"a condition of the unknown kind {kind}", pos)
    return DeletionCondition(kind, content), at


def _several(
    buf: bytes, pos: int, read: Callable[[bytes, int], tuple[_Item, int]]
) -> tuple[list[_Item], int]:
    number, at = _count(buf, pos)
    return _items(buf, at, number, read)


def _device(buf: bytes, pos: int) -> tuple[tuple[str | None, ...], int]:
    number, at = read_uvarint(buf, pos)
    if number == 0:
        raise Malformed("a device without segments", pos)
    segments, at = _items(buf, at, number, _string)
    return tuple(segments), at


def _items(
    buf: bytes, pos: int, number: int, read: Callable[[bytes, int], tuple[_Item, int]]
) -> tuple[list[_Item], int]:
    items = []
    for _ in range(number):  # each takes a byte or raises
        item, pos = read(buf, pos)
        items.append(item)
    return items, pos


def _count(buf: bytes, pos: int) -> tuple[int, int]:
    zigzag, at = read_uvarint(buf, pos)
    if zigzag & 1:
        raise Malformed("a negative number", pos)
    return zigzag >> 1, at


def _name(buf: bytes, pos: int) -> tuple[str, int]:
    name, at = _string(buf, pos)
    if not name:
        raise Malformed("a deletion without a name", pos)
    return name, at


def _string(buf: bytes, pos: int) -> tuple[str | None, int]:
    zigzag, at = read_uvarint(buf, pos)
    if not zigzag & 1 and at + (zigzag >> 1) > len(buf):
        if b"\0" in buf[at:]:  # it is no text, so what is wrong is the length
            raise Malformed("a deletion with a string that spans others", pos)
        raise IndexError
    return read_vstr(buf, pos)
