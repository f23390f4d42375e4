"""RLE of integers, as the Java writer chooses its runs; and of all zeros, as the C++ one may."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tests.support.encoders.bitstream import bits, to_bytes, uvarint

MOST_REPEATED = 0x7FFF
MOST_GROUPS = 63


def integers(values: Sequence[int], size: int, *, least_width: int = 1) -> bytes:
    """A block: repeated runs where a value comes 8 times in a row, packed groups elsewhere."""
    mask = (1 << size) - 1
    width = max([least_width, *((value & mask).bit_length() for value in values)])
    body = bytearray([width])
    waiting: list[int] = []
    for value, group in groupby(values):
        left = len(list(group))
        take = min(left, -len(waiting) % 8)  # fill up the group that is open
        waiting += [value] * take
        left -= take
        while left >= 8:
            body += _packed(waiting, width)
            waiting = []
            run = min(left, MOST_REPEATED)
            body += uvarint(run << 1) + _one(value & mask, width, size)
            left -= run
        waiting += [value] * left
    body += _packed(waiting, width)
    return uvarint(len(body)) + bytes(body)


def _packed(values: Sequence[int], width: int) -> bytes:
    out = bytearray()
    for start in range(0, len(values), 8 * MOST_GROUPS):
        some = values[start : start + 8 * MOST_GROUPS]
        groups = -(-len(some) // 8)
        out += bytes([groups << 1 | 1, len(some) - 8 * (groups - 1)])
        text = "".join(bits(value, width) for value in some)
        out += to_bytes(text + "0" * (groups * 8 * width - len(text)))
    return bytes(out)


def _one(value: int, width: int, size: int) -> bytes:
    return value.to_bytes((width + 7) // 8, "little" if size == 32 else "big")
