"""The binary schema logs of Apache IoTDB, `mlog.bin`, as lines of the text log.

The file is a row of frames, numbers big-endian:

    int32       bytes of the record
    record      a byte that says what it is, then its members
    int64       CRC-32 of the record; zero in the logs of regions from 1.0 on

A string is an int32 length and UTF-8; length -1 is none. The records, each but those of 28 and 29
with an int64 behind that says nothing here:

     3  path                                                a storage group is set
     4  path, type, encoding, compression (a byte each), int64 tlog offset, then each behind a byte
        that says whether it is there: alias, properties, tags, attributes        a series
     5  int64 TTL, path
    19  int32 count, paths                                  storage groups are deleted
    21  int32 count, paths                                  series are deleted
    28  path, int64 tlog offset
    29  path, alias

The log of a region (`<database>/<region>/mlog.bin`, from 0.13 on) has 4, 21, 28 and 29 as well, and

    40  path                                                a device, without series so far
    41  int32 that says nothing, path, int32 count, names, types, encodings, compressions, int64
        tlog offsets, then behind a byte each: aliases      series of an aligned device
    64  a deletion is prepared; 65 it is taken back         the deletion itself is 21

Up to 1.3 it has its compressions as numbers of another row, in which LZ4, ZSTD and LZMA2 follow
GZIP; no database of those uses what has these numbers in a TsFile.

The snapshot of the tree has frames of the same kind, children before their parent:

    30  name, int32 children
    31  name, alias, int64 tlog offset, int32 children, name, type, encoding, compression, int32
        count of properties, these                          a series
    32  name, int64 TTL, int32 children                     a storage group

What the text log has no line for becomes a line that is no operation, so the centre names it.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from common.digests import read_blocks
from common.errors import DamagedError
from common.formats.mtreetext import TreeNode, plain_line, series_line

__all__ = ["BinaryLog", "binary_nodes"]

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_MAX_RECORD: Final = 1 << 20
"""The database refuses a record that its buffer of a megabyte cannot hold."""
_MAX_REGION_RECORD: Final = 1 << 24
"""Regions have no such buffer; an aligned device with a hundred thousand series is a megabyte."""
_WINDOW: Final = 1 << 22
_MNODE, _MEASUREMENT, _GROUP_NODE = 30, 31, 32
_CREATED, _DELETED, _MOVED_TAGS, _RENAMED, _ALIGNED = 4, 21, 28, 29, 41
_SILENT: Final = frozenset({40, 64, 65})
_TEMPLATES, _VIEWS = "schema templates", "logical views"
_UNREAD: Final = {
    **dict.fromkeys((0, 1, 2, 38, 39, 57, 63), _TEMPLATES),
    **dict.fromkeys((66, 67, 68, 69, 70), _VIEWS),
    **dict.fromkeys(range(100, 109), "devices and attributes of tables"),
}
_OLD_COMPRESSIONS: Final = {3: 7, 4: 8, 5: 9}
"""LZ4, ZSTD and LZMA2 by their place in the row of the older servers."""
_IDENTIFIER: Final = re.compile(r"`.*`|[\w@#$:]+", re.DOTALL)


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


@dataclass
class BinaryLog:
    """A log, read frame by frame from where the last reading ended.

    Attributes:
        descriptor: of the file, open for reading.
        name: of the file, for messages.
        read: where the last whole frame ends that was read.
        region: whether it is that of a region.
        tags_at: what is added to offsets in the tlog of a region.
        unread: what is not read, with the number of its records.
    """

    descriptor: int
    name: str
    read: int = 0
    region: bool = False
    tags_at: int = 0
    unread: dict[str, int] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Lines of the text log for all whole frames, each with its end; a torn end is left out.

        Raises:
            DamagedError: what stands in the middle is no record; `read` is where that is.
        """
        end = os.fstat(self.descriptor).st_size
        size = _WINDOW
        while self.read < end:
            window = b"".join(read_blocks(self.descriptor, start=self.read, end=self.read + size))
            at = 0
            while (body := _frame(window, at, region=self.region)) is not None:
                yield from self._lines(body)
                step = _INT.size + len(body) + _LONG.size
                at += step
                self.read += step
            if at:
                continue
            if len(window) == size and size <= _frame_limit(self.region):
                size *= 4  # a frame that is longer than the window
                continue
            if _goes_on(window, 0, region=self.region):
                what = "what stands here is no record, or its checksum differs"
                raise _damaged(self.name, self.read, what)
            return

    def _lines(self, body: bytes) -> Iterator[str]:
        try:
            lines = _region_lines(_Record(body), self.tags_at) if self.region else _lines(body)
        except ValueError as error:  # of bytes that are no UTF-8 as well
            what = f"the record is not what its kind has: {error}"
            raise _damaged(self.name, self.read, what) from error
        if isinstance(lines, str):
            first = lines not in self.unread
            self.unread[lines] = self.unread.get(lines, 0) + 1
            said = f"{lines}, not read of {self.name}" if self.region else lines
            lines = [said] if first else []
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
            if _goes_on(data, at, region=False):
                raise _damaged(name, at, "what stands here is no record, or its checksum differs")
            return
        yield at, body
        at += _INT.size + len(body) + _LONG.size


