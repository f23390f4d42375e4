"""The binary schema log of Apache IoTDB 0.12, `mlog.bin`, as lines of the text log.

The file is a row of frames, numbers big-endian:

    int32       bytes of the record
    record      a byte that says what it is, then its members
    int64       CRC-32 of the record

A string is an int32 length and UTF-8; length -1 is none. The records, each but the last two with
an int64 behind that says nothing here:

     3  path                                                a storage group is set
     4  path, type, encoding, compression (a byte each), int64 tlog offset, then each behind a byte
        that says whether it is there: alias, properties, tags, attributes        a series
     5  int64 TTL, path
    19  int32 count, paths                                  storage groups are deleted
    21  int32 count, paths                                  series are deleted
    28  path, int64 tlog offset
    29  path, alias

The snapshot of the tree has frames of the same kind, children before their parent:

    30  name, int32 children
    31  name, alias, int64 tlog offset, int32 children, name, type, encoding, compression, int32
        count of properties, these                          a series
    32  name, int64 TTL, int32 children                     a storage group

What the text log has no line for becomes a line that is no operation, so the centre names it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from common.errors import DamagedError
from common.mtreetext import TreeNode, plain_line, series_line

__all__ = ["binary_lines", "binary_nodes"]

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_MAX_RECORD: Final = 1 << 20
"""The database refuses a record that its buffer of a megabyte cannot hold."""
_MNODE, _MEASUREMENT, _GROUP_NODE = 30, 31, 32


class _Record:
    """Takes the members of one record off its bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise ValueError("it ends in the middle of a member")
        piece, self._at = self._data[self._at : end], end
        return piece

    def byte(self) -> int:
        return self._take(1)[0]

    def count(self) -> int:
        found: int = _INT.unpack(self._take(_INT.size))[0]
        return found

    def long(self) -> int:
        found: int = _LONG.unpack(self._take(_LONG.size))[0]
        return found

    def text(self) -> str:
        size = self.count()
        return "" if size == -1 else self._take(size).decode()

    def pairs(self) -> dict[str, str]:
        return {self.text(): self.text() for _ in range(max(0, self.count()))}

    def codes(self) -> tuple[int, int, int]:
        return self.byte(), self.byte(), self.byte()


def binary_lines(data: bytes, name: str) -> Iterator[str]:
    """The log as lines of the text log, each with its end; a torn end is left out.

    Args:
        data: of the log.
        name: of the file, for messages.

    Raises:
        DamagedError: what stands in the middle is no record.
    """
    for at, body in _frames(data, name):
        try:
            lines = _lines(_Record(body))
        except ValueError as error:  # of bytes that are no UTF-8 as well
            raise _damaged(name, at, f"the record is not what its kind has: {error}") from error
        yield from (f"{line}\n" for line in lines)


def binary_nodes(data: bytes, name: str) -> Iterator[TreeNode]:
    """The nodes of a binary snapshot of the tree, children before their parent.

    Raises:
        DamagedError: it is no whole snapshot.
    """
    end = 0
    for at, body in _frames(data, name):
        try:
            yield _node(_Record(body))
        except ValueError as error:
            raise _damaged(name, at, f"the record is not what its kind has: {error}") from error
        end = at + _INT.size + len(body) + _LONG.size
    if end != len(data):
        raise _damaged(name, end, "it is cut off")


def _frames(data: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        body = _frame(data, at)
        if body is None:
            if _goes_on(data, at):
                raise _damaged(name, at, "what stands here is no record, or its checksum differs")
            return
        yield at, body
        at += _INT.size + len(body) + _LONG.size


def _frame(data: bytes, at: int) -> bytes | None:
    """The record of a sound frame, None if there is none."""
    begin = at + _INT.size
    if begin > len(data):
        return None
    (size,) = _INT.unpack_from(data, at)
    if not 0 < size <= _MAX_RECORD or begin + size + _LONG.size > len(data):
        return None
    body = data[begin : begin + size]
    return body if _LONG.unpack_from(data, begin + size)[0] == zlib.crc32(body) else None


def _goes_on(data: bytes, at: int) -> bool:
    """Whether more than one write that was not finished stands here.

    That is what a frame may be that ends where the file does, or beyond it.
    """
    if len(data) - at > _INT.size + _MAX_RECORD + _LONG.size:
        return True
    return any(_frame(data, later) is not None for later in range(at + 1, len(data)))


def _damaged(name: str, at: int, why: str) -> DamagedError:
    return DamagedError(f"{name}, byte {at}: {why}")


# -- records -------------------------------------------------------------------------------------


def _lines(record: _Record) -> list[str]:
    kind = record.byte()
    match kind:
        case 3:
            return [plain_line("2", record.text())]
        case 4:
            path, codes, offset = record.text(), record.codes(), record.long()
            alias = record.text() if record.byte() else ""
            props = record.pairs() if record.byte() else {}
            return [series_line(path, codes, props, alias, offset)]
        case 5:
            ttl = record.long()
            return [plain_line("10", record.text(), str(ttl))]
        case 19 | 21:
            number = "11" if kind == 19 else "1"
            return [plain_line(number, record.text()) for _ in range(record.count())]
        case 28:
            path = record.text()
            return [plain_line("12", path, str(record.long()))]
        case 29:
            path, alias = record.text(), record.text()
            return [plain_line("13", path, alias)]
    return [f"record {kind} of the binary log"]


def _node(record: _Record) -> TreeNode:
    kind, name = record.byte(), record.text()
    if kind == _MNODE:
        return TreeNode(name, record.count())
    if kind == _GROUP_NODE:
        ttl = record.long()
        return TreeNode(name, record.count(), ttl=ttl)
    if kind != _MEASUREMENT:
        raise ValueError(f"{kind} is no node")
    alias, offset, children = record.text(), record.long(), record.count()
    record.text()  # the name once more
    codes = record.codes()
    return TreeNode(name, children, series=(alias, codes, record.pairs(), offset))
