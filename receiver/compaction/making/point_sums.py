"""What points come to, in whatever order and pieces they pass: so many, and 128 bits of all.

A fault of ours or of the machine changes them, but for one in 2^64; nobody who means to deceive is
kept out. That times increase is seen by who reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from receiver.points.encodings import Binaries
from receiver.points.jit import kernel, readonly
from receiver.writing.bloom_filter import fmix64

if TYPE_CHECKING:
    from receiver.points.columns import Column
    from receiver.points.decoding import Times

__all__ = ["PointSum", "add_points", "add_times", "join_sum", "new_sum"]

PointSum = np.ndarray[tuple[int], np.dtype[np.uint64]]
"""Points, their sum, and the exclusive or of them."""

_M2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_M3: Final = np.uint64(0x9E3779B97F4A7C15)
_PRIME: Final = np.uint64(0x100000001B3)
_ALL: Final = np.empty(0, np.bool_)
_BITS: Final = {4: np.int32, 8: np.int64, 1: np.uint8}


def new_sum() -> PointSum:
    """Of no points."""
    return np.zeros(3, np.uint64)


def add_times(total: PointSum, times: Times) -> None:
    """Add rows, whatever they hold."""
    _add_numbers(readonly(times), readonly(times), _ALL, total)


def add_points(total: PointSum, times: Times, column: Column) -> None:
    """Add the rows of a column that have a value; floats by their bits."""
    valid = _ALL if column.valid is None else column.valid
    values = column.values
    if isinstance(values, Binaries):
        _add_binaries(
            readonly(times), readonly(values.offsets), readonly(values.data), valid, total
        )
    else:
        bits = np.ascontiguousarray(values).view(_BITS[values.dtype.itemsize])
        _add_numbers(readonly(times), readonly(bits), valid, total)


def join_sum(total: PointSum, part: PointSum) -> None:
    """Add points that were added up by themselves."""
    total[:2] += part[:2]
    total[2] ^= part[2]


@kernel
def _add_numbers(times: Any, bits: Any, valid: Any, total: Any) -> None:
    count, added, mixed = np.uint64(0), np.uint64(0), np.uint64(0)
    every = len(valid) == 0
    for row in range(len(times)):
        if every or valid[row]:
            one = fmix64(np.uint64(times[row]) + _M3) ^ np.uint64(np.int64(bits[row]))
            one = fmix64(one)
            count += np.uint64(1)
            added += one
            mixed ^= one * _M3
    total[0] += count
    total[1] += added
    total[2] ^= mixed


@kernel
def _add_binaries(times: Any, offsets: Any, data: Any, valid: Any, total: Any) -> None:
    every = len(valid) == 0
    for row in range(len(times)):
        if every or valid[row]:
            low, high = offsets[row], offsets[row + 1]
            one = np.uint64(high - low) + _M2
            for at in range(low, high):
                one = (one ^ np.uint64(data[at])) * _PRIME
            one = fmix64(fmix64(np.uint64(times[row]) + _M3) ^ one)
            total[0] += np.uint64(1)
            total[1] += one
            total[2] ^= one * _M3
