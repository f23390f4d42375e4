"""RLE: runs of one value and runs of packed bits. BOOLEAN, INT32, INT64, FLOAT, DOUBLE.

    blocks  = block*                      the Java writers make one a page
    block   = uvarint length, length bytes: byte width, run*
    run     = uvarint 2k,     value       the value k times, in ceil(width / 8) bytes
            | uvarint 2k + 1, byte last, k * width bytes
                                          k groups of 8 packed values, of the last group ``last``

A repeated INT32 (BOOLEAN is 0 or 1, FLOAT is scaled to INT32) stands with its lowest byte first,
a repeated INT64 (DOUBLE is scaled to INT64) with its highest first. Packed bits begin with the
highest. A negative number takes the whole width.

Source: apache/tsfile, ``RleEncoder``, ``RleDecoder``, ``ReadWriteForEncodingUtils``; of the C++
writer ``BitPackEncoder``, where a width of 0 (all values are 0) occurs.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import DataType, Encoding
from receiver.points.encodings.bits import unpack, uvarint
from receiver.points.encodings.codes import (
    BAD_COUNT,
    BAD_LENGTH,
    BAD_WIDTH,
    MORE,
    TRUNCATED,
)
from receiver.points.encodings.decimal import decimal
from receiver.points.encodings.decoder import Bytes, Decoded, Decoders, integers, numeric
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "decode"]


@kernel
def decode(data: Any, pos: Number, end: Number, out: Any) -> Number:
    """Decode into an int32 or int64 array, until it is full or the bytes end."""
    whole = out.itemsize * 8
    n = np.int64(0)  # not a literal, for which numba would compile what it is handed to again
    while pos < end and n < len(out):
        length, at = uvarint(data, pos, end, 5)
        if at < 0:
            return n, pos, TRUNCATED if at == -1 else BAD_LENGTH
        stop = at + np.int64(length)
        if stop > end:
            return n, pos, TRUNCATED
        pos = at
        if pos == stop:
            continue
        width = np.int64(data[pos])
        pos += 1
        if width > whole:
            return n, pos - 1, BAD_WIDTH
        while pos < stop:
            n, pos, error = _run(data, pos, stop, width, out, n)
            if error:
                return n, pos, error
    return n, pos, 0


@kernel
def _run(data: Any, pos: Number, end: Number, width: Number, out: Any, n: Number) -> Number:
    """One run: (values so far, position behind, error)."""
    header, at = uvarint(data, pos, end, 5)
    if at < 0:
        return n, pos, TRUNCATED if at == -1 else BAD_COUNT
    count = np.int64(header >> np.uint64(1))
    if header & np.uint64(1):
        if at >= end:
            return n, pos, TRUNCATED
        last = np.int64(data[at])
        at += 1
        if count == 0 or last > 8:
            return n, pos, BAD_COUNT
        stop = at + count * width
        values = (count - 1) * 8 + last
        if stop > end:
            return n, pos, TRUNCATED
        if values > len(out) - n:
            return n, pos, MORE
        unpack(data, at, stop, width, out[n : n + values])
        return n + values, stop, 0
    size = (width + 7) >> 3
    if at + size > end:
        return n, pos, TRUNCATED
    if count > len(out) - n:
        return n, pos, MORE
    value = np.uint64(0)
    for index in range(size):
        if out.itemsize == 4:
            value |= np.uint64(data[at + index]) << np.uint64(8 * index)
        else:
            value = (value << np.uint64(8)) | np.uint64(data[at + index])
    for index in range(n, n + count):
        out[index] = np.int64(value)
    return n + count, at + size, 0


def _booleans(data: Bytes, pos: int, end: int, count: int) -> Decoded:
    values = np.empty(count, np.int32)
    n, pos, error = decode(data, pos, end, values)
    return Decoded((values[:n] != 0).view(np.uint8), n, pos, error)


_INT32 = numeric(decode, np.int32)
_INT64 = numeric(decode, np.int64)

DECODERS: Final[Decoders] = {
    (Encoding.RLE, DataType.BOOLEAN): _booleans,
    **integers(Encoding.RLE, _INT32, _INT64),
    (Encoding.RLE, DataType.FLOAT): decimal(_INT32, np.float32),
    (Encoding.RLE, DataType.DOUBLE): decimal(_INT64, np.float64),
}
