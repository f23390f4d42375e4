"""The structures of a TsFile that are not pages, as bytes: statistics, headers, nodes, schemas.

The layouts are those that ``common.tsfile`` reads and describes: ``statistics``, ``series``,
``chunk_headers``, ``index``, ``footer``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from common.tsfile import DataType, Statistics, TableSchema, Value
from common.tsfile.primitives import uvarint_bytes, vstr_bytes

__all__ = [
    "ONE_PAGE",
    "SEVERAL_PAGES",
    "ChunkEntry",
    "DeviceSegments",
    "chunk_header",
    "device_bytes",
    "group_header",
    "node_bytes",
    "schema_bytes",
    "series_bytes",
    "statistics_bytes",
]

DeviceSegments: TypeAlias = tuple[str | None, ...]
"""As ``common.tsfile.Device.segments``: of version 4 its segments, of 3 a tuple of the path."""

SEVERAL_PAGES: Final = 1
ONE_PAGE: Final = 5
_GROUP: Final = b"\x00"
_TIMES: Final = struct.Struct(">qq").pack
_BOOLEAN: Final = struct.Struct(">??q").pack
_NUMBERS: Final = {
    DataType.INT32: struct.Struct(">4iq").pack,
    DataType.DATE: struct.Struct(">4iq").pack,
    DataType.INT64: struct.Struct(">4qd").pack,
    DataType.TIMESTAMP: struct.Struct(">4qd").pack,
    DataType.FLOAT: struct.Struct(">4fd").pack,
    DataType.DOUBLE: struct.Struct(">4dd").pack,
}
_OFFSET: Final = struct.Struct(">q").pack
_NODE_END: Final = struct.Struct(">qb").pack


class ChunkEntry(NamedTuple):
    """A chunk that was written: where its header begins, and what its points come to."""

    offset: int
    statistics: Statistics


def statistics_bytes(code: int, known: Statistics) -> bytes:
    """Statistics of a page, chunk or series of the data type ``code``; of no points too."""
    return uvarint_bytes(known.count) + _TIMES(known.start, known.end) + _body(code, known)


def _body(code: int, known: Statistics) -> bytes:
    if code == DataType.BOOLEAN:
        return _BOOLEAN(bool(known.first), bool(known.last), int(known.sum or 0))
    pack = _NUMBERS.get(DataType(code))
    if pack is not None:
        four = (known.min, known.max, known.first, known.last)
        numbers = (0 if number is None else number for number in (*four, known.sum))
        return pack(*numbers)  # "or 0" would make 0.0 of -0.0
    if code == DataType.TEXT:
        return _binary(known.first) + _binary(known.last)
    if code == DataType.STRING:
        values = (known.first, known.last, known.min, known.max)
        return b"".join(map(_binary, values))
    return b""


def _binary(value: Value | None) -> bytes:
    raw = value if isinstance(value, bytes) else b""
    return len(raw).to_bytes(4, "big") + raw


def device_bytes(segments: DeviceSegments, version: int) -> bytes:
    """A device as it stands in the index and before its chunks."""
    if version == 3:
        return vstr_bytes(segments[0])
    return uvarint_bytes(len(segments)) + b"".join(map(vstr_bytes, segments))


def group_header(segments: DeviceSegments, version: int) -> bytes:
    """What stands before the chunks of a device."""
    return _GROUP + device_bytes(segments, version)


def chunk_header(
    marker: int, name: str, size: int, data_type: int, compression: int, encoding: int
) -> bytes:
    """What stands before the pages of a chunk; ``size`` is theirs together, in bytes."""
    codes = bytes((data_type, compression, encoding))
    return bytes((marker,)) + vstr_bytes(name) + uvarint_bytes(size) + codes


def series_bytes(
    flag: int, name: str, code: int, whole: Statistics, chunks: Sequence[ChunkEntry]
) -> bytes:
    """TimeseriesMetadata; ``flag`` is that of the columns of aligned devices, or 0."""
    if len(chunks) == 1:
        listed = _OFFSET(chunks[0].offset)
    else:
        listed = b"".join(
            _OFFSET(chunk.offset) + statistics_bytes(code, chunk.statistics) for chunk in chunks
        )
    head = bytes((flag | (len(chunks) > 1),)) + vstr_bytes(name) + bytes((code,))
    return head + uvarint_bytes(len(listed)) + statistics_bytes(code, whole) + listed


def node_bytes(children: Sequence[tuple[bytes, int]], end: int, kind: int) -> bytes:
    """An index node of (key, offset) of its children, the last of which ends at ``end``."""
    listed = b"".join(key + _OFFSET(offset) for key, offset in children)
    return uvarint_bytes(len(children)) + listed + _NODE_END(end, kind)


def schema_bytes(table: TableSchema) -> bytes:
    """A table as the footer of version 4 has it."""
    out = bytearray(vstr_bytes(table.name) + uvarint_bytes(len(table.columns)))
    for column in table.columns:
        out += _text(column.name)
        out += bytes((column.data_type, column.encoding, column.compression))
        out += len(column.properties).to_bytes(4, "big")
        for key, value in column.properties:
            out += _text(key) + _text(value)
        out += column.category.to_bytes(4, "big")
    return bytes(out)


def _text(text: str | None) -> bytes:
    if text is None:
        return (-1).to_bytes(4, "big", signed=True)
    return _binary(text.encode())
