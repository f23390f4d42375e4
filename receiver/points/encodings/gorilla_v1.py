"""GORILLA_V1: the first form of GORILLA (before 0.12). FLOAT and DOUBLE.

The first value stands whole, its lowest byte first, then for each next one (highest bit first):

    0                           the same value
    10 <bits>                   XOR, within the zeros around the value before
    11 <lead> <length> <bits>   XOR, with its zeros in front (5 or 6 bits) and its length (6 or 7)

(GORILLA has the zeros of the XOR that stood before.) The end is Java's
NaN, which may be a value too; the count tells. Zeros fill up the byte. (The Java readers take the
first NaN for the end, and give NaN for all that stands behind it in the page. Here it comes back
as it was written, and as the statistics have it.)

Source: apache/tsfile, ``SinglePrecisionEncoderV1``, ``DoublePrecisionEncoderV1``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import DataType, Encoding
from receiver.points.encodings.bits import take, window
from receiver.points.encodings.codes import BAD_WIDTH, MORE, TRUNCATED
from receiver.points.encodings.decoder import Decoders, numeric
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "decode"]


@kernel
def decode(data: Any, pos: Number, end: Number, out: Any) -> Number:
    """Decode into an int32 or int64 array: the bits of floats."""
    size = out.itemsize
    whole = size * 8
    if size == 8:
        lead_bits, last = 6, np.uint64(0x7FF8000000000000)
    else:
        lead_bits, last = 5, np.uint64(0x7FC00000)
    if end - pos < size:
        return 0, pos, TRUNCATED
    stored = np.uint64(0)
    for index in range(size):
        stored |= np.uint64(data[pos + index]) << np.uint64(8 * index)
    bit = (pos + size) * 8
    for index in range(len(out)):
        out[index] = np.int64(stored)
        word = window(data, bit, end)
        if word >> np.uint64(63) == 0:
            bit += 1
        else:
            if (word >> np.uint64(62)) & np.uint64(1):
                lead = np.int64((word << np.uint64(2)) >> np.uint64(64 - lead_bits))
                length = np.int64((word << np.uint64(2 + lead_bits)) >> np.uint64(63 - lead_bits))
                bit += 3 + 2 * lead_bits
                trailing = whole - lead - length
            else:
                lead, trailing = _zeros(stored, whole)
                length = whole - lead - trailing
                bit += 2
            if length <= 0 or trailing < 0:
                return index + 1, min(bit >> 3, end), BAD_WIDTH
            stored ^= take(data, bit, length, end) << np.uint64(trailing)
            bit += length
        if bit > end * 8:
            return index + 1, end, TRUNCATED
    if stored != last:
        return len(out), bit >> 3, MORE
    return len(out), (bit + 7) >> 3, 0


@kernel
def _zeros(value: Number, whole: Number) -> Number:
    """How many zeros a number of so many bits has in front and behind; all of them for 0."""
    if value == 0:
        return whole, whole
    lead = 0
    while (value >> np.uint64(whole - 1 - lead)) & np.uint64(1) == 0:
        lead += 1
    trailing = 0
    while (value >> np.uint64(trailing)) & np.uint64(1) == 0:
        trailing += 1
    return lead, trailing


DECODERS: Final[Decoders] = {
    (Encoding.GORILLA_V1, DataType.FLOAT): numeric(decode, np.int32, np.float32),
    (Encoding.GORILLA_V1, DataType.DOUBLE): numeric(decode, np.int64, np.float64),
}