def _frame_limit(region: bool) -> int:
    return _INT.size + (_MAX_REGION_RECORD if region else _MAX_RECORD) + _LONG.size


def _frame(data: bytes, at: int, *, region: bool = False) -> bytes | None:
    """The record of a sound frame, None if there is none."""
    begin = at + _INT.size
    if begin > len(data):
        return None
    (size,) = _INT.unpack_from(data, at)
    if not 0 < size <= _frame_limit(region) - _INT.size - _LONG.size:
        return None
    if begin + size + _LONG.size > len(data):
        return None
    body = data[begin : begin + size]
    checksum = _LONG.unpack_from(data, begin + size)[0]
    if checksum == 0 and region:
        return body
    return body if checksum == zlib.crc32(body) else None


def _goes_on(data: bytes, at: int, *, region: bool) -> bool:
    """Whether more than one write that was not finished stands here.

    That is what a frame may be that ends where the file does, or beyond it.
    """
    if len(data) - at > _frame_limit(region):
        return True
    for later in range(at + 1, len(data)):
        body = _frame(data, later, region=region)
        if body is not None and (not region or _is_region_record(body)):
            return True
    return False


def _is_region_record(body: bytes) -> bool:
    """Whether a record that no checksum vouches for is one: it tells of series, and of a path."""
    if body[0] not in (_CREATED, _DELETED, _MOVED_TAGS, _RENAMED, _ALIGNED):
        return False
    try:
        lines = _region_lines(_Record(body), 0)
    except ValueError:
        return False
    return bool(lines) and all(re.match(r"(?:\d+|#aligned),root\.", each) for each in lines)


def _damaged(name: str, at: int, why: str) -> DamagedError:
    return DamagedError(f"{name}, byte {at}: {why}")


# -- records -------------------------------------------------------------------------------------


def _lines(body: bytes) -> list[str] | str:
    """Lines of a record of a whole database's log; in one word what it is, if it is not read."""
    record = _Record(body)
    kind = record.byte()
    match kind:
        case 3:
            return [plain_line("2", record.text())]
        case 5:
            ttl = record.long()
            return [plain_line("10", record.text(), str(ttl))]
        case 19:
            return [plain_line("11", record.text()) for _ in range(record.count())]
    found = _series_lines(kind, record, None)
    return f"record {kind} of the binary log" if found is None else found


def _region_lines(record: _Record, tags_at: int) -> list[str] | str:
    """The same of a region's log."""
    kind = record.byte()
    if kind in _SILENT:
        return []
    if kind == _ALIGNED:
        return _aligned_lines(record, tags_at)
    found = _series_lines(kind, record, tags_at)
    return _UNREAD.get(kind, f"records {kind}") if found is None else found


def _series_lines(kind: int, record: _Record, tags_at: int | None) -> list[str] | None:
    """Lines of a record that any log may have; None if it is another.

    Args:
        kind: of the record.
        record: behind its kind.
        tags_at: of a region's log; None: it is that of a whole database.
    """
    match kind:
        case 4:
            path, codes, offset = record.text(), record.codes(), record.long()
            alias = record.text() if record.byte() else ""
            props = record.pairs() if record.byte() else {}
            if tags_at is not None:
                codes, offset = _region_codes(*codes), _shifted(offset, tags_at)
            return [series_line(path, codes, props, alias, offset)]
        case 21:
            return [plain_line("1", record.text()) for _ in range(record.count())]
        case 28:
            path = record.text()
            return [plain_line("12", path, str(_shifted(record.long(), tags_at or 0)))]
        case 29:
            path, alias = record.text(), record.text()
            return [plain_line("13", path, alias)]
    return None


def _aligned_lines(record: _Record, tags_at: int) -> list[str]:
    record.count()
    device, count = record.text(), record.count()
    names = [record.text() for _ in range(count)]
    columns = [[record.byte() for _ in names] for _ in range(3)]
    offsets = [_shifted(record.long(), tags_at) for _ in names]
    aliases = [record.text() if each else "" for each in [record.byte()] * count]
    series = zip(names, zip(*columns, strict=True), aliases, offsets, strict=True)
    return [plain_line("#aligned", device)] + [
        series_line(f"{device}.{_node_text(name)}", _region_codes(*codes), {}, alias, offset)
        for name, codes, alias, offset in series
    ]


def _node_text(name: str) -> str:
    """A name as it stands in a path: in quotes, if it would be cut there."""
    if _IDENTIFIER.fullmatch(name):
        return name
    return "`" + name.replace("`", "``") + "`"


def _region_codes(kind: int, encoding: int, compression: int) -> tuple[int, int, int]:
    return kind, encoding, _OLD_COMPRESSIONS.get(compression, compression)


def _shifted(offset: int, tags_at: int) -> int:
    return offset if offset < 0 else offset + tags_at


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
