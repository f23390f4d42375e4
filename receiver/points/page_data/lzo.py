"""LZO1X, which the C++ TsFile library writes; no package that we use has it.

A stream is a first byte, then instructions up to the end mark ``11 00 00``. An instruction copies
bytes that are already out (a match: length, distance), then up to three bytes of the stream
(literals); how a byte below 16 reads depends on the literals of the one before. Source of the
format: "LZO stream format as understood by Linux's LZO decompressor", Linux kernel documentation.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from receiver.points.jit import Number, kernel

__all__ = ["BAD_DISTANCE", "NO_END_MARK", "OVERLONG", "decompress_lzo"]

NO_END_MARK: Final = 1  # the stream ends before its end mark
OVERLONG: Final = 2  # more comes out than there is room for
BAD_DISTANCE: Final = 3  # a match before the first byte

_RUN: Final = 4  # state: the instruction before was a run of literals
_FAR: Final = 16384  # the distance that begins a far match, and alone is the end mark


@kernel
def _long_length(data: Any, pos: Number, end: Number, most: Number) -> Number:
    """(length, position behind it): ``most``, 255 for each zero byte, and the byte after them."""
    length = np.int64(most)
    while pos < end and data[pos] == 0:
        length += 255
        pos += 1
    if pos >= end:
        return length, np.int64(-1)
    return length + np.int64(data[pos]), np.int64(pos + 1)


@kernel
def _match(data: Any, pos: Number, end: Number, state: Number) -> Number:
    """Read the match at ``pos``, which is there: (length, distance, literals, position behind).

    A position of -1: the stream ends within it. Not for a byte below 16 in state 0.
    """
    first = np.int64(data[pos])
    pos = np.int64(pos + 1)
    if first >= 64 or first < 16:
        if pos >= end:
            return np.int64(0), np.int64(0), np.int64(0), np.int64(-1)
        high = np.int64(data[pos])
        literals = first & 3
        if first >= 128:
            length, distance = 5 + ((first >> 5) & 3), (high << 3) + ((first >> 2) & 7) + 1
        elif first >= 64:
            length, distance = 3 + ((first >> 5) & 1), (high << 3) + ((first >> 2) & 7) + 1
        elif state == _RUN:
            length, distance = np.int64(3), (high << 2) + (first >> 2) + 2049
        else:
            length, distance = np.int64(2), (high << 2) + (first >> 2) + 1
        return length, distance, literals, pos + 1
    most = 31 if first >= 32 else 7
    length = first & most
    if length == 0:
        length, pos = _long_length(data, pos, end, most)
    if pos < 0 or pos + 2 > end:
        return np.int64(0), np.int64(0), np.int64(0), np.int64(-1)
    pair = np.int64(data[pos]) | (np.int64(data[pos + 1]) << 8)
    distance = (pair >> 2) + (1 if first >= 32 else _FAR + ((first & 8) << 11))
    return length + 2, distance, pair & 3, pos + 2


@kernel
def decompress_lzo(data: Any, pos: Number, end: Number, out: Any) -> Number:
    """Decompress ``data[pos:end]`` into ``out``.

    Each turn of the loop consumes at least one byte, and writes nothing outside ``out``.

    Args:
        data: uint8.
        pos: where the stream begins.
        end: where the bytes end.
        out: uint8.

    Returns:
        (bytes written, position behind the end mark, error or 0).
    """
    size = len(out)
    n, state = np.int64(0), np.int64(0)
    pos = np.int64(pos)
    literals = np.int64(0)
    if pos < end and data[pos] >= 18:
        literals = np.int64(data[pos]) - 17
        state = np.int64(min(int(literals), _RUN))
        pos += 1
    while True:
        if literals > end - pos:
            return n, pos, NO_END_MARK
        if literals > size - n:
            return n, pos, OVERLONG
        for index in range(literals):
            out[n + index] = data[pos + index]
        n += literals
        pos += literals
        if pos >= end:
            return n, pos, NO_END_MARK
        if data[pos] < 16 and state == 0:
            literals = np.int64(data[pos])
            pos += 1
            if literals == 0:
                literals, pos = _long_length(data, pos, end, 15)
                if pos < 0:
                    return n, np.int64(end), NO_END_MARK
            literals += 3
            state = np.int64(_RUN)
            continue
        length, distance, literals, behind = _match(data, pos, end, state)
        if behind < 0:
            return n, pos, NO_END_MARK
        if distance == _FAR and data[pos] < 32 and data[pos] >= 16:
            return n, behind, 0
        if distance > n:
            return n, pos, BAD_DISTANCE
        if length > size - n:
            return n, pos, OVERLONG
        for index in range(n, n + length):
            out[index] = out[index - distance]
        n += length
        pos = behind
        state = literals
