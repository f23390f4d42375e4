"""RLBE: differences, grouped by their length in bits. INT32, INT64, FLOAT, DOUBLE.

    page    = block*                          a block begins with a byte
    block   = 32 bits count, group*, zeros up to the next byte
    group   = 6 bits length (7 of 64-bit values), how many, so many times ``length`` bits

The first value of a block is a difference from nothing. How many stands in Fibonacci code: bit j
for the number 1, 2, 3, 5, 8..., the smallest first, and one more bit behind the last set one. A
number has exactly ``length`` bits: its highest one is set, but for 0, which has one bit, and for
full length, where the highest is set and stands as 0 (writers compare it as a signed number).

Floats come in two forms that have the same code in the file. From 2.1 on (apache/tsfile) their
bits are treated as integers. Before, differences were taken between the floats themselves, which
rounds: what is read is not what was given to the writer, and an infinity leaves NaN behind it to
the block's end. Version 3 of the file is always the old form; in version 4 both occur, and only
the statistics can tell them apart.

Source: apache/tsfile, ``IntRLBE``, ``LongRLBE``; ``FloatRLBE``, ``DoubleRLBE`` of 2.0.3 and 2.1.0.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import DataType, Encoding
from receiver.points.encodings.bits import take, window
from receiver.points.encodings.codes import BAD_COUNT, BAD_MARK, BAD_WIDTH, MORE, TRUNCATED
from receiver.points.encodings.decoder import Decoders, integers, numeric
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "OLD_DECODERS", "decode", "decode_old"]

_LONGEST_CODE: Final = 45
"""Bits of the Fibonacci code of the largest int32."""


@kernel
def _fibonacci(data: Any, bit: Number, end: Number) -> Number:
    """(number, position behind it), the number 0 if the code is too long or not there."""
    word = window(data, bit, end)
    number = np.int64(0)
    low, high = np.int64(1), np.int64(2)
    before = np.uint64(0)
    for index in range(_LONGEST_CODE + 1):
        now = word >> np.uint64(63)
        if now and before:
            return number, bit + index + 1
        if now:
            number += low
        low, high = high, low + high
        before = now
        word <<= np.uint64(1)
    return np.int64(0), bit


@kernel
def _group(data: Any, bit: Number, end: Number, whole: Number) -> Number:
    """The head of a group: (length, how many, position behind, error)."""
    wide = 6 if whole == 32 else 7
    if bit + wide > end * 8:
        return np.int64(0), np.int64(0), bit, TRUNCATED
    length = np.int64(window(data, bit, end) >> np.uint64(64 - wide))
    if length == 0 or length > whole:
        return length, np.int64(0), bit, BAD_WIDTH
    count, bit = _fibonacci(data, bit + wide, end)
    if count == 0:
        return length, count, bit, TRUNCATED if bit + _LONGEST_CODE >= end * 8 else BAD_COUNT
    if count > (end * 8 - bit) // length:
        return length, count, bit, TRUNCATED
    return length, count, bit, 0


@kernel
def _number(data: Any, bit: Number, length: Number, end: Number, whole: Number) -> Number:
    """(the number at ``bit`` as uint64, whether it has the highest bit that it should have)."""
    number = take(data, bit, length, end)
    highest = np.uint64(1) << np.uint64(length - 1)
    if length == whole:
        return number | highest, number & highest == 0
    return number, length == 1 or number & highest != 0


@kernel
def decode(data: Any, pos: Number, end: Number, out: Any) -> Number:
    """Decode into an int32 or int64 array."""
    whole = out.itemsize * 8
    n = 0
    while n < len(out) and pos < end:
        if pos + 4 > end:
            return n, pos, TRUNCATED
        left = np.int64(take(data, pos * 8, 32, end))
        if left == 0:
            return n, pos, BAD_COUNT
        if left > len(out) - n:
            return n, pos, MORE
        bit = (pos + 4) * 8
        value = np.uint64(0)
        while left > 0:
            length, count, bit, error = _group(data, bit, end, whole)
            if error:
                return n, bit >> 3, error
            if count > left:
                return n, bit >> 3, BAD_COUNT
            for index in range(n, n + count):
                number, right = _number(data, bit, length, end, whole)
                if not right:
                    return index, bit >> 3, BAD_MARK
                value += number
                out[index] = np.int64(value)
                bit += length
            n += count
            left -= count
        pos = (bit + 7) >> 3
    return n, pos, 0


@kernel
def decode_old(data: Any, pos: Number, end: Number, out: Any) -> Number:
    """Decode the old form into a float32 or float64 array."""
    whole = out.itemsize * 8
    bits32 = np.empty(1, np.uint32)
    bits64 = np.empty(1, np.uint64)
    number32 = bits32.view(np.float32)
    number64 = bits64.view(np.float64)
    n = 0
    while n < len(out) and pos < end:
        if pos + 4 > end:
            return n, pos, TRUNCATED
        left = np.int64(take(data, pos * 8, 32, end))
        if left == 0:
            return n, pos, BAD_COUNT
        if left > len(out) - n:
            return n, pos, MORE
        bit = (pos + 4) * 8
        first = n
        while left > 0:
            length, count, bit, error = _group(data, bit, end, whole)
            if error:
                return n, bit >> 3, error
            if count > left:
                return n, bit >> 3, BAD_COUNT
            for index in range(n, n + count):
                number, right = _number(data, bit, length, end, whole)
                if not right:
                    return index, bit >> 3, BAD_MARK
                if whole == 32:
                    bits32[0] = np.uint32(number)
                    out[index] = number32[0]
                else:
                    bits64[0] = number
                    out[index] = number64[0]
                if index > first:  # in the type's own arithmetic, as the writer's reader does
                    out[index] = out[index - 1] + out[index]
                bit += length
            n += count
            left -= count
        pos = (bit + 7) >> 3
    return n, pos, 0


DECODERS: Final[Decoders] = {
    **integers(Encoding.RLBE, numeric(decode, np.int32), numeric(decode, np.int64), times=False),
    (Encoding.RLBE, DataType.FLOAT): numeric(decode, np.int32, np.float32),
    (Encoding.RLBE, DataType.DOUBLE): numeric(decode, np.int64, np.float64),
}
OLD_DECODERS: Final[Decoders] = {
    (Encoding.RLBE, DataType.FLOAT): numeric(decode_old, np.float32),
    (Encoding.RLBE, DataType.DOUBLE): numeric(decode_old, np.float64),
}
"""Of the form before 2.1, where it differs."""
