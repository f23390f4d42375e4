"""RLBE of integers; and of floats as writers before 2.1 had it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from tests.support.encoders.bitstream import bits, to_bytes, wrap

BLOCK = 10_000


def integers(given: Sequence[int], size: int) -> bytes:
    """A page of integers, or of the bits of floats."""
    out = bytearray()
    for at in range(0, len(given), BLOCK):
        block = given[at : at + BLOCK]
        out += _block([wrap(b - a, size) for a, b in zip([0, *block], block, strict=False)], size)
    return bytes(out)


def old_floats(given: Sequence[float], size: int) -> bytes:
    """A page of floats: the bits of their differences."""
    out = bytearray()
    for at in range(0, len(given), BLOCK):
        block = np.array(given[at : at + BLOCK], _dtype(size))
        with np.errstate(all="ignore"):
            changes = np.concatenate([block[:1], block[1:] - block[:-1]])
        out += _block([int(each) for each in changes.view(f"i{size // 8}")], size)
    return bytes(out)


def read_back(given: Sequence[float], size: int) -> list[float]:
    """What a reader makes of ``old_floats``."""
    found: list[float] = []
    with np.errstate(all="ignore"):
        for at in range(0, len(given), BLOCK):
            value = before = _dtype(size)(given[at])
            found.append(float(value))
            for each in given[at + 1 : at + BLOCK]:
                this = _dtype(size)(each)
                value = value + (this - before)
                before = this
                found.append(float(value))
    return found


def _dtype(size: int) -> type[np.floating]:
    return np.float32 if size == 32 else np.float64


def _block(changes: Sequence[int], size: int) -> bytes:
    mask = (1 << size) - 1
    text = bits(len(changes), 32)
    for length, group in groupby(changes, key=lambda each: max(1, (each & mask).bit_length())):
        some = list(group)
        text += bits(length, 6 if size == 32 else 7) + _fibonacci(len(some))
        for each in some:
            written = bits(each, length)
            text += "0" + written[1:] if length == size else written
    return to_bytes(text)


def _fibonacci(number: int) -> str:
    row = [1, 2]
    while row[-1] <= number:
        row.append(row[-1] + row[-2])
    text = ""
    for each in reversed(row):
        if each <= number:
            number -= each
            text = "1" + text
        elif text:
            text = "0" + text
    return text + "1"
