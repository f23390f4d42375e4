"""Statistics of a series or chunk.

Layout: uvarint count, int64 start, int64 end, then a body that depends on the data type.
Source: apache/tsfile, ``file.metadata.statistics``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from common.tsfile.layout import DataType
from common.tsfile.primitives import INT32, TIMES, Malformed, read_bin, read_uvarint

__all__ = ["BODY_SIZES", "Statistics", "Value", "body_end", "read_body", "read_statistics"]

Value: TypeAlias = bool | int | float | bytes

_BINARIES: Final[dict[int, int]] = {DataType.TEXT: 2, DataType.STRING: 4}
_UNKNOWN: Final = -9
_FIXED: Final[dict[int, struct.Struct]] = {
    DataType.BOOLEAN: struct.Struct(">??q"),
    DataType.INT32: struct.Struct(">4iq"),
    DataType.INT64: struct.Struct(">4qd"),
    DataType.FLOAT: struct.Struct(">4fd"),
    DataType.DOUBLE: struct.Struct(">4dd"),
    DataType.VECTOR: struct.Struct(">"),
    DataType.TIMESTAMP: struct.Struct(">4qd"),
    DataType.DATE: struct.Struct(">4iq"),
    DataType.BLOB: struct.Struct(">"),
    DataType.OBJECT: struct.Struct(">"),  # assumed: no file of it was seen
}


def _body_size(code: int) -> int:
    if code in _FIXED:
        return _FIXED[code].size
    return -_BINARIES[code] if code in _BINARIES else _UNKNOWN


BODY_SIZES: Final = tuple(_body_size(code) for code in range(256))
"""Bytes of a body by type code; -n: n binaries; the rest of the negative: no such type."""


class Statistics(msgspec.Struct, frozen=True):
    """What the file says of some points of one column.

    Times are the file's integers, in whatever unit its writer used. Of TEXT there is no minimum
    and maximum, of BLOB and of time columns nothing but count and times; a BOOLEAN's sum counts
    the true ones. Strings are the raw bytes. Without points (count 0) all else means nothing.
    """

    count: int
    start: int
    end: int
    first: Value | None = None
    last: Value | None = None
    min: Value | None = None
    max: Value | None = None
    sum: int | float | None = None


def body_end(buf: bytes, pos: int, code: int) -> int:
    """The position behind the body at ``pos`` of a type with binaries.

    Raises:
        Malformed: an unknown type, or a length that leaves the buffer.
    """
    binaries = BODY_SIZES[code]
    if binaries == _UNKNOWN:
        raise Malformed(f"statistics of the unknown data type {code}", pos)
    if binaries >= 0:
        return pos + binaries
    for _ in range(-binaries):
        (length,) = INT32(buf, pos)
        if length < 0 or pos + 4 + length > len(buf):
            raise Malformed(f"a statistics value of {length} bytes, more than is left", pos)
        pos += 4 + length
    return pos


def read_body(
    buf: bytes, pos: int, code: int
) -> tuple[Value | None, Value | None, Value | None, Value | None, int | float | None]:
    """Read the body at ``pos``: first, last, min, max, sum."""
    if code in _BINARIES:
        values: list[Value | None] = []
        for _ in range(_BINARIES[code]):
            value, pos = read_bin(buf, pos)
            values.append(value)
        first, last, low, high = (*values, None, None)[:4]
        return first, last, low, high, None
    numbers = _FIXED[code].unpack_from(buf, pos)
    return _ORDERS[len(numbers)](numbers)


_ORDERS: Final[dict[int, Callable[[tuple[Any, ...]], tuple[Any, Any, Any, Any, Any]]]] = {
    0: lambda _: (None, None, None, None, None),
    3: lambda n: (n[0], n[1], None, None, n[2]),
    5: lambda n: (n[2], n[3], n[0], n[1], n[4]),
}


def read_statistics(buf: bytes, pos: int, code: int) -> tuple[Statistics, int]:
    """Read Statistics; return them and the position behind."""
    count, at = read_uvarint(buf, pos)
    start, end = TIMES(buf, at)
    body = at + 16
    return Statistics(count, start, end, *read_body(buf, body, code)), body_end(buf, body, code)
