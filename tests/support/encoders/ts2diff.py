"""TS_2DIFF of integers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tests.support.encoders.bitstream import bits, to_bytes, wrap

BLOCK = 129


def integers(values: Sequence[int], size: int, *, block: int = BLOCK) -> bytes:
    return b"".join(
        _block(values[start : start + block], size) for start in range(0, len(values), block)
    )


def _block(values: Sequence[int], size: int) -> bytes:
    first, largest = values[0], (1 << (size - 1)) - 1
    deltas = [wrap(b - a, size) for a, b in pairwise(values)]
    base = min(deltas, default=largest)
    above = [(delta - base) & ((1 << size) - 1) for delta in deltas]
    width = max((each.bit_length() for each in above), default=0)
    head = bits(len(deltas), 32) + bits(width, 32) + bits(base, size) + bits(first, size)
    return to_bytes(head + "".join(bits(each, width) for each in above))
