"""CAMEL: decimal numbers as whole part and decimal places. DOUBLE.

    page    = block*                           the Java writer makes one a page
    block   = varint bits (zigzag), so many bits, zeros up to the next byte
    bits    = 64 bits the first value, value*

    value   = sign (1), 1, whole, places - 1 (4), 1, xor (``places`` bits), rest
            | sign (1), 1, whole, places - 1 (4), 0, rest
            | sign (1), 0, as GORILLA: 0 | 10 <bits> | 11 <zeros> <length - 1> <bits>

``whole`` is the difference from the whole part before, ``rest`` the decimal places less what the
XOR restores, both zigzag varints of which a byte's lowest bit says that another follows. Values
of more than ten digits, 0 and infinities go the GORILLA way: the XOR of the magnitude with the
signed value before. NaN (unless it is the first value) is written as 0 and spoils the next value
that goes the GORILLA way; now and then the last bit of a value is lost. What is decoded here is
what the Java reader makes of the bytes, and statistics need not be met (``is_rounded``). Writers
have it from 2.2 on.

Source: apache/tsfile, ``CamelEncoder``, ``CamelDecoder``, ``BitInputStream`` (2.2.0, 2.4.0).
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from common.tsfile import DataType, Encoding
from receiver.points.encodings.bits import take, uvarint
from receiver.points.encodings.codes import (
    BAD_LENGTH,
    BAD_PRECISION,
    BAD_WIDTH,
    MORE,
    TRUNCATED,
)
from receiver.points.encodings.decoder import Decoders, numeric
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "decode"]

_MOST_PLACES: Final = 15
_POWERS: Final = np.array([10**places for places in range(_MOST_PLACES + 1)], np.int64)
_WHOLE: Final = 9.2e18  # nothing larger than int64 goes through a conversion
_MANTISSA: Final = 52


@kernel
def _round(number: Number) -> Number:
    """The nearest whole number, a half upwards, 0 for NaN: ``Math.round`` short of its limits."""
    if not abs(number) < _WHOLE:
        return 0.0 if math.isnan(number) else math.copysign(_WHOLE, number)
    down = math.floor(number)
    return down + 1.0 if number - down >= 0.5 else float(down)


@kernel
def _varint(data: Any, bit: Number, stop: Number, end: Number) -> Number:
    """(number, position behind it); a position of -1: cut off, -2: too long."""
    number = np.uint64(0)
    for index in range(10):
        if bit + 8 > stop:
            return np.int64(0), np.int64(-1)
        byte = take(data, bit, 8, end)
        bit += 8
        number |= (byte >> np.uint64(1)) << np.uint64(7 * index)
        if byte & np.uint64(1) == 0:
            half = np.int64(number >> np.uint64(1))
            return (~half if number & np.uint64(1) else half), bit
    return np.int64(0), np.int64(-2)


@kernel
def _decimal(data: Any, bit: Number, stop: Number, end: Number, scratch: Any) -> Number:
    """Decimal places: (their number as a double, 10 ** places, position behind, error)."""
    if bit + 5 > stop:
        return 0.0, 1.0, bit, TRUNCATED
    places = np.int64(take(data, bit, 4, end)) + 1
    marked = take(data, bit + 4, 1, end) != 0
    bit += 5
    if places > _MOST_PLACES:
        return 0.0, 1.0, bit, BAD_PRECISION
    xor = np.uint64(0)
    if marked:
        if bit + places > stop:
            return 0.0, 1.0, bit, TRUNCATED
        xor = take(data, bit, places, end) << np.uint64(_MANTISSA - places)
        bit += places
    rest, behind = _varint(data, bit, stop, end)
    if behind < 0:
        return 0.0, 1.0, bit, TRUNCATED if behind == -1 else BAD_LENGTH
    scale = float(_POWERS[places])
    fraction = rest / scale
    if marked:
        scratch[0] = fraction + 1.0
        bits = scratch.view(np.uint64)
        bits[0] ^= xor
        fraction = scratch[0] - 1.0
    return _round(fraction * scale), scale, behind, 0


@kernel
def _as_whole(number: Number) -> Number:
    """A double without its decimal places, as a cast in Java makes it: bounded, 0 for NaN."""
    if math.isnan(number):
        return np.int64(0)
    if number >= 9223372036854775808.0:
        return np.int64(0x7FFFFFFFFFFFFFFF)
    if number < -9223372036854775808.0:
        return np.int64(-0x8000000000000000)
    return np.int64(number)


@kernel
def _block(data: Any, pos: Number, stop: Number, end: Number, out: Any, n: Number) -> Number:
    """The values of one block that begins at byte ``pos``: (values so far, bit behind, error)."""
    bit = pos * 8
    values = out.view(np.uint64)
    scratch = np.empty(1, np.float64)
    if bit + 64 > stop:
        return n, bit, TRUNCATED
    values[n] = take(data, bit, 64, end)
    whole = _as_whole(out[n])
    bit += 64
    n += 1
    length, trailing = np.int64(0), np.int64(0)
    while bit < stop:
        if n == len(out):
            return n, bit, MORE
        if bit + 3 > stop:
            return n, bit, TRUNCATED
        head = (
            np.int64(take(data, bit, 4, end))
            if bit + 4 <= stop
            else np.int64(take(data, bit, 3, end) << np.uint64(1))
        )
        sign = -1.0 if head & 8 else 1.0
        if head & 4:
            change, bit = _varint(data, bit + 2, stop, end)
            if bit < 0:
                return n, stop, TRUNCATED if bit == -1 else BAD_LENGTH
            whole = np.int64(np.uint64(whole) + np.uint64(change))
            decimals, scale, bit, error = _decimal(data, bit, stop, end, scratch)
            if error:
                return n, bit, error
            value = (whole * scale + decimals) / scale
            out[n] = sign * (value if whole >= 0 else -value)
            n += 1
            continue
        # NaN is one pattern to the writer when it is the value before
        before = values[n - 1]
        if math.isnan(out[n - 1]):
            before = np.uint64(0x7FF8000000000000)
        bit += 3
        if head & 2:
            bit += 1
            if head & 1:
                if bit + 12 > stop:
                    return n, bit, TRUNCATED
                length = np.int64(take(data, bit + 6, 6, end)) + 1
                trailing = 64 - length - np.int64(take(data, bit, 6, end))
                bit += 12
                if trailing < 0:
                    return n, bit, BAD_WIDTH
            if length == 0:
                return n, bit, BAD_WIDTH
            if bit + length > stop:
                return n, bit, TRUNCATED
            before ^= take(data, bit, length, end) << np.uint64(trailing)
            bit += length
        scratch.view(np.uint64)[0] = before
        out[n] = sign * scratch[0]
        n += 1
    return n, bit, 0


@kernel
def decode(data: Any, pos: Number, end: Number, out: Any) -> Number:
    """Decode into a float64 array."""
    n = np.int64(0)  # not a literal, for which numba would compile what it is handed to again
    while n < len(out) and pos < end:
        number, at = uvarint(data, pos, end, 5)
        if at < 0:
            return n, pos, TRUNCATED if at == -1 else BAD_LENGTH
        bits = np.int64(number >> np.uint64(1))
        if number & np.uint64(1) or bits < 64:
            return n, pos, BAD_LENGTH
        if bits > (end - at) * 8:
            return n, pos, TRUNCATED
        n, bit, error = _block(data, at, at * 8 + bits, end, out, n)
        if error:
            return n, bit >> 3, error
        pos = at + ((bits + 7) >> 3)
    return n, pos, 0


DECODERS: Final[Decoders] = {(Encoding.CAMEL, DataType.DOUBLE): numeric(decode, np.float64)}
