"""RLE of integers, the runs chosen as the Java writer does. What it looks like: ``rle``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from receiver.points.jit import Number, kernel
from receiver.writing.bit_packing import (
    SLACK,
    flush_bits,
    leading_zeros,
    put_bits,
    write_uvarint,
)

__all__ = ["room_for_runs", "write_runs"]

_MOST_REPEATED: Final = 0x7FFF
_MOST_PACKED: Final = 8 * 63
_LONGEST_PREFIX: Final = 5
_64: Final = np.uint64(64)


def room_for_runs(values: Any) -> int:
    """Bytes that values may take at most: a head for every eight of them."""
    return int((len(values) + 8) * (values.itemsize + 1) + SLACK)


@kernel
def write_runs(values: Any, out: Any, pos: Number) -> Number:
    """Write an int32 or int64 array as one block: the position behind."""
    if len(values) == 0:
        return np.int64(pos)
    mask = np.uint64(0xFFFFFFFF) if values.itemsize == 4 else np.uint64(0xFFFFFFFFFFFFFFFF)
    bits = np.uint64(1)  # of all zeros too: a width of 0 is not read everywhere
    for place in range(len(values)):
        bits |= np.uint64(values[place]) & mask
    width = _64 - leading_zeros(bits)
    begin = np.int64(pos) + _LONGEST_PREFIX
    out[begin] = np.uint8(width)
    at = begin + 1
    first: Number = np.int64(0)
    index: Number = np.int64(0)
    while index < len(values):
        behind: Number = index + 1
        while behind < len(values) and values[behind] == values[index]:
            behind += 1
        index += min(behind - index, (first - index) % 8)  # fill up the group that is open
        while behind - index >= 8:
            at = _pack(values, first, index, width, mask, out, at)
            run = min(behind - index, _MOST_REPEATED)
            at = write_uvarint(out, at, np.uint64(run) << np.uint64(1))
            at = _one(np.uint64(values[index]) & mask, values.itemsize, width, out, at)
            index += run
            first = index
        index = behind
    at = _pack(values, first, index, width, mask, out, at)
    return _put_length(out, pos, begin, at)


@kernel
def _pack(
    values: Any, first: Number, behind: Number, width: Number, mask: Number, out: Any, at: Number
) -> Number:
    """Write values in groups of eight: the position behind."""
    while first < behind:
        count = min(behind - first, _MOST_PACKED)
        groups = (count + 7) // 8
        out[at] = np.uint8(groups << 1 | 1)
        out[at + 1] = np.uint8(count - 8 * (groups - 1))
        stop = at + 2 + groups * np.int64(width)
        at, waiting, room = at + 2, np.uint64(0), _64
        for index in range(first, first + count):
            value = np.uint64(values[index]) & mask
            at, waiting, room = put_bits(out, at, waiting, room, value, width)
        at = flush_bits(out, at, waiting, room)
        while at < stop:
            out[at] = 0
            at += 1
        first += count
    return at


@kernel
def _one(value: Number, itemsize: Number, width: Number, out: Any, at: Number) -> Number:
    """Write a repeated value, of 32 bits the lowest byte first: the position behind."""
    size = np.int64((width + np.uint64(7)) >> np.uint64(3))
    for index in range(size):
        place = index if itemsize == 4 else size - 1 - index
        out[at + index] = np.uint8((value >> np.uint64(8 * place)) & np.uint64(0xFF))
    return at + size


@kernel
def _put_length(out: Any, pos: Number, begin: Number, end: Number) -> Number:
    """Put the length of what stands from ``begin`` to ``end`` in front, at ``pos``, and close up.

    Returns:
        The position behind it all.
    """
    at = write_uvarint(out, np.int64(pos), np.uint64(end - begin))
    for index in range(end - begin):
        out[at + index] = out[begin + index]
    return at + end - begin
