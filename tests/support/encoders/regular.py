"""REGULAR: of values with one step between them, some of which are missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tests.support.encoders.bitstream import wrap

BLOCK = 128


def integers(values: Sequence[int], size: int, *, block: int = BLOCK) -> bytes:
    return b"".join(
        _block(values[start : start + block], size) for start in range(0, len(values), block)
    )


def _block(values: Sequence[int], size: int) -> bytes:
    deltas = [wrap(b - a, size) for a, b in pairwise(values)]
    step = min(deltas, default=(1 << (size - 1)) - 1)
    if all(delta == step for delta in deltas):
        return b"\0" + _numbers(len(values), step, values[0], size)
    steps = [(value - values[0]) // step for value in values]
    bitmap = sum(1 << each for each in steps)
    raw = bitmap.to_bytes((bitmap.bit_length() + 7) // 8, "little")
    return (
        b"\1" + len(raw).to_bytes(4, "big") + raw
        + _numbers(steps[-1] + 1, step, values[0], size)
    )  # fmt: skip


def _numbers(count: int, step: int, first: int, size: int) -> bytes:
    return b"".join(
        number.to_bytes(length, "big", signed=True)
        for number, length in ((count, 4), (step, size // 8), (first, size // 8))
    )
