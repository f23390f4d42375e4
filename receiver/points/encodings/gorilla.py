"""GORILLA: what changed between neighbours' bits. FLOAT, DOUBLE, INT32, INT64.

The first value stands whole, then for each next one (the highest bit first):

    0                                   the same value
    10 <bits>                           XOR, within the zeros around the last one that stood so
    11 <lead> <length - 1> <bits>       XOR, with its zeros in front and its length

``lead`` and ``length - 1`` have 5 bits of a value of 32, 6 of one of 64. The end is a value like
any other: the smallest integer, or the one NaN of Java. It is a legal value as well, so only the
count says which one is the end. Then comes what is left of the byte, or a whole one if nothing is
left. Java and C++ write the same.

Source: apache/tsfile, ``IntGorillaEncoder``, ``LongGorillaEncoder``, ``GorillaEncoderV2``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import DataType, Encoding
from receiver.points.encodings.bits import load, take, window
from receiver.points.encodings.codes import BAD_WIDTH, MORE, TRUNCATED
from receiver.points.encodings.decoder import Decoders, Kernel, integers, numeric
from receiver.points.jit import Number, kernel

__all__ = [
    "DECODERS",
    "END_DOUBLE",
    "END_FLOAT",
    "END_INT32",
    "END_INT64",
    "bit_decoders",
    "decode_32",
    "decode_64",
]

END_INT32: Final = np.int64(-(2**31))
END_INT64: Final = np.int64(-(2**63))
END_FLOAT: Final = np.int64(0x7FC00000)
END_DOUBLE: Final = np.int64(0x7FF8000000000000)


_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_3: Final = np.uint64(3)
_7: Final = np.uint64(7)
_31: Final = np.uint64(31)
_32: Final = np.uint64(32)
_63: Final = np.uint64(63)
_64: Final = np.uint64(64)


@kernel
def decode_64(data: Any, pos: Number, end: Number, out: Any, last: Number) -> Number:
    """Decode values of 64 bits into an int64 array; ``last`` is the end's bits."""
    if end - pos < 8:
        return 0, pos, TRUNCATED
    state = (take(data, pos * 8, 64, end), np.uint64(pos * 8 + 64), _0, _0)
    n, state, error = _quick_64(data, end, out, state)
    if not error:
        n, state, error = _careful(data, end, out, n, state, np.uint64(6), _64)
    bit = np.int64(state[1])
    if error:
        return n, min(bit >> 3, end), error
    if bit >= end * 8:  # no values at all, and nothing behind the end
        return n, end, TRUNCATED
    if np.int64(state[0]) != last:
        return n, bit >> 3, MORE
    return n, (bit >> 3) + 1, 0


@kernel
def decode_32(data: Any, pos: Number, end: Number, out: Any, last: Number) -> Number:
    """Decode values of 32 bits into an int32 array; ``last`` is the end's bits."""
    if end - pos < 4:
        return 0, pos, TRUNCATED
    state = (take(data, pos * 8, 32, end), np.uint64(pos * 8 + 32), _0, _0)
    n, state, error = _quick_32(data, end, out, state)
    if not error:
        n, state, error = _careful(data, end, out, n, state, np.uint64(5), _32)
    bit = np.int64(state[1])
    if error:
        return n, min(bit >> 3, end), error
    if bit >= end * 8:  # no values at all, and nothing behind the end
        return n, end, TRUNCATED
    if np.int64(np.int32(state[0])) != last:
        return n, bit >> 3, MORE
    return n, (bit >> 3) + 1, 0


# A state is (the value, the bit that comes next, length and zeros behind of the last XOR that
# stood with them). The quick loops have no branch that depends on the values: a wrong guess of the
# processor costs more than all the rest of one. They stop 16 bytes before the end.


