"""GORILLA of 32 and 64 bits. What it looks like: ``gorilla``."""

from __future__ import annotations

from typing import Any

import numpy as np

from receiver.points.jit import Number, kernel
from receiver.writing.bit_packing import (
    SLACK,
    flush_bits,
    leading_zeros,
    put_bits,
    trailing_zeros,
)

__all__ = ["room_for_xors", "write_xors"]

_0 = np.uint64(0)
_1 = np.uint64(1)
_2 = np.uint64(2)
_3 = np.uint64(3)
_64 = np.uint64(64)


def room_for_xors(values: Any) -> int:
    """Bytes that values may take at most: two bits and twice the field more than each has."""
    return int((len(values) + 1) * (values.itemsize + 2) + SLACK)


@kernel
def write_xors(values: Any, out: Any, pos: Number, last: Number) -> Number:
    """Write the bits of an int32 or int64 array: the position behind.

    Args:
        values: the bits, as integers.
        out: uint8.
        pos: where to.
        last: the value that is the end.
    """
    size = np.uint64(values.itemsize * 8)
    field = np.uint64(5) if values.itemsize == 4 else np.uint64(6)
    mask = np.uint64(0xFFFFFFFF) if values.itemsize == 4 else np.uint64(0xFFFFFFFFFFFFFFFF)
    unused = _64 - size  # bits of a word that a value of 32 bits does not have
    count = len(values)
    before = np.uint64(values[0] if count else last) & mask
    pos, waiting, room = put_bits(out, np.int64(pos), _0, _64, before, size)
    lead = trail = _64 + _1
    length = _0
    for index in range(1, count + (1 if count else 0)):
        value = np.uint64(values[index] if index < count else last) & mask
        xor = before ^ value
        before = value
        if xor == _0:
            pos, waiting, room = put_bits(out, pos, waiting, room, _0, _1)
            continue
        zeros, behind = leading_zeros(xor) - unused, trailing_zeros(xor)
        if zeros >= lead and behind >= trail:
            pos, waiting, room = put_bits(out, pos, waiting, room, _2, _2)
        else:
            lead, trail = zeros, behind
            length = size - lead - trail
            head = (_3 << field | lead) << field | (length - _1)
            pos, waiting, room = put_bits(out, pos, waiting, room, head, field + field + _2)
        pos, waiting, room = put_bits(out, pos, waiting, room, xor >> trail, length)
    if room & np.uint64(7) == _0:  # a whole byte behind an end that fills its own
        pos, waiting, room = put_bits(out, pos, waiting, room, _0, np.uint64(8))
    return flush_bits(out, pos, waiting, room)
