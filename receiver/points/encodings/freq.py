"""FREQ: blocks of values as their largest frequencies. INT32, INT64, FLOAT, DOUBLE.

    page     = block*                             a block begins with a byte
    block    = 16 bits count, 16 bits kept, 16 bits exponent (signed), places, numbers, zeros
    places   = for each 8 of the ``kept``: a width, then each one's place among the frequencies
    numbers  = 8 bits width, the least magnitude; then for each of the ``kept``: sign (1),
               magnitude less the least one, in as many bits as the one before needed

The width of places has as many bits as that of the highest place needs. A frequency is its number
times 2 ** exponent, and those that were not kept are 0. The values are their inverse discrete
cosine transform (orthonormal, type III), rounded if they are integers. That loses much by design,
so statistics are not met (``is_rounded``), and two machines may differ in a last bit.

Writers of 1.0 alone had it. Source: apache/iotdb, ``FreqEncoder``, ``FreqDecoder`` of 1.0.0.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from common.tsfile import DataType, Encoding
from receiver.points.encodings.bits import take
from receiver.points.encodings.codes import BAD_COUNT, BAD_INDEX, BAD_WIDTH, MORE, TRUNCATED
from receiver.points.encodings.decoder import Array, Bytes, Decoded, Decoder, Decoders
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS"]

_HEAD: Final = 6  # bytes


@kernel
def _width(number: Number) -> Number:
    """How many bits a number that is not negative has."""
    width = 0
    while number:
        number >>= np.uint64(1)
        width += 1
    return width


@kernel
def _block(data: Any, pos: Number, end: Number, kept: Number, places: Any, out: Any) -> Number:
    """Read ``kept`` numbers into ``out`` at their places: (position behind, error)."""
    stop = end * 8
    bit = (pos + _HEAD) * 8
    field = _width(np.uint64(_width(np.uint64(len(out) - 1))))
    width: Number = 0
    for index in range(kept):
        if index & 7 == 0:
            if bit + field > stop:
                return bit >> 3, TRUNCATED
            width = np.int64(take(data, bit, field, end)) if field else 0
            bit += field
        if bit + width > stop:
            return bit >> 3, TRUNCATED
        places[index] = np.int64(take(data, bit, width, end)) if width else 0
        bit += width
        if places[index] >= len(out):
            return bit >> 3, BAD_INDEX
    if kept == 0:
        return bit >> 3, 0
    if bit + 8 > stop:
        return bit >> 3, TRUNCATED
    width = np.int64(take(data, bit, 8, end))
    bit += 8
    if width > 63:
        return bit >> 3, BAD_WIDTH
    if bit + width > stop:
        return bit >> 3, TRUNCATED
    least = take(data, bit, width, end) if width else np.uint64(0)
    bit += width
    for index in range(kept):
        if bit + 1 + width > stop:
            return bit >> 3, TRUNCATED
        negative = take(data, bit, 1, end) != 0
        number = take(data, bit + 1, width, end) if width else np.uint64(0)
        bit += 1 + width
        width = _width(number)
        magnitude = np.float64(number + least)
        out[places[index]] = -magnitude if negative else magnitude
    return (bit + 7) >> 3, 0


def _inverse(frequencies: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The values whose orthonormal discrete cosine transform (type II) these are."""
    count = len(frequencies)
    turned = frequencies * np.exp(0.5j * np.pi / count * np.arange(count)) * np.sqrt(2 / count)
    turned[0] *= np.sqrt(0.5)
    values: npt.NDArray[np.float64] = np.fft.ifft(turned, 2 * count).real[:count] * (2 * count)
    return values


def _rounded(values: npt.NDArray[np.float64], dtype: type[np.generic]) -> Array:
    """To integers as Java rounds: a half upwards, what is too large to the largest, NaN to 0."""
    down = np.floor(values)
    whole = np.nan_to_num(down + (values - down >= 0.5), nan=0.0)
    found = np.where(whole >= 2.0**63, 2**63 - 1, 0)
    fits = (whole >= -(2.0**63)) & (whole < 2.0**63)
    found[fits] = whole[fits].astype(np.int64)
    found[whole < -(2.0**63)] = -(2**63)
    return found.astype(dtype)  # an int32 is what is left of it, as in Java


def _decoder(dtype: type[np.generic]) -> Decoder:
    floating = np.issubdtype(dtype, np.floating)

    def decode(data: Bytes, pos: int, end: int, count: int) -> Decoded:
        out: Array = np.empty(count, dtype)
        n = 0
        while n < count and pos < end:
            if pos + _HEAD > end:
                return Decoded(out[:n], n, pos, TRUNCATED)
            head = data[pos : pos + _HEAD].tobytes()
            size, kept = int.from_bytes(head[:2], "big"), int.from_bytes(head[2:4], "big")
            if size == 0 or kept > size:
                return Decoded(out[:n], n, pos, BAD_COUNT)
            if size > count - n:
                return Decoded(out[:n], n, pos, MORE)
            frequencies = np.zeros(size)
            pos, error = _block(data, pos, end, kept, np.empty(kept, np.int64), frequencies)
            if error:
                return Decoded(out[:n], n, int(pos), error)
            with np.errstate(all="ignore"):
                frequencies *= np.exp2(float(int.from_bytes(head[4:], "big", signed=True)))
                values = _inverse(frequencies)
                out[n : n + size] = values if floating else _rounded(values, dtype)
            n += size
        return Decoded(out[:n], n, int(pos), 0)

    return decode


DECODERS: Final[Decoders] = {
    (Encoding.FREQ, DataType.INT32): _decoder(np.int32),
    (Encoding.FREQ, DataType.INT64): _decoder(np.int64),
    (Encoding.FREQ, DataType.FLOAT): _decoder(np.float32),
    (Encoding.FREQ, DataType.DOUBLE): _decoder(np.float64),
}