@kernel
def _quick_64(data: Any, end: Number, out: Any, state: Number) -> Number:
    value, bit, length, trailing = state
    limit = np.uint64(max(0, (end - 16) * 8))
    n = 0
    while n < len(out) and bit < limit:
        out[n] = np.int64(value)
        n += 1
        word = load(data, bit >> _3) << (bit & _7)
        differs = word >> _63
        new = differs & (word >> np.uint64(62))
        fresh = ((word >> np.uint64(50)) & _63) + _1
        length = _choose(new, fresh, length)
        trailing = _choose(new, _64 - fresh - ((word >> np.uint64(56)) & _63), trailing)
        if trailing > _63 or length < differs:
            return n, (value, bit, length, trailing), BAD_WIDTH
        bit += _1 + differs + np.uint64(12) * new
        at, shift = bit >> _3, bit & _7
        word = (load(data, at) << shift) | (
            np.uint64(data[at + np.uint64(8)]) >> (np.uint64(8) - shift)
        )
        taken = _choose(differs, length, _0)
        value ^= ((word >> ((_64 - taken) & _63)) & (_0 - differs)) << trailing
        bit += taken
    return n, (value, bit, length, trailing), 0


@kernel
def _quick_32(data: Any, end: Number, out: Any, state: Number) -> Number:
    value, bit, length, trailing = state
    limit = np.uint64(max(0, (end - 16) * 8))
    n = 0
    while n < len(out) and bit < limit:
        out[n] = np.int32(value)
        n += 1
        word = load(data, bit >> _3) << (bit & _7)
        differs = word >> _63
        new = differs & (word >> np.uint64(62))
        fresh = ((word >> np.uint64(52)) & _31) + _1
        length = _choose(new, fresh, length)
        trailing = _choose(new, _32 - fresh - ((word >> np.uint64(57)) & _31), trailing)
        if trailing > _31 or length < differs:
            return n, (value, bit, length, trailing), BAD_WIDTH
        head = _1 + differs + np.uint64(10) * new
        taken = _choose(differs, length, _0)
        value ^= (((word << head) >> ((_64 - taken) & _63)) & (_0 - differs)) << trailing
        bit += head + taken
    return n, (value, bit, length, trailing), 0


@kernel
def _choose(flag: Number, one: Number, other: Number) -> Number:
    """``one`` if ``flag`` is 1, ``other`` if it is 0."""
    mask = _0 - flag
    return (one & mask) | (other & ~mask)


@kernel
def _careful(
    data: Any, end: Number, out: Any, n: Number, state: Number, field: Number, whole: Number
) -> Number:
    """The same for the values at the end; ``field`` bits have ``lead`` and ``length``."""
    value, bit, length, trailing = state
    for index in range(n, len(out)):
        out[index] = np.int64(value)
        word = window(data, np.int64(bit), end)
        bit += _1
        if word >> _63:
            bit += _1
            if (word >> np.uint64(62)) & _1:
                word <<= np.uint64(2)
                length = ((word << field) >> (_64 - field)) + _1
                trailing = whole - length - (word >> (_64 - field))
                bit += field + field
            if trailing >= whole or length == _0:
                return index + 1, (value, bit, length, trailing), BAD_WIDTH
            value ^= take(data, np.int64(bit), np.int64(length), end) << trailing
            bit += length
        if bit >= np.uint64(end * 8):
            return index + 1, (value, bit, length, trailing), TRUNCATED
    return len(out), (value, bit, length, trailing), 0


def bit_decoders(encoding: Encoding, narrow: Kernel, wide: Kernel) -> Decoders:
    """The decoders of all numbers whose bits are encoded and followed by an end."""
    return {
        **integers(
            encoding,
            numeric(narrow, np.int32, np.int32, END_INT32),
            numeric(wide, np.int64, np.int64, END_INT64),
        ),
        (encoding, DataType.FLOAT): numeric(narrow, np.int32, np.float32, END_FLOAT),
        (encoding, DataType.DOUBLE): numeric(wide, np.int64, np.float64, END_DOUBLE),
    }


DECODERS: Final[Decoders] = bit_decoders(Encoding.GORILLA, decode_32, decode_64)
