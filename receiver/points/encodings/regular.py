"""REGULAR: the first value and the step, and which steps are left out. INT32, INT64, times.

    blocks = block*                       of at most 128 values
    block  = byte 0, int32 k, step, first                       k values
           | byte 1, int32 m, m bytes, int32 k, step, first     k steps, of which some were taken

The bits of the m bytes, the lowest first, say at which of the k steps there is a value; behind
them there is none. ``step`` and ``first`` are int32 or int64, sums wrap around. The writer takes
for granted that all differences are multiples of the smallest; where they are not, what it wrote
is not what it was given, and mostly not as many values.

Source: apache/tsfile, ``RegularDataEncoder``, ``RegularDataDecoder``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import Encoding
from receiver.points.encodings.bits import load, take
from receiver.points.encodings.codes import BAD_COUNT, BAD_LENGTH, BAD_MARK, MORE, TRUNCATED
from receiver.points.encodings.decoder import Decoders, integers, numeric
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "decode"]


@kernel
def decode(data: Any, pos: Number, end: Number, out: Any) -> Number:
    """Decode into an int32 or int64 array, until it is full or the bytes end."""
    size = out.itemsize
    n = 0
    while pos < end and n < len(out):
        mark = data[pos]
        bits = pos + 5
        length = 0
        if mark > 1:
            return n, pos, BAD_MARK
        if mark == 1:
            if bits > end:
                return n, pos, TRUNCATED
            length = _int32(data, pos + 1, end)
            if length < 0:
                return n, pos + 1, BAD_LENGTH
            at = bits + length
        else:
            at = pos + 1
        if at + 4 + 2 * size > end:
            return n, pos, TRUNCATED
        count = _int32(data, at, end)
        if count < 1:
            return n, at, BAD_COUNT
        if size == 8:
            step = np.int64(load(data, at + 4))
            first = np.int64(load(data, at + 12))
        else:
            step = _int32(data, at + 4, end)
            first = _int32(data, at + 8, end)
        if mark == 0:
            if count > len(out) - n:
                return n, pos, MORE
            for index in range(count):
                out[n + index] = first + index * step
            n += count
        else:
            for index in range(min(count, length * 8)):
                if (data[bits + (index >> 3)] >> (index & 7)) & 1:
                    if n == len(out):
                        return n, pos, MORE
                    out[n] = first + index * step
                    n += 1
        pos = at + 4 + 2 * size
    return n, pos, 0


@kernel
def _int32(data: Any, at: Number, end: Number) -> Number:
    """A signed number of four bytes, as int64."""
    return np.int64(np.int32(take(data, at * 8, 32, end)))


DECODERS: Final[Decoders] = integers(
    Encoding.REGULAR, numeric(decode, np.int32), numeric(decode, np.int64)
)
