"""CHIMP of 32 and 64 bits, as the Java writer has it. What it looks like: ``chimp``."""

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

__all__ = ["room_for_chimp", "write_chimp"]

_0 = np.uint64(0)
_1 = np.uint64(1)
_2 = np.uint64(2)
_3 = np.uint64(3)
_64 = np.uint64(64)
_NONE = np.uint64(255)


def room_for_chimp(values: Any) -> int:
    """Bytes that values may take at most: 21 bits more than each has."""
    return int((len(values) + 1) * (values.itemsize + 3) + SLACK)


@kernel
def _rounded(lead: Number) -> Number:
    """(zeros in front that have a code, the code): 0, 8, 12, 16, 18, 20, 22, 24."""
    if lead >= np.uint64(24):
        return np.uint64(24), np.uint64(7)
    if lead >= np.uint64(16):
        code = np.uint64(3) + ((lead - np.uint64(16)) >> _1)
        return np.uint64(16) + ((code - _3) << _1), code
    if lead >= np.uint64(12):
        return np.uint64(12), _2
    if lead >= np.uint64(8):
        return np.uint64(8), _1
    return _0, _0


@kernel
def write_chimp(values: Any, out: Any, pos: Number, last: Number) -> Number:
    """Write the bits of an int32 or int64 array: the position behind.

    Args:
        values: the bits, as integers.
        out: uint8.
        pos: where to.
        last: the value that is the end.
    """
    wide = values.itemsize == 8
    size = np.uint64(64) if wide else np.uint64(32)
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) if wide else np.uint64(0xFFFFFFFF)
    ring = np.int64(128) if wide else np.int64(64)
    which = np.uint64(7) if wide else np.uint64(6)  # bits of a place in the ring
    field = np.uint64(6) if wide else np.uint64(5)
    threshold = field + which
    key_mask = (_1 << (threshold + _1)) - _1
    unused = _64 - size
    seen = np.zeros(ring, np.uint64)
    places = np.zeros(np.int64(key_mask) + 1, np.int64)  # by the lowest bits
    count = len(values)
    first = np.uint64(values[0] if count else last) & mask
    pos, waiting, room = put_bits(out, np.int64(pos), _0, _64, first, size)
    seen[0] = first
    lead_before = _NONE
    for index in range(1, count + (1 if count else 0)):
        value = np.uint64(values[index] if index < count else last) & mask
        place, behind = np.int64(index - 1), _0
        xor = value ^ seen[place % ring]
        at = places[np.int64(value & key_mask)]
        if index - 1 - at < ring:
            candidate = value ^ seen[at % ring]
            behind = min(trailing_zeros(candidate), size)
            if behind > threshold:
                place, xor = at, candidate
        lead, code = _rounded(leading_zeros(xor) - unused)
        if xor == _0:
            pos, waiting, room = put_bits(
                out, pos, waiting, room, np.uint64(place % ring), which + _2
            )
            lead_before = _NONE
        elif behind > threshold:
            length = size - lead - behind
            head = ((_1 << which | np.uint64(place % ring)) << _3 | code) << field
            head |= length & ((_1 << field) - _1)
            pos, waiting, room = put_bits(out, pos, waiting, room, head, which + field + _3 + _2)
            pos, waiting, room = put_bits(out, pos, waiting, room, xor >> behind, length)
            lead_before = _NONE
        elif lead == lead_before:
            pos, waiting, room = put_bits(out, pos, waiting, room, _2, _2)
            pos, waiting, room = put_bits(out, pos, waiting, room, xor, size - lead)
        else:
            pos, waiting, room = put_bits(out, pos, waiting, room, _3 << _3 | code, _3 + _2)
            pos, waiting, room = put_bits(out, pos, waiting, room, xor, size - lead)
            lead_before = lead
        seen[index % ring] = value
        places[np.int64(value & key_mask)] = index
    if room & np.uint64(7) == _0:
        pos, waiting, room = put_bits(out, pos, waiting, room, _0, np.uint64(8))
    return flush_bits(out, pos, waiting, room)
