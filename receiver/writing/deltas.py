"""TS_2DIFF of integers and times, as the Java writer has it. What it looks like: ``ts2diff``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from receiver.points.jit import Number, kernel
from receiver.writing.bit_packing import (
    SLACK,
    flush_bits,
    leading_zeros,
    put_bits,
    store_word,
)

__all__ = ["room_for_deltas", "write_deltas"]

_BLOCK: Final = 128
"""Differences in a block: what every writer takes, and some readers are made for."""
_HEAD: Final = 24
_32: Final = np.uint64(32)
_64: Final = np.uint64(64)
_LOW: Final = np.uint64(0xFFFFFFFF)


def room_for_deltas(values: Any) -> int:
    """Bytes that values may take at most."""
    blocks = len(values) // _BLOCK + 1
    return int(len(values) * values.itemsize + blocks * _HEAD + SLACK)


@kernel
def write_deltas(values: Any, out: Any, pos: Number) -> Number:
    """Write an int32 or int64 array: the position behind."""
    above = np.empty(_BLOCK, np.uint64)
    low: Number = 0
    pos = np.int64(pos)
    while low < len(values):
        count = min(_BLOCK, len(values) - low - 1)
        base, all_bits = _differences(values, low, count, above)
        width = _64 - leading_zeros(all_bits)
        store_word(out, pos, (np.uint64(count) << _32) | width)
        if values.itemsize == 8:
            store_word(out, pos + 8, np.uint64(base))
            store_word(out, pos + 16, np.uint64(values[low]))
            pos += 24
        else:
            pair = (np.uint64(base) & _LOW) << _32 | (np.uint64(values[low]) & _LOW)
            store_word(out, pos + 8, pair)
            pos += 16
        if width:
            waiting, room = np.uint64(0), _64
            for index in range(count):
                pos, waiting, room = put_bits(out, pos, waiting, room, above[index], width)
            pos = flush_bits(out, pos, waiting, room)
        low += count + 1
    return pos


@kernel
def _differences(values: Any, low: Number, count: Number, above: Any) -> Number:
    """How far each difference is above the smallest: (the smallest, the bits that any has).

    Both wrap around as the type does; without a difference the smallest is the largest number.
    """
    if values.itemsize == 8:
        base = np.int64(np.iinfo(np.int64).max)
        for index in range(low, low + count):
            base = min(base, values[index + 1] - values[index])
    else:
        base = np.int64(np.iinfo(np.int32).max)
        for index in range(low, low + count):
            base = min(base, np.int64(np.int32(values[index + 1] - values[index])))
    bits = np.uint64(0)
    for index in range(count):
        each = np.uint64(np.int64(values[low + index + 1]) - np.int64(values[low + index]) - base)
        if values.itemsize == 4:
            each &= _LOW
        above[index] = each
        bits |= each
    return base, bits
