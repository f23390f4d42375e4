"""ZIGZAG, and PLAIN of what stands behind varints: INT32 and binaries."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from receiver.points.jit import Number, kernel
from receiver.writing.bit_packing import SLACK, write_uvarint

__all__ = ["room_for_varints", "write_binaries", "write_varints", "write_zigzag"]

_HEAD: Final = 10
"""Of ZIGZAG: two varints of 32 bits."""


def room_for_varints(values: Any) -> int:
    """Bytes that integers may take at most."""
    return len(values) * (5 if values.itemsize == 4 else 10) + _HEAD + SLACK


@kernel
def write_varints(values: Any, out: Any, pos: Number) -> Number:
    """Write an int32 or int64 array, the lowest bit the sign: the position behind."""
    pos = np.int64(pos)
    for index in range(len(values)):
        value = np.int64(values[index])
        pos = write_uvarint(out, pos, np.uint64((value << 1) ^ (value >> 63)))
    return pos


@kernel
def write_zigzag(values: Any, out: Any, pos: Number) -> Number:
    """The same as one block, behind its length in bytes and in values."""
    if len(values) == 0:
        return np.int64(pos)
    begin = np.int64(pos) + _HEAD
    end = write_varints(values, out, begin)
    at = write_uvarint(out, np.int64(pos), np.uint64(end - begin))
    at = write_uvarint(out, at, np.uint64(len(values)))
    for index in range(end - begin):
        out[at + index] = out[begin + index]
    return at + end - begin


@kernel
def write_binaries(offsets: Any, data: Any, out: Any, pos: Number) -> Number:
    """Write binaries, each behind twice its length: the position behind."""
    pos = np.int64(pos)
    for index in range(len(offsets) - 1):
        low, high = offsets[index], offsets[index + 1]
        pos = write_uvarint(out, pos, np.uint64(2 * np.int64(high - low)))
        for at in range(low, high):
            out[pos] = data[at]
            pos += 1
    return pos
