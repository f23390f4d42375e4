"""ZIGZAG: varints of which the lowest bit is the sign. INT32, INT64.

    blocks = block*                       the writers make one a page
    block  = uvarint length, uvarint count, length bytes: count varints

Source: apache/tsfile, ``IntZigzagEncoder``, ``LongZigzagEncoder``; the C++ writer has the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import Encoding
from receiver.points.encodings.bits import uvarint
from receiver.points.encodings.codes import BAD_COUNT, BAD_LENGTH, MORE, OVERFLOW, TRUNCATED
from receiver.points.encodings.decoder import Decoders, integers, numeric
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "decode", "decode_varints"]


@kernel
def decode(data: Any, pos: Number, end: Number, out: Any) -> Number:
    """Decode into an int32 or int64 array, until it is full or the bytes end."""
    n = 0
    while pos < end and n < len(out):
        length, at = uvarint(data, pos, end, 5)
        if at < 0:
            return n, pos, TRUNCATED if at == -1 else BAD_LENGTH
        count, at = uvarint(data, at, end, 5)
        if at < 0:
            return n, pos, TRUNCATED if at == -1 else BAD_COUNT
        stop = at + np.int64(length)
        if stop > end:
            return n, pos, TRUNCATED
        if np.int64(count) > len(out) - n:
            return n, pos, MORE
        got, pos, error = decode_varints(data, at, stop, out[n : n + np.int64(count)])
        n += got
        if error:
            return n, pos, error
        if pos != stop or got != np.int64(count):
            return n, pos, BAD_COUNT
    return n, pos, 0


@kernel
def decode_varints(data: Any, pos: Number, end: Number, out: Any) -> Number:
    """Decode bare varints into an int32 or int64 array, until it is full or the bytes end."""
    most = 10 if out.itemsize == 8 else 5
    for index in range(len(out)):
        if pos >= end:
            return index, pos, 0
        number, at = uvarint(data, pos, end, most)
        if at < 0:
            return index, pos, TRUNCATED if at == -1 else OVERFLOW
        if out.itemsize == 4 and number >> np.uint64(32):
            return index, pos, OVERFLOW
        half = np.int64(number >> np.uint64(1))
        out[index] = ~half if number & np.uint64(1) else half
        pos = at
    return len(out), pos, 0


DECODERS: Final[Decoders] = integers(
    Encoding.ZIGZAG, numeric(decode, np.int32), numeric(decode, np.int64)
)
