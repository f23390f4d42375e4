"""FREQ of given frequencies, and the waves that they are."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tests.support.encoders.bitstream import bits, to_bytes


def block(count: int, numbers: Mapping[int, int], exponent: int) -> bytes:
    """A block of ``count`` values: ``numbers`` at their places, the largest first."""
    kept = sorted(numbers.items(), key=lambda item: -abs(item[1]))
    text = bits(count, 16) + bits(len(kept), 16) + bits(exponent, 16)
    field = (count - 1).bit_length().bit_length()
    for at in range(0, len(kept), 8):
        places = [place for place, _ in kept[at : at + 8]]
        width = max(place.bit_length() for place in places)
        text += bits(width, field) + "".join(bits(place, width) for place in places)
    if kept:
        width = abs(kept[0][1]).bit_length()
        least = abs(kept[-1][1])
        text += bits(width, 8) + bits(least, width)
        for _, number in kept:
            text += bits(number < 0, 1) + bits(abs(number) - least, width)
            width = (abs(number) - least).bit_length()
    return to_bytes(text)


def waves(count: int, numbers: Mapping[int, int], exponent: int) -> list[float]:
    """The sum of the cosines that a block stands for."""
    scale = 2.0**exponent
    return [
        sum(
            number
            * scale
            * math.sqrt((1 if place == 0 else 2) / count)
            * math.cos(math.pi * place * (2 * at + 1) / (2 * count))
            for place, number in numbers.items()
        )
        for at in range(count)
    ]
