"""The files that hold deletions: ``.mods`` of 1.x (text) and ``.mods2`` of 2.x (binary).

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

Both are only ever appended to, so a crash leaves the beginning of a record at the end: what does
not end there is dropped, and said. Anything else that cannot be read is damage. A torn binary
record and one whose length is damaged both run off the end; it is torn if what is there of its
last string is text, as no string spans a record (every one has zero bytes). Source: apache/iotdb,
``LocalTextModificationAccessor``, ``ModificationFile``, ``ModEntry``, ``IDPredicate`` (in newer
ones ``TagPredicate``).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from common.tsfile.deletion_records import text_record
from common.tsfile.primitives import TIMES, Malformed, read_uvarint, read_vstr
from receiver.points.deletion_entries import (
    AllOf,
    AnyDevice,
    Deletion,
    DeviceIn,
    PathPattern,
    TableSeries,
    TagIs,
    TagNotNull,
    TagPredicate,
    Tags,
    without_trailing_nulls,
)
from receiver.points.errors import DamagedData, DataPlace

__all__ = ["DeletionFile", "parse_binary", "parse_text"]

_Item = TypeVar("_Item")

_MOST_NESTED: Final = 32
_TABLE: Final = 0
_TREE: Final = 1
_NUL: Final = b"\0"


@dataclasses.dataclass(frozen=True, slots=True)
class DeletionFile:
    """What a file of deletions holds.

    Attributes:
        name: of the file, for people.
        entries: its whole records.
        dropped: a sentence about the torn record at its end; empty if it ends with a whole one.
    """

    name: str
    entries: tuple[Deletion, ...]
    dropped: str = ""


def parse_text(content: bytes, name: str) -> DeletionFile:
    """Parse a ``.mods`` file.

    Raises:
        DamagedData: a line other than a torn last one is no deletion.
    """
    entries: list[Deletion] = []
    pos = 0
    while pos < len(content):
        end = content.find(b"\n", pos)
        if end < 0:
            return DeletionFile(name, tuple(entries), _torn(name, pos, len(content)))
        line = content[pos:end].removesuffix(b"\r")
        if line:
            entries.append(_parse_line(line, pos, name))
        pos = end + 1
    return DeletionFile(name, tuple(entries))


def _parse_line(line: bytes, pos: int, name: str) -> Deletion:
    try:
        path, start, end, offset = text_record(line, pos)
    except Malformed as bad:
        _damaged(bad.what, name, bad.at)
    return Deletion(PathPattern(path), start, end, offset)


def parse_binary(content: bytes, name: str, *, start: int = 0) -> DeletionFile:
    """Parse a ``.mods2`` file.

    Args:
        content: of the file.
        name: of the file, for people.
        start: where the first record of interest begins; of a shared file.

    Raises:
        DamagedData: a record is none, and is not a torn one at the end.
    """
    entries: list[Deletion] = []
    pos = start
    while pos < len(content):
        try:
            entry, pos = _parse_record(content, pos)
        except _Torn as torn:
            if _NUL in content[torn.text_at :]:
                _damaged("a deletion with a string that spans others", name, pos)
            return DeletionFile(name, tuple(entries), _torn(name, pos, len(content)))
        except Malformed as bad:
            _damaged(bad.what, name, bad.at)
        entries.append(entry)
    return DeletionFile(name, tuple(entries))


class _Torn(Exception):
    """The bytes end within a record; ``text_at`` is where its last string begins, if in one."""

    def __init__(self, text_at: int) -> None:
        super().__init__()
        self.text_at = text_at


def _parse_record(buf: bytes, pos: int) -> tuple[Deletion, int]:
    kind = buf[pos]
    if kind not in (_TABLE, _TREE):
        raise Malformed(f"a deletion of the unknown kind {kind}", pos)
    try:
        start, end = TIMES(buf, pos + 1)
    except struct.error:
        raise _Torn(len(buf)) from None
    at = pos + 17
    if kind == _TREE:
        pattern, at = _name(buf, at)
        return Deletion(PathPattern(pattern), start, end), at
    table, at = _name(buf, at)
    tags, at = _condition(buf, at, 0)
    columns, at = _several(buf, at, _name)
    return Deletion(TableSeries(table, tags, frozenset(columns)), start, end), at


def _condition(buf: bytes, pos: int, depth: int) -> tuple[TagPredicate, int]:
    if depth > _MOST_NESTED:
        raise Malformed("conditions nested too deep", pos)
    if pos >= len(buf):
        raise _Torn(len(buf))
    kind, at = buf[pos], pos + 1
    if kind == 0:
        return AnyDevice(), at
    if kind == 1:
        device, at = _device(buf, at)
        return DeviceIn(frozenset({device})), at
    if kind == 2:
        value, at = _string(buf, at)
        segment, at = _count(buf, at)
        return TagIs(segment, value), at
    if kind == 3:
        parts, at = _several(buf, at, lambda buf, pos: _condition(buf, pos, depth + 1))
        return AllOf(tuple(parts)), at
    if kind == 4:
        devices, at = _several(buf, at, _device)
        return DeviceIn(frozenset(devices)), at
    if kind == 5:
        segment, at = _count(buf, at)
        return TagNotNull(segment), at
    raise Malformed(f"a condition of the unknown kind {kind}", pos)


def _several(
    buf: bytes, pos: int, read: Callable[[bytes, int], tuple[_Item, int]]
) -> tuple[list[_Item], int]:
    number, at = _count(buf, pos)
    return _items(buf, at, number, read)


def _device(buf: bytes, pos: int) -> tuple[Tags, int]:
    number, at = _uvarint(buf, pos)
    if number == 0:
        raise Malformed("a device without segments", pos)
    segments, at = _items(buf, at, number, _string)
    return without_trailing_nulls(tuple(segments)), at


def _items(
    buf: bytes, pos: int, number: int, read: Callable[[bytes, int], tuple[_Item, int]]
) -> tuple[list[_Item], int]:
    items = []
    for _ in range(number):  # each takes a byte or raises
        item, pos = read(buf, pos)
        items.append(item)
    return items, pos


def _count(buf: bytes, pos: int) -> tuple[int, int]:
    zigzag, at = _uvarint(buf, pos)
    if zigzag & 1:
        raise Malformed("a negative number", pos)
    return zigzag >> 1, at


def _uvarint(buf: bytes, pos: int) -> tuple[int, int]:
    try:
        return read_uvarint(buf, pos)
    except IndexError:
        raise _Torn(len(buf)) from None


def _name(buf: bytes, pos: int) -> tuple[str, int]:
    name, at = _string(buf, pos)
    if not name:
        raise Malformed("a deletion without a name", pos)
    return name, at


def _string(buf: bytes, pos: int) -> tuple[str | None, int]:
    zigzag, at = _uvarint(buf, pos)
    if not zigzag & 1 and at + (zigzag >> 1) > len(buf):
        raise _Torn(at)
    return read_vstr(buf, pos)


def _torn(name: str, pos: int, size: int) -> str:
    return f"{name} ends within a deletion: its last {size - pos} bytes, from {pos} on, are dropped"


def _damaged(what: str, name: str, pos: int) -> NoReturn:
    raise DamagedData(what, DataPlace(name, offset=pos))
