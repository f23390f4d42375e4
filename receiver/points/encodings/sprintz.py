"""SPRINTZ: blocks of 9 values, 8 of them as errors of a prediction. INT32, INT64, FLOAT, DOUBLE.

    page    = block* [rest]
    block   = byte width (1 to 32 or 64), first, 8 * width bits
    rest    = byte 0x80 | count (1 to 8), the values: of integers RLE, of floats GORILLA

``first`` is a uvarint of INT32, otherwise the value as it is, the highest byte first. The errors
stand packed, the highest bit first: an error e > 0 as 2e - 1, any other as -2e. Floats are
predicted as the integers of their bits, all NaN being one. The prediction is the last value plus
a share of the last difference; the share is learnt within the block. (A writer can be configured
to predict the last value alone, ``delta``. The file does not say so, no released default is it,
and it is not read.)

An error of more than half of what the integer holds does not fit into its form: the writers let
it overflow, and what a database reads is not what it was given. Among floats a change of sign
within a block is enough. Statistics are made of what it was given, so they are not met
(``is_rounded``); what is decoded here is what the database reads.

Source: apache/tsfile, ``IntSprintzEncoder`` and its kin, ``IntSprintzDecoder`` and its kin,
``IntFire``, ``LongFire``; the same in all versions from 1.1.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import DataType, Encoding
from receiver.points.encodings import gorilla, rle
from receiver.points.encodings.bits import take, unpack, uvarint
from receiver.points.encodings.codes import (
    BAD_COUNT,
    BAD_LENGTH,
    BAD_WIDTH,
    FEWER,
    MORE,
    OVERFLOW,
    TRUNCATED,
)
from receiver.points.encodings.decoder import Decoders, integers, numeric
from receiver.points.encodings.gorilla import END_DOUBLE, END_FLOAT
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "decode_32", "decode_64"]

_decode_rle = rle.decode
_decode_gorilla_32 = gorilla.decode_32
_decode_gorilla_64 = gorilla.decode_64
_INTEGER: Final = np.int64(0)
"""In place of the bits of a float's end: the values are integers."""


@kernel
def decode_32(data: Any, pos: Number, end: Number, out: Any, last: Number) -> Number:
    """Decode into an int32 array; ``last`` is the end's bits of floats, 0 of integers."""
    n = np.int64(0)  # not a literal, for which numba would compile what it is handed to again
    while n < len(out) and pos < end:
        head = np.int64(data[pos])
        if head & 0x80:
            count = head & 0x7F
            if count == 0 or count > 8:
                return n, pos, BAD_COUNT
            if count > len(out) - n:
                return n, pos, MORE
            if last == 0:
                m, pos, error = _decode_rle(data, pos + 1, end, out[n : n + count])
            else:
                m, pos, error = _decode_gorilla_32(data, pos + 1, end, out[n : n + count], last)
            n += m
            if error:
                return n, pos, error
            if m < count:
                return n, pos, FEWER
            continue
        if head == 0 or head > 32:
            return n, pos, BAD_WIDTH
        if last == 0:
            number, at = uvarint(data, pos + 1, end, 5)
            if at < 0:
                return n, pos, TRUNCATED if at == -1 else BAD_LENGTH
            if number >> np.uint64(32):
                return n, pos, OVERFLOW
        else:
            at = pos + 5
            number = take(data, (pos + 1) * 8, 32, end)
        if at + head > end:
            return n, pos, TRUNCATED
        if len(out) - n < 9:
            return n, pos, MORE
        out[n] = np.int32(np.uint32(number))
        unpack(data, at, at + head, head, out[n + 1 : n + 9])
        _predict_32(out, n, last != 0)
        n += 9
        pos = at + head
    return n, pos, 0


@kernel
def _predict_32(out: Any, n: Number, floating: Number) -> None:
    """Make values of the first one and the 8 codes behind it."""
    before = out[n]
    if floating and (before & 0x7FFFFFFF) > 0x7F800000:
        before = np.int32(END_FLOAT)
    learnt = np.int32(0)
    change = np.int32(0)
    for index in range(n + 1, n + 9):
        code = out[index]
        if code & 1:
            error = np.int32(np.int64(np.int32(np.int64(code) + 1)) >> 1)
        else:
            error = np.int32(np.int64(np.int32(-np.int64(code))) >> 1)
        share = np.int64(np.int32((np.int64(learnt) >> 2) * np.int64(change))) >> 8
        value = np.int32(np.int64(before) + share + np.int64(error))
        low = np.int64(change)
        learnt = np.int32(np.int64(learnt) + (low if error > 0 else -low))
        change = np.int32(np.int64(value) - np.int64(before))
        before = value
        out[index] = value


@kernel
def decode_64(data: Any, pos: Number, end: Number, out: Any, last: Number) -> Number:
    """Decode into an int64 array; ``last`` is the end's bits of floats, 0 of integers."""
    n = np.int64(0)  # not a literal, for which numba would compile what it is handed to again
    while n < len(out) and pos < end:
        head = np.int64(data[pos])
        if head & 0x80:
            count = head & 0x7F
            if count == 0 or count > 8:
                return n, pos, BAD_COUNT
            if count > len(out) - n:
                return n, pos, MORE
            if last == 0:
                m, pos, error = _decode_rle(data, pos + 1, end, out[n : n + count])
            else:
                m, pos, error = _decode_gorilla_64(data, pos + 1, end, out[n : n + count], last)
            n += m
            if error:
                return n, pos, error
            if m < count:
                return n, pos, FEWER
            continue
        if head == 0 or head > 64:
            return n, pos, BAD_WIDTH
        at = pos + 9
        if at + head > end:
            return n, pos, TRUNCATED
        if len(out) - n < 9:
            return n, pos, MORE
        out[n] = np.int64(take(data, (pos + 1) * 8, 64, end))
        unpack(data, at, at + head, head, out[n + 1 : n + 9])
        _predict_64(out, n, last != 0)
        n += 9
        pos = at + head
    return n, pos, 0


@kernel
def _predict_64(out: Any, n: Number, floating: Number) -> None:
    """Make values of the first one and the 8 codes behind it."""
    before = out[n]
    if floating and (before & np.int64(0x7FFFFFFFFFFFFFFF)) > np.int64(0x7FF0000000000000):
        before = END_DOUBLE
    learnt = np.int32(0)  # what is learnt has 32 bits here as well
    change = np.int64(0)
    for index in range(n + 1, n + 9):
        code = out[index]
        if code & 1:
            error = np.int64(np.uint64(code) + np.uint64(1)) >> 1
        else:
            error = np.int64(np.uint64(0) - np.uint64(code)) >> 1
        share = np.int64(np.uint64(np.int64(learnt) >> 3) * np.uint64(change)) >> 16
        value = np.int64(np.uint64(before) + np.uint64(share) + np.uint64(error))
        low = np.int64(np.int32(change))
        learnt = np.int32(np.int64(learnt) + (low if error > 0 else -low))
        change = np.int64(np.uint64(value) - np.uint64(before))
        before = value
        out[index] = value


DECODERS: Final[Decoders] = {
    **integers(
        Encoding.SPRINTZ,
        numeric(decode_32, np.int32, np.int32, _INTEGER),
        numeric(decode_64, np.int64, np.int64, _INTEGER),
        times=False,
    ),
    (Encoding.SPRINTZ, DataType.FLOAT): numeric(decode_32, np.int32, np.float32, END_FLOAT),
    (Encoding.SPRINTZ, DataType.DOUBLE): numeric(decode_64, np.int64, np.float64, END_DOUBLE),
}
