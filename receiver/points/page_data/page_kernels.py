"""Pages of many chunks, one behind the other in one buffer, decoded by one call of compiled code.

Each page has bytes from ``starts`` to ``ends``, and goes to rows ``lows`` to ``highs`` of the
output. Of a page that is not as it should be ``good`` is unset, and its rows mean nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from receiver.points.encodings.bits import uvarint
from receiver.points.encodings.gorilla import decode_32, decode_64
from receiver.points.encodings.ts2diff import decode
from receiver.points.jit import Number, kernel

__all__ = [
    "bitmaps",
    "deltas",
    "edges",
    "in_order",
    "only_pages",
    "plain_numbers",
    "plain_times",
    "spread",
    "xors_32",
    "xors_64",
]


@kernel
def only_pages(
    data: Any, positions: Any, limits: Any, prefix: Any, code: Number, found: Any
) -> None:
    """Find the page of each chunk that has no other one.

    Args:
        data: uint8; what holds the chunks.
        positions: where the header of each begins.
        limits: where what is at hand of it ends.
        prefix: the name of the series, behind its length.
        code: type of the series.
        found: int64, a row a chunk: becomes where the page begins (-1 if it is not such a chunk,
            -2 if it has no page at all), its bytes, those that they become, compression, encoding.
    """
    for chunk in range(len(positions)):
        found[chunk, 0] = -1
        at, limit = positions[chunk], limits[chunk]
        if at + 1 + len(prefix) + 3 > limit or data[at] & 0x3F != 5:
            continue
        at += 1
        is_same = True
        for index in range(len(prefix)):
            is_same &= data[at + index] == prefix[index]
        size, at = uvarint(data, at + len(prefix), limit, 5)
        if not is_same or at < 0 or at + 3 > limit or data[at] != code:
            continue
        found[chunk, 3], found[chunk, 4] = data[at + 1], data[at + 2]
        end = at + 3 + np.int64(size)
        if size == np.uint64(0):
            found[chunk, 0] = -2
        if size == np.uint64(0) or end > limit:
            continue
        whole, at = uvarint(data, at + 3, end, 5)
        if at < 0 or whole == np.uint64(0):
            continue
        length, at = uvarint(data, at, end, 5)
        if at < 0 or at + np.int64(length) != end:
            continue
        found[chunk, 0], found[chunk, 1], found[chunk, 2] = at, length, whole


@kernel
def plain_times(
    data: Any, starts: Any, ends: Any, lows: Any, highs: Any, times: Any, splits: Any, good: Any
) -> None:
    """Times that stand before values; ``splits`` becomes where those begin."""
    for page in range(len(starts)):
        good[page] = False
        size, at = uvarint(data, starts[page], ends[page], 5)
        if at < 0:
            continue
        behind = at + np.int64(size)
        if behind > ends[page]:
            continue
        out = times[lows[page] : highs[page]]
        n, pos, error = decode(data, np.int64(at), behind, out)
        if error == 0 and n == len(out) and pos == behind:
            splits[page] = behind
            good[page] = True


@kernel
def deltas(
    data: Any, starts: Any, ends: Any, lows: Any, highs: Any, values: Any, good: Any
) -> None:
    """TS_2DIFF of int32 or int64."""
    for page in range(len(starts)):
        out = values[lows[page] : highs[page]]
        n, pos, error = decode(data, starts[page], ends[page], out)
        good[page] &= error == 0 and n == len(out) and pos == ends[page]


@kernel
def xors_64(
    data: Any, starts: Any, ends: Any, lows: Any, highs: Any, values: Any, last: Any, good: Any
) -> None:
    """GORILLA of int64; ``last`` is the bits of its end."""
    for page in range(len(starts)):
        out = values[lows[page] : highs[page]]
        n, pos, error = decode_64(data, starts[page], ends[page], out, last)
        good[page] &= error == 0 and n == len(out) and pos == ends[page]


@kernel
def xors_32(
    data: Any, starts: Any, ends: Any, lows: Any, highs: Any, values: Any, last: Any, good: Any
) -> None:
    """GORILLA of int32; ``last`` is the bits of its end."""
    for page in range(len(starts)):
        out = values[lows[page] : highs[page]]
        n, pos, error = decode_32(data, starts[page], ends[page], out, last)
        good[page] &= error == 0 and n == len(out) and pos == ends[page]


@kernel
def plain_numbers(
    data: Any, starts: Any, ends: Any, lows: Any, highs: Any, values: Any, good: Any
) -> None:
    """Bytes as they are, the highest first, of int32 or int64."""
    size = values.itemsize
    for page in range(len(starts)):
        count = highs[page] - lows[page]
        if ends[page] - starts[page] != count * size:
            good[page] = False
            continue
        at = starts[page]
        for row in range(lows[page], highs[page]):
            word = np.uint64(0)
            for index in range(size):
                word = (word << np.uint64(8)) | np.uint64(data[at + index])
            values[row] = np.int64(word)
            at += size


@kernel
def bitmaps(
    data: Any,
    starts: Any,
    ends: Any,
    lows: Any,
    highs: Any,
    valid: Any,
    counts: Any,
    splits: Any,
    good: Any,
) -> None:
    """Rows and bits before values of an aligned series; ``counts`` becomes how many are set."""
    for page in range(len(starts)):
        good[page] = False
        counts[page] = 0
        rows = highs[page] - lows[page]
        behind = starts[page] + 4 + (rows + 7) // 8
        if behind > ends[page]:
            continue
        said = np.int64(0)
        for index in range(4):
            said = (said << 8) | np.int64(data[starts[page] + index])
        if said != rows:
            continue
        count, at, low = 0, starts[page] + 4, lows[page]
        whole = rows >> 3
        for index in range(whole):  # of most pages each row has a value
            byte = data[at + index]
            for bit in range(8):
                is_set = (byte >> (7 - bit)) & 1
                valid[low + 8 * index + bit] = is_set != 0
                count += is_set
        for row in range(8 * whole, rows):
            is_set = (data[at + whole] >> (7 - (row & 7))) & 1
            valid[low + row] = is_set != 0
            count += is_set
        counts[page] = count
        splits[page] = behind
        good[page] = True


@kernel
def in_order(times: Any, lows: Any, highs: Any, good: Any) -> None:
    """See that the times of each page increase."""
    for page in range(len(lows)):
        for row in range(lows[page] + 1, highs[page]):
            if times[row] <= times[row - 1]:
                good[page] = False
                break


@kernel
def edges(times: Any, valid: Any, lows: Any, highs: Any, first: Any, last: Any) -> None:
    """The first and the last time of each page that has a value."""
    for page in range(len(lows)):
        is_first = True
        for row in range(lows[page], highs[page]):
            if valid[row]:
                if is_first:
                    first[page] = times[row]
                    is_first = False
                last[page] = times[row]


@kernel
def spread(dense: Any, begins: Any, lows: Any, highs: Any, valid: Any, values: Any) -> None:
    """Put values that stand densely, of each page from ``begins`` on, into rows that are set."""
    for page in range(len(lows)):
        at = begins[page]
        for row in range(lows[page], highs[page]):
            if valid[row] and at < len(dense):
                values[row] = dense[at]
                at += 1
