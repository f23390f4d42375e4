"""CHIMP: XOR with one of the last 64 or 128 values. INT32, INT64, FLOAT, DOUBLE.

The first value stands whole, then for each next one (the highest bit first):

    00 <which>                           the same as that value
    01 <which> <lead> <length> <bits>    XOR with it, without the zeros behind
    10 <bits>                            XOR with the last value, ``lead`` as it was
    11 <lead> <bits>                     XOR with the last value

``which`` has 6 bits of a value of 32, 7 of one of 64: a place in the ring in which the values
before stand, the first one at 0. ``lead`` has 3 bits and stands for 0, 8, 12, 16, 18, 20, 22 or 24
zeros in front; ``length`` has 5 or 6 bits, 0 means all. Then comes the end, a value like any
other: the smallest integer, or the one NaN of Java; and what is left of the byte, or a whole one
if nothing is left. It is a legal value as well, so only the count says which one is the end.

Source: apache/tsfile, ``IntChimpEncoder``, ``LongChimpEncoder``; the same in all versions from 1.1.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import Encoding
from receiver.points.encodings.bits import take, window
from receiver.points.encodings.codes import BAD_INDEX, BAD_WIDTH, MORE, TRUNCATED
from receiver.points.encodings.decoder import Decoders
from receiver.points.encodings.gorilla import bit_decoders
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "decode_32", "decode_64"]

_LEAD: Final = np.array([0, 8, 12, 16, 18, 20, 22, 24], np.int64)


@kernel
def decode_64(data: Any, pos: Number, end: Number, out: Any, last: Number) -> Number:
    """Decode values of 64 bits into an int64 array; ``last`` is the end's bits."""
    if end - pos < 8:
        return 0, pos, TRUNCATED
    stored = take(data, pos * 8, 64, end)
    bit = pos * 8 + 64
    lead: Number = np.int64(-1)
    for index in range(len(out)):
        out[index] = np.int64(stored)
        word = window(data, bit, end)
        case = word >> np.uint64(62)
        if case >= np.uint64(2):
            if case == np.uint64(3):
                lead = _LEAD[(word >> np.uint64(59)) & np.uint64(7)]
                bit += 5
            else:
                bit += 2
            if lead < 0:
                return index + 1, bit >> 3, BAD_WIDTH
            stored ^= take(data, bit, 64 - lead, end)
            bit += 64 - lead
        else:
            # what stands in a place of the ring was written a whole number of rings before
            back = (index - np.int64((word >> np.uint64(55)) & np.uint64(127))) & 127
            if back > index:
                return index + 1, bit >> 3, BAD_INDEX
            stored = np.uint64(out[index - back])
            bit += 9
            if case == np.uint64(1):
                lead = _LEAD[(word >> np.uint64(52)) & np.uint64(7)]
                length: Number = np.int64((word >> np.uint64(46)) & np.uint64(63))
                length = 64 if length == 0 else length
                bit += 9
                trailing = 64 - lead - length
                if trailing < 0:
                    return index + 1, bit >> 3, BAD_WIDTH
                stored ^= take(data, bit, length, end) << np.uint64(trailing)
                bit += length
        if bit >= end * 8:
            return index + 1, end, TRUNCATED
    if np.int64(stored) != last:
        return len(out), bit >> 3, MORE
    return len(out), (bit >> 3) + 1, 0


@kernel
def decode_32(data: Any, pos: Number, end: Number, out: Any, last: Number) -> Number:
    """Decode values of 32 bits into an int32 array; ``last`` is the end's bits."""
    if end - pos < 4:
        return 0, pos, TRUNCATED
    stored = np.uint32(take(data, pos * 8, 32, end))
    bit = pos * 8 + 32
    lead: Number = np.int64(-1)
    for index in range(len(out)):
        out[index] = np.int32(stored)
        word = window(data, bit, end)
        case = word >> np.uint64(62)
        if case >= np.uint64(2):
            if case == np.uint64(3):
                lead = _LEAD[(word >> np.uint64(59)) & np.uint64(7)]
                bit += 5
                word <<= np.uint64(5)
            else:
                bit += 2
                word <<= np.uint64(2)
            if lead < 0:
                return index + 1, bit >> 3, BAD_WIDTH
            stored ^= np.uint32(word >> np.uint64(32 + lead))
            bit += 32 - lead
        else:
            back = (index - np.int64((word >> np.uint64(56)) & np.uint64(63))) & 63
            if back > index:
                return index + 1, bit >> 3, BAD_INDEX
            stored = np.uint32(out[index - back])
            bit += 8
            if case == np.uint64(1):
                lead = _LEAD[(word >> np.uint64(53)) & np.uint64(7)]
                length: Number = np.int64((word >> np.uint64(48)) & np.uint64(31))
                length = 32 if length == 0 else length
                trailing = 32 - lead - length
                bit += 8
                if trailing < 0:
                    return index + 1, bit >> 3, BAD_WIDTH
                word <<= np.uint64(16)
                stored ^= np.uint32((word >> np.uint64(64 - length)) << np.uint64(trailing))
                bit += length
        if bit >= end * 8:
            return index + 1, end, TRUNCATED
    if np.int64(np.int32(stored)) != last:
        return len(out), bit >> 3, MORE
    return len(out), (bit >> 3) + 1, 0


DECODERS: Final[Decoders] = bit_decoders(Encoding.CHIMP, decode_32, decode_64)
