"""Encodings that lose something: how far decoded numbers may be from what the file says of them.

What a file says of its points was made of what the writer was given, not of what it encoded. With
the encodings below the two differ, in files that nothing is wrong with:

    RLE, TS_2DIFF of floats   rounded to some decimal places; NaN and what is too large for that
                              becomes some other number altogether (in older versions)
    RLBE of floats, old form  the same
    CAMEL                     NaN becomes 0, now and then a last bit is lost
    SPRINTZ                   a step of more than half of what the integer (of floats: the bits)
                              holds becomes another number altogether

Points are compared as far as that leaves something to compare; sums of rounded ones are not.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from common.tsfile import DataType, Encoding, Statistics
from receiver.points.summaries import differing

__all__ = ["far"]

_SINGLE: Final = frozenset({DataType.FLOAT, DataType.INT32, DataType.DATE})
_LARGE_FLOAT: Final = 2.0**31 / 1e6  # six decimal places of it no longer fit into 32 bits
_LARGE_DOUBLE: Final = 2.0**63 / 1e9


def far(encoding: int, code: int, ours: Statistics, theirs: Statistics) -> str | None:
    """What differs by more than the encoding explains, for a person; None if nothing does.

    Args:
        encoding: one that loses something.
        code: data type.
        ours: of numbers as decoded.
        theirs: as the file says.
    """
    counted = Statistics(ours.count, ours.start, ours.end)
    wrong = differing(counted, theirs)
    if wrong or not ours.count or _lost(encoding, code, theirs):
        return wrong
    if encoding == Encoding.SPRINTZ:  # where it loses nothing
        return differing(ours, theirs, near_sum=True)
    for name in ("first", "last", "min", "max"):
        one, other = getattr(ours, name), getattr(theirs, name)
        if one is not None and other is not None and not _near(encoding, code, one, other):
            return f"{name} is {one}, far from {other}"
    return None


def _lost(encoding: int, code: int, said: Statistics) -> bool:
    """Whether some of the numbers are such as the encoding turns into others."""
    if encoding == Encoding.FREQ:
        return True  # how much is lost was for the writer's configuration to say
    numbers = [n for n in (said.first, said.last, said.min, said.max, said.sum) if n is not None]
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        return True
    if encoding == Encoding.CAMEL:
        return False
    if encoding == Encoding.SPRINTZ:
        return _span(code, said) >= (2**29 if code in _SINGLE else 2**61)
    large = _LARGE_FLOAT if code == DataType.FLOAT else _LARGE_DOUBLE
    return any(abs(float(number)) >= large for number in numbers[:4])


def _span(code: int, said: Statistics) -> int:
    """From the least to the greatest integer (of floats: of their bits) there can be."""
    low, high = said.min, said.max
    if code == DataType.FLOAT:
        bits = np.array([low, high], np.float32).view(np.int32).tolist()
    elif code == DataType.DOUBLE:
        bits = np.array([low, high], np.float64).view(np.int64).tolist()
    else:
        assert isinstance(low, int)
        assert isinstance(high, int)
        return high - low
    # the bits of negative numbers are negative, and the nearer to 0 the greater the number
    return int(max(bits) - min(bits)) if (bits[0] < 0) == (bits[1] < 0) else 2**64


def _near(encoding: int, code: int, one: float, other: float) -> bool:
    if one == other:
        return True
    single = code == DataType.FLOAT
    slack = (2.4e-7 if single else 4.5e-16) * max(abs(one), abs(other))
    if encoding == Encoding.CAMEL:
        return abs(one - other) <= slack
    places = next((digits for digits in range(16) if _has(one, digits, single=single)), 16)
    return abs(one - other) <= (0.5 + 1e-6) * 10.0**-places + slack


def _has(number: float, places: int, *, single: bool) -> bool:
    """Whether a number has no more than so many decimal places."""
    rounded = round(number, places)
    return bool(np.float32(rounded) == np.float32(number)) if single else rounded == number
