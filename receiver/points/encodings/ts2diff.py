"""TS_2DIFF: how far each difference is above the smallest. INT32, INT64, FLOAT, DOUBLE, times.

    blocks = block*                       of at most 129 values from the Java and C++ writers
    block  = int32 k, int32 width, base, first, ceil(k * width / 8) bytes

``base`` (the smallest difference) and ``first`` (the first value) are int32 or int64. The k
differences less ``base`` are packed with ``width`` bits, the highest first; sums wrap around.

FLOAT and DOUBLE of the Java writers are scaled to integers (see ``decimal``). Those of the C++
writer are their bits, without the number of decimal places in front. The two cannot be mixed up:
read as the other, the lengths do not come out.

Source: apache/tsfile, ``DeltaBinaryEncoder``, ``FloatEncoder``; cpp ``TS2DIFFEncoder``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import DataType, Encoding
from receiver.points.encodings.bits import load, unpack
from receiver.points.encodings.codes import BAD_COUNT, BAD_WIDTH, MORE, TRUNCATED
from receiver.points.encodings.decimal import decimal
from receiver.points.encodings.decoder import Bytes, Decoded, Decoder, Decoders, integers, numeric
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "decode"]


@kernel
def decode(data: Any, pos: Number, end: Number, out: Any) -> Number:
    """Decode into an int32 or int64 array, until it is full or the bytes end."""
    size = out.itemsize
    n: Number = 0
    while pos < end and n < len(out):
        at = pos + 8 + 2 * size
        if at > end:
            return n, pos, TRUNCATED
        head = load(data, pos)
        count = np.int64(np.int32(head >> np.uint64(32)))
        width = np.int64(np.int32(head & np.uint64(0xFFFFFFFF)))
        if count < 0:
            return n, pos, BAD_COUNT
        if width < 0 or width > size * 8:
            return n, pos + 4, BAD_WIDTH
        stop = at + (count * width + 7) // 8
        if stop > end:
            return n, pos, TRUNCATED
        if count >= len(out) - n:
            return n, pos, MORE
        if size == 8:
            base = np.int64(load(data, pos + 8))
            value = np.int64(load(data, pos + 16))
        else:
            pair = load(data, pos + 8)
            base = np.int64(np.int32(pair >> np.uint64(32)))
            value = np.int64(np.int32(pair & np.uint64(0xFFFFFFFF)))
        out[n] = value
        _sum(data, at, stop, width, base, value, out[n + 1 : n + 1 + count])
        n += count + 1
        pos = stop
    return n, pos, 0


@kernel
def _sum(
    data: Any, at: Number, end: Number, width: Number, base: Number, value: Number, out: Any
) -> None:
    """Unpack a block's differences and add them up."""
    unpack(data, at, end, width, out)
    for index in range(len(out)):
        value += base + np.int64(out[index])
        out[index] = value


def _bits(integers: Decoder, dtype: type[np.generic]) -> Decoder:
    """Of the C++ writer: the bits themselves."""

    def decoder(data: Bytes, pos: int, end: int, count: int) -> Decoded:
        values, n, pos, error = integers(data, pos, end, count)
        assert isinstance(values, np.ndarray)
        return Decoded(values.view(dtype), n, pos, error)

    return decoder


def _either(scaled: Decoder, bits: Decoder) -> Decoder:
    """One or the other: whichever uses up all bytes for all values."""

    def decoder(data: Bytes, pos: int, end: int, count: int) -> Decoded:
        one = scaled(data, pos, end, count)
        if not one.error and one.n == count and one.pos == end:
            return one
        other = bits(data, pos, end, count)
        if not other.error and other.n == count and other.pos == end:
            return other
        return one

    return decoder


_INT32 = numeric(decode, np.int32)
_INT64 = numeric(decode, np.int64)

DECODERS: Final[Decoders] = {
    **integers(Encoding.TS_2DIFF, _INT32, _INT64),
    (Encoding.TS_2DIFF, DataType.FLOAT): _either(
        decimal(_INT32, np.float32), _bits(_INT32, np.float32)
    ),
    (Encoding.TS_2DIFF, DataType.DOUBLE): _either(
        decimal(_INT64, np.float64), _bits(_INT64, np.float64)
    ),
}
